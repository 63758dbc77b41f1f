//! Any error of AWS at any call, and answers with holes: nothing is removed that would otherwise stay, nothing
//! panics, and the next look goes on.

use std::collections::BTreeSet;

use outrigger_aws::Error as AwsError;
use outrigger_aws::fake::World;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::fixture::{Fixture, LB};
use super::super::tags_denied::deny;
use super::case::{Case, PAUSE, cases, give_up};
use super::compare::{Ours, by_hand, others, same};
use super::deletion::{Deletion, deletions};
use super::network_edits::{balancer, target_groups};
use super::run::{End, Verdict, run, to_the_end};
use super::specs::Kind;

const ACTIONS: &[&str] = &[
    "ApplySecurityGroupsToLoadBalancer",
    "AddTags",
    "AttachLoadBalancerToSubnets",
    "AuthorizeSecurityGroupIngress",
    "ConfigureHealthCheck",
    "CreateLoadBalancer",
    "CreateLoadBalancerListeners",
    "CreateLoadBalancerPolicy",
    "CreateSecurityGroup",
    "CreateTags",
    "DeleteLoadBalancer",
    "DeleteLoadBalancerListeners",
    "DeleteSecurityGroup",
    "DeregisterInstancesFromLoadBalancer",
    "DescribeAvailabilityZones",
    "DescribeInstances",
    "DescribeLoadBalancerAttributes",
    "DescribeLoadBalancers",
    "DescribeRouteTables",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeTags",
    "DetachLoadBalancerFromSubnets",
    "ModifyLoadBalancerAttributes",
    "RegisterInstancesWithLoadBalancer",
    "RevokeSecurityGroupIngress",
    "SetLoadBalancerListenerSSLCertificate",
    "SetLoadBalancerPoliciesForBackendServer",
    "SetLoadBalancerPoliciesOfListener",
];

const NETWORK_ACTIONS: &[&str] = &[
    "AuthorizeSecurityGroupIngress",
    "CreateListener",
    "CreateLoadBalancer/v2",
    "CreateSecurityGroup",
    "CreateTags",
    "CreateTargetGroup",
    "DeleteListener",
    "DeleteLoadBalancer/v2",
    "DeleteSecurityGroup",
    "DeleteTargetGroup",
    "DeregisterTargets",
    "DescribeInstances",
    "DescribeListeners",
    "DescribeLoadBalancerAttributes/v2",
    "DescribeLoadBalancers",
    "DescribeLoadBalancers/v2",
    "DescribeRouteTables",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeTags/v2",
    "DescribeTargetGroupAttributes",
    "DescribeTargetGroups",
    "DescribeTargetHealth",
    "ModifyListener",
    "ModifyLoadBalancerAttributes/v2",
    "ModifyTargetGroup",
    "ModifyTargetGroupAttributes",
    "RegisterTargets",
    "RevokeSecurityGroupIngress",
    "SetSecurityGroups",
];

/// EC2's code where a security group has no room for more rules.
const RULES_QUOTA: &str = "RulesPerSecurityGroupLimitExceeded";

const CODES: &[&str] = &[
    "RequestLimitExceeded",
    "Throttling",
    "AccessDenied",
    "InternalFailure",
    "ServiceUnavailable",
    "ValidationError",
    "InvalidConfigurationRequest",
    "OperationNotPermitted",
    "DependencyViolation",
    "DuplicateListener",
    "InvalidPermission.Duplicate",
    "InvalidPermission.NotFound",
    "InvalidInstance",
    "InvalidTarget",
    "LoadBalancerNotFound",
    "TooManyLoadBalancers",
    RULES_QUOTA,
    "",
];

/// The call of `action` after `skip` others fails with `code`; an empty code: there is no answer.
#[derive(Debug, Clone)]
pub struct Fault {
    action: &'static str,
    code: &'static str,
    skip: usize,
}

