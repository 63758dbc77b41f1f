//! Three Services need rules in the same two security groups of Nodes, exchange node ports, are refused and deleted, one
//! after the other or at the same time, while calls fail, EC2 answers from a state of up to 10 s ago, and the process is
//! replaced at any write: no write cuts a client or a health check, and in the end the groups have exactly the rules that the
//! Services need.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::fake::World;
use outrigger_aws::fake::traffic::contains;
use outrigger_aws::{Error, InstanceId};
use outrigger_leader::Permit;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::json;
use tokio::time::Duration;

use super::super::super::plan::rule_writes::STALE;
use super::super::super::settings::Settings;
use super::super::super::spec::names;
use super::super::super::spec::names::{CLIENT_RULE, HEALTH_RULE};
use super::super::super::spec::request::TRAFFIC_PORT;
use super::super::fixture::{FakeApi, Fixture};
use super::case::{PAUSE, populate};
use super::cluster::{CLUSTER_NAME, NodeState, base};
use super::run::{Verdict, run};
use super::specs::Kind;

const SERVICES: usize = 3;

/// The UIDs of the Services; the first is that of the fixture.
const UIDS: [&str; SERVICES] = [
    super::super::fixture::UID,
    "b2345678-1234-1234-1234-123456789abc",
    "c2345678-1234-1234-1234-123456789abc",
];

/// The time between two Services that are reconciled one after the other: EC2 does not list the writes of the first yet.
const LAG: Duration = Duration::from_secs(3);

const EVERYONE: &str = "0.0.0.0/0";

/// The port that all health checks but those of the node ports use.
const SHARED_CHECK: &str = "10256";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Valid,
    Refused,
    Deleted,
}

/// A Service from some moment on.
#[derive(Debug, Clone)]
struct Member {
    kind: Kind,
    state: State,
    node_ports: Vec<i32>,
    ranges: Vec<&'static str>,
    check: &'static str,
}

/// All Services and Nodes from some moment on.
#[derive(Debug, Clone)]
struct Stage {
    members: [Member; SERVICES],
    nodes: Vec<&'static str>,
    /// The order in which the Services are reconciled.
    order: Vec<usize>,
    /// A new process begins with this stage.
    is_restarted: bool,
    /// The process is replaced at one of the writes of this stage.
    dies_at: Option<Index>,
    /// The Services are reconciled at the same time.
    is_concurrent: bool,
    /// The order of calls at the same time, and the age of answers.
    seed: u64,
    /// The next calls of these actions fail.
    faults: Vec<&'static str>,
}

/// Calls that fail.
const FAULTS: [&str; 8] = [
    "AuthorizeSecurityGroupIngress",
    "RevokeSecurityGroupIngress",
    "UpdateSecurityGroupRuleDescriptionsIngress",
    "CreateListener",
    "ModifyListener",
    "DeleteListener",
    "DeleteLoadBalancer/v2",
    "DescribeSecurityGroups",
];

#[derive(Debug, Clone)]
struct Case {
    stages: Vec<Stage>,
    /// The role may not change descriptions of rules.
    is_denied: bool,
}

