//! Reads one kube-controller-manager from a Pod or a workload, and says which mirror Pods are believed.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, Selector, SelectorExt};
use outrigger_shared::annotations;
use outrigger_shared::command_line::{CommandLine, Flag};
use outrigger_shared::component::{self, Component, Finding, Form, controller_manager_command_line};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::{self, LeaderMigrationConfiguration, Placement};
use outrigger_shared::migration::{DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE, KUBE_SYSTEM};
use outrigger_shared::phase_flags::{self, flag, runs_node_ipam};
use serde_json::Value;

use crate::facts::{Configuration, ControllerManager, Lock};

const RESOURCE_NAME: &str = "leader-elect-resource-name";
const RESOURCE_NAMESPACE: &str = "leader-elect-resource-namespace";
const RESOURCE_LOCK: &str = "leader-elect-resource-lock";

/// The role labels of control-plane Nodes: of kubeadm, kOps and RKE2, of their older versions, and of RKE1. A kubelet cannot
/// set a label of `node-role.kubernetes.io` on its own Node.
pub const CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
];

/// The kinds of objects that have the command line of a kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Pod,
    Deployment,
    StatefulSet,
    DaemonSet,
}

impl ObjectKind {
    pub const ALL: [Self; 4] = [Self::Pod, Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    pub fn resource(self) -> ApiResource {
        match self {
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Self::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        }
    }
}

/// The leases by which the kube-controller-managers have to elect their leader.
#[derive(Debug, Clone)]
pub struct Locks {
    /// The namespace of all leases.
    pub namespace: String,
    /// The name of lease K.
    pub main: String,
    /// The name of lease M, which a configuration file must have.
    pub migration: String,
}

/// Why a mirror Pod of this Node is not believed: any kubelet can create one in any namespace, with any name, labels and
/// command line. NodeRestriction protects only its Node's name and the role labels of that Node
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/plugin/pkg/admission/noderestriction/admission.go#L198>).
/// `labels`: of the Node, if it exists.
pub fn why_not_of_control_plane(node: &str, labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    let is_control_plane = labels.is_some_and(|labels| CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)));
    (!is_control_plane).then(|| {
        format!(
            "it is a mirror Pod of Node {node:?}, which has no control-plane role, so it is ignored; if that Node is one of the control plane: kubectl label node {node} {}=",
            CONTROL_PLANE[0]
        )
    })
}

/// In-tree and without leader migration.
const UNGUARDED: Form = Form::InTree {
    leader_migration: false,
};

/// The kube-controller-manager of an object, unless it is scaled to zero or has ended. `listed` is the selector of the
/// list that has the object.
pub fn controller_manager_of(
    kind: ObjectKind,
    object: &DynamicObject,
    listed: &Selector,
    locks: &Locks,
) -> Option<ControllerManager> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let is_pod = kind == ObjectKind::Pod;
    let (pod_spec, annotations) = if is_pod {
        let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        let annotations = object.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(annotations::LEADER_MIGRATION).cloned());
        (!over).then_some((spec, text))?
    } else {
        let stopped = kind != ObjectKind::DaemonSet && spec["replicas"].as_i64() == Some(0);
        let template = &spec["template"];
        let text = template["metadata"]["annotations"][annotations::LEADER_MIGRATION].as_str();
        (!stopped).then_some((&template["spec"], text.map(str::to_owned)))?
    };

    let line = controller_manager_command_line(pod_spec)?;
    let fatal = line.as_ref().ok().and_then(|line| fatal(pod_spec, line));
    let does_not_start = fatal.is_some();
    let of_line = match (&line, fatal) {
        (Ok(line), None) => Form::of_command_line(line),
        (Ok(_), Some(reason)) => Form::Unreadable { reason },
        (Err(reason), _) => Form::Unreadable { reason: reason.clone() },
    };
    let configuration = line.as_ref().map_or(Configuration::BuiltIn, |line| {
        configuration(line, annotations.as_deref(), &locks.migration)
    });
    let node_ipam = line.as_ref().map_or(Placement::NotHere, |line| {
        node_ipam(line, &of_line, &configuration, annotations.as_deref())
    });
    let mut form = of_line;
    // Pods of an older template may still run until the rollout is complete. A template without leader migration blocks
    // in any case.
    let rolling_out = form != UNGUARDED && !is_pod && !is_rolled_out(kind, object);
    if rolling_out {
        form = Form::Unreadable {
            reason: format!(
                "its rollout is not complete, so Pods of an older template may still run: {}",
                end_of_rollout(object)
            ),
        };
    }

    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let has_unlisted_pods = !is_pod && has_unlisted_pods(kind, object, listed);
    Some(ControllerManager {
        object: format!("{kind:?} {namespace}/{}", object.name_any()),
        host_names: if is_pod { host_names(object) } else { Vec::new() },
        host_prefix: has_unlisted_pods.then(|| format!("{}-", object.name_any())),
        form,
        lock: line.as_ref().map_or(Lock::Main, |line| lock(line, locks)),
        configuration,
        disabled: line.as_ref().map_or_else(|_| Vec::new(), disabled),
        routes: line.is_ok_and(|line| runs_routes(&line)),
        node_ipam,
        running: is_pod || has_unlisted_pods,
        must_change: rolling_out || does_not_start,
        current: true,
    })
}

