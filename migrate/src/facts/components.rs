//! Components of the control plane, from the Pods of kube-system. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{DynamicObject, Selector};
use outrigger_evidence::controller_manager::{Locks, ObjectKind, controller_manager_of, why_not_of_control_plane};
use outrigger_evidence::facts::{Configuration, ControllerManager, Kind, Lock};
use outrigger_shared::annotations;
use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::{self, Certainty, Finding, Form};
use outrigger_shared::controller::Controller;
use outrigger_shared::phase_flags;
use serde_json::{Value, json};

use super::{Acts, Component, Judgement, Webhook, flags};

/// Labels by the name of the Node.
pub type NodeLabels = BTreeMap<String, BTreeMap<String, String>>;

/// The components of a Pod; none if it runs none, or has ended. Without `nodes` it is not known which mirror Pods count.
pub fn of_pod(pod: &DynamicObject, nodes: Option<&NodeLabels>, locks: &Locks) -> Vec<Component> {
    let (spec, status) = (&pod.data["spec"], &pod.data["status"]);
    if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }

    let node = spec["nodeName"].as_str().unwrap_or_default();
    let annotations = pod.metadata.annotations.iter().flatten();
    let is_mirror = annotations.into_iter().any(|(key, _)| key == annotations::MIRROR_POD);
    let nodes = nodes.filter(|_| is_mirror);
    let ignored = nodes.and_then(|nodes| why_not_of_control_plane(node, nodes.get(node)));
    let is_ready = is_ready(status);
    let labels = serde_json::to_value(&pod.metadata.labels).unwrap_or_default();
    let mut once = BTreeSet::new();
    let found = component::find(spec, Some(&labels)).into_iter();
    let found = found.filter(|found| once.insert(found.component));
    let components = found.map(|found| {
        let judged = controller_manager_of(ObjectKind::Pod, pod, &Selector::default(), locks);
        let judged = judged.filter(|_| found.component == component::Component::KubeControllerManager);
        Component {
            object: format!("Pod {}/{}", namespace(pod), name(pod)),
            node: (!node.is_empty()).then(|| node.to_owned()),
            is_ready,
            ..of_container(&found, judged.as_ref(), ignored.clone())
        }
    });

    components.collect()
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == *"Ready");
    ready.any(|condition| condition["status"] == *"True")
}

/// A Pod of the webhook that has not ended.
pub fn webhook(pod: &DynamicObject) -> Option<Webhook> {
    let status = &pod.data["status"];
    let has_ended = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    let containers = pod.data["spec"]["containers"].as_array().into_iter().flatten();
    let mut ours = containers.filter(|container| is_outrigger(container));
    let version = ours.find_map(|container| release(container["image"].as_str()?));
    (!has_ended && pod.metadata.deletion_timestamp.is_none()).then(|| Webhook {
        object: format!("Pod {}/{}", namespace(pod), name(pod)),
        version,
        is_ready: is_ready(status),
    })
}

/// The release of Outrigger in the tag of an image reference, without a leading `v`. A tag such as `latest` has none.
fn release(image: &str) -> Option<String> {
    let reference = image.split_once('@').map_or(image, |(reference, _)| reference);
    let (_, tag) = reference.rsplit('/').next()?.split_once(':')?;
    let version = tag.strip_prefix('v').unwrap_or(tag);
    let (numbers, _) = version.split_once(['-', '+']).unwrap_or((version, ""));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_release = numbers.split('.').count() == 3 && numbers.split('.').all(is_number);
    is_release.then(|| version.to_owned())
}

fn namespace(object: &DynamicObject) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

