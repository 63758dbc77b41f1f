//! Plans a classic load balancer. No IO, no clock.

mod balancer;

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{SecurityGroup, Subnet};
use outrigger_aws::elb::{AccessLog, Attributes, LoadBalancer, NewLoadBalancer};

use super::super::error::Environment;
use super::super::model::classic::{Existing, KnownTags, Observed, OwnedResources};
use super::super::settings::Settings;
use super::super::spec::desired::classic::{Desired, Groups};
use super::super::spec::names::{self, other_owner};
use super::super::spec::permissions::{all_from, by_rule};
use super::super::spec::request::Subnets;
use super::claims::{Claim, ClaimSteps, PlannedClaim};
use super::subnets::Confirmed;
use super::{
    ClassicInput, ClassicStep as Step, GroupRef, GroupStep, Plan, Planned, own_group_deletion, own_group_steps,
    security_groups, subnets, targets, unused_group_deletion,
};

/// A plan that only updates targets, for a Service whose spec is refused.
pub fn plan_targets(input: ClassicInput<'_, ()>) -> Plan {
    let (observed, since) = (input.observed, input.claims.since);
    let mut during = in_use(observed);
    let mut plan = Plan::default();
    if let Some(existing) = &observed.load_balancer {
        // Rules that name a group of another owner are never revoked, so none is added before the spec is valid.
        let first = existing.described.security_groups.first();
        let own = observed.own_group.as_ref().map(|group| &group.id);
        let source = first.filter(|first| Some(*first) == own).cloned().map(GroupRef::Id);
        let targets = target_change(input, existing);
        // Targets come first, as in v1.37: whatever happens to a rule, lost Nodes leave and others join. Rules are
        // revoked when the spec is valid again.
        let rules = node_rules(input, &existing.described.name, source.as_ref(), &targets.after);
        during.join(&rules.claim);
        plan = Plan {
            steps: [targets.steps, rules.steps.add].concat(),
            unconfirmed: targets.unconfirmed,
            targets: targets.after,
            ..plan
        };
    }

    let manages_rules = !input.settings.disable_security_group_ingress;
    Plan {
        claim: manages_rules.then(|| PlannedClaim::lasting(during, since)),
        ..plan
    }
}

/// The plan for a Service. If one Node cannot get a rule, all steps before the Nodes' rules are done, in the order of
/// the in-tree provider: targets come after. An existing load balancer gets other security groups only after the Nodes
/// let these in.
/// Fails when AWS does not allow the spec; then there are no steps at all.
pub fn plan(input: ClassicInput<'_>) -> Result<Plan, Environment> {
    let ClassicInput { desired, observed, .. } = input;
    let groups = wanted_groups(desired, observed.own_group.as_ref());
    let subnets = placement(input)?;
    let existing = observed.load_balancer.clone().unwrap_or_else(|| fresh(desired));
    let targets = target_change(input, &existing);
    let rules = node_rules(input, &desired.name, groups.first(), &targets.after);
    let (mut rules, after, refused) = (rules.steps, rules.claim, rules.refused);
    let claim = rules.claim(in_use(observed), after, input.claims.since);
    let mut steps = own_group(desired, observed)?;

    if observed.load_balancer.is_some() {
        steps.extend(std::mem::take(&mut rules.add));
        // Other groups would interrupt the traffic that the Nodes allow.
        let groups = refused.is_none().then_some(&*groups);
        steps.extend(balancer::placement(observed, &existing, &subnets.wanted, groups)?);
    } else {
        steps.push(creation(input, &subnets.wanted, &groups));
    }

    steps.extend(balancer::settings(desired, &existing));
    if refused.is_none() {
        steps.extend([rules.add, targets.steps, rules.remove].concat());
        steps.extend(leftover_group(input));
    }

    Ok(Plan {
        steps,
        unconfirmed: targets.unconfirmed,
        unchosen_subnets: subnets.unconfirmed,
        targets: targets.after,
        claim: (!input.settings.disable_security_group_ingress).then_some(claim),
        refused,
    })
}

