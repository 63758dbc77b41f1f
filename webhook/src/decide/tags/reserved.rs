//! Tags that must not be forged. IAM policies are conditioned on these keys, so a forged one grants a privilege; and a
//! second cluster's key on an instance stops that cluster's manager.

use std::{borrow::Cow, fmt};

use outrigger_shared::tags;

use super::{
    super::Migration,
    row::{Policy, Reserver, Role, TagPath, TagRow},
};

/// Maximum length of a key in a message.
const SHOWN: usize = 70;

/// A problem of one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field that holds the tag, as the table writes it: `*` stands for any element.
    pub at: String,
    /// The tag's key; empty where the finding is about the field as a whole.
    pub key: String,
    pub value: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Assigns the resource to another cluster.
    ForeignCluster,
    /// Shares the resource with another cluster.
    SharedWithForeignCluster,
    /// The prefix of cluster keys without the name of a cluster.
    NoCluster,
    /// The key is reserved for a controller that trusts it.
    Reserved {
        /// The controller.
        whose: &'static str,
    },
    /// The key selects subnets, but is on another resource.
    SubnetRole,
    /// The cluster's own key on a kind whose controller rejects it; the consequence.
    Illegal(&'static str),
    /// AWS would reject it, or a reader would parse another value.
    Unfit(String),
}

impl Finding {
    /// Whether the validating path denies it; others only cause a warning.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        matches!(
            self.problem,
            Problem::ForeignCluster | Problem::NoCluster | Problem::Reserved { .. }
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: String = self.key.chars().take(SHOWN).collect();
        let at = shown(&self.at);
        match &self.problem {
            Problem::ForeignCluster => {
                write!(
                    f,
                    "{at}: tag {key:?} gives the resource to another cluster; remove it or correct spec.targets"
                )
            }
            Problem::SharedWithForeignCluster => {
                write!(
                    f,
                    "{at}: tag {key:?} shares the resource with another cluster; make sure that it is meant"
                )
            }
            Problem::NoCluster => write!(f, "{at}: tag {key:?} names no cluster; remove it"),
            Problem::Reserved { whose } => {
                write!(
                    f,
                    "{at}: tag {key:?} is reserved: {whose} knows its own resources by it; remove it"
                )
            }
            Problem::SubnetRole => {
                write!(
                    f,
                    "{at}: tag {key:?} makes load balancers use a subnet; set it on the subnets themselves only"
                )
            }
            Problem::Illegal(what) => write!(f, "{at}: tag {key:?} is not legal here: {what}"),
            Problem::Unfit(what) if self.key.is_empty() => write!(f, "{at} {what}"),
            Problem::Unfit(what) => write!(f, "{at}: tag {key:?} {what}"),
        }
    }
}

/// The name of a field in messages: of an annotation the last part of its name, otherwise the JSON Pointer.
fn shown(pointer: &str) -> Cow<'_, str> {
    match pointer.strip_prefix("/metadata/annotations/") {
        Some(name) => {
            let last = name.rsplit("~1").next().unwrap_or(name);
            Cow::Owned(format!("annotation {last}"))
        }
        None => Cow::Borrowed(pointer),
    }
}

/// Keys, or prefixes with `*` at the end, and the controllers that identify their resources by them. Without
/// `karpenter.sh/discovery`: users must set it, so that Karpenter finds their subnets and security groups.
const RESERVED: &[(&str, &str)] = &[
    ("kubernetes.io/service-name", "a cloud-controller-manager"),
    (tags::CLUSTER_UID, "Outrigger's cloud-controller-manager"),
    ("elbv2.k8s.aws/cluster", "the AWS Load Balancer Controller"),
    ("ingress.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("service.k8s.aws/*", "the AWS Load Balancer Controller"),
    ("CSIVolumeName", "the EBS driver"),
    ("CSIVolumeSnapshotName", "the EBS driver"),
    ("ebs.csi.aws.com/*", "the EBS driver"),
    ("karpenter.sh/*", "Karpenter"),
    ("karpenter.k8s.aws/*", "Karpenter"),
    ("eks:*", "EKS"),
    ("aws:*", "AWS"),
    ("sigs.k8s.io/cluster-api-provider-aws/*", "Cluster API"),
    ("kops.k8s.io/*", "kOps"),
    ("k8s.io/role/*", "kOps"),
    ("owned-by.kubermatic.k8c.io/*", "Kubermatic"),
    (SYSTEM_CLUSTER, "Kubermatic"),
];
const SYSTEM_CLUSTER: &str = "system/cluster";
const DISCOVERY: &str = "karpenter.sh/discovery";
const SUBNET_ROLES: [&str; 2] = ["kubernetes.io/role/elb", "kubernetes.io/role/internal-elb"];

/// The forged tags in a field of a kind, from the view of a migration.
#[must_use]
pub fn forged(tags: &[(String, String)], migration: &Migration<'_>, row: &TagRow, path: &TagPath) -> Vec<Finding> {
    let cluster = migration.spec.cluster_id.as_str();
    let finding = |(key, value): &(String, String)| {
        let problem = problem(key, value, cluster, row, path)?;
        Some(Finding {
            at: path.pointer.to_owned(),
            key: key.clone(),
            value: value.clone(),
            problem,
        })
    };

    tags.iter().filter_map(finding).collect()
}

fn problem(key: &str, value: &str, cluster: &str, row: &TagRow, path: &TagPath) -> Option<Problem> {
    if key.starts_with(tags::CLUSTER_PREFIX) {
        return match tags::cluster_of_key(key) {
            None => Some(Problem::NoCluster),
            Some(id) if id == cluster => illegal(row),
            Some(_) if row.shareable && value == tags::SHARED => Some(Problem::SharedWithForeignCluster),
            Some(_) => Some(Problem::ForeignCluster),
        };
    }
    if key == tags::LEGACY_CLUSTER {
        return (value != cluster).then_some(Problem::ForeignCluster);
    }
    if SUBNET_ROLES.contains(&key) {
        return (path.role != Role::Subnets && !row.is_subnet()).then_some(Problem::SubnetRole);
    }

    let is_legitimate = row.reserver == Reserver::Kubermatic && key == SYSTEM_CLUSTER && value == cluster;
    if is_legitimate || key == DISCOVERY {
        return None;
    }

    let owner = RESERVED.iter().find(|(pattern, _)| covers(pattern, key));
    owner.map(|(_, whose)| Problem::Reserved { whose })
}

fn illegal(row: &TagRow) -> Option<Problem> {
    match row.policy {
        Policy::Illegal(what) => Some(Problem::Illegal(what)),
        Policy::Add(_) | Policy::Validate(_) => None,
    }
}

fn covers(pattern: &str, key: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == key, |prefix| key.starts_with(prefix))
}

impl TagRow {
    /// Whether the object stands for a subnet.
    fn is_subnet(&self) -> bool {
        self.kind == "Subnet"
    }
}
