use outrigger_aws::ec2::IpRange;
use serde_json::json;

use super::*;
use outrigger_aws::ec2::IpPermission;

const GONE: &str = "a0123456789abcdef0123456789abcde";
const LIVE_UID: &str = "12345678-1234-1234-1234-123456789abc";

fn settings() -> Settings {
    Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        ..Settings::default()
    }
}

fn existing() -> ExistingServices {
    let service = |name: &str, uid: &str, kind: &str| -> Service {
        let listed = "service.beta.kubernetes.io/aws-load-balancer-security-groups";
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name, "uid": uid, "annotations": {listed: "sg-listed"}},
            "spec": {"type": kind},
        }))
        .unwrap()
    };
    let services = [
        service("kubernetes", "u0", "ClusterIP"),
        service("web", LIVE_UID, "ClusterIP"),
    ];
    ExistingServices::of(services.iter())
}

fn owned(service: &str) -> Tags {
    let mut tags = names::cluster_tags("prod", false);
    if !service.is_empty() {
        tags.insert(names::SERVICE_TAG.into(), service.into());
    }
    tags
}

fn classic(name: &str, groups: &[&str]) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        vpc_id: Some("vpc-1".into()),
        security_groups: groups.iter().map(|id| (*id).to_owned()).collect(),
        ..LoadBalancer::default()
    }
}

fn network(name: &str) -> NetworkLoadBalancer {
    NetworkLoadBalancer {
        arn: format!("arn:{name}"),
        name: name.into(),
        vpc_id: Some("vpc-1".into()),
        ..NetworkLoadBalancer::default()
    }
}

fn target_group(name: &str, used_by: &[&str]) -> TargetGroup {
    TargetGroup {
        arn: format!("arn:{name}"),
        name: name.into(),
        vpc_id: Some("vpc-1".into()),
        load_balancers: used_by.iter().map(|name| format!("arn:{name}")).collect(),
        ..TargetGroup::default()
    }
}

fn group(id: &str, name: &str, description: &str, tags: Tags) -> SecurityGroup {
    SecurityGroup {
        id: id.into(),
        name: Some(name.into()),
        description: Some(description.into()),
        vpc_id: Some("vpc-1".into()),
        ingress: vec![],
        tags,
    }
}

fn of_classic(id: &str, load_balancer: &str, service: &str, tags: Tags) -> SecurityGroup {
    let description = format!("Security group for Kubernetes ELB {load_balancer} ({service})");
    group(id, &format!("k8s-elb-{load_balancer}"), &description, tags)
}

fn node_group(id: &str, description: &str, tags: Tags) -> SecurityGroup {
    let range = IpRange {
        cidr: "0.0.0.0/0".into(),
        description: Some(description.into()),
    };
    SecurityGroup {
        ingress: vec![IpPermission {
            protocol: "tcp".into(),
            ranges: vec![range],
            ..IpPermission::default()
        }],
        ..group(id, "nodes", "nodes", tags)
    }
}

fn kinds_and_ids(findings: &[Finding]) -> Vec<String> {
    let what = findings.iter().map(|finding| &finding.resource.what);
    what.map(|what| format!("{} {}", what.kind(), what.id())).collect()
}

fn found(inventory: &Inventory) -> Vec<String> {
    kinds_and_ids(&findings(inventory, &existing(), &settings()))
}

#[test]
fn all_resources_of_a_missing_service_are_found_in_the_order_of_deletion() {
    let inventory = Inventory {
        classic: vec![(classic(GONE, &["sg-own"]), owned("default/gone"))],
        network: vec![(network("a1123456789abcdef0123456789abcde"), owned("default/gone2"))],
        target_groups: vec![
            (
                target_group("k8s-default-gone2-0123456789", &["a1123456789abcdef0123456789abcde"]),
                owned("default/gone2"),
            ),
            (
                target_group("k8s-default-gone3-0123456789", &[]),
                owned("default/gone3"),
            ),
        ],
        groups: vec![
            of_classic("sg-own", GONE, "default/gone", owned("")),
            group(
                "sg-managed",
                "k8s-default-gone2-0123456789",
                names::GROUP_DESCRIPTION,
                owned(""),
            ),
            node_group(
                "sg-node",
                "kubernetes.io/rule/nlb/client=a1123456789abcdef0123456789abcde",
                owned(""),
            ),
        ],
        ..Inventory::default()
    };
    assert_eq!(
        found(&inventory),
        [
            format!("classic-load-balancer {GONE}"),
            "network-load-balancer arn:a1123456789abcdef0123456789abcde".into(),
            "target-group arn:k8s-default-gone2-0123456789".into(),
            "target-group arn:k8s-default-gone3-0123456789".into(),
            "security-group-rule sg-node kubernetes.io/rule/nlb/client=a1123456789abcdef0123456789abcde".into(),
            "security-group sg-managed".into(),
            "security-group sg-own".into(),
        ]
    );
}

