//! Each permission of the manual is removed in turn: an Event names the action, and work that does not need it is done.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::runtime::watcher::Event;
use serde_json::json;

use super::super::settings::Settings;
use super::fixture::{Fixture, LB, world};
use super::network;
use outrigger_aws::ec2::{AvailabilityZone, SecurityGroup, Subnet};
use outrigger_leader::Permit;

/// The manual's table of permissions.
const MANUAL: &str = include_str!("../../../../../docs/aws-permissions.md");
/// Rows of the table that are about Services.
const ROWS: [&str; 4] = [
    "| service |",
    "| service, both kinds |",
    "| service, classic |",
    "| service, network |",
];

/// The permissions that Services need, from the manual.
fn permissions() -> Vec<String> {
    let rows = MANUAL
        .lines()
        .filter(|line| ROWS.iter().any(|row| line.starts_with(row)));
    let actions = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let mut actions: Vec<String> = actions.map(str::to_owned).collect();
    actions.push("ec2:DescribeInstances".to_owned());
    actions.push("ec2:DescribeAvailabilityZones".to_owned());
    actions.sort();
    actions
}

fn bare(action: &str) -> &str {
    action.split_once(':').map_or(action, |(_, bare)| bare)
}

/// The kind of load balancer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Classic,
    Network,
}

/// Two more groups, and a third zone with a subnet.
fn fixture(kind: Kind) -> Fixture {
    let mut world = world();
    let tags = world.security_groups["sg-node"].tags.clone();
    let group = SecurityGroup {
        id: "sg-extra".into(),
        name: Some("extra".into()),
        ..world.security_groups["sg-node"].clone()
    };
    world.security_groups.insert(group.id.clone(), group);
    world.zones.push(AvailabilityZone {
        name: "eu-central-1c".into(),
        id: None,
        zone_type: Some("availability-zone".into()),
    });
    world.subnets.push(Subnet {
        id: "subnet-c".into(),
        vpc_id: Some("vpc-1".into()),
        availability_zone: Some("eu-central-1c".into()),
        cidr_block: None,
        tags,
    });
    let settings = Settings {
        cluster_id: "prod".into(),
        cluster_name: "prod".into(),
        vpc_id: "vpc-1".into(),
        resync_period: Some(Duration::from_secs(1800)),
        nlb_security_groups_managed: true,
        ..Settings::default()
    };
    let fixture = Fixture::with(world, settings, Permit::always());
    match kind {
        Kind::Classic => {
            for (annotation, value) in [
                ("proxy-protocol", "*"),
                ("ssl-cert", "arn:cert"),
                ("ssl-ports", "443"),
                ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
                ("subnets", "subnet-a,subnet-b"),
            ] {
                fixture.annotate(annotation, value);
            }
        }
        Kind::Network => fixture.annotate("type", "nlb"),
    }
    fixture
}

/// Several passes, whatever they come to.
async fn passes(fixture: &Fixture) {
    for _ in 0..4 {
        let _ = fixture.sync().await; // what was denied is told by Events
        tokio::time::advance(Duration::from_secs(60)).await;
    }
}

