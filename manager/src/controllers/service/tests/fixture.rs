//! A small cluster: one VPC, two zones, two Ready nodes, one security group for them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;
use outrigger_aws::ec2::{AvailabilityZone, Instance, RouteTable, SecurityGroup, Subnet};
use outrigger_aws::fake::{FakeAws, World};
use outrigger_leader::Permit;
use outrigger_shared::migration::AdoptionChange;
use serde_json::{Value, json};

use super::super::action::Next;
use super::super::context::Context;
use super::super::dry_run;
use super::super::error::Error;
use super::super::execute::node_groups::NodeGroups;
use super::super::inventory::Aws;
use super::super::inventory::account::{NodeInstances, TagReads, TargetGroupList, ZoneCache};
use super::super::inventory::shared::Shared;
use super::super::queue::class_of;
use super::super::queue::creation_queue::CreationQueues;
use super::super::queue::first_full::FirstFull;
use super::super::queue::keyed::Class;
use super::super::queue::node_changes::NodeSync;
use super::super::queue::service_state::{Reason, ServiceState, ServiceStates};
use super::super::settings::Settings;
use super::super::spec::names;
use super::super::writer::{Found, Writer};
use super::traffic::{self, Watched};
use crate::events::EventType;
use crate::instances::Instances;
use crate::metrics::Metrics;
use crate::node_cache::NodeCache;

pub const UID: &str = "12345678-1234-1234-1234-123456789abc";
pub const LB: &str = "a12345678123412341234123456789ab";
pub const HOST: &str = "a12345678123412341234123456789ab-1234567890.eu-central-1.elb.amazonaws.com";

/// The API server, reduced to one Service, further ones beside it, and the writes to them.
pub struct FakeApi {
    pub service: Mutex<Service>,
    /// Further Services of the cluster.
    pub neighbours: Mutex<Vec<Service>>,
    /// Whether the Service is gone without a deletion.
    pub is_lost: AtomicBool,
    pub patches: Mutex<Vec<&'static str>>,
    pub events: Mutex<Vec<String>>,
    /// The results of the next patches.
    pub answers: Mutex<Vec<Answer>>,
}

/// The result of a patch other than success.
#[derive(Clone, Copy)]
pub enum Answer {
    /// The Service is gone.
    Gone,
    /// The API server refuses it.
    Refused,
    /// Other tasks continue before it succeeds.
    Slow,
}

#[async_trait]
impl Writer for FakeApi {
    async fn patch(&self, of: &Service, operation: &'static str, patch: Value) -> Result<Found, Error> {
        self.patches.lock().unwrap().push(operation);
        let answer = self.answers.lock().unwrap().pop();
        match answer {
            Some(Answer::Gone) => {
                // Other tasks continue meanwhile.
                tokio::task::yield_now().await;
                return Ok(Found::Gone);
            }
            Some(Answer::Refused) => {
                let error = kube::Error::Service("refused".into());
                return Err(Error::kubernetes(operation)(error));
            }
            Some(Answer::Slow) => tokio::task::yield_now().await,
            None => {}
        }
        assert_eq!(patch["metadata"]["uid"], json!(of.metadata.uid));
        self.change(of.metadata.uid.as_ref(), |service| apply(service, &patch));
        Ok(Found::There)
    }

    async fn event(&self, _: &Service, kind: EventType, reason: &'static str, message: &str) {
        self.events.lock().unwrap().push(format!("{kind:?} {reason} {message}"));
    }
}

fn apply(service: &mut Service, patch: &Value) {
    let finalizers = service.metadata.finalizers.get_or_insert_default();
    if patch["metadata"].get("finalizers").is_some() {
        finalizers.push(names::FINALIZER.to_owned());
    }
    if patch["metadata"].get("$deleteFromPrimitiveList/finalizers").is_some() {
        finalizers.retain(|finalizer| finalizer != names::FINALIZER);
    }
    if let Some(status) = patch.get("status") {
        service.status = Some(serde_json::from_value(status.clone()).unwrap());
    }
}

impl FakeApi {
    pub fn services(&self) -> Vec<Service> {
        let mut services = self.neighbours.lock().unwrap().clone();
        if !self.is_lost.load(Ordering::Relaxed) {
            services.push(self.service.lock().unwrap().clone());
        }
        services
    }

    /// Changes the Service with this UID.
    pub fn change(&self, uid: Option<&String>, change: impl FnOnce(&mut Service)) {
        let mut service = self.service.lock().unwrap();
        if service.metadata.uid.as_ref() == uid {
            return change(&mut service);
        }
        let mut neighbours = self.neighbours.lock().unwrap();
        let found = neighbours
            .iter_mut()
            .find(|service| service.metadata.uid.as_ref() == uid);
        change(found.expect("a Service of this UID"));
    }
}

