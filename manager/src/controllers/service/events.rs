//! Emits Events on Services. Reasons and messages are those of Kubernetes' service controller; `RepairedLoadBalancer`
//! and warnings about limits are ours.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use super::context::Context;
use super::error::Error;
use super::execute::target_batches::RejectedTarget;
use super::plan::quota::Fullness;
use super::plan::subnets::is_internal;
use super::plan::{Plan, Planned, Step};
use super::queue::service_state::{Reason, ServiceState};
use super::spec::annotations::Annotations;
use super::spec::desired::Desired;
use super::spec::names::uid;
use super::spec::request;
use crate::events::EventType;

/// The failed operation, at the beginning of the Event's message.
pub(super) const ADD_FINALIZER: &str = "failed to add load balancer cleanup finalizer";
pub(super) const ENSURE: &str = "failed to ensure load balancer";
pub(super) const WRITE_STATUS: &str = "failed to update load balancer status";
pub(super) const CHECK_BEFORE_CLEANUP: &str = "failed to check if load balancer exists before cleanup";
pub(super) const DELETE: &str = "failed to delete load balancer";
pub(super) const REMOVE_FINALIZER: &str = "failed to remove load balancer cleanup finalizer";

/// AWS's error code for the quotas of targets.
const TOO_MANY_TARGETS: &str = "TooManyTargets";

// Reasons of Events about conditions that last, see [`super::queue::reported::Reported`].
const ENSURING: &str = "EnsuringLoadBalancer";
const DELETING: &str = "DeletingLoadBalancer";
const NO_NODES: &str = "UnAvailableLoadBalancer";
const NEARLY_FULL: &str = "SecurityGroupNearlyFull";
const SCHEME_STAYS: &str = "SchemeNotChanged";
const RANGES_IGNORED: &str = "SourceRangesNotEnforced";
const TAGS_IGNORED: &str = "ReservedTagsIgnored";

const MOST_NODES_NAMED: usize = 20;
const MOST_REPAIRS_NAMED: usize = 5;

#[derive(Debug)]
pub(super) struct Failure {
    failed: Failed,
    pub error: Box<Error>,
}

#[derive(Debug)]
enum Failed {
    /// The sync of a Service, with the failed operation.
    Sync(&'static str),
    /// The update of targets for these Nodes.
    Nodes(Vec<String>),
    /// The deletion of the resources of a Service that is gone.
    Orphan,
}

impl Failure {
    /// The same failure, reported for an update after a change of Nodes.
    pub fn after_node_change(self, reason: Reason, nodes: impl FnOnce() -> Vec<String>) -> Self {
        if reason != Reason::NodesChanged {
            return self;
        }
        let failed = Failed::Nodes(nodes());
        Self { failed, ..self }
    }

    /// The same failure, reported for a Service that is gone.
    pub fn of_orphan(self) -> Self {
        let failed = Failed::Orphan;
        Self { failed, ..self }
    }

    fn event(&self) -> (&'static str, String) {
        let error = self.error.chain();
        match &self.failed {
            Failed::Sync(during) => {
                let message = format!("Error syncing load balancer: {during}: {error}");
                ("SyncLoadBalancerFailed", message)
            }
            Failed::Orphan => {
                let message = format!("Error deleting load balancer: {error}");
                ("DeleteLoadBalancerFailed", message)
            }
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

pub(super) trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<Error>> During<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            failed: Failed::Sync(what),
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

fn repairs<'a>(steps: impl Iterator<Item = &'a Planned>) -> Option<String> {
    let steps = steps.map(|planned| format!("{} ({})", planned.step.action(), planned.reason));
    let all: Vec<String> = steps.collect();
    let more = all.len().saturating_sub(MOST_REPAIRS_NAMED);
    let named = all.get(..all.len() - more)?.join(", ");
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };

    (!all.is_empty()).then(|| format!("Repaired load balancer, which was changed at AWS: {named}{more}"))
}

/// The message about refused targets. The target groups of a load balancer have the same instances, so each is named
/// once.
fn refusals(refused: &[RejectedTarget]) -> Option<String> {
    let mut by_words: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for RejectedTarget {
        instance, action, why, ..
    } in refused.iter().filter(|refused| !refused.exceeds_quota)
    {
        by_words.entry((action, why)).or_default().insert(instance.to_string());
    }

    let one = |((action, why), instances): (&(&str, &str), &BTreeSet<String>)| {
        let instances: Vec<String> = instances.iter().cloned().collect();
        format!("{action} of {}: {why}", some_of(&instances))
    };
    let all: Vec<String> = by_words.iter().map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "AWS refused some targets and registered the others. The manager tries again. Check that these instances run in the load balancer's VPC, or exclude their Nodes by the label node.kubernetes.io/exclude-from-external-load-balancers: {}",
            all.join("; ")
        )
    })
}