/// The object by which it elects its leader. With `endpointsleases` and `configmapsleases` it also writes the Lease
/// (<https://github.com/kubernetes/client-go/blob/v0.26.13/tools/leaderelection/resourcelock/multilock.go>).
fn lock(line: &CommandLine, locks: &Locks) -> Lock {
    let value = |name| line.value(Flag::text(name)).ok().flatten();
    if line.boolean(flag::LEADER_ELECT).ok().flatten() == Some(false) {
        return Lock::Other("--leader-elect=false".into());
    }

    let differs = |name, expected: &[&str]| {
        let value = value(name).filter(|value| !expected.contains(&value.as_str()))?;
        Some(Lock::Other(format!("--{name}={value}")))
    };
    // Without the flag it takes the default name.
    let name = value(RESOURCE_NAME).unwrap_or_else(|| DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned());
    let other_name = (name != locks.main).then(|| Lock::Other(format!("--{RESOURCE_NAME}={name}")));
    let namespace = value(RESOURCE_NAMESPACE).unwrap_or_else(|| KUBE_SYSTEM.to_owned());
    let other_namespace =
        (namespace != locks.namespace).then(|| Lock::Other(format!("--{RESOURCE_NAMESPACE}={namespace}")));

    other_name
        .or(other_namespace)
        .or_else(|| differs(RESOURCE_LOCK, &["leases", "endpointsleases", "configmapsleases"]))
        .unwrap_or(Lock::Main)
}

/// Why a version that no longer has the in-tree provider `aws` does not start with it.
fn fatal(pod_spec: &Value, line: &CommandLine) -> Option<String> {
    if !matches!(Form::of_command_line(line), Form::InTree { .. }) {
        return None;
    }

    let component = Component::KubeControllerManager;
    let findings = component::find(pod_spec, None);
    let found = findings.iter().filter(|finding| finding.component == component);
    let version = found.max_by_key(|finding| finding.certainty).and_then(Finding::version);

    phase_flags::fatal(component, line, version).ok().flatten()
}

/// The host names that the process of a Pod may have: its Node's, or the Pod's own, which the kubelet cuts at 63
/// characters. An instance whose Node is named by its ID has a host name of its address
/// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-naming.html>). The kubelet of its Node writes that
/// address, so it counts only for mirror Pods, which are believed only on Nodes of the control plane.
fn host_names(pod: &DynamicObject) -> Vec<String> {
    let (spec, status) = (&pod.data["spec"], &pod.data["status"]);
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    if spec["hostNetwork"].as_bool() == Some(true) {
        let is_mirror = pod.annotations().contains_key(annotations::MIRROR_POD);
        let by_address = text(&status["hostIP"])
            .filter(|_| is_mirror)
            .map(|ip| format!("ip-{}", ip.replace('.', "-")));
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

/// The shared controllers that `--controllers` turns off
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/staging/src/k8s.io/controller-manager/app/helper.go>).
fn disabled(line: &CommandLine) -> Vec<Controller> {
    let values = line.values(flag::CONTROLLERS).unwrap_or_default();
    if values.is_empty() {
        return Vec::new();
    }

    let items = || values.iter().flat_map(|value| value.split(','));
    let is_off = |controller: &Controller| {
        let named = items().find(|item| Controller::parse(item.trim_start_matches('-')) == Some(*controller));
        named.map_or_else(|| items().all(|item| item != "*"), |item| item.starts_with('-'))
    };

    Controller::SHARED.into_iter().filter(is_off).collect()
}

/// In-tree, the route controller needs both flags
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kube-controller-manager/app/core.go>).
fn runs_routes(line: &CommandLine) -> bool {
    let on = |flag, default| line.boolean(flag).ok().flatten().unwrap_or(default);
    on(flag::ALLOCATE_NODE_CIDRS, false) && on(flag::CONFIGURE_CLOUD_ROUTES, true)
}