fn placement(input: ClassicInput<'_>) -> Result<Confirmed, Environment> {
    let ClassicInput { desired, observed, .. } = input;
    let attached = observed.attached();
    let internal = subnets::is_internal(observed.scheme(), desired.internal);
    let chosen = subnets::wanted(&desired.subnets, internal, input.settings, &attached, &observed.vpc)?;

    match desired.subnets {
        Subnets::Discover => {
            let before = &observed.unchosen_before;
            Ok(subnets::confirmed(chosen, &attached, before, &observed.vpc.subnets))
        }
        Subnets::Listed { .. } => Ok(Confirmed {
            wanted: chosen,
            unconfirmed: BTreeSet::new(),
        }),
    }
}

fn creation(input: ClassicInput<'_>, subnets: &[Subnet], groups: &[GroupRef]) -> Planned {
    let (desired, uid) = (input.desired, input.settings.cluster_uid.as_deref());
    let new = NewLoadBalancer {
        name: desired.name.clone(),
        internal: desired.internal,
        listeners: desired.listeners.clone(),
        subnets: subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        security_groups: Vec::new(),
        tags: names::creation_tags(&desired.tags, uid, names::MOST_CLASSIC_TAGS),
    };

    let groups = groups.to_vec();
    let step = Step::CreateLoadBalancer { new, groups };
    Planned::new(step, "AWS has no load balancer of this name")
}

/// A new load balancer as AWS creates it. A wrong guess costs one repair.
fn fresh(desired: &Desired) -> Existing {
    Existing {
        described: LoadBalancer {
            listeners: desired.listeners.clone(),
            ..LoadBalancer::default()
        },
        attributes: Some(Attributes {
            cross_zone: Some(false),
            access_log: Some(AccessLog::default()),
            connection_draining: Some(false),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        }),
        tags: KnownTags::Read(desired.tags.clone()),
    }
}

/// Changes of targets: first added, then removed ones.
#[derive(Debug, Default)]
struct TargetChange {
    pub steps: Vec<Planned>,
    pub unconfirmed: BTreeSet<InstanceId>,
    pub after: BTreeSet<InstanceId>,
}

fn target_change<D>(input: ClassicInput<'_, D>, existing: &Existing) -> TargetChange {
    let registered = &existing.described.instances;
    let wanted = targets::wanted(input.candidates, registered, &input.observed.instances);
    let change = targets::change(&wanted, registered, input.seen_gone);
    let after: BTreeSet<InstanceId> = wanted.union(&change.unconfirmed).cloned().collect();
    let mut steps = Vec::new();

    if !change.add.is_empty() {
        let step = Step::Register {
            instances: change.add.into_iter().collect(),
            needed: registered.is_disjoint(&after),
        };
        let reason = "these Nodes are Ready and not registered as targets";
        steps.push(Planned::new(step, reason));
    }

    if !change.remove.is_empty() {
        let step = Step::Deregister(change.remove.into_iter().collect());
        steps.push(Planned::new(step, "these targets belong to no Node that qualifies"));
    }

    TargetChange {
        steps,
        unconfirmed: change.unconfirmed,
        after,
    }
}

/// The load balancer's groups in order. Nodes allow traffic from the first.
fn wanted_groups(desired: &Desired, own: Option<&SecurityGroup>) -> Vec<GroupRef> {
    let listed = |ids: &[String]| ids.iter().cloned().map(GroupRef::Id).collect::<Vec<_>>();
    let mut groups = match &desired.groups {
        Groups::Given(given) => listed(given),
        Groups::Own { extra } => [vec![GroupRef::of(own)], listed(extra)].concat(),
    };
    let mut seen = BTreeSet::new();
    groups.retain(|group| seen.insert(group.clone()));

    groups
}

/// The load balancer's own group, with tags and exactly the wanted ingress; missing rules are added first.
fn own_group(desired: &Desired, observed: &Observed) -> Result<Vec<Planned>, Environment> {
    if matches!(desired.groups, Groups::Given(_)) {
        return Ok(Vec::new());
    }

    let (wanted, actual) = (&desired.own_group, observed.own_group.as_ref());
    let steps = own_group_steps(wanted, &desired.cluster_tags, &desired.ingress, actual)?;
    Ok([steps.made, steps.opened, steps.closed].concat())
}

