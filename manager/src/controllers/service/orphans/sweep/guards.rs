//! Reasons to keep resources that look orphaned: another cluster may have the same cluster ID, and its resources look
//! orphaned here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use outrigger_aws::InstanceId;

use super::super::super::settings::Settings;
use super::super::super::spec::names;
use super::super::super::spec::names::other_uid;
use super::decide::{ExistingServices, Inventory, OrphanedResource, Resource};

/// An orphaned resource, and the reason to keep it.
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
                write!(
                    f,
                    "has targets that are not Nodes here and not terminated instances: {}",
                    some_of(targets)
                )
            }
            Self::UnknownUid => write!(
                f,
                "has tag {}, and the UID of this cluster is not known",
                names::CLUSTER_UID_TAG
            ),
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

/// At most this many IDs are named in a log line.
const NAMED: usize = 5;

fn some_of<T: fmt::Display>(all: &BTreeSet<T>) -> String {
    let mut named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        named.push(format!("and {} more", all.len() - NAMED));
    }
    named.join(", ")
}

/// The reason to delete nothing, if there is one.
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

    (gone > FEW && gone * 5 >= existing).then_some(Hold::MassLoss { gone, existing })
}

/// Up to this number is no mass loss.
const FEW: usize = 3;

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
    let foreign = running
        .iter()
        .filter(|(id, launched)| !nodes.contains(id) && had_time(*launched));
    foreign.map(|(id, _)| id.clone()).collect()
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
#[path = "guards_tests.rs"]
mod tests;
