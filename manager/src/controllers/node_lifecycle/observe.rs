//! All reads of the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_aws::ec2::MAX_IDS;
use outrigger_aws::{InstanceId, InstanceState};
use tokio::time::Instant;

use super::Deps;
use super::plan::{Finding, History, ObservedNode};
use crate::instances::{Answer, Priority, Target};
use crate::metrics::CloudCallLabels;
use crate::node_cache::NodeView;

/// Each observation comes from a call that began after the pass, and so after every earlier observation.
const MAX_AGE: Duration = Duration::ZERO;

/// Failed calls by cause, with the number of Nodes. A failure that lasts is logged once.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, usize>);

impl Failures {
    /// Logs new failures and those that are over.
    fn update(&mut self, now: BTreeMap<String, usize>) {
        for (cause, nodes) in &now {
            if !self.0.contains_key(cause) {
                tracing::warn!(
                    cause,
                    nodes,
                    "failed to describe the instances of Nodes; keeping the Nodes"
                );
            }
        }

        for cause in self.0.keys().filter(|cause| !now.contains_key(*cause)) {
            tracing::info!(cause, "describing the instances of Nodes succeeds again");
        }

        self.0 = now;
    }
}

/// All Nodes, with findings for those that are not Ready: EC2 describes all their instances in one batch, and once more
/// by ID those that have been absent for a while.
pub(super) async fn nodes(deps: &Deps, history: &History, reported: &mut Failures) -> Vec<ObservedNode> {
    let (ready, troubled): (Vec<_>, Vec<_>) = deps.nodes.snapshot().into_iter().partition(|node| node.is_ready());
    let now = Timestamp::now();
    let observed = |node: Arc<NodeView>, finding| ObservedNode {
        age: age(&node, now),
        node,
        finding,
    };
    let mut seen: Vec<ObservedNode> = ready.into_iter().map(|node| observed(node, None)).collect();

    let mut failures = BTreeMap::new();

    if !troubled.is_empty() {
        let answers = deps.instances.describe(troubled, Priority::Lifecycle, MAX_AGE).await;
        for (node, answer) in answers {
            let finding = finding(answer, &mut failures);
            count(deps, &finding);
            seen.push(observed(node, Some(finding)));
        }

        confirm(deps, history, &mut seen, &mut failures).await;
    }

    reported.update(failures);

    seen
}

/// A Node without a creation time counts as new.
fn age(node: &NodeView, now: Timestamp) -> Duration {
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    now.duration_since(created).try_into().unwrap_or_default()
}

fn finding(answer: Answer, failures: &mut BTreeMap<String, usize>) -> Finding {
    match answer {
        Answer::Found(instance) => match &instance.state {
            Some(InstanceState::Terminated) => Finding::Terminated,
            Some(InstanceState::Stopped) => Finding::Stopped(instance.id.clone()),
            Some(_) => Finding::Exists(instance.id.clone()),
            None => Finding::Unknown(format!("EC2 reports no state of {}", instance.id)),
        },
        Answer::Absent => Finding::Absent,
        Answer::Fargate(_) => Finding::OnFargate,
        Answer::Foreign(_) | Answer::Refused(_) => Finding::Foreign,
        Answer::Ambiguous(count) => Finding::Unknown(format!("{count} instances have its name or address")),
        Answer::Failed(error) => {
            *failures.entry(cause(&error)).or_default() += 1;
            Finding::Unknown(error.to_string())
        }
    }
}

/// A failure without the parts that differ from call to call.
fn cause(error: &outrigger_aws::Error) -> String {
    let what = error.code().unwrap_or_else(|| error.message());
    format!("{}: {what}", error.operation())
}

/// Confirms absence by describing the ID itself. If that fails, the Node stays unconfirmed. One call per pass; the
/// remaining Nodes are confirmed in the next one.
async fn confirm(deps: &Deps, history: &History, seen: &mut [ObservedNode], failures: &mut BTreeMap<String, usize>) {
    let by_target = |node: &NodeView| Target::of(node).id().cloned();
    let mut candidates = history.to_confirm(seen, by_target, Instant::now());
    candidates.truncate(MAX_IDS);
    if candidates.is_empty() {
        return;
    }

    let ids: BTreeSet<InstanceId> = candidates.iter().map(|(_, id)| id.clone()).collect();
    let ids: Vec<InstanceId> = ids.into_iter().collect();
    let absent = match deps.instances.confirm_absent(&ids, Priority::Lifecycle).await {
        Ok(absent) => absent,
        Err(error) => {
            *failures.entry(cause(&error)).or_default() += ids.len();
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
        Finding::Exists(_) | Finding::Stopped(_) | Finding::OnFargate => "success",
        Finding::Terminated | Finding::ConfirmedAbsent | Finding::Absent => "instance_not_found",
        Finding::Unknown(_) => "error",
        Finding::Foreign => return,
    };
    deps.metrics
        .lifecycle
        .calls
        .get_or_create(&CloudCallLabels {
            operation: "instance_exists",
            result,
        })
        .inc();
}
