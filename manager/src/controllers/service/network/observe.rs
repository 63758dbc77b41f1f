//! Reading at AWS what a plan is made from. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::{SecurityGroup, Subnet};
use outrigger_aws::elbv2::{Attributes, Listener, NetworkLoadBalancer, Target, TargetGroup, TargetHealth};
use outrigger_aws::{Error, InstanceId, Tags};

use super::super::names::SERVICE_TAG;
use super::super::reads::{Aws, Look, Vpc, group_by_name, network_load_balancer, referencing, vpc};
use super::super::settings::Settings;
use super::super::targets::{Candidate, NodeInstance};
use super::desired::{Desired, Groups};
use super::heirs::{Heirs, heirs};
use super::listing::{self, Search, Whose};
use super::names::{self, TARGET_TYPE};
use super::node_groups::{forgotten, node_groups};
use super::plan::unneeded_checks;
use super::ports::Port;

/// What AWS says of a target that is on its way out.
const LEAVING: &str = "Target.DeregistrationInProgress";

/// A target group that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Its description.
    pub described: TargetGroup,
    /// Its targets, without those that are on their way out.
    pub targets: BTreeSet<Target>,
    /// Its attributes, if they were read; they are not where nobody asks for any.
    pub attributes: Option<Attributes>,
}

/// A load balancer that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Existing {
    /// Its description.
    pub described: NetworkLoadBalancer,
    /// Its attributes, if they were read.
    pub attributes: Option<Attributes>,
    /// Its tags, if they were read.
    pub tags: Option<Tags>,
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// The target groups that it uses.
    pub groups: Vec<Group>,
}

impl Group {
    /// Whether a port can have it as it is: what cannot be changed later is as wanted.
    #[must_use]
    pub fn serves(&self, port: &Port) -> bool {
        let (now, wanted) = (&self.described, &port.target_group);
        let check = (&now.health_check, &wanted.health_check);
        now.port == wanted.port
            && now.protocol == wanted.protocol
            && now.target_type.as_deref().is_none_or(|kind| kind == TARGET_TYPE)
            && check.0.protocol.eq_ignore_ascii_case(&check.1.protocol)
            && check.0.interval == check.1.interval
    }

    /// The instances among its targets.
    #[must_use]
    pub fn instances(&self) -> BTreeSet<InstanceId> {
        self.targets.iter().map(|target| target.id.clone()).collect()
    }
}

impl Existing {
    /// The listener on a port; AWS allows one.
    #[must_use]
    pub fn listener_on(&self, port: i32) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.settings.port == port)
    }

    /// The target group that a listener forwards to.
    #[must_use]
    pub fn group_behind(&self, listener: &Listener) -> Option<&Group> {
        let arn = listener.settings.target_group_arn.as_deref()?;
        self.groups.iter().find(|group| group.described.arn == arn)
    }

    /// The target group behind the port's listener, if it may stay. One that has the name of another port's group does
    /// not: that port needs it.
    #[must_use]
    pub fn serving(&self, desired: &Desired, port: &Port) -> Option<&Group> {
        let group = self.group_behind(self.listener_on(port.listener.port)?)?;
        let of_another =
            |other: &Port| other.listener.port != port.listener.port && other.target_group.name == group.described.name;
        (group.serves(port) && !desired.ports.iter().any(of_another)).then_some(group)
    }

    /// Whether a target group is one of its own.
    pub(super) fn uses(&self, arn: &str) -> bool {
        self.groups.iter().any(|group| group.described.arn == arn)
    }

    fn group_arns(&self) -> BTreeSet<String> {
        self.groups.iter().map(|group| group.described.arn.clone()).collect()
    }
}

/// What AWS has for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// The load balancer of the Service's name.
    pub load_balancer: Option<Existing>,
    /// Target groups that it does not use: those of the wanted names, whoever uses them, and what was left over.
    pub spare: Vec<Group>,
    /// The security group that was made for it; not looked for where none is made.
    pub own_group: Option<SecurityGroup>,
    /// Groups with a rule that names that group; only looked for when it is about to go.
    pub referencing: Vec<SecurityGroup>,
    /// What its subnets are chosen from.
    pub vpc: Vpc,
    /// The instances of the candidates, as far as EC2 lists them.
    pub instances: BTreeMap<InstanceId, NodeInstance>,
    /// The cluster's security groups and those of the instances.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Other load balancers that need rules for health checks which are there for this one, as far as it does not need them.
    pub heirs: Heirs,
}