/// Emits `EnsuringLoadBalancer` after a change of the spec.
pub(super) async fn report_begin(context: &Context, service: &Service, reason: Reason) {
    if reason == Reason::SpecChanged {
        report_ensuring(context, service).await;
    }
}

async fn report_ensuring(context: &Context, service: &Service) {
    let states = &context.states;
    states.update(uid(service), |state| _ = state.reported.begins(ENSURING, true));
    emit(context, service, ENSURING, "Ensuring load balancer").await;
}

/// Emits an Event if no Node can be a target, once, and again with each change of the spec.
pub(super) async fn report_no_nodes(context: &Context, service: &Service, none: bool, reason: Reason) {
    let states = &context.states;
    let begins = states.update(uid(service), |state| state.reported.begins(NO_NODES, none));
    if begins || (none && reason == Reason::SpecChanged) {
        let message = "There are no available nodes for LoadBalancer";
        warn(context, service, NO_NODES, message).await;
    }
}

/// Emits `EnsuringLoadBalancer` before writes after a restart or retry, unless it was emitted.
pub(super) async fn report_writes(context: &Context, service: &Service, plan: &Plan, reason: Reason) {
    let unasked = matches!(reason, Reason::Restart | Reason::Retry) && !plan.steps.is_empty();
    if unasked
        && !plan.changes_targets_only()
        && !context
            .states
            .with(uid(service), |state| state.reported.holds(ENSURING))
    {
        report_ensuring(context, service).await;
    }
}

pub(super) async fn report_done(context: &Context, service: &Service, plan: &Plan, reason: Reason, no_nodes: bool) {
    let states = &context.states;
    if states.update(uid(service), |state| state.reported.ends(ENSURING)) {
        emit(context, service, "EnsuredLoadBalancer", "Ensured load balancer").await;
        return;
    }

    // After a change of Nodes, the steps for targets and their security groups are no repair.
    let follows_nodes = |step: &Step| step.is_of_targets() || matches!(step, Step::Group(_));
    let unasked = |planned: &&Planned| reason == Reason::Resync || !follows_nodes(&planned.step);
    if plan.steps.iter().any(|planned| !unasked(&planned)) && !no_nodes {
        let message = "Updated load balancer with new hosts";
        emit(context, service, "UpdatedLoadBalancer", message).await;
    }

    if let Some(message) = repairs(plan.steps.iter().filter(unasked)) {
        emit(context, service, "RepairedLoadBalancer", &message).await;
    }
}

/// Warns of groups near their quota, once for each change.
pub(super) async fn report_fullness(context: &Context, service: &Service, fullness: Vec<Fullness>) {
    if fullness.is_empty() {
        return;
    }

    let texts = fullness.iter().map(|Fullness { group, rules, quota }| {
        let group = group.as_deref().unwrap_or("of the load balancer");
        format!(
            "Security group {group} will have {rules} rules of {quota} that AWS allows by default: name fewer client \
             networks or ports, or have AWS raise the quota and set --security-group-rules-quota"
        )
    });
    let texts = texts.collect();
    let begun = context
        .states
        .update(uid(service), |state| state.reported.begun(NEARLY_FULL, texts));
    for message in begun {
        warn(context, service, NEARLY_FULL, &message).await;
    }
}

/// Logs refused targets. Emits an Event if the message is new, or was last emitted long ago.
pub(super) async fn report_refused(context: &Context, service: &Service, refused: &[RejectedTarget]) {
    let Some(message) = refusals(refused) else {
        return;
    };

    let (states, now) = (&context.states, Instant::now());
    let news = states.update(uid(service), |state| {
        state.reported.is_news("TargetsRefused", &message, now)
    });
    tracing::warn!(refused = %message, "AWS refused targets of a load balancer");
    if news {
        warn(context, service, "TargetsRefused", &message).await;
    }
}

