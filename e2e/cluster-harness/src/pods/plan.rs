//! From a container, as the API server stores it, to the process that runs for it. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Volume};

use super::images::ImageTable;
use super::readiness::Readiness;

/// The process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerPlan {
    pub container: String,
    /// The program, by the image table.
    pub component: String,
    pub program: PathBuf,
    /// Command and arguments as stored, references resolved; the first word is what the container calls the program.
    pub argv: Vec<String>,
    /// The whole environment but for the access key.
    pub environment: BTreeMap<String, String>,
    pub directory: Option<PathBuf>,
    pub readiness: Readiness,
}

/// Why a container is not run. The Pod then waits with this reason and message, as it would on a kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    /// A kubelet's own reason: `ErrImagePull`, `CreateContainerConfigError`, `CreateContainerError`.
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    pub(super) fn config(message: impl Into<String>) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.into(),
        }
    }
}

/// Refuses a Pod with features that the runner lacks: all volumes but hostPath, since its processes have no mounts of
/// their own, and init containers.
pub(super) fn check_pod(pod: &Pod) -> Result<(), Refusal> {
    let Some(spec) = &pod.spec else {
        return Err(Refusal::config("the Pod has no spec"));
    };
    if let Some(init) = spec.init_containers.iter().flatten().next() {
        return Err(Refusal::config(format!(
            "initContainers: {} is not run; this node runs plain processes only: remove it",
            init.name
        )));
    }

    for volume in spec.volumes.iter().flatten() {
        if volume.host_path.is_none() {
            return Err(Refusal::config(refused_volume(volume)));
        }
    }

    Ok(())
}

fn refused_volume(volume: &Volume) -> String {
    if volume.projected.is_some() && volume.name.starts_with("kube-api-access-") {
        return format!(
            "volume {}: a service account token cannot be mounted here: set automountServiceAccountToken: false",
            volume.name
        );
    }
    format!(
        "volume {}: only hostPath volumes with mountPath equal to hostPath.path work here: use one",
        volume.name
    )
}

/// The process for `container` of `pod`. Refuses an image that the table does not have, a command that is not the
/// image's program, a mount at another path than the host's, a variable or a probe that plain processes cannot have.
pub(super) fn plan(pod: &Pod, container: &Container, images: &ImageTable) -> Result<ContainerPlan, Refusal> {
    let name = container.image.as_deref().unwrap_or_default();
    let image = images.find(name).ok_or_else(|| Refusal {
        reason: "ErrImagePull",
        message: format!("image {name}: this node's table of images has no binary for it: add one"),
    })?;
    check_mounts(pod, container)?;

    let mut environment = environment(pod, container)?;
    let argv = argv(container, &image.component, &environment);
    let word = argv.first().map(String::as_str).unwrap_or_default();
    if word.rsplit('/').next() != Some(image.component.as_str()) {
        return Err(Refusal {
            reason: "CreateContainerError",
            message: format!(
                "command {word}: image {name} has only the program {}: name that",
                image.component
            ),
        });
    }

    environment.extend(image.environment.clone());

    Ok(ContainerPlan {
        container: container.name.clone(),
        component: image.component.clone(),
        program: image.binary.clone(),
        argv,
        environment,
        directory: container.working_dir.clone().map(PathBuf::from),
        readiness: Readiness::of(container)?,
    })
}

fn argv(container: &Container, entry_point: &str, environment: &BTreeMap<String, String>) -> Vec<String> {
    let command = container.command.clone().filter(|command| !command.is_empty());
    let mut words = command.unwrap_or_else(|| vec![entry_point.to_owned()]);
    words.extend(container.args.iter().flatten().cloned());
    words.iter().map(|word| expand(word, environment)).collect()
}