fn of_container(found: &Finding<'_>, judged: Option<&ControllerManager>, ignored: Option<String>) -> Component {
    // Values of the environment may be secrets.
    let words = json!({"command": found.container["command"], "args": found.container["args"]});
    let (line, unreadable) = match (CommandLine::of_container(&words), found.certainty) {
        (Err(reason), _) => (None, Some(reason.to_string())),
        (Ok(_), Certainty::Wrapped) => (None, Some("another program starts it".to_owned())),
        (Ok(line), _) => (Some(line), None),
    };
    let does_not_start = line.as_ref().and_then(|line| {
        let fatal = phase_flags::fatal(found.component, line, found.version());
        fatal.ok().flatten()
    });
    let of_form = judged.and_then(|judged| match &judged.form {
        // The other finding has it.
        Form::Unreadable { reason } if does_not_start.is_none() => Some(without_environment(reason, found.container)),
        _ => None,
    });

    let is_outrigger = is_outrigger(found.container);
    let version = match is_outrigger {
        true => found.container["image"].as_str().and_then(release),
        false => found.version().map(|version| version.to_string()),
    };
    Component {
        component: found.component.as_str().to_owned(),
        object: String::new(),
        node: None,
        version,
        flags: line.as_ref().map(flags::allowed),
        is_ignored: ignored.is_some(),
        unreadable: ignored.or(of_form).or(unreadable).map(|why| flags::reason(&why)),
        does_not_start,
        is_outrigger,
        is_ready: false,
        judgement: judged.map(|judged| judgement(judged, found.container)),
    }
}

/// A text of the manager's rules, which know the environment of a container: names of variables stand for their values.
fn without_environment(text: &str, container: &Value) -> String {
    let variables = container["env"].as_array().into_iter().flatten();
    let mut variables: Vec<(&str, &str)> = variables
        .filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    // A value may contain another one.
    variables.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    let text = variables.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(value, &format!("$({name})"))
    });

    flags::reason(&text)
}

/// Whether a cloud-controller-manager is the manager of Outrigger, by its program or its image.
fn is_outrigger(container: &Value) -> bool {
    let texts = ["command", "args"].map(|list| container[list].as_array());
    let program = texts.into_iter().flatten().flatten().next().and_then(Value::as_str);
    let is_ours = |text: &str| {
        text.rsplit('/')
            .next()
            .is_some_and(|last| last.starts_with("outrigger"))
    };
    program.is_some_and(is_ours) || container["image"].as_str().is_some_and(is_ours)
}

