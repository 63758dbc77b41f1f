//! Decides which instances are targets.
//!
//! A Node becomes a target when it is Ready. A NotReady target is never removed: the load balancer's health check
//! decides about traffic, and many NotReady Nodes are more often a broken control plane than a broken fleet.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;

use outrigger_aws::InstanceId;

use super::super::model::NodeInstance;
use super::super::spec::annotations::parse_bool;
use crate::confirmation::LossLimit;
use crate::instances::{claimed, is_mismatch};
use crate::node_cache::{NodeView, ec2_name};

/// Label that excludes a Node from load balancers. An invalid boolean excludes it too.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The cluster autoscaler's taint of a Node that it will delete.
const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// A Node that may be a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: InstanceId,
    pub ready: bool,
    /// No other Node has a stronger claim on the instance.
    pub is_own: bool,
    /// No other Node names the instance.
    pub is_only: bool,
    /// The address of the instance to which EC2 gives the Node's name.
    pub address: Option<Ipv4Addr>,
}

/// Whether a Node may be a target of any Service: not about to be deleted, and not excluded by label.
fn is_eligible(node: &NodeView) -> bool {
    let included = |value| parse_bool(value) == Some(false);
    node.metadata.deletion_timestamp.is_none()
        && !node.has_taint(AUTOSCALER_TAINT)
        && node.label(EXCLUDE_LABEL).is_none_or(included)
}

/// Nodes that may be targets of any Service, as Kubernetes' service controller counts them: also NotReady ones and
/// those without an instance.
pub fn eligible(nodes: &[Arc<NodeView>]) -> Vec<&Arc<NodeView>> {
    nodes.iter().filter(|node| is_eligible(node)).collect()
}

/// Instances of Nodes that are excluded by label or about to be deleted, and of no other Node. Their loss needs no
/// confirmation.
pub fn excluded(nodes: &[Arc<NodeView>]) -> BTreeSet<InstanceId> {
    let of = |eligible: bool| {
        let nodes = nodes.iter().filter(move |node| is_eligible(node) == eligible);
        nodes.filter_map(|node| named(node)).collect::<BTreeSet<InstanceId>>()
    };
    &of(false) - &of(true)
}

/// The instance that a Node's provider ID names.
fn named(node: &NodeView) -> Option<InstanceId> {
    node.named_instance().map(|id| InstanceId::new(id.as_str()))
}

/// The candidates, and instances of `held` that are neither candidates nor in `going`. The added ones count as not
/// Ready: a target stays one, and no other instance joins.
pub fn with_held<'a>(
    candidates: &[Candidate],
    held: impl Iterator<Item = &'a InstanceId>,
    going: &BTreeSet<InstanceId>,
) -> Vec<Candidate> {
    let unready = |id: &InstanceId| Candidate {
        id: id.clone(),
        ready: false,
        is_own: true,
        is_only: true,
        address: None,
    };
    let held = held.filter(|id| !going.contains(id)).map(|id| (id, unready(id)));
    let mut all: BTreeMap<&InstanceId, Candidate> = held.collect();
    all.extend(candidates.iter().map(|candidate| (&candidate.id, candidate.clone())));
    all.into_values().collect()
}

/// The Nodes that may be targets: eligible ones with an EC2 instance and with all of `labels` (an empty value there
/// means any).
pub fn candidates(nodes: &[Arc<NodeView>], labels: &BTreeMap<String, String>) -> Vec<Candidate> {
    let has_labels = |node: &NodeView| {
        let has = |(key, wanted): (&String, &String)| {
            let value = node.label(key);
            value.is_some_and(|value| wanted.is_empty() || value == wanted)
        };
        labels.iter().all(has)
    };
    let mut count: BTreeMap<InstanceId, usize> = BTreeMap::new();
    for id in nodes.iter().filter_map(|node| named(node)) {
        *count.entry(id).or_default() += 1;
    }
    let candidate = |node: &Arc<NodeView>| {
        let id = named(node)?;
        Some(Candidate {
            is_only: count.get(&id) == Some(&1),
            id,
            ready: node.is_ready(),
            is_own: claimed(node).is_some(),
            address: ec2_name::address(node.name()),
        })
    };
    let usable = nodes.iter().filter(|node| is_eligible(node) && has_labels(node));
    let mut candidates: Vec<Candidate> = usable.filter_map(candidate).collect();

    candidates.sort_by(|a, b| a.id.cmp(&b.id));
    candidates
}

