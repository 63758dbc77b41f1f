//! Observes AWS for a Service and plans the changes. Before the first change it checks that the load balancer belongs to
//! this cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::{Error as AwsError, InstanceId, Kind, Tags};
use tokio::time::Instant;

use super::context::Context;
use super::error::{Environment, Error};
use super::execute::node_groups::plan_with_claims;
use super::inventory::Reader;
use super::inventory::account::Search;
use super::inventory::shared::MAX_AGE;
use super::model::classic::KnownTags;
use super::plan::targets::{self, Candidate};
use super::plan::{Plan, PlanInput};
use super::queue::service_state::{Reason, ServiceState};
use super::spec::desired::{Desired, classic, network};
use super::spec::names::{self, other_uid, uid};
use super::{inventory, model, plan};

pub(super) struct Observation {
    pub plan: Plan,
    /// The address of the existing load balancer.
    pub hostname: Option<String>,
    /// Whether the existing load balancer has a listener.
    pub has_listeners: bool,
    pub groups: Vec<SecurityGroup>,
    pub identity: Option<LoadBalancerIdentity>,
    pub scheme: Option<String>,
    /// Whether nothing enforces the source ranges of the Service.
    pub ignores_source_ranges: bool,
    /// Whether attributes were read.
    pub is_full: bool,
    /// A read that AWS denied and that the plan was made without.
    pub denied: Option<AwsError>,
    /// The exact names of target groups that are or will be the Service's.
    pub given_names: BTreeSet<String>,
}

pub(super) struct Pass<'a> {
    pub service: &'a Service,
    pub desired: &'a Desired,
    pub candidates: &'a [Candidate],
    /// Targets with a confirmed loss, and those of excluded Nodes.
    pub going: &'a BTreeSet<InstanceId>,
    pub reason: Reason,
    /// Whether the next full observation is due.
    pub due: bool,
    /// Whether this process has made a full observation.
    pub was_full: bool,
    /// Whether what is in memory about the load balancer is right.
    pub is_in_memory: bool,
    /// No Node may be a target of any Service.
    pub no_nodes: bool,
}

/// Observes AWS and makes a plan. Without a change of the spec or a failure, shared answers are used first; if they
/// lead to a write, AWS is read again.
/// Fails when a read fails, or the spec cannot be met.
pub(super) async fn observe(context: &Context, pass: &Pass<'_>, search: Search) -> Result<Observation, Error> {
    // With so short a resync period, shared answers would hide drift.
    let period = context.settings.resync_period;
    let often = period.is_some_and(|period| period < 2 * MAX_AGE);
    if !often && !pass.reason.needs_fresh_reads() {
        let cached = match pass.reason {
            Reason::NodesChanged if !pass.due => Reader::for_targets(&context.aws, pass.is_in_memory),
            Reason::Restart if !pass.due => Reader::at_start(&context.aws),
            Reason::NodesChanged | Reason::Restart if !pass.was_full => {
                Reader::for_attributes(&context.aws, pass.is_in_memory)
            }
            _ => Reader::cached(&context.aws),
        };
        let observation = observe_with(context, &cached, pass, search).await;
        if suffices(&cached, &observation.as_ref().map(|observation| &observation.plan)) {
            return observation;
        }
    }

    observe_with(context, &Reader::fresh(&context.aws), pass, search).await
}

async fn observe_with(
    context: &Context,
    reader: &Reader<'_>,
    pass: &Pass<'_>,
    search: Search,
) -> Result<Observation, Error> {
    match pass.desired {
        Desired::Classic(desired) => observe_classic(context, reader, pass, desired).await,
        Desired::Network(desired) => observe_network(context, reader, pass, (desired, search)).await,
    }
}

async fn observe_classic(
    context: &Context,
    reader: &Reader<'_>,
    pass: &Pass<'_>,
    desired: &classic::Desired,
) -> Result<Observation, Error> {
    let (candidates, seen_gone) = (pass.candidates, pass.going);
    let since = reader.since();
    let mut observed = inventory::classic::observe(reader, desired, &context.settings, candidates).await?;
    context.states.with(uid(pass.service), |state| {
        observed.unchosen_before = state.unchosen_subnets(Instant::now());
        if let Some(existing) = &mut observed.load_balancer {
            existing.tags = std::mem::take(&mut existing.tags).or_set(&state.tags_set);
        }
    });

    let registered = observed.load_balancer.as_ref().map(|lb| &lb.described.instances);
    let candidates = &with_held(context, candidates, registered, seen_gone);
    let plan = plan_with_claims(context, (&desired.name, since), |claims| {
        plan::classic::plan(PlanInput {
            desired,
            settings: &context.settings,
            observed: &observed,
            candidates,
            seen_gone,
            claims,
        })
    })?;
    let (scheme, has_listeners) = (observed.scheme().map(str::to_owned), observed.has_listeners());
    let identity = observed.load_balancer.as_ref().map(LoadBalancerIdentity::classic);
    let groups = observed.groups.into_values().chain(observed.own_group);

    Ok(Observation {
        plan,
        identity,
        scheme,
        groups: groups.chain(observed.referencing).collect(),
        ignores_source_ranges: false,
        is_full: reader.reads_attributes,
        denied: reader.denied(),
        given_names: BTreeSet::new(),
        has_listeners,
        hostname: observed.load_balancer.map(|existing| existing.described.dns_name),
    })
}