fn check_mounts(pod: &Pod, container: &Container) -> Result<(), Refusal> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let host_paths: BTreeMap<_, _> = volumes
        .filter_map(|volume| Some((volume.name.as_str(), volume.host_path.as_ref()?.path.as_str())))
        .collect();
    for mount in container.volume_mounts.iter().flatten() {
        let trimmed = |path: &str| path.trim_end_matches('/').to_owned();
        let host_path = host_paths.get(mount.name.as_str()).copied().unwrap_or_default();
        let shifted = mount.sub_path.is_some() || mount.sub_path_expr.is_some();
        if shifted || trimmed(host_path) != trimmed(&mount.mount_path) {
            return Err(Refusal::config(format!(
                "volumeMount {}: mountPath {} is not the volume's hostPath {host_path}: processes here share the \
                 node's files, so use the same path and no subPath",
                mount.name, mount.mount_path
            )));
        }
    }

    Ok(())
}

fn environment(pod: &Pod, container: &Container) -> Result<BTreeMap<String, String>, Refusal> {
    if container.env_from.iter().flatten().next().is_some() {
        return Err(Refusal::config(
            "envFrom: ConfigMaps and Secrets are not read here: write the variables as values",
        ));
    }

    let mut environment = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, None) => expand(variable.value.as_deref().unwrap_or_default(), &environment),
            (_, Some(_)) => field(pod, variable)?,
        };
        environment.insert(variable.name.clone(), value);
    }

    Ok(environment)
}

/// The downward API's fields that name the Pod and where it runs.
fn field(pod: &Pod, variable: &EnvVar) -> Result<String, Refusal> {
    let path = variable
        .value_from
        .as_ref()
        .and_then(|source| source.field_ref.as_ref())
        .map(|f| f.field_path.as_str());
    let spec = pod.spec.as_ref();
    let value = match path {
        Some("metadata.name") => pod.metadata.name.clone(),
        Some("metadata.namespace") => pod.metadata.namespace.clone(),
        Some("metadata.uid") => pod.metadata.uid.clone(),
        Some("spec.nodeName") => spec.and_then(|spec| spec.node_name.clone()),
        Some("spec.serviceAccountName") => spec.and_then(|spec| spec.service_account_name.clone()),
        Some("status.podIP" | "status.hostIP") => Some(super::status::LOOPBACK.to_owned()),
        _ => {
            return Err(Refusal::config(format!(
                "env {}: only values and the Pod's own name, namespace, uid, node, service account and IP work here: \
                 write a value",
                variable.name
            )));
        }
    };

    Ok(value.unwrap_or_default())
}

