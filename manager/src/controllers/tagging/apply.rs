//! Every write of the controller. Each asks the permit first.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use outrigger_aws::{Error as AwsError, InstanceId};
use outrigger_leader::NotLeader;

use super::Deps;
use super::label;
use super::queue::{Action, Batch};
use crate::aws_write::write;
use crate::instances::{Answer, BadIds, Priority, Problem};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

/// How often a batch is sent once more without those that failed it.
const ROUNDS: usize = 3;
/// Maximum age of the description that shows the cluster of an instance.
const MEMBERSHIP_AGE: Duration = Duration::from_secs(300);
/// Labels written at the same time for one batch.
const LABELS_AT_ONCE: usize = 10;

#[derive(Debug, Clone)]
pub(super) enum TagResult {
    Done,
    Missing,
    Invalid,
    /// The instance does not have the cluster's tag: it may be of another cluster or owner.
    NotInCluster,
    Failed(Arc<AwsError>),
}

pub(super) struct Applied {
    pub(super) action: Action,
    pub(super) results: Vec<(InstanceId, TagResult)>,
}

/// Makes one call for the whole batch. EC2 fails a call as a whole for one bad ID: those it names are left out and the
/// rest is sent once more; where it names none, one describe tells who is there. There are never single calls instead.
pub(super) async fn apply(deps: &Deps, batch: Batch) -> Result<Applied, NotLeader> {
    let (mut open, mut results) = in_cluster(deps, batch.instances).await;
    let mut last = None;
    for round in 0..ROUNDS {
        if open.is_empty() {
            break;
        }
        let Err(error) = send(deps, batch.action, &open).await? else {
            results.extend(open.drain(..).map(|id| (id, TagResult::Done)));
            break;
        };

        let bad = match BadIds::parse(&open, &error) {
            Some(refusal) => bad_ones(deps, refusal, &open, round).await,
            None => Vec::new(),
        };
        let error = Arc::new(error);
        if bad.is_empty() {
            results.extend(open.drain(..).map(|id| (id, TagResult::Failed(Arc::clone(&error)))));
        }

        open.retain(|id| !bad.iter().any(|(other, _)| other == id));
        results.extend(bad);
        last = Some(error);
    }

    if let Some(error) = last {
        results.extend(open.into_iter().map(|id| (id, TagResult::Failed(Arc::clone(&error)))));
    }

    let action = batch.action;
    Ok(Applied { action, results })
}

/// The instances with the cluster's tag, and results for the others. Any writer of a Node can set its provider ID, so
/// it does not prove that the instance belongs to the cluster.
async fn in_cluster(deps: &Deps, ids: Vec<InstanceId>) -> (Vec<InstanceId>, Vec<(InstanceId, TagResult)>) {
    let answers = deps.instances.by_id(&ids, Priority::Background, MEMBERSHIP_AGE).await;
    let (mut members, mut others) = (Vec::new(), Vec::new());
    for id in ids {
        match answers.get(&id) {
            Some(Answer::Found(instance)) if deps.instances.in_cluster(instance) => members.push(id),
            Some(Answer::Found(_)) => others.push((id, TagResult::NotInCluster)),
            Some(Answer::Failed(error)) => others.push((id, TagResult::Failed(Arc::new(error.clone())))),
            _ => others.push((id, TagResult::Missing)),
        }
    }

    (members, others)
}

async fn send(deps: &Deps, action: Action, ids: &[InstanceId]) -> Result<Result<(), AwsError>, NotLeader> {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    match action {
        Action::Tag => {
            let call = Priority::Background.run(deps.ec2.create_tags(&ids, &deps.tags));
            write(&deps.permit, "CreateTags", call).await
        }
        Action::Untag => {
            let call = Priority::Background.run(deps.ec2.delete_tags(&ids, &deps.tags));
            write(&deps.permit, "DeleteTags", call).await
        }
    }
}

async fn bad_ones(deps: &Deps, refusal: BadIds, asked: &[InstanceId], round: usize) -> Vec<(InstanceId, TagResult)> {
    let BadIds { why, named, rest } = refusal;
    let is_unclear = named.is_empty() || round > 0;
    let result = match why {
        Problem::NotFound => TagResult::Missing,
        Problem::Malformed => TagResult::Invalid,
    };
    let mut bad: Vec<_> = named.into_iter().map(|id| (id, result.clone())).collect();

    // EC2 may name only one bad ID per call: from the second round, all IDs are checked together.
    if asked.len() > 1 && is_unclear {
        let answers = deps.instances.by_id(asked, Priority::Background, Duration::ZERO).await;
        let absent = rest
            .into_iter()
            .filter(|id| matches!(answers.get(id), Some(Answer::Absent)));
        bad.extend(absent.map(|id| (id, TagResult::Missing)));
    }

    bad
}

/// Sets the label on Nodes whose instances were tagged, and returns which writes failed.
pub(super) async fn set_labels(deps: &Deps, nodes: Vec<Arc<NodeView>>) -> Vec<(Arc<NodeView>, Result<(), WriteError>)> {
    stream::iter(nodes)
        .map(|node| async move {
            let wanted = [(label::LABEL.to_owned(), deps.label.clone())];
            let mut patch = vec![node_patch::test_uid(&node)];
            patch.extend(node_patch::set_labels(&node, &wanted));
            let written = node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &patch).await;
            (node, written.map(drop))
        })
        .buffer_unordered(LABELS_AT_ONCE)
        .collect()
        .await
}
