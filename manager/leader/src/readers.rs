//! Reads the evidence: the migration object, and every kube-controller-manager that can be read.
//!
//! The state always comes from a complete list; watches only trigger the next list. So a missed event delays the state by
//! seconds and never makes it wrong.

use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use outrigger_shared::annotations;
use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::{Form, controller_manager_command_line};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::{self, LeaderMigrationConfiguration, Placement};
use outrigger_shared::migration::{CloudProviderMigration, Profile, Selected, Target};
use outrigger_shared::phase_flags::flag;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::evidence::{Configuration, ControllerManager, ControllerManagers, Reading};
use crate::gate::MigrationSpec;
use crate::object_watch;

/// The period of lists without an event.
const LIST_AGAIN: Duration = Duration::from_secs(10);
/// Time limit of all lists of one pass together.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long events are collected before the next pass.
const SETTLE: Duration = Duration::from_millis(250);

/// The settings that the migration object must agree with.
#[derive(Debug, Clone)]
pub struct Own {
    /// The cluster's ID in AWS tags.
    pub cluster_id: String,
    /// The migration lease's name.
    pub lease: String,
    /// The name of this manager's main lease.
    pub main_lease: String,
}

impl Own {
    /// Why the object says nothing about this manager's cluster and leases, with the fix.
    fn disagreement(&self, object: &CloudProviderMigration) -> Option<String> {
        let (name, spec) = (object.name_any(), &object.spec);
        if spec.cluster_id != self.cluster_id {
            return Some(format!(
                "CloudProviderMigration {name} is of cluster {:?} by spec.clusterID, and this manager's cluster is {:?}: correct --migration, or --cluster-name and the cloud configuration",
                spec.cluster_id, self.cluster_id
            ));
        }

        let main = &spec.kube_controller_manager_lease;
        if *main == self.lease || *main == self.main_lease {
            return Some(format!(
                "CloudProviderMigration {name}: spec.kubeControllerManagerLease is {main:?}, which this manager uses for itself: set it to the main lease of the kube-controller-manager"
            ));
        }
        let theirs = spec.leader_migration.as_ref().map(|theirs| &theirs.leader_name);
        theirs.filter(|theirs| **theirs != self.lease).map(|theirs| {
            format!(
                "CloudProviderMigration {name}: spec.leaderMigration.leaderName is {theirs:?}, and this manager's migration lease is {:?}: give both the same name",
                self.lease
            )
        })
    }
}

/// Follows the migration object `name`. Deleted, forbidden, unreachable and one that disagrees with `own` are all
/// [`Reading::Unreadable`]. Without `own`, nothing is compared.
#[must_use]
pub fn follow_migration(
    client: Client,
    name: &str,
    own: Option<Own>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<CloudProviderMigration>> {
    let (tx, rx) = watch::channel(Reading::Pending);
    let api: Api<CloudProviderMigration> = Api::all(client);
    let name = name.to_owned();

    tokio::spawn(async move {
        let start = || watcher::watch_object(api.clone(), &name);
        let pass = |event| {
            let reading = match event {
                Ok(Some(object)) => match own.as_ref().and_then(|own| own.disagreement(&object)) {
                    Some(why) => Reading::Unreadable(why),
                    None => Reading::Known(object),
                },
                Ok(None) => Reading::Unreadable(format!("there is no CloudProviderMigration {name}")),
                Err(error) => Reading::Unreadable(format!("CloudProviderMigration {name} cannot be read: {error}")),
            };
            if let Reading::Unreadable(why) = &reading {
                tx.send_if_modified(|old| {
                    let changed = *old != reading;
                    if changed {
                        tracing::error!(why, "cannot read the CloudProviderMigration; keeping current leases and following the phase of the latch");
                        *old = reading.clone();
                    }
                    changed
                });
            } else {
                tx.send_replace(reading);
            }
        };
        object_watch::follow(start, stop, pass).await;
    });

    rx
}

/// The part of the object that the gate needs, kept current.
#[must_use]
pub fn follow_spec(
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<MigrationSpec>> {
    let (tx, rx) = watch::channel(spec_of(&migration.borrow()));
    tokio::spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(migration.changed()).await {
            let next = spec_of(&migration.borrow());
            tx.send_if_modified(|old| {
                *old != next && {
                    *old = next;
                    true
                }
            });
        }
    });

    rx
}

