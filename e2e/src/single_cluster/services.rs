//! Services that a test makes and changes, what a manager does and tells about them, and their resources at AWS.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{CLUSTER, Manager, SingleCluster};
use outrigger_aws_sim::Call;
use outrigger_parity::services::{Names, account};

/// Pause between two reads of the recorded calls.
const LOOK: Duration = Duration::from_millis(50);
/// So many passes are observed.
const PASSES: usize = 6;
/// How many calls may be on their way longer than others.
const LATE: f64 = 3.0;
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEvent {
    pub service: String,
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

    /// The next calls to AWS, which are one in each pass of a controller. The record of the calls decides, so that neither
    /// a slow test nor a slow manager counts.
    ///
    /// # Errors
    /// When there are more calls, or none.
    pub async fn idle_passes(&self, manager: &Manager, period: Duration) -> Result<Vec<Call>> {
        let mark = self.proxy.mark();
        let enough = async || self.proxy.calls_since(mark).len() >= PASSES;
        manager.until("calls of idle passes", LIMIT, enough).await?;

        let calls = self.proxy.calls_since(mark);
        let offsets: Vec<Duration> = calls.iter().map(|call| call.offset).collect();
        ensure!(
            is_one_per_pass(&offsets, period),
            "more than one in {period:?}: {calls:#?}"
        );
        Ok(calls)
    }

    /// All load balancers, target groups and security groups of the account, not only those that someone asks about,
    /// and of the Services what a controller writes. Names replace the IDs that AWS generates, so that two runs can be
    /// compared.
    ///
    /// # Errors
    /// When AWS refuses a call: something went between two of them.
    pub async fn read_account(&self, services: &[Service]) -> Result<Value> {
        let mut names = Names::default();
        for instance in &self.account.instances {
            names.learn(&instance.id, instance.private_dns_name.clone());
        }

        for subnet in &self.account.subnets {
            names.learn(&subnet.id, format!("subnet {}", subnet.zone));
        }

        for Service { metadata, .. } in services {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
            let which = format!(" of {name}");
            names.learn_service_as(&which, CLUSTER, &namespace, &name, &text(&metadata.uid));
        }

        let aws = account::read(&self.proxy, &mut names).await?;
        let services: Vec<Value> = services.iter().map(|service| names.name(&written(service))).collect();
        Ok(json!({"aws": aws, "services": services}))
    }

    fn services(&self) -> Api<Service> {
        Api::default_namespaced(self.client.clone())
    }
}

#[must_use]
pub fn has_address(service: &Service) -> bool {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    status.is_some_and(|ingress| !ingress.is_empty())
}

fn is_one_per_pass(offsets: &[Duration], period: Duration) -> bool {
    let (first, last) = (offsets.iter().min(), offsets.iter().max());
    let took = first.zip(last).map_or(Duration::ZERO, |(first, last)| *last - *first);
    let most = took.as_secs_f64() / period.as_secs_f64() + LATE;
    u32::try_from(offsets.len()).is_ok_and(|count| f64::from(count) <= most)
}

fn written(service: &Service) -> Value {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    json!({
        "finalizers": service.metadata.finalizers,
        "deleted": service.metadata.deletion_timestamp.is_some(),
        "ingress": status.and_then(|status| status.ingress.as_ref()),
    })
}

/// Where two values differ: one line for each place, with what stands there.
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", Some(expected), Some(actual), &mut found);
    found
}

fn compare(path: &str, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<String>) {
    if let (Some(Value::Object(a)), Some(Value::Object(b))) = (expected, actual) {
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for key in keys {
            compare(&format!("{path}/{key}"), a.get(key), b.get(key), found);
        }
        return;
    }
    if expected != actual {
        let told = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        found.push(format!("{path}: expected {}, found {}", told(expected), told(actual)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{differences, is_one_per_pass};

    #[test]
    fn two_calls_in_each_pass_are_too_many_and_late_ones_are_not() {
        let is_one = |offsets: [u64; 6]| is_one_per_pass(&offsets.map(Duration::from_secs), Duration::from_secs(2));
        assert!(is_one([0, 2, 4, 6, 8, 10]));
        assert!(is_one([4, 4, 4, 6, 8, 10]), "two come late");
        assert!(!is_one([0, 0, 2, 2, 4, 4]));
    }

    #[test]
    fn a_difference_is_told_by_its_place() {
        let expected = json!({"a": {"b": 1, "c": [1, 2]}, "gone": true});
        let actual = json!({"a": {"b": 1, "c": [1, 3]}, "new": null});
        assert_eq!(
            differences(&expected, &actual),
            [
                "/a/c: expected [1,2], found [1,3]",
                "/gone: expected true, found nothing",
                "/new: expected nothing, found null",
            ]
        );
        assert!(differences(&actual, &actual).is_empty());
    }
}
