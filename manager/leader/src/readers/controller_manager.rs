//! Reads one kube-controller-manager from a Pod or a workload. Pure.

use kube::ResourceExt;
use kube::core::DynamicObject;
use outrigger_shared::annotations;
use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::{Form, controller_manager_command_line};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::{self, LeaderMigrationConfiguration, Placement};
use outrigger_shared::phase_flags::flag;

use crate::evidence::{Configuration, ControllerManager};

/// The kube-controller-manager of an object, unless it is scaled to zero or has ended.
pub(super) fn controller_manager_of(kind: &str, object: &DynamicObject, lease: &str) -> Option<ControllerManager> {
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

    let rolling_out = guarded && !is_pod && !is_rolled_out(kind, object);
    if rolling_out {
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
        rolling_out,
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
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ApiResource;
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
    fn a_template_counts_as_what_runs_only_when_no_older_pod_is_left() {
        let workload = |flags: &[&str], generation: i64, status: Value| {
            let mut workload =
                object(json!({"spec": {"replicas": 2, "template": {"spec": container(flags)}}, "status": status}));
            workload.metadata.generation = Some(generation);
            controller_manager_of("Deployment", &workload, LEASE).unwrap()
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
