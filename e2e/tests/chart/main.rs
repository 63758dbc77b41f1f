//! The Helm chart, with real Helm.
//!
//! | aspect | file |
//! |---|---|
//! | lint, and the values that the schema refuses | here |
//! | the rendered objects are those of the manifests | `equality.rs` |
//! | each profile has its registration and its rights, and no others | `profiles.rs` |
//! | install, upgrade and uninstall on real API servers | `install.rs` |
//! | the same with the default values and a running webhook | `self_signed.rs` |
//! | the command that turns the webhook off | `emergency.rs` |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod emergency;
mod equality;
mod install;
mod profiles;
mod self_signed;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::{Value, json};

const PROFILES: [&str; 8] = [
    "Nodes",
    "HostedControlPlane",
    "ClusterAPI",
    "Kubermatic",
    "RancherRKE2",
    "RancherRKE1",
    "KubeadmConfig",
    "AwsResources",
];
const NAMESPACE: &str = "outrigger-system";

/// Helm, with folders of its own.
struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    async fn new() -> Self {
        let tools = Tools::load(&[Tool::Helm]).await.expect("tools");
        Self {
            program: tools.path(Tool::Helm).expect("built").to_owned(),
            home: tempfile::tempdir().expect("folder"),
        }
    }

    async fn run(&self, arguments: &[&str]) -> Result<Output> {
        let home = self.home.path();
        tokio::process::Command::new(&self.program)
            .args(arguments)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .stdin(Stdio::null())
            .output()
            .await
            .context("running helm")
    }

    /// The standard output of a command that succeeds without a warning.
    async fn succeed(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {}: {errors}", arguments.join(" "));
        ensure!(
            !errors.to_lowercase().contains("warn"),
            "helm {}: {errors}",
            arguments.join(" ")
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Writes values to a file that `--values` can name.
    fn values(&self, name: &str, values: &Value) -> Result<String> {
        let path = self.home.path().join(format!("{name}.json"));
        std::fs::write(&path, values.to_string())?;
        Ok(path.display().to_string())
    }

    /// The objects of `helm template`.
    async fn template(&self, namespace: &str, values: &Value) -> Result<Vec<Value>> {
        self.template_for("1.26", namespace, values).await
    }

    /// The same for API servers of a version.
    async fn template_for(&self, version: &str, namespace: &str, values: &Value) -> Result<Vec<Value>> {
        let chart = chart();
        let values = self.values("template", values)?;
        let version = format!("--kube-version={version}");
        let text = self
            .succeed(&[
                "template",
                "outrigger",
                &chart,
                "--include-crds",
                &version,
                "--namespace",
                namespace,
                "--values",
                &values,
            ])
            .await?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("helm printed no YAML")?;
        Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
    }
}

fn chart() -> String {
    let folder = PathBuf::from("../charts/outrigger");
    folder.display().to_string()
}

/// The value that has no default, with more values.
fn values(more: &Value) -> Value {
    let mut values = json!({
        "image": {"repository": "registry.example.com/outrigger"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        values[key] = value.clone();
    }
    values
}

#[tokio::test]
async fn helm_finds_no_fault() {
    let helm = Helm::new().await;
    let path = helm.values("lint", &values(&json!({}))).expect("written");
    let printed = helm
        .succeed(&["lint", &chart(), "--strict", "--kube-version=1.26", "--values", &path])
        .await
        .expect("no fault");
    assert!(printed.contains("0 chart(s) failed"), "{printed}");
}

/// The arguments of each `helm install` and `helm upgrade` in the chart's README.
fn commands() -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(Path::new(&chart()).join("README.md")).expect("README");
    let joined = readme.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("$ helm "));
    lines
        .map(|line| line.split_whitespace().skip(1).map(unquoted).collect())
        .collect()
}

/// A word without the quotes of a shell.
fn unquoted(word: &str) -> String {
    word.trim_matches('\'').to_owned()
}

#[tokio::test]
async fn the_commands_of_the_readme_have_valid_values() {
    let helm = Helm::new().await;
    let own = helm.values("yours", &values(&json!({}))).expect("written");
    let commands = commands();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let mut arguments = vec!["template", "--kube-version=1.26"];
        let chart = chart();
        arguments.extend(command.iter().map(|argument| match argument.as_str() {
            "charts/outrigger" => &chart,
            "YOUR-VALUES" => &own,
            other => other,
        }));
        let printed = helm.succeed(&arguments).await.expect("rendered");
        assert!(printed.contains("kind: DaemonSet"), "{command:?}");
    }
}

/// A wrong value is refused before anything is sent, and the message names its key.
#[tokio::test]
async fn the_schema_refuses_wrong_values_by_name() {
    let helm = Helm::new().await;
    let digest = "sha256:1234";
    let cases = [
        (json!({"image": {"tag": "1"}}), "/image/repository"),
        (json!({"image": {"repository": ""}}), "/image/repository"),
        (
            json!({"image": {"repository": "r/o", "digest": digest}}),
            "/image/digest",
        ),
        (json!({"profile": ["Nodes"]}), "'profile'"),
        (json!({"manager": {"replicas": 2}}), "'replicas'"),
        (json!({"certificates": {"source": "secret"}}), "/certificates/caBundle"),
        (json!({"certificates": {"source": "vault"}}), "/certificates/source"),
        (json!({"profiles": ["Kubeadm"]}), "/profiles/0"),
        (json!({"profiles": []}), "/profiles"),
        (json!({"profiles": ["Nodes", "Nodes"]}), "/profiles"),
        (json!({"webhook": {"replicas": 0}}), "/webhook/replicas"),
        (json!({"manager": {"securePort": 443}}), "/manager/securePort"),
        (
            json!({"manager": {"extraArgs": ["cluster-name=prod"]}}),
            "/manager/extraArgs/0",
        ),
        (json!({"manager": {"tolerations": [{"keys": "a"}]}}), "'keys'"),
        (json!({"migration": "Prod"}), "/migration"),
        (json!({"apiServerAddresses": ["10.0.0.1"]}), "/apiServerAddresses/0"),
    ];
    for (index, (wrong, named)) in cases.iter().enumerate() {
        let path = helm.values(&format!("wrong-{index}"), &values(wrong)).expect("written");
        let arguments = [
            "template",
            "outrigger",
            &chart(),
            "--kube-version=1.26",
            "--values",
            &path,
        ];
        let output = helm.run(&arguments).await.expect("helm runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{wrong} is accepted");
        assert!(message.contains(named), "{wrong}: {message}");
    }
}
