//! The cloud configuration file of the manager.
//!
//! Promised: no panic; every complaint names the file, and a line and column that are in it; what is read strictly is read the
//! same leniently; entries that are written again are read again the same.

use std::fmt::Write;

use outrigger_manager::cloud_config::syntax::{self, Entry};
use outrigger_manager::cloud_config::{CloudConfig, CloudConfigError};

use super::text;
use crate::features::note;
use crate::mutate;
use crate::random::Random;

/// One input.
///
/// # Panics
/// When a promise is broken.
pub fn target(data: &[u8]) {
    let strict = CloudConfig::parse(data, "f", true);
    let lenient = CloudConfig::parse(data, "f", false);
    for read in [&strict, &lenient] {
        match read {
            Ok(config) => {
                config.warnings.iter().for_each(|warning| in_the_file(data, warning));
                note(&format!("{:?}", config.ip_families().len().min(3)));
                drop((
                    config.given_region(None, |_| None),
                    config.given_cluster(Some("x")),
                    config.given_vpc(None),
                ));
            }
            Err(CloudConfigError::Invalid(problems)) => {
                assert!(!problems.is_empty(), "refused without a reason");
                problems.iter().for_each(|problem| in_the_file(data, problem));
            }
            Err(CloudConfigError::Unreadable { .. }) => panic!("no file was asked for"),
        }
    }
    if let Ok(strict) = &strict {
        let lenient = lenient.expect("what is read strictly is read leniently");
        assert_eq!(format!("{strict:?}"), format!("{lenient:?}"));
    }
    if let Some(Ok(entries)) = text(data).map(syntax::entries) {
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
    assert!(
        (1..=lines.len()).contains(&line),
        "{message:?}: there are {} lines",
        lines.len()
    );
    assert!(
        (1..=lines[line - 1].len() + 1).contains(&column),
        "{message:?}: the line has {} bytes",
        lines[line - 1].len()
    );
    // The rest is mostly the file's own words.
    note(
        &parts
            .flat_map(str::split_whitespace)
            .take(4)
            .collect::<Vec<_>>()
            .join(" "),
    );
}

type Plain<'a> = (&'a str, Option<&'a str>, &'a str, Option<&'a str>);

fn plain(entries: &[Entry]) -> Vec<Plain<'_>> {
    entries
        .iter()
        .map(|entry| {
            (
                entry.section.as_str(),
                entry.subsection.as_deref(),
                entry.key.as_str(),
                entry.value.as_deref(),
            )
        })
        .collect()
}

/// The same entries in another writing: every value in quotes. A section is an entry without a key of its own.
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

/// In the name of a subsection there are no other escapes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}

fn quoted(value: &str) -> String {
    escaped(value).replace('\n', "\\n").replace('\t', "\\t")
}

const WORDS: &[&str] = &[
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

/// One change of an input.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    mutate::text::mutate(random, data, other, WORDS)
}

/// Files as operators write them.
#[must_use]
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