fn spec_of(reading: &Reading<CloudProviderMigration>) -> Reading<MigrationSpec> {
    match reading {
        Reading::Pending => Reading::Pending,
        Reading::Unreadable(why) => Reading::Unreadable(why.clone()),
        Reading::Known(object) => Reading::Known(MigrationSpec {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            phase: object.spec.phase,
            attested_phase: object.spec.attested_phase,
        }),
    }
}

/// Where to list kube-controller-managers.
#[derive(Debug, Clone, PartialEq)]
struct Location {
    /// The target of a hosted control plane; `None` for the cluster itself.
    target: Option<Target>,
    objects: Selector,
}

/// Follows every kube-controller-manager that can be read: in the hosted control planes that the migration's targets
/// name, else the mirror Pods in the cluster's own kube-system. After the object is deleted, its last targets are still
/// observed. `lease` is the migration lease's name.
#[must_use]
pub fn follow_controller_managers(
    management: Client,
    cluster: Client,
    lease: &str,
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<ControllerManagers> {
    let (tx, rx) = watch::channel(ControllerManagers::default());
    let lister = Lister {
        management,
        cluster,
        lease: lease.to_owned(),
    };
    tokio::spawn(async move {
        let mut wake = Wake::default();
        let mut targets = None;
        let mut places = Places::new();
        while !stop.is_cancelled() {
            let object = migration.borrow_and_update().clone();
            if let Reading::Known(object) = &object {
                targets = Some(object.spec.targets.clone());
            }

            let reading = match (&targets, object) {
                (Some(targets), _) => {
                    let problems = lister.update(&mut places, targets).await;
                    wake.watch(&places);
                    Some(all_of(&places, problems))
                }
                (None, Reading::Unreadable(why)) => Some(ControllerManagers {
                    read: true,
                    seen: Vec::new(),
                    unreadable: vec![format!("the object that names them is unreadable: {why}")],
                }),
                (None, _) => None,
            };
            if let Some(reading) = reading {
                tx.send_if_modified(|old| {
                    *old != reading && {
                        *old = reading;
                        true
                    }
                });
            }

            tokio::select! {
                () = stop.cancelled() => {}
                Ok(()) = migration.changed() => {}
                () = wake.next() => wake.settle().await,
                () = sleep(LIST_AGAIN) => {}
            }
        }
    });

    rx
}

/// A namespace with the selector of its kube-controller-managers, and what its last list had.
struct Place {
    client: Client,
    namespace: String,
    objects: Selector,
    seen: Vec<ControllerManager>,
    /// Why it cannot be listed now.
    problem: Option<String>,
}

type Places = Vec<Place>;

fn all_of(places: &Places, mut unreadable: Vec<String>) -> ControllerManagers {
    let mut seen: Vec<ControllerManager> = places.iter().flat_map(|place| place.seen.clone()).collect();
    seen.sort_by(|a, b| a.object.cmp(&b.object));
    seen.dedup_by(|a, b| a.object == b.object);

    let problems = places.iter().filter_map(|place| Some((place, place.problem.as_ref()?)));
    unreadable.extend(problems.map(|(place, why)| format!("Namespace {}: {why}", place.namespace)));

    ControllerManagers {
        read: true,
        seen,
        unreadable,
    }
}

/// Watches of Pods that trigger the next pass.
#[derive(Default)]
struct Wake {
    locations: Vec<(String, Selector)>,
    events: SelectAll<BoxStream<'static, ()>>,
}

impl Wake {
    fn watch(&mut self, places: &Places) {
        let locations = || places.iter().map(|place| (&place.namespace, &place.objects));
        if locations().eq(self.locations.iter().map(|(name, objects)| (name, objects))) {
            return;
        }

        self.locations = locations()
            .map(|(name, objects)| (name.clone(), objects.clone()))
            .collect();
        self.events = SelectAll::new();
        for place in places {
            let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(place.client.clone(), &place.namespace);
            let config = watcher::Config::default().labels_from(&place.objects);
            let events = watcher(pods, config).default_backoff();
            let changes = events.filter_map(|event| std::future::ready(event.ok().and_then(is_change)));
            self.events.push(changes.boxed());
        }
    }

    async fn next(&mut self) {
        if self.events.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Collects events that follow each other closely, such as those of a rollout, into one pass.
    async fn settle(&mut self) {
        let end = Instant::now() + SETTLE;
        while timeout_at(end, self.next()).await.is_ok() {}
    }
}

/// `Some` for an event after which a list may have another result. The initial Pods were just listed; `InitDone` covers
/// changes since then.
fn is_change<T>(event: watcher::Event<T>) -> Option<()> {
    match event {
        watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone => Some(()),
        watcher::Event::Init | watcher::Event::InitApply(_) => None,
    }
}

/// Lists kube-controller-managers.
struct Lister {
    management: Client,
    cluster: Client,
    /// The migration lease's name, which a configuration file must have.
    lease: String,
}

impl Lister {
    /// Lists every place. Returns what keeps places from being found; a place that cannot be listed keeps what its last
    /// list had, and the reason.
    async fn update(&self, places: &mut Places, targets: &[Target]) -> Vec<String> {
        let deadline = Instant::now() + READ_TIMEOUT;
        let found = in_time(deadline, self.find(targets)).await;
        let problems = match found {
            Ok(found) => {
                let old = std::mem::replace(places, found);
                for place in places.iter_mut() {
                    let same = |old: &&Place| old.namespace == place.namespace && old.objects == place.objects;
                    place.seen = old.iter().find(same).map_or(Vec::new(), |old| old.seen.clone());
                }
                Vec::new()
            }
            Err(error) => vec![error.to_string()],
        };

        for place in places {
            match in_time(deadline, self.list(place)).await {
                Ok(seen) => (place.seen, place.problem) = (seen, None),
                Err(error) => place.problem = Some(error.to_string()),
            }
        }

        problems
    }

    async fn find(&self, targets: &[Target]) -> Result<Places, ReadError> {
        let mut places = Places::new();
        for location in locations(targets)? {
            let client = match location.target {
                Some(_) => &self.management,
                None => &self.cluster,
            };
            for namespace in namespaces_of(client, &location).await? {
                places.push(Place {
                    client: client.clone(),
                    namespace,
                    objects: location.objects.clone(),
                    seen: Vec::new(),
                    problem: None,
                });
            }
        }

        Ok(places)
    }

    async fn list(&self, place: &Place) -> Result<Vec<ControllerManager>, ReadError> {
        let mut seen = Vec::new();
        let kinds = [
            ("Pod", ApiResource::erase::<Pod>(&())),
            ("Deployment", ApiResource::erase::<Deployment>(&())),
            ("StatefulSet", ApiResource::erase::<StatefulSet>(&())),
            ("DaemonSet", ApiResource::erase::<DaemonSet>(&())),
        ];

        for (kind, resource) in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.namespace, &resource);
            let list = api.list(&ListParams::default().labels_from(&place.objects)).await?;
            let found = list.items.iter();
            seen.extend(found.filter_map(|object| controller_manager_of(kind, object, &self.lease)));
        }

        Ok(seen)
    }
}