/// Replaces `$(NAME)` by the variable's value; an unknown name stays as it is written, `$$` becomes `$`.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            expanded.push('$');
            rest = escaped;
            continue;
        }

        let reference = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match reference {
            Some((name, behind)) => {
                match variables.get(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded += &format!("$({name})"),
                }
                behind
            }
            None => {
                expanded.push('$');
                after
            }
        };
    }

    expanded.push_str(rest);

    expanded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::images::Image;
    use super::*;

    fn pod(container: serde_json::Value, volumes: serde_json::Value) -> Result<Pod, serde_json::Error> {
        serde_json::from_value(json!({
            "metadata": {"name": "kcm-0", "namespace": "tenant", "uid": "u-1"},
            "spec": {"nodeName": "harness", "containers": [container], "volumes": volumes}
        }))
    }

    fn planned(container: serde_json::Value, volumes: serde_json::Value) -> Result<ContainerPlan, String> {
        let images =
            ImageTable::new([Image::new("registry/kcm", "kube-controller-manager", "/bin/kcm")
                .environment("AWS_REGION", "eu-west-1")]);
        let pod = pod(container, volumes).map_err(|error| error.to_string())?;
        check_pod(&pod).map_err(|refusal| refusal.message)?;
        let container = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.containers.first())
            .ok_or("no container")?;
        plan(&pod, container, &images).map_err(|refusal| format!("{}: {}", refusal.reason, refusal.message))
    }

    #[test]
    fn the_stored_command_and_arguments_run_in_their_order() -> Result<(), String> {
        let plan = planned(
            json!({"name": "kcm", "image": "registry/kcm:v1.26.13",
                   "command": ["/usr/local/bin/kube-controller-manager", "--cloud-provider=aws"],
                   "args": ["--leader-elect=true", "--id=$(POD)"],
                   "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                           {"name": "AWS_REGION", "value": "of the container"}]}),
            json!([]),
        )?;
        let expected = [
            "/usr/local/bin/kube-controller-manager",
            "--cloud-provider=aws",
            "--leader-elect=true",
            "--id=kcm-0",
        ];
        assert_eq!(plan.argv, expected);
        assert_eq!(plan.program, PathBuf::from("/bin/kcm"));
        assert_eq!(
            plan.environment.get("AWS_REGION").map(String::as_str),
            Some("eu-west-1"),
            "the table wins"
        );
        Ok(())
    }

    #[test]
    fn without_a_command_the_images_program_runs() -> Result<(), String> {
        let plan = planned(
            json!({"name": "kcm", "image": "registry/kcm", "args": ["--v=2"]}),
            json!([]),
        )?;
        assert_eq!(plan.argv, ["kube-controller-manager", "--v=2"]);
        Ok(())
    }

    #[test]
    fn what_a_plain_process_cannot_have_is_refused_with_what_to_do() {
        let good = json!({"name": "kcm", "image": "registry/kcm"});
        let with = |field: &str, value: serde_json::Value| {
            let mut container = good.clone();
            if let Some(fields) = container.as_object_mut() {
                fields.insert(field.into(), value);
            }
            container
        };
        let host = json!([{"name": "pki", "hostPath": {"path": "/etc/pki"}}]);
        let cases = [
            (
                with("image", json!("other:v1")),
                json!([]),
                "ErrImagePull: image other:v1",
            ),
            (
                with("command", json!(["/bin/sh", "-c", "x"])),
                json!([]),
                "CreateContainerError: command /bin/sh",
            ),
            (
                good.clone(),
                json!([{"name": "c", "configMap": {"name": "c"}}]),
                "volume c: only hostPath",
            ),
            (
                good.clone(),
                json!([{"name": "kube-api-access-x", "projected": {}}]),
                "automountServiceAccountToken",
            ),
            (
                with("volumeMounts", json!([{"name": "pki", "mountPath": "/pki"}])),
                host,
                "mountPath /pki",
            ),
            (
                with("envFrom", json!([{"configMapRef": {"name": "c"}}])),
                json!([]),
                "envFrom",
            ),
            (
                with(
                    "env",
                    json!([{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
                ),
                json!([]),
                "env S",
            ),
            (
                with("readinessProbe", json!({"exec": {"command": ["true"]}})),
                json!([]),
                "readinessProbe",
            ),
        ];
        for (container, volumes, expected) in cases {
            let refusal = planned(container, volumes).err().unwrap_or_default();
            assert!(refusal.contains(expected), "{expected:?} not in {refusal:?}");
        }
    }

    #[test]
    fn a_host_path_at_the_same_path_is_taken() {
        let container = json!({"name": "kcm", "image": "registry/kcm",
                               "volumeMounts": [{"name": "pki", "mountPath": "/etc/pki/"}]});
        assert!(planned(container, json!([{"name": "pki", "hostPath": {"path": "/etc/pki"}}])).is_ok());
    }

    #[test]
    fn references_are_resolved_as_the_kubelet_does() {
        let variables = BTreeMap::from([("NAME".to_owned(), "web".to_owned())]);
        for (text, expected) in [
            ("--id=$(NAME)", "--id=web"),
            ("$(NAME)$(NAME)", "webweb"),
            ("$(OTHER)", "$(OTHER)"),
            ("$$(NAME)", "$(NAME)"),
            ("$$$(NAME)", "$web"),
            ("cost 5$ or $(NAME", "cost 5$ or $(NAME"),
            ("$NAME", "$NAME"),
            ("end$", "end$"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}