/// A life that needs every permission.
async fn life(fixture: &Fixture, kind: Kind) {
    passes(fixture).await;
    let changes: &[(&str, &str)] = match kind {
        Kind::Classic => &[
            ("connection-idle-timeout", "120"),
            ("additional-resource-tags", "a=b"),
            ("healthcheck-interval", "30"),
            ("extra-security-groups", "sg-extra"),
            ("subnets", "subnet-b,subnet-c"),
        ],
        Kind::Network => &[
            ("cross-zone-load-balancing-enabled", "true"),
            ("healthcheck-healthy-threshold", "5"),
            ("target-group-attributes", "preserve_client_ip.enabled=false"),
            ("ssl-cert", "arn:cert"),
            ("ssl-ports", "443"),
        ],
    };
    for (annotation, value) in changes {
        fixture.annotate(annotation, value);
        passes(fixture).await;
    }
    fixture.change(|service| {
        let spec = service.spec.as_mut().unwrap();
        spec.ports.as_mut().unwrap()[0].port = 81;
        spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
    });
    passes(fixture).await;
    if kind == Kind::Network {
        fixture.annotate("security-groups", "sg-extra");
        passes(fixture).await;
    }
    fixture.node("i-3", true);
    fixture.nodes.observe(Event::Apply(
        serde_json::from_value(json!({
            "metadata": {"name": "i-2", "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}},
            "spec": {"providerID": "aws:///eu-central-1a/i-2"},
        }))
        .unwrap(),
    ));
    passes(fixture).await;
    // Tags that somebody else has removed.
    fixture.aws.change(|world| {
        for balancer in world.load_balancers.values_mut() {
            balancer.tags.clear();
        }
        for group in world.security_groups.values_mut() {
            if group.id != "sg-node" && group.id != "sg-extra" {
                group.tags.clear();
            }
        }
    });
    passes(fixture).await;
    fixture.change(|service| {
        let now = json!("2026-01-01T00:00:00Z");
        service.metadata.deletion_timestamp = Some(serde_json::from_value(now).unwrap());
    });
    passes(fixture).await;
}

struct Lived {
    called: BTreeSet<String>,
    events: Vec<String>,
}

async fn lived(kind: Kind, denied: Option<&str>) -> Lived {
    let fixture = fixture(kind);
    if let Some(action) = denied {
        fixture.aws.deny(action);
    }
    life(&fixture, kind).await;
    let calls = fixture.aws.calls().into_iter();
    let bare = |action: &str| action.strip_suffix("/v2").unwrap_or(action).to_owned();
    Lived {
        called: calls.map(|call| bare(call.action)).collect(),
        events: fixture.events(),
    }
}

/// Whether an Event names the action, and not another whose name begins alike.
fn names(event: &str, action: &str) -> bool {
    let mut words = event.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word == bare(action))
}

