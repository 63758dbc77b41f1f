//! Whatever changes: the target of a Node that may be one never leaves, and at no moment are there fewer targets than
//! before or after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{Instance, InstanceState};
use outrigger_aws::fake::World;
use proptest::prelude::*;

use super::super::super::spec::names;
use super::case::{Case, cases};
use super::cluster::NodeState;
use super::likeness::targets;
use super::run::{Verdict, run, to_the_end, waits_for_ec2};
use super::specs::Kind;

/// Targets by port.
type Targets = BTreeMap<i32, BTreeSet<InstanceId>>;

/// The instances of Nodes that may be targets: not excluded, with the wanted labels, of the cluster or not listed. One
/// that is terminated stays where it is a target, but AWS lets it join no group that is made.
fn may_be_targets(case: &Case, world: &World) -> BTreeSet<InstanceId> {
    let labels = case
        .wish
        .annotations
        .get("target-node-labels")
        .copied()
        .unwrap_or_default();
    let labelled = |node: &&NodeState| labels.is_empty() || (node.pool && !labels.contains("nowhere"));
    let ours = |id: &InstanceId| {
        let instance = world.instances.get(id);
        let living = |instance: &Instance| instance.state != Some(InstanceState::Terminated);
        instance.is_none_or(|instance| living(instance) && names::in_cluster(&instance.tags, "prod"))
    };
    let nodes = case.nodes.iter().filter(|node| !node.excluded).filter(labelled);
    nodes.map(|node| InstanceId::new(node.id)).filter(ours).collect()
}

async fn are_kept(case: &Case) -> Verdict {
    let fixture = case.stage().await;
    let before = fixture.aws.world();
    let mut kept = may_be_targets(case, &before);
    let seen: Arc<Mutex<Vec<World>>> = Arc::default();
    let notes = Arc::clone(&seen);
    fixture
        .aws
        .witness(move |_, after| notes.lock().unwrap().push(after.clone()));
    to_the_end(&fixture).await?;
    let after = fixture.aws.world();
    if fixture.aws.writes().iter().any(|write| waits_for_ec2(write, &before)) {
        // A new group was to take one that EC2 does not list, and AWS has refused it.
        kept.retain(|id| before.instances.contains_key(id));
    }
    let (first, last) = (targets(&before), targets(&after));
    let mut now = targets(&before);
    let place = || format!("{:#?}", fixture.aws.writes());
    for next in seen.lock().unwrap().drain(..).map(|world| targets(&world)) {
        for (port, was) in &now {
            // A listener that is deleted has no targets; what comes in its place is looked at below.
            let Some(is) = next.get(port) else { continue };
            let gone: BTreeSet<_> = was.difference(is).cloned().collect();
            prop_assert!(gone.is_disjoint(&kept), "port {}: {:?} left: {}", port, gone, place());
        }
        for (port, is) in &next {
            let ends = first.get(port).zip(last.get(port));
            let fewest = ends.map_or(0, |(first, last)| first.len().min(last.len()));
            prop_assert!(is.len() >= fewest, "port {}: too few targets: {}", port, place());
        }
        let classic = first.contains_key(&0) && last.contains_key(&0);
        prop_assert!(!classic || next.contains_key(&0), "the load balancer went: {}", place());
        now = next;
    }
    stays(case, &first, &last, &fixture.aws.writes())
}

/// The listener of a port that stays is not deleted, unless its protocol changes to or from UDP or somebody has
/// tampered with what is behind it.
fn stays(case: &Case, first: &Targets, last: &Targets, writes: &[String]) -> Verdict {
    let protocols = case.past.last().map(|past| past.wish.protocol);
    if protocols != Some(case.wish.protocol) || !case.network_edits.is_empty() || case.past.len() != 1 {
        return Ok(());
    }
    for port in first.keys().filter(|port| last.contains_key(port)) {
        let gone = format!("/{port}/");
        let deleted = writes
            .iter()
            .any(|write| write.starts_with("DeleteListener ") && write.contains(&gone));
        prop_assert!(!deleted, "the listener of port {} went: {:#?}", port, writes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn targets_of_classic_load_balancers_are_kept(case in cases(Kind::Classic)) {
        run(are_kept(&case))?;
    }

    #[test]
    fn targets_of_network_load_balancers_are_kept(case in cases(Kind::Network)) {
        run(are_kept(&case))?;
    }
}
