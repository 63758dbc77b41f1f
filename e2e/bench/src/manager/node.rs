//! The Nodes of the benches, before and after a cloud controller manager.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use outrigger_aws_sim::Instance;

/// Images in a Node's status. A kubelet lists at most 50.
const IMAGES: usize = 10;
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A Node as its kubelet registers it: tainted, without provider ID, zone and DNS addresses.
pub fn tainted(instance: &Instance) -> Value {
    let name = &instance.private_dns_name;
    let mut node = base(instance);
    node["spec"] = json!({"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]});
    node["status"]["addresses"] =
        json!([{"type": "InternalIP", "address": instance.private_ip}, {"type": "Hostname", "address": name}]);
    node
}

/// The same Node with all fields of a cloud controller manager.
pub fn initialized(instance: &Instance) -> Value {
    let mut node = base(instance);
    node["spec"] = json!({"providerID": instance.provider_id()});
    node["status"]["addresses"] = addresses(instance);
    for (label, value) in labels(instance) {
        node["metadata"]["labels"][label] = value.into();
    }
    node
}

/// The addresses that an instance with one private address has.
pub fn addresses(instance: &Instance) -> Value {
    let name = &instance.private_dns_name;
    let mut addresses = vec![json!({"type": "InternalIP", "address": instance.private_ip})];
    if let Some((ip, _)) = &instance.public {
        addresses.push(json!({"type": "ExternalIP", "address": ip}));
    }

    addresses.push(json!({"type": "InternalDNS", "address": name}));
    addresses.push(json!({"type": "Hostname", "address": name}));
    if let Some((_, dns)) = &instance.public {
        addresses.push(json!({"type": "ExternalDNS", "address": dns}));
    }

    addresses.into()
}

/// The labels that a cloud controller manager sets. The zone's ID may be another: managers do not change an existing
/// one.
pub fn labels(instance: &Instance) -> [(&'static str, String); 7] {
    let kind = &instance.instance_type;
    let (zone, region) = (&instance.zone, outrigger_aws_sim::REGION);
    [
        ("beta.kubernetes.io/instance-type", kind.clone()),
        ("node.kubernetes.io/instance-type", kind.clone()),
        ("failure-domain.beta.kubernetes.io/zone", zone.clone()),
        ("topology.kubernetes.io/zone", zone.clone()),
        ("failure-domain.beta.kubernetes.io/region", region.to_owned()),
        ("topology.kubernetes.io/region", region.to_owned()),
        ("topology.k8s.aws/zone-id", "use1-az1".to_owned()),
    ]
}

/// A kubelet's heartbeat.
pub fn heartbeat(now: Timestamp, ready: &str) -> Value {
    json!({"status": {"conditions": conditions(now, ready)}})
}

fn base(instance: &Instance) -> Value {
    let name = &instance.private_dns_name;
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "example.com/pool": "workers",
    });
    let annotations = json!({
        "alpha.kubernetes.io/provided-node-ip": instance.private_ip,
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "80Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    let images: Vec<Value> = (0..IMAGES)
        .map(|number| {
            let repository = format!("registry.example.com/team/component-{number}");
            let digest = format!("{repository}@sha256:{:064x}", number + 1);
            json!({"names": [digest, format!("{repository}:v1.{number}.0")], "sizeBytes": 40_000_000 + number})
        })
        .collect();

    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {
            "capacity": resources, "allocatable": resources, "images": images,
            "conditions": conditions(Timestamp::now(), "True"),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "ec2a1f0e6b3d4c5f8a9b0c1d2e3f4a5b", "systemUUID": "ec2a1f0e-6b3d-4c5f-8a9b-0c1d2e3f4a5b",
                "bootID": "6f1e2d3c-4b5a-4968-8776-655443322110", "kernelVersion": "6.12.0", "osImage": "Linux",
                "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

fn conditions(now: Timestamp, ready: &str) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": format!("kubelet says {reason}"),
            "lastHeartbeatTime": now, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };

    json!([
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition(
            "Ready",
            ready,
            if ready == "True" {
                "KubeletReady"
            } else {
                "NodeStatusUnknown"
            }
        ),
    ])
}

/// The fields of a Node that the harness reads.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Seen {
    pub metadata: SeenMetadata,
    #[serde(default)]
    pub spec: SeenSpec,
    #[serde(default)]
    pub status: SeenStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct SeenMetadata {
    #[serde(default)]
    pub name: String,
    #[serde(rename = "resourceVersion", default)]
    pub resource_version: String,
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct SeenSpec {
    #[serde(rename = "providerID", default)]
    pub provider_id: String,
    #[serde(default)]
    pub taints: Vec<SeenTaint>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SeenTaint {
    pub key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct SeenStatus {
    #[serde(default)]
    pub addresses: Vec<SeenAddress>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SeenAddress {
    #[serde(rename = "type")]
    pub kind: String,
}

impl Seen {
    /// Whether both writes are done. The incumbent removes the taint before it writes addresses, Outrigger after.
    pub fn is_initialized(&self) -> bool {
        let tainted = self.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED);
        let mut addresses = self.status.addresses.iter();
        !tainted && !self.spec.provider_id.is_empty() && addresses.any(|address| address.kind == "InternalDNS")
    }

    /// The first wrong field of an initialized Node.
    pub fn fault(&self, instance: &Instance) -> Option<String> {
        if self.spec.provider_id != instance.provider_id() {
            return Some(format!("provider ID {:?}", self.spec.provider_id));
        }

        let wrong = labels(instance).into_iter().find(|(label, value)| {
            let own = self.metadata.labels.get(*label);
            own.is_none_or(|own| own != value && *label != "topology.k8s.aws/zone-id")
        });
        if let Some((label, value)) = wrong {
            return Some(format!(
                "label {label} is {:?}, not {value:?}",
                self.metadata.labels.get(label)
            ));
        }

        let own = |kind: &str| self.status.addresses.iter().any(|address| address.kind == kind);
        let missing = ["InternalIP", "InternalDNS", "Hostname"]
            .into_iter()
            .find(|kind| !own(kind));
        missing.map(|kind| format!("no address of type {kind}"))
    }
}