/// Where it runs node IPAM. The built-in leader migration configuration does not name it. Where the configuration is not
/// known, an attestation is missing anyway.
fn node_ipam(line: &CommandLine, form: &Form, configuration: &Configuration, annotation: Option<&str>) -> Placement {
    let (Form::InTree { leader_migration }
    | Form::External { leader_migration }
    | Form::NoProvider { leader_migration }) = form
    else {
        return Placement::NotHere;
    };
    if !runs_node_ipam(line) {
        return Placement::NotHere;
    }

    match configuration {
        _ if !leader_migration => Placement::Main,
        Configuration::BuiltIn => Placement::Main,
        Configuration::Unproven(_) => Placement::NotHere,
        Configuration::OfMigration => {
            let text = annotation.unwrap_or_default();
            let loaded = LeaderMigrationConfiguration::from_text(leader_migration::FILE, text).ok();
            loaded.map_or(Placement::NotHere, |loaded| {
                loaded
                    .config
                    .placement(Controller::NodeIpam, Party::KubeControllerManager)
            })
        }
    }
}

struct Pods {
    is_current: bool,
    all: i64,
    /// Of the template that the status is of.
    updated: i64,
}

impl Pods {
    fn of(kind: ObjectKind, object: &DynamicObject) -> Self {
        let status = &object.data["status"];
        let count = |key: &str| status[key].as_i64().unwrap_or(0);
        let (all, updated) = match kind {
            ObjectKind::DaemonSet => ("desiredNumberScheduled", "updatedNumberScheduled"),
            _ => ("replicas", "updatedReplicas"),
        };

        Self {
            is_current: status["observedGeneration"].as_i64() >= object.metadata.generation,
            all: count(all),
            updated: count(updated),
        }
    }
}

/// Whether the workload's status says that every Pod has the current template.
fn is_rolled_out(kind: ObjectKind, object: &DynamicObject) -> bool {
    let pods = Pods::of(kind, object);
    let wanted = object.data["spec"]["replicas"].as_i64().unwrap_or(1);
    let complete = kind == ObjectKind::DaemonSet || pods.updated >= wanted;

    pods.is_current && complete && pods.updated == pods.all
}

/// How an incomplete rollout ends: by itself, unless the workload says why it does not.
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment>)
fn end_of_rollout(object: &DynamicObject) -> String {
    let spec = &object.data["spec"];
    if spec["paused"].as_bool() == Some(true) {
        return "it is paused: resume it".to_owned();
    }
    if spec["updateStrategy"]["type"].as_str() == Some("OnDelete") {
        return "its update strategy is OnDelete, so delete its Pods one after another".to_owned();
    }

    let conditions = object.data["status"]["conditions"].as_array();
    let failed = |condition: &&Value| {
        let is = |kind: &str, status: &str| condition["type"] == *kind && condition["status"] == *status;
        is("ReplicaFailure", "True") || is("Progressing", "False")
    };
    match conditions.into_iter().flatten().find(failed) {
        Some(condition) => {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!("it does not progress ({}: {})", text("reason"), text("message"))
        }
        None => "wait for it".to_owned(),
    }
}