/// AWS never gives these answers: that the work is done already at the first of these actions, and another resource's
/// quota at the others.
fn lies(fault: &Fault) -> bool {
    let gone = fault.code.contains("NotFound");
    let there = fault.code.contains("Duplicate");
    let absent = fault.action.starts_with("Delete") || fault.action.starts_with("Describe");
    let of_rules = fault.action == "AuthorizeSecurityGroupIngress";
    let quota = match fault.code {
        "TooManyLoadBalancers" => of_rules,
        RULES_QUOTA => !of_rules,
        _ => false,
    };
    (gone && absent) || (there && fault.action == "CreateLoadBalancerPolicy") || quota
}

fn faults(kind: Kind) -> impl Strategy<Value = Vec<Fault>> {
    let actions = match kind {
        Kind::Classic => ACTIONS,
        Kind::Network => NETWORK_ACTIONS,
    };
    let fault = (select(actions), select(CODES), 0..3_usize)
        .prop_map(|(action, code, skip)| Fault { action, code, skip })
        .prop_filter("AWS does not lie", |fault| !lies(fault));
    prop::collection::vec(fault, 1..=4).prop_filter("AWS does not lie twice", |faults| denied(faults) < 2)
}

/// How often EC2 answers that one of several rules does not exist. Then each of them is revoked alone, and the answer
/// about a single rule counts.
fn denied(faults: &[Fault]) -> usize {
    let denies = |fault: &&Fault| fault.action == "RevokeSecurityGroupIngress" && fault.code.contains("NotFound");
    faults.iter().filter(denies).count()
}

fn inject(fixture: &Fixture, faults: &[Fault]) {
    for fault in faults {
        for _ in 0..fault.skip {
            fixture.aws.plan_next(fault.action, None);
        }
        let error = match fault.code {
            "" => AwsError::unanswered(fault.action, "the connection was closed"),
            code => AwsError::answered(fault.action, code, "injected"),
        };
        fixture.aws.fail_next(fault.action, error);
    }
}

/// The removals of the writes: action, resource, and each removed item.
fn removals(writes: &[String]) -> BTreeSet<(String, String, String)> {
    let mut removals = BTreeSet::new();
    for write in writes {
        let mut words = write.split([' ', ',']);
        let (action, from) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !["De", "Revoke"].iter().any(|prefix| action.starts_with(prefix)) {
            continue;
        }
        removals.insert((action.to_owned(), from.to_owned(), String::new()));
        removals.extend(words.map(|item| (action.to_owned(), from.to_owned(), item.to_owned())));
    }
    removals
}

/// The rules that the writes make: the security group, and each rule.
fn opened(writes: &[String]) -> BTreeSet<(String, String)> {
    let mut opened = BTreeSet::new();
    for write in writes {
        let mut words = write.split([' ', ',']);
        if let (Some("AuthorizeSecurityGroupIngress"), Some(group)) = (words.next(), words.next()) {
            opened.extend(words.map(|rule| (group.to_owned(), rule.to_owned())));
        }
    }
    opened
}

