//! The response of `/configz`: the flags in the form of the incumbent's configuration object. The field names are those
//! of its Go types; fields without a JSON name begin with a capital letter. It contains file names, never file content.

use serde_json::{Value, json};

use super::parse::CommandLine;
use super::value::go_duration;

/// The object, under the key by which the incumbent serves it.
pub(super) fn document(line: &mut CommandLine) -> Value {
    json!({"cloudcontrollermanager.config.k8s.io": {
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
        "Generic": generic(line),
        "KubeCloudShared": shared(line),
        "NodeController": {
            "ConcurrentNodeSyncs": line.int::<i64>("concurrent-node-syncs"),
            "ConcurrentNodeStatusUpdates": line.int::<i64>("concurrent-node-status-updates"),
        },
        "NodeLifecycleController": {
            "NodeMonitorPeriod": duration(line, "node-monitor-period"),
            "ConcurrentNodeLifecycleSyncs": line.int::<i64>("concurrent-node-lifecycle-syncs"),
        },
        "ServiceController": {
            "ConcurrentServiceSyncs": line.int::<i64>("concurrent-service-syncs"),
        },
        "NodeStatusUpdateFrequency": duration(line, "node-status-update-frequency"),
        "Webhook": {"Webhooks": line.list("webhooks")},
    }})
}

fn duration(line: &mut CommandLine, name: &'static str) -> String {
    go_duration(line.duration(name))
}

fn generic(line: &mut CommandLine) -> Value {
    json!({
        "Port": line.int::<i64>("secure-port"),
        "Address": line.text("bind-address"),
        "MinResyncPeriod": duration(line, "min-resync-period"),
        "ClientConnection": {
            "kubeconfig": line.text("kubeconfig"),
            "acceptContentTypes": "",
            "contentType": line.text("kube-api-content-type"),
            "qps": line.float("kube-api-qps"),
            "burst": line.int::<i64>("kube-api-burst"),
        },
        "ControllerStartInterval": duration(line, "controller-start-interval"),
        "LeaderElection": {
            "leaderElect": line.bool("leader-elect"),
            "leaseDuration": duration(line, "leader-elect-lease-duration"),
            "renewDeadline": duration(line, "leader-elect-renew-deadline"),
            "retryPeriod": duration(line, "leader-elect-retry-period"),
            "resourceLock": line.text("leader-elect-resource-lock"),
            "resourceName": line.text("leader-elect-resource-name"),
            "resourceNamespace": line.text("leader-elect-resource-namespace"),
        },
        "Controllers": line.list("controllers"),
        "Debugging": {
            "enableProfiling": line.bool("profiling"),
            "enableContentionProfiling": line.bool("contention-profiling"),
        },
        "LeaderMigrationEnabled": line.bool("enable-leader-migration"),
        "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": null},
    })
}

fn shared(line: &mut CommandLine) -> Value {
    json!({
        "CloudProvider": {
            "Name": line.text("cloud-provider"),
            "CloudConfigFile": line.text("cloud-config"),
        },
        "ExternalCloudVolumePlugin": "",
        "UseServiceAccountCredentials": line.bool("use-service-account-credentials"),
        "AllowUntaggedCloud": line.bool("allow-untagged-cloud"),
        "RouteReconciliationPeriod": duration(line, "route-reconciliation-period"),
        "ClusterName": line.text("cluster-name"),
        "ClusterCIDR": line.text("cluster-cidr"),
        "AllocateNodeCIDRs": line.bool("allocate-node-cidrs"),
        "CIDRAllocatorType": line.text("cidr-allocator-type"),
        "ConfigureCloudRoutes": line.bool("configure-cloud-routes"),
        "NodeSyncPeriod": duration(line, "node-sync-period"),
    })
}