impl Observed {
    /// The scheme of the load balancer, if it exists.
    #[must_use]
    pub fn scheme(&self) -> Option<&str> {
        self.load_balancer.as_ref()?.described.scheme.as_deref()
    }

    /// The subnets that the load balancer stands in.
    #[must_use]
    pub fn attached(&self) -> BTreeSet<String> {
        let subnets = self.load_balancer.as_ref().map(|existing| &existing.described.subnets);
        subnets.cloned().unwrap_or_default()
    }

    /// The instances that are targets of the load balancer, or were until a change of listeners was cut off: their target
    /// groups are there, and nothing uses them.
    #[must_use]
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
    #[must_use]
    pub fn given_names(&self, desired: &Desired) -> BTreeSet<String> {
        let wanted = desired.ports.iter().map(|port| &port.target_group.name);
        let used = self.load_balancer.iter().flat_map(|existing| &existing.groups);
        let used = used.map(|group| &group.described.name);
        wanted
            .chain(used.filter(|name| desired.target_groups.has(name)))
            .cloned()
            .collect()
    }

    /// All security groups that were looked at.
    #[must_use]
    pub fn security_groups(self) -> Vec<SecurityGroup> {
        let groups = self.groups.into_values().chain(self.own_group);
        groups.chain(self.referencing).collect()
    }

    /// The load balancer's address, while AWS says that it serves or soon will. In another state the Service keeps the
    /// address that it has.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        let described = &self.load_balancer.as_ref()?.described;
        let serves = matches!(described.state.as_deref(), None | Some("active" | "provisioning"));
        serves.then(|| described.dns_name.clone())
    }

    /// Descriptions of those subnets.
    #[must_use]
    pub fn stands_in(&self) -> Vec<Subnet> {
        let attached = self.attached();
        let mut subnets = self.vpc.subnets.clone();
        subnets.retain(|subnet| attached.contains(&subnet.id));
        subnets
    }
}

/// Reads what a plan for this Service needs. `given` are exact names that target groups of this Service have had.
///
/// # Errors
/// The first call that failed.
pub async fn observe(
    look: &Look<'_>,
    desired: &Desired,
    settings: &Settings,
    candidates: &[Candidate],
    (search, given): (Search, &BTreeSet<String>),
) -> Result<Observed, Error> {
    let load_balancer = existing(look, desired, search).await?;
    let mut observed = Observed {
        spare: spare(look, desired, settings, load_balancer.as_ref(), (search, given)).await?,
        load_balancer,
        ..Observed::default()
    };
    observed.vpc = vpc(look, &desired.subnets, settings, &observed.attached()).await?;
    if desired.groups != Groups::Kept {
        observed.own_group = group_by_name(look, &settings.vpc_id, &desired.own_group.name).await?;
    }
    if let (Groups::Given(_), Some(own)) = (&desired.groups, &observed.own_group) {
        observed.referencing = referencing(look, BTreeSet::from([own.id.clone()])).await?;
    }
    let ids: BTreeSet<InstanceId> = candidates.iter().map(|candidate| candidate.id.clone()).collect();
    observed.instances = look.instances.look_up(&ids).await?;
    if !settings.disable_security_group_ingress {
        observed.groups = node_groups(look, settings, &observed.instances).await?;
        // A group without the cluster's tag is found by its Nodes, and not any more when the last of them has gone.
        if search != Search::Named || !observed.registered().is_subset(&ids) {
            observed.groups.extend(forgotten(look, settings, &desired.name).await?);
        }
        let unneeded = unneeded_checks(desired, &observed.stands_in(), &observed);
        let search = match look.is_quick() {
            true => Search::Earlier,
            false => Search::Now,
        };
        if look.is_quick() && !unneeded.is_empty() {
            look.was_told_older();
        }
        observed.heirs = heirs(look, settings, &desired.name, &unneeded, search).await?;
    }
    Ok(observed)
}

/// Reads what it takes to let the targets of a load balancer follow the Nodes.
///
/// # Errors
/// The first call that failed.
pub async fn standing(look: &Look<'_>, name: &str, candidates: &[Candidate]) -> Result<Observed, Error> {
    let elb = look.elbv2.as_ref();
    let found = elb.load_balancers(&[name.to_owned()]).await?;
    let Some(described) = found.into_iter().find(|balancer| balancer.name == name) else {
        return Ok(Observed::default());
    };
    let mut groups = Vec::new();
    for used in elb.target_groups(&described.arn).await? {
        if used.target_type.as_deref().is_none_or(|kind| kind == TARGET_TYPE) {
            groups.push(Group {
                targets: staying(elb.target_health(&used.arn).await?),
                described: used,
                attributes: None,
            });
        }
    }
    let load_balancer = Existing {
        described,
        groups,
        ..Existing::default()
    };
    let ids = candidates.iter().map(|candidate| candidate.id.clone()).collect();
    Ok(Observed {
        load_balancer: Some(load_balancer),
        instances: look.instances.look_up(&ids).await?,
        ..Observed::default()
    })
}