async fn gets_over(staged: [Fixture; 2], faults: &[Fault]) -> Verdict {
    let [calm, stormy] = staged;
    let expected = to_the_end(&calm).await?;
    // Orphaned resources are known by their tags only, as in [`needs_no_tags`].
    let denies_tags = |fault: &Fault| fault.action == "DescribeTags/v2" && fault.code == "AccessDenied";
    let leaves_some = faults.iter().any(denies_tags) && !unused(&stormy.aws.world()).is_empty();
    inject(&stormy, faults);
    let mut end = End::Settled;
    for _ in 0..=faults.len() {
        end = to_the_end(&stormy).await?;
    }
    let (calm_writes, writes) = (calm.aws.writes(), stormy.aws.writes());
    let place = format!("undisturbed {calm_writes:#?}, with faults {writes:#?}");
    if leaves_some {
        return ends_without_their_targets(&end, &expected, &place);
    }
    let (before, mut removed) = (removals(&calm_writes), removals(&writes));
    // While the Service fails, targets follow the Nodes also in groups that are about to go or to be left, and rules
    // are made for them that go again; of a security group that is about to go rules may be taken first.
    let goes = |action: &str, from: &String| before.contains(&(action.to_owned(), from.clone(), String::new()));
    let opened = opened(&writes);
    let denies_certificates =
        |fault: &Fault| fault.action == "SetLoadBalancerListenerSSLCertificate" && fault.code == "AccessDenied";
    removed.retain(|(action, from, rule)| match action.as_str() {
        // Without the permission to change its certificate a listener is created again.
        "DeleteLoadBalancerListeners" => !faults.iter().any(denies_certificates),
        "DeregisterTargets" => !goes("DeleteTargetGroup", from) && !by_hand(from),
        "RevokeSecurityGroupIngress" => {
            let own = |(group, added): &(String, String)| group == from && (rule.is_empty() || added == rule);
            !goes("DeleteSecurityGroup", from) && !opened.iter().any(own)
        }
        _ => true,
    });
    // Where rules are over their quota, those that nothing needs are closed before others are opened. If it is
    // something else that stops the Service, an undisturbed run does not come to the closing.
    let room = expected != End::Settled && faults.iter().any(|fault| fault.code == RULES_QUOTA);
    removed.retain(|(action, ..)| !room || action != "RevokeSecurityGroupIngress");
    prop_assert!(
        removed.is_subset(&before),
        "{:?} were removed; {}",
        removed.difference(&before),
        place
    );
    prop_assert_eq!(&end, &expected, "{}", &place);
    if expected != End::Settled {
        // How far a Service comes that is refused for good depends on when it is looked at.
        return Ok(());
    }
    same(&stormy.aws.world(), &calm.aws.world(), &place)
}

/// Target groups that are tagged as the Service's, and that its load balancer does not use.
fn unused(world: &World) -> BTreeSet<String> {
    let used: BTreeSet<String> = balancer(world)
        .map(|arn| world.network.listeners_of(&arn))
        .into_iter()
        .flat_map(|listeners| listeners.into_values())
        .filter_map(|listener| listener.settings.target_group_arn.clone())
        .collect();
    target_groups(world).difference(&used).cloned().collect()
}

/// Without what depends on tags: those of a classic load balancer.
fn without_tags(mut world: World) -> World {
    if let Some(lb) = world.load_balancers.get_mut(LB) {
        lb.tags.clear();
    }
    world
}

/// Without the right to read tags all is done that does not depend on them. Target groups that an earlier process has
/// left over are known by their tags only, and so are the targets that only they have.
async fn needs_no_tags(staged: [Fixture; 2]) -> Verdict {
    let [allowed, denied] = staged;
    deny(&denied);
    let has_leftovers = !unused(&denied.aws.world()).is_empty();
    let (expected, end) = (to_the_end(&allowed).await?, to_the_end(&denied).await?);
    let (writes, allowed_writes) = (denied.aws.writes(), allowed.aws.writes());
    let place = format!("allowed {allowed_writes:#?}, denied {writes:#?}");
    if has_leftovers {
        return ends_without_their_targets(&end, &expected, &place);
    }
    prop_assert_eq!(&end, &expected, "{}", &place);
    let (after, ideal) = (without_tags(denied.aws.world()), without_tags(allowed.aws.world()));
    same(&after, &ideal, &place)
}

/// The end where orphaned target groups are unknown: a target that only they have cannot stop the Service.
fn ends_without_their_targets(end: &End, expected: &End, place: &str) -> Verdict {
    prop_assert!(end == expected || *end == End::Settled, "{:?}; {}", end, place);
    Ok(())
}

