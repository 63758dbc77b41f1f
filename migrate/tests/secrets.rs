//! No value of the environment, token or key of a Pod comes into `outrigger facts`: random Pods of a control plane, and
//! published ones with secrets written into them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints what it has seen")]

#[path = "../../shared/tests/published/mod.rs"]
mod published;

use std::path::{Path, PathBuf};

use kube::core::DynamicObject;
use outrigger_evidence::controller_manager::Locks;
use outrigger_migrate::facts::components::{of_pod, webhook};
use outrigger_migrate::facts::flags::ALLOWED;
use proptest::prelude::{Strategy, any, prop_assert, prop_oneof, proptest};
use proptest::sample::select;
use serde_json::{Value, json};

const SECRET: &str = "s3cret";

fn facts(pod: &Value) -> String {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("one");
    pod["metadata"]["namespace"] = json!("kube-system");
    let pod: DynamicObject = serde_json::from_value(pod).unwrap();
    let locks = Locks {
        namespace: "kube-system".into(),
        main: "kube-controller-manager".into(),
        migration: "cloud-provider-extraction-migration".into(),
    };
    let all = (of_pod(&pod, None, &locks), webhook(&pod));
    serde_json::to_string(&all).unwrap()
}

/// A word of a command line. Only a flag of the list may have a value that is shown.
fn word() -> impl Strategy<Value = String> + Clone {
    let secret = format!("{SECRET}-value");
    let fixed = [
        "kube-controller-manager".to_owned(),
        "sh".to_owned(),
        "-c".to_owned(),
        "--cloud-provider=aws".to_owned(),
        "--cloud-provider".to_owned(),
        "--leader-elect".to_owned(),
        "--".to_owned(),
        format!("--token={secret}"),
        format!("--kubeconfig=https://user:{secret}@host"),
        "--kubeconfig".to_owned(),
        format!("exec kube-controller-manager --password={secret} --cloud-config={secret} $FLAGS"),
        format!("PASSWORD={secret} kube-controller-manager --cluster-name={secret}"),
        format!("mysql://u:{secret}@$(HOST)/$(TOKEN)"),
        "$(TOKEN)".to_owned(),
        "--cluster-name=$(TOKEN)".to_owned(),
        format!("--\"{secret}\"=$(TOKEN)"),
        "--controllers=*,$(TOKEN)".to_owned(),
    ];
    let listed = select(ALLOWED.to_vec()).prop_map(|flag| format!("--{flag}=$(TOKEN)"));
    prop_oneof![4 => select(fixed.to_vec()), 1 => listed]
}

fn pod() -> impl Strategy<Value = Value> {
    let words = proptest::collection::vec(word(), 0..7);
    let places = (
        words.clone(),
        words,
        any::<bool>(),
        select(vec!["kube-controller-manager", "outrigger", "sidecar"]),
    );
    places.prop_map(|(command, args, is_mirror, name)| {
        let annotations = match is_mirror {
            true => json!({"kubernetes.io/config.mirror": SECRET, "token": SECRET}),
            false => json!({"token": SECRET}),
        };
        json!({
            "metadata": {"annotations": annotations, "labels": {"component": "kube-controller-manager"}},
            "spec": {
                "nodeName": "cp-1",
                "containers": [{
                    "name": name, "image": format!("registry.example.com/{SECRET}/kube-controller-manager:v1.26.13"),
                    "command": command, "args": args,
                    "env": [
                        {"name": "TOKEN", "value": SECRET}, {"name": "HOST", "value": SECRET},
                        {"name": "FLAGS", "value": format!("--cluster-name={SECRET}")},
                    ],
                }],
            },
        })
    })
}

proptest! {
    #[test]
    fn a_secret_of_a_pod_stays_there(pod in pod()) {
        let facts = facts(&pod);
        prop_assert!(!facts.contains(SECRET), "{pod:#}\n{facts}");
    }
}

fn yaml_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => yaml_files(&path, into),
            false if path.extension().is_some_and(|extension| extension == "yaml") => into.push(path),
            false => {}
        }
    }
}

/// The Pod, or the template of a workload.
fn template(object: &Value) -> Option<Value> {
    let pod = match object["kind"].as_str()? {
        "Pod" => object.clone(),
        _ => object["spec"]["template"].clone(),
    };
    pod["spec"]["containers"].is_array().then_some(pod)
}

#[test]
fn secrets_of_published_workloads_stay_there() {
    let Some(root) = published::find("corpus") else { return };
    let mut files = Vec::new();
    yaml_files(&root, &mut files);
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let objects = texts.filter_map(|text| serde_saphyr::from_str::<Value>(&text).ok());

    let mut seen = 0;
    for mut pod in objects.filter_map(|object| template(&object)) {
        for container in pod["spec"]["containers"].as_array_mut().unwrap() {
            let names = ["TOKEN", "FLAGS"].map(|name| json!({"name": name, "value": SECRET}));
            container["env"] = json!(names);
            let place = if container["args"].is_array() {
                "args"
            } else {
                "command"
            };
            if let Some(words) = container[place].as_array_mut() {
                words.extend(
                    [
                        format!("--token={SECRET}"),
                        "--cluster-name=$(TOKEN)".to_owned(),
                        "$(FLAGS)".to_owned(),
                    ]
                    .map(Value::from),
                );
            }
        }
        let facts = facts(&pod);
        assert!(!facts.contains(SECRET), "{pod:#}\n{facts}");
        seen += usize::from(facts.contains("\"component\""));
    }
    println!("{seen} workloads with a component");
    assert!(seen >= 20, "only {seen} workloads with a component");
}
