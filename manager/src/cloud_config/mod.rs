//! The cloud configuration file (`--cloud-config`): the incumbent's keys with the incumbent's meaning.
//!
//! [`syntax`] splits the text, `read` gives entries their types, [`overrides`] holds endpoint overrides, [`identity`]
//! answers which region, cluster and VPC this manager serves. Upstream ignores unknown keys silently; here they are
//! errors with the nearest known name. With `--cloud-config-strict=false` they are ignored, as in the incumbent.

pub mod file;
pub mod identity;
pub mod overrides;
mod read;
pub mod syntax;

use regex::Regex;

pub use identity::{ClusterId, IdentityError};
pub use overrides::{AwsService, ServiceOverride};
pub use read::GLOBAL_KEYS;
use syntax::Place;

/// A cloud configuration. Empty strings in the file count as not set.
#[derive(Debug, Clone, Default)]
pub struct CloudConfig {
    /// `Zone`: only used to derive the region, and wins over `Region`.
    pub zone: Option<String>,
    pub region: Option<String>,
    pub vpc: Option<String>,
    pub subnet_id: Option<String>,
    pub route_table_id: Option<String>,
    /// `RoleARN`: the role to assume for every AWS call.
    pub role_arn: Option<String>,
    /// `SourceARN`: sent with the assumption of the role.
    pub source_arn: Option<String>,
    /// `KubernetesClusterTag`: the cluster ID, and AWS objects carry the legacy tag beside the current one.
    pub kubernetes_cluster_tag: Option<String>,
    pub kubernetes_cluster_id: Option<String>,
    pub disable_security_group_ingress: bool,
    pub elb_security_group: Option<String>,
    /// `NodeIPFamilies`, in order; see [`CloudConfig::ip_families`].
    pub node_ip_families: Vec<String>,
    pub health_probe_mode: HealthProbeMode,
    /// `ClusterServiceSharedLoadBalancerHealthProbePort`; `None` means 10256.
    pub health_probe_port: Option<u16>,
    /// `ClusterServiceSharedLoadBalancerHealthProbePath`; `None` means `/healthz`.
    pub health_probe_path: Option<String>,
    /// `SupportedTopologyInstanceTypePattern`; `None` means the built-in pattern.
    pub topology_instance_types: Option<Regex>,
    pub nlb_security_groups_managed: bool,
    pub service_overrides: Vec<ServiceOverride>,
    /// To be logged once at start.
    pub warnings: Vec<String>,
    /// Problems that lenient reading ignores, as the incumbent does.
    pub ignored: Vec<String>,
}

/// Which port and path the health check of a load balancer for `externalTrafficPolicy: Cluster` asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthProbeMode {
    /// The Service's own node port.
    #[default]
    ServiceNodePort,
    /// One port and path shared by all Services, answered by kube-proxy.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
}

#[derive(Debug, thiserror::Error)]
pub enum CloudConfigError {
    #[error("--cloud-config={path}: cannot read the file")]
    Unreadable {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// Its content is wrong; one line each, with file, line and column.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

impl CloudConfig {
    /// Reads the content of a file called `name`.
    ///
    /// # Errors
    /// [`CloudConfigError`], which lists every problem with its line and column.
    pub fn parse(content: &[u8], name: &str, strict: bool) -> Result<Self, CloudConfigError> {
        let mut findings = Findings {
            file: name,
            strict,
            errors: Vec::new(),
            warnings: Vec::new(),
            ignored: Vec::new(),
        };
        let mut config = match std::str::from_utf8(content) {
            Err(error) => {
                let before = &content[..error.valid_up_to()];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
                findings.error(Place { line, column }, "the file is not UTF-8 here");
                Self::default()
            }
            Ok(text) => match syntax::entries(text) {
                Ok(entries) => read::config(&entries, &mut findings),
                Err(error) => {
                    findings.error(error.place, &error.message);
                    Self::default()
                }
            },
        };
        if !findings.errors.is_empty() {
            return Err(CloudConfigError::Invalid(findings.errors));
        }

        config.warnings = findings.warnings;
        config.ignored = findings.ignored;

        Ok(config)
    }

    /// The address families of Node objects, in order. No `NodeIPFamilies` means IPv4; names other than `ipv4` and
    /// `ipv6` are ignored, as in upstream, so a list of other names only results in none.
    pub fn ip_families(&self) -> Vec<IpFamily> {
        if self.node_ip_families.is_empty() {
            return vec![IpFamily::V4];
        }
        self.node_ip_families.iter().filter_map(|name| family(name)).collect()
    }
}

fn family(name: &str) -> Option<IpFamily> {
    match name {
        "ipv4" => Some(IpFamily::V4),
        "ipv6" => Some(IpFamily::V6),
        _ => None,
    }
}

struct Findings<'a> {
    file: &'a str,
    strict: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    ignored: Vec<String>,
}

impl Findings<'_> {
    fn error(&mut self, place: Place, message: &str) {
        self.errors.push(self.at(place, message));
    }

    fn warning(&mut self, place: Place, message: &str) {
        self.warnings.push(self.at(place, message));
    }

    /// Something that upstream lets pass: an error only when strict.
    fn tolerable(&mut self, place: Place, message: &str) {
        if self.strict {
            self.error(place, &format!("{message} (--cloud-config-strict=false ignores it)"));
        } else {
            let passed_over = self.at(place, message);
            self.ignored.push(passed_over);
        }
    }

    fn at(&self, place: Place, message: &str) -> String {
        format!("{}:{}:{}: {message}", self.file, place.line, place.column)
    }
}
