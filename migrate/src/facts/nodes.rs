//! Nodes and their kubelets. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use outrigger_evidence::controller_manager::CONTROL_PLANE;
use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::Component;
use outrigger_shared::version::KubernetesVersion;
use outrigger_shared::{annotations, node_args, phase_flags, taints};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Kubelet, KubeletSource, Node, NotRead, Read, flags};

/// In this annotation of a CSINode the kubelet names the in-tree plugins whose volumes it hands to CSI drivers.
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const EBS: &str = "kubernetes.io/aws-ebs";

const HOST_NAME: &str = "kubernetes.io/hostname";

/// The part of an object's metadata that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    pub creation_timestamp: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// The part of a Node that is kept. Of thousands of Nodes with a hundred images each, no image is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SlimNode {
    pub metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: String,
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    #[serde(rename = "images", deserialize_with = "have_ecr")]
    has_ecr_image: bool,
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Image {
    names: Option<Vec<String>>,
}

/// Whether one of the images is of ECR.
fn have_ecr<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let images: Option<Vec<Image>> = Deserialize::deserialize(deserializer)?;
    let mut names = images.iter().flatten().flat_map(|image| image.names.iter().flatten());
    Ok(names.any(|name| is_of_ecr(name)))
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

/// The part of a CSINode that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SlimCsiNode {
    pub metadata: Metadata,
}

/// By Node, whether its kubelet hands EBS volumes to the CSI driver.
pub fn migrations_of_ebs(nodes: &[SlimCsiNode]) -> BTreeMap<&str, bool> {
    let migrates = |node: &SlimCsiNode| {
        let plugins = node.metadata.annotations.get(MIGRATED_PLUGINS);
        plugins.is_some_and(|plugins| plugins.split(',').any(|plugin| plugin == EBS))
    };
    nodes
        .iter()
        .map(|node| (node.metadata.name.as_str(), migrates(node)))
        .collect()
}

/// The facts of a Node. Its kubelet is not read yet, unless its distribution writes down the arguments.
pub fn of_node(node: &SlimNode, migrates_ebs: Read<bool>) -> Node {
    let Metadata {
        name,
        labels,
        annotations,
        ..
    } = &node.metadata;
    let is_ready = |condition: &Condition| condition.r#type == "Ready" && condition.status == "True";
    let version = &node.status.node_info.kubelet_version;
    let arguments = node_args::ANNOTATIONS.iter().find_map(|key| annotations.get(*key));
    Node {
        name: name.clone(),
        created: node.metadata.creation_timestamp,
        provider_id: node.spec.provider_id.clone(),
        is_control_plane: CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)),
        is_ready: node.status.conditions.iter().any(is_ready),
        kubelet_version: version.clone(),
        host_name: labels.get(HOST_NAME).cloned(),
        is_uninitialized: node.spec.taints.iter().any(|taint| taint.key == taints::UNINITIALIZED),
        is_marked_external: annotations.get(annotations::KUBELET).map(String::as_str)
            == Some(annotations::EXTERNAL_KUBELET),
        migrates_ebs,
        has_ecr_image: node.status.has_ecr_image,
        kubelet: match arguments.map(|text| of_node_args(text, version)) {
            Some(read) => read,
            None => Read::NotRead(NotRead::because("its process was not asked for (--kubelets=none)")),
        },
    }
}

/// `ACCOUNT.dkr.ecr.REGION.amazonaws.com/…`, and its form for FIPS; public.ecr.aws needs no credentials.
fn is_of_ecr(image: &str) -> bool {
    let host = image.split('/').next().unwrap_or_default();
    host.contains(".dkr.ecr.") || host.contains(".dkr.ecr-fips.")
}

/// The last release in which `cloud-provider-name` of RKE2 is an in-tree provider.
const LAST_IN_TREE: KubernetesVersion = KubernetesVersion::v1(26);

/// The kubelet's part of the arguments of RKE2 or K3s.
fn of_node_args(text: &str, version: &str) -> Read<Kubelet> {
    let Some(arguments) = node_args::arguments(text) else {
        return Read::NotRead(NotRead::because(
            "the annotation with its arguments is no list of texts",
        ));
    };
    let is_in_tree = version
        .parse::<KubernetesVersion>()
        .is_ok_and(|version| version.minor <= LAST_IN_TREE.minor);

    // RKE2 and K3s put their own flags first, so that of --kubelet-arg counts.
    let mut command = vec!["kubelet".to_owned()];
    let names = node_args::values(&arguments, "--cloud-provider-name").filter(|_| is_in_tree);
    command.extend(names.map(|name| format!("--cloud-provider={name}")));
    command.extend(node_args::values(&arguments, "--kubelet-arg").map(|flag| format!("--{flag}")));

    of_command(&command, version, KubeletSource::NodeArgs)
}