/// Whether Pods of the current template run and are not listed, since the selector does not match them. Pods that are
/// listed show their own command lines: the webhook may have changed them at their creation.
fn has_unlisted_pods(kind: ObjectKind, object: &DynamicObject, listed: &Selector) -> bool {
    let labels = &object.data["spec"]["template"]["metadata"]["labels"];
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap_or_default();
    let pods = Pods::of(kind, object);

    pods.is_current && pods.updated > 0 && !listed.matches(&labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts;

    const LEASE: &str = leader_migration::DEFAULT_LEADER_NAME;

    fn object(data: Value) -> DynamicObject {
        let mut object = DynamicObject::new("kcm", &ApiResource::erase::<Pod>(&())).within("tenant");
        object.data = data;
        object
    }

    fn locks() -> Locks {
        Locks {
            namespace: KUBE_SYSTEM.into(),
            main: DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.into(),
            migration: LEASE.into(),
        }
    }

    fn read(kind: ObjectKind, object: &DynamicObject) -> Option<ControllerManager> {
        controller_manager_of(kind, object, &Selector::default(), &locks())
    }

    fn container(flags: &[&str]) -> Value {
        let mut command = vec!["kube-controller-manager", "--cloud-provider=aws"];
        command.extend(flags);
        json!({"containers": [{"name": "kube-controller-manager", "image": "kube-controller-manager:v1.26.13", "command": command}]})
    }

    #[test]
    fn a_finished_pod_and_a_workload_without_replicas_run_nothing() {
        let pod = |phase: &str| object(json!({"spec": container(&[]), "status": {"phase": phase}}));
        assert!(read(ObjectKind::Pod, &pod("Succeeded")).is_none());
        let seen = read(ObjectKind::Pod, &pod("Pending")).unwrap();
        assert!(seen.running && seen.is_unguarded());
        assert_eq!(seen.object, "Pod tenant/kcm");
        let workload = |replicas: i64| {
            object(json!({
                "spec": {"replicas": replicas, "template": {"spec": container(&["--enable-leader-migration"])}},
                "status": {"replicas": replicas, "updatedReplicas": replicas},
            }))
        };
        assert!(read(ObjectKind::Deployment, &workload(0)).is_none());
        let seen = read(ObjectKind::Deployment, &workload(1)).unwrap();
        assert_eq!(
            (seen.running, seen.form),
            (false, Form::InTree { leader_migration: true })
        );
    }

    #[test]
    fn the_host_names_of_a_pod_are_those_that_its_process_may_have() {
        let pod = |spec: Value| {
            let mut spec = spec;
            spec["containers"] = container(&[])["containers"].clone();
            object(json!({"spec": spec, "status": {"hostIP": "10.0.1.2"}}))
        };
        let names = |spec: Value| read(ObjectKind::Pod, &pod(spec)).unwrap().host_names;
        let on_node = json!({"hostNetwork": true, "nodeName": "i-1", "hostname": "other"});
        assert_eq!(
            names(on_node.clone()),
            ["i-1"],
            "any kubelet can write the address of its Pods"
        );
        let mut mirror = pod(on_node);
        mirror
            .annotations_mut()
            .insert(annotations::MIRROR_POD.into(), "hash".into());
        assert_eq!(host_names(&mirror), ["i-1", "ip-10-0-1-2"]);
        for own in [
            json!({"nodeName": "i-1"}),
            json!({"nodeName": "i-1", "hostNetwork": false}),
        ] {
            assert_eq!(names(own), ["kcm"]);
        }
        assert_eq!(names(json!({"hostname": "other"})), ["other", "kcm"]);

        let mut pod = object(json!({"spec": container(&[])}));
        pod.metadata.name = Some("k".repeat(64));
        assert_eq!(host_names(&pod), ["k".repeat(63)]);
    }

    #[test]
    fn a_controller_manager_elects_its_leader_by_the_flags_of_the_election() {
        let lock = |flags: &[&str], locks: &Locks| {
            let pod = object(json!({"spec": container(flags)}));
            controller_manager_of(ObjectKind::Pod, &pod, &Selector::default(), locks)
                .unwrap()
                .lock
        };
        for flags in [
            &[][..],
            &["--leader-elect=true"],
            &["--leader-elect"],
            &["--leader-elect-resource-name=kube-controller-manager"],
            &["--leader-elect-resource-namespace=kube-system"],
            &["--leader-elect-resource-lock=leases"],
            &["--leader-elect-resource-lock=endpointsleases"],
            &["--leader-elect-resource-lock=configmapsleases"],
        ] {
            assert_eq!(lock(flags, &locks()), Lock::Main, "{flags:?}");
        }
        for flag in [
            "--leader-elect=false",
            "--leader-elect-resource-name=other",
            "--leader-elect-resource-namespace=other",
            "--leader-elect-resource-lock=endpoints",
            "--leader-elect-resource-lock=configmaps",
        ] {
            assert_eq!(lock(&[flag], &locks()), Lock::Other(flag.into()));
            let pod = object(json!({"spec": container(&["--enable-leader-migration", flag])}));
            assert_eq!(read(ObjectKind::Pod, &pod).unwrap().kind(), facts::Kind::Unlocked);
        }

        // The migration object names another lease, and the leases are in another namespace.
        let other = Locks {
            namespace: "tenant".into(),
            main: "kcm".into(),
            migration: LEASE.into(),
        };
        let names_both = [
            "--leader-elect-resource-name=kcm",
            "--leader-elect-resource-namespace=tenant",
        ];
        assert_eq!(lock(&names_both, &other), Lock::Main);
        let default_name = Lock::Other("--leader-elect-resource-name=kube-controller-manager".into());
        assert_eq!(lock(&names_both[1..], &other), default_name);
        let default_namespace = Lock::Other("--leader-elect-resource-namespace=kube-system".into());
        assert_eq!(lock(&names_both[..1], &other), default_namespace);
    }

    #[test]
    fn a_leader_migration_file_counts_only_if_it_is_known_and_guards_each_controller_by_the_lease() {
        let text = |lease: &str, leaders: &[(&str, &str)]| {
            let leaders: Vec<Value> = leaders
                .iter()
                .map(|(name, component)| json!({"name": name, "component": component}))
                .collect();
            let text = json!({"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
                "leaderName": lease, "controllerLeaders": leaders});
            text.to_string()
        };
        let configuration = |path: &str, text: Option<String>| {
            let file = format!("--leader-migration-config={path}");
            let flags = ["--enable-leader-migration", &file];
            let mut pod = object(json!({"spec": container(&flags), "status": {}}));
            let annotation = |text: String| [(annotations::LEADER_MIGRATION.to_owned(), text)].into();
            pod.metadata.annotations = text.map(annotation);
            read(ObjectKind::Pod, &pod).unwrap().configuration
        };

        let all = [("service", "*"), ("route", "*"), ("cloud-node-lifecycle", "*")];
        let ours = leader_migration::FILE;
        assert_eq!(configuration("", None), Configuration::BuiltIn);
        assert_eq!(configuration(ours, Some(text(LEASE, &all))), Configuration::OfMigration);
        for (path, text, reason) in [
            (ours, None, "Kubernetes does not show"),
            ("/own.yaml", Some(text(LEASE, &all)), "Kubernetes does not show"),
            (ours, Some(text("other", &all)), "names the lease \"other\""),
            (ours, Some(text(LEASE, &all[..2])), "does not guard"),
            (
                ours,
                Some(text(LEASE, &[("service", "cloud-controller-manager"), all[1], all[2]])),
                "does not guard",
            ),
            (ours, Some("{".to_owned()), ours),
        ] {
            match configuration(path, text) {
                Configuration::Unproven(why) => assert!(why.contains(reason), "{reason}: {why}"),
                other => panic!("{reason}: {other:?}"),
            }
        }
    }

    #[test]
    fn node_ipam_is_read_from_the_flags_and_from_the_list_of_leader_migration() {
        let list = |names: &[&str]| {
            let leaders = names.iter().map(|name| json!({"name": name, "component": "*"}));
            let leaders: Vec<Value> = leaders.collect();
            let text = json!({"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
                "leaderName": LEASE, "controllerLeaders": leaders});
            text.to_string()
        };
        let shared = ["service", "route", "cloud-node-lifecycle"];
        let with_ipam = list(&[&shared[..], &["nodeipam"]].concat());
        let (cidrs, guarded) = ("--allocate-node-cidrs=true", "--enable-leader-migration");
        let file = format!("--leader-migration-config={}", leader_migration::FILE);
        let placement = |flags: &[&str], list: Option<&String>| {
            let mut pod = object(json!({"spec": container(flags), "status": {}}));
            let annotation = |text: &String| [(annotations::LEADER_MIGRATION.to_owned(), text.clone())].into();
            pod.metadata.annotations = list.map(annotation);
            read(ObjectKind::Pod, &pod).unwrap().node_ipam
        };

        for (flags, expected) in [
            (&[][..], Placement::NotHere),
            (&["--allocate-node-cidrs=false"], Placement::NotHere),
            (&[cidrs], Placement::Main),
            (&[cidrs, "--controllers=*,bootstrapsigner"], Placement::Main),
            (&[cidrs, "--controllers=*,-nodeipam"], Placement::NotHere),
            (&[cidrs, "--controllers=-node-ipam-controller,*"], Placement::NotHere),
            (&[cidrs, "--controllers=service,route"], Placement::NotHere),
            (&[cidrs, guarded], Placement::Main),
            (&[cidrs, guarded, "--leader-migration-config=/own"], Placement::NotHere),
            (&[cidrs, "--leader-migration-config=/own"], Placement::Main),
        ] {
            assert_eq!(placement(flags, None), expected, "{flags:?}");
        }
        let with_file = [cidrs, guarded, &file];
        assert_eq!(placement(&with_file, Some(&list(&shared))), Placement::Main);
        assert_eq!(placement(&with_file, Some(&with_ipam)), Placement::Migrated);
        assert_eq!(placement(&with_file[1..], Some(&with_ipam)), Placement::NotHere);
        assert_eq!(placement(&[cidrs], Some(&with_ipam)), Placement::Main);
    }

    #[test]
    fn a_template_stands_for_its_pods_where_the_selector_does_not_match_them() {
        let running = |kind, pods: &str, status: Value| {
            let template = json!({"metadata": {"labels": {"app": pods}}, "spec": container(&[])});
            let mut workload = object(json!({"spec": {"replicas": 2, "template": template}, "status": status}));
            workload.metadata.generation = Some(3);
            let listed: Selector = [("app", "kcm")].into_iter().collect();
            let seen = controller_manager_of(kind, &workload, &listed, &locks()).unwrap();
            assert!(seen.is_unguarded());
            assert_eq!(seen.host_prefix.as_deref(), Some("kcm-").filter(|_| seen.running));
            seen.running
        };
        let replicas = |generation: i64, updated: i64| json!({"observedGeneration": generation, "replicas": 2, "updatedReplicas": updated});
        assert!(running(ObjectKind::Deployment, "other", replicas(3, 2)));
        assert!(
            !running(ObjectKind::Deployment, "kcm", replicas(3, 2)),
            "its Pods are listed"
        );
        assert!(running(ObjectKind::StatefulSet, "other", replicas(3, 1)));
        assert!(!running(ObjectKind::Deployment, "other", replicas(3, 0)));
        assert!(
            !running(ObjectKind::Deployment, "other", replicas(2, 2)),
            "of an older template"
        );
        assert!(!running(ObjectKind::Deployment, "other", json!({})));
        let scheduled = json!({"observedGeneration": 3, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1});
        assert!(running(ObjectKind::DaemonSet, "other", scheduled));
    }

    #[test]
    fn a_rollout_that_does_not_end_says_why() {
        let reason = |kind, spec: Value, conditions: Value| {
            let mut data = json!({"spec": spec, "status": {"conditions": conditions}});
            data["spec"]["template"] = json!({"spec": container(&["--enable-leader-migration"])});
            match read(kind, &object(data)).unwrap().form {
                Form::Unreadable { reason } => reason,
                other => panic!("{other:?}"),
            }
        };
        let ends = |reason: String, text: &str| assert!(reason.ends_with(text), "{reason}");
        ends(
            reason(
                ObjectKind::Deployment,
                json!({}),
                json!([{"type": "Progressing", "status": "True"}]),
            ),
            "may still run: wait for it",
        );
        ends(
            reason(ObjectKind::Deployment, json!({"paused": true}), json!([])),
            "it is paused: resume it",
        );
        let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
        ends(
            reason(ObjectKind::StatefulSet, on_delete, json!([])),
            "OnDelete, so delete its Pods one after another",
        );
        let late = json!([
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "m"},
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "has timed out."},
        ]);
        ends(
            reason(ObjectKind::Deployment, json!({}), late),
            "it does not progress (ProgressDeadlineExceeded: has timed out.)",
        );
        let refused =
            json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]);
        ends(
            reason(ObjectKind::Deployment, json!({}), refused),
            "it does not progress (FailedCreate: quota)",
        );
    }

    #[test]
    fn a_version_without_the_in_tree_provider_does_not_start_with_it() {
        let seen = |image: &str, flag: &str| {
            let mut spec = container(&[flag]);
            spec["containers"][0]["image"] = json!(image);
            read(ObjectKind::Pod, &object(json!({"spec": spec}))).unwrap()
        };
        let form = |image: &str, flag: &str| seen(image, flag).form;
        let guarded = "--enable-leader-migration";
        for flag in ["--v=2", guarded] {
            let newer = seen("registry.k8s.io/kube-controller-manager:v1.27.3", flag);
            assert!(!newer.needs_attestation(), "{flag}");
            let Form::Unreadable { reason } = newer.form else {
                panic!("{flag}");
            };
            assert!(
                reason.contains("1.27.3 does not start with --cloud-provider=aws"),
                "{reason}"
            );
        }
        let in_tree = |leader_migration| Form::InTree { leader_migration };
        assert_eq!(form("kube-controller-manager:v1.26.15", "--v=2"), in_tree(false));
        assert_eq!(
            form("kube-controller-manager@sha256:0", guarded),
            in_tree(true),
            "an unknown version"
        );
        let external = form("kube-controller-manager:v1.30.0", "--cloud-provider=external");
        assert_eq!(
            external,
            Form::External {
                leader_migration: false
            }
        );
    }

    #[test]
    fn flags_turn_single_controllers_off() {
        let run = |flags: &[&str]| {
            let pod = object(json!({"spec": container(flags)}));
            let seen = read(ObjectKind::Pod, &pod).unwrap();
            let all = Controller::SHARED.into_iter();
            all.filter(|controller| seen.runs(*controller)).collect::<Vec<_>>()
        };
        use Controller::{NodeLifecycle, Route, Service};
        let routes = "--allocate-node-cidrs";
        for (flags, expected) in [
            (&[][..], &[Service, NodeLifecycle][..]),
            (&[routes], &Controller::SHARED),
            (&[routes, "--configure-cloud-routes=false"], &[Service, NodeLifecycle]),
            (&[routes, "--controllers=*,-route"], &[Service, NodeLifecycle]),
            (&[routes, "--controllers=*,-service"], &[Route, NodeLifecycle]),
            (
                &[routes, "--controllers=service", "--controllers=route"],
                &[Service, Route],
            ),
            (&[routes, "--controllers=-service,service,*"], &[Route, NodeLifecycle]),
            (&[routes, "--controllers=*,tokencleaner"], &Controller::SHARED),
        ] {
            assert_eq!(run(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_template_counts_as_what_runs_only_when_no_older_pod_is_left() {
        let workload = |flags: &[&str], generation: i64, status: Value| {
            let mut workload =
                object(json!({"spec": {"replicas": 2, "template": {"spec": container(flags)}}, "status": status}));
            workload.metadata.generation = Some(generation);
            read(ObjectKind::Deployment, &workload).unwrap()
        };
        let guarded = ["--enable-leader-migration"];
        let status =
            |all: i64, updated: i64| json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated});
        assert_eq!(
            workload(&guarded, 2, status(2, 2)).form,
            Form::InTree { leader_migration: true }
        );
        for (generation, status) in [(2, status(3, 2)), (2, status(2, 1)), (2, json!({})), (3, status(2, 2))] {
            let seen = workload(&guarded, generation, status.clone());
            assert!(matches!(seen.form, Form::Unreadable { .. }), "{generation} {status}");
            assert!(!seen.needs_attestation(), "it ends");
        }
        let unguarded = workload(&[], 3, json!({})).form;
        assert_eq!(
            unguarded,
            Form::InTree {
                leader_migration: false
            }
        );
    }
}
