//! Fields that a published definition requires and that no rule of the webhook reads: the cases do without them.

use serde_json::Value;

/// The beginning of `apiVersion`, the kind, the place and the fields. `#` stands for each item of a list.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (
        "cluster.x-k8s.io/v1beta2",
        "ClusterClass",
        "/spec",
        r#"{
            "controlPlane": {"templateRef":
                {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "One", "name": "one"}},
            "infrastructure": {"templateRef":
                {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "One", "name": "one"}}
        }"#,
    ),
    (
        "controlplane.cluster.x-k8s.io/v1beta1",
        "KubeadmControlPlane",
        "/spec",
        r#"{"machineTemplate": {"infrastructureRef": {"kind": "AWSMachineTemplate", "name": "one"}}}"#,
    ),
    (
        "controlplane.cluster.x-k8s.io/v1beta2",
        "KubeadmControlPlane",
        "/spec",
        r#"{"machineTemplate": {"spec": {"infrastructureRef":
            {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "one"}}}}"#,
    ),
    (
        "controlplane.cluster.x-k8s.io",
        "RKE2ControlPlane",
        "/spec",
        r#"{"rolloutStrategy": {"type": "RollingUpdate"}}"#,
    ),
    (
        "controlplane.cluster.x-k8s.io",
        "RKE2ControlPlaneTemplate",
        "/spec/template/spec",
        r#"{"rolloutStrategy": {"type": "RollingUpdate"}}"#,
    ),
    (
        "ec2.aws.crossplane.io",
        "Instance",
        "/spec/forProvider",
        r#"{"region": "eu-west-1"}"#,
    ),
    (
        "ec2.aws.crossplane.io",
        "Volume",
        "/spec/forProvider",
        r#"{"region": "eu-west-1", "availabilityZone": "eu-west-1a"}"#,
    ),
    ("ec2.services.k8s.aws", "LaunchTemplate", "/spec", r#"{"name": "one"}"#),
    (
        "ec2.services.k8s.aws",
        "SecurityGroup",
        "/spec",
        r#"{"name": "one", "description": "one"}"#,
    ),
    (
        "ec2.services.k8s.aws",
        "VPC",
        "/spec",
        r#"{"cidrBlocks": ["10.0.0.0/16"]}"#,
    ),
    (
        "hypershift.openshift.io",
        "HostedCluster",
        "/spec",
        r#"{"pullSecret": {"name": "one"}, "release": {"image": "one"}, "services": [
            {"service": "APIServer", "servicePublishingStrategy": {"type": "LoadBalancer"}},
            {"service": "OAuthServer", "servicePublishingStrategy": {"type": "Route"}},
            {"service": "Konnectivity", "servicePublishingStrategy": {"type": "Route"}},
            {"service": "Ignition", "servicePublishingStrategy": {"type": "Route"}}],
            "etcd": {"managementType": "Managed", "managed": {"storage": {"type": "PersistentVolume",
                "persistentVolume": {"size": "8Gi"}}}},
            "networking": {"networkType": "OVNKubernetes", "clusterNetwork": [{"cidr": "10.132.0.0/14"}],
                "serviceNetwork": [{"cidr": "172.31.0.0/16"}]}}"#,
    ),
    (
        "hypershift.openshift.io",
        "HostedCluster",
        "/spec/platform/aws",
        r#"{"region": "eu-west-1", "rolesRef": {"controlPlaneOperatorARN": "one", "imageRegistryARN": "one",
            "ingressARN": "one", "kubeCloudControllerARN": "one", "networkARN": "one", "nodePoolManagementARN": "one",
            "storageARN": "one"}}"#,
    ),
    (
        "infrastructure.cluster.x-k8s.io",
        "AWSMachineTemplate",
        "/spec/template/spec",
        r#"{"instanceType": "t3.large"}"#,
    ),
    (
        "kamaji.clastix.io",
        "TenantControlPlane",
        "/spec",
        r#"{"networkProfile": {}}"#,
    ),
    (
        "kamaji.clastix.io",
        "TenantControlPlane",
        "/spec/kubernetes",
        r#"{"kubelet": {}}"#,
    ),
    (
        "kamaji.clastix.io",
        "TenantControlPlane",
        "/spec/controlPlane",
        r#"{"service": {"serviceType": "ClusterIP"}}"#,
    ),
    (
        "karpenter.k8s.aws",
        "EC2NodeClass",
        "/spec",
        r#"{"role": "one", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}], "subnetSelectorTerms": [{"id": "subnet-1"}]}"#,
    ),
    (
        "kubermatic.k8c.io",
        "Cluster",
        "/spec",
        r#"{"clusterNetwork": {"pods": {"cidrBlocks": []}, "services": {"cidrBlocks": []}, "dnsDomain": "cluster.local",
            "proxyMode": "ipvs"}, "exposeStrategy": "NodePort", "humanReadableName": "one"}"#,
    ),
    (
        "kubermatic.k8c.io",
        "Cluster",
        "/spec/cloud",
        r#"{"providerName": "aws", "dc": "one"}"#,
    ),
    (
        "kubermatic.k8c.io",
        "Cluster",
        "/spec/cloud/aws",
        r#"{"instanceProfileName": "", "roleARN": "", "routeTableID": "", "securityGroupID": ""}"#,
    ),
    (
        "kubermatic.k8c.io",
        "Cluster",
        "/spec/cloud/openstack",
        r#"{"floatingIPPool": "", "routerID": "", "securityGroups": "", "subnetID": ""}"#,
    ),
    (
        "kubermatic.k8c.io",
        "Cluster",
        "/status/conditions/ClusterInitialized",
        r#"{"lastHeartbeatTime": "2024-01-01T00:00:00Z"}"#,
    ),
    (
        "machine.openshift.io",
        "ControlPlaneMachineSet",
        "/spec",
        r#"{"replicas": 3, "selector": {"matchLabels": {"machine.openshift.io/cluster-api-cluster": "one",
            "machine.openshift.io/cluster-api-machine-role": "master",
            "machine.openshift.io/cluster-api-machine-type": "master"}}}"#,
    ),
    (
        "machine.openshift.io",
        "ControlPlaneMachineSet",
        "/spec/template/machines_v1beta1_machine_openshift_io",
        r#"{"metadata": {"labels": {"machine.openshift.io/cluster-api-cluster": "one",
            "machine.openshift.io/cluster-api-machine-role": "master",
            "machine.openshift.io/cluster-api-machine-type": "master"}}}"#,
    ),
    (
        "provisioning.cattle.io",
        "Cluster",
        "/spec/rkeConfig/machinePools/#",
        r#"{"machineConfigRef": {"kind": "Amazonec2Config", "name": "one"}}"#,
    ),
];

/// Adds the fields that are absent.
pub fn complete(object: &mut Value) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    for (version, kind, place, fields) in ROWS {
        if api_version.starts_with(version) && object["kind"] == *kind {
            let fields: Value = serde_json::from_str(fields).expect("fields in JSON");
            add(object, place, &fields);
        }
    }
}

fn add(object: &mut Value, place: &str, fields: &Value) {
    if let Some((list, rest)) = place.split_once("/#") {
        let items = object.pointer_mut(list).and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(|item| add(item, rest, fields));
        return;
    }
    let Some(Value::Object(found)) = object.pointer_mut(place) else {
        return;
    };
    for (name, value) in fields.as_object().into_iter().flatten() {
        found.entry(name).or_insert_with(|| value.clone());
    }
}