async fn existing(look: &Look<'_>, desired: &Desired, search: Search) -> Result<Option<Existing>, Error> {
    let elb = look.elbv2.as_ref();
    let Some((described, tags)) = network_load_balancer(look, &desired.name).await? else {
        return Ok(None);
    };
    let listeners = elb.listeners(&described.arn).await?;
    let used = used(look, &described.arn, &listeners, search).await?;
    let attributes = match look.reads_attributes() {
        true => look.optional(elb.attributes(&described.arn).await)?,
        false => None,
    };
    Ok(Some(Existing {
        attributes,
        tags,
        groups: in_full(look, desired, used).await?,
        listeners,
        described,
    }))
}

/// The target groups that a load balancer uses, and those that its listeners forward to: AWS may tell one sooner than
/// the other.
async fn used(look: &Look<'_>, arn: &str, listeners: &[Listener], search: Search) -> Result<Vec<TargetGroup>, Error> {
    let aws: &Aws = look;
    let mut groups = if look.is_quick() && search == Search::Earlier {
        // All of them have to be listed anyway, and that listing serves all Services after a start.
        look.was_told_older();
        let all = aws.target_groups.all(aws.elbv2.as_ref(), search).await?;
        let using = all.iter().filter(|group| group.load_balancers.contains(arn));
        using.cloned().collect()
    } else {
        aws.elbv2.target_groups(arn).await?
    };
    let forwarded = listeners.iter().filter_map(|l| l.settings.target_group_arn.as_deref());
    let untold: BTreeSet<&str> = forwarded
        .filter(|arn| !groups.iter().any(|group| group.arn == *arn))
        .collect();
    let names: Vec<String> = untold
        .iter()
        .filter_map(|arn| names::target_group_of(arn))
        .map(str::to_owned)
        .collect();
    if !names.is_empty() {
        let more = aws.elbv2.target_groups_named(&names).await?;
        groups.extend(more.into_iter().filter(|group| untold.contains(group.arn.as_str())));
    }
    Ok(groups)
}

async fn spare(
    look: &Look<'_>,
    desired: &Desired,
    settings: &Settings,
    existing: Option<&Existing>,
    (search, given): (Search, &BTreeSet<String>),
) -> Result<Vec<Group>, Error> {
    let served = |port: &&Port| existing.is_some_and(|existing| existing.serving(desired, port).is_some());
    let unserved = desired.ports.iter().filter(|port| !served(port));
    let names: Vec<String> = unserved.map(|port| port.target_group.name.clone()).collect();
    let mut found = Vec::new();
    if !names.is_empty() {
        found = look.elbv2.target_groups_named(&names).await?;
    }
    if search != Search::Named {
        let whose = Whose {
            names: &desired.target_groups,
            given,
            service_tag: desired.tags.get(SERVICE_TAG).map(String::as_str).unwrap_or_default(),
            cluster_tags: &desired.cluster_tags,
            settings,
            balancer: existing,
            gone: None,
        };
        found.extend(listing::unused(look, whose, search).await?);
    }
    let mut seen: BTreeSet<String> = existing.map(Existing::group_arns).unwrap_or_default();
    found.retain(|group| seen.insert(group.arn.clone()));
    in_full(look, desired, found).await
}

async fn in_full(look: &Look<'_>, desired: &Desired, groups: Vec<TargetGroup>) -> Result<Vec<Group>, Error> {
    let elb = look.elbv2.as_ref();
    let wanted = desired.target_group_attributes.is_some() && look.reads_attributes();
    let mut full = Vec::with_capacity(groups.len());
    for described in groups {
        let health = elb.target_health(&described.arn).await?;
        let attributes = match wanted {
            true => look.optional(elb.target_group_attributes(&described.arn).await)?,
            false => None,
        };
        full.push(Group {
            described,
            targets: staying(health),
            attributes,
        });
    }
    Ok(full)
}

fn staying(targets: Vec<TargetHealth>) -> BTreeSet<Target> {
    let staying = targets
        .into_iter()
        .filter(|target| target.reason.as_deref() != Some(LEAVING));
    staying.map(|health| health.target).collect()
}
