//! Finds AWS resources of Services that do not exist any more. In doubt a resource is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elb::LoadBalancer;
use outrigger_aws::elbv2::{NetworkLoadBalancer, TargetGroup};
use outrigger_aws::{InstanceId, Tags};
use outrigger_shared::tags;

use super::super::super::settings::Settings;
use super::super::super::spec::annotations::Annotations;
use super::super::super::spec::names::{self, Owner, other_uid};
use crate::confirmation::LossLimit;

/// Tags of the AWS Load Balancer Controller: a resource with one of them belongs to that controller.
const ELSEWHERE: [&str; 3] = ["elbv2.k8s.aws/", "service.k8s.aws/", "ingress.k8s.aws/"];

/// AWS resources whose names say that they may have been created for a Service.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    pub classic: Vec<(LoadBalancer, Tags)>,
    pub network: Vec<(NetworkLoadBalancer, Tags)>,
    pub target_groups: Vec<(TargetGroup, Tags)>,
    pub groups: Vec<SecurityGroup>,
    /// Targets that run and are not Nodes of this cluster, by name of a classic load balancer and by ARN of a network
    /// load balancer or target group.
    pub foreign_targets: BTreeMap<String, BTreeSet<String>>,
    /// Running instances with the cluster's tag that are not Nodes of this cluster, although they had time to join.
    pub foreign_instances: BTreeSet<InstanceId>,
}

/// Resources that existing Services may own, whatever their type and class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistingServices {
    /// `namespace/name`, as in the tag of the Service.
    services: BTreeSet<String>,
    load_balancers: BTreeSet<String>,
    /// Prefixes of the names of target groups and security groups.
    prefixes: BTreeSet<String>,
    listed: BTreeSet<String>,
}

impl ExistingServices {
    pub fn of<'a>(services: impl Iterator<Item = &'a Service>) -> Self {
        let mut existing = Self::default();
        for service in services {
            let owner = Owner::of(service);
            existing.services.insert(names::namespaced_name(service));
            existing.load_balancers.insert(names::load_balancer(owner.uid));
            existing.prefixes.insert(names::resource_prefix(owner));

            for list in ["security-groups", "extra-security-groups"] {
                let listed = Annotations::of(service).list(list);
                existing.listed.extend(listed.into_iter().flatten());
            }
        }

        existing
    }

    pub fn has_load_balancer(&self, name: &str) -> bool {
        self.load_balancers.contains(name)
    }

    /// Whether the list of Services is complete: every cluster has this Service.
    pub fn is_complete(&self) -> bool {
        self.services.contains("default/kubernetes")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrphanedResource {
    pub what: Resource,
    /// The Service or load balancer that it was created for.
    pub of: String,
}

/// Kinds of orphaned resources, in the order of deletion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A classic load balancer, by name.
    Classic(String),
    /// A network load balancer, by ARN.
    Network(String),
    /// A target group, by ARN.
    TargetGroup(String),
    /// Rules for a network load balancer in the security group of this ID, by their description.
    Rules(String, String),
    /// A security group, by ID.
    Group(String),
}

impl Resource {
    /// Values of the metric's label.
    pub const KINDS: [&'static str; 5] = [
        "classic-load-balancer",
        "network-load-balancer",
        "target-group",
        "security-group-rule",
        "security-group",
    ];

    pub fn kind(&self) -> &'static str {
        let [classic, network, target_group, rule, group] = Self::KINDS;
        match self {
            Self::Classic(_) => classic,
            Self::Network(_) => network,
            Self::TargetGroup(_) => target_group,
            Self::Rules(..) => rule,
            Self::Group(_) => group,
        }
    }

    /// Its ID for logs.
    pub fn id(&self) -> String {
        match self {
            Self::Classic(id) | Self::Network(id) | Self::TargetGroup(id) | Self::Group(id) => id.clone(),
            Self::Rules(group, description) => format!("{group} {description}"),
        }
    }
}

/// The prefix of a name such as `k8s-NAMESPACE-NAME-HASH`, as target groups and security groups of network load
/// balancers have; `None` for any other name.
pub fn prefix(name: &str) -> Option<&str> {
    let (start, hash) = name.rsplit_once('-')?;
    let digits = hash.len() == 10 && hash.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    let has_form = name.starts_with("k8s-") && start.matches('-').count() == 2;
    name.get(..=start.len()).filter(|_| digits && has_form)
}

