//! Every write of the controller. Each asks the permit first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use outrigger_aws::{Error as AwsError, InstanceId};
use outrigger_leader::NotLeader;

use super::deps::Deps;
use super::label;
use super::queue::{Action, Batch};
use crate::aws_write::write;
use crate::instances::{Answer, Priority};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

/// How often a batch is sent once more without those that failed it.
const ROUNDS: usize = 3;
/// Maximum age of the description that shows the cluster of an instance.
const MEMBERSHIP_AGE: Duration = Duration::from_secs(300);
/// Labels written at the same time for one batch.
const LABELS_AT_ONCE: usize = 10;

/// The result for one instance.
#[derive(Debug, Clone)]
pub(super) enum TagResult {
    /// AWS logged that it is done.
    Done,
    /// EC2 does not know the instance.
    Missing,
    /// EC2 does not take the ID for one.
    Invalid,
    /// The instance does not have the cluster's tag: it may be of another cluster or owner.
    NotInCluster,
    /// Anything else.
    Failed(Arc<AwsError>),
}

/// A batch, and what came out.
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

        let bad = match BadId::of(&error) {
            Some(kind) => bad_ones(deps, kind, &error, &open, round).await,
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

/// How EC2 refuses an instance's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BadId {
    NotFound,
    Invalid,
}

impl BadId {
    fn of(error: &AwsError) -> Option<Self> {
        match error.code()? {
            "InvalidInstanceID.NotFound" => Some(Self::NotFound),
            "InvalidID" | "InvalidInstanceID.Malformed" => Some(Self::Invalid),
            _ => None,
        }
    }

    fn result(self) -> TagResult {
        match self {
            Self::NotFound => TagResult::Missing,
            Self::Invalid => TagResult::Invalid,
        }
    }
}

/// Which ones the call failed for.
async fn bad_ones(
    deps: &Deps,
    kind: BadId,
    error: &AwsError,
    asked: &[InstanceId],
    round: usize,
) -> Vec<(InstanceId, TagResult)> {
    let named = if asked.len() == 1 {
        asked.to_vec()
    } else {
        named(asked, error.message())
    };
    // EC2 may name only one bad ID per call: from the second round, all IDs are checked together.
    let mut bad: Vec<_> = named.iter().map(|id| (id.clone(), kind.result())).collect();
    if asked.len() > 1 && (named.is_empty() || round > 0) {
        let answers = deps.instances.by_id(asked, Priority::Background, Duration::ZERO).await;
        let absent = asked
            .iter()
            .filter(|id| !named.contains(id) && matches!(answers.get(*id), Some(Answer::Absent)));
        bad.extend(absent.map(|id| (id.clone(), TagResult::Missing)));
    }

    bad
}

fn named(asked: &[InstanceId], message: &str) -> Vec<InstanceId> {
    let words: BTreeSet<&str> = message
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .collect();
    asked.iter().filter(|id| words.contains(id.as_str())).cloned().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_the_message_names_as_a_whole_are_bad() {
        let asked = ["i-0a", "i-0ab", "i-0c"].map(InstanceId::new);
        let message = "The instance IDs 'i-0ab, i-0d' do not exist";
        assert_eq!(named(&asked, message), [InstanceId::new("i-0ab")]);
    }
}
