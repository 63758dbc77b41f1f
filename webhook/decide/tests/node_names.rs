//! The table of Node names (`decide::NODE_NAMES`) against the rules: a name that changes is said in Prepare and again in
//! Migrate, and no phase changes a name of the provider that also names Nodes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;

use outrigger_decide::{Decision, Input, Migration, NODE_NAMES, Outcome, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use serde_json::{Value, json};

const NAMESPACE: &str = "clusters";

fn review(object: &Value, phase: Phase) -> Decision {
    let selector = || serde_json::from_value(json!({"matchLabels": {"cluster": "prod"}})).unwrap();
    let profiles = [
        Profile::ClusterAPI,
        Profile::HostedControlPlane,
        Profile::RancherRKE1,
        Profile::RancherRKE2,
    ];
    let targets = profiles.map(|profile| Target {
        profile,
        namespace_selector: None,
        object_selector: Some(selector()),
    });
    let spec = CloudProviderMigrationSpec {
        phase,
        targets: targets.to_vec(),
        kubernetes_version: Some("1.26".to_owned()),
        ..CloudProviderMigrationSpec::new("prod")
    };
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), NAMESPACE.to_owned())]);
    decide(&Input {
        namespace: Some(NAMESPACE),
        namespace_labels: Some(&labels),
        own_namespace: Some("outrigger-system"),
        ..Input::creation(object, &migrations)
    })
}

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    let metadata = json!({"name": "prod", "namespace": NAMESPACE, "labels": {"cluster": "prod"}});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn rancher(machine_global_config: Value, version: &str) -> Value {
    let config = json!({"kubernetesVersion": version, "rkeConfig": {"machineGlobalConfig": machine_global_config}});
    object("provisioning.cattle.io/v1", "Cluster", config)
}

fn rke1(config: Value) -> Value {
    let mut config = config;
    config["kubernetesVersion"] = json!("v1.26.8-rancher1-1");
    config["cloudProvider"] = json!({"name": "aws"});
    object(
        "management.cattle.io/v3",
        "Cluster",
        json!({"rancherKubernetesEngineConfig": config}),
    )
}

fn caprke2(server: Value, kubelet: Value) -> Value {
    let spec = json!({"version": "v1.26.13+rke2r1", "serverConfig": server, "agentConfig": {"kubelet": {"extraArgs": kubelet}}});
    object("controlplane.cluster.x-k8s.io/v1beta1", "RKE2ControlPlane", spec)
}

fn kubeadm(name: Value) -> Value {
    let join = json!({"nodeRegistration": {"name": name, "kubeletExtraArgs": {"cloud-provider": "aws"}}});
    object(
        "bootstrap.cluster.x-k8s.io/v1beta1",
        "KubeadmConfig",
        json!({"joinConfiguration": join}),
    )
}

fn kubelet(flags: &[&str]) -> Value {
    let command: Vec<&str> = ["kubelet", "--cloud-provider=aws"]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let container = json!({"name": "kubelet", "image": "example.test/kubelet:v1.26.13", "command": command});
    let template = json!({"metadata": {}, "spec": {"containers": [container]}});
    object("apps/v1", "DaemonSet", json!({"template": template}))
}