/// The candidates that are targets, or become one if EC2 knows their instances.
pub fn likely(candidates: &[Candidate], targets: &BTreeSet<InstanceId>) -> BTreeSet<InstanceId> {
    let is_likely = |candidate: &&Candidate| candidate.ready && candidate.is_own || targets.contains(&candidate.id);
    let likely = candidates.iter().filter(is_likely);
    likely.map(|candidate| candidate.id.clone()).collect()
}

/// A hash of everything that decides whether a Node is a target of a Service that chooses Nodes by some of these labels.
pub fn fingerprint(node: &NodeView, labels: &BTreeSet<String>) -> u64 {
    let chosen: Vec<Option<&str>> = labels.iter().map(|key| node.label(key)).collect();
    let mut hasher = DefaultHasher::new();
    (
        named(node),
        claimed(node).is_some(),
        is_eligible(node),
        node.is_ready(),
        chosen,
    )
        .hash(&mut hasher);

    hasher.finish()
}

/// The instances that should be targets, given those that are.
///
/// An instance that EC2 does not list stays what it is: absence from an answer is no proof of absence. One that
/// lacks the cluster's tag is never a target. One whose Node has the name of another instance, or a weaker claim on it,
/// does not become one; it stays one, unless its name is wrong and another Node names the instance too.
pub fn wanted(
    candidates: &[Candidate],
    registered: &BTreeSet<InstanceId>,
    instances: &BTreeMap<InstanceId, NodeInstance>,
) -> BTreeSet<InstanceId> {
    let wants = |candidate: &&Candidate| {
        let is_target = registered.contains(&candidate.id);
        match instances.get(&candidate.id) {
            None => is_target,
            Some(instance) if !instance.in_cluster => false,
            Some(instance) => {
                let is_mismatch = is_mismatch(candidate.address, &instance.addresses);
                let joins = candidate.ready && instance.living && candidate.is_own && !is_mismatch;
                joins || is_target && (!is_mismatch || candidate.is_only)
            }
        }
    };
    let wanted = candidates.iter().filter(wants);
    wanted.map(|candidate| candidate.id.clone()).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    pub add: BTreeSet<InstanceId>,
    pub remove: BTreeSet<InstanceId>,
    /// To be deregistered if a later observation confirms it.
    pub unconfirmed: BTreeSet<InstanceId>,
}

/// How many targets may be lost at once. If there are more, the loss must be observed twice before they are deregistered.
const LIMIT: LossLimit = LossLimit { few: 0, percent: 20 };