/// All orphaned resources, in the order of deletion.
pub fn findings(inventory: &Inventory, existing: &ExistingServices, settings: &Settings) -> Vec<Finding> {
    let judge = Classifier {
        inventory,
        existing,
        settings,
    };
    let mut found = judge.load_balancers();
    // Resources of a load balancer that is kept are not orphaned.
    let gone = found.iter().filter(|finding| finding.kept.is_none());
    let gone: Vec<OrphanedResource> = gone.map(|finding| finding.resource.clone()).collect();

    found.extend(judge.target_groups(&gone));
    found.extend(judge.rules(&gone));
    found.extend(judge.groups(&gone));
    found.sort();

    found
}

/// Whether tags say that this cluster and this controller own a resource.
fn is_owned(of_thing: &Tags, settings: &Settings) -> bool {
    let cluster_id = settings.cluster_id.as_str();
    if other_uid(of_thing, settings).is_some() {
        return false;
    }
    let elsewhere = |key: &String| ELSEWHERE.iter().any(|prefix| key.starts_with(prefix));
    let pairs = of_thing.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    tags::owned_by(cluster_id, pairs) && !of_thing.keys().any(elsewhere) && !of_another(of_thing, cluster_id)
}

/// Whether another cluster shares a resource.
fn of_another(of_thing: &Tags, cluster_id: &str) -> bool {
    let mut clusters = of_thing.keys().filter_map(|key| tags::cluster_of_key(key));
    clusters.any(|cluster| cluster != cluster_id)
}

struct Classifier<'a> {
    inventory: &'a Inventory,
    existing: &'a ExistingServices,
    settings: &'a Settings,
}

