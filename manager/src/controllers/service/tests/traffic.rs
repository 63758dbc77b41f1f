//! The oracle of all tests of the controller: a client that reached a load balancer before a write, and that the spec of
//! the Service still permits, reaches it after each single write. A load balancer of others loses no client.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::IpRange;
use outrigger_aws::fake::traffic::{Connection, Path, admits, connections, contains, named_networks};
use outrigger_aws::fake::{FakeAws, World};

use super::super::action::{ServiceAction, action};
use super::super::plan::targets::candidates;
use super::super::settings::Settings;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::desired::{Desired, classic, desired, network};
use super::super::spec::names::{CLIENT_RULE, rule};
use super::super::spec::{names, request};
use super::fixture::FakeApi;
use crate::node_cache::NodeCache;

/// The state of a test that the oracle needs.
#[derive(Debug)]
pub struct Watched {
    /// The settings of the running process.
    settings: Mutex<Settings>,
    allows_gaps: AtomicBool,
    /// Connections that were cut, while gaps within one reconciliation are allowed.
    cuts: Mutex<Option<Vec<Connection>>>,
}

impl Watched {
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: Mutex::new(settings.clone()),
            allows_gaps: AtomicBool::default(),
            cuts: Mutex::default(),
        }
    }

    pub fn restart(&self, settings: &Settings) {
        self.settings.lock().unwrap().clone_from(settings);
    }

    /// Collects cuts from now on.
    pub fn collect(&self) {
        *self.cuts.lock().unwrap() = Some(Vec::new());
    }

    /// The cuts that last, or that neither a full security group explains nor a denied change of a certificate. A group
    /// without capacity for old and new rules loses the old ones first: `Authorize` is refused, `Revoke`, `Authorize`.
    pub fn end(&self, world: &World, writes: &[String]) -> Vec<String> {
        let cuts = self.cuts.lock().unwrap().take().unwrap_or_default();
        let clients = cuts.iter().map(|(_, client)| client.clone()).collect();
        let open = connections(world, &clients);
        let is_explained = swaps(writes) || recreates(writes);
        let lasting = cuts.iter().filter(|cut| !is_explained || !open.contains(cut));
        lasting.map(text).collect()
    }

    pub fn allow_gaps(&self) {
        self.allows_gaps.store(true, Ordering::Relaxed);
    }
}

/// Whether a listener was created again because AWS has denied to change its certificate.
fn recreates(writes: &[String]) -> bool {
    let change = "SetLoadBalancerListenerSSLCertificate ";
    let pairs = writes.iter().zip(writes.iter().skip(1));
    let mut changes = pairs.filter_map(|(first, second)| Some((first.strip_prefix(change)?, second)));
    changes.any(|(of, second)| {
        let mut words = of.split(' ');
        let listener = words.next().zip(words.next());
        listener.is_some_and(|(name, port)| *second == format!("DeleteLoadBalancerListeners {name} {port}"))
    })
}

/// Whether rules of a security group were revoked between two tries to add others.
fn swaps(writes: &[String]) -> bool {
    let of_action = |write: &String, action: &str| {
        let rest = write.strip_prefix(action)?.split(' ').next()?;
        Some(rest.to_owned())
    };
    let opened = |write| of_action(write, "AuthorizeSecurityGroupIngress ");
    let closed = |write| of_action(write, "RevokeSecurityGroupIngress ");

    (0..writes.len()).any(|at| {
        let (first, later) = (opened(&writes[at]), &writes[at + 1..]);
        let revoked = later
            .iter()
            .take_while(|write| first.is_some() && closed(write) == first)
            .count();
        revoked > 0 && later.get(revoked).is_some_and(|write| opened(write) == first)
    })
}

/// Checks each write from now on.
pub fn watch(aws: &FakeAws, api: &Arc<FakeApi>, nodes: &NodeCache, watched: &Arc<Watched>) {
    let (api, nodes, watched) = (Arc::clone(api), nodes.clone(), Arc::clone(watched));
    aws.witness(move |before, after| {
        if watched.allows_gaps.load(Ordering::Relaxed) {
            return;
        }

        let settings = watched.settings.lock().unwrap().clone();
        let specs: Vec<Spec> = api
            .services()
            .iter()
            .map(|service| Spec::of(service, &nodes, &settings))
            .collect();
        let lost = lost(before, after, &specs);
        if let Some(cuts) = watched.cuts.lock().unwrap().as_mut() {
            return cuts.extend(lost);
        }
        let texts: Vec<String> = lost.iter().map(text).collect();
        assert!(texts.is_empty(), "a write cut permitted connections: {texts:#?}");
    });
}

