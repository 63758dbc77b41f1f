//! The cluster of a worker: Nodes, one Service at a time, and the Events about it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Event as KubeEvent, Namespace, Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::case::Nodes;
use super::environment::Environment;
use super::names::Names;
use super::outcome::{Event, ServiceState};
use crate::harness::ready;

/// An annotation without effect at AWS. Both managers compare everything when it changes.
const WITHOUT_EFFECT: &str = "outrigger.dev/reconcile";
/// Nodes of every case.
pub(super) const NODES: [&str; 6] = ["node-1", "node-2", "node-3", "node-4", "node-5", "node-6"];

/// A controller of the API server, with Events about addresses of Services with a short life.
const ADDRESS_REPAIR: &str = "ipallocator-repair-controller";

/// Events with their counts.
pub(super) type Events = BTreeMap<Event, i32>;

pub(super) struct Cluster {
    client: Client,
    nodes: Api<Node>,
}

/// The Service of a case.
pub(super) struct Subject {
    services: Api<Service>,
    events: Api<KubeEvent>,
    pub(super) name: String,
    /// It distinguishes the Service from another one of the same name.
    pub(super) uid: String,
    pub(super) namespace: String,
    no_ops: usize,
}

impl Cluster {
    pub(super) async fn start(client: Client, environment: &Environment) -> Result<Self> {
        let cluster = Self {
            nodes: Api::all(client.clone()),
            client,
        };
        for name in NODES {
            cluster.add(name, environment).await?;
        }

        Ok(cluster)
    }

    pub(super) async fn change(&self, change: &Nodes, environment: &Environment) -> Result<()> {
        for name in &change.add {
            self.add(name, environment).await?;
        }

        for name in &change.remove {
            let deleted = self.nodes.delete(name, &DeleteParams::default()).await;
            deleted.with_context(|| format!("node {name}"))?;
        }

        for (name, patch) in &change.patch {
            let (patch, parameters) = (environment.names.resolve(patch), PatchParams::default());
            let patched = self.nodes.patch(name, &parameters, &Patch::Merge(&patch)).await;
            patched.with_context(|| format!("node {name}"))?;

            if !patch["status"].is_null() {
                let status = Patch::Merge(json!({"status": patch["status"]}));
                let patched = self.nodes.patch_status(name, &parameters, &status).await;
                patched.with_context(|| format!("status of node {name}"))?;
            }
        }

        Ok(())
    }

    /// Restores the Nodes of every case. It creates changed Nodes again.
    pub(super) async fn restore(&self, changes: &[&Nodes], environment: &Environment) -> Result<()> {
        let touched = |name: &str| {
            let named = |list: &[String]| list.iter().any(|there| there == name);
            changes
                .iter()
                .any(|change| named(&change.add) || named(&change.remove) || change.patch.contains_key(name))
        };
        let there = self.nodes.list(&ListParams::default()).await?.items;
        let there: Vec<String> = there.into_iter().filter_map(|node| node.metadata.name).collect();

        let changed = |name: &&String| touched(name) || !NODES.contains(&name.as_str());
        for name in there.iter().filter(changed) {
            self.nodes.delete(name, &DeleteParams::default()).await?;
        }

        for name in NODES {
            if touched(name) || !there.iter().any(|present| present == name) {
                self.add(name, environment).await?;
            }
        }

        Ok(())
    }

    async fn add(&self, name: &str, environment: &Environment) -> Result<()> {
        let (provider_id, address) = match environment.instance(name) {
            Some(instance) => (Some(instance.provider_id()), instance.private_ip),
            None => (without_instance(name)?, "192.0.2.10".to_owned()),
        };
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"providerID": provider_id},
            "status": {
                "conditions": [ready("True")],
                "addresses": [{"type": "InternalIP", "address": address}],
            },
        });

        let node: Node = serde_json::from_value(node)?;
        let created = self.nodes.create(&PostParams::default(), &node).await;
        created.with_context(|| format!("node {name}")).map(drop)
    }

    /// Creates a Service, and its namespace if it does not exist.
    pub(super) async fn create(&self, manifest: &Value) -> Result<Subject> {
        let namespace = manifest["metadata"]["namespace"].as_str();
        let namespace = namespace.unwrap_or("default").to_owned();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if namespaces.get_opt(&namespace).await?.is_none() {
            let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
            match namespaces.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {} // the API server has created it meanwhile
                Err(error) => return Err(error).with_context(|| format!("namespace {namespace}")),
            }
        }

        let services: Api<Service> = Api::namespaced(self.client.clone(), &namespace);
        let service: Service = serde_json::from_value(manifest.clone()).context("service")?;
        let made = services.create(&PostParams::default(), &service).await;
        let made = made.context("creating the Service")?;

        Ok(Subject {
            services,
            events: Api::namespaced(self.client.clone(), &namespace),
            name: made.metadata.name.unwrap_or_default(),
            uid: made.metadata.uid.unwrap_or_default(),
            namespace,
            no_ops: 0,
        })
    }
}

