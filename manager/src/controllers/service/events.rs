//! What users are told, by Events on their Services. Reasons and messages are those of the service controller of
//! Kubernetes; `RepairedLoadBalancer` and the ones that warn of limits are ours.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::context::Context;
use super::error::Error;
use super::execute::target_batches::Refused;
use super::plan::quota::Fullness;
use super::plan::subnets::is_internal;
use super::plan::{Plan, Planned, Step};
use super::queue::reason::Cause;
use super::spec::desired::Desired;
use super::spec::names::uid;
use crate::events::EventType;

/// What was done when something failed; it begins the message of the Event.
pub(super) const ADD_FINALIZER: &str = "failed to add load balancer cleanup finalizer";
pub(super) const ENSURE: &str = "failed to ensure load balancer";
pub(super) const WRITE_STATUS: &str = "failed to update load balancer status";
pub(super) const LOOK_BEFORE_CLEANUP: &str = "failed to check if load balancer exists before cleanup";
pub(super) const DELETE: &str = "failed to delete load balancer";
pub(super) const REMOVE_FINALIZER: &str = "failed to remove load balancer cleanup finalizer";

/// As many names of Nodes are told, and how many more there are.
const MOST_NODES_NAMED: usize = 20;

/// As many repairs are told one by one.
const MOST_REPAIRS_NAMED: usize = 5;

/// A failure, with what was done.
#[derive(Debug)]
pub(super) struct Failure {
    work: Failed,
    pub error: Box<Error>,
}

/// What failed.
#[derive(Debug)]
enum Failed {
    /// Bringing a Service to its desired state; what was done for that.
    Sync(&'static str),
    /// Following these Nodes.
    Nodes(Vec<String>),
    /// Deleting what a Service had that is gone.
    Remains,
}

impl Failure {
    /// The same failure, of an update that followed the Nodes.
    pub fn following(self, cause: Cause, nodes: impl FnOnce() -> Vec<String>) -> Self {
        if cause != Cause::Nodes {
            return self;
        }
        let work = Failed::Nodes(nodes());
        Self { work, ..self }
    }

    /// The same failure, about a Service that is gone.
    pub fn of_remains(self) -> Self {
        let work = Failed::Remains;
        Self { work, ..self }
    }

    /// Reason and message of its Event.
    fn told(&self) -> (&'static str, String) {
        let error = self.error.chain();
        match &self.work {
            Failed::Sync(doing) => (
                "SyncLoadBalancerFailed",
                format!("Error syncing load balancer: {doing}: {error}"),
            ),
            Failed::Remains => (
                "DeleteLoadBalancerFailed",
                format!("Error deleting load balancer: {error}"),
            ),
            Failed::Nodes(nodes) => {
                let (number, names) = (nodes.len(), some_of(nodes));
                let message = format!(
                    "Error updating load balancer with new hosts [{names}] [node names limited, total number of nodes: \
                     {number}], error: {error}"
                );
                ("UpdateLoadBalancerFailed", message)
            }
        }
    }
}

/// Says what was done when something failed.
pub(super) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            work: Failed::Sync(what),
            error: Box::new(error.into()),
        })
    }
}

/// The first names, and the number of the others.
fn some_of(names: &[String]) -> String {
    let mut some: Vec<String> = names.iter().take(MOST_NODES_NAMED).cloned().collect();
    some.sort();
    if names.len() > MOST_NODES_NAMED {
        some.push(format!("<{} more>", names.len() - MOST_NODES_NAMED));
    }
    some.join(" ")
}

/// What came back, step by step.
fn repairs<'a>(steps: impl Iterator<Item = &'a Planned>) -> Option<String> {
    let all: Vec<String> = steps
        .map(|planned| format!("{} ({})", planned.step.action(), planned.reason))
        .collect();
    let more = all.len().saturating_sub(MOST_REPAIRS_NAMED);
    let named = all.get(..all.len() - more)?.join(", ");
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    (!all.is_empty()).then(|| format!("Repaired load balancer, which was changed at AWS: {named}{more}"))
}

/// What AWS has refused, and what can be done about it. The target groups of a load balancer have the same instances: each
/// is named once.
fn refusals(refused: &[Refused]) -> Option<String> {
    let mut by_words: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for Refused { instance, action, why } in refused {
        by_words.entry((action, why)).or_default().insert(instance.to_string());
    }
    let one = |((action, why), instances): (&(&str, &str), &BTreeSet<String>)| {
        let instances: Vec<String> = instances.iter().cloned().collect();
        format!("{action} of {}: {why}", some_of(&instances))
    };
    let all: Vec<String> = by_words.iter().map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "AWS refused some targets and took the others; it is tried again. See that these instances run in the load \
             balancer's VPC, or keep their Nodes out by label node.kubernetes.io/exclude-from-external-load-balancers: {}",
            all.join("; ")
        )
    })
}

/// Whether a step is what an update after a change of Nodes consists of.
fn follows_nodes(step: &Step) -> bool {
    step.is_of_targets() || matches!(step, Step::Group(_))
}