/// The connections that a Service permits.
struct Spec {
    load_balancer: String,
    /// Whether it requests a load balancer of this controller.
    is_wanted: bool,
    /// `None`: the spec is refused, and nothing but targets may change.
    desired: Option<Desired>,
    networks: BTreeSet<String>,
    instances: BTreeSet<outrigger_aws::InstanceId>,
}

impl Spec {
    fn of(service: &Service, nodes: &NodeCache, settings: &Settings) -> Self {
        let annotations = Annotations::of(service);
        let labels = annotations.pairs("target-node-labels");
        let candidates = candidates(&nodes.snapshot(), &labels).into_iter();
        Self {
            load_balancer: names::load_balancer(names::uid(service)),
            is_wanted: action(service) == ServiceAction::Ensure && annotations.kind() != Kind::External,
            desired: desired(service, settings).ok(),
            networks: request::source_ranges(service).unwrap_or_default(),
            instances: candidates.map(|candidate| candidate.id).collect(),
        }
    }

    fn permits(&self, world: &World, (path, client): &Connection) -> bool {
        let instance = world.instances.get(&path.instance);
        let is_ours = instance.is_some_and(|instance| names::in_cluster(&instance.tags, "prod"));
        if !self.is_wanted || !is_ours || !self.instances.contains(&path.instance) {
            return false;
        }

        let listed = self.networks.iter().any(|network| contains(network, client));
        let admitted = |ids: &[String]| ids.iter().any(|id| admits(world, id, path, client));
        match &self.desired {
            None => true,
            Some(Desired::Classic(desired)) if !path.is_network => {
                let listener = |listener: &&outrigger_aws::elb::Listener| {
                    listener.protocol == path.protocol
                        && listener.instance_port == path.instance_port
                        && listener.instance_protocol == path.instance_protocol
                };
                let mut listeners = desired.listeners.iter().filter(listener);
                listeners.any(|listener| listener.port == path.port)
                    && match &desired.groups {
                        classic::Groups::Own { .. } => listed,
                        classic::Groups::Given(ids) => admitted(ids),
                    }
            }
            Some(Desired::Network(desired)) if path.is_network => {
                let port = |port: &&network::Port| {
                    port.listener.protocol.eq_ignore_ascii_case(&path.protocol)
                        && port.target_group.port == path.instance_port
                };
                let mut ports = desired.ports.iter().filter(port);
                ports.any(|port| port.listener.port == path.port)
                    && listed
                    && match &desired.groups {
                        network::Groups::Kept | network::Groups::Managed => true,
                        network::Groups::Given(ids) => admitted(ids),
                    }
            }
            // The load balancer of the other kind is to be deleted.
            Some(_) => false,
        }
    }
}

impl Spec {
    /// Without client rules of other load balancers that this spec does not request: for example, another Service has
    /// given up a node port whose rule lets in more clients than this one permits.
    fn without_rules_of_others(&self, world: &World) -> World {
        let own = rule(CLIENT_RULE, &self.load_balancer);
        let is_usable = |range: &IpRange| {
            let text = range.description.as_deref().unwrap_or_default();
            !text.starts_with(CLIENT_RULE) || text == own || self.networks.contains(&range.cidr)
        };
        let mut world = world.clone();
        for rule in world.security_groups.values_mut().flat_map(|group| &mut group.ingress) {
            rule.ranges.retain(is_usable);
        }
        world
    }
}

/// The permitted connections that a write has cut.
fn lost(before: &World, after: &World, specs: &[Spec]) -> Vec<Connection> {
    let listed = specs.iter().flat_map(|spec| &spec.networks).cloned();
    let clients: BTreeSet<String> = named_networks(before).into_iter().chain(listed).collect();
    let open = connections(after, &clients);
    let cut = connections(before, &clients)
        .into_iter()
        .filter(|connection| !open.contains(connection));

    let is_permitted = |connection: &Connection| {
        let (path, _) = connection;
        match specs.iter().find(|spec| spec.load_balancer == path.load_balancer) {
            Some(spec) => {
                spec.permits(after, connection)
                    && connections(&spec.without_rules_of_others(before), &clients).contains(connection)
            }
            None => exists(after, path),
        }
    };

    cut.filter(is_permitted).collect()
}

fn text((path, client): &Connection) -> String {
    let Path {
        load_balancer,
        port,
        protocol,
        ..
    } = path;
    let (instance, instance_port) = (&path.instance, path.instance_port);
    format!("{client} to {load_balancer} {protocol}/{port} to {instance}:{instance_port}")
}

fn exists(world: &World, path: &Path) -> bool {
    let name = &path.load_balancer;
    match path.is_network {
        true => world.network.named(name).is_some(),
        false => world.load_balancers.contains_key(name),
    }
}
