//! Services that a test makes and changes, and what a manager does and tells about them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Manager, SingleCluster};
use outrigger_aws_sim::Call;

/// Pause between two reads of the recorded calls.
const LOOK: Duration = Duration::from_millis(50);

/// An Event on a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEvent {
    /// The Service's name.
    pub service: String,
    /// Whether it is a Warning.
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// When first; in whole seconds, as the API keeps it.
    pub at: Timestamp,
    pub count: i32,
}

impl SingleCluster {
    /// Makes a Service of type `LoadBalancer` in the namespace `default`. `annotations` are those of load balancers on
    /// AWS, without what all of them begin with; `spec` is the rest of its spec.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_service(&self, name: &str, annotations: &[(&str, &str)], spec: &Value) -> Result<Service> {
        let full = |(key, value): &(&str, &str)| {
            let key = format!("service.beta.kubernetes.io/aws-load-balancer-{key}");
            (key, (*value).into())
        };
        let annotations: serde_json::Map<String, Value> = annotations.iter().map(full).collect();
        let mut service = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}},
        });

        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }

        let service = serde_json::from_value(service)?;
        let created = self.services().create(&PostParams::default(), &service).await;
        created.with_context(|| format!("creating the Service {name}"))
    }

    /// Changes a Service by a merge patch.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn patch_service(&self, name: &str, patch: &Value) -> Result<()> {
        let (services, patch) = (self.services(), Patch::Merge(patch));
        let patched = services.patch(name, &PatchParams::default(), &patch).await;
        patched
            .map(drop)
            .with_context(|| format!("changing the Service {name}"))
    }

    /// The Services of the namespace `default` that want a load balancer.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn list_services(&self) -> Result<Vec<Service>> {
        let mut all = self.services().list(&ListParams::default()).await?.items;
        let kind = |service: &Service| service.spec.as_ref()?.type_.clone();
        all.retain(|service| kind(service).as_deref() == Some("LoadBalancer"));
        Ok(all)
    }

    /// Waits until so many Services have an address.
    ///
    /// # Errors
    /// When the manager ends, or the time is over.
    pub async fn served(&self, count: usize, manager: &Manager, within: Duration) -> Result<()> {
        let what = format!("addresses of {count} Services");
        let addressed = async || {
            let services = self.list_services().await?;
            let done = services.iter().filter(|service| has_address(service)).count();
            ensure!(done >= count, "{done} have one");
            anyhow::Ok(())
        };
        manager.until(&what, within, addressed).await
    }

    /// Waits until a manager has called AWS since `mark` in a way that `counts`, and then nobody does for `long`.
    ///
    /// # Errors
    /// When the manager ends, or the time is over.
    pub async fn silence(
        &self,
        manager: &Manager,
        mark: u64,
        (long, within): (Duration, Duration),
        counts: impl Fn(&Call) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let calls = self.proxy.calls_since(mark);
            let mut own = calls.iter().filter(|call| call.caller == manager.name());
            if calls.len() != seen || calls.iter().any(|call| call.outcome.is_none()) {
                (seen, since) = (calls.len(), Instant::now());
            }

            if since.elapsed() >= long && own.any(&counts) {
                return Ok(());
            }

            manager.alive()?;
            ensure!(
                Instant::now() < deadline,
                "{} asks nothing, or never stops:\n{}",
                manager.name(),
                manager.log_tail()
            );
            sleep(LOOK).await;
        }
    }

    /// All Events on Services, each Service's in the order in which they were told.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn service_events(&self) -> Result<Vec<ServiceEvent>> {
        let api = Api::<Event>::default_namespaced(self.client.clone());
        let events = api.list(&ListParams::default()).await?.items;
        let told = |event: Event| {
            let about = event.involved_object;
            let of_service = about.kind.as_deref() == Some("Service");
            of_service.then_some(ServiceEvent {
                service: about.name?,
                warning: event.type_.as_deref() == Some("Warning"),
                reason: event.reason?,
                message: event.message?,
                at: event.first_timestamp?.0,
                count: event.count.unwrap_or(1),
            })
        };

        // The API server lists by name, and an Event's name ends with its time.
        Ok(events.into_iter().filter_map(told).collect())
    }

    fn services(&self) -> Api<Service> {
        Api::default_namespaced(self.client.clone())
    }
}

/// Whether a Service has an address.
#[must_use]
pub fn has_address(service: &Service) -> bool {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    status.is_some_and(|ingress| !ingress.is_empty())
}
