//! Everything the controller reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_aws::{InstanceId, InstanceState};
use tokio::time::Instant;

use super::Deps;
use super::plan::{Finding, Memory, Seen};
use crate::instances::{self, Answer, Target};
use crate::metrics::CloudCallLabels;
use crate::node_cache::NodeView;

/// All Nodes; about those that are not Ready EC2 was asked, with one question for all of them, and once more by ID
/// about those that have been absent for a while.
pub(super) async fn nodes(deps: &Deps, memory: &Memory) -> Vec<Seen> {
    let (ready, troubled): (Vec<_>, Vec<_>) = deps.nodes.snapshot().into_iter().partition(|node| node.is_ready());
    let now = Timestamp::now();
    let mut seen: Vec<Seen> = ready
        .into_iter()
        .map(|node| Seen {
            age: age(&node, now),
            node,
            finding: None,
        })
        .collect();
    if troubled.is_empty() {
        return seen;
    }
    let answers = instances::describe(deps.ec2.as_ref(), &deps.cluster_id, troubled).await;
    seen.extend(answers.into_iter().map(|(node, answer)| {
        let finding = finding(&node, answer);
        count(deps, &finding);
        Seen {
            age: age(&node, now),
            node,
            finding: Some(finding),
        }
    }));
    confirm(deps, memory, &mut seen).await;
    seen
}

/// A Node without a time of creation counts as just made.
fn age(node: &NodeView, now: Timestamp) -> Duration {
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    now.duration_since(created).try_into().unwrap_or_default()
}

fn finding(node: &Arc<NodeView>, answer: Answer) -> Finding {
    match answer {
        Answer::Found(instance) => match &instance.state {
            Some(InstanceState::Terminated) => Finding::Terminated,
            Some(InstanceState::Stopped) => Finding::Stopped(instance.id.clone()),
            Some(_) => Finding::Exists(instance.id.clone()),
            None => Finding::Unknown(format!("EC2 does not tell the state of {}", instance.id)),
        },
        Answer::Absent => Finding::Absent,
        Answer::Fargate(_) | Answer::Foreign(_) => Finding::Foreign,
        Answer::Ambiguous(count) => Finding::Unknown(format!("{count} instances have its name")),
        Answer::Failed(error) => {
            tracing::warn!(node = node.name(), %error, "AWS did not tell about the Node's instance; the Node stays");
            Finding::Unknown(error.to_string())
        }
    }
}

/// Absence is confirmed by asking for the ID itself. If that fails, the Node stays merely absent.
async fn confirm(deps: &Deps, memory: &Memory, seen: &mut [Seen]) {
    let by_target = |node: &NodeView| Target::of(node).id().cloned();
    let candidates = memory.to_confirm(seen, by_target, Instant::now());
    if candidates.is_empty() {
        return;
    }
    let ids: BTreeSet<InstanceId> = candidates.iter().map(|(_, id)| id.clone()).collect();
    let ids: Vec<InstanceId> = ids.into_iter().collect();
    let absent = match deps.ec2.confirm_absent(&ids).await {
        Ok(absent) => absent,
        Err(error) => {
            tracing::warn!(%error, "AWS did not confirm the absence of instances; their Nodes stay");
            return;
        }
    };
    for (place, id) in candidates {
        if absent.contains(&id)
            && let Some(seen) = seen.get_mut(place)
        {
            seen.finding = Some(Finding::ConfirmedAbsent);
        }
    }
}

fn count(deps: &Deps, finding: &Finding) {
    let result = match finding {
        Finding::Exists(_) | Finding::Stopped(_) => "success",
        Finding::Terminated | Finding::ConfirmedAbsent | Finding::Absent => "instance_not_found",
        Finding::Unknown(_) => "error",
        Finding::Foreign => return,
    };
    deps.metrics
        .lifecycle_calls
        .get_or_create(&CloudCallLabels {
            operation: "instance_exists",
            result,
        })
        .inc();
}
