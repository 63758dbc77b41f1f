//! Three Services need rules in the same two security groups of Nodes, exchange node ports, are refused and deleted, one
//! after the other or at the same time, while calls fail, EC2 answers from a state of up to 10 s ago, and the process is
//! replaced at any write: no write cuts a client or a health check, and in the end the groups have exactly the rules that
//! they get in an account where the Services were always as they are then.

use std::collections::{BTreeMap, BTreeSet};
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
use super::super::super::spec::names::{self, CLIENT_RULE, HEALTH_RULE};
use super::super::super::spec::permissions::{self, by_rule, description};
use super::super::super::spec::request::TRAFFIC_PORT;
use super::super::fixture::Fixture;
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

/// The port that all health checks but those of the node ports use.
const SHARED_CHECK: &str = "10256";

const NODE_GROUPS: [&str; 2] = ["sg-node", "sg-node2"];

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
    /// One or two of those that are free.
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

/// The Nodes of a stage: mostly one in each group.
const NODES: [&[&str]; 5] = [
    &["i-1", "i-3"],
    &["i-1", "i-3"],
    &["i-1", "i-2"],
    &["i-2", "i-3"],
    &["i-3"],
];

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

fn member() -> impl Strategy<Value = Member> {
    let state = prop_oneof![6 => Just(State::Valid), 2 => Just(State::Refused), 1 => Just(State::Deleted)];
    let kind = prop_oneof![1 => Just(Kind::Classic), 3 => Just(Kind::Network)];
    let ranges = subsequence(&["10.0.0.0/8", "203.0.113.7/32"][..], 0..=2);
    let check = select(&[SHARED_CHECK, TRAFFIC_PORT][..]);
    (kind, state, 1..=2_usize, ranges, check).prop_map(|(kind, state, ports, ranges, check)| Member {
        kind,
        state,
        node_ports: vec![0; ports],
        ranges,
        check,
    })
}

/// A stage, and the order in which node ports are given to its Services.
fn stage() -> impl Strategy<Value = (Stage, Vec<i32>)> {
    let node_ports = Just((30080..30086).collect::<Vec<i32>>()).prop_shuffle();
    let order = Just((0..SERVICES).collect::<Vec<_>>()).prop_shuffle();
    let nodes = select(&NODES[..]);
    let process = (any::<bool>(), prop::option::weighted(0.5, any::<Index>()));
    let faults = prop::collection::vec(select(&FAULTS[..]), 0..3);
    let calls = (any::<bool>(), any::<u64>(), faults);
    let parts = ([member(), member(), member()], node_ports, nodes, order, process, calls);
    parts.prop_map(|(members, node_ports, nodes, order, (is_restarted, dies_at), calls)| {
        let stage = Stage {
            members,
            nodes: nodes.to_vec(),
            order,
            is_restarted,
            dies_at,
            is_concurrent: calls.0,
            seed: calls.1,
            faults: calls.2,
        };
        (stage, node_ports)
    })
}

fn cases() -> impl Strategy<Value = Case> {
    (prop::collection::vec(stage(), 2..5), prop::bool::weighted(0.3)).prop_map(|(drawn, is_denied)| {
        let mut stages: Vec<Stage> = Vec::new();
        for (mut stage, node_ports) in drawn {
            stage.follow(stages.last(), node_ports);
            stages.push(stage);
        }

        let mut last = stages[stages.len() - 1].clone();
        last.members.iter_mut().for_each(Member::mend);
        stages.push(Stage {
            is_restarted: false,
            dies_at: None,
            faults: Vec::new(),
            ..last
        });
        Case { stages, is_denied }
    })
}

impl Stage {
    /// A refused Service keeps its ports and clients: its load balancer serves the old ones.
    fn follow(&mut self, before: Option<&Self>, mut free: Vec<i32>) {
        for (at, member) in self.members.iter_mut().enumerate() {
            match before.map(|before| &before.members[at]) {
                None => member.state = State::Valid,
                Some(before) => member.follow(before),
            }
            if member.state == State::Refused {
                free.retain(|port| !member.node_ports.contains(port));
            }
        }
        for member in self.members.iter_mut().filter(|member| member.state == State::Valid) {
            member.node_ports = free.drain(..member.node_ports.len()).collect();
        }
    }
}

impl Member {
    fn follow(&mut self, before: &Self) {
        self.kind = before.kind;
        let state = match before.state {
            State::Deleted => State::Deleted,
            _ => self.state,
        };
        if state != State::Valid {
            *self = Self {
                state,
                ..before.clone()
            };
        }
    }

    fn mend(&mut self) {
        if self.state == State::Refused {
            self.state = State::Valid;
        }
    }