/// Emits an Event if a quota keeps Nodes or ports of the Service without targets.
pub(super) async fn report_few_targets(
    context: &Context,
    service: &Service,
    refused: &[RejectedTarget],
    failure: Option<&Error>,
) {
    let over_quota: Vec<&RejectedTarget> = refused.iter().filter(|refused| refused.exceeds_quota).collect();
    let of_listener = match failure {
        Some(Error::Aws(error)) if error.code() == Some(TOO_MANY_TARGETS) => Some(error.to_string()),
        _ => None,
    };
    let Some(why) = over_quota.first().map(|refused| refused.why.clone()).or(of_listener) else {
        return;
    };

    let instances: BTreeSet<String> = over_quota.iter().map(|refused| refused.instance.to_string()).collect();
    let instances: Vec<String> = instances.into_iter().collect();
    let missing = match instances.is_empty() {
        true => "a port has no listener".to_owned(),
        false => format!(
            "{} instances are not registered at all ports: {}",
            instances.len(),
            some_of(&instances)
        ),
    };
    let message = format!(
        "AWS allows this load balancer no more targets; it serves with those that it has, and {missing}. By default AWS \
         allows a network load balancer 500 targets in each zone, and an instance counts once for each port. Have AWS raise \
         the quota, or choose fewer Nodes by annotation service.beta.kubernetes.io/aws-load-balancer-target-node-labels: \
         {why}"
    );
    warn_once(context, service, "TooManyTargets", &message).await;
}

/// Emits an Event for each security group whose quota does not allow the rules of the Service.
pub(super) async fn report_full_groups(context: &Context, service: &Service, groups: impl Iterator<Item = Fullness>) {
    let texts: Vec<String> = groups
        .map(|Fullness { group, rules, quota }| {
            let group = group.unwrap_or_default();
            format!("security group {group} would have {rules} rules, and AWS allows {quota} by default")
        })
        .collect();
    if texts.is_empty() {
        return;
    }

    let message = format!(
        "AWS refused to add rules; existing rules stay, and other parts of the load balancer are up to date: {}. Name fewer \
         client networks or ports, or have AWS raise the quota and set --security-group-rules-quota",
        texts.join("; ")
    );
    warn_once(context, service, "TooManyRules", &message).await;
}

/// Emits a warning, unless the same was emitted a short time ago.
async fn warn_once(context: &Context, service: &Service, reason: &'static str, message: &str) {
    let now = Instant::now();
    let is_news = context
        .states
        .update(uid(service), |state| state.reported.is_news(reason, message, now));
    if is_news {
        warn(context, service, reason, message).await;
    }
}

/// Emits an Event if annotation `internal` requests another scheme than the load balancer has, once.
pub(super) async fn report_scheme(context: &Context, service: &Service, desired: &Desired, scheme: Option<&str>) {
    let differs = is_internal(scheme, desired.internal()) != desired.internal();
    let states = &context.states;
    let begins = states.update(uid(service), |state| state.reported.begins(SCHEME_STAYS, differs));
    let Some(scheme) = scheme.filter(|_| begins) else {
        return;
    };

    let message = format!(
        "Annotation service.beta.kubernetes.io/aws-load-balancer-internal has no effect on a load balancer that exists: \
         this one stays {scheme}. For another scheme, delete the Service and create it again"
    );
    warn(context, service, SCHEME_STAYS, &message).await;
}

/// Emits an Event if nothing enforces the source ranges of a Service with a network load balancer, once.
pub(super) async fn report_source_ranges(context: &Context, service: &Service, are_ignored: bool) {
    let begins = |state: &mut ServiceState| state.reported.begins(RANGES_IGNORED, are_ignored);
    if !context.states.update(uid(service), begins) {
        return;
    }

    let message = "The source ranges are not enforced: with preserve_client_ip.enabled=false in annotation \
        service.beta.kubernetes.io/aws-load-balancer-target-group-attributes Nodes see the load balancer's addresses instead \
        of the clients', and the load balancer has no security group. Nodes let in either all clients or none. Remove the \
        attribute, or set NLBSecurityGroupMode=Managed in the cloud configuration, delete the Service and create it again";
    warn(context, service, RANGES_IGNORED, message).await;
}