/// The parts of a stage that are drawn; the members follow from all earlier stages.
#[derive(Debug, Clone)]
struct Draw {
    node_ports: Vec<i32>,
    ranges: [Vec<&'static str>; SERVICES],
    numbers: [usize; SERVICES],
    states: [u8; SERVICES],
    nodes: Vec<&'static str>,
    order: Vec<usize>,
    is_restarted: bool,
    dies_at: Option<Index>,
    calls: (bool, u64, Vec<&'static str>),
}

fn draw() -> impl Strategy<Value = Draw> {
    let node_ports = Just((30080..30086).collect::<Vec<i32>>()).prop_shuffle();
    let range = || subsequence(&["10.0.0.0/8", "203.0.113.7/32"][..], 0..=2);
    let order = Just((0..SERVICES).collect::<Vec<_>>()).prop_shuffle();
    let nodes = prop_oneof![
        2 => Just(vec!["i-1", "i-3"]),
        1 => Just(vec!["i-1", "i-2"]),
        1 => Just(vec!["i-2", "i-3"]),
        1 => Just(vec!["i-3"]),
    ];
    let services = (
        [range(), range(), range()],
        [1..3_usize, 1..3, 1..3],
        any::<[u8; SERVICES]>(),
    );
    let moment = (nodes, order, any::<bool>(), prop::option::weighted(0.5, any::<Index>()));
    let calls = (
        any::<bool>(),
        any::<u64>(),
        prop::collection::vec(select(&FAULTS[..]), 0..3),
    );
    (node_ports, services, moment, calls).prop_map(
        |(node_ports, (ranges, numbers, states), (nodes, order, is_restarted, dies_at), calls)| Draw {
            node_ports,
            ranges,
            numbers,
            states,
            nodes,
            order,
            is_restarted,
            dies_at,
            calls,
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let kind = || prop_oneof![1 => Just(Kind::Classic), 3 => Just(Kind::Network)];
    let check = || select(&[SHARED_CHECK, TRAFFIC_PORT][..]);
    let kinds = [kind(), kind(), kind()];
    let checks = [check(), check(), check()];
    let draws = prop::collection::vec(draw(), 2..5);
    (kinds, checks, draws, prop::bool::weighted(0.3)).prop_map(|(kinds, checks, draws, is_denied)| {
        let mut stages: Vec<Stage> = Vec::new();
        for draw in draws {
            let stage = stage(draw, stages.last(), &kinds, &checks);
            stages.push(stage);
        }
        Case { stages, is_denied }
    })
}

/// A refused Service keeps its ports and clients: its load balancer serves the old ones.
fn stage(draw: Draw, before: Option<&Stage>, kinds: &[Kind; SERVICES], checks: &[&'static str; SERVICES]) -> Stage {
    let state = |at: usize| match before.map(|before| before.members[at].state) {
        None => State::Valid,
        Some(State::Deleted) => State::Deleted,
        Some(_) => match draw.states[at] {
            0..60 => State::Refused,
            60..90 => State::Deleted,
            _ => State::Valid,
        },
    };
    let states = [0, 1, 2].map(state);
    let kept: BTreeSet<i32> = (0..SERVICES)
        .filter(|at| states[*at] == State::Refused)
        .flat_map(|at| {
            before
                .map(|before| before.members[at].node_ports.clone())
                .unwrap_or_default()
        })
        .collect();
    let mut free = draw.node_ports.into_iter().filter(|port| !kept.contains(port));
    let members = [0, 1, 2].map(|at| match before {
        Some(before) if states[at] != State::Valid => Member {
            state: states[at],
            ..before.members[at].clone()
        },
        _ => Member {
            kind: kinds[at],
            state: State::Valid,
            node_ports: free.by_ref().take(draw.numbers[at]).collect(),
            ranges: draw.ranges[at].clone(),
            check: checks[at],
        },
    });
    Stage {
        members,
        nodes: draw.nodes,
        order: draw.order,
        is_restarted: draw.is_restarted,
        dies_at: draw.dies_at.filter(|_| before.is_some()),
        is_concurrent: draw.calls.0,
        seed: draw.calls.1,
        faults: draw.calls.2,
    }
}

impl Member {
    fn networks(&self) -> BTreeSet<String> {
        let listed = self.ranges.iter().map(|range| (*range).to_owned());
        match self.ranges.is_empty() {
            true => BTreeSet::from([EVERYONE.to_owned()]),
            false => listed.collect(),
        }
    }

    /// Changes the Service; finalizers and status stay.
    fn ask(&self, service: &mut Service) {
        let prefix = super::super::super::spec::annotations::PREFIX;
        let mut annotations = serde_json::Map::new();
        let mut annotate = |key: &str, value: &str| _ = annotations.insert(format!("{prefix}{key}"), json!(value));
        if self.kind == Kind::Network {
            annotate("type", "nlb");
            annotate("healthcheck-port", self.check);
        }
        match (self.state, self.kind) {
            (State::Refused, Kind::Network) => annotate("healthcheck-protocol", "smoke"),
            (State::Refused, Kind::Classic) => annotate("cross-zone-load-balancing-enabled", "on"),
            (State::Valid | State::Deleted, _) => {}
        }

        let ports = self.node_ports.iter().zip([80, 443]);
        let ports =
            ports.map(|(node_port, port)| json!({"name": port.to_string(), "port": port, "nodePort": node_port}));
        service.spec = serde_json::from_value(json!({
            "type": "LoadBalancer",
            "sessionAffinity": "None",
            "ports": ports.collect::<Vec<_>>(),
            "loadBalancerSourceRanges": self.ranges,
            "externalTrafficPolicy": "Cluster",
        }))
        .unwrap();
        service.metadata.annotations = serde_json::from_value(annotations.into()).unwrap();
        if self.state == State::Deleted && service.metadata.deletion_timestamp.is_none() {
            service.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
    }
}

fn load_balancer(at: usize) -> String {
    names::load_balancer(UIDS[at])
}

fn fixture(case: &Case) -> Fixture {
    let settings = Settings {
        cluster_id: "prod".into(),
        cluster_name: CLUSTER_NAME.into(),
        vpc_id: "vpc-1".into(),
        ..Settings::default()
    };
    let fixture = Fixture::with(base(), settings, Permit::always());
    if case.is_denied {
        fixture.aws.deny("ec2:UpdateSecurityGroupRuleDescriptionsIngress");
    }
    for (uid, name) in UIDS.iter().zip(["web", "beside", "behind"]).skip(1) {
        let mut service = fixture.service();
        (service.metadata.uid, service.metadata.name) = (Some((*uid).into()), Some(name.into()));
        fixture.api.neighbours.lock().unwrap().push(service);
    }
    fixture
}

// Health checks, which the oracle of all tests does not follow.

/// A load balancer, an instance, and the port and network of checks that reach it.
type Check = (String, InstanceId, i32, String);

/// The checks of the targets of listeners that are Nodes, as far as the Service still has the node port or is refused.
fn checks(world: &World, stage: &Stage) -> BTreeSet<Check> {
    let mut found = BTreeSet::new();
    for listener in world.network.listeners.values() {
        let balancer = world.network.load_balancers.get(&listener.load_balancer);
        let group = listener.settings.target_group_arn.as_ref();
        let group = group.and_then(|arn| world.network.target_groups.get(arn));
        let Some((balancer, group)) = balancer.zip(group) else {
            continue;
        };

        let (name, port) = (&balancer.described.name, group.described.port);
        let member = (0..SERVICES).find(|at| load_balancer(*at) == *name);
        let member = member.map(|at| &stage.members[at]);
        if member.is_none_or(|member| member.state == State::Deleted || !member.node_ports.contains(&port)) {
            continue;
        }

        let port = group.described.health_check.port.parse().unwrap_or(port);
        let nodes = group.targets.iter().map(|target| &target.id);
        let nodes = nodes.filter(|id| stage.nodes.contains(&id.as_str()));
        for (node, cidr) in nodes.flat_map(|node| attached(world, name).into_iter().map(move |cidr| (node, cidr))) {
            found.insert((name.clone(), node.clone(), port, cidr));
        }
    }
    found
}

/// The networks of a network load balancer's subnets.
fn attached(world: &World, load_balancer: &str) -> Vec<String> {
    let balancer = &world.network.named(load_balancer).unwrap().described;
    let subnets = world
        .subnets
        .iter()
        .filter(|subnet| balancer.subnets.contains(&subnet.id));
    subnets.filter_map(|subnet| subnet.cidr_block.clone()).collect()
}

fn is_let_in(world: &World, instance: &InstanceId, port: i32, cidr: &str) -> bool {
    let groups = world.instances.get(instance).map(|instance| &instance.security_groups);
    let groups = groups
        .into_iter()
        .flatten()
        .filter_map(|id| world.security_groups.get(id));
    let mut rules = groups.flat_map(|group| &group.ingress).filter(|rule| {
        let ports = rule.from_port.zip(rule.to_port);
        rule.protocol == "tcp" && ports.is_some_and(|(from, to)| (from..=to).contains(&port))
    });
    rules.any(|rule| rule.ranges.iter().any(|range| contains(&range.cidr, cidr)))
}

/// Fails at a write that cuts a check of a target that stays.
fn watch_checks(fixture: &Fixture, now: &Arc<Mutex<Stage>>) {
    let now = Arc::clone(now);
    fixture.aws.witness(move |before, after| {
        let stage = now.lock().unwrap();
        let (known, needed) = (checks(before, &stage), checks(after, &stage));
        let is_cut = |check: &&Check| {
            let (_, instance, port, cidr) = check;
            is_let_in(before, instance, *port, cidr) && !is_let_in(after, instance, *port, cidr)
        };
        let lost: Vec<&Check> = known.intersection(&needed).filter(is_cut).collect();
        assert!(lost.is_empty(), "a write cut health checks: {lost:#?}");
    });
}

// The rules in the end.

/// Group, protocol, ports, and network or group.
type Rule = (String, String, i32, i32, String);

const NODE_GROUPS: [&str; 2] = ["sg-node", "sg-node2"];

fn rules(world: &World) -> BTreeSet<Rule> {
    let mut found = BTreeSet::new();
    for id in NODE_GROUPS {
        for rule in &world.security_groups[id].ingress {
            let (from, to) = (rule.from_port.unwrap_or(-1), rule.to_port.unwrap_or(-1));
            let pairs = rule.groups.iter().filter_map(|pair| pair.group_id.as_ref());
            let sources = rule.ranges.iter().map(|range| &range.cidr).chain(pairs);
            found.extend(sources.map(|source| (id.to_owned(), rule.protocol.clone(), from, to, source.clone())));
        }
    }
    found
}

fn group_of(node: &str) -> &'static str {
    if node == "i-3" { NODE_GROUPS[1] } else { NODE_GROUPS[0] }
}

/// The rules that a member needs for these Nodes; `may`: also those that may stay of it.
fn needs(world: &World, at: usize, member: &Member, nodes: &[&str], may: bool) -> BTreeSet<Rule> {
    let name = load_balancer(at);
    let mut found = BTreeSet::new();
    for group in nodes.iter().map(|node| group_of(node)) {
        let mut add = |protocol: &str, from: i32, to: i32, source: &str| {
            found.insert((group.to_owned(), protocol.to_owned(), from, to, source.to_owned()));
        };
        if member.kind == Kind::Classic {
            let own = names::security_group(&name);
            let mut groups = world
                .security_groups
                .values()
                .filter(|group| group.vpc_id.as_deref() == Some("vpc-1"));
            let own = groups.find(|group| group.name.as_deref() == Some(&own));
            add("-1", -1, -1, own.map_or("", |own| &own.id));
            continue;
        }

        let networks = member.networks();
        for network in &networks {
            member
                .node_ports
                .iter()
                .for_each(|port| add("tcp", *port, *port, network));
            add("icmp", 3, 4, network);
        }
        let shared = member.check.parse().ok();
        let is_everyone = networks.contains(EVERYONE);
        // Existing rules for checks stay where clients need no fewer.
        if shared.is_some() || !is_everyone || may {
            for cidr in &attached(world, &name) {
                match shared {
                    Some(port) => add("tcp", port, port, cidr),
                    None => member.node_ports.iter().for_each(|port| add("tcp", *port, *port, cidr)),
                }
            }
        }
    }
    found
}

/// Without checks of their own, rules for those of earlier ports stay, as in v1.37.
fn earlier_checks(case: &Case, at: usize, world: &World, number: usize, nodes: &[&str]) -> BTreeSet<Rule> {
    let ports = case.stages[..=at]
        .iter()
        .flat_map(|stage| &stage.members[number].node_ports);
    let earlier = Member {
        node_ports: ports.copied().collect(),
        ..case.stages[at].members[number].clone()
    };
    let mut rules = needs(world, number, &earlier, nodes, true);
    rules.retain(|rule| rule.1 == "tcp" && rule.4.starts_with("10.1."));
    rules
}

/// A new process does not know which rules a refused load balancer uses: all at its ports stay.
fn at_ports_of(member: &Member, world: &World) -> BTreeSet<Rule> {
    let mut found = rules(world);
    let check = member.check.parse().ok();
    let is_used = |port: &i32| member.node_ports.contains(port) || check == Some(*port);
    found.retain(|(_, protocol, from, to, _)| protocol == "tcp" && from == to && is_used(from));
    let mtu = found
        .iter()
        .map(|(group, .., source)| (group.clone(), "icmp".to_owned(), 3, 4, source.clone()));
    let mtu: Vec<Rule> = mtu.collect();
    found.extend(mtu);
    found
}

/// Rules that still have the name of a deleted load balancer, since the role may not change it, and path MTU discovery for
/// their clients. A new process does not know that one.
fn left_to_the_sweep(stage: &Stage, world: &World) -> BTreeSet<Rule> {
    let is_deleted = |at: &usize| stage.members[*at].state == State::Deleted;
    let names: Vec<String> = (0..SERVICES).filter(is_deleted).map(load_balancer).collect();
    let mut left = BTreeSet::new();
    for id in NODE_GROUPS {
        for rule in &world.security_groups[id].ingress {
            let is_left = |text: &str| names.iter().any(|name| text.ends_with(&format!("={name}")));
            let ranges = rule.ranges.iter();
            for range in ranges.filter(|range| range.description.as_deref().is_some_and(is_left)) {
                let (from, to) = (rule.from_port.unwrap_or(-1), rule.to_port.unwrap_or(-1));
                left.insert((id.to_owned(), rule.protocol.clone(), from, to, range.cidr.clone()));
                left.insert((id.to_owned(), "icmp".to_owned(), 3, 4, range.cidr.clone()));
            }
        }
    }
    left
}

fn check_rules(case: &Case, at: usize, foreign: &BTreeSet<Rule>, world: &World) -> Verdict {
    let stage = &case.stages[at];
    let (mut must, mut may) = (BTreeSet::new(), foreign.clone());
    // Clients of a load balancer of others may come from everywhere.
    may.insert((NODE_GROUPS[0].into(), "icmp".into(), 3, 4, EVERYONE.into()));
    for (number, member) in stage.members.iter().enumerate() {
        match member.state {
            State::Deleted => {}
            State::Valid => {
                must.extend(needs(world, number, member, &stage.nodes, false));
                may.extend(earlier_checks(case, at, world, number, &stage.nodes));
                may.extend(needs(world, number, member, &stage.nodes, false));
            }
            State::Refused => {
                // Its last valid spec, with the Nodes since: a new Node's group gets no rule for a network load balancer.
                let first = (0..at)
                    .rev()
                    .take_while(|at| case.stages[*at + 1].members[number].state == State::Refused);
                let since: Vec<&Stage> = first.map(|at| &case.stages[at]).chain([stage]).collect();
                let nodes: Vec<&str> = since.iter().flat_map(|stage| stage.nodes.clone()).collect();
                let valid = since
                    .iter()
                    .find(|stage| stage.members[number].state == State::Valid)
                    .unwrap();
                let kept = stage.nodes.iter().copied().filter(|node| {
                    let groups: Vec<&str> = valid.nodes.iter().map(|node| group_of(node)).collect();
                    member.kind == Kind::Classic || groups.contains(&group_of(node))
                });
                must.extend(needs(world, number, member, &kept.collect::<Vec<_>>(), false));
                may.extend(earlier_checks(case, at, world, number, &nodes));
                may.extend(needs(world, number, member, &nodes, true));
                may.extend(at_ports_of(member, world));
            }
        }
    }

    let is_restarted = |stage: &Stage| stage.is_restarted || stage.dies_at.is_some();
    if case.is_denied && case.stages[..=at].iter().any(is_restarted) {
        may.extend(left_to_the_sweep(stage, world));
    }

    let found = rules(world);
    let missing: Vec<_> = must.union(foreign).filter(|rule| !found.contains(*rule)).collect();
    let extra: Vec<_> = found.difference(&may).collect();
    prop_assert!(
        missing.is_empty() && extra.is_empty(),
        "missing: {:#?}, extra: {:#?}",
        missing,
        extra
    );
    Ok(())
}

/// Each rule in our form has the name of a load balancer that exists, unless the role may not change it.
fn check_descriptions(case: &Case, at: usize, world: &World) -> Verdict {
    let stage = &case.stages[at];
    let live = |at: &usize| stage.members[*at].state != State::Deleted;
    let mut names: BTreeSet<String> = (0..SERVICES).filter(live).map(load_balancer).collect();
    names.insert("abeside".into());
    for id in NODE_GROUPS {
        let ranges = world.security_groups[id].ingress.iter().flat_map(|rule| &rule.ranges);
        for text in ranges.filter_map(|range| range.description.as_deref()) {
            let of = [CLIENT_RULE, HEALTH_RULE]
                .iter()
                .find_map(|kind| text.strip_prefix(kind)?.strip_prefix('='));
            prop_assert!(
                case.is_denied || of.is_none_or(|name| names.contains(name)),
                "{}: {}",
                id,
                text
            );
        }
    }
    Ok(())
}

// The run.

/// Reconciles each Service some times, in this order or at the same time. A refused Service fails.
async fn reconcile(fixture: &Fixture, stage: &Stage) {
    let one = async |at: &usize| match at {
        0 => fixture.sync().await.is_ok(),
        at => fixture.sync_neighbour(at - 1).await.is_ok(),
    };
    for _ in 0..5 {
        if stage.is_concurrent {
            futures::future::join_all(stage.order.iter().map(one)).await;
            tokio::time::advance(PAUSE).await;
            continue;
        }
        for at in &stage.order {
            one(at).await;
            tokio::time::advance(LAG).await;
        }
        tokio::time::advance(PAUSE).await;
    }
}

/// Replaces the process. The next one begins when it has the lease, after EC2 lists the last writes of this one.
async fn replace(fixture: &mut Fixture) {
    tokio::time::advance(STALE).await;
    fixture.restart();
}

fn ask(api: &FakeApi, stage: &Stage) {
    for (uid, member) in UIDS.iter().zip(&stage.members) {
        api.change(Some(&(*uid).to_owned()), |service| member.ask(service));
    }
}

async fn union_of_claims(case: &Case) -> Verdict {
    let mut fixture = fixture(case);
    let foreign = rules(&fixture.aws.world());
    let now = Arc::new(Mutex::new(case.stages[0].clone()));
    watch_checks(&fixture, &now);

    for (at, stage) in case.stages.iter().enumerate() {
        if stage.is_restarted {
            replace(&mut fixture).await;
        }
        fixture.aws.lag(&NODE_GROUPS, stage.seed);
        now.lock().unwrap().clone_from(stage);
        ask(&fixture.api, stage);
        let nodes = stage.nodes.iter().map(|id| NodeState {
            id,
            ready: true,
            pool: false,
            excluded: false,
        });
        populate(&fixture, &nodes.collect::<Vec<_>>());
        if let Some(write) = &stage.dies_at {
            fixture.aws.die_at_write(1 + write.index(24));
            reconcile(&fixture, stage).await;
            replace(&mut fixture).await;
        }
        for action in &stage.faults {
            fixture
                .aws
                .fail_next(action, Error::answered(action, "InternalError", "busy"));
        }
        reconcile(&fixture, stage).await;

        let world = fixture.aws.world();
        let checked = check_rules(case, at, &foreign, &world).and_then(|()| check_descriptions(case, at, &world));
        checked.map_err(|error| TestCaseError::fail(format!("stage {at}: {error}: {:#?}", fixture.aws.writes())))?;
    }

    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn nodes_have_the_union_of_the_rules_that_services_need(case in cases()) {
        run(union_of_claims(&case))?;
    }
}