    /// Whether existing rules for health checks stay, as in v1.37: everybody may come in at the checked ports.
    fn keeps_checks(&self) -> bool {
        self.check == TRAFFIC_PORT && self.ranges.is_empty()
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
        let attached = |cidr: &&outrigger_aws::ec2::Subnet| balancer.described.subnets.contains(&cidr.id);
        let subnets = world.subnets.iter().filter(attached);
        let cidrs: Vec<String> = subnets.filter_map(|subnet| subnet.cidr_block.clone()).collect();
        for node in nodes {
            found.extend(
                cidrs
                    .iter()
                    .map(|cidr| (name.clone(), node.clone(), port, cidr.clone())),
            );
        }
    }
    found
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

/// The rules of the Nodes' groups, with their descriptions. The groups of load balancers have names instead of IDs.
fn rules(world: &World) -> BTreeMap<(&'static str, permissions::Rule), String> {
    let mut found = BTreeMap::new();
    for id in NODE_GROUPS {
        for (mut key, rule) in by_rule(&world.security_groups[id].ingress) {
            let source = world.security_groups.get(&key.3);
            key.3 = source.and_then(|group| group.name.clone()).unwrap_or(key.3);
            found.insert((id, key), description(&rule).to_owned());
        }
    }
    found
}

/// The account of a process that has only known the Services and Nodes of this stage.
async fn untouched(case: &Case, stage: &Stage) -> World {
    let fixture = fixture(case);
    change(&fixture, stage);
    reconcile(&fixture, stage).await;
    fixture.aws.world()
}

/// Checks the rules, and that each in our form has the name of a load balancer that exists, unless the role may not change
/// it. Rules of a deleted one that still have its name are left to the sweep by a process that does not know it.
async fn check_rules(case: &Case, at: usize, world: &World) -> Verdict {
    let stage = &case.stages[at];
    let (found, expected) = (rules(world), rules(&untouched(case, stage).await));
    let is_restarted = |stage: &Stage| stage.is_restarted || stage.dies_at.is_some();
    let knows_all = !case.stages[..=at].iter().any(is_restarted);
    let owner = |text: &str| (0..SERVICES).find(|at| text.ends_with(&format!("={}", load_balancer(*at))));
    let may_stay = |text: &str| {
        owner(text).is_some_and(|at| match stage.members[at].state {
            State::Deleted => case.is_denied && !knows_all,
            _ => text.starts_with(HEALTH_RULE) && stage.members[at].keeps_checks(),
        })
    };
    let left: Vec<_> = found
        .iter()
        .filter(|(_, text)| may_stay(text))
        .map(|(key, _)| key)
        .collect();
    // Also clients of a load balancer that this cluster does not know.
    let is_mtu_of_clients = |(group, key): &(&str, permissions::Rule)| {
        let is_beside = |other: &&(&str, permissions::Rule)| other.0 == *group && other.1.3 == key.3;
        let mut named = found
            .iter()
            .filter(|(_, text)| text.starts_with(CLIENT_RULE))
            .map(|(key, _)| key);
        key.0 == "icmp" && named.any(|other| is_beside(&other))
    };

    let missing: Vec<_> = expected.keys().filter(|key| !found.contains_key(*key)).collect();
    let mut extra: Vec<_> = found.keys().filter(|key| !expected.contains_key(*key)).collect();
    extra.retain(|key| !left.contains(key) && !is_mtu_of_clients(key));
    let is_gone = |text: &&String| owner(text).is_some_and(|at| stage.members[at].state == State::Deleted);
    let of_gone: Vec<_> = found.values().filter(is_gone).filter(|_| !case.is_denied).collect();
    prop_assert!(
        missing.is_empty() && extra.is_empty() && of_gone.is_empty(),
        "missing: {:#?}, extra: {:#?}, of deleted load balancers: {:#?}",
        missing,
        extra,
        of_gone
    );
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

/// Changes the Services and Nodes.
fn change(fixture: &Fixture, stage: &Stage) {
    for (uid, member) in UIDS.iter().zip(&stage.members) {
        fixture
            .api
            .change(Some(&(*uid).to_owned()), |service| member.ask(service));
    }
    let nodes = stage.nodes.iter().map(|id| NodeState {
        id,
        ready: true,
        pool: false,
        excluded: false,
    });
    populate(fixture, &nodes.collect::<Vec<_>>());
}

async fn union_of_claims(case: &Case) -> Verdict {
    let mut fixture = fixture(case);
    let now = Arc::new(Mutex::new(case.stages[0].clone()));
    watch_checks(&fixture, &now);

    for (at, stage) in case.stages.iter().enumerate() {
        if stage.is_restarted {
            replace(&mut fixture).await;
        }
        fixture.aws.lag(&NODE_GROUPS, stage.seed);
        now.lock().unwrap().clone_from(stage);
        change(&fixture, stage);
        if let Some(write) = &stage.dies_at {
            fixture.aws.die_at_write(1 + write.index(24));
            reconcile(&fixture, stage).await;
            replace(&mut fixture).await;
        }
        fixture.aws.forget_faults();
        for action in &stage.faults {
            let error = Error::answered(action, "InternalError", "busy");
            fixture.aws.fail_next(action, error);
        }
        reconcile(&fixture, stage).await;

        // The needs of a refused Service are those of its last valid spec and of its load balancer.
        if stage.members.iter().all(|member| member.state != State::Refused) {
            let checked = check_rules(case, at, &fixture.aws.world()).await;
            checked
                .map_err(|error| TestCaseError::fail(format!("stage {at}: {error}: {:#?}", fixture.aws.writes())))?;
        }
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
