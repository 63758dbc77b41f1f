//! Plans: the writes to AWS, step by step. No IO, no clock.
//!
//! After a crash at any step the rest of the plan is the same: a step counts as done by its effect at AWS, never by
//! local state.

pub mod claims;
pub mod classic;
pub mod network;
pub mod quota;
pub mod rule_writes;
pub mod security_groups;
mod step;
pub mod subnets;
pub mod targets;

use std::collections::BTreeSet;

use outrigger_aws::ec2::{IpPermission, NewSecurityGroup, SecurityGroup};
use outrigger_aws::{InstanceId, Tags};
use outrigger_shared::tags;

use super::error::Environment;
use super::model::classic::Observed as ClassicObserved;
use super::model::network::Observed as NetworkObserved;
use super::settings::Settings;
use super::spec::desired::classic::Desired as ClassicDesired;
use super::spec::desired::network::Desired as NetworkDesired;
use super::spec::names::other_uid;
use super::spec::permissions::{self, rules_from};
use claims::{PlannedClaim, View};
use targets::Candidate;

pub use step::{
    BalancerRef, ClassicStep, FormerListener, GroupRef, GroupStep, NetworkStep, Planned, Step, TargetGroupRef,
};

/// The steps in order, and open points.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub steps: Vec<Planned>,
    /// Lost targets that are too many to be removed after one observation.
    pub unconfirmed: BTreeSet<InstanceId>,
    /// Attached subnets that are not chosen, but may not be detached after one observation.
    pub unchosen_subnets: BTreeSet<String>,
    pub targets: BTreeSet<InstanceId>,
    /// The claim on rules of the Nodes' groups; `None`: it does not change.
    pub claim: Option<PlannedClaim>,
    /// The reason why a part of the spec cannot be met; reported after the steps.
    pub refused: Option<Environment>,
}

impl Plan {
    /// A plan without open points.
    pub fn of(steps: Vec<Planned>) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    /// Whether rules are to be revoked when all Services have claimed.
    pub fn is_deferred(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.deferred.is_empty())
    }

    pub fn creates_balancer(&self) -> bool {
        self.steps.iter().any(|planned| planned.step.creates_balancer())
    }

    pub fn deletes_balancer(&self) -> bool {
        self.steps.iter().any(|planned| planned.step.deletes_balancer())
    }

    /// Whether the steps change nothing but targets.
    pub fn changes_targets_only(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|planned| planned.step.is_of_targets())
    }
}

fn own_group_deletion(
    own: Option<&SecurityGroup>,
    listed: &[String],
    referencing: &[SecurityGroup],
    settings: &Settings,
) -> Vec<Planned> {
    let reason = "it was created for the load balancer";
    let ours = own.filter(|group| is_ours(group, listed, settings));
    ours.map_or_else(Vec::new, |group| {
        group_deletion(&group.id, referencing, settings, reason)
    })
}

/// Deletes the own group of a load balancer to which the annotations give other groups.
fn unused_group_deletion(
    own: &SecurityGroup,
    (given, cluster_tags): (&[String], &Tags),
    referencing: &[SecurityGroup],
    settings: &Settings,
) -> Vec<Planned> {
    let foreign = security_groups::missing_tags(own, cluster_tags).is_err();
    if foreign || !is_ours(own, given, settings) {
        return Vec::new();
    }

    let reason = "the annotations request other security groups";
    group_deletion(&own.id, referencing, settings, reason)
}

/// Whether a group with a name of ours may be deleted: not the configured one, not listed by the Service, and not
/// shared or another cluster's. A group without cluster tags is left by an interrupted creation.
fn is_ours(group: &SecurityGroup, listed: &[String], settings: &Settings) -> bool {
    if settings.is_frozen(&group.id) || listed.contains(&group.id) || other_uid(&group.tags, settings).is_some() {
        return false;
    }
    let pairs = || group.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let untagged = !pairs().any(|(key, _)| tags::cluster_of_key(key).is_some() || key == tags::LEGACY_CLUSTER);
    untagged || tags::owned_by(&settings.cluster_id, pairs())
}

/// Deletes a load balancer's own group, after all rules that name it: EC2 refuses the deletion before. If such a rule
/// is not managed, the group stays; the sweep reports it.
pub fn group_deletion(group: &str, referencing: &[SecurityGroup], settings: &Settings, reason: &str) -> Vec<Planned> {
    let names = |other: &&SecurityGroup| other.id != group && !rules_from(other, group).is_empty();
    let is_unmanaged = |other: &SecurityGroup| settings.disable_security_group_ingress || settings.is_frozen(&other.id);
    if referencing.iter().filter(names).any(is_unmanaged) {
        return Vec::new();
    }

    let others = referencing.iter().filter(|other| other.id != group);
    let revoke = others.filter_map(|other| {
        let rules = rules_from(other, group);
        let step = GroupStep::Revoke(other.id.clone(), rules.clone());
        (!rules.is_empty()).then(|| Planned::new(step, "the rule names a group that is about to be deleted"))
    });
    let delete = Planned::new(GroupStep::Delete(group.to_owned()), reason);

    revoke.chain([delete]).collect()
}

/// The input of a plan. `D` is the desired state and `O` the observed one, each a reference. A plan for targets only has
/// `()` as desired state.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a, D, O> {
    pub desired: D,
    pub settings: &'a Settings,
    pub observed: O,
    pub candidates: &'a [Candidate],
    /// Targets with a confirmed loss.
    pub seen_gone: &'a BTreeSet<InstanceId>,
    pub claims: View<'a>,
}

pub type ClassicInput<'a, D = &'a ClassicDesired> = PlanInput<'a, D, &'a ClassicObserved>;

pub type NetworkInput<'a, D = &'a NetworkDesired> = PlanInput<'a, D, &'a NetworkObserved>;

#[derive(Debug, Default)]
pub struct OwnGroupSteps {
    /// Creation and tags.
    pub made: Vec<Planned>,
    /// Added rules.
    pub opened: Vec<Planned>,
    /// Revoked rules.
    pub closed: Vec<Planned>,
}

/// The steps from the `actual` own group of a load balancer, if there is one, to the wanted one.
/// Fails when the existing group belongs to another cluster.
fn own_group_steps(
    wanted: &NewSecurityGroup,
    cluster_tags: &Tags,
    ingress: &[IpPermission],
    actual: Option<&SecurityGroup>,
) -> Result<OwnGroupSteps, Environment> {
    let mut steps = OwnGroupSteps::default();
    let Some(group) = actual else {
        let create = GroupStep::Create(wanted.clone());
        steps
            .made
            .push(Planned::new(create, "the VPC has no group of this name"));
        let open = GroupStep::Authorize(GroupRef::Created, ingress.to_vec());
        steps.opened.push(Planned::new(open, "the group is new"));
        return Ok(steps);
    };

    let missing = security_groups::missing_tags(group, cluster_tags)?;
    if !missing.is_empty() {
        let reason = "the group lacks tags of the cluster: its creation was interrupted";
        let tag = GroupStep::Tag(group.id.clone(), missing);
        steps.made.push(Planned::new(tag, reason));
    }

    let difference = permissions::difference(ingress, &group.ingress);
    if !difference.add.is_empty() {
        let open = GroupStep::Authorize(GroupRef::Id(group.id.clone()), difference.add);
        steps
            .opened
            .push(Planned::new(open, "ports or client networks are missing"));
    }

    if !difference.remove.is_empty() {
        let close = GroupStep::Revoke(group.id.clone(), difference.remove);
        steps
            .closed
            .push(Planned::new(close, "the Service does not request these"));
    }

    Ok(steps)
}
