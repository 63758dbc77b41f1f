//! Generators of objects that need much work, by a size. The first ones were found by attacks on the webhook.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "not every test and benchmark uses every object; a test fails by panicking"
)]

use std::collections::BTreeMap;

use outrigger_decide::json::{MAX_DEPTH, parse};
use outrigger_decide::{Decision, Input, MAX_WORK, Migration, Outcome, Shortage, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase, Profile, Target};
use outrigger_shared::work::WorkBudget;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
pub struct WorstObject {
    pub name: String,
    pub profile: Profile,
    pub value: Value,
}

/// The decision about the creation of an object, and the steps that it took with the reading of the object.
pub fn decided(text: &str, profile: Profile, phase: Phase) -> (Decision, u64) {
    let selector = serde_json::from_value(json!({"matchLabels": {"a": "b"}})).unwrap();
    let spec = CloudProviderMigrationSpec {
        phase,
        targets: vec![Target {
            profile,
            namespace_selector: Some(selector),
            object_selector: None,
        }],
        ..CloudProviderMigrationSpec::new("prod")
    };
    let migrations = [Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    }];
    let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);

    let mut budget = WorkBudget::new(MAX_WORK);
    let decision = budget.run(|| {
        let value = parse(text, MAX_DEPTH).ok()?;
        Some(decide(&Input {
            namespace_labels: Some(&labels),
            ..Input::creation(&value, &migrations)
        }))
    });

    (decision.unwrap_or_else(|| not_read(&budget)), budget.used())
}

fn not_read(budget: &WorkBudget) -> Decision {
    assert!(budget.is_exceeded(), "the objects are valid");
    Decision {
        outcome: Outcome::Refused,
        shortage: Some(Shortage::Work),
        ..Decision::default()
    }
}

fn named(name: &str, size: usize, profile: Profile, value: Value) -> WorstObject {
    WorstObject {
        name: format!("{name} {size}"),
        profile,
        value,
    }
}

/// About the largest objects of each generator that a body holds.
#[must_use]
pub fn worst_objects() -> Vec<WorstObject> {
    vec![
        aliases_in_values(18),
        charts_in_a_manifest(80),
        charts_in_a_manifest(1100),
        sections_with_lists(800),
        lines_of_values(20_000),
        flow_in_values(60),
        arguments(4000),
        arguments(8000),
        repeated_flags(8000),
        containers(800),
        variables(4000),
        nested_variables(26),
        script(8000),
        files(2000),
        extra_arguments(4000),
        rancher_arguments(4000),
        charts_in_a_manifest(20),
        manifest(100),
        manifest(240),
        wrapped(2000),
    ]
}

fn chart(values: &str) -> Value {
    json!({"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
        "metadata": {"name": "aws-cloud-controller-manager", "namespace": "cluster"},
        "spec": {"chart": "aws-cloud-controller-manager", "valuesContent": values}})
}

/// 18 lines, some 900 bytes, stand for 2^18 values.
pub fn aliases_in_values(lines: usize) -> WorstObject {
    let aliases = (1..lines).map(|line| format!("a{line}: &a{line} [*a{0},*a{0}]\n", line - 1));
    let values = format!(
        "image: {{tag: v1.26.1}}\na0: &a0 [x,x]\n{}args:\n- --cloud-provider=aws\n",
        aliases.collect::<String>()
    );
    named("lines of aliases", lines, Profile::RancherRKE2, chart(&values))
}

pub fn lines_of_values(lines: usize) -> WorstObject {
    let keys: String = (0..lines).map(|line| format!("k{line}: v\n")).collect();
    let values = format!("image: {{tag: v1.26.1}}\n{keys}args:\n- --cloud-provider=aws\n");
    named("lines of values", lines, Profile::RancherRKE2, chart(&values))
}

