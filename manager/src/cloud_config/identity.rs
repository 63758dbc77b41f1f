//! Which region, cluster and VPC this manager serves, as far as flags, file and environment say it, and what the tags of the
//! own instance say about the cluster.

use super::CloudConfig;

/// Key of the tag by which AWS objects belong to a cluster, without the cluster's ID.
const TAG_PREFIX: &str = "kubernetes.io/cluster/";
/// Key of the older tag; its value is the cluster's ID.
const LEGACY_TAG: &str = "KubernetesCluster";

/// A value that no source has, or that two sources have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No region; with the last source that was tried, and its failure.
    #[error(
        "no AWS region: {0}; set --region, or Zone or Region in section Global of the cloud configuration, or AWS_REGION in the environment"
    )]
    NoRegion(String),
    #[error("Zone {0:?} in the cloud configuration names no region: expected a zone such as us-east-1a")]
    BadZone(String),
    #[error(
        "{first} {first_value:?} and {second} {second_value:?} name different clusters; remove one or make them equal"
    )]
    TwoClusters {
        first: &'static str,
        first_value: String,
        second: &'static str,
        second_value: String,
    },
    #[error(
        "the tags {0:?} and {1:?} of this manager's own instance name different clusters; remove one of the tags, or set --cluster-id"
    )]
    TwoTags(String, String),
    /// No cluster ID; with the last source that was tried, and its failure.
    #[error(
        "no cluster ID: neither --cluster-id nor KubernetesClusterID or KubernetesClusterTag in section Global of the cloud configuration is set, and {0}; set --cluster-id"
    )]
    NoCluster(String),
    /// No VPC; with the last source that was tried, and its failure.
    #[error(
        "no VPC: neither --vpc-id nor VPC in section Global of the cloud configuration is set, and {0}; set --vpc-id"
    )]
    NoVpc(String),
}

/// The cluster's ID and how AWS objects carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId {
    /// The part after `kubernetes.io/cluster/` of the tag's key.
    pub id: String,
    /// Whether objects carry the legacy tag `KubernetesCluster` too.
    pub legacy_tags: bool,
}

/// A value and its source, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub value: String,
    /// A flag, a key or a variable.
    pub source: &'static str,
}

impl Given {
    pub fn new(value: String, source: &'static str) -> Self {
        Self { value, source }
    }

    fn some(value: Option<&str>, source: &'static str) -> Option<Self> {
        let value = value.filter(|value| !value.is_empty());
        value.map(|value| Self::new(value.to_owned(), source))
    }
}

impl CloudConfig {
    /// The region: `--region`, `Zone` of the file, `Region` of the file, then the environment. `None`: the instance metadata
    /// service has to say it. Upstream does not ask the environment.
    pub fn given_region(
        &self,
        flag: Option<&str>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Given>, IdentityError> {
        if let Some(given) = Given::some(flag, "--region") {
            return Ok(Some(given));
        }
        if let Some(zone) = &self.zone {
            return match region_of_zone(zone) {
                Some(region) => Ok(Given::some(Some(region), "Zone of the cloud configuration")),
                None => Err(IdentityError::BadZone(zone.clone())),
            };
        }

        let variable = |name| Given::some(environment(name).as_deref(), name);
        Ok(Given::some(self.region.as_deref(), "Region of the cloud configuration")
            .or_else(|| variable("AWS_REGION"))
            .or_else(|| variable("AWS_DEFAULT_REGION")))
    }

    /// The cluster ID: `--cluster-id`, `KubernetesClusterTag`, `KubernetesClusterID`; all that are given must agree. `None`: the
    /// tags of the own instance have to say it.
    pub fn given_cluster(&self, flag: Option<&str>) -> Result<Option<ClusterId>, IdentityError> {
        let given: Vec<(&'static str, &str)> = [
            ("KubernetesClusterTag", self.kubernetes_cluster_tag.as_deref()),
            ("KubernetesClusterID", self.kubernetes_cluster_id.as_deref()),
            ("--cluster-id", flag.filter(|id| !id.is_empty())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let Some((first, first_value)) = given.first().copied() else {
            return Ok(None);
        };

        match given.iter().find(|(_, value)| *value != first_value) {
            Some((second, second_value)) => Err(IdentityError::TwoClusters {
                first,
                first_value: first_value.to_owned(),
                second,
                second_value: (*second_value).to_owned(),
            }),
            None => Ok(Some(ClusterId {
                id: first_value.to_owned(),
                legacy_tags: self.kubernetes_cluster_tag.is_some(),
            })),
        }
    }

    /// The VPC: `--vpc-id`, then `VPC` of the file. `None`: the own instance's.
    pub fn given_vpc(&self, flag: Option<&str>) -> Option<Given> {
        Given::some(flag, "--vpc-id").or_else(|| Given::some(self.vpc.as_deref(), "VPC of the cloud configuration"))
    }
}

/// The cluster that the tags of the own instance name, with upstream's rules: a key that ends after its prefix names none, two
/// current tags are an error, and so are a current and a legacy tag that differ.
pub fn cluster_of_tags<'a>(
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Option<ClusterId>, IdentityError> {
    let (mut current, mut legacy) = (None::<&str>, None::<&str>);
    for (key, value) in tags {
        if let Some(id) = key.strip_prefix(TAG_PREFIX).filter(|id| !id.is_empty()) {
            if let Some(other) = current {
                let tag = |id| format!("{TAG_PREFIX}{id}");
                return Err(IdentityError::TwoTags(tag(other), tag(id)));
            }
            current = Some(id);
        } else if key == LEGACY_TAG && !value.is_empty() {
            legacy = Some(value);
        }
    }

    match (legacy, current) {
        (Some(legacy), Some(current)) if legacy != current => Err(IdentityError::TwoTags(
            format!("{LEGACY_TAG}={legacy}"),
            format!("{TAG_PREFIX}{current}"),
        )),
        _ => Ok(legacy.or(current).map(|id| ClusterId {
            id: id.to_owned(),
            legacy_tags: legacy.is_some(),
        })),
    }
}

/// The leading region of a zone's name: words that end in a dash, then digits. `us-west-2-lax-1a` is in `us-west-2`.
pub fn region_of_zone(zone: &str) -> Option<&str> {
    let bytes = zone.as_bytes();
    let mut words = 0;
    let mut at = 0;

    loop {
        let letters = bytes[at..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        if letters == 0 || bytes.get(at + letters) != Some(&b'-') {
            break;
        }
        words += 1;
        at += letters + 1;
    }

    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (words > 0 && digits > 0).then(|| &zone[..at + digits])
}