/// A field that an answer of AWS lacks.
#[derive(Debug, Clone)]
enum Hole {
    SubnetZone(Index),
    SubnetVpc(Index),
    GroupName(Index),
    GroupVpc(Index),
    Ports(Index),
    Source(Index),
    DnsName,
    Described,
    Attributes,
    Instances(Index),
    Tables,
    ZoneTypes,
    Network(Index),
}

fn holes() -> impl Strategy<Value = Vec<Hole>> {
    let at = any::<Index>;
    let hole = prop_oneof![
        at().prop_map(Hole::SubnetZone),
        at().prop_map(Hole::SubnetVpc),
        at().prop_map(Hole::GroupName),
        at().prop_map(Hole::GroupVpc),
        at().prop_map(Hole::Ports),
        at().prop_map(Hole::Source),
        at().prop_map(Hole::Instances),
        Just(Hole::DnsName),
        Just(Hole::Described),
        Just(Hole::Attributes),
        Just(Hole::Tables),
        Just(Hole::ZoneTypes),
        at().prop_map(Hole::Network),
    ];
    prop::collection::vec(hole, 1..=5)
}

fn pick<'a, T: 'a>(mut from: impl ExactSizeIterator<Item = &'a mut T>, at: &Index, change: impl FnOnce(&mut T)) {
    let length = from.len();
    if length > 0
        && let Some(one) = from.nth(at.index(length))
    {
        change(one);
    }
}

impl Hole {
    fn dig(&self, world: &mut World) {
        match self {
            Self::SubnetZone(at) => pick(world.subnets.iter_mut(), at, |subnet| subnet.availability_zone = None),
            Self::SubnetVpc(at) => pick(world.subnets.iter_mut(), at, |subnet| subnet.vpc_id = None),
            Self::GroupName(at) => pick(world.security_groups.values_mut(), at, |group| group.name = None),
            Self::GroupVpc(at) => pick(world.security_groups.values_mut(), at, |group| group.vpc_id = None),
            Self::Ports(at) => pick(world.security_groups.values_mut(), at, |group| {
                group
                    .ingress
                    .iter_mut()
                    .for_each(|rule| (rule.from_port, rule.to_port) = (None, None));
            }),
            Self::Source(at) => pick(world.security_groups.values_mut(), at, |group| {
                group
                    .ingress
                    .iter_mut()
                    .flat_map(|rule| &mut rule.groups)
                    .for_each(|pair| pair.group_id = None);
            }),
            Self::Instances(at) => pick(world.instances.values_mut(), at, |instance| {
                *instance = outrigger_aws::Instance::new(instance.id.clone());
            }),
            Self::Tables => world.route_tables.values_mut().for_each(Vec::clear),
            Self::ZoneTypes => world.zones.iter_mut().for_each(|zone| zone.zone_type = None),
            Self::Network(at) => dig_network(world, at.index(6)),
            Self::DnsName | Self::Described | Self::Attributes => {
                let Some(lb) = world.load_balancers.get_mut(LB) else {
                    return;
                };
                match self {
                    Self::DnsName => lb.described.dns_name.clear(),
                    Self::Attributes => lb.attributes = outrigger_aws::elb::Attributes::default(),
                    _ => {
                        let name = std::mem::take(&mut lb.described.name);
                        lb.described = outrigger_aws::elb::LoadBalancer {
                            name,
                            ..Default::default()
                        };
                    }
                }
            }
        }
    }
}

/// Fields of a network load balancer, its listeners and target groups.
fn dig_network(world: &mut World, which: usize) {
    let Some(arn) = balancer(world) else { return };
    let groups = target_groups(world);
    let network = &mut world.network;
    if let Some(lb) = network.load_balancers.get_mut(&arn) {
        match which {
            0 => lb.described.dns_name.clear(),
            1 => (lb.described.state, lb.described.vpc_id, lb.described.scheme) = (None, None, None),
            2 => lb.described.subnets.clear(),
            3 => lb.attributes.clear(),
            _ => {}
        }
    }
    for listener in network
        .listeners
        .values_mut()
        .filter(|listener| listener.load_balancer == arn)
    {
        if which == 4 {
            (listener.settings.target_group_arn, listener.settings.certificate) = (None, None);
        }
    }
    for (_, group) in network
        .target_groups
        .iter_mut()
        .filter(|(arn, _)| groups.contains(*arn))
    {
        if which == 5 {
            (group.described.target_type, group.described.vpc_id) = (None, None);
            group.described.health_check = outrigger_aws::elbv2::TargetHealthCheck::default();
            group.attributes.clear();
        }
    }
}