impl Classifier<'_> {
    /// The Service that tags name, if it does not exist.
    fn service_gone(&self, of_thing: &Tags) -> Option<String> {
        let service = of_thing.get(names::SERVICE_TAG).filter(|name| name.contains('/'))?;
        let owned = is_owned(of_thing, self.settings);
        (owned && !self.existing.services.contains(service)).then(|| service.clone())
    }

    fn is_gone(&self, load_balancer: &str) -> bool {
        names::is_load_balancer(load_balancer) && !self.existing.has_load_balancer(load_balancer)
    }

    fn in_vpc(&self, vpc: Option<&String>) -> bool {
        vpc == Some(&self.settings.vpc_id)
    }

    /// A resource with the reason why it is kept, if there is one; `targets_of`: the resource that may have targets.
    fn finding(&self, resource: OrphanedResource, tags: &Tags, targets_of: Option<&str>) -> Finding {
        let targets = targets_of.and_then(|id| self.inventory.foreign_targets.get(id));
        let unknown = self.settings.cluster_uid.is_none() && tags.contains_key(names::CLUSTER_UID_TAG);
        let kept = match targets {
            Some(targets) if !targets.is_empty() => Some(Kept::ForeignTargets(targets.clone())),
            _ => unknown.then_some(Kept::UnknownUid),
        };
        Finding { resource, kept }
    }

    fn load_balancers(&self) -> Vec<Finding> {
        let resource = |what: Resource, name: &str, vpc: Option<&String>, tags: &Tags| {
            let of = self.service_gone(tags)?;
            let id = what.id();
            let resource = (self.is_gone(name) && self.in_vpc(vpc)).then_some(OrphanedResource { what, of })?;
            Some(self.finding(resource, tags, Some(&id)))
        };
        let classic = self.inventory.classic.iter().filter_map(|(lb, tags)| {
            let what = Resource::Classic(lb.name.clone());
            resource(what, &lb.name, lb.vpc_id.as_ref(), tags)
        });
        let network = self.inventory.network.iter().filter_map(|(lb, tags)| {
            let what = Resource::Network(lb.arn.clone());
            resource(what, &lb.name, lb.vpc_id.as_ref(), tags)
        });

        classic.chain(network).collect()
    }

    /// Target groups that are not used by a load balancer that stays.
    fn target_groups(&self, gone: &[OrphanedResource]) -> Vec<Finding> {
        let is_leftover = |arn: &String| gone.iter().any(|lb| lb.what == Resource::Network(arn.clone()));
        let resource = |(group, tags): &(TargetGroup, Tags)| {
            let of = self.service_gone(tags)?;
            let prefix = prefix(&group.name)?;
            let unused = group.load_balancers.iter().all(is_leftover);
            let ours = self.in_vpc(group.vpc_id.as_ref()) && !self.existing.prefixes.contains(prefix);
            let what = Resource::TargetGroup(group.arn.clone());
            let resource = (unused && ours).then_some(OrphanedResource { what, of })?;
            Some(self.finding(resource, tags, Some(&group.arn)))
        };

        self.inventory.target_groups.iter().filter_map(resource).collect()
    }

    /// Rules for network load balancers in groups of this cluster only.
    fn rules(&self, gone: &[OrphanedResource]) -> Vec<Finding> {
        let goes = |what: Resource| gone.iter().any(|other| other.what == what);
        let network = self.inventory.network.iter().map(|(lb, _)| lb);
        let staying = network.filter(|lb| !goes(Resource::Network(lb.arn.clone())));
        let staying: BTreeSet<&str> = staying.map(|lb| lb.name.as_str()).collect();
        let mut found = BTreeMap::new();
        let ours = |group: &&SecurityGroup| {
            let cluster_id = &self.settings.cluster_id;
            let frozen = self.settings.is_frozen(&group.id);
            !frozen && names::in_cluster(&group.tags, cluster_id) && !of_another(&group.tags, cluster_id)
        };

        for group in self.inventory.groups.iter().filter(ours) {
            let ranges = group.ingress.iter().flat_map(|rule| &rule.ranges);
            for description in ranges.filter_map(|range| range.description.as_deref()) {
                let load_balancer = load_balancer_of(description).unwrap_or_default();
                if self.is_gone(load_balancer) && !staying.contains(load_balancer) {
                    let what = Resource::Rules(group.id.clone(), description.to_owned());
                    found.insert(what, load_balancer.to_owned());
                }
            }
        }

        let resources = found.into_iter().map(|(what, of)| OrphanedResource { what, of });
        resources.map(|resource| Finding { resource, kept: None }).collect()
    }

    /// Security groups that were created for one load balancer, and are not used by one that stays.
    fn groups(&self, gone: &[OrphanedResource]) -> Vec<Finding> {
        let goes = |what: Resource| gone.iter().any(|other| other.what == what);
        let classic = self.inventory.classic.iter().map(|(lb, _)| lb);
        let classic = classic.filter(|lb| !goes(Resource::Classic(lb.name.clone())));
        let network = self.inventory.network.iter().map(|(lb, _)| lb);
        let network = network.filter(|lb| !goes(Resource::Network(lb.arn.clone())));
        let classic = classic.flat_map(|lb| &lb.security_groups);
        let used: BTreeSet<&String> = classic.chain(network.flat_map(|lb| &lb.security_groups)).collect();
        let resource = |group: &SecurityGroup| {
            let of = self.made_for(group)?;
            let free = !self.settings.is_frozen(&group.id)
                && !used.contains(&group.id)
                && !self.existing.listed.contains(&group.id);
            let ours = is_owned(&group.tags, self.settings) && self.in_vpc(group.vpc_id.as_ref());
            let what = Resource::Group(group.id.clone());
            let resource = (free && ours).then_some(OrphanedResource { what, of })?;

            Some(self.finding(resource, &group.tags, None))
        };

        self.inventory.groups.iter().filter_map(resource).collect()
    }

    /// The Service that a group was created for, if it is gone; `None`: it exists, or the group is not managed.
    fn made_for(&self, group: &SecurityGroup) -> Option<String> {
        let (name, description) = (group.name.as_deref()?, group.description.as_deref()?);
        if let Some(load_balancer) = name.strip_prefix("k8s-elb-") {
            let beginning = format!("Security group for Kubernetes ELB {load_balancer} (");
            let service = description.strip_prefix(&beginning)?.strip_suffix(')')?;
            let gone = self.is_gone(load_balancer) && !self.existing.services.contains(service);
            return gone.then(|| service.to_owned());
        }

        let prefix = prefix(name)?;
        let gone = description == names::GROUP_DESCRIPTION && !self.existing.prefixes.contains(prefix);
        gone.then(|| name.to_owned())
    }
}

fn load_balancer_of(description: &str) -> Option<&str> {
    let (rule, load_balancer) = description.split_once('=')?;
    let rules = [names::CLIENT_RULE, names::HEALTH_RULE];
    rules.contains(&rule).then_some(load_balancer)
}

