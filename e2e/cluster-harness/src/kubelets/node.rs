//! The Node objects that kubelets make. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

pub const VERSION: &str = "v1.26.13";

pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// An instance of EC2, as AWS and its kubelet know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    /// Its availability zone, `eu-west-1a`.
    pub zone: String,
    /// The zone's region, `eu-west-1`.
    pub region: String,
    pub instance_type: String,
    /// Its first private address.
    pub private_ip: String,
    /// The private DNS name that EC2 gave it: `ip-10-0-0-1.eu-west-1.compute.internal`. The Node's name under the AWS
    /// providers.
    pub private_dns_name: String,
    /// Its public address and DNS name, if it has them.
    pub public: Option<(String, String)>,
}

impl Instance {
    /// The Node's provider ID, as both AWS providers write it.
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// `system:node:NAME` of `system:nodes`, by impersonation: the cluster's configuration must be an administrator's.
    Node,
    /// The user of the cluster's configuration.
    Client,
}

/// A Node and how its kubelet behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    pub(super) name: String,
    pub(super) identity: Identity,
    pub(super) every: Duration,
    provider_id: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    addresses: Vec<(&'static str, String)>,
    /// True where the kubelet writes the addresses with every status, not only when it registers.
    owns_addresses: bool,
    taints: Vec<Value>,
}

impl NodeSpec {
    /// A Node of no cloud, at the loopback address, as the client's own user.
    pub fn plain(name: &str) -> Self {
        let addresses = vec![("InternalIP", "127.0.0.1".to_owned()), ("Hostname", name.to_owned())];
        Self {
            identity: Identity::Client,
            ..Self::base(name, addresses, true)
        }
    }

    /// As a kubelet with the in-tree provider registers: with provider ID, zone, region and instance type under their
    /// old and new labels, and the addresses, which it writes again with every status. The Node has the private DNS
    /// name.
    pub fn in_tree(instance: &Instance) -> Self {
        let name = &instance.private_dns_name;
        let mut addresses = vec![("InternalIP", instance.private_ip.clone())];
        addresses.extend(instance.public.as_ref().map(|(ip, _)| ("ExternalIP", ip.clone())));
        addresses.extend([("Hostname", name.clone()), ("InternalDNS", name.clone())]);
        addresses.extend(instance.public.as_ref().map(|(_, dns)| ("ExternalDNS", dns.clone())));

        let mut node = Self::base(name, addresses, true);
        node.provider_id = Some(instance.provider_id());
        for (label, value) in [
            ("beta.kubernetes.io/instance-type", &instance.instance_type),
            ("node.kubernetes.io/instance-type", &instance.instance_type),
            ("failure-domain.beta.kubernetes.io/zone", &instance.zone),
            ("topology.kubernetes.io/zone", &instance.zone),
            ("failure-domain.beta.kubernetes.io/region", &instance.region),
            ("topology.kubernetes.io/region", &instance.region),
        ] {
            node.labels.insert(label.into(), value.clone());
        }

        node
    }

    /// As a kubelet with `--cloud-provider=external` and `--node-ip` registers: no provider ID, nothing about the
    /// cloud, the given address and the host name once, and the annotation that tells the address. Without the taint
    /// that such a kubelet sets itself: see [`NodeSpec::uninitialized`].
    pub fn external(instance: &Instance) -> Self {
        let name = &instance.private_dns_name;
        let addresses = vec![("InternalIP", instance.private_ip.clone()), ("Hostname", name.clone())];
        let mut node = Self::base(name, addresses, false);

        node.annotations.insert(
            "alpha.kubernetes.io/provided-node-ip".into(),
            instance.private_ip.clone(),
        );

        node
    }

    /// With the taint that keeps Pods away until a cloud controller manager has initialized the Node.
    #[must_use]
    pub fn uninitialized(mut self) -> Self {
        self.taints.push(json!({
            "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"
        }));
        self
    }