async fn observe_network(
    context: &Context,
    reader: &Reader<'_>,
    pass: &Pass<'_>,
    (desired, search): (&network::Desired, Search),
) -> Result<Observation, Error> {
    let (candidates, seen_gone) = (pass.candidates, pass.going);
    let since = reader.since();
    let given = &context
        .states
        .with(uid(pass.service), |state| state.given_names.clone());
    let observed = inventory::network::observe(reader, desired, &context.settings, candidates, (search, given)).await?;
    let registered = observed.registered();
    let candidates = &with_held(context, candidates, Some(&registered), seen_gone);
    let mut ignores_source_ranges = false;
    let plan = plan_with_claims(context, (&desired.name, since), |claims| {
        let input = PlanInput {
            desired,
            settings: &context.settings,
            observed: &observed,
            candidates,
            seen_gone,
            claims,
        };
        ignores_source_ranges = plan::network::ignores_source_ranges(input);
        plan::network::plan(input)
    })?;

    Ok(Observation {
        plan,
        hostname: observed.address(),
        has_listeners: observed.has_listeners(),
        identity: observed.load_balancer.as_ref().map(LoadBalancerIdentity::network),
        scheme: observed.scheme().map(str::to_owned),
        ignores_source_ranges,
        given_names: observed.given_names(desired),
        groups: observed.security_groups(),
        is_full: reader.reads_attributes,
        denied: reader.denied(),
    })
}

/// The candidates, and shortly after a start also the registered targets, except for those with a confirmed loss.
pub(super) fn with_held(
    context: &Context,
    candidates: &[Candidate],
    registered: Option<&BTreeSet<InstanceId>>,
    going: &BTreeSet<InstanceId>,
) -> Vec<Candidate> {
    let held = registered.filter(|_| Instant::now() < context.settled_at);
    targets::with_held(candidates, held.into_iter().flatten(), going)
}

/// Whether a plan or an error of these reads may be acted upon, or fresh reads have to come first.
///
/// Nothing is written and no error is reported because of an answer from before the start, with one exception: targets
/// are changed, since adding one that is registered or removing one that is not changes nothing, and subnets and groups do
/// not decide which Nodes are targets.
fn suffices(reader: &Reader<'_>, outcome: &Result<&Plan, &Error>) -> bool {
    let older = reader.freshness.used_older();
    match outcome {
        Ok(plan) if plan.refused.is_some() => !older && reader.reads_attributes,
        Ok(plan) if plan.steps.is_empty() || plan.changes_targets_only() => true,
        // The other steps may concern attributes, which were not read for targets.
        Ok(_) => !older && reader.reads_attributes,
        Err(_) if !older => true,
        Err(Error::Environment(_)) => false,
        Err(Error::Aws(error)) => error.kind() != Kind::NotFound,
        Err(_) => true,
    }
}

/// The properties of a load balancer that tell which cluster owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerIdentity {
    /// Its DNS name, which is never reused.
    pub dns_name: String,
    /// The ARN; `None` for a classic load balancer.
    pub arn: Option<String>,
    /// Its tags, if they were read.
    pub tags: Option<Tags>,
}

impl LoadBalancerIdentity {
    pub fn classic(existing: &model::classic::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: None,
            tags: match &existing.tags {
                KnownTags::Read(tags) => Some(tags.clone()),
                KnownTags::Unknown { .. } => None,
            },
        }
    }

    pub fn network(existing: &model::network::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: Some(existing.described.arn.clone()),
            tags: existing.tags.clone(),
        }
    }
}

/// Checks that a plan changes no load balancer of another cluster. Tags that the observation did not read are read
/// here, once per load balancer and process.
/// Fails with [`Environment::ForeignLoadBalancer`], or when a read fails. After a denied read the load balancer counts
/// as this cluster's.
pub(super) async fn check_owner(
    context: &Context,
    service: &Service,
    identity: Option<&LoadBalancerIdentity>,
    plan: &Plan,
) -> Result<(), Error> {
    let (Some(identity), Some(own)) = (identity, &context.settings.cluster_uid) else {
        return Ok(());
    };

    let is_known = |state: &ServiceState| state.owned.as_ref() == Some(&identity.dns_name);
    let known = context.states.with(uid(service), is_known);
    if identity.tags.is_none() && (known || plan.steps.is_empty()) {
        return Ok(());
    }

    let name = names::load_balancer(uid(service));
    let tags = match (&identity.tags, &identity.arn) {
        (Some(tags), _) => Some(tags.clone()),
        (None, Some(arn)) => {
            let read = context.aws.elbv2.tags(std::slice::from_ref(arn)).await;
            let read = context.aws.tag_reads.allowed(read)?;
            read.map(|mut tags| tags.remove(arn).unwrap_or_default())
        }
        (None, None) => {
            let read = context.aws.elb.describe_tags(&name).await;
            context.aws.tag_reads.allowed(read)?
        }
    };

    if let Some(other) = tags.as_ref().and_then(|tags| other_uid(tags, &context.settings)) {
        return Err(Error::Environment(Environment::ForeignLoadBalancer {
            load_balancer: name,
            other: other.to_owned(),
            own: own.clone(),
        }));
    }

    remember_owned(context, service, &identity.dns_name);

    Ok(())
}

pub(super) fn remember_owned(context: &Context, service: &Service, dns_name: &str) {
    let states = &context.states;
    states.update(uid(service), |state| state.owned = Some(dns_name.to_owned()));
}