// Reasons to keep resources that look orphaned: another cluster may have the same cluster ID, and its resources look
// orphaned here.

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub resource: OrphanedResource,
    /// Why it is never deleted; `None`: no sign of another user.
    pub kept: Option<Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// These targets run and are not Nodes of this cluster.
    ForeignTargets(BTreeSet<String>),
    /// It has a tag with the UID of a cluster, and this cluster's UID is not known.
    UnknownUid,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignTargets(targets) => {
                let some = some_of(targets);
                write!(
                    f,
                    "has targets that are not Nodes here and not terminated instances: {some}"
                )
            }
            Self::UnknownUid => {
                let tag = names::CLUSTER_UID_TAG;
                write!(f, "has tag {tag}, and the UID of this cluster is not known")
            }
        }
    }
}

/// Why a whole sweep deletes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// These instances have the cluster's tag, run, and are not Nodes here.
    ForeignInstances(BTreeSet<InstanceId>),
    /// So many load balancers have no Service that the list of Services is more likely wrong: after the API server was
    /// restored from an old backup, or with another cluster of the same ID.
    MassLoss {
        /// Load balancers without a Service.
        gone: usize,
        /// Load balancers with one.
        existing: usize,
    },
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignInstances(instances) => write!(
                f,
                "another cluster may have the same cluster ID: running instances have the cluster's tag and are not Nodes here: \
                 {}; make them Nodes, remove the tag from them, or give one of the clusters another ID",
                some_of(instances)
            ),
            Self::MassLoss { gone, existing } => write!(
                f,
                "mass loss: {gone} load balancers have no Service and {existing} have one; if the Services are really gone, delete \
                 the load balancers by hand"
            ),
        }
    }
}

const NAMED: usize = 5;

fn some_of<T: fmt::Display>(all: &BTreeSet<T>) -> String {
    let mut named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        named.push(format!("and {} more", all.len() - NAMED));
    }
    named.join(", ")
}

pub fn hold(found: &[Finding], inventory: &Inventory, existing: &ExistingServices) -> Option<Hold> {
    if !inventory.foreign_instances.is_empty() {
        return Some(Hold::ForeignInstances(inventory.foreign_instances.clone()));
    }

    let is_balancer = |finding: &&Finding| matches!(finding.resource.what, Resource::Classic(_) | Resource::Network(_));
    let gone = found.iter().filter(is_balancer).count();
    let classic = inventory.classic.iter().map(|(lb, _)| &lb.name);
    let network = inventory.network.iter().map(|(lb, _)| &lb.name);
    let balancers = classic.chain(network);
    let existing = balancers.filter(|name| existing.has_load_balancer(name)).count();

    LIMIT
        .is_exceeded(gone, existing)
        .then_some(Hold::MassLoss { gone, existing })
}

/// How many load balancers may be without a Service, in percent of those that have one. A fifth is a mass loss already:
/// two clusters with the same ID and five times as many Services in one must not delete each other's.
const LIMIT: LossLimit = LossLimit { few: 3, percent: 19 };

/// An instance joins the cluster within this time after its start, in seconds, or not at all.
const JOINS_WITHIN: i64 = 600;

/// Running instances that are not Nodes although they had time to join, with their last start in seconds since 1970. An
/// instance without a start time counts.
pub fn foreign_instances(
    running: &[(InstanceId, Option<i64>)],
    nodes: &BTreeSet<InstanceId>,
    now: Timestamp,
) -> BTreeSet<InstanceId> {
    let had_time = |launched: Option<i64>| launched.is_none_or(|at| now.as_second().saturating_sub(at) > JOINS_WITHIN);
    let is_foreign = |(id, launched): &&(InstanceId, Option<i64>)| !nodes.contains(id) && had_time(*launched);
    running.iter().filter(is_foreign).map(|(id, _)| id.clone()).collect()
}

/// How many resources have the tag of this cluster's ID, and the UID of each other cluster.
pub fn other_uids(inventory: &Inventory, settings: &Settings) -> BTreeMap<String, usize> {
    let classic = inventory.classic.iter().map(|(_, tags)| tags);
    let network = inventory.network.iter().map(|(_, tags)| tags);
    let target_groups = inventory.target_groups.iter().map(|(_, tags)| tags);
    let groups = inventory.groups.iter().map(|group| &group.tags);
    let all = classic.chain(network).chain(target_groups).chain(groups);
    let mut counts = BTreeMap::new();

    for tags in all.filter(|tags| names::in_cluster(tags, &settings.cluster_id)) {
        if let Some(uid) = other_uid(tags, settings) {
            *counts.entry(uid.to_owned()).or_default() += 1;
        }
    }

    counts
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "guards_tests.rs"]
mod guards_tests;
