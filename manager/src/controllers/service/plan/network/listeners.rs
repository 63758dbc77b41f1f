//! Steps for listeners and their target groups.
//!
//! AWS allows one listener for each port, whatever its protocol, and deletes no target group that a listener uses. So:
//!
//! - a listener that can be changed forwards to its new target group, which has all targets already; then the old group
//!   is deleted;
//! - a listener whose protocol AWS does not change is deleted and created again, after all other steps;
//! - a target group whose name another one needs, which only manual changes cause, is deleted first.
//!
//! A target group that a user has attached to a listener is kept.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::Subnet;
use outrigger_aws::elbv2::{Listener, ListenerSettings};

use super::super::super::error::Environment;
use super::super::super::model::network::{Existing, Group};
use super::super::super::spec::desired::network::Port;
use super::super::super::spec::names::{TCP, TLS};
use super::super::{BalancerRef, NetworkInput, NetworkStep as Step, Planned, TargetGroupRef};
use super::target_groups;
use super::target_groups::{Goal, deletion, in_the_way_of_new, is_free, is_wanted_name, spare};

/// Listeners that a load balancer may have, by AWS's default quota.
const MOST_LISTENERS: usize = 50;

enum PortChange<'a> {
    Keep(&'a Listener, &'a Group),
    /// Its listener forwards to another target group.
    Lead(&'a Listener, Option<&'a Group>),
    Renew(&'a Listener, Option<&'a Group>),
    Add(Option<&'a Group>),
}

/// The changes of the listeners of an existing load balancer.
pub(super) struct Synced {
    pub steps: Vec<Planned>,
    /// ARNs that the load balancer does not have any more after the steps.
    pub gone: BTreeSet<String>,
    /// Ports of old target groups whose listeners are moved by a later plan, and of their health checks.
    pub awaited_ports: BTreeSet<i32>,
}

/// All listeners of an existing load balancer.
pub(super) fn sync(input: NetworkInput<'_>, existing: &Existing, goal: &Goal) -> Result<Synced, Environment> {
    let ports = &input.desired.ports;
    let mut sync = Sync {
        input,
        existing,
        goal,
        synced: Synced {
            steps: Vec::new(),
            gone: BTreeSet::new(),
            awaited_ports: BTreeSet::new(),
        },
    };
    let wanted: BTreeSet<i32> = ports.iter().map(|port| port.listener.port).collect();
    let is_unwanted = |old: &&Listener| !wanted.contains(&old.settings.port);
    let unwanted = || existing.listeners.iter().filter(is_unwanted);
    let is_new = |port: &&Port| existing.listener_on(port.listener.port).is_none();
    let additions = ports.iter().filter(is_new).count();
    let full = existing.listeners.len() + additions > MOST_LISTENERS;

    if full {
        unwanted().for_each(|listener| sync.remove(listener));
    }

    let (blocked, free): (Vec<&Port>, Vec<&Port>) = ports.iter().partition(|port| sync.in_the_way(port).is_some());
    for port in free {
        sync.port(port)?;
    }

    if !full {
        unwanted().for_each(|listener| sync.remove(listener));
    }

    for port in blocked {
        sync.port(port)?;
    }

    sync.clear();

    Ok(sync.synced)
}

struct Sync<'a> {
    input: NetworkInput<'a>,
    existing: &'a Existing,
    goal: &'a Goal,
    /// By the steps so far.
    synced: Synced,
}

impl<'a> Sync<'a> {
    fn push(&mut self, step: Step, reason: &str) {
        self.synced.steps.push(Planned::new(step, reason));
    }

    fn change_of(&self, port: &Port) -> PortChange<'a> {
        let existing = self.existing;
        let Some(listener) = existing.listener_on(port.listener.port) else {
            return PortChange::Add(self.usable(port));
        };

