//! The cloud configuration file: what parses, what it means, and how each fault reads.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use outrigger_manager::cloud_config::identity::{cluster_of_tags, region_of_zone};
use outrigger_manager::cloud_config::overrides::{self, AwsService};
use outrigger_manager::cloud_config::{CloudConfig, ClusterId, HealthProbeMode, IdentityError, IpFamily, file};
use proptest::prelude::*;

fn read(text: &str) -> CloudConfig {
    CloudConfig::parse(text.as_bytes(), "aws.conf", true).unwrap_or_else(|error| panic!("{error}"))
}

fn fault(text: &str) -> String {
    match CloudConfig::parse(text.as_bytes(), "aws.conf", true) {
        Err(error) => error.to_string(),
        Ok(config) => panic!("accepted: {config:?}"),
    }
}

const FULL: &str = r#"; a file as an operator writes it
[global]
Zone = us-east-1a
region = eu-west-1   # Zone wins
VPC = vpc-1
SubnetID = subnet-1
RouteTableID = rtb-1
RoleARN = arn:aws:iam::123456789012:role/ccm
SourceARN = arn:aws:eks:us-east-1:123456789012:cluster/c
KubernetesClusterTag = prod
KubernetesClusterID = "prod"
DisableSecurityGroupIngress
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 0x2810
ClusterServiceSharedLoadBalancerHealthProbePath = /ready
SupportedTopologyInstanceTypePattern = "^p5\\..*$"
NLBSecurityGroupMode = Managed

[ServiceOverride "1"]
Service = EC2
Region = us-east-1
URL = http://127.0.0.1:5000
SigningRegion = us-east-1

[ServiceOverride "2"]
Service = elasticloadbalancing
Region = us-east-1
URL = http://127.0.0.1:5001
SigningRegion = us-east-1
SigningName = elasticloadbalancing
"#;