async fn in_time<T>(deadline: Instant, read: impl Future<Output = Result<T, ReadError>>) -> Result<T, ReadError> {
    let answer = timeout_at(deadline, read).await;
    answer.unwrap_or(Err(ReadError::TimedOut(READ_TIMEOUT)))
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("a selector of spec.targets is invalid: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
    #[error("{0}")]
    Request(#[from] kube::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

fn locations(targets: &[Target]) -> Result<Vec<Location>, ReadError> {
    let mut locations = Vec::new();
    for target in targets
        .iter()
        .filter(|target| target.profile == Profile::HostedControlPlane)
    {
        if target.selects_nothing() {
            continue;
        }

        let objects = target.object_selector.clone();
        locations.push(Location {
            target: Some(target.clone()),
            objects: objects.map_or(Ok(Selector::default()), Selector::try_from)?,
        });
    }

    if !targets
        .iter()
        .any(|target| target.profile == Profile::HostedControlPlane)
    {
        // kubeadm and RKE2 use the first label, kOps and most self-hosted control planes the second.
        for key in ["component", "k8s-app"] {
            locations.push(Location {
                target: None,
                objects: [(key, "kube-controller-manager")].into_iter().collect(),
            });
        }
    }

    Ok(locations)
}

async fn namespaces_of(client: &Client, location: &Location) -> Result<Vec<String>, kube::Error> {
    let Some(target) = &location.target else {
        return Ok(vec!["kube-system".to_owned()]);
    };

    let found = Api::<Namespace>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await?;
    let selected = |namespace: &&PartialObjectMeta<Namespace>| {
        target.selects_namespace(&namespace.name_any(), Some(namespace.labels()), None) == Selected::Yes
    };
    Ok(found.items.iter().filter(selected).map(ResourceExt::name_any).collect())
}

/// The kube-controller-manager of an object, unless it is scaled to zero or has ended.
fn controller_manager_of(kind: &str, object: &DynamicObject, lease: &str) -> Option<ControllerManager> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let is_pod = kind == "Pod";
    let (pod_spec, annotations) = if is_pod {
        let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        let annotations = object.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(annotations::LEADER_MIGRATION).cloned());
        (!over).then_some((spec, text))?
    } else {
        let stopped = kind != "DaemonSet" && spec["replicas"].as_i64() == Some(0);
        let template = &spec["template"];
        let text = template["metadata"]["annotations"][annotations::LEADER_MIGRATION].as_str();
        (!stopped).then_some((&template["spec"], text.map(str::to_owned)))?
    };

    let line = controller_manager_command_line(pod_spec)?;
    let mut form = match &line {
        Ok(line) => Form::of_command_line(line),
        Err(reason) => Form::Unreadable { reason: reason.clone() },
    };
    // Pods of an older template may still run until the rollout is complete. A template without leader migration blocks
    // in any case.
    let guarded = !matches!(
        form,
        Form::InTree {
            leader_migration: false
        }
    );

    if guarded && !is_pod && !is_rolled_out(kind, object) {
        form = Form::Unreadable {
            reason: "its rollout is not complete, so Pods of an older template may still run: wait for it".into(),
        };
    }

    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some(ControllerManager {
        object: format!("{kind} {namespace}/{}", object.name_any()),
        host_names: if is_pod { host_names(object) } else { Vec::new() },
        form,
        configuration: line.as_ref().map_or(Configuration::BuiltIn, |line| {
            configuration(line, annotations.as_deref(), lease)
        }),
        routes: line.is_ok_and(|line| runs_routes(&line)),
        running: is_pod,
    })
}

/// The host names that the process of a Pod may have: its Node's, or the Pod's own, which the kubelet cuts at 63
/// characters. An instance whose Node is named by its ID has a host name of its address
/// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-naming.html>).
fn host_names(pod: &DynamicObject) -> Vec<String> {
    let (spec, status) = (&pod.data["spec"], &pod.data["status"]);
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    if spec["hostNetwork"].as_bool() == Some(true) {
        let by_address = text(&status["hostIP"]).map(|ip| format!("ip-{}", ip.replace('.', "-")));
        return [text(&spec["nodeName"]), by_address].into_iter().flatten().collect();
    }

    let name: String = pod.name_any().chars().take(63).collect();
    [text(&spec["hostname"]), Some(name)].into_iter().flatten().collect()
}

/// Whether the leader migration configuration of a command line guards every shared controller by the lease, as far as
/// Kubernetes shows the file. `annotation` is the text of the file that the Pod brings.
fn configuration(line: &CommandLine, annotation: Option<&str>, lease: &str) -> Configuration {
    let path = match line.value(flag::LEADER_MIGRATION_CONFIG) {
        Ok(None) => return Configuration::BuiltIn,
        Ok(Some(path)) if path.is_empty() => return Configuration::BuiltIn,
        Ok(Some(path)) => path,
        Err(error) => return Configuration::Unproven(error.to_string()),
    };
    let Some(text) = annotation.filter(|_| path == leader_migration::FILE) else {
        return Configuration::Unproven(format!(
            "it names its own leader migration file {path:?}, whose content Kubernetes does not show"
        ));
    };

    let loaded = match LeaderMigrationConfiguration::from_text(&path, text) {
        Ok(loaded) => loaded.config,
        Err(error) => return Configuration::Unproven(error.to_string()),
    };
    if loaded.leader_name != lease {
        return Configuration::Unproven(format!(
            "its leader migration file names the lease {:?}, and this manager's is {lease:?}",
            loaded.leader_name
        ));
    }
    let unguarded = Controller::SHARED
        .into_iter()
        .find(|controller| loaded.placement(*controller, Party::KubeControllerManager) != Placement::Migrated);

    match unguarded {
        Some(controller) => Configuration::Unproven(format!("its leader migration file does not guard {controller}")),
        None => Configuration::OfMigration,
    }
}

/// In-tree, the route controller needs both flags
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kube-controller-manager/app/core.go>).
fn runs_routes(line: &CommandLine) -> bool {
    let on = |flag, default| line.boolean(flag).ok().flatten().unwrap_or(default);
    on(flag::ALLOCATE_NODE_CIDRS, false) && on(flag::CONFIGURE_CLOUD_ROUTES, true)
}