async fn stands(case: &Case, holes: &[Hole]) -> Verdict {
    let fixture = case.stage().await;
    fixture
        .aws
        .change(|world| holes.iter().for_each(|hole| hole.dig(world)));
    let before = fixture.aws.world();
    let mut wanted = before.clone();
    for look in 0..6 {
        // It may fail or not; it must not panic, and must leave others alone.
        let _ = fixture.sync().await;
        tokio::time::advance(PAUSE).await;
        if look == 2 {
            wanted = fixture.aws.world();
            give_up(&fixture, false);
        }
    }
    let after = fixture.aws.world();
    // A group that lacks the cluster's tag gets it while the Service wants a load balancer.
    let mut ours = Ours::of(case, &[&before, &wanted, &after]);
    let made = after
        .security_groups
        .keys()
        .filter(|id| !before.security_groups.contains_key(*id));
    ours.groups.extend(made.cloned());
    ours.sources.extend(ours.groups.clone());
    same(
        &others(after, &ours),
        &others(before, &ours),
        "something of others was touched",
    )
}

async fn of_case(case: &Case, faults: &[Fault]) -> Verdict {
    Box::pin(gets_over([case.stage().await, case.stage().await], faults)).await
}

async fn of_deletion(deletion: &Deletion, faults: &[Fault]) -> Verdict {
    Box::pin(gets_over([deletion.stage().await?, deletion.stage().await?], faults)).await
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn classic_load_balancers_need_no_tags(case in cases(Kind::Classic)) {
        run(async { Box::pin(needs_no_tags([case.stage().await, case.stage().await])).await })?;
    }

    #[test]
    fn network_load_balancers_need_no_tags(case in cases(Kind::Network)) {
        run(async { Box::pin(needs_no_tags([case.stage().await, case.stage().await])).await })?;
    }

    #[test]
    fn deletions_of_network_load_balancers_need_no_tags(deletion in deletions(Kind::Network)) {
        run(async { Box::pin(needs_no_tags([deletion.stage().await?, deletion.stage().await?])).await })?;
    }

    #[test]
    fn classic_load_balancers_get_over_failed_calls(case in cases(Kind::Classic), faults in faults(Kind::Classic)) {
        run(of_case(&case, &faults))?;
    }

    #[test]
    fn network_load_balancers_get_over_failed_calls(case in cases(Kind::Network), faults in faults(Kind::Network)) {
        run(of_case(&case, &faults))?;
    }

    #[test]
    fn deletions_of_network_load_balancers_get_over_failed_calls(
        deletion in deletions(Kind::Network),
        faults in faults(Kind::Network),
    ) {
        run(of_deletion(&deletion, &faults))?;
    }

    #[test]
    fn answers_with_holes_about_network_load_balancers_break_nothing(case in cases(Kind::Network), holes in holes()) {
        run(stands(&case, &holes))?;
    }

    #[test]
    fn deletions_of_classic_load_balancers_get_over_failed_calls(
        deletion in deletions(Kind::Classic),
        faults in faults(Kind::Classic),
    ) {
        run(of_deletion(&deletion, &faults))?;
    }

    #[test]
    fn answers_with_holes_about_classic_load_balancers_break_nothing(case in cases(Kind::Classic), holes in holes()) {
        run(stands(&case, &holes))?;
    }
}