        let changeable = can_become(&listener.settings.protocol, &port.listener.protocol);
        match existing.serving(self.input.desired, port) {
            Some(group) if changeable => PortChange::Keep(listener, group),
            Some(group) => PortChange::Renew(listener, Some(group)),
            None if changeable && self.in_the_way(port).is_none() => PortChange::Lead(listener, self.usable(port)),
            None => PortChange::Renew(listener, self.usable(port)),
        }
    }

    /// An existing target group with the port's name that can serve it.
    fn usable(&self, port: &Port) -> Option<&'a Group> {
        let fits = |group: &&Group| group.described.name == port.target_group.name && group.serves(port);
        let own = self.existing.groups.iter().find(fits);
        own.or_else(|| spare(self.input, port))
    }

    /// A target group of this load balancer with the name of a group that has to be created for the port.
    fn in_the_way(&self, port: &Port) -> Option<&'a Group> {
        if self.existing.serving(self.input.desired, port).is_some() {
            return None;
        }
        let named = |group: &&Group| group.described.name == port.target_group.name && !group.serves(port);
        self.existing.groups.iter().find(named)
    }

    fn port(&mut self, port: &Port) -> Result<(), Environment> {
        match self.change_of(port) {
            PortChange::Keep(listener, group) => {
                self.synced
                    .steps
                    .extend(target_groups::upkeep(self.input, port, group, self.goal));
                let kept = TargetGroupRef::Arn(group.described.arn.clone());
                if differs(&listener.settings, &port.listener) {
                    self.modify(listener, port, kept, "protocol, certificate or policy differ");
                }
            }
            // A new target group would not have the lost targets, whose loss is unconfirmed.
            PortChange::Lead(listener, _) | PortChange::Renew(listener, _) if !self.goal.unconfirmed.is_empty() => {
                let group = self.existing.group_behind(listener);
                let ports = group.into_iter().flat_map(|group| group.ports());
                self.synced.awaited_ports.extend(ports);
            }
            PortChange::Lead(listener, usable) => {
                let group = self.group(port, usable)?;
                let reason = "the listener's target group does not serve the port any more";
                self.modify(listener, port, group, reason);
                self.release(listener);
            }
            PortChange::Renew(listener, usable) => self.renew(listener, port, usable)?,
            PortChange::Add(usable) => {
                if let Some(other) = self.in_the_way(port) {
                    self.delete(other);
                }
                let group = self.group(port, usable)?;
                self.create(port, group, "the port has no listener");
            }
        }
        Ok(())
    }

    fn renew(&mut self, listener: &Listener, port: &Port, usable: Option<&'a Group>) -> Result<(), Environment> {
        let gone = || deletion_of(listener);
        if let Some(other) = self.in_the_way(port) {
            let reason = "the target group with the needed name cannot serve the port";
            self.push(gone(), reason);
            self.synced.gone.insert(listener.arn.clone());
            self.delete(other);

            let group = self.group(port, usable)?;
            self.create(
                port,
                group,
                "the listener was deleted so that its target group could be replaced",
            );
        } else {
            let group = self.group(port, usable)?;
            self.push(gone(), "AWS does not change a listener to this protocol");
            self.synced.gone.insert(listener.arn.clone());
            self.create(port, group, "the listener had another protocol");
        }

        self.release(listener);
        Ok(())
    }

    /// The target group for a port, existing or new.
    fn group(&mut self, port: &Port, usable: Option<&'a Group>) -> Result<TargetGroupRef, Environment> {
        if let Some(group) = usable {
            self.synced
                .steps
                .extend(target_groups::upkeep(self.input, port, group, self.goal));
            return Ok(TargetGroupRef::Arn(group.described.arn.clone()));
        }

        if let Some(other) = in_the_way_of_new(self.input, port)? {
            self.delete(other);
        }

        let vpc = self.existing.described.vpc_id.as_deref();
        let vpc = vpc.unwrap_or(&self.input.settings.vpc_id);
        let reason = "no target group serves the port";
        self.synced
            .steps
            .extend(target_groups::creation(port, vpc, self.goal, reason));
        self.synced
            .steps
            .extend(target_groups::attributes_of_created(self.input, port));

        Ok(TargetGroupRef::Created(port.target_group.name.clone()))
    }

    fn create(&mut self, port: &Port, group: TargetGroupRef, reason: &str) {
        let balancer = BalancerRef::Arn(self.existing.described.arn.clone());
        self.synced
            .steps
            .push(listener_creation(self.input, balancer, port, group, reason));
    }

    fn modify(&mut self, listener: &Listener, port: &Port, group: TargetGroupRef, reason: &str) {
        let step = Step::ModifyListener {
            arn: listener.arn.clone(),
            listener: port.listener.clone(),
            moves: !matches!(&group, TargetGroupRef::Arn(arn) if listener.settings.target_group_arn.as_ref() == Some(arn)),
            group,
        };
        self.push(step, reason);
    }

    fn remove(&mut self, listener: &Listener) {
        self.push(deletion_of(listener), "no port of the Service requests this listener");
        self.release(listener);
    }

    /// The listener does not use its target group any more.
    fn release(&mut self, listener: &Listener) {
        self.synced.gone.insert(listener.arn.clone());
        if let Some(group) = self.existing.group_behind(listener) {
            self.leave(group);
        }
    }

    /// Deletes a target group, unless a listener uses it, a port will use it, its list of targets is still needed, or a
    /// user has created it.
    fn leave(&mut self, group: &Group) {
        if self.is_used(group) {
            return;
        }
        if !self.input.desired.target_groups.has(&group.described.name) {
            self.synced.gone.insert(group.described.arn.clone());
        } else if !self.is_awaited(group) {
            self.delete(group);
        }
    }

    fn is_used(&self, group: &Group) -> bool {
        let arn = group.described.arn.as_str();
        let by_listener = self.existing.listeners.iter().any(|listener| {
            listener.settings.target_group_arn.as_deref() == Some(arn) && !self.synced.gone.contains(&listener.arn)
        });
        by_listener || self.input.desired.ports.iter().any(|port| self.will_have(port, arn))
    }

    fn will_have(&self, port: &Port, arn: &str) -> bool {
        let group = match self.change_of(port) {
            PortChange::Keep(_, group) => Some(group),
            PortChange::Lead(_, usable) | PortChange::Renew(_, usable) | PortChange::Add(usable) => usable,
        };
        group.is_some_and(|group| group.described.arn == arn)
    }

    /// Whether an unused group is the only one with a target that stays, while listeners wait for the confirmation of a
    /// loss: their new groups need this list.
    fn is_awaited(&self, group: &Group) -> bool {
        let elsewhere = self.existing.groups.iter().filter(|other| self.is_used(other));
        let elsewhere: BTreeSet<InstanceId> = elsewhere.flat_map(Group::instances).collect();
        let mut here = group.instances().into_iter();
        !self.goal.unconfirmed.is_empty() && here.any(|id| self.goal.wanted.contains(&id) && !elsewhere.contains(&id))
    }

    fn delete(&mut self, group: &Group) {
        if self.synced.gone.insert(group.described.arn.clone()) {
            self.synced.steps.push(deletion(group));
        }
    }

    /// Deletes the other target groups of this Service. A group in use by others is kept.
    fn clear(&mut self) {
        let existing = self.existing.groups.iter();
        let spare = self.input.observed.spare.iter().filter(|group| is_free(group));
        for group in existing.chain(spare) {
            self.leave(group);
        }
    }
}