pub fn flow_in_values(depth: usize) -> WorstObject {
    let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let values = format!("image: {{tag: v1.26.1}}\nargs: [--cloud-provider=aws]\nx: {nested}\n");
    named("levels in values", depth, Profile::RancherRKE2, chart(&values))
}

fn cluster(config: Value) -> Value {
    json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "fleet-default"},
        "spec": {"kubernetesVersion": "v1.26.4+rke2r1", "rkeConfig": config}})
}

/// 80 charts have 19 KiB.
pub fn charts_in_a_manifest(charts: usize) -> WorstObject {
    let chart = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: aws-cloud-controller-manager\nspec:\n  chart: aws-cloud-controller-manager\n  valuesContent: |-\n    image: {tag: v1.26.1}\n    args:\n    - --cloud-provider=aws\n";
    let manifest = vec![chart; charts].join("---\n");
    let config = json!({"machineGlobalConfig": {"cloud-provider-name": "aws"}, "additionalManifest": manifest});
    named("charts", charts, Profile::RancherRKE2, cluster(config))
}

/// One chart among so many KiB of other objects.
pub fn manifest(kibibytes: usize) -> WorstObject {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata:\n  key: value of some length\n---\n";
    let chart = charts_in_a_manifest(1).value["spec"]["rkeConfig"]["additionalManifest"].clone();
    let manifest = other.repeat(kibibytes * 1024 / other.len()) + chart.as_str().unwrap();
    let config = json!({"machineGlobalConfig": {"cloud-provider-name": "aws"}, "additionalManifest": manifest});
    named("KiB of a manifest", kibibytes, Profile::RancherRKE2, cluster(config))
}

pub fn sections_with_lists(sections: usize) -> WorstObject {
    let section = |number: usize| {
        json!({"config": {"kube-controller-manager-arg": ["a=b"], "kubelet-arg": ["c=d"]},
            "machineLabelSelector": {"matchLabels": {format!("l{number}"): "x"}}})
    };
    let config = json!({"machineGlobalConfig": {"cloud-provider-name": "aws"},
        "machineSelectorConfig": (0..sections).map(section).collect::<Vec<_>>()});
    named("sections", sections, Profile::RancherRKE2, cluster(config))
}

pub fn rancher_arguments(arguments: usize) -> WorstObject {
    let list: Vec<String> = (0..arguments).map(|number| format!("x{number}=y")).collect();
    let config = json!({"machineGlobalConfig": {"cloud-provider-name": "aws", "kube-controller-manager-arg": list}});
    named("arguments of RKE2", arguments, Profile::RancherRKE2, cluster(config))
}

fn deployment(containers: &[Value]) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kube-controller-manager", "namespace": "cluster"},
        "spec": {"template": {"metadata": {"labels": {"component": "kube-controller-manager"}},
            "spec": {"containers": containers}}}})
}

fn container(name: &str, command: &[&str], args: &[String]) -> Value {
    json!({"name": name, "image": "registry.k8s.io/kube-controller-manager:v1.26.4", "command": command, "args": args})
}

const PROGRAM: &str = "kube-controller-manager";

fn with_arguments(args: &[String]) -> Value {
    deployment(&[container(PROGRAM, &[PROGRAM], args)])
}

pub fn arguments(arguments: usize) -> WorstObject {
    let more = (0..arguments).map(|number| format!("--x{number}=y"));
    let args: Vec<String> = std::iter::once("--cloud-provider=aws".to_owned()).chain(more).collect();
    named(
        "arguments",
        arguments,
        Profile::HostedControlPlane,
        with_arguments(&args),
    )
}

/// Kubermatic's prober has the command line as JSON.
pub fn wrapped(arguments: usize) -> WorstObject {
    let more = (0..arguments).map(|number| format!("--x{number}=y"));
    let args: Vec<String> = std::iter::once("--cloud-provider=aws".to_owned()).chain(more).collect();
    let text = json!({"command": "/usr/local/bin/kube-controller-manager", "args": args}).to_string();
    let container = container(
        PROGRAM,
        &["/http-prober-bin/http-prober"],
        &["-command".to_owned(), text],
    );
    named(
        "wrapped arguments",
        arguments,
        Profile::HostedControlPlane,
        deployment(&[container]),
    )
}