#[test]
fn every_key_is_read() {
    let config = read(FULL);
    assert_eq!(config.vpc.as_deref(), Some("vpc-1"));
    assert_eq!(config.subnet_id.as_deref(), Some("subnet-1"));
    assert_eq!(config.route_table_id.as_deref(), Some("rtb-1"));
    assert!(config.role_arn.is_some() && config.source_arn.is_some());
    assert!(config.disable_security_group_ingress);
    assert_eq!(config.elb_security_group.as_deref(), Some("sg-1"));
    assert_eq!(config.ip_families(), [IpFamily::V6, IpFamily::V4]);
    assert_eq!(config.health_probe_mode, HealthProbeMode::Shared);
    assert_eq!(config.health_probe_port, Some(10256));
    assert_eq!(config.health_probe_path.as_deref(), Some("/ready"));
    assert!(
        config
            .topology_instance_types
            .as_ref()
            .is_some_and(|pattern| pattern.is_match("p5.48xlarge"))
    );
    assert!(config.nlb_security_groups_managed);
    assert_eq!(config.service_overrides.len(), 2);
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn an_empty_file_and_a_byte_order_mark_are_fine() {
    assert_eq!(read("").ip_families(), [IpFamily::V4]);
    assert_eq!(read("\u{feff}[Global]\r\nVPC=v\r\n").vpc.as_deref(), Some("v"));
}

#[test]
fn the_flag_wins_then_zone_then_region_and_the_environment_comes_last() {
    let region = |text: &str, flag: Option<&str>, variable: &str| {
        let environment = |name: &str| (name == variable).then(|| "ap-south-1".to_owned());
        let given = read(text).given_region(flag, environment);
        given.map(|given| given.map(|given| (given.value, given.source)))
    };
    for (text, flag, variable, value, source) in [
        (FULL, Some("sa-east-1"), "AWS_REGION", "sa-east-1", "--region"),
        (
            FULL,
            Some(""),
            "AWS_REGION",
            "us-east-1",
            "Zone of the cloud configuration",
        ),
        (
            "[Global]\nRegion=eu-west-1",
            None,
            "AWS_REGION",
            "eu-west-1",
            "Region of the cloud configuration",
        ),
        ("", None, "AWS_REGION", "ap-south-1", "AWS_REGION"),
        ("", None, "AWS_DEFAULT_REGION", "ap-south-1", "AWS_DEFAULT_REGION"),
    ] {
        assert_eq!(region(text, flag, variable), Ok(Some((value.into(), source))), "{text}");
    }
    assert_eq!(region("", None, "none"), Ok(None));
    assert_eq!(
        region("[Global]\nZone=nowhere", None, "AWS_REGION"),
        Err(IdentityError::BadZone("nowhere".into()))
    );
}

#[test]
fn regions_are_the_leading_part_of_zones() {
    for (zone, region) in [
        ("us-west-2a", Some("us-west-2")),
        ("us-west-2-lax-1a", Some("us-west-2")),
        ("us-gov-east-1b", Some("us-gov-east-1")),
        ("us-east-1", Some("us-east-1")),
        ("useast1a", None),
        ("us-", None),
        ("1a", None),
        ("", None),
    ] {
        assert_eq!(region_of_zone(zone), region, "{zone}");
    }
}

#[test]
fn all_cluster_ids_must_agree() {
    let given = |text: &str, flag| read(text).given_cluster(flag);
    let cluster = |id: &str, legacy_tags| {
        Ok(Some(ClusterId {
            id: id.into(),
            legacy_tags,
        }))
    };
    assert_eq!(given(FULL, Some("prod")), cluster("prod", true));
    assert_eq!(given("[Global]\nKubernetesClusterID=a", None), cluster("a", false));
    assert_eq!(given("", Some("flag")), cluster("flag", false));
    assert_eq!(given("", None), Ok(None));
    assert_eq!(given("", Some("")), Ok(None));
    let both = given("[Global]\nKubernetesClusterTag=a\nKubernetesClusterID=b", None).unwrap_err();
    assert!(both.to_string().contains("different clusters"));
    assert!(given(FULL, Some("other")).is_err());
}

#[test]
fn the_own_instances_tags_name_one_cluster() {
    let of = |tags: &[(&'static str, &'static str)]| cluster_of_tags(tags.iter().copied()).map_err(|e| e.to_string());
    let cluster = |id: &str, legacy_tags| {
        Ok(Some(ClusterId {
            id: id.into(),
            legacy_tags,
        }))
    };
    const TAG: (&str, &str) = ("kubernetes.io/cluster/a", "");
    const LEGACY: (&str, &str) = ("KubernetesCluster", "a");
    assert_eq!(of(&[("Name", "x"), TAG]), cluster("a", false));
    assert_eq!(of(&[LEGACY]), cluster("a", true));
    assert_eq!(of(&[TAG, LEGACY]), cluster("a", true));
    for none in [
        &[][..],
        &[("Name", "a")],
        &[("kubernetes.io/cluster/", "owned")],
        &[("KubernetesCluster", "")],
    ] {
        assert_eq!(of(none), Ok(None), "{none:?}");
    }
    for two in [
        [TAG, ("kubernetes.io/cluster/b", "owned")],
        [TAG, ("KubernetesCluster", "b")],
    ] {
        let error = of(&two).unwrap_err();
        assert!(
            error.contains("kubernetes.io/cluster/a") && error.contains("set --cluster-id"),
            "{error}"
        );
    }
}

#[test]
fn the_vpc_is_the_flags_then_the_files() {
    let vpc = |flag| read(FULL).given_vpc(flag).map(|given| given.value);
    assert_eq!(vpc(Some("vpc-2")).as_deref(), Some("vpc-2"));
    assert_eq!(vpc(None).as_deref(), Some("vpc-1"));
    assert_eq!(read("").given_vpc(None), None);
}

#[test]
fn overrides_are_found_by_the_new_and_by_the_old_name() {
    let config = read(FULL);
    let url = |service, region| overrides::find(&config.service_overrides, service, region).map(|o| o.url.as_str());
    assert_eq!(url(AwsService::Ec2, "us-east-1"), Some("http://127.0.0.1:5000"));
    assert_eq!(url(AwsService::Elb, "us-east-1"), Some("http://127.0.0.1:5001"));
    assert_eq!(url(AwsService::Elbv2, "us-east-1"), Some("http://127.0.0.1:5001"));
    assert_eq!(url(AwsService::Ec2, "eu-west-1"), None);
    assert_eq!(url(AwsService::Kms, "us-east-1"), None);
}

#[test]
fn each_fault_names_file_line_column_and_fix() {
    for (text, wanted) in [
        (
            "[Global]\nZome = a",
            r#"aws.conf:2:1: unknown key "Zome" in section Global; did you mean Zone?"#,
        ),
        (
            "[Globel]\n",
            r#"aws.conf:1:2: unknown section "Globel"; did you mean Global?"#,
        ),
        ("[Global]\nVPC", "aws.conf:2:1: the key VPC needs a value"),
        (
            "[Global]\nDisableSecurityGroupIngress = maybe",
            "aws.conf:2:31: DisableSecurityGroupIngress = \"maybe\": expected true",
        ),
        (
            "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 99999",
            "expected a port",
        ),
        (
            "[Global]\nSupportedTopologyInstanceTypePattern = \"(\"",
            "not a regular expression",
        ),
        ("[Global]\nNLBSecurityGroupMode = managed", "expected Managed"),
        (
            "[Global]\nClusterServiceLoadBalancerHealthProbeMode = shared",
            "expected ServiceNodePort or Shared",
        ),
        ("[Global]\nRoleARN = ccm", "not an ARN"),
        ("[Global \"x\"]\n", "must not have a name in quotes"),
        (
            "[ServiceOverride \"a\"]\nService=EC2\nURL=http://x\nSigningRegion=r",
            r#"aws.conf:1:2: ServiceOverride "a": Region is missing"#,
        ),
        (
            "[ServiceOverride \"a\"]\nService=EC2\nRegion=r\nURL=x\nSigningRegion=r",
            "not an http or https URL",
        ),
        (
            "[ServiceOverride \"a\"]\nService=EC2\nRegion=r\nURL=http://x\nSigningRegion=r\n[ServiceOverride \"b\"]\nService= \"EC2 \"\nRegion=r\nURL=http://y\nSigningRegion=r",
            r#"aws.conf:6:2: ServiceOverride "b": duplicate"#,
        ),
        ("[Global]\nZone = \"a", "aws.conf:2:10: a quoted value is not closed"),
    ] {
        let found = fault(text);
        assert!(found.contains(wanted), "{text:?}\n gave {found}");
    }
}

#[test]
fn all_faults_are_reported_together() {
    assert_eq!(fault("[Global]\nA = 1\nB = 2\nVPC\n").lines().count(), 3);
}

#[test]
fn a_lenient_reading_passes_over_unknown_names_in_silence_and_still_refuses_wrong_values() {
    let config = CloudConfig::parse(b"[Global]\nNew = 1\nVPC = v\n[Other]\nx = y", "f", false).unwrap();
    assert_eq!(config.vpc.as_deref(), Some("v"));
    assert_eq!((config.warnings.len(), config.ignored.len()), (0, 2), "{config:?}");
    assert!(CloudConfig::parse(b"[Global]\nDisableSecurityGroupIngress = maybe", "f", false).is_err());
}

#[test]
fn keys_of_old_files_are_accepted_with_a_warning() {
    let config = read("[Global]\nDisableStrictZoneCheck = maybe\nNodeIPFamilies = ipv4,ipv6");
    assert_eq!(config.warnings.len(), 2);
    assert_eq!(config.ip_families(), []);
}

#[test]
fn a_list_is_emptied_by_a_key_without_value() {
    assert_eq!(
        read("[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies").ip_families(),
        [IpFamily::V4]
    );
}

#[test]
fn a_file_that_is_not_text_names_the_place() {
    let error = CloudConfig::parse(b"[Global]\nVPC = \xff", "f", true).unwrap_err();
    assert_eq!(error.to_string(), "f:2:7: the file is not UTF-8 here");
}

#[test]
fn a_missing_file_names_the_flag_and_the_path() {
    let error = file::read("/nonexistent/aws.conf".as_ref(), true).unwrap_err();
    assert!(error.to_string().contains("--cloud-config=/nonexistent/aws.conf"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(content in proptest::collection::vec(any::<u8>(), 0..400), strict: bool) {
        let _ = CloudConfig::parse(&content, "f", strict);
    }

    #[test]
    fn text_made_of_the_syntaxs_own_letters_never_panics(content in r#"[\[\]"\\=;# \t\r\nGlobalServiceOverrideZoneµ\-]{0,200}"#) {
        let _ = CloudConfig::parse(content.as_bytes(), "f", true);
    }

    #[test]
    fn a_quoted_value_is_read_back_as_written(value in "[^\\x00-\\x1f]{0,60}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let config = read(&format!("[Global]\nVPC = \"{quoted}\"\n"));
        prop_assert_eq!(config.vpc.unwrap_or_default(), value);
    }
}

#[test]
fn an_endpoint_without_encryption_gets_a_warning_unless_it_is_on_this_machine() {
    let warnings = |service: &str, url: &str| {
        read(&format!(
            "[ServiceOverride \"a\"]\nService={service}\nRegion=r\nURL={url}\nSigningRegion=r\n"
        ))
        .warnings
    };
    for url in [
        "http://vpce-1.example.com",
        "http://10.0.0.1:5000/x",
        "http://[fd00::1]",
        "HTTP://localhost.example.com",
    ] {
        let warnings = warnings("EC2", url);
        assert_eq!(warnings.len(), 1, "{url}: {warnings:?}");
        assert!(
            warnings[0].starts_with("aws.conf:1:2: ServiceOverride \"a\": URL ")
                && warnings[0].contains("use https://"),
            "{warnings:?}"
        );
    }
    for url in [
        "https://vpce-1.example.com",
        "http://127.0.0.1:5000",
        "http://127.9.9.9",
        "http://[::1]:5000",
        "http://localhost:5000",
    ] {
        assert_eq!(warnings("EC2", url), Vec::<String>::new(), "{url}");
    }
    for metadata in ["ec2imds", "ec2metadata"] {
        assert_eq!(
            warnings(metadata, "http://169.254.169.254/latest"),
            Vec::<String>::new(),
            "not signed"
        );
    }
}