pub struct Fixture {
    pub aws: Arc<FakeAws>,
    pub api: Arc<FakeApi>,
    pub nodes: NodeCache,
    pub settings: Settings,
    pub metrics: Metrics,
    pub context: Context,
    traffic: Arc<Watched>,
}

impl Fixture {
    pub fn new(world: World) -> Self {
        let settings = Settings {
            cluster_id: "prod".into(),
            vpc_id: "vpc-1".into(),
            resync_period: Some(std::time::Duration::from_secs(1800)),
            ..Settings::default()
        };
        Self::with(world, settings, Permit::always())
    }

    pub fn with(world: World, settings: Settings, permit: Permit) -> Self {
        let aws = Arc::new(FakeAws::new(world));
        let api = FakeApi {
            service: Mutex::new(service()),
            neighbours: Mutex::default(),
            is_lost: AtomicBool::default(),
            patches: Mutex::default(),
            events: Mutex::default(),
            answers: Mutex::default(),
        };
        let (api, nodes, metrics) = (Arc::new(api), NodeCache::new(), Metrics::new());
        let context = context(&aws, &api, &nodes, &settings, &metrics, permit);
        let traffic = Arc::new(Watched::new(&settings));
        traffic::watch(&aws, &api, &nodes, &traffic);
        let fixture = Self {
            aws,
            api,
            nodes,
            settings,
            metrics,
            context,
            traffic,
        };
        fixture.node("i-1", true);
        fixture.node("i-2", true);
        fixture
    }

    /// The same world, seen by a process that has just started.
    pub fn restart(&mut self) {
        self.aws.revive();
        self.traffic.restart(&self.settings);
        self.context = context(
            &self.aws,
            &self.api,
            &self.nodes,
            &self.settings,
            &self.metrics,
            Permit::always(),
        );
    }

    pub fn node(&self, id: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.nodes.observe(Event::Apply(
            serde_json::from_value(json!({
                "metadata": {"name": id},
                "spec": {"providerID": format!("aws:///eu-central-1a/{id}")},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }))
            .unwrap(),
        ));
    }

    pub fn drop_node(&self, id: &str) {
        self.nodes.observe(Event::Delete(
            serde_json::from_value(json!({"metadata": {"name": id}})).unwrap(),
        ));
    }

    pub fn change(&self, change: impl FnOnce(&mut Service)) {
        change(&mut self.api.service.lock().unwrap());
    }

    pub fn annotate(&self, suffix: &str, value: &str) {
        self.change(|service| {
            let key = format!("{}{suffix}", super::super::spec::annotations::PREFIX);
            service
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(key, value.to_owned());
        });
    }

    /// The Service is gone without a deletion.
    pub fn lose_service(&self) {
        self.api.is_lost.store(true, Ordering::Relaxed);
    }

    /// Writes may cut connections from now on, for this reason.
    pub fn allow_gaps(&self, reason: &'static str) {
        assert!(!reason.is_empty());
        self.traffic.allow_gaps();
    }

    /// The connections that a reconciliation cuts, without those that it cuts for a moment in a full security group, or
    /// because IAM denies the change of a certificate.
    pub async fn cuts_of_a_swap(&self, reconciliation: impl Future<Output = ()>) -> Vec<String> {
        self.traffic.collect();
        let known = self.aws.writes().len();
        reconciliation.await;
        self.traffic.end(&self.aws.world(), &self.aws.writes()[known..])
    }

    pub fn service(&self) -> Service {
        self.api.service.lock().unwrap().clone()
    }

    /// Reconciles a neighbour.
    pub async fn sync_neighbour(&self, at: usize) -> Result<Next, Error> {
        let service = self.api.neighbours.lock().unwrap()[at].clone();
        Box::pin(self.turn(service)).await
    }

    pub async fn sync(&self) -> Result<Next, Error> {
        Box::pin(self.turn(self.service())).await
    }

    /// A turn of the Service, as after a list of all Services, or because it is due.
    async fn turn(&self, service: Service) -> Result<Next, Error> {
        let class = |state: &ServiceState| class_of(&service, state, true);
        let class = self.context.states.with(names::uid(&service), class);
        let reconciled = Box::pin(super::super::reconcile::reconcile(&self.context, &service));
        class.unwrap_or(Class::Drift).priority().run(reconciled).await
    }