fn judgement(judged: &ControllerManager, container: &Value) -> Judgement {
    let acts = match judged.kind() {
        Kind::External => Acts::Never,
        Kind::Guarded => Acts::WithMigrationLease,
        Kind::Unguarded => Acts::WhileLeader,
        Kind::Unlocked => Acts::Always,
        Kind::Unknown => Acts::Unknown,
    };
    Judgement {
        acts,
        is_in_tree: matches!(judged.form, Form::InTree { .. }),
        routes: judged.runs(Controller::Route),
        other_lock: match &judged.lock {
            Lock::Main => None,
            Lock::Other(flag) => Some(without_environment(flag, container)),
        },
        configuration: match &judged.configuration {
            Configuration::BuiltIn | Configuration::OfMigration => None,
            Configuration::Unproven(why) => Some(without_environment(why, container)),
        },
        hosts: judged.host_names.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ApiResource;
    use outrigger_shared::leader_migration::DEFAULT_LEADER_NAME;
    use outrigger_shared::migration::{DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE, KUBE_SYSTEM};

    #[test]
    fn a_release_is_in_the_tag() {
        for (image, version) in [
            ("registry.example.com:5000/outrigger:v0.1.0", Some("0.1.0")),
            ("outrigger:0.2.0-rc.1@sha256:00", Some("0.2.0-rc.1")),
            ("registry.example.com:5000/outrigger", None),
            ("outrigger:latest", None),
            ("outrigger@sha256:00", None),
        ] {
            assert_eq!(release(image).as_deref(), version, "{image}");
        }
    }

    fn locks() -> Locks {
        Locks {
            namespace: KUBE_SYSTEM.into(),
            main: DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.into(),
            migration: DEFAULT_LEADER_NAME.into(),
        }
    }

    fn pod(name: &str, container: Value) -> DynamicObject {
        let mut pod = DynamicObject::new(name, &ApiResource::erase::<Pod>(&())).within(KUBE_SYSTEM);
        pod.data = json!({
            "spec": {"nodeName": "cp-1", "hostNetwork": true, "containers": [container]},
            "status": {"phase": "Running"},
        });
        pod
    }

    fn nodes() -> BTreeMap<String, BTreeMap<String, String>> {
        let role = ("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        BTreeMap::from([("cp-1".to_owned(), BTreeMap::from([role]))])
    }

    fn container(program: &str, version: &str, flags: &[&str]) -> Value {
        let mut command = vec![program.to_owned()];
        command.extend(flags.iter().map(|flag| (*flag).to_owned()));
        json!({"name": program, "image": format!("registry.k8s.io/{program}:{version}"), "command": command})
    }

    #[test]
    fn a_controller_manager_is_judged_as_the_manager_judges_it() {
        let flags = ["--cloud-provider=aws", "--allocate-node-cidrs", "--kubeconfig=/secret"];
        let found = of_pod(
            &pod("kcm-1", container("kube-controller-manager", "v1.26.13", &flags)),
            Some(&nodes()),
            &locks(),
        );
        let [found] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(found.object, "Pod kube-system/kcm-1");
        assert_eq!(found.version.as_deref(), Some("1.26.13"));
        assert_eq!(found.unreadable, None);
        let kept = found.flags.as_ref().unwrap();
        assert_eq!(
            kept.keys().collect::<Vec<_>>(),
            ["allocate-node-cidrs", "cloud-provider"]
        );
        let judged = found.judgement.as_ref().unwrap();
        assert_eq!(
            (judged.acts, judged.is_in_tree, judged.routes),
            (Acts::WhileLeader, true, true)
        );
        assert_eq!(judged.hosts, ["cp-1"]);
    }

    #[test]
    fn what_cannot_be_read_or_does_not_count_says_why() {
        let mut mirror = pod(
            "kcm-w",
            container("kube-controller-manager", "v1.26.13", &["--cloud-provider=aws"]),
        );
        mirror.metadata.annotations = Some(BTreeMap::from([(annotations::MIRROR_POD.to_owned(), "1".to_owned())]));
        let of_worker = of_pod(&mirror, Some(&BTreeMap::new()), &locks());
        assert!(
            of_worker[0]
                .unreadable
                .as_ref()
                .unwrap()
                .contains("no control-plane role")
        );
        assert_eq!(of_pod(&mirror, Some(&nodes()), &locks())[0].unreadable, None);
        assert_eq!(of_pod(&mirror, None, &locks())[0].unreadable, None, "not known");

        let script = json!({
            "name": "kube-controller-manager", "image": "kube-controller-manager:v1.26.13",
            "command": ["sh", "-c", "exec kube-controller-manager $FLAGS"],
        });
        let found = of_pod(&pod("kcm-s", script), Some(&nodes()), &locks());
        assert!(found[0].unreadable.is_some(), "{found:?}");
        assert_eq!(found[0].judgement.as_ref().unwrap().acts, Acts::Unknown);
    }

    #[test]
    fn a_flag_with_which_the_version_does_not_start_is_named() {
        let flags = ["--cloud-provider=aws"];
        let found = of_pod(
            &pod("api-1", container("kube-apiserver", "v1.29.1", &flags)),
            Some(&nodes()),
            &locks(),
        );
        let why = found[0].does_not_start.as_deref().unwrap();
        assert!(why.starts_with("remove --cloud-provider=aws"), "{why}");
        assert_eq!(found[0].unreadable, None);
    }

    #[test]
    fn the_manager_of_outrigger_is_told_from_others() {
        for (program, is_ours) in [("outrigger-manager", true), ("aws-cloud-controller-manager", false)] {
            let found = of_pod(
                &pod("ccm", container(program, "v0.1.0", &["--cloud-provider=aws"])),
                Some(&nodes()),
                &locks(),
            );
            assert_eq!(found[0].component, "aws-cloud-controller-manager");
            assert_eq!(found[0].is_outrigger, is_ours, "{program}");
        }
    }

    #[test]
    fn pods_that_have_ended_and_other_programs_are_none() {
        let mut ended = pod("kcm", container("kube-controller-manager", "v1.26.13", &[]));
        ended.data["status"]["phase"] = json!("Failed");
        assert_eq!(of_pod(&ended, Some(&nodes()), &locks()), []);
        assert_eq!(
            of_pod(
                &pod("dns", container("coredns", "v1.9.3", &[])),
                Some(&nodes()),
                &locks()
            ),
            []
        );
    }
}
