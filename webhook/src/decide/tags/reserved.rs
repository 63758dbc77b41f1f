//! Tags that must not be forged. Policies of AWS's access control are conditioned on these keys, so a forged one is a
//! privilege that nobody granted; and a second cluster's key on an instance stops that cluster's manager.

use std::{borrow::Cow, fmt};

use outrigger_shared::tags;

use super::{
    super::Migration,
    row::{Policy, Reserver, Role, TagPath, TagRow},
};

/// Longest part of a key that a message repeats.
const SHOWN: usize = 70;

/// Something about one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field that holds the tag, as the table writes it: `*` stands for any element.
    pub at: String,
    /// The tag's key; empty where the finding is about the field as a whole.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It puts the resource into another cluster.
    ForeignCluster,
    /// The same, but as one of several clusters that share a network.
    SharedWithForeignCluster,
    /// The prefix of cluster keys without a cluster.
    NoCluster,
    /// The key belongs to somebody who trusts it.
    Reserved {
        /// Who.
        whose: &'static str,
    },
    /// The key chooses subnets and is on something else.
    SubnetRole,
    /// The cluster's own key, where its owner does not accept it; what happens.
    Illegal(&'static str),
    /// AWS would refuse it, or somebody would read something else.
    Unfit(String),
}

impl Finding {
    /// Whether an object with it is refused; the rest is only warned about.
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

/// A field in messages: an annotation by the last part of its name, the rest as a JSON Pointer.
fn shown(pointer: &str) -> Cow<'_, str> {
    match pointer.strip_prefix("/metadata/annotations/") {
        Some(name) => {
            let last = name.rsplit("~1").next().unwrap_or(name);
            Cow::Owned(format!("annotation {last}"))
        }
        None => Cow::Borrowed(pointer),
    }
}

/// Keys, or with `*` at the end prefixes, and who knows its resources by them. `karpenter.sh/discovery` is not among
/// them: users are told to set it, so that Karpenter finds their subnets and security groups.
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

/// What is forged among the tags at a place of a kind, in the eyes of a migration.
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
    let is_home = row.home == Reserver::Kubermatic && key == SYSTEM_CLUSTER && value == cluster;
    if is_home || key == DISCOVERY {
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