#[test]
fn load_balancers_that_anyone_may_own_are_kept() {
    let live = names::load_balancer(LIVE_UID);
    let mut elsewhere = owned("default/gone");
    elsewhere.insert("elbv2.k8s.aws/cluster".into(), "prod".into());
    let mut shared = owned("default/gone");
    shared.insert("kubernetes.io/cluster/prod".into(), "shared".into());
    let mut of_two = owned("default/gone");
    of_two.insert("kubernetes.io/cluster/other".into(), "owned".into());
    let mut of_other = names::cluster_tags("other", false);
    of_other.insert(names::SERVICE_TAG.into(), "default/gone".into());
    let of_other_vpc = LoadBalancer {
        vpc_id: Some("vpc-2".into()),
        ..classic(GONE, &[])
    };
    for (lb, tags) in [
        (classic(&live, &[]), owned("default/gone")),
        (classic(GONE, &[]), owned("default/web")),
        (classic(GONE, &[]), owned("")),
        (classic(GONE, &[]), elsewhere),
        (classic(GONE, &[]), shared),
        (classic(GONE, &[]), of_two),
        (classic(GONE, &[]), of_other),
        (classic("by-hand", &[]), owned("default/gone")),
        (of_other_vpc, owned("default/gone")),
    ] {
        let inventory = Inventory {
            classic: vec![(lb.clone(), tags.clone())],
            ..Inventory::default()
        };
        assert_eq!(found(&inventory), Vec::<String>::new(), "{} {tags:?}", lb.name);
    }
}

#[test]
fn target_groups_and_security_groups_that_are_used_or_not_ours_are_kept() {
    let inventory = Inventory {
        classic: vec![(classic("by-hand", &["sg-used"]), Tags::new())],
        target_groups: vec![
            (
                target_group("k8s-default-gone-0123456789", &["by-hand"]),
                owned("default/gone"),
            ),
            (target_group("k8s-default-web-0123456789", &[]), owned("default/gone")),
            (target_group("k8s-default-gone-0123456789", &[]), Tags::new()),
            (target_group("mine", &[]), owned("default/gone")),
        ],
        groups: vec![
            of_classic("sg-used", GONE, "default/gone", owned("")),
            of_classic("sg-listed", GONE, "default/gone", owned("")),
            of_classic("sg-of-web", GONE, "default/web", owned("")),
            of_classic("sg-live", &names::load_balancer(LIVE_UID), "default/gone", owned("")),
            of_classic("sg-other", GONE, "default/gone", names::cluster_tags("other", false)),
            of_classic("sg-untagged", GONE, "default/gone", Tags::new()),
            group(
                "sg-web",
                "k8s-default-web-0123456789",
                names::GROUP_DESCRIPTION,
                owned(""),
            ),
            group("sg-mine", "k8s-default-gone-0123456789", "made by hand", owned("")),
        ],
        ..Inventory::default()
    };
    assert_eq!(found(&inventory), Vec::<String>::new());
    let mut configured = settings();
    configured.elb_security_group = Some("sg-own".into());
    let own = Inventory {
        groups: vec![of_classic("sg-own", GONE, "default/gone", owned(""))],
        ..Inventory::default()
    };
    assert!(findings(&own, &existing(), &configured).is_empty());
    assert_eq!(found(&own), ["security-group sg-own"]);
}

#[test]
fn rules_of_load_balancers_that_stay_or_of_shared_groups_are_kept() {
    let live = names::load_balancer(LIVE_UID);
    let mut shared = owned("");
    shared.insert("kubernetes.io/cluster/other".into(), "shared".into());
    let rule = |lb: &str| format!("kubernetes.io/rule/nlb/health={lb}");
    let inventory = Inventory {
        network: vec![(network(GONE), names::cluster_tags("other", false))],
        groups: vec![
            node_group("sg-1", &rule(&live), owned("")),
            node_group("sg-2", &rule(GONE), owned("")),
            node_group("sg-3", &rule("a2123456789abcdef0123456789abcde"), shared),
            node_group("sg-4", &rule("a2123456789abcdef0123456789abcde"), Tags::new()),
            node_group("sg-5", "kubernetes.io/rule/nlb/mtu", owned("")),
            node_group("sg-6", "by hand", owned("")),
        ],
        ..Inventory::default()
    };
    assert_eq!(found(&inventory), Vec::<String>::new());
}