/// Tells that the work on a Service begins, where the user asked for something.
pub(super) async fn report_begin(context: &Context, service: &Service, cause: Cause) {
    if cause == Cause::Asked {
        report_ensuring(context, service).await;
    }
}

async fn report_ensuring(context: &Context, service: &Service) {
    context
        .memories
        .update(uid(service), |memory| memory.ensuring_told = true);
    let message = "Ensuring load balancer";
    emit(context, service, EventType::Normal, "EnsuringLoadBalancer", message).await;
}

/// Tells that no Node can be a target, once, and again with each wish of the user's.
pub(super) async fn report_no_nodes(context: &Context, service: &Service, none: bool, cause: Cause) {
    let told = context.memories.update(uid(service), |memory| {
        std::mem::replace(&mut memory.no_nodes_told, none)
    });
    if none && (!told || cause == Cause::Asked) {
        let message = "There are no available nodes for LoadBalancer";
        emit(context, service, EventType::Warning, "UnAvailableLoadBalancer", message).await;
    }
}

/// Tells that writes begin, where nobody asked for them and nobody has been told.
pub(super) async fn report_writes(context: &Context, service: &Service, plan: &Plan, cause: Cause) {
    let unasked = matches!(cause, Cause::Start | Cause::Again) && !plan.steps.is_empty();
    if unasked && !plan.changes_targets_only() && !context.memories.of(uid(service)).ensuring_told {
        report_ensuring(context, service).await;
    }
}

/// Tells what came of a plan.
pub(super) async fn report_done(context: &Context, service: &Service, plan: &Plan, cause: Cause, no_nodes: bool) {
    let ensuring = context.memories.update(uid(service), |memory| {
        std::mem::replace(&mut memory.ensuring_told, false)
    });
    if ensuring {
        let message = "Ensured load balancer";
        emit(context, service, EventType::Normal, "EnsuredLoadBalancer", message).await;
        return;
    }
    let unasked = |planned: &&Planned| cause == Cause::Resync || !follows_nodes(&planned.step);
    if plan.steps.iter().any(|planned| !unasked(&planned)) && !no_nodes {
        let message = "Updated load balancer with new hosts";
        emit(context, service, EventType::Normal, "UpdatedLoadBalancer", message).await;
    }
    if let Some(message) = repairs(plan.steps.iter().filter(unasked)) {
        emit(context, service, EventType::Normal, "RepairedLoadBalancer", &message).await;
    }
}

/// Warns of groups near their quota, once for each change.
pub(super) async fn report_fullness(context: &Context, service: &Service, fullness: Vec<Fullness>) {
    if fullness.is_empty() {
        return;
    }
    let before = context.memories.update(uid(service), |memory| {
        std::mem::replace(&mut memory.fullness_told, fullness.clone())
    });
    for Fullness { group, rules, quota } in fullness.iter().filter(|full| !before.contains(full)) {
        let group = group.as_deref().unwrap_or("of the load balancer");
        let message = format!(
            "Security group {group} will have {rules} rules of {quota} that AWS allows by default: name fewer client \
             networks or ports, or have AWS raise the quota and set --security-group-rules-quota"
        );
        emit(
            context,
            service,
            EventType::Warning,
            "SecurityGroupNearlyFull",
            &message,
        )
        .await;
    }
}

/// Tells which targets AWS has refused, where that is news.
pub(super) async fn report_refused(context: &Context, service: &Service, refused: &[Refused]) {
    let Some(message) = refusals(refused) else {
        return;
    };
    let news = context.memories.update(uid(service), |memory| {
        memory.tell("TargetsRefused", &message, Instant::now())
    });
    tracing::warn!(refused = %message, "a load balancer lacks targets");
    if news {
        emit(context, service, EventType::Warning, "TargetsRefused", &message).await;
    }
}

/// Emits an Event if annotation `internal` asks for another scheme than the load balancer has, once.
pub(super) async fn report_scheme(context: &Context, service: &Service, desired: &Desired, scheme: Option<&str>) {
    let differs = is_internal(scheme, desired.internal()) != desired.internal();
    let told = context.memories.update(uid(service), |memory| {
        std::mem::replace(&mut memory.scheme_told, differs)
    });
    let Some(scheme) = scheme.filter(|_| differs && !told) else {
        return;
    };
    let message = format!(
        "Annotation service.beta.kubernetes.io/aws-load-balancer-internal has no effect on a load balancer that exists: \
         this one stays {scheme}. For another scheme, delete the Service and create it again"
    );
    emit(context, service, EventType::Warning, "SchemeNotChanged", &message).await;
}

/// Emits an Event if AWS has denied reading tags, once in the life of the process: the role is the same for all Services.
pub(super) async fn report_unread_tags(context: &Context, service: &Service) {
    let Some(denial) = context.aws.tag_reads.denial.take_unreported() else {
        return;
    };
    let message = format!(
        "The controller's role may not read tags of load balancers, here and for other Services: missing or changed tags \
         are not repaired, and orphaned resources are kept. All else is done. Allow \
         elasticloadbalancing:DescribeTags to change that: {denial}"
    );
    emit(context, service, EventType::Warning, "TagsUnreadable", &message).await;
}

