//! Checks of what can be seen at all.

use std::collections::BTreeSet;

use super::finding::{Detail, Found};
use crate::facts::{ClusterFacts, NotRead, Read};

fn why<T>(read: &Read<T>) -> Option<NotRead> {
    read.get().err()
}

/// More makes ages in the status look wrong to a person who compares them with a watch.
const MAX_DIFFERENCE: u64 = 30;

pub(super) fn clocks(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let seconds = facts.clock_ahead_seconds;
    let differs = seconds.unsigned_abs() > MAX_DIFFERENCE;
    Ok(differs
        .then(|| Detail::new(format!("by {} s", seconds.unsigned_abs())))
        .into_iter()
        .collect())
}

pub(super) fn missing_rights(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let sections = [
        why(&facts.components),
        why(&facts.nodes),
        why(&facts.leases),
        why(&facts.migrations),
        why(&facts.registrations),
        why(&facts.ebs_volumes),
        why(&facts.has_ebs_csi_driver),
        why(&facts.services),
        why(&facts.tenants),
        why(&facts.definition),
        why(&facts.webhooks),
    ];
    let nodes = facts.nodes.known().into_iter().flatten();
    let of_nodes = nodes.flat_map(|node| [why(&node.kubelet), why(&node.migrates_ebs)]);
    let tenants = facts.tenants.known().into_iter().flatten();
    let of_tenants = tenants.map(|tenant| why(&tenant.components));
    let all = sections.into_iter().chain(of_nodes).chain(of_tenants).flatten();
    let rights: BTreeSet<String> = all.filter_map(|not| not.right).collect();

    Ok(rights.into_iter().map(Detail::new).collect())
}