#[test]
fn what_another_cluster_of_the_same_id_has_made_is_no_leftover() {
    let with_uid = |uid: &str| {
        let mut tags = owned("default/gone");
        tags.insert(names::CLUSTER_UID_TAG.into(), uid.into());
        tags
    };
    let of = |uid: &str| Inventory {
        classic: vec![(classic(GONE, &[]), with_uid(uid))],
        network: vec![(network("a1123456789abcdef0123456789abcde"), with_uid(uid))],
        target_groups: vec![(target_group("k8s-default-gone3-0123456789", &[]), with_uid(uid))],
        groups: vec![of_classic("sg-own", GONE, "default/gone", with_uid(uid))],
        ..Inventory::default()
    };
    let known = Settings {
        cluster_uid: Some("u-1".into()),
        ..settings()
    };
    let reasons = |inventory: &Inventory, settings: &Settings| -> Vec<Option<Kept>> {
        let all = findings(inventory, &existing(), settings);
        all.into_iter().map(|finding| finding.kept).collect()
    };
    assert_eq!(reasons(&of("u-1"), &known), vec![None; 4]);
    assert_eq!(reasons(&of("u-2"), &known), vec![None; 0]);
    assert_eq!(reasons(&of("u-2"), &settings()), vec![Some(Kept::UnknownUid); 4]);
}

#[test]
fn a_load_balancer_with_targets_that_are_no_nodes_is_kept_with_all_that_it_uses() {
    let nlb = "a1123456789abcdef0123456789abcde";
    let mut inventory = Inventory {
        classic: vec![(classic(GONE, &["sg-own"]), owned("default/gone"))],
        network: vec![(network(nlb), owned("default/gone2"))],
        target_groups: vec![
            (
                target_group("k8s-default-gone2-0123456789", &[nlb]),
                owned("default/gone2"),
            ),
            (
                target_group("k8s-default-gone3-0123456789", &[]),
                owned("default/gone3"),
            ),
        ],
        groups: vec![
            of_classic("sg-own", GONE, "default/gone", owned("")),
            node_group("sg-node", &format!("kubernetes.io/rule/nlb/client={nlb}"), owned("")),
        ],
        ..Inventory::default()
    };
    assert_eq!(found(&inventory).len(), 6);
    let targets = BTreeSet::from(["i-other".to_owned()]);
    let unattached = "arn:k8s-default-gone3-0123456789".to_owned();
    for of in [GONE.to_owned(), format!("arn:{nlb}"), unattached.clone()] {
        inventory.foreign_targets.insert(of, targets.clone());
    }
    let findings = findings(&inventory, &existing(), &settings());
    let expected = [
        format!("classic-load-balancer {GONE}"),
        format!("network-load-balancer arn:{nlb}"),
        format!("target-group {unattached}"),
    ];
    assert_eq!(kinds_and_ids(&findings), expected);
    let kept = Some(Kept::ForeignTargets(targets));
    assert!(findings.iter().all(|finding| finding.kept == kept), "{findings:?}");
}

#[test]
fn only_names_of_our_form_count() {
    assert!(names::is_load_balancer(GONE));
    for other in [
        "",
        "web",
        "A0123456789abcdef0123456789abcde",
        "a0123456789abcdef0123456789abcd",
        "a0123456789abcdeg0123456789abcde",
    ] {
        assert!(!names::is_load_balancer(other), "{other}");
    }
    assert_eq!(prefix("k8s-default-servicea-7fa2e07508"), Some("k8s-default-servicea-"));
    assert_eq!(prefix("k8s---a9ace1b206"), Some("k8s---"));
    for other in [
        "k8s-default-web",
        "k8s-a-b-c-7fa2e07508",
        "x-default-web-7fa2e07508",
        "k8s-default-web-7fa2e0750",
        "",
    ] {
        assert_eq!(prefix(other), None, "{other}");
    }
}

#[test]
fn a_list_without_the_one_service_of_every_cluster_is_not_complete() {
    assert!(existing().is_complete());
    assert!(!ExistingServices::default().is_complete());
}
