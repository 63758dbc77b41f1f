//! The manager as a static Pod is that of the DaemonSet, except where a static Pod has to differ.

use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::{Value, json};

use super::rendered;

/// Fields that a static Pod cannot have, or does not need: its machine is the one with its file.
const ONLY_DAEMON_SET: [&str; 4] = [
    "affinity",
    "automountServiceAccountToken",
    "serviceAccountName",
    "tolerations",
];
const FOLDER: &str = "/etc/kubernetes/outrigger-manager";

async fn pod(tools: &Tools) -> Value {
    let objects = rendered(tools, "overlays/static-pod/machine").await;
    let [pod] = objects.as_slice() else {
        panic!("the machine's part is one Pod: {objects:?}")
    };
    pod.clone()
}

/// The Pod as its kubelet writes it to the API server, which refuses one that uses a service account or a Secret.
pub async fn mirror(tools: &Tools) -> Value {
    let mut pod = pod(tools).await;
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123abcd"});
    pod["spec"]["nodeName"] = json!("ip-10-0-0-1.ec2.internal");
    pod
}

fn remove(object: &mut Value, field: &str) -> Value {
    let fields = object.as_object_mut().expect("an object");
    fields.remove(field).unwrap_or_else(|| panic!("there is no {field}"))
}

#[tokio::test]
async fn the_static_pod_is_the_pod_of_the_daemon_set_with_a_kubeconfig() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let objects = rendered(&tools, "base").await;
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet");
    let set = set.expect("the DaemonSet");
    let mut expected = set["spec"]["template"].clone();
    let mut pod = pod(&tools).await;

    for field in ONLY_DAEMON_SET {
        remove(&mut expected["spec"], field);
    }
    assert_eq!(pod["metadata"]["name"], set["metadata"]["name"]);
    assert_eq!(pod["metadata"]["namespace"], set["metadata"]["namespace"]);

    // <https://github.com/kubernetes/kubernetes/blob/v1.26.0/pkg/apis/scheduling/types.go>
    assert_eq!(remove(&mut pod["spec"], "priority"), 2_000_001_000);
    let folder = json!({"path": FOLDER, "type": "Directory"});
    let volumes = json!([{"name": "configuration", "hostPath": folder}]);
    assert_eq!(remove(&mut pod["spec"], "volumes"), volumes);
    let container = &mut pod["spec"]["containers"][0];
    let mounts = json!([{"name": "configuration", "mountPath": FOLDER, "readOnly": true}]);
    assert_eq!(remove(container, "volumeMounts"), mounts);
    let last = container["args"].as_array_mut().expect("arguments").pop();
    assert_eq!(last, Some(json!(format!("--kubeconfig={FOLDER}/kubeconfig"))));

    assert_eq!(pod["metadata"]["labels"], expected["metadata"]["labels"]);
    assert_eq!(pod["spec"], expected["spec"]);
}

#[tokio::test]
async fn the_cluster_has_the_base_with_a_user_instead_of_the_daemon_set_and_its_account() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let mut base = rendered(&tools, "base").await;
    let mut bindings = 0;
    base.retain(|object| {
        let name = &object["metadata"]["name"];
        !(name == "outrigger-manager" && (object["kind"] == "DaemonSet" || object["kind"] == "ServiceAccount"))
    });
    for subjects in base.iter_mut().filter_map(|object| object.get_mut("subjects")) {
        if subjects[0]["kind"] == "ServiceAccount" && subjects[0]["name"] == "outrigger-manager" {
            *subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "outrigger-manager"}]);
            bindings += 1;
        }
    }
    assert!(bindings > 4, "{bindings} bindings");

    assert_eq!(rendered(&tools, "overlays/static-pod/cluster").await, base);
}