/// Emits an Event for tags of the user that are not set, once for each.
pub(super) async fn report_reserved_tags(context: &Context, service: &Service) {
    let reserved = request::reserved_tags(Annotations::of(service)).into_iter().collect();
    let begun = |state: &mut ServiceState| state.reported.begun(TAGS_IGNORED, reserved);
    let new: Vec<String> = context.states.update(uid(service), begun).into_iter().collect();
    if new.is_empty() {
        return;
    }

    let message = format!(
        "Tags of annotation service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags are not set, because other \
         controllers identify their own resources by them: {}. Remove them from the annotation",
        new.join(", ")
    );
    warn(context, service, TAGS_IGNORED, &message).await;
}

/// Emits an Event if AWS has denied reading tags, once in the life of the process: the role is the same for all
/// Services.
pub(super) async fn report_unread_tags(context: &Context, service: &Service) {
    let Some(denial) = context.aws.tag_reads.denial.take_unreported() else {
        return;
    };

    let message = format!(
        "The controller's role may not read tags of load balancers, here and for other Services: missing or changed tags \
         are not repaired, and orphaned resources are kept. Everything else works. Allow \
         elasticloadbalancing:DescribeTags to change that: {denial}"
    );

    warn(context, service, "TagsUnreadable", &message).await;
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
    warn(context, service, "ZonesUnreadable", &message).await;
}

/// Emits `DeletingLoadBalancer`, once.
pub(super) async fn report_deletion(context: &Context, service: &Service, plan: &Plan) {
    let states = &context.states;
    let begins = states.update(uid(service), |state| state.reported.begins(DELETING, true));
    if begins && !plan.steps.is_empty() {
        emit(context, service, DELETING, "Deleting load balancer").await;
    }
}

pub(super) async fn report_deleted(context: &Context, service: &Service) {
    emit(context, service, "DeletedLoadBalancer", "Deleted load balancer").await;
}

/// Records a failure and reports it, if it is new.
pub(super) async fn report_failure(context: &Context, service: &Service, failure: &Failure) {
    let (reason, message) = failure.event();
    let (pause, is_news) = context.states.update(uid(service), |state| {
        let pause = state.fail();
        // AWS releases the group of a deleted load balancer after a while, and a start takes some time: not reported for
        // the first minute.
        let is_expected = matches!(*failure.error, Error::GroupInUse { .. } | Error::RulesDeferred { .. });
        let expected = is_expected && state.failures < 4;
        let is_news = !expected
            && !matches!(*failure.error, Error::NotLeader(_))
            && state.reported.is_news(reason, &message, Instant::now());
        (pause, is_news)
    });

    tracing::warn!(error = %message, ?pause, "sync or deletion failed");
    if is_news {
        warn(context, service, reason, &message).await;
    }
}

pub(super) async fn emit(context: &Context, service: &Service, reason: &'static str, message: &str) {
    context.writer.event(service, EventType::Normal, reason, message).await;
}

pub(super) async fn warn(context: &Context, service: &Service, reason: &'static str, message: &str) {
    context.writer.event(service, EventType::Warning, reason, message).await;
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
    fn failures_have_the_messages_of_kubernetes_service_controller() {
        let failure = || {
            let group = "sg-1".to_owned();
            Err::<(), Error>(Error::GroupInUse { group })
                .during(ENSURE)
                .unwrap_err()
        };
        let (reason, message) = failure().after_node_change(Reason::Retry, Vec::new).event();
        assert_eq!(reason, "SyncLoadBalancerFailed");
        let beginning = "Error syncing load balancer: failed to ensure load balancer: security group sg-1";
        assert!(message.starts_with(beginning), "{message}");
        let (reason, message) = failure()
            .after_node_change(Reason::NodesChanged, || vec!["a".into(), "b".into()])
            .event();
        assert_eq!(reason, "UpdateLoadBalancerFailed");
        let beginning =
            "Error updating load balancer with new hosts [a b] [node names limited, total number of nodes: 2], error: ";
        assert!(message.starts_with(beginning), "{message}");
        let (reason, message) = failure().of_orphan().event();
        assert_eq!(reason, "DeleteLoadBalancerFailed");
        assert!(
            message.starts_with("Error deleting load balancer: security group sg-1"),
            "{message}"
        );
    }

    #[test]
    fn refused_targets_are_named_once_with_aws_words() {
        let refused = |id: &str, why: &str| RejectedTarget {
            instance: outrigger_aws::InstanceId::new(id),
            action: "RegisterTargets",
            why: why.into(),
            exceeds_quota: false,
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