/// The rules of the Nodes' groups for a load balancer.
#[derive(Debug, Default)]
struct NodeRules {
    steps: ClaimSteps,
    claim: Claim,
    /// The reason why its groups cannot be chosen.
    refused: Option<Environment>,
}

/// The security groups that the load balancer has.
fn in_use(observed: &Observed) -> Claim {
    let described = observed.load_balancer.as_ref().map(|existing| &existing.described);
    let groups = described.map(|described| &described.security_groups);
    Claim {
        sources: groups.into_iter().flatten().cloned().collect(),
        ..Claim::default()
    }
}

/// The steps that let in the load balancer where its targets are.
fn node_rules<D>(
    input: ClassicInput<'_, D>,
    name: &str,
    source: Option<&GroupRef>,
    targets: &BTreeSet<InstanceId>,
) -> NodeRules {
    let ClassicInput { settings, observed, .. } = input;
    let Some(source) = source.filter(|_| !settings.disable_security_group_ingress) else {
        return NodeRules::default();
    };

    let known = match source {
        GroupRef::Id(id) => Some(id),
        GroupRef::Created => None,
    };
    let open = security_groups::of_targets(targets, (&observed.instances, &observed.groups), settings);
    let needs = known.map(|id| by_rule(&[all_from(id)]));
    let own = observed.own_group.as_ref().map(|own| &own.id);
    let claim = Claim {
        groups: open.groups.iter().cloned().zip(needs.into_iter().cycle()).collect(),
        // Others may depend on rules that name a shared group.
        own_group: known.filter(|known| Some(*known) == own).cloned(),
        sources: known.filter(|_| !open.are_all_known).into_iter().cloned().collect(),
        ..Claim::default()
    };

    let groups = observed.groups.values().chain(&observed.referencing);
    let groups: BTreeMap<&String, &SecurityGroup> = groups.map(|group| (&group.id, group)).collect();
    let mut steps = ClaimSteps::of(input.claims, (name, &claim), groups.into_values(), settings);
    if known.is_none() {
        let let_in = |node_group| {
            let from = source.clone();
            Planned::new(
                GroupStep::LetIn { node_group, from },
                "the load balancer's security group is new",
            )
        };
        steps.add = open.groups.into_iter().map(let_in).collect();
    }

    NodeRules {
        steps,
        claim,
        refused: open.refused,
    }
}

/// The own group of a load balancer that uses given groups now.
fn leftover_group(input: ClassicInput<'_>) -> Vec<Planned> {
    let ClassicInput { desired, observed, .. } = input;
    match (&desired.groups, &observed.own_group) {
        // If the Nodes' groups are not managed, a rule there may name the group, and EC2 would refuse each deletion.
        (Groups::Given(given), Some(own)) if !input.settings.disable_security_group_ingress => {
            let kept = (given.as_slice(), &desired.cluster_tags);
            unused_group_deletion(own, kept, &observed.referencing, input.settings)
        }
        _ => Vec::new(),
    }
}

/// Deletes everything. After a crash at any step the plan is made again without the steps that are done.
pub fn plan_deletion(owned_resources: &OwnedResources, settings: &Settings) -> Plan {
    let mut steps = Vec::new();
    if owned_resources.load_balancer && other_owner(owned_resources.tags.as_ref(), settings).is_none() {
        let reason = "the Service does not request a load balancer any more";
        steps.push(Planned::new(Step::DeleteLoadBalancer, reason));
    }

    let (own, listed) = (owned_resources.own_group.as_ref(), &owned_resources.listed);
    steps.extend(own_group_deletion(own, listed, &owned_resources.referencing, settings));

    Plan::of(steps)
}

#[cfg(test)]
mod tests {
    use super::super::super::spec::names;
    use super::super::super::spec::permissions::all_from;
    use super::*;
    use outrigger_aws::Tags;

    fn group(id: &str, pairs: &[(&str, &str)]) -> SecurityGroup {
        let tags = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        SecurityGroup {
            id: id.into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: vec![],
            tags,
        }
    }

    fn settings() -> Settings {
        Settings {
            cluster_id: "prod".into(),
            ..Settings::default()
        }
    }