/// The changes from `registered` to `wanted`. In a sudden loss of many targets, only those are removed that an earlier
/// observation found lost too (`seen_before`).
pub fn change(
    wanted: &BTreeSet<InstanceId>,
    registered: &BTreeSet<InstanceId>,
    seen_before: &BTreeSet<InstanceId>,
) -> Change {
    let gone: BTreeSet<_> = registered.difference(wanted).cloned().collect();
    let add = wanted.difference(registered).cloned().collect();
    let sudden = LIMIT.is_exceeded(gone.len(), registered.len());
    let is_confirmed = |id: &InstanceId| !sudden || seen_before.contains(id);
    let (remove, unconfirmed) = gone.into_iter().partition(is_confirmed);

    Change {
        add,
        remove,
        unconfirmed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(id: &str, ready: &str, labels: serde_json::Value, extra: serde_json::Value) -> Arc<NodeView> {
        let mut node = json!({
            "metadata": {"name": id, "labels": labels},
            "spec": {"providerID": format!("aws:///z/{id}")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        for (part, fields) in extra.as_object().unwrap() {
            node[part]
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
        }
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn ids(ids: &[&str]) -> BTreeSet<InstanceId> {
        ids.iter().map(|id| InstanceId::new(*id)).collect()
    }

    fn known(ids: &[&str]) -> BTreeMap<InstanceId, NodeInstance> {
        let instance = NodeInstance {
            in_cluster: true,
            living: true,
            addresses: vec![],
            security_groups: vec![],
        };
        ids.iter().map(|id| (InstanceId::new(*id), instance.clone())).collect()
    }

    #[test]
    fn label_taint_deletion_and_provider_id_decide_about_candidates() {
        let label = |value: &str| json!({EXCLUDE_LABEL: value});
        let nodes = [
            node("i-plain", "True", json!({}), json!({})),
            node("i-false", "True", label("false"), json!({})),
            node("i-true", "True", label("true"), json!({})),
            node("i-empty", "True", label(""), json!({})),
            node("i-maybe", "True", label("maybe"), json!({})),
            node(
                "i-going",
                "True",
                json!({}),
                json!({"spec": {"taints": [{"key": AUTOSCALER_TAINT, "effect": "X"}]}}),
            ),
            node(
                "i-gone",
                "True",
                json!({}),
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            node("i-none", "True", json!({}), json!({"spec": {"providerID": null}})),
            node(
                "i-other",
                "True",
                json!({}),
                json!({"spec": {"providerID": "aws:///z/fargate-1"}}),
            ),
        ];
        let found: Vec<_> = candidates(&nodes, &BTreeMap::new())
            .into_iter()
            .map(|c| c.id.to_string())
            .collect();
        assert_eq!(found, ["i-false", "i-plain"]);
    }

    #[test]
    fn an_excluded_node_is_distinguished_from_a_missing_one() {
        let nodes = [
            node("i-plain", "False", json!({}), json!({})),
            node("i-drained", "True", json!({EXCLUDE_LABEL: ""}), json!({})),
            node("i-none", "True", json!({}), json!({"spec": {"providerID": null}})),
        ];
        assert_eq!(excluded(&nodes), ids(&["i-drained"]));
        let names: Vec<&str> = eligible(&nodes).iter().map(|node| node.name()).collect();
        assert_eq!(names, ["i-plain", "i-none"]);
    }

    #[test]
    fn targets_are_held_until_everything_is_known_unless_they_go_for_a_reason() {
        let candidates = [Candidate {
            id: InstanceId::new("i-1"),
            ready: true,
            is_own: true,
            is_only: true,
            address: None,
        }];
        let registered = ids(&["i-1", "i-2", "i-3"]);
        let held = with_held(&candidates, registered.iter(), &ids(&["i-3"]));
        let held: Vec<(&str, bool)> = held.iter().map(|c| (c.id.as_str(), c.ready)).collect();
        assert_eq!(held, [("i-1", true), ("i-2", false)]);
        assert_eq!(with_held(&candidates, ids(&[]).iter(), &ids(&[])), candidates);
    }

    #[test]
    fn an_instance_whose_node_has_the_name_of_another_one_becomes_no_target() {
        let mut instances = known(&["i-1"]);
        for (named, address, is_target) in [
            (Some([10, 0, 0, 1]), Some([10, 0, 0, 1]), true),
            (Some([10, 0, 0, 2]), Some([10, 0, 0, 1]), false),
            (None, Some([10, 0, 0, 1]), true),
            (Some([10, 0, 0, 2]), None, true),
        ] {
            let candidate = Candidate {
                id: InstanceId::new("i-1"),
                ready: true,
                is_own: true,
                is_only: true,
                address: named.map(Ipv4Addr::from),
            };
            for instance in instances.values_mut() {
                instance.addresses = address.map(Ipv4Addr::from).into_iter().collect();
            }
            let wanted = |registered| wanted(std::slice::from_ref(&candidate), &ids(registered), &instances);
            assert_eq!(wanted(&[]).len(), usize::from(is_target), "{named:?} {address:?}");
            assert_eq!(wanted(&["i-1"]).len(), 1, "a target stays one");
        }
    }

    #[test]
    fn a_weaker_claim_makes_no_target_and_loses_none_and_a_wrong_name_keeps_none_of_another_node() {
        let mut instances = known(&["i-1"]);
        for instance in instances.values_mut() {
            instance.addresses = vec![Ipv4Addr::new(10, 0, 0, 1)];
        }
        let of = |is_own: bool, is_only: bool, last: u8, registered: &[&str]| {
            let candidate = Candidate {
                id: InstanceId::new("i-1"),
                ready: true,
                is_own,
                is_only,
                address: Some(Ipv4Addr::new(10, 0, 0, last)),
            };
            !wanted(&[candidate], &ids(registered), &instances).is_empty()
        };
        assert!(!of(false, false, 1, &[]), "a weaker claim");
        assert!(of(false, false, 1, &["i-1"]), "the machine may have been renamed");
        assert!(of(true, true, 2, &["i-1"]), "a wrong name, but nobody else's instance");
        assert!(!of(true, false, 2, &["i-1"]), "its own Node was excluded");
    }

    #[test]
    fn an_instance_that_an_eligible_node_names_is_not_excluded() {
        let mut evil = NodeView::clone(&node("i-1", "True", json!({EXCLUDE_LABEL: ""}), json!({})));
        evil.metadata.name = "evil".into();
        let honest = node("i-1", "True", json!({}), json!({}));
        assert!(excluded(&[honest, Arc::new(evil.clone())]).is_empty());
        assert_eq!(excluded(&[Arc::new(evil)]), ids(&["i-1"]));
    }

    #[test]
    fn node_labels_filter_by_presence_or_value() {
        let nodes = [
            node("i-1", "True", json!({"k1": "v1", "k2": "v2"}), json!({})),
            node("i-2", "True", json!({}), json!({})),
        ];
        let count = |pairs: &[(&str, &str)]| {
            let labels = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            candidates(&nodes, &labels).len()
        };
        assert_eq!(count(&[]), 2);
        assert_eq!(count(&[("k1", ""), ("k2", "v2")]), 1);
        assert_eq!(count(&[("k1", "v1"), ("k3", "")]), 0);
    }

    #[test]
    fn a_node_joins_when_ready_and_stays_when_it_is_not() {
        let nodes = [
            node("i-new", "False", json!({}), json!({})),
            node("i-old", "Unknown", json!({}), json!({})),
        ];
        let candidates = candidates(&nodes, &BTreeMap::new());
        assert_eq!(
            wanted(&candidates, &ids(&["i-old"]), &known(&["i-new", "i-old"])),
            ids(&["i-old"])
        );
    }

    #[test]
    fn an_instance_that_is_terminated_does_not_join_and_a_target_is_not_taken_away_for_it() {
        let nodes = [
            node("i-new", "True", json!({}), json!({})),
            node("i-old", "True", json!({}), json!({})),
        ];
        let mut instances = known(&["i-new", "i-old"]);
        instances.values_mut().for_each(|instance| instance.living = false);
        let candidates = candidates(&nodes, &BTreeMap::new());
        assert_eq!(wanted(&candidates, &ids(&["i-old"]), &instances), ids(&["i-old"]));
    }

    #[test]
    fn an_instance_that_ec2_does_not_list_neither_joins_nor_leaves() {
        let nodes = [
            node("i-new", "True", json!({}), json!({})),
            node("i-old", "True", json!({}), json!({})),
        ];
        let candidates = candidates(&nodes, &BTreeMap::new());
        assert_eq!(wanted(&candidates, &ids(&["i-old"]), &BTreeMap::new()), ids(&["i-old"]));
    }

    #[test]
    fn a_mass_loss_waits_for_a_second_observation() {
        let all = ids(&["i-1", "i-2", "i-3", "i-4", "i-5"]);
        let one_less = ids(&["i-1", "i-2", "i-3", "i-4"]);
        assert_eq!(
            change(&one_less, &all, &ids(&[])).remove,
            ids(&["i-5"]),
            "a fifth is not sudden"
        );
        let half = ids(&["i-1", "i-2"]);
        let first = change(&half, &all, &ids(&[]));
        assert_eq!(
            (first.remove.len(), first.unconfirmed.clone()),
            (0, ids(&["i-3", "i-4", "i-5"]))
        );
        assert_eq!(
            change(&half, &all, &first.unconfirmed).remove,
            ids(&["i-3", "i-4", "i-5"])
        );
    }
}