#[tokio::test(start_paused = true)]
async fn every_permission_that_is_missing_is_named_by_an_event() {
    let mut silent = Vec::new();
    let mut reached = BTreeSet::new();
    for kind in [Kind::Classic, Kind::Network] {
        let all = lived(kind, None).await;
        let needed = permissions().into_iter();
        for action in needed.filter(|action| all.called.contains(bare(action))) {
            let lived = lived(kind, Some(&action)).await;
            if !lived.events.iter().any(|event| names(event, &action)) {
                silent.push(format!("{action}: {:?}", lived.events));
            }
            reached.insert(action);
        }
    }
    assert!(silent.is_empty(), "no Event names these:\n{}", silent.join("\n"));

    let all = permissions().into_iter();
    let unreached: Vec<String> = all.filter(|action| !reached.contains(action)).collect();
    // Tags of a new security group are part of CreateSecurityGroup, which `e2e/tests/iam` covers. A denied change of
    // descriptions (`tests/network/node_ports.rs`) or of a certificate (`tests/certificates.rs`) is no failure.
    assert_eq!(
        unreached,
        [
            "ec2:CreateTags",
            "ec2:UpdateSecurityGroupRuleDescriptionsIngress",
            "elasticloadbalancing:SetLoadBalancerListenerSSLCertificate"
        ],
        "the life of the Services has to need all others"
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_list_zones_load_balancers_are_created_outside_local_zones() {
    for kind in [Kind::Classic, Kind::Network] {
        let mut world = world();
        let mut local = world.subnets[0].clone();
        local.id = "subnet-local".into();
        local.availability_zone = Some("eu-central-1-ham-1a".into());
        world.subnets.push(local);
        let fixture = Fixture::new(world);
        if kind == Kind::Network {
            fixture.annotate("type", "nlb");
        }
        fixture.aws.deny("ec2:DescribeAvailabilityZones");
        passes(&fixture).await;

        let world = fixture.aws.world();
        let classic = world
            .load_balancers
            .values()
            .map(|balancer| &balancer.described.subnets);
        let network = world
            .network
            .load_balancers
            .values()
            .map(|balancer| &balancer.described.subnets);
        let subnets: Vec<Vec<String>> = classic
            .chain(network)
            .map(|subnets| subnets.iter().cloned().collect())
            .collect();
        assert_eq!(subnets, [["subnet-a", "subnet-b"]], "{:?}", fixture.events());
        let events = fixture.events();
        let named = events
            .iter()
            .filter(|event| names(event, "ec2:DescribeAvailabilityZones"));
        assert_eq!(named.count(), 1, "{events:?}");
    }
}

/// The changes that an existing load balancer still gets after a restart without a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Served {
    /// A port that the Service has now.
    port: bool,
    /// A Node that has joined.
    node: bool,
}

const ALL: Served = Served { port: true, node: true };

async fn served(kind: Kind, denied: &str) -> Served {
    let mut fixture = fixture(kind);
    if kind == Kind::Network {
        fixture.annotate("target-group-attributes", "preserve_client_ip.enabled=false");
    }
    passes(&fixture).await;
    fixture.aws.deny(denied);
    fixture.restart();

    fixture.change(|service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81);
    fixture.node("i-3", true);
    passes(&fixture).await;
    let world = fixture.aws.world();
    let node = |id: &outrigger_aws::InstanceId| id.as_str() == "i-3";
    match kind {
        Kind::Classic => {
            let balancer = &world.load_balancers[LB].described;
            Served {
                port: balancer.listeners.iter().any(|listener| listener.port == 81),
                node: balancer.instances.iter().any(node),
            }
        }
        Kind::Network => {
            let behind = network::behind(&world, 443);
            Served {
                port: network::listeners(&world).contains_key(&81),
                node: behind.targets.iter().any(|target| node(&target.id)),
            }
        }
    }
}

const NO_PORT: Served = Served {
    port: false,
    node: true,
};
const NO_NODE: Served = Served {
    port: true,
    node: false,
};
const NOTHING: Served = Served {
    port: false,
    node: false,
};

/// The changes that need the action, so that a load balancer does not get them without it:
///
/// - without a description of itself, of its targets, or of instances neither its state nor its targets are known;
/// - subnets are chosen, and security groups of Nodes are found, before anything is written;
/// - a listener forwards to no target group without targets.
const NEEDED: [(Kind, &str, Served); 17] = [
    (Kind::Classic, "DescribeInstances", NOTHING),
    (Kind::Classic, "DescribeLoadBalancers", NOTHING),
    (Kind::Classic, "DescribeSecurityGroups", NOTHING),
    (Kind::Classic, "DescribeSubnets", NO_PORT),
    (Kind::Classic, "CreateLoadBalancerListeners", NO_PORT),
    (Kind::Classic, "RegisterInstancesWithLoadBalancer", NO_NODE),
    (Kind::Network, "DescribeInstances", NOTHING),
    (Kind::Network, "DescribeLoadBalancers", NOTHING),
    (Kind::Network, "DescribeTargetGroups", NOTHING),
    (Kind::Network, "DescribeTargetHealth", NOTHING),
    (Kind::Network, "RegisterTargets", NOTHING),
    (Kind::Network, "DescribeListeners", NO_PORT),
    (Kind::Network, "DescribeRouteTables", NO_PORT),
    (Kind::Network, "DescribeSecurityGroups", NO_PORT),
    (Kind::Network, "DescribeSubnets", NO_PORT),
    (Kind::Network, "CreateListener", NO_PORT),
    (Kind::Network, "CreateTargetGroup", NO_PORT),
];

#[tokio::test(start_paused = true)]
async fn a_missing_permission_stops_only_what_needs_it() {
    let mut wrong = Vec::new();
    for kind in [Kind::Classic, Kind::Network] {
        let called = lived(kind, None).await.called;
        for action in permissions().into_iter().filter(|action| called.contains(bare(action))) {
            let listed = NEEDED
                .iter()
                .find(|(of, needed, _)| *of == kind && *needed == bare(&action));
            let expected = listed.map_or(ALL, |(.., served)| *served);
            let served = served(kind, &action).await;
            if served != expected {
                wrong.push(format!("{kind:?} {action}: {served:?}, expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
