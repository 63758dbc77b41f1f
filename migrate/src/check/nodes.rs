//! Checks of Nodes and their kubelets.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use outrigger_shared::provider_id::ProviderId;

use super::finding::{Detail, Found};
use crate::facts::{ClusterFacts, Kubelet, KubeletSource, Node, NotRead};

/// A Node that is older should have been initialized.
const TIME_TO_INITIALIZE: SignedDuration = SignedDuration::from_secs(60);

const EXTERNAL: &str = "external";
const IN_TREE: &str = "aws";

/// The Nodes, if they are those of the migrations.
fn own(facts: &ClusterFacts) -> Result<&Vec<Node>, NotRead> {
    if facts.is_management_cluster() {
        return Err(NotRead::because(
            "the Nodes of the migrations are in other clusters: check these too",
        ));
    }

    facts.nodes.get()
}

fn those(facts: &ClusterFacts, is_bad: impl Fn(&Node) -> bool) -> Result<Found, NotRead> {
    let bad = own(facts)?.iter().filter(|node| is_bad(node));
    Ok(bad.map(|node| Detail::new(node.name.clone())).collect())
}

/// Nodes whose kubelets are bad. If none is, all have to be known.
pub(super) fn by_kubelet(
    facts: &ClusterFacts,
    bad: impl Fn(&Node, &Kubelet) -> Option<Detail>,
) -> Result<Found, NotRead> {
    let nodes = own(facts)?;
    let found: Found = nodes
        .iter()
        .filter_map(|node| bad(node, node.kubelet.known()?))
        .collect();
    let mut unknown = nodes.iter().filter_map(|node| Some((node, node.kubelet.get().err()?)));
    let Some((node, first)) = unknown.next().filter(|_| found.is_empty()) else {
        return Ok(found);
    };

    let (count, all) = (unknown.count() + 1, nodes.len());
    Err(NotRead {
        reason: format!("{count} of {all} kubelets; {}: {}", node.name, first.reason),
        right: first.right,
    })
}

pub(super) fn no_provider_id(facts: &ClusterFacts) -> Result<Found, NotRead> {
    those(facts, |node| node.provider_id.is_empty() && !node.is_uninitialized)
}

pub(super) fn foreign_provider_id(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let nodes = own(facts)?.iter().filter(|node| !node.provider_id.is_empty());
    let found = nodes.filter_map(|node| {
        let wrong = ProviderId::parse(&node.provider_id).err()?;
        Some(Detail::new(format!("{}: {wrong}", node.name)))
    });
    Ok(found.collect())
}

pub(super) fn twins(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let mut by_id = BTreeMap::<&str, Vec<&str>>::new();
    for node in own(facts)?.iter().filter(|node| !node.provider_id.is_empty()) {
        by_id.entry(&node.provider_id).or_default().push(&node.name);
    }

    let twins = by_id.into_iter().filter(|(_, names)| names.len() > 1);
    Ok(twins
        .map(|(id, names)| Detail::new(format!("{id}: {}", names.join(", "))))
        .collect())
}

/// An in-tree kubelet names its Node by the private DNS name of the instance, and writes its host name, or
/// `--hostname-override`, into the label (`initialNode` of `pkg/kubelet/kubelet_node_status.go`).
pub(super) fn name_would_change(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let nodes = own(facts)?.iter();
    let found = nodes.filter_map(|node| {
        let is_external = node
            .kubelet
            .known()
            .is_some_and(|kubelet| kubelet.provider() == EXTERNAL);
        let host = node
            .host_name
            .as_ref()
            .filter(|host| **host != node.name && !is_external)?;
        Some(Detail::new(format!("{} would be {host}", node.name)))
    });
    Ok(found.collect())
}

/// Whether the cluster has EBS volumes at all.
fn has_volumes(facts: &ClusterFacts) -> Result<bool, NotRead> {
    Ok(facts.ebs_volumes.get()?.count > 0)
}

pub(super) fn no_csi_migration(facts: &ClusterFacts) -> Result<Found, NotRead> {
    if !has_volumes(facts)? {
        return Ok(Vec::new());
    }
    let is_external = |node: &Node| {
        node.kubelet
            .known()
            .is_some_and(|kubelet| kubelet.provider() == EXTERNAL)
    };
    let nodes = || {
        facts
            .nodes
            .get()
            .map(|nodes| nodes.iter().filter(|node| !is_external(node)))
    };
    if let Some(why) = nodes()?.find_map(|node| node.migrates_ebs.get().err()) {
        return Err(why);
    }
    let found = nodes()?.filter(|node| node.migrates_ebs.known() != Some(&true));
    Ok(found.map(|node| Detail::new(node.name.clone())).collect())
}

pub(super) fn no_csi_driver(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let is_missing = has_volumes(facts)? && !*facts.has_ebs_csi_driver.get()?;
    let count = facts.ebs_volumes.get()?.count;
    Ok(is_missing
        .then(|| Detail::new(format!("{count} PersistentVolumes on EBS")))
        .into_iter()
        .collect())
}

pub(super) fn no_credential_provider(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let lacks = |node: &Node, kubelet: &Kubelet| {
        node.has_ecr_image && !kubelet.flags.contains_key("image-credential-provider-config")
    };
    let found = by_kubelet(facts, |node, kubelet| {
        let is_process = kubelet.from == KubeletSource::Process;
        (is_process && lacks(node, kubelet)).then(|| Detail::new(node.name.clone()))
    })?;

    let mut nodes = own(facts)?.iter();
    let is_unsure = nodes.any(|node| node.kubelet.known().is_some_and(|kubelet| lacks(node, kubelet)));
    if found.is_empty() && is_unsure {
        let why =
            "RKE2 and K3s find the credential provider in a folder of their own, which their arguments do not show";
        return Err(NotRead::because(why));
    }

    Ok(found)
}

pub(super) fn uninitialized(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let is_old = |node: &Node| {
        node.created
            .is_none_or(|created| facts.at.duration_since(created) > TIME_TO_INITIALIZE)
    };
    those(facts, |node| node.is_uninitialized && is_old(node))
}

pub(super) fn not_ready(facts: &ClusterFacts) -> Result<Found, NotRead> {
    those(facts, |node| !node.is_ready)
}

pub(super) fn wrongly_marked(facts: &ClusterFacts) -> Result<Found, NotRead> {
    by_kubelet(facts, |node, kubelet| {
        let is_wrong = node.is_marked_external && kubelet.provider() == IN_TREE;
        is_wrong.then(|| Detail::new(node.name.clone()))
    })
}

pub(super) fn does_not_start(facts: &ClusterFacts) -> Result<Found, NotRead> {
    by_kubelet(facts, |node, kubelet| {
        let fix = kubelet.does_not_start.as_ref()?;
        Some(Detail::with_fix(node.name.clone(), fix.clone()))
    })
}
