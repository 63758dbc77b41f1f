//! Changes of a Service's network load balancer by others.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use outrigger_aws::elbv2::{ListenerSettings, NetworkLoadBalancer, Target, TargetGroup, TargetHealthCheck};
use outrigger_aws::fake::{FakeListener, FakeNetworkLoadBalancer, FakeTargetGroup, Network, World};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::super::spec::names;
use super::super::fixture::LB;

/// The prefix of all ARNs.
const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012";

/// One change. Without the resource it changes nothing.
#[derive(Debug, Clone)]
pub enum NetworkEdit {
    DropListener(Index),
    /// Another listener, to a target group that was made by hand.
    AddListener(i32),
    /// A listener is led to a target group that was made by hand.
    Lead(Index),
    Certificate(Index, &'static str),
    HealthPort(Index, &'static str),
    HealthPath(Index),
    Thresholds(Index, i32, i32),
    ClientIp(Index, &'static str),
    Register(Index, &'static str, bool),
    Deregister(Index, &'static str),
    CrossZone(&'static str),
    Groups(Vec<&'static str>),
    /// A target group of the Service that nothing uses any more.
    Orphan,
    /// The same of a Service with a name that looks alike, or of another cluster.
    OrphanOfOthers(bool),
    Delete,
}

pub fn edit() -> impl Strategy<Value = NetworkEdit> {
    let at = any::<Index>;
    let node = || select(&["i-1", "i-2", "i-3", "i-4", "i-9", "i-gone"][..]);
    let switch = || select(&["true", "false"][..]);
    let of_listeners = prop_oneof![
        3 => at().prop_map(NetworkEdit::DropListener),
        2 => select(&[80, 443, 9][..]).prop_map(NetworkEdit::AddListener),
        2 => at().prop_map(NetworkEdit::Lead),
        1 => (at(), select(&["arn:hand", ""][..])).prop_map(|(at, arn)| NetworkEdit::Certificate(at, arn)),
    ];
    let of_groups = prop_oneof![
        (at(), select(&["traffic-port", "8082"][..])).prop_map(|(at, port)| NetworkEdit::HealthPort(at, port)),
        at().prop_map(NetworkEdit::HealthPath),
        (at(), 2..6, 2..6).prop_map(|(at, up, down)| NetworkEdit::Thresholds(at, up, down)),
        (at(), switch()).prop_map(|(at, on)| NetworkEdit::ClientIp(at, on)),
        (at(), node(), prop::bool::weighted(0.2)).prop_map(|(at, id, odd)| NetworkEdit::Register(at, id, odd)),
        (at(), node()).prop_map(|(at, id)| NetworkEdit::Deregister(at, id)),
        Just(NetworkEdit::Orphan),
        any::<bool>().prop_map(NetworkEdit::OrphanOfOthers),
    ];
    let of_balancer = prop_oneof![
        2 => switch().prop_map(NetworkEdit::CrossZone),
        2 => subsequence(&["sg-mine", "sg-more"][..], 1..=2).prop_map(NetworkEdit::Groups),
        1 => Just(NetworkEdit::Delete),
    ];
    prop_oneof![3 => of_listeners, 4 => of_groups, 2 => of_balancer]
}

/// The load balancer of another Service.
pub fn beside(world: &mut World) {
    let arn = format!("{ARN}:loadbalancer/net/abeside/00000000000000ff");
    let group = made_by_hand(&mut world.network, "k8s-default-beside-0123456789", 32081, "TCP");
    let described = NetworkLoadBalancer {
        arn: arn.clone(),
        name: "abeside".to_owned(),
        state: Some("active".to_owned()),
        subnets: ["subnet-a".to_owned()].into(),
        ..NetworkLoadBalancer::default()
    };
    let made = FakeNetworkLoadBalancer {
        described,
        kind: "network".to_owned(),
        mappings: Vec::new(),
        attributes: outrigger_aws::elbv2::Attributes::new(),
        tags: names::cluster_tags("prod", false),
        provisioning: 0,
    };
    world.network.load_balancers.insert(arn.clone(), made);
    let settings = ListenerSettings {
        port: 80,
        protocol: "TCP".to_owned(),
        target_group_arn: Some(group),
        ..ListenerSettings::default()
    };
    let listener = FakeListener {
        load_balancer: arn,
        settings,
        ..FakeListener::default()
    };
    let arn = format!("{ARN}:listener/net/abeside/80/00000000000000ff");
    world.network.listeners.insert(arn, listener);
}

/// The ARN of the Service's load balancer.
pub fn balancer(world: &World) -> Option<String> {
    world.network.named(LB).map(|lb| lb.described.arn.clone())
}

/// The target groups that the Service's load balancer uses, and those that say that they are the Service's.
pub fn target_groups(world: &World) -> BTreeSet<String> {
    let network = &world.network;
    let listeners = balancer(world)
        .map(|arn| network.listeners_of(&arn))
        .unwrap_or_default();
    let used = listeners
        .values()
        .filter_map(|listener| listener.settings.target_group_arn.clone());
    let tagged = network.target_groups.values().filter(|group| {
        group.tags.get(names::SERVICE_TAG).is_some_and(|of| of == "default/web")
            && group
                .tags
                .get("kubernetes.io/cluster/prod")
                .is_some_and(|of| of == "owned")
    });
    used.chain(tagged.map(|group| group.described.arn.clone())).collect()
}

/// The prefix of the names of target groups that users have created. They stay, and their targets follow the Nodes
/// while a listener forwards to them.
pub const BY_HAND: &str = "hand-";

fn made_by_hand(network: &mut Network, name: &str, port: i32, protocol: &str) -> String {
    let arn = format!("{ARN}:targetgroup/{name}/00000000000000ff");
    let described = TargetGroup {
        arn: arn.clone(),
        name: name.to_owned(),
        port,
        protocol: protocol.to_owned(),
        target_type: Some("instance".to_owned()),
        vpc_id: Some("vpc-1".to_owned()),
        health_check: TargetHealthCheck {
            protocol: "TCP".to_owned(),
            port: "traffic-port".to_owned(),
            path: None,
            interval: 30,
            healthy_threshold: 3,
            unhealthy_threshold: 3,
        },
        load_balancers: BTreeSet::new(),
    };
    let keys = ["preserve_client_ip.enabled", "proxy_protocol_v2.enabled"];
    let group = FakeTargetGroup {
        described,
        attributes: keys.map(|key| (key.to_owned(), "false".to_owned())).into(),
        ..FakeTargetGroup::default()
    };
    network.target_groups.entry(arn.clone()).or_insert(group);
    arn
}

fn orphan(network: &mut Network, name: &str, service: &str, cluster: &str) {
    let arn = made_by_hand(network, name, 30999, "TCP");
    if let Some(group) = network.target_groups.get_mut(&arn) {
        group.tags = names::cluster_tags(cluster, false);
        group.tags.insert(names::SERVICE_TAG.to_owned(), service.to_owned());
    }
}

impl NetworkEdit {
    pub fn apply(&self, world: &mut World) {
        match self {
            Self::Orphan => return orphan(&mut world.network, "k8s-default-web-0123456789", "default/web", "prod"),
            Self::OrphanOfOthers(cluster) => {
                let (service, cluster) = if *cluster {
                    ("default/web", "other")
                } else {
                    ("default/we-b", "prod")
                };
                return orphan(&mut world.network, "k8s-default-web-aaaaaaaaaa", service, cluster);
            }
            _ => {}
        }
        let Some(arn) = balancer(world) else { return };
        let listeners: Vec<String> = {
            let own = world
                .network
                .listeners
                .iter()
                .filter(|(_, listener)| listener.load_balancer == arn);
            own.map(|(arn, _)| arn.clone()).collect()
        };
        match self {
            Self::Delete => {
                world.network.load_balancers.remove(&arn);
                world
                    .network
                    .listeners
                    .retain(|_, listener| listener.load_balancer != arn);
            }
            Self::CrossZone(on) => {
                let lb = world.network.load_balancers.get_mut(&arn).unwrap();
                lb.attributes
                    .insert("load_balancing.cross_zone.enabled".into(), (*on).into());
            }
            Self::Groups(ids) => {
                let lb = world.network.load_balancers.get_mut(&arn).unwrap();
                if !lb.described.security_groups.is_empty() {
                    lb.described.security_groups = ids.iter().map(|id| (*id).to_owned()).collect();
                }
            }
            Self::AddListener(port) => self.add_listener(&mut world.network, &arn, *port),
            Self::DropListener(at) | Self::Lead(at) | Self::Certificate(at, _) if !listeners.is_empty() => {
                self.apply_to_listener(&mut world.network, &listeners[at.index(listeners.len())]);
            }
            _ => self.apply_to_group(world),
        }
    }

    fn add_listener(&self, network: &mut Network, balancer: &str, port: i32) {
        if network.listeners_of(balancer).contains_key(&port) {
            return;
        }
        let group = made_by_hand(network, &format!("hand-{port}"), 31999, "TCP");
        let settings = ListenerSettings {
            port,
            protocol: "TCP".to_owned(),
            target_group_arn: Some(group),
            ..ListenerSettings::default()
        };
        let made = FakeListener {
            load_balancer: balancer.to_owned(),
            settings,
            ..FakeListener::default()
        };
        network
            .listeners
            .insert(format!("{ARN}:listener/net/{LB}/{port}/00000000000000ff"), made);
    }

    fn apply_to_listener(&self, network: &mut Network, arn: &str) {
        if let Self::DropListener(_) = self {
            network.listeners.remove(arn);
            return;
        }
        let settings = network.listeners[arn].settings.clone();
        let by_hand = match (self, settings.protocol.as_str()) {
            (Self::Lead(_), "UDP") => Some(made_by_hand(network, "hand-udp", 31998, "UDP")),
            (Self::Lead(_), _) => Some(made_by_hand(network, "hand-tcp", 31998, "TCP")),
            _ => None,
        };
        let listener = network.listeners.get_mut(arn).unwrap();
        match self {
            Self::Lead(_) => listener.settings.target_group_arn = by_hand,
            Self::Certificate(_, certificate) if settings.protocol == "TLS" && !certificate.is_empty() => {
                listener.settings.certificate = Some((*certificate).to_owned());
            }
            _ => {}
        }
    }

    fn apply_to_group(&self, world: &mut World) {
        let (Self::HealthPort(at, _)
        | Self::HealthPath(at)
        | Self::Thresholds(at, ..)
        | Self::ClientIp(at, _)
        | Self::Register(at, ..)
        | Self::Deregister(at, _)) = self
        else {
            return;
        };
        let arns: Vec<String> = target_groups(world).into_iter().collect();
        if arns.is_empty() {
            return;
        }
        let group = world
            .network
            .target_groups
            .get_mut(&arns[at.index(arns.len())])
            .unwrap();
        let target = |id: &str, port| Target {
            id: InstanceId::new(id),
            port,
        };
        let port = group.described.port;
        let check = &mut group.described.health_check;
        match self {
            Self::HealthPort(_, port) => check.port = (*port).to_owned(),
            Self::HealthPath(_) if check.path.is_some() => check.path = Some("/by-hand".to_owned()),
            Self::Thresholds(_, up, down) => (check.healthy_threshold, check.unhealthy_threshold) = (*up, *down),
            Self::ClientIp(_, on) if !group.described.protocol.ends_with("UDP") => {
                group
                    .attributes
                    .insert("preserve_client_ip.enabled".into(), (*on).into());
            }
            Self::Register(_, id, odd) => drop(group.targets.insert(target(id, if *odd { 9 } else { port }))),
            Self::Deregister(_, id) => drop(group.targets.remove(&target(id, port))),
            _ => {}
        }
    }
}
