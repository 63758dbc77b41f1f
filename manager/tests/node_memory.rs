//! How much memory the cache needs for a Node as real ones are. Run with `--nocapture` to see the numbers.

#![cfg(target_os = "linux")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends at the first thing that is not as it should be"
)]

use kube::runtime::watcher::Event;
use outrigger_manager::node_cache::{NodeCache, NodeView};
use serde_json::{Value, json};

/// A Node with what kubelets, EKS-like images and controllers put on it: some 30 labels, five annotations, 50 images.
fn real(number: usize, version: usize) -> Value {
    let (ip, name) = (
        format!("10.{}.{}.{}", number / 62_500, number / 250 % 250, number % 250),
        format!(
            "ip-10-{}-{}-{}.eu-central-1.compute.internal",
            number / 62_500,
            number / 250 % 250,
            number % 250
        ),
    );
    let zone = format!("eu-central-1{}", ["a", "b", "c"][number % 3]);
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": "m5.2xlarge", "node.kubernetes.io/instance-type": "m5.2xlarge",
        "failure-domain.beta.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/region": "eu-central-1",
        "failure-domain.beta.kubernetes.io/zone": zone, "topology.kubernetes.io/zone": zone,
        "topology.k8s.aws/zone-id": "euc1-az2", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": "",
    });
    for extra in 0..17 {
        labels[format!("example.com/team-label-{extra}")] = format!("value-{}", number % 20).into();
    }
    let images: Vec<Value> = (0..50)
        .map(|image| {
            let name = format!("registry.example/team/service-{image}");
            json!({"names": [format!("{name}@sha256:{:064x}", image), format!("{name}:v1.{image}")], "sizeBytes": 1_000_000 + image})
        })
        .collect();
    let conditions: Vec<Value> = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    .into_iter()
    .map(|(kind, status, reason)| {
        json!({"type": kind, "status": status, "reason": reason, "message": "kubelet has something to say",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    })
    .collect();
    json!({
        "metadata": {
            "name": name, "uid": format!("{number:08x}-aaaa-bbbb-cccc-{number:012x}"), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": ip, "node.alpha.kubernetes.io/ttl": "0",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{number:017x}\"}}"),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "projectcalico.org/IPv4Address": format!("{ip}/20"),
            },
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:conditions": {}}}}],
        },
        "spec": {
            "providerID": format!("aws:///{zone}/i-{number:017x}"),
            "podCIDR": format!("100.{}.{}.0/24", number / 250, number % 250),
            "podCIDRs": [format!("100.{}.{}.0/24", number / 250, number % 250)],
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": ip}, {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "conditions": conditions, "images": images,
        },
    })
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let path = "/proc/self/statm";
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}, which this test needs: {error}"));
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn fill(cache: &NodeCache, from: usize, to: usize) {
    for number in from..to {
        let text = real(number, number).to_string();
        let node: NodeView = serde_json::from_str(&text).unwrap();
        cache.observe(Event::Apply(node));
    }
}

#[test]
fn a_node_of_fifty_images_takes_less_than_three_kilobytes_and_ten_thousand_grow_as_a_line() {
    let cache = NodeCache::new();
    fill(&cache, 0, 100);
    let start = resident();
    let began = std::time::Instant::now();
    fill(&cache, 100, 5_100);
    let half = resident();
    fill(&cache, 5_100, 10_100);
    let full = resident();
    let (first, second) = ((half - start) / 5_000, (full - half) / 5_000);
    println!(
        "bytes of memory for each Node: {first} in the first 5,000, {second} in the next 5,000 ({:?} to make and read all)",
        began.elapsed()
    );
    // The allocator rounds and keeps what was freed, so this is an upper bound of what the Nodes need.
    assert!(first < 3_000 && second < 3_000, "{first} and {second} bytes");
    assert!(
        second < 2 * first.max(500),
        "{first}, then {second} bytes: that is no line"
    );
    assert_eq!(cache.snapshot().len(), 10_100);
}