/// The programs that are a kubelet. K3s runs it in its own process, whose arguments are others.
const PROGRAMS: [&str; 2] = ["kubelet", "hyperkube"];

/// The flags of a kubelet from `/debug/pprof/cmdline`: its arguments, each ended by a zero byte.
pub fn of_process(text: &str, version: &str) -> Read<Kubelet> {
    let command: Vec<String> = text.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    let program = command.first().and_then(|program| program.rsplit('/').next());
    if !program.is_some_and(|program| PROGRAMS.contains(&program)) {
        return Read::NotRead(NotRead::because("its answer is no command line of a kubelet"));
    }

    of_command(&command, version, KubeletSource::Process)
}

fn of_command(command: &[String], version: &str, from: KubeletSource) -> Read<Kubelet> {
    let container: Value = json!({"command": command});
    let line = match CommandLine::of_container(&container) {
        Ok(line) => line,
        Err(error) => return Read::NotRead(NotRead::because(error.to_string())),
    };

    let version = version.parse::<KubernetesVersion>().ok();
    let fatal = phase_flags::fatal(Component::Kubelet, &line, version);
    Read::Known(Kubelet {
        from,
        flags: flags::allowed(&line),
        does_not_start: fatal.ok().flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        of_node(&serde_json::from_value(value).unwrap(), Read::Known(true))
    }

    #[test]
    fn a_node_is_read_from_its_object() {
        let found = node(json!({
            "metadata": {
                "name": "cp-1", "creationTimestamp": "2026-11-30T04:00:00Z",
                "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/hostname": "ip-10-0-1-2"},
                "annotations": {"outrigger.dev/kubelet": "external"},
            },
            "spec": {
                "providerID": "aws:///eu-central-1a/i-1",
                "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.26.13"},
                "images": [{"names": ["1234.dkr.ecr.eu-central-1.amazonaws.com/a:1"]}, {"names": null}, {}],
            },
        }));
        assert_eq!(
            (found.name.as_str(), found.provider_id.as_str()),
            ("cp-1", "aws:///eu-central-1a/i-1")
        );
        assert!(found.is_control_plane && found.is_ready && found.is_uninitialized && found.is_marked_external);
        assert!(found.has_ecr_image);
        assert_eq!(found.host_name.as_deref(), Some("ip-10-0-1-2"));
        assert!(found.created.is_some() && found.kubelet.known().is_none());

        let bare = node(json!({"metadata": {"name": "a"}}));
        assert!(!bare.is_ready && !bare.has_ecr_image && bare.provider_id.is_empty());
    }

    #[test]
    fn a_kubelet_is_read_from_its_process() {
        let read = of_process(
            "/usr/bin/kubelet\0--cloud-provider=aws\0--v=2\0--token=s3cret\0",
            "v1.27.1",
        );
        let kubelet = read.known().unwrap();
        assert_eq!((kubelet.provider(), kubelet.flags.len()), ("aws", 1));
        assert!(kubelet.does_not_start.is_some());
        for other in ["", "<html>login</html>", "/usr/local/bin/k3s\0agent\0", "kubelet-x\0"] {
            assert!(of_process(other, "v1.26.1").known().is_none(), "{other}");
        }
    }

    #[test]
    fn a_kubelet_of_rke2_is_read_from_the_annotation() {
        let arguments = json!([
            "server",
            "--token",
            "********",
            "--cloud-provider-name",
            "aws",
            "--kubelet-arg",
            "cloud-provider=external",
            "--kubelet-arg=hostname-override=ip-10-0-1-2",
            "--kube-apiserver-arg",
            "cloud-provider=aws"
        ]);
        let found =
            node(json!({"metadata": {"name": "a", "annotations": {"rke2.io/node-args": arguments.to_string()}}}));
        let kubelet = found.kubelet.known().unwrap();
        assert_eq!(kubelet.from, KubeletSource::NodeArgs);
        assert_eq!(
            (kubelet.provider(), kubelet.flags["hostname-override"].as_str()),
            ("external", "ip-10-0-1-2")
        );

        let broken = node(json!({"metadata": {"name": "a", "annotations": {"k3s.io/node-args": "server"}}}));
        assert!(broken.kubelet.known().is_none());
    }

    #[test]
    fn the_plugins_of_a_csinode_are_a_list() {
        let nodes: Vec<SlimCsiNode> = [
            "kubernetes.io/aws-ebs,kubernetes.io/gce-pd",
            "kubernetes.io/aws-ebs-x",
            "",
        ]
        .iter()
        .enumerate()
        .map(|(number, plugins)| {
            let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": plugins});
            serde_json::from_value(json!({"metadata": {"name": number.to_string(), "annotations": annotations}}))
                .unwrap()
        })
        .collect();
        let found = migrations_of_ebs(&nodes);
        assert_eq!(found, BTreeMap::from([("0", true), ("1", false), ("2", false)]));
    }
}
