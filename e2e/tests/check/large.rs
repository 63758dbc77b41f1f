//! `outrigger check` in a cluster of 5,000 Nodes: every Node and every kubelet is read, in bounded memory.

use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::process::peak_memory;
use outrigger_environment::Binaries;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const NODES: usize = 5_000;
/// As the command asks for them.
const PAGE: usize = 500;
/// The kubelet reports so many by default (`--node-status-max-images`).
const IMAGES: usize = 50;
/// <https://github.com/kubernetes/kubernetes/blob/v1.26.13/pkg/kubelet/server/server.go> separates by NUL.
const COMMAND_LINE: &str = "kubelet\0--config=/var/lib/kubelet/config.yaml\0--cloud-provider=aws";
const MOST_MEMORY: u64 = 100 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_nodes_are_read_in_a_hundred_mebibytes() -> Result<()> {
    let address = serve().await?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.json");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "large",
        "contexts": [{"name": "large", "context": {"cluster": "large", "user": "none"}}],
        "clusters": [{"name": "large", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "none", "user": {}}],
    });
    std::fs::write(&config, content.to_string())?;

    let (report, began) = (folder.path().join("report.json"), Instant::now());
    let mut process = Command::new(Binaries::one("outrigger")?)
        .args(["check", "-o", "json"])
        .env("KUBECONFIG", &config)
        .stdin(Stdio::null())
        .stdout(File::create(&report)?)
        .kill_on_drop(true)
        .spawn()?;
    let pid = i32::try_from(process.id().context("it has ended")?)?;
    let mut peak = 0;
    let status = loop {
        peak = peak.max(peak_memory(pid).unwrap_or_default());
        if let Ok(status) = tokio::time::timeout(Duration::from_millis(2), process.wait()).await {
            break status?;
        }
    };

    let report: Value = serde_json::from_slice(&std::fs::read(&report)?)?;
    println!(
        "{:.1?}, peak {} MiB: {}",
        began.elapsed(),
        peak >> 20,
        report["summary"]
    );
    ensure!(status.code() == Some(0), "{report:#}");
    ensure!(
        report["summary"]
            .as_str()
            .is_some_and(|text| text.contains("5000 workers")),
        "{report:#}"
    );
    let nodes = report["groups"]
        .as_array()
        .context("groups")?
        .iter()
        .find(|group| group["group"] == "nodes");
    let nodes = nodes.context("no group of Nodes")?;
    ensure!(nodes["notMade"] == json!([]), "a kubelet was not read: {nodes:#}");
    ensure!(peak > 0 && peak <= MOST_MEMORY, "{} MiB", peak >> 20);

    Ok(())
}

/// An API server that answers what the command asks, and the kubelets behind it.
async fn serve() -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let pages = Arc::new(Pages::new());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream, Arc::clone(&pages)));
        }
    });

    Ok(address)
}

/// The answers to the large lists, ready to be sent.
struct Pages {
    nodes: Vec<String>,
    csi_nodes: Vec<String>,
}

impl Pages {
    fn new() -> Self {
        Self {
            nodes: pages(node),
            csi_nodes: pages(csi_node),
        }
    }

    fn answer(&self, path: &str) -> Option<String> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let page = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        let page: usize = page.map_or(Some(0), |page| page.parse().ok())?;
        match path {
            "/version" => Some(json!({"gitVersion": "v1.26.13"}).to_string()),
            "/api/v1/nodes" => self.nodes.get(page).cloned(),
            "/apis/storage.k8s.io/v1/csinodes" => self.csi_nodes.get(page).cloned(),
            path if path.ends_with("/proxy/debug/pprof/cmdline") => Some(COMMAND_LINE.to_owned()),
            path if path.contains("/leases/") || path.contains("outrigger.dev") => None,
            _ => Some(json!({"metadata": {}, "items": []}).to_string()),
        }
    }
}

fn pages(item: fn(usize) -> Value) -> Vec<String> {
    let page = |first: usize| {
        let items: Vec<Value> = (first..first + PAGE).map(item).collect();
        let next = (first + PAGE < NODES).then(|| (first / PAGE + 1).to_string());
        json!({"metadata": {"continue": next.unwrap_or_default()}, "items": items}).to_string()
    };
    (0..NODES).step_by(PAGE).map(page).collect()
}

fn node(number: usize) -> Value {
    let name = format!("ip-10-{}-{}-1.ec2.internal", number / 250, number % 250);
    let image = |at: usize| {
        let digest = format!("registry.example.com/team-{at}/image@sha256:{at:064}");
        json!({"names": [digest, format!("registry.example.com/team-{at}/image:v1.{at}.0")], "sizeBytes": 123_456_789})
    };
    json!({
        "metadata": {
            "name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "eu-central-1a"},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": format!("aws:///eu-central-1a/i-{number:017x}")},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.26.13"},
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
        },
    })
}

fn csi_node(number: usize) -> Value {
    json!({
        "metadata": {
            "name": node(number)["metadata"]["name"],
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
        },
        "spec": {"drivers": [{"name": "ebs.csi.aws.com"}]},
    })
}

/// HTTP/1.1 with connections that stay. Requests have no body.
async fn answer_all(mut stream: TcpStream, pages: Arc<Pages>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head: Vec<u8> = buffer.drain(..end).collect();
        let head = String::from_utf8_lossy(&head);
        let path = head.split_whitespace().nth(1)?;

        let (status, body) = match pages.answer(path) {
            Some(body) => ("200 OK", body),
            None => (
                "404 Not Found",
                json!({"kind": "Status", "status": "Failure", "code": 404}).to_string(),
            ),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(body.as_bytes()).await.ok()?;
    }
}
