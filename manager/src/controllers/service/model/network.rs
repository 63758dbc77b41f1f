//! A network load balancer and what belongs to it, as AWS describes them.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::{SecurityGroup, Subnet};
use outrigger_aws::elbv2::{Attributes, Listener, NetworkLoadBalancer, Target, TargetGroup};
use outrigger_aws::{InstanceId, Tags};

use super::super::spec::desired::network::{Desired, Port};
use super::super::spec::names::TARGET_TYPE;
use super::{NodeInstance, Vpc};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    pub described: TargetGroup,
    /// Its targets, without those that are being deregistered.
    pub targets: BTreeSet<Target>,
    /// Its attributes, if they were read: only if the Service requests any.
    pub attributes: Option<Attributes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    pub described: NetworkLoadBalancer,
    pub attributes: Option<Attributes>,
    pub tags: Option<Tags>,
    pub listeners: Vec<Listener>,
    pub groups: Vec<Group>,
}

impl Group {
    /// Whether it can serve a port: the properties that AWS never changes are as wanted.
    pub fn serves(&self, port: &Port) -> bool {
        let (now, wanted) = (&self.described, &port.target_group);
        let check = (&now.health_check, &wanted.health_check);
        now.port == wanted.port
            && now.protocol == wanted.protocol
            && now.target_type.as_deref().is_none_or(|kind| kind == TARGET_TYPE)
            && check.0.protocol.eq_ignore_ascii_case(&check.1.protocol)
            && check.0.interval == check.1.interval
    }

    /// The ports of its targets: for traffic, and for health checks.
    pub fn ports(&self) -> impl Iterator<Item = i32> + use<> {
        let checked = self.described.health_check.port.parse().ok();
        [Some(self.described.port), checked].into_iter().flatten()
    }

    pub fn instances(&self) -> BTreeSet<InstanceId> {
        self.targets.iter().map(|target| target.id.clone()).collect()
    }
}

impl Existing {
    /// The listener on a port; AWS allows one.
    pub fn listener_on(&self, port: i32) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.settings.port == port)
    }

    pub fn group_behind(&self, listener: &Listener) -> Option<&Group> {
        let arn = listener.settings.target_group_arn.as_deref()?;
        self.groups.iter().find(|group| group.described.arn == arn)
    }

    /// The target group behind the port's listener, if it may stay. A group with the name of another port's group may
    /// not: that port needs it.
    pub fn serving(&self, desired: &Desired, port: &Port) -> Option<&Group> {
        let group = self.group_behind(self.listener_on(port.listener.port)?)?;
        let of_another =
            |other: &Port| other.listener.port != port.listener.port && other.target_group.name == group.described.name;
        (group.serves(port) && !desired.ports.iter().any(of_another)).then_some(group)
    }

    pub(crate) fn uses(&self, arn: &str) -> bool {
        self.groups.iter().any(|group| group.described.arn == arn)
    }

    pub(crate) fn group_arns(&self) -> BTreeSet<String> {
        self.groups.iter().map(|group| group.described.arn.clone()).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    pub load_balancer: Option<Existing>,
    /// Target groups that it does not use: those of the wanted names, used by others or not, and unused ones of the
    /// Service.
    pub spare: Vec<Group>,
    /// The security group that was created for it; not read if none is created.
    pub own_group: Option<SecurityGroup>,
    /// Groups with a rule that names that group; only read before it is deleted.
    pub referencing: Vec<SecurityGroup>,
    pub vpc: Vpc,
    /// The instances of the candidates, as far as EC2 lists them.
    pub instances: BTreeMap<InstanceId, NodeInstance>,
    /// The cluster's security groups and those of the instances.
    pub groups: BTreeMap<String, SecurityGroup>,
}

impl Observed {
    pub fn scheme(&self) -> Option<&str> {
        self.load_balancer.as_ref()?.described.scheme.as_deref()
    }

    pub fn has_listeners(&self) -> bool {
        let existing = self.load_balancer.as_ref();
        existing.is_some_and(|existing| !existing.listeners.is_empty())
    }

    pub fn attached(&self) -> BTreeSet<String> {
        let subnets = self.load_balancer.as_ref().map(|existing| &existing.described.subnets);
        subnets.cloned().unwrap_or_default()
    }

    /// The instances that are targets of the load balancer, or were until an interrupted change of listeners: their
    /// target groups still exist, unused.
    pub fn registered(&self) -> BTreeSet<InstanceId> {
        self.target_groups().flat_map(Group::instances).collect()
    }

    /// The target groups that the load balancer uses, and those of the Service that nothing uses.
    pub fn target_groups(&self) -> impl Iterator<Item = &Group> {
        let used = self.load_balancer.iter().flat_map(|existing| &existing.groups);
        let unused = |group: &&Group| group.described.load_balancers.is_empty();
        used.chain(self.spare.iter().filter(unused))
    }

    /// The exact names of the target groups that are or will be the Service's.
    pub fn given_names(&self, desired: &Desired) -> BTreeSet<String> {
        let wanted = desired.ports.iter().map(|port| &port.target_group.name);
        let used = self.load_balancer.iter().flat_map(|existing| &existing.groups);
        let used = used.map(|group| &group.described.name);
        let used = used.filter(|name| desired.target_groups.has(name));
        wanted.chain(used).cloned().collect()
    }

    pub fn security_groups(self) -> Vec<SecurityGroup> {
        let groups = self.groups.into_values().chain(self.own_group);
        groups.chain(self.referencing).collect()
    }

    /// The load balancer's address, while AWS says that it serves or soon will. In another state the Service keeps the
    /// address that it has.
    pub fn address(&self) -> Option<String> {
        let described = &self.load_balancer.as_ref()?.described;
        let serves = matches!(described.state.as_deref(), None | Some("active" | "provisioning"));
        serves.then(|| described.dns_name.clone())
    }

    /// Descriptions of the subnets of the load balancer.
    pub fn stands_in(&self) -> Vec<Subnet> {
        let attached = self.attached();
        let mut subnets = self.vpc.subnets.clone();
        subnets.retain(|subnet| attached.contains(&subnet.id));
        subnets
    }
}

/// The AWS resources of a Service that is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnedResources {
    pub name: String,
    /// Its load balancer's ARN, if it exists.
    pub load_balancer: Option<String>,
    /// That load balancer's tags; `None`: they are not known.
    pub tags: Option<Tags>,
    /// Target groups that were created for the Service: those that the load balancer uses, and unused ones.
    pub target_groups: Vec<TargetGroup>,
    /// The security groups that may have rules for Nodes.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// The group that was created for it, found by name: also when the load balancer is gone or was never created.
    pub own_group: Option<SecurityGroup>,
    /// Groups with a rule that names that group.
    pub referencing: Vec<SecurityGroup>,
    /// Groups that the Service's annotations list; they have other owners.
    pub listed: Vec<String>,
}