/// Objects of each row, with and without its warning.
#[allow(clippy::too_many_lines, reason = "one table")]
fn objects() -> Vec<(&'static str, Vec<Value>, Vec<Value>)> {
    let in_tree_by_arguments = |more: Value| {
        let mut config = json!({
            "kube-controller-manager-arg": ["cloud-provider=aws"],
            "kubelet-arg": ["cloud-provider=aws"],
            "disable-cloud-controller": true,
        });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        config
    };
    let arguments = || json!({"kubeControllerManager": {"extraArgs": ["cloud-provider=aws"]}});
    let external_list = || json!(["cloud-provider=external"]);
    vec![
        (
            "kubeadm",
            vec![kubeadm(Value::Null)],
            vec![kubeadm(json!("{{ ds.meta_data.local_hostname }}"))],
        ),
        (
            "a kubelet",
            vec![kubelet(&[])],
            vec![kubelet(&["--hostname-override=ip-10-0-0-1.ec2.internal"])],
        ),
        ("RKE1 with `cloudProvider", vec![rke1(json!({}))], vec![]),
        (
            "RKE1 with `hostname",
            vec![
                rke1(json!({"nodes": [{"hostnameOverride": "worker-1"}]})),
                rke1(json!({"services": {"kubelet": {"extraArgs": {"hostname-override": "worker-1"}}}})),
            ],
            vec![rke1(
                json!({"nodes": [{"hostnameOverride": "ip-10-0-0-1.ec2.internal"}]}),
            )],
        ),
        (
            "RKE2 with",
            vec![
                rancher(json!({"cloud-provider-name": "aws"}), "v1.26.15+rke2r1"),
                caprke2(json!({"cloudProviderName": "aws"}), json!([])),
                caprke2(json!({"cloudProviderName": "aws"}), json!(["cloud-provider=aws"])),
            ],
            vec![],
        ),
        (
            "RKE2 and K3s",
            vec![
                rancher(in_tree_by_arguments(json!({})), "v1.26.15+rke2r1"),
                rancher(in_tree_by_arguments(json!({})), "v1.26.15+k3s1"),
                caprke2(arguments(), json!(["cloud-provider=aws"])),
                object(
                    "bootstrap.cluster.x-k8s.io/v1beta1",
                    "RKE2Config",
                    json!({"agentConfig": {"kubelet": {"extraArgs": ["cloud-provider=aws"]}}}),
                ),
            ],
            vec![
                rancher(
                    in_tree_by_arguments(json!({"node-name": "ip-10-0-0-1.ec2.internal"})),
                    "v1.26.15+k3s1",
                ),
                caprke2(
                    arguments(),
                    json!(["cloud-provider=aws", "hostname-override=ip-10-0-0-1.ec2.internal"]),
                ),
            ],
        ),
        (
            "external",
            vec![],
            vec![
                // Rancher documents this for machines that it does not create.
                rancher(
                    json!({
                        "cloud-provider-name": "aws",
                        "disable-cloud-controller": true,
                        "kube-controller-manager-arg": external_list(),
                        "kube-apiserver-arg": external_list(),
                        "kubelet-arg": external_list(),
                    }),
                    "v1.26.15+rke2r1",
                ),
                caprke2(
                    json!({"cloudProviderName": "aws", "kubeControllerManager": {"extraArgs": external_list()}}),
                    external_list(),
                ),
                caprke2(json!({"cloudProviderName": "external"}), json!([])),
            ],
        ),
    ]
}

fn is_said(object: &Value, phase: Phase, text: &str) -> bool {
    let decision = review(object, phase);
    assert_ne!(decision.outcome, Outcome::NotOurs, "{object}");
    let said = decision.warnings.iter().chain(&decision.reasons);
    said.into_iter().any(|warning| warning.contains(text))
}

#[test]
fn a_name_that_changes_is_said_in_prepare_and_again_in_migrate() {
    let objects = objects();
    assert_eq!(objects.len(), NODE_NAMES.len());
    for (row, (start, changing, staying)) in NODE_NAMES.iter().zip(objects) {
        assert!(row.kubelets.starts_with(start), "{} is not {start}", row.kubelets);
        let texts: Vec<&str> = NODE_NAMES
            .iter()
            .filter_map(|row| row.warning)
            .map(|(_, text)| text)
            .collect();
        for phase in [Phase::Prepare, Phase::Migrate] {
            for object in &changing {
                let (_, text) = row.warning.unwrap();
                assert!(
                    is_said(object, phase, text),
                    "{phase} of {object}: {:?}",
                    review(object, phase).warnings
                );
            }
            for object in &staying {
                let own = row.warning.map(|(_, text)| text);
                let silent: Vec<&str> = own.map_or_else(|| texts.clone(), |text| vec![text]);
                for text in silent {
                    assert!(
                        !is_said(object, phase, text),
                        "{phase} of {object}: {:?}",
                        review(object, phase).warnings
                    );
                }
            }
        }
    }
}

#[test]
fn no_phase_changes_a_name_of_the_provider_that_names_nodes() {
    let name = |object: &Value| {
        let places = [
            "/spec/rkeConfig/machineGlobalConfig/cloud-provider-name",
            "/spec/serverConfig/cloudProviderName",
        ];
        places.map(|place| object.pointer(place).cloned())
    };
    for (_, changing, staying) in objects() {
        for object in changing.iter().chain(&staying) {
            for phase in [Phase::Prepare, Phase::Migrate, Phase::Complete] {
                let decision = review(object, phase);
                let mut after = object.clone();
                json_patch::patch(&mut after, &decision.patch).unwrap();
                assert_eq!(name(&after), name(object), "{phase}");
            }
        }
    }
}