/// The provider ID of a Node without an instance, by the beginning of its name.
fn without_instance(name: &str) -> Result<Option<String>> {
    match name.split('-').next() {
        Some("bare") => Ok(None),
        Some("fargate") => Ok(Some(format!("aws:///us-east-1a/12345678/{name}"))),
        Some("foreign") => Ok(Some(format!("gce://project/zone/{name}"))),
        _ => bail!("nodes: {name} is unknown; use node-1 to node-7, bare-…, fargate-…, and foreign-…"),
    }
}

impl Subject {
    /// Changes it by a JSON merge patch.
    pub(super) async fn update(&self, patch: &Value) -> Result<()> {
        let (patch, parameters) = (Patch::Merge(patch), PatchParams::default());
        let patched = self.services.patch(&self.name, &parameters, &patch).await;
        patched.context("changing the Service").map(drop)
    }

    pub(super) async fn no_op(&mut self) -> Result<()> {
        self.no_ops += 1;
        let annotations = json!({WITHOUT_EFFECT: self.no_ops.to_string()});
        self.update(&json!({"metadata": {"annotations": annotations}})).await
    }

    /// The Service exists until its finalizers are removed.
    pub(super) async fn delete(&self) -> Result<()> {
        let deleted = self.services.delete(&self.name, &DeleteParams::default()).await;
        deleted.context("deleting the Service").map(drop)
    }

    /// Deletes it, and its finalizers, before the next case.
    pub(super) async fn remove(&self) -> Result<()> {
        if self.read().await?.is_some() {
            self.delete().await?;
        }

        if self.read().await?.is_some() {
            self.update(&json!({"metadata": {"finalizers": null}})).await?;
        }

        let all = DeleteParams::default();
        self.events.delete_collection(&all, &ListParams::default()).await?;

        Ok(())
    }

    async fn read(&self) -> Result<Option<Service>> {
        let there = self.services.get_opt(&self.name).await?;
        Ok(there.filter(|service| service.metadata.uid.as_deref() == Some(&self.uid)))
    }

    /// The fields that a controller writes; none for a deleted Service.
    pub(super) async fn state(&self, names: &Names) -> Result<Option<ServiceState>> {
        let Some(service) = self.read().await? else {
            return Ok(None);
        };

        let status = service.status.and_then(|status| status.load_balancer);
        let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
        let ingress = ingress
            .iter()
            .map(|ingress| Ok(names.name(&serde_json::to_value(ingress)?)));

        Ok(Some(ServiceState {
            finalizers: service.metadata.finalizers.unwrap_or_default(),
            ingress: ingress.collect::<Result<_>>()?,
        }))
    }

    /// All Events about it.
    pub(super) async fn events(&self) -> Result<Events> {
        let mut events = Events::new();
        for event in self.events.list(&ListParams::default()).await?.items {
            if event.involved_object.uid.as_deref() != Some(&self.uid) {
                continue;
            }

            let series = event.series.as_ref().and_then(|series| series.count);
            let count = series.or(event.count).unwrap_or(1).max(1);
            let source = event.source.as_ref().and_then(|source| source.component.clone());
            let component = source.or(event.reporting_component).unwrap_or_default();
            if component == ADDRESS_REPAIR {
                continue;
            }

            let event = Event {
                kind: event.type_.unwrap_or_default(),
                reason: event.reason.unwrap_or_default(),
                component,
                message: event.message.unwrap_or_default(),
            };

            *events.entry(event).or_default() += count;
        }

        Ok(events)
    }
}
