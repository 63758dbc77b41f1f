//! The objects of the reviews, with all defaults of the API server: a webhook with typed objects would otherwise add
//! some to its patch.

use serde_json::{Value, json};

/// The namespace of the hosted control plane.
pub(super) const CONTROL_PLANE: &str = "control-plane-prod";
/// The label in the migration's selector of the control plane's workloads.
const CLUSTER_LABEL: &str = "example.com/cluster";
/// The least size of the big object, in bytes.
const BIG: usize = 100 * 1024;

/// The migrations: one of a hosted control plane, one of the Nodes of the own cluster.
pub(super) fn migrations() -> Vec<Value> {
    let migration = |name: &str, targets: Value| {
        json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": name},
            // With downtime no decision waits for a manager's evidence, and with Always none for its lease.
            "spec": {"clusterID": name, "phase": "Migrate", "downtime": true, "nodeTaint": "Always", "targets": targets},
        })
    };
    let hosted = json!([{
        "profile": "HostedControlPlane",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": CONTROL_PLANE}},
        "objectSelector": {"matchLabels": {CLUSTER_LABEL: "prod"}},
    }]);

    vec![
        migration("prod", hosted),
        migration("own", json!([{"profile": "Nodes"}])),
    ]
}

fn managed_by(manager: &str, fields: &Value) -> Value {
    json!([{"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// A Node as its kubelet creates it.
pub(super) fn node() -> Value {
    let resources = json!({"cpu": "4", "ephemeral-storage": "83873772Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "16073932Ki", "pods": "110"});
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("the kubelet says {reason}"),
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z"})
    };
    let name = "ip-10-0-12-34.eu-west-1.compute.internal";
    let labels = json!({"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "node.example.com/pool": "general"});

    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "managedFields": managed_by("kubelet", &json!({"f:metadata": {"f:annotations": {".": {}}, "f:labels": {".": {}}}, "f:status": {"f:addresses": {}}}))},
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.12.34"}, {"type": "Hostname", "address": name}],
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "False", "KubeletNotReady"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"machineID": "ec2b1c0ffee", "systemUUID": "ec2b1c0f-fee0", "bootID": "0b007", "kernelVersion": "6.1.0",
                "osImage": "Linux", "containerRuntimeVersion": "containerd://1.7.0", "kubeletVersion": "v1.26.15",
                "kubeProxyVersion": "v1.26.15", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

/// `environment` is the number of its variables.
fn pod(environment: usize) -> Value {
    let variables: Vec<Value> = (0..environment)
        .map(|number| json!({"name": format!("SETTING_{number:04}"), "value": format!("the value of the setting {number} of this program")}))
        .collect();
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5, "timeoutSeconds": 1,
            "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    };
    let container = json!({
        "name": "server", "image": "registry.example.com/shop/server:4.5.6", "args": ["--listen=:8080", "--log=json"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "env": variables,
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "512Mi"}},
        "volumeMounts": [{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"), "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });

    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});

    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "server-6d4cf56db6-", "namespace": "shop",
            "labels": {"app.kubernetes.io/name": "server", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "server-6d4cf56db6",
                "uid": "4f8fd25f-5d7c-4a3c-9d8c-0f5b6f0a2b3c", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_by("kube-controller-manager", &json!({"f:metadata": {"f:labels": {".": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"server\"}": {".": {}}}}}))},
        "spec": {
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
            "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "server", "serviceAccount": "server", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    })
}

/// A Pod that no migration selects.
pub(super) fn small_pod() -> Value {
    pod(8)
}

/// The same with so many variables that it has 100 KiB.
pub(super) fn big_pod() -> Value {
    let one = pod(1).to_string().len();
    let each = pod(2).to_string().len() - one;
    pod(1 + (BIG - one).div_ceil(each))
}

/// The Deployment of a hosted kube-controller-manager 1.26 with the in-tree provider.
pub(super) fn controller_manager() -> Value {
    let labels = json!({"app": "kube-controller-manager", CLUSTER_LABEL: "prod"});
    let command = [
        "kube-controller-manager",
        "--kubeconfig=/etc/kubernetes/controller-manager.kubeconfig",
        "--authentication-kubeconfig=/etc/kubernetes/controller-manager.kubeconfig",
        "--authorization-kubeconfig=/etc/kubernetes/controller-manager.kubeconfig",
        "--cloud-provider=aws",
        "--cloud-config=/etc/kubernetes/cloud.conf",
        "--cluster-name=prod",
        "--cluster-cidr=100.96.0.0/11",
        "--service-cluster-ip-range=100.64.0.0/13",
        "--allocate-node-cidrs=true",
        "--configure-cloud-routes=true",
        "--leader-elect=true",
        "--use-service-account-credentials=true",
        "--root-ca-file=/etc/kubernetes/pki/ca.crt",
        "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
        "--v=2",
    ];

    let container = json!({
        "name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.15", "command": command,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "kubernetes", "readOnly": true, "mountPath": "/etc/kubernetes"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 10257, "scheme": "HTTPS"}, "initialDelaySeconds": 15,
            "timeoutSeconds": 15, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 8},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
    });

    let spec = json!({
        "volumes": [{"name": "kubernetes", "secret": {"secretName": "kube-controller-manager", "defaultMode": 420}}],
        "containers": [container], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "automountServiceAccountToken": false, "securityContext": {}, "schedulerName": "default-scheduler",
    });

    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kube-controller-manager", "namespace": CONTROL_PLANE, "labels": labels,
            "managedFields": managed_by("operator", &json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {}}}}}))},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
        },
        "status": {},
    })
}
