//! Small cloud configurations and what is said about each, kept as a file to be read as a whole:
//! `UPDATE_GOLDEN=1 cargo test --workspace --test cloud_config_golden` writes it anew.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::fmt::Write as _;
use std::path::PathBuf;

use outrigger_manager::cloud_config::CloudConfig;

/// Wrong, doubtful, or right in a way that surprises.
const SNIPPETS: &[&str] = &[
    // Syntax.
    "Zone = us-east-1a\n",
    "[Global\nZone = us-east-1a\n",
    "[]\n",
    "[1]\n",
    "[Global] Zone = us-east-1a\n",
    "[Global]\nZone us-east-1a\n",
    "[Global]\n= us-east-1a\n",
    "[Global]\nZone_1 = us-east-1a\n",
    "[Global]\n\"Zone\" = us-east-1a\n",
    "[Global]\nZone: us-east-1a\n",
    "[Global]\nVPC = \"vpc-1\n",
    "[Global]\nVPC = \"vpc-1\\\n2\"\n",
    "[Global]\nSupportedTopologyInstanceTypePattern = ^p5\\..*$\n",
    "[Global]\nSupportedTopologyInstanceTypePattern = \"^p5\\..*$\"\n",
    "[Global]\nSupportedTopologyInstanceTypePattern = \"^p5\\\\..*$\"\n",
    "[Global]\nVPC = vpc-1\\",
    "[Global]\nVPC = a\0b\n",
    "[ServiceOverride \"\"]\n",
    "[ServiceOverride \"a\n\"]\n",
    "[ServiceOverride 'a']\n",
    "\u{feff}[Global]\r\nVPC = vpc-1\r\n",
    "[Global]\nVPC = vpc-\\\n1 ; one value\n",
    // Names.
    "[Globel]\nZone = us-east-1a\n",
    "[Global]\nzome = us-east-1a\n",
    "[Global]\nKubernetesClusterId = prod\nPineapple = 1\n",
    "[Global \"x\"]\nVPC = vpc-1\n",
    "[Global]\nDisableStrictZoneCheck\n",
    // Types and values.
    "[Global]\nVPC\n",
    "[Global]\nDisableSecurityGroupIngress\n",
    "[Global]\nDisableSecurityGroupIngress =\n",
    "[Global]\nDisableSecurityGroupIngress = maybe\n",
    "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = \" 0x2810 \"\n",
    "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 0X2810\n",
    "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 70000\n",
    "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 10256s\n",
    "[Global]\nClusterServiceLoadBalancerHealthProbeMode = shared\n",
    "[Global]\nNLBSecurityGroupMode = managed\n",
    "[Global]\nSupportedTopologyInstanceTypePattern = \"(p5\"\n",
    "[Global]\nNodeIPFamilies = ipv4,ipv6\n",
    "[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies\nNodeIPFamilies = ipv4\n",
    "[Global]\nRoleARN = ccm\n",
    // Overrides.
    "[ServiceOverride]\nService = EC2\nRegion = us-east-1\nURL = https://ec2.test\nSigningRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = EC2\nRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = EC2\nRegion = us-east-1\nURL = ec2.test\nSigningRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = EC3\nRegion = us-east-1\nURL = https://ec2.test\nSigningRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = EC2\nRegion = us-east-1\nURI = https://ec2.test\nSigningRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = EC2\nRegion = us-east-1\nURL = https://a.test\nSigningRegion = us-east-1\n\
     [ServiceOverride \"2\"]\nService = EC2\nRegion = us-east-1\nURL = https://b.test\nSigningRegion = us-east-1\n",
    "[ServiceOverride \"1\"]\nService = ec2\nRegion = us-east-1\nURL = https://a.test\nSigningRegion = us-east-1\n\
     [ServiceOverride \"2\"]\nService = EC2\nRegion = us-east-1\nURL = https://b.test\nSigningRegion = us-east-1\n",
];

#[test]
fn what_is_said_about_each_snippet_is_as_it_was_read_over() {
    let mut said =
        String::from("What is said about small cloud configurations, strict and with --cloud-config-strict=false.\n");
    for snippet in SNIPPETS {
        let _ = writeln!(said, "\n--- {}", visible(snippet));
        let (strict, lenient) = (say(snippet, true), say(snippet, false));
        let _ = write!(said, "strict: {strict}");
        if lenient != strict {
            let _ = write!(said, "lenient: {lenient}");
        }
    }
    let path = PathBuf::from("tests/golden/cloud_config.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(kept, said, "after a look at the difference: UPDATE_GOLDEN=1");
}

fn say(snippet: &str, strict: bool) -> String {
    let (verdict, lines) = match CloudConfig::parse(snippet.as_bytes(), "aws.conf", strict) {
        Err(error) => ("refused", error.to_string()),
        Ok(config) if !config.ignored.is_empty() => ("read, in silence about", config.ignored.join("\n")),
        Ok(config) if config.warnings.is_empty() => ("read", String::new()),
        Ok(config) => ("read, with a warning", config.warnings.join("\n")),
    };
    let indented: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    format!("{verdict}\n{indented}")
}

/// The snippet, indented, with what cannot be seen made visible.
fn visible(snippet: &str) -> String {
    let text = snippet.trim_end_matches('\n').replace('\n', "\n    ");
    text.replace('\r', "\\r")
        .replace('\0', "\\0")
        .replace('\u{feff}', "\\u{feff}")
}