    fn actions(owned_resources: &OwnedResources, settings: &Settings) -> Vec<&'static str> {
        plan_deletion(owned_resources, settings)
            .steps
            .iter()
            .map(|planned| planned.step.action())
            .collect()
    }

    #[test]
    fn the_load_balancer_is_deleted_first_and_its_group_last() {
        let mut node = group("sg-node", &[]);
        node.ingress = vec![all_from("sg-own")];
        let own = Some(SecurityGroup {
            tags: names::cluster_tags("prod", false),
            ..group("sg-own", &[])
        });
        let owned_resources = OwnedResources {
            load_balancer: true,
            tags: Some(names::cluster_tags("prod", false)),
            own_group: own,
            referencing: vec![node],
            listed: vec![],
        };
        assert_eq!(
            actions(&owned_resources, &settings()),
            [
                "DeleteLoadBalancer",
                "RevokeSecurityGroupIngress",
                "DeleteSecurityGroup"
            ]
        );
        let is_unmanaged = Settings {
            disable_security_group_ingress: true,
            ..settings()
        };
        assert_eq!(
            actions(&owned_resources, &is_unmanaged),
            ["DeleteLoadBalancer"],
            "a rule that is not ours to touch names the group"
        );
        let unnamed = OwnedResources {
            referencing: vec![],
            ..owned_resources
        };
        assert_eq!(
            actions(&unnamed, &is_unmanaged),
            ["DeleteLoadBalancer", "DeleteSecurityGroup"]
        );
        assert_eq!(actions(&OwnedResources::default(), &settings()), Vec::<&str>::new());
    }

    /// EC2 deletes such a group all the same.
    #[test]
    fn a_group_that_only_its_own_rules_name_is_deleted_also_where_rules_are_unmanaged() {
        let mut own = group("sg-own", &[("kubernetes.io/cluster/prod", "owned")]);
        own.ingress = vec![all_from("sg-own")];
        let owned_resources = OwnedResources {
            own_group: Some(own.clone()),
            referencing: vec![own],
            ..OwnedResources::default()
        };
        let is_unmanaged = Settings {
            disable_security_group_ingress: true,
            ..settings()
        };
        assert_eq!(actions(&owned_resources, &is_unmanaged), ["DeleteSecurityGroup"]);
    }

    #[test]
    fn a_load_balancer_of_another_cluster_stays() {
        let of = |tags: Option<Tags>| {
            let owned_resources = OwnedResources {
                load_balancer: true,
                tags,
                ..OwnedResources::default()
            };
            actions(&owned_resources, &settings())
        };
        let (own, other) = (names::cluster_tags("prod", false), names::cluster_tags("other", true));
        let both = own.clone().into_iter().chain(other.clone()).collect();
        let deleted = ["DeleteLoadBalancer"];
        assert_eq!(of(Some(own)), deleted);
        assert_eq!(of(Some(other)), [""; 0]);
        assert_eq!(of(Some(both)), deleted, "a user's tag names the other one");
        assert_eq!(of(Some(Tags::new())), deleted, "somebody took the tags off");
        assert_eq!(of(None), deleted, "as v1.37");
    }

    #[test]
    fn groups_that_are_shared_listed_configured_or_of_another_cluster_stay() {
        let key = "kubernetes.io/cluster/prod";
        let of = |own: SecurityGroup, listed: &[&str], settings: &Settings| {
            let listed = listed.iter().map(|id| (*id).to_owned()).collect();
            actions(
                &OwnedResources {
                    own_group: Some(own),
                    listed,
                    ..OwnedResources::default()
                },
                settings,
            )
            .len()
        };
        assert_eq!(of(group("sg", &[(key, "owned")]), &[], &settings()), 1);
        assert_eq!(
            of(group("sg", &[("team", "a")]), &[], &settings()),
            1,
            "cut off before it was tagged"
        );
        assert_eq!(of(group("sg", &[(key, "shared")]), &[], &settings()), 0);
        assert_eq!(
            of(
                group("sg", &[("kubernetes.io/cluster/other", "owned")]),
                &[],
                &settings()
            ),
            0
        );
        assert_eq!(of(group("sg", &[(key, "owned")]), &["sg"], &settings()), 0);
        let configured = Settings {
            elb_security_group: Some("sg".into()),
            ..settings()
        };
        assert_eq!(of(group("sg", &[(key, "owned")]), &[], &configured), 0);
    }
}