    /// The changes that a process would make that takes over now.
    pub async fn dry_run(&self) -> Vec<AdoptionChange> {
        let (_, void) = Permit::pair();
        let context = context(&self.aws, &self.api, &self.nodes, &self.settings, &self.metrics, void);
        let (services, place) = ((context.aws.services)(), AtomicUsize::default());
        let compared = dry_run::compare_all(&context, &services, &place, Reason::Resync);
        compared.await.unwrap().changes
    }

    pub fn events(&self) -> Vec<String> {
        self.api.events.lock().unwrap().clone()
    }

    /// Reconciles until nothing is written any more, at most ten times, one minute apart.
    pub async fn settle(&self) {
        for _ in 0..10 {
            let before = (self.aws.writes().len(), self.api.patches.lock().unwrap().len());
            let result = self.sync().await;
            tokio::time::advance(std::time::Duration::from_secs(60)).await;
            if result.is_ok() && before == (self.aws.writes().len(), self.api.patches.lock().unwrap().len()) {
                return;
            }
        }
        panic!("never settled: {:?}", self.events());
    }
}

fn context(
    aws: &Arc<FakeAws>,
    api: &Arc<FakeApi>,
    nodes: &NodeCache,
    settings: &Settings,
    metrics: &Metrics,
    permit: Permit,
) -> Context {
    let ec2: Arc<dyn outrigger_aws::Ec2> = aws.clone();
    Context {
        aws: Aws {
            instances: NodeInstances::new(
                Instances::new(Arc::clone(&ec2), settings.cluster_id.clone(), settings.vpc_id.clone()),
                settings.cluster_id.clone(),
            ),
            ec2,
            elb: aws.clone(),
            elbv2: aws.clone(),
            target_groups: TargetGroupList::default(),
            zones: ZoneCache::default(),
            reads_owners: settings.cluster_uid.is_some(),
            tag_reads: TagReads::default(),
            shared: Shared::default(),
            services: Arc::new({
                let api = Arc::clone(api);
                move || api.services().into_iter().map(Arc::new).collect()
            }),
        },
        settings: settings.clone(),
        nodes: nodes.clone(),
        writer: api.clone(),
        permit,
        states: ServiceStates::default(),
        node_sync: NodeSync::new(metrics.clone()),
        settled_at: tokio::time::Instant::now(),
        node_groups: NodeGroups::default(),
        creation_queues: CreationQueues::default(),
        first_full: FirstFull::default(),
    }
}

/// A user excludes a Node from load balancers.
pub fn exclude(fixture: &Fixture, id: &str) {
    fixture.nodes.observe(Event::Apply(
        serde_json::from_value(json!({
            "metadata": {"name": id, "labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}},
            "spec": {"providerID": format!("aws:///eu-central-1a/{id}")},
        }))
        .unwrap(),
    ));
}

pub fn service() -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": UID},
        "spec": {
            "type": "LoadBalancer",
            "sessionAffinity": "None",
            "ports": [
                {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"},
                {"name": "https", "port": 443, "nodePort": 30443, "protocol": "TCP"},
            ],
        },
    }))
    .unwrap()
}

pub fn instance(id: &str) -> Instance {
    Instance {
        tags: names::cluster_tags("prod", false),
        security_groups: vec!["sg-node".into()],
        ..Instance::new(id)
    }
}

/// An empty cluster: nothing of any Service.
pub fn world() -> World {
    let subnet = |id: &str, zone: &str| Subnet {
        id: id.into(),
        vpc_id: Some("vpc-1".into()),
        availability_zone: Some(zone.into()),
        cidr_block: None,
        tags: names::cluster_tags("prod", false),
    };
    let zone = |name: &str| AvailabilityZone {
        name: name.into(),
        id: None,
        zone_type: Some("availability-zone".into()),
    };
    let node_group = SecurityGroup {
        id: "sg-node".into(),
        name: Some("nodes".into()),
        description: None,
        vpc_id: Some("vpc-1".into()),
        ingress: vec![],
        tags: names::cluster_tags("prod", false),
    };
    World {
        instances: ["i-1", "i-2", "i-3"]
            .map(|id| (instance(id).id.clone(), instance(id)))
            .into(),
        zones: vec![zone("eu-central-1a"), zone("eu-central-1b")],
        subnets: vec![subnet("subnet-a", "eu-central-1a"), subnet("subnet-b", "eu-central-1b")],
        route_tables: [(
            "vpc-1".to_owned(),
            vec![RouteTable {
                main: true,
                gateway_ids: vec!["igw-1".into()],
                ..RouteTable::default()
            }],
        )]
        .into(),
        security_groups: [("sg-node".to_owned(), node_group)].into(),
        ..World::default()
    }
}
