//! The cloud configuration file of the manager.
//!
//! Checks: no panic; every error names the file, and a line and column that exist in it; a file that is valid strictly
//! has the same content leniently; entries that are written and parsed again are equal.

use std::fmt::Write;

use outrigger_manager::cloud_config::syntax::{self, Entry};
use outrigger_manager::cloud_config::{CloudConfig, CloudConfigError};

pub fn run(data: &[u8]) {
    let strict = CloudConfig::parse(data, "f", true);
    let lenient = CloudConfig::parse(data, "f", false);
    for read in [&strict, &lenient] {
        match read {
            Ok(config) => {
                config.warnings.iter().for_each(|warning| in_the_file(data, warning));
                drop((
                    config.ip_families(),
                    config.given_region(None, |_| None),
                    config.given_cluster(Some("x")),
                    config.given_vpc(None),
                ));
            }
            Err(CloudConfigError::Invalid(problems)) => {
                assert!(!problems.is_empty(), "an error without a problem");
                problems.iter().for_each(|problem| in_the_file(data, problem));
            }
            Err(CloudConfigError::Unreadable { .. }) => panic!("the target reads no file"),
        }
    }

    if let Ok(strict) = &strict {
        let lenient = lenient.expect("a file that is valid strictly is valid leniently");
        assert_eq!(format!("{strict:?}"), format!("{lenient:?}"));
    }

    if let Ok(Ok(entries)) = std::str::from_utf8(data).map(syntax::entries) {
        let written = written(&entries);
        let again = syntax::entries(&written).unwrap_or_else(|error| panic!("{error:?} in {written:?}"));
        assert_eq!(plain(&again), plain(&entries), "{written:?}");
    }
}

fn in_the_file(data: &[u8], message: &str) {
    let mut parts = message.split(':');
    assert_eq!(parts.next(), Some("f"), "{message:?} names no file");

    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let (line, column) = (number().expect("a line"), number().expect("a column"));
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();

    let count = lines.len();
    assert!((1..=count).contains(&line), "{message:?}: there are {count} lines");
    let bytes = lines[line - 1].len();
    assert!(
        (1..=bytes + 1).contains(&column),
        "{message:?}: the line has {bytes} bytes"
    );
}

type Plain<'a> = (&'a str, Option<&'a str>, &'a str, Option<&'a str>);

fn plain(entries: &[Entry]) -> Vec<Plain<'_>> {
    let mut plain = Vec::new();
    for entry in entries {
        let (subsection, value) = (entry.subsection.as_deref(), entry.value.as_deref());
        plain.push((entry.section.as_str(), subsection, entry.key.as_str(), value));
    }
    plain
}

/// The same entries with every value in quotes. A section is an entry without a key.
fn written(entries: &[Entry]) -> String {
    let mut file = String::new();
    for entry in entries {
        let (section, key) = (&entry.section, &entry.key);
        let _ = match (&entry.subsection, &entry.value) {
            (Some(name), _) if key.is_empty() => writeln!(file, "[{section} \"{}\"]", escaped(name)),
            (None, _) if key.is_empty() => writeln!(file, "[{section}]"),
            (_, Some(value)) => writeln!(file, "{key} = \"{}\"", quoted(value)),
            (_, None) => writeln!(file, "{key}"),
        };
    }

    file
}

/// Names of subsections have no other escapes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

fn quoted(value: &str) -> String {
    escaped(value).replace('\n', "\\n").replace('\t', "\\t")
}

pub const WORDS: &[&str] = &[
    "[Global]",
    "[ServiceOverride \"1\"]",
    "Zone",
    "Region",
    "VPC",
    "SubnetID",
    "RoleARN",
    "KubernetesClusterID",
    "NodeIPFamilies=ipv6",
    "DisableSecurityGroupIngress = true",
    "URL=https://x",
    "Service=EC2",
    "SigningRegion",
    "=",
    "\"",
    "\\",
    "\\n",
    ";",
    "#",
    "[",
    "]",
    "us-east-1a",
    "true",
    "NLBSecurityGroupMode=Managed",
    "SupportedTopologyInstanceTypePattern=(",
    "\r",
    "\\\n",
    "ClusterServiceSharedLoadBalancerHealthProbePort=0",
];

pub fn seeds() -> Vec<Vec<u8>> {
    [
        "",
        "[Global]\nZone = us-east-1a\nVPC=vpc-1\nKubernetesClusterID=prod\nNodeIPFamilies=ipv4\nNodeIPFamilies=ipv6\n",
        "; comment\n[global]\n  region = \"us-\" east-1 # here\nRoleARN=arn:aws:iam::1:role/x\nDisableSecurityGroupIngress\n",
        "[ServiceOverride \"a\\\"b\"]\nService=EC2\nRegion=us-east-1\nURL=https://ec2.local\nSigningRegion=us-east-1\n[Global]\nElbSecurityGroup=sg-1\n",
        "[Global]\nClusterServiceLoadBalancerHealthProbeMode=Shared\nClusterServiceSharedLoadBalancerHealthProbePort=10256\nSupportedTopologyInstanceTypePattern=^p4\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