/// Emits an Event if AWS has denied listing zones, once in the life of the process.
pub(super) async fn report_unlisted_zones(context: &Context, service: &Service) {
    let Some(denial) = context.aws.zones.denial.take_unreported() else {
        return;
    };
    let message = format!(
        "The controller's role may not list zones, here and for other Services: whether a subnet is in a local or \
         wavelength zone is derived from the zone's name. Allow ec2:DescribeAvailabilityZones to change that: {denial}"
    );
    emit(context, service, EventType::Warning, "ZonesUnreadable", &message).await;
}

/// Tells that the deletion begins, once.
pub(super) async fn report_deletion(context: &Context, service: &Service, plan: &Plan) {
    let told = context.memories.update(uid(service), |memory| {
        std::mem::replace(&mut memory.deletion_told, true)
    });
    if !told && !plan.steps.is_empty() {
        let message = "Deleting load balancer";
        emit(context, service, EventType::Normal, "DeletingLoadBalancer", message).await;
    }
}

pub(super) async fn report_deleted(context: &Context, service: &Service) {
    let message = "Deleted load balancer";
    emit(context, service, EventType::Normal, "DeletedLoadBalancer", message).await;
}

/// Takes in a failure, and tells it where it is news.
pub(super) async fn report_failure(context: &Context, service: &Service, failure: &Failure) {
    let (reason, message) = failure.told();
    let (pause, tell) = context.memories.update(uid(service), |memory| {
        let pause = memory.fail();
        // AWS takes a while to let go of a deleted load balancer's group: no news for the first minute.
        let expected = matches!(*failure.error, Error::GroupInUse { .. }) && memory.failures < 4;
        let tell = !expected
            && !matches!(*failure.error, Error::NotLeader(_))
            && memory.tell(reason, &message, Instant::now());
        (pause, tell)
    });
    tracing::warn!(error = %message, ?pause, "the Service is not in its desired state yet");
    if tell {
        emit(context, service, EventType::Warning, reason, &message).await;
    }
}

pub(super) async fn emit(context: &Context, service: &Service, kind: EventType, reason: &'static str, message: &str) {
    context.writer.event(service, kind, reason, message).await;
}

#[cfg(test)]
mod tests {
    use super::super::plan::GroupStep;
    use super::*;

    #[test]
    fn at_most_twenty_nodes_are_named() {
        let names = |number: usize| (0..number).map(|n| format!("n{n:02}")).collect::<Vec<_>>();
        assert_eq!(some_of(&names(2)), "n00 n01");
        assert!(some_of(&names(20)).ends_with("n19"));
        assert!(some_of(&names(23)).ends_with("n19 <3 more>"));
    }

    #[test]
    fn failures_are_told_in_the_words_of_the_service_controller_of_kubernetes() {
        let failure = || {
            let group = "sg-1".to_owned();
            Err::<(), Error>(Error::GroupInUse { group }).doing(ENSURE).unwrap_err()
        };
        let (reason, message) = failure().following(Cause::Again, Vec::new).told();
        assert_eq!(reason, "SyncLoadBalancerFailed");
        let beginning = "Error syncing load balancer: failed to ensure load balancer: security group sg-1";
        assert!(message.starts_with(beginning), "{message}");
        let (reason, message) = failure()
            .following(Cause::Nodes, || vec!["a".into(), "b".into()])
            .told();
        assert_eq!(reason, "UpdateLoadBalancerFailed");
        let beginning =
            "Error updating load balancer with new hosts [a b] [node names limited, total number of nodes: 2], error: ";
        assert!(message.starts_with(beginning), "{message}");
        let (reason, message) = failure().of_remains().told();
        assert_eq!(reason, "DeleteLoadBalancerFailed");
        assert!(
            message.starts_with("Error deleting load balancer: security group sg-1"),
            "{message}"
        );
    }

    #[test]
    fn refused_targets_are_named_once_with_aws_words() {
        let refused = |id: &str, why: &str| Refused {
            instance: outrigger_aws::InstanceId::new(id),
            action: "RegisterTargets",
            why: why.into(),
        };
        assert_eq!(refusals(&[]), None);
        let all = [
            refused("i-1", "X: a"),
            refused("i-2", "X: b"),
            refused("i-1", "X: a"),
            refused("i-3", "X: a"),
        ];
        let text = refusals(&all).unwrap();
        assert!(
            text.ends_with("RegisterTargets of i-1 i-3: X: a; RegisterTargets of i-2: X: b"),
            "{text}"
        );
    }

    #[test]
    fn repairs_are_named_with_their_reasons() {
        let steps: Vec<Planned> = (0..7)
            .map(|n| Planned::new(GroupStep::Delete("sg".into()), format!("r{n}")))
            .collect();
        assert_eq!(repairs(steps[..0].iter()), None);
        let one = "Repaired load balancer, which was changed at AWS: DeleteSecurityGroup (r0)";
        assert_eq!(repairs(steps[..1].iter()).as_deref(), Some(one));
        assert!(
            repairs(steps.iter())
                .unwrap()
                .ends_with("DeleteSecurityGroup (r4) and 2 more")
        );
    }
}
