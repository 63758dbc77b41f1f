//! Which region, cluster and VPC this manager serves, as far as flags, file and environment say it.

use super::CloudConfig;

/// A value that flags, file and environment do not give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No region.
    #[error(
        "no AWS region: set Zone or Region in section Global of the cloud configuration, or AWS_REGION or AWS_DEFAULT_REGION in the environment (the instance metadata service is not asked yet)"
    )]
    NoRegion,
    /// A zone that holds no region.
    #[error("Zone {0:?} in the cloud configuration names no region: expected a zone such as us-east-1a")]
    BadZone(String),
    /// Two cluster IDs.
    #[error(
        "{first} {first_value:?} and {second} {second_value:?} name different clusters; remove one or make them equal"
    )]
    TwoClusters {
        /// Where the first ID stands.
        first: &'static str,
        /// The first ID.
        first_value: String,
        /// Where the second ID stands.
        second: &'static str,
        /// The second ID.
        second_value: String,
    },
    /// No cluster ID.
    #[error(
        "no cluster ID: set --cluster-id, or KubernetesClusterID in section Global of the cloud configuration (the tags of this manager's own instance are not read yet)"
    )]
    NoCluster,
    /// No VPC.
    #[error(
        "no VPC: set VPC in section Global of the cloud configuration (the instance metadata service is not asked yet)"
    )]
    NoVpc,
}

/// The cluster's ID and how AWS objects carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId {
    /// The part after `kubernetes.io/cluster/` of the tag's key.
    pub id: String,
    /// Whether objects carry the legacy tag `KubernetesCluster` too.
    pub legacy_tags: bool,
}

impl CloudConfig {
    /// The region: `Zone` of the file, `Region` of the file, then the environment. Upstream does not ask the
    /// environment; it is the last source here.
    ///
    /// # Errors
    /// [`IdentityError::BadZone`], [`IdentityError::NoRegion`].
    pub fn resolve_region(&self, environment: impl Fn(&str) -> Option<String>) -> Result<String, IdentityError> {
        if let Some(zone) = &self.zone {
            return region_of_zone(zone)
                .map(str::to_owned)
                .ok_or_else(|| IdentityError::BadZone(zone.clone()));
        }
        let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().filter_map(environment);
        self.region
            .iter()
            .cloned()
            .chain(variables)
            .find(|region| !region.is_empty())
            .ok_or(IdentityError::NoRegion)
    }

    /// The cluster ID: `KubernetesClusterTag`, `KubernetesClusterID`, `--cluster-id`; all that are given must agree.
    ///
    /// # Errors
    /// [`IdentityError::TwoClusters`], [`IdentityError::NoCluster`].
    pub fn resolve_cluster(&self, flag: Option<&str>) -> Result<ClusterId, IdentityError> {
        let given: Vec<(&'static str, &str)> = [
            ("KubernetesClusterTag", self.kubernetes_cluster_tag.as_deref()),
            ("KubernetesClusterID", self.kubernetes_cluster_id.as_deref()),
            ("--cluster-id", flag.filter(|id| !id.is_empty())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let Some((first, first_value)) = given.first().copied() else {
            return Err(IdentityError::NoCluster);
        };
        match given.iter().find(|(_, value)| *value != first_value) {
            Some((second, second_value)) => Err(IdentityError::TwoClusters {
                first,
                first_value: first_value.to_owned(),
                second,
                second_value: (*second_value).to_owned(),
            }),
            None => Ok(ClusterId {
                id: first_value.to_owned(),
                legacy_tags: self.kubernetes_cluster_tag.is_some(),
            }),
        }
    }

    /// The VPC of the file.
    ///
    /// # Errors
    /// [`IdentityError::NoVpc`].
    pub fn resolve_vpc(&self) -> Result<String, IdentityError> {
        self.vpc.clone().ok_or(IdentityError::NoVpc)
    }
}

/// The leading region of a zone's name: words that end in a dash, then digits. `us-west-2-lax-1a` is in `us-west-2`.
#[must_use]
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