    /// With another pause between heartbeats than the kubelet's 10 s.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn base(name: &str, addresses: Vec<(&'static str, String)>, owns_addresses: bool) -> Self {
        let labels = [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", "amd64"),
        ];
        Self {
            name: name.to_owned(),
            identity: Identity::Node,
            every: Duration::from_secs(10),
            provider_id: None,
            labels: labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            annotations: BTreeMap::new(),
            addresses,
            owns_addresses,
            taints: Vec::new(),
        }
    }

    /// The Node as it is created.
    pub(super) fn object(&self, now: Timestamp) -> Value {
        let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels, "annotations": self.annotations},
            "spec": {"providerID": self.provider_id, "taints": self.taints},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": self.address_list(),
                "conditions": conditions(now, now),
                "nodeInfo": {
                    "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "harness",
                    "containerRuntimeVersion": "", "kubeletVersion": VERSION, "kubeProxyVersion": VERSION,
                    "operatingSystem": "linux", "architecture": "amd64",
                },
            },
        })
    }

    /// A strategic merge patch of the status: conditions of others stay. A kubelet of an external cloud leaves the
    /// addresses to the cloud controller manager once there are any.
    pub(super) fn heartbeat(&self, ready_since: Timestamp, now: Timestamp) -> Value {
        let mut status = json!({"conditions": conditions(ready_since, now)});
        if let (true, Some(fields)) = (self.owns_addresses, status.as_object_mut()) {
            // Addresses of one type would be merged into one without the directive, which the kubelet sends as well.
            let mut addresses = self.address_list();
            addresses.push(json!({"$patch": "replace"}));
            fields.insert("addresses".into(), addresses.into());
        }

        json!({"status": status})
    }

    /// The Node's lease; 40 s is the kubelet's default duration.
    pub(super) fn lease(&self, owner: &str, now: Timestamp) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": LEASE_NAMESPACE,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": owner}],
            },
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
        })
    }

    fn address_list(&self) -> Vec<Value> {
        self.addresses
            .iter()
            .map(|(kind, address)| json!({"type": kind, "address": address}))
            .collect()
    }
}

/// The API's `MicroTime`: always six digits.
pub(super) fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn conditions(since: Timestamp, now: Timestamp) -> Vec<Value> {
    let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    .map(|(kind, status, reason)| {
        json!({
            "type": kind, "status": status, "reason": reason,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(since),
        })
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        Instance {
            id: "i-0abc".into(),
            zone: "eu-west-1a".into(),
            region: "eu-west-1".into(),
            instance_type: "m5.large".into(),
            private_ip: "10.0.0.1".into(),
            private_dns_name: "ip-10-0-0-1.eu-west-1.compute.internal".into(),
            public: None,
        }
    }

    #[test]
    fn an_in_tree_kubelet_tells_the_cloud_and_keeps_writing_addresses() {
        let spec = NodeSpec::in_tree(&instance());
        let node = spec.object(Timestamp::UNIX_EPOCH);
        assert_eq!(node["spec"]["providerID"], "aws:///eu-west-1a/i-0abc");
        assert_eq!(
            node["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"],
            "eu-west-1a"
        );
        assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/region"], "eu-west-1");
        let kinds: Vec<_> = node["status"]["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|a| &a["type"])
            .collect();
        assert_eq!(kinds, ["InternalIP", "Hostname", "InternalDNS"]);
        let heartbeat = spec.heartbeat(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert_eq!(heartbeat["status"]["addresses"][3], json!({"$patch": "replace"}));
    }

    #[test]
    fn an_external_kubelet_knows_nothing_of_the_cloud_and_leaves_addresses_alone() {
        let spec = NodeSpec::external(&instance());
        let node = spec.object(Timestamp::UNIX_EPOCH);
        assert_eq!(node["metadata"]["name"], "ip-10-0-0-1.eu-west-1.compute.internal");
        assert_eq!(node["spec"]["providerID"], Value::Null);
        assert_eq!(node["spec"]["taints"], json!([]));
        assert_eq!(node["metadata"]["labels"].get("topology.kubernetes.io/zone"), None);
        assert_eq!(
            node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"],
            "10.0.0.1"
        );
        let heartbeat = spec.heartbeat(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert_eq!(heartbeat["status"].get("addresses"), None);
        let tainted = spec.uninitialized().object(Timestamp::UNIX_EPOCH);
        assert_eq!(
            tainted["spec"]["taints"][0]["key"],
            "node.cloudprovider.kubernetes.io/uninitialized"
        );
    }

    #[test]
    fn micro_times_have_six_digits() {
        assert_eq!(micro_time(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        let at = "2024-02-03T04:05:06.012345678Z".parse().expect("a time");
        assert_eq!(micro_time(at), "2024-02-03T04:05:06.012345Z");
    }
}