/// Whether the workload's status says that every Pod has the current template.
fn is_rolled_out(kind: &str, object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let current = status["observedGeneration"].as_i64() >= object.metadata.generation;
    let (all, updated) = match kind {
        "DaemonSet" => ("desiredNumberScheduled", "updatedNumberScheduled"),
        _ => ("replicas", "updatedReplicas"),
    };
    let wanted = object.data["spec"]["replicas"].as_i64().unwrap_or(1);
    let complete = kind == "DaemonSet" || count(updated) >= wanted;

    current && complete && count(updated) == count(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LEASE: &str = leader_migration::DEFAULT_LEADER_NAME;

    fn object(data: Value) -> DynamicObject {
        let mut object = DynamicObject::new("kcm", &ApiResource::erase::<Pod>(&())).within("tenant");
        object.data = data;
        object
    }

    fn container(flags: &[&str]) -> Value {
        let mut command = vec!["kube-controller-manager", "--cloud-provider=aws"];
        command.extend(flags);
        json!({"containers": [{"name": "kube-controller-manager", "image": "kube-controller-manager:v1.26.13", "command": command}]})
    }

    #[test]
    fn a_finished_pod_and_a_workload_without_replicas_run_nothing() {
        let pod = |phase: &str| object(json!({"spec": container(&[]), "status": {"phase": phase}}));
        assert!(controller_manager_of("Pod", &pod("Succeeded"), LEASE).is_none());
        let seen = controller_manager_of("Pod", &pod("Pending"), LEASE).unwrap();
        assert!(seen.running && seen.is_unguarded());
        assert_eq!(seen.object, "Pod tenant/kcm");
        let workload = |replicas: i64| {
            object(json!({
                "spec": {"replicas": replicas, "template": {"spec": container(&["--enable-leader-migration"])}},
                "status": {"replicas": replicas, "updatedReplicas": replicas},
            }))
        };
        assert!(controller_manager_of("Deployment", &workload(0), LEASE).is_none());
        let seen = controller_manager_of("Deployment", &workload(1), LEASE).unwrap();
        assert_eq!(
            (seen.running, seen.form),
            (false, Form::InTree { leader_migration: true })
        );
    }

    #[test]
    fn an_empty_selector_of_a_hosted_profile_matches_nothing() {
        let target = |namespaces| Target {
            profile: Profile::HostedControlPlane,
            namespace_selector: namespaces,
            object_selector: None,
        };
        assert!(locations(&[target(None)]).unwrap().is_empty());
        assert!(locations(&[target(Some(Default::default()))]).unwrap().is_empty());
        assert!(locations(&[]).unwrap()[0].target.is_none());
    }

    #[test]
    fn a_template_counts_as_what_runs_only_when_no_older_pod_is_left() {
        let workload = |flags: &[&str], generation: i64, status: Value| {
            let mut workload =
                object(json!({"spec": {"replicas": 2, "template": {"spec": container(flags)}}, "status": status}));
            workload.metadata.generation = Some(generation);
            controller_manager_of("Deployment", &workload, LEASE).unwrap().form
        };
        let guarded = ["--enable-leader-migration"];
        let status =
            |all: i64, updated: i64| json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated});
        assert_eq!(
            workload(&guarded, 2, status(2, 2)),
            Form::InTree { leader_migration: true }
        );
        for (generation, status) in [(2, status(3, 2)), (2, status(2, 1)), (2, json!({})), (3, status(2, 2))] {
            let form = workload(&guarded, generation, status.clone());
            assert!(matches!(form, Form::Unreadable { .. }), "{generation} {status}");
        }
        let unguarded = workload(&[], 3, json!({}));
        assert_eq!(
            unguarded,
            Form::InTree {
                leader_migration: false
            }
        );
    }

    #[test]
    fn an_object_of_another_cluster_or_with_our_lease_says_nothing_about_us() {
        let own = Own {
            cluster_id: "prod".into(),
            lease: LEASE.into(),
            main_lease: "cloud-controller-manager".into(),
        };
        let disagreement = |changes: Value| {
            let mut spec = json!({"clusterID": "prod", "phase": "Prepare", "targets": []});
            for (key, value) in changes.as_object().unwrap() {
                spec[key] = value.clone();
            }
            own.disagreement(&serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": spec})).unwrap())
        };
        let names = |name: &str| json!({"leaderMigration": {"leaderName": name, "controllerLeaders": []}});

        assert_eq!(disagreement(json!({})), None);
        assert_eq!(disagreement(names(LEASE)), None);
        for (changes, text) in [
            (json!({"clusterID": "test"}), r#"cluster is "prod""#),
            (
                json!({"kubeControllerManagerLease": LEASE}),
                "spec.kubeControllerManagerLease",
            ),
            (
                json!({"kubeControllerManagerLease": own.main_lease}),
                "spec.kubeControllerManagerLease",
            ),
            (names("other"), "spec.leaderMigration.leaderName"),
        ] {
            let why = disagreement(changes.clone()).unwrap_or_default();
            assert!(why.contains(text), "{changes}: {why}");
        }
    }

    #[test]
    fn what_is_there_at_the_start_wakes_the_reader_once() {
        use watcher::Event;
        let events = [Event::Init, Event::InitApply(1), Event::InitApply(2), Event::InitDone];
        assert_eq!(events.into_iter().filter_map(is_change).count(), 1);
    }
}
