//! The program's own log, read as a machine reads it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const TOKEN: &str = "a-token-that-no-line-may-hold";
const SOON: Duration = Duration::from_secs(20);

/// Files of a start, and what it wrote.
struct Start(tempfile::TempDir);

impl Start {
    fn new() -> Self {
        let start = Self(tempfile::tempdir().unwrap());
        let kubeconfig = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:1"}}}}],
                "users": [{{"name": "u", "user": {{"token": "{TOKEN}"}}}}],
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}]}}"#
        );
        std::fs::write(start.0.path().join("kubeconfig"), kubeconfig).unwrap();
        let cloud = "[Global]\nZone = us-east-1a\nVPC = vpc-1\nKubernetesClusterID = prod\n";
        std::fs::write(start.0.path().join("cloud.conf"), cloud).unwrap();
        start
    }

    /// Starts the program, without an API server to talk to.
    fn run(&self, more: &[&str]) -> Child {
        let file = |name: &str| self.0.path().join(name);
        Command::new(env!("CARGO_BIN_EXE_outrigger-manager"))
            .args([
                "--cloud-provider=aws",
                "--configure-cloud-routes=false",
                "--secure-port=0",
            ])
            .arg(format!("--cloud-config={}", file("cloud.conf").display()))
            .arg(format!("--kubeconfig={}", file("kubeconfig").display()))
            .args(more)
            .env_remove("RUST_LOG")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .stdout(Stdio::null())
            .stderr(File::create(file("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    fn written(&self) -> String {
        std::fs::read_to_string(self.0.path().join("stderr")).unwrap()
    }
}

/// Waits until the program is at its work or has ended, then ends it.
fn end(start: &Start, mut child: Child, until: &str) {
    let begun = Instant::now();
    while begun.elapsed() < SOON && child.try_wait().unwrap().is_none() && !start.written().contains(until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Fails only where it has ended already.
    let _ = child.kill();
    child.wait().unwrap();
}

fn parsed(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn every_line_is_json_with_kubernetes_names() {
    let start = Start::new();
    end(
        &start,
        start.run(&["--logging-format=json", "--v=10", "--port=0"]),
        "cannot compete for the lease",
    );
    let text = start.written();
    assert!(!text.contains(TOKEN), "{text}");
    let lines = parsed(&text);
    assert!(lines.len() > 3, "{text}");
    for line in &lines {
        assert!(line["ts"].as_f64().is_some_and(|ts| ts > 1.0e12), "{line}");
        assert!(line["msg"].is_string() && line["caller"].is_string(), "{line}");
        assert_eq!(line.get("v").is_none(), line["level"] == "error", "{line}");
    }
    let warned = |line: &Value| line["level"] == "warn" && line["msg"].as_str().unwrap().starts_with("--port ");
    assert!(lines.iter().any(warned), "{text}");
}

#[test]
fn the_reason_of_an_early_end_is_json_too() {
    let start = Start::new();
    let cloud = "[Global]\nVPC = vpc-1\nPineapple = yes\n";
    std::fs::write(start.0.path().join("cloud.conf"), cloud).unwrap();
    end(&start, start.run(&["--logging-format=json"]), "never written");
    let lines = parsed(&start.written());
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "error");
    assert!(last["err"].as_str().unwrap().contains("Pineapple"), "{last}");
}

#[test]
fn text_is_the_default() {
    let start = Start::new();
    end(&start, start.run(&["--port=0"]), "removed upstream");
    assert!(
        start
            .written()
            .lines()
            .any(|line| line.contains(" WARN ") && line.contains("--port")),
        "{}",
        start.written()
    );
}