fn deletion_of(listener: &Listener) -> Step {
    Step::DeleteListener {
        arn: listener.arn.clone(),
        port: listener.settings.port,
    }
}

/// Whether AWS changes a listener of one protocol to another: TCP and TLS, but not UDP.
fn can_become(now: &str, wanted: &str) -> bool {
    let stream = |protocol: &str| matches!(protocol, TCP | TLS);
    now == wanted || (stream(now) && stream(wanted))
}

/// Whether a listener has to be changed. A policy that the Service does not request stays.
fn differs(now: &ListenerSettings, wanted: &ListenerSettings) -> bool {
    let encrypted = wanted.protocol == TLS;
    let policy = wanted.ssl_policy.as_ref();
    now.protocol != wanted.protocol
        || (encrypted && now.certificate != wanted.certificate)
        || (encrypted && policy.is_some_and(|policy| now.ssl_policy.as_ref() != Some(policy)))
}

/// The listeners of a new load balancer, in the order of the in-tree provider.
pub(super) fn of_new(input: NetworkInput<'_>, subnets: &[Subnet], goal: &Goal) -> Result<Vec<Planned>, Environment> {
    let vpc = subnets.iter().find_map(|subnet| subnet.vpc_id.as_deref());
    let vpc = vpc.unwrap_or(&input.settings.vpc_id);
    let reason = "the load balancer is new";
    let mut steps = Vec::new();

    for port in &input.desired.ports {
        let group = match spare(input, port) {
            Some(group) => {
                steps.extend(target_groups::upkeep(input, port, group, goal));
                TargetGroupRef::Arn(group.described.arn.clone())
            }
            None => {
                steps.extend(in_the_way_of_new(input, port)?.map(deletion));
                steps.extend(target_groups::creation(port, vpc, goal, reason));
                TargetGroupRef::Created(port.target_group.name.clone())
            }
        };
        steps.push(listener_creation(input, BalancerRef::Created, port, group, reason));
    }

    // A group with a wanted name is used, or was deleted before.
    let is_unneeded = |group: &&Group| is_free(group) && !is_wanted_name(input, group);
    let unneeded = input.observed.spare.iter().filter(is_unneeded);

    steps.extend(unneeded.map(deletion));

    Ok(steps)
}

fn listener_creation(
    input: NetworkInput<'_>,
    balancer: BalancerRef,
    port: &Port,
    group: TargetGroupRef,
    reason: &str,
) -> Planned {
    let step = Step::CreateListener {
        balancer,
        listener: port.listener.clone(),
        group,
        tags: input.desired.tags.clone(),
    };
    Planned::new(step, reason)
}