pub fn repeated_flags(flags: usize) -> WorstObject {
    let args = vec!["--cloud-provider=aws".to_owned(); flags];
    named(
        "repeated flags",
        flags,
        Profile::HostedControlPlane,
        with_arguments(&args),
    )
}

pub fn containers(containers: usize) -> WorstObject {
    let args = ["--cloud-provider=aws".to_owned()];
    let all: Vec<Value> = (0..containers)
        .map(|number| container(&format!("c{number}"), &[PROGRAM], &args))
        .collect();
    named("containers", containers, Profile::HostedControlPlane, deployment(&all))
}

fn with_variables(args: &[String], variables: &[(String, String)]) -> Value {
    let mut container = container(PROGRAM, &[PROGRAM], args);
    let env = variables
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    container["env"] = env.collect();
    deployment(&[container])
}

pub fn variables(variables: usize) -> WorstObject {
    let uses = (0..variables).map(|number| format!("$(V{number})"));
    let args: Vec<String> = std::iter::once("--cloud-provider=aws".to_owned()).chain(uses).collect();
    let all: Vec<(String, String)> = (0..variables)
        .map(|number| (format!("V{number}"), "x".to_owned()))
        .collect();
    named(
        "variables",
        variables,
        Profile::HostedControlPlane,
        with_variables(&args, &all),
    )
}

/// Each variable has the value of the one before, twice.
pub fn nested_variables(variables: usize) -> WorstObject {
    let value = |number: usize| match number.checked_sub(1) {
        None => "aws".to_owned(),
        Some(before) => format!("$(V{before})$(V{before})"),
    };
    let all: Vec<(String, String)> = (0..variables)
        .map(|number| (format!("V{number}"), value(number)))
        .collect();
    let args = [format!("--cloud-provider=$(V{})", variables - 1)];
    named(
        "nested variables",
        variables,
        Profile::HostedControlPlane,
        with_variables(&args, &all),
    )
}

pub fn script(commands: usize) -> WorstObject {
    let more: Vec<String> = (0..commands)
        .map(|number| format!("x{number}=$(y \"z{number}\")"))
        .collect();
    let script = format!("kube-controller-manager --cloud-provider=aws {}", more.join("; "));
    let value = deployment(&[
        json!({"name": PROGRAM, "image": "registry.k8s.io/kube-controller-manager:v1.26.4",
        "command": ["sh", "-c", script]}),
    ]);
    named("commands of a script", commands, Profile::HostedControlPlane, value)
}

fn kubeadm(config: Value) -> Value {
    json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane",
        "metadata": {"name": "c", "namespace": "clusters"}, "spec": {"version": "v1.26.4", "kubeadmConfigSpec": config}})
}

pub fn files(files: usize) -> WorstObject {
    let content = "cloud-provider=aws ".repeat(10);
    let all: Vec<Value> = (0..files)
        .map(|number| json!({"path": format!("/x{number}"), "content": content}))
        .collect();
    let config =
        json!({"clusterConfiguration": {"controllerManager": {"extraArgs": {"cloud-provider": "aws"}}}, "files": all});
    named("files", files, Profile::ClusterAPI, kubeadm(config))
}

pub fn extra_arguments(arguments: usize) -> WorstObject {
    let more = (0..arguments).map(|number| (format!("x{number}"), json!("y")));
    let all: Map<String, Value> = std::iter::once(("cloud-provider".to_owned(), json!("aws")))
        .chain(more)
        .collect();
    let config = json!({"clusterConfiguration": {"controllerManager": {"extraArgs": all}}});
    named("extra arguments", arguments, Profile::ClusterAPI, kubeadm(config))
}
