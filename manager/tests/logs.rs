//! The program's own log, read as a machine reads it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

const TOKEN: &str = "a-token-that-no-line-may-hold";
const SOON: Duration = Duration::from_secs(60);

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
        self.run_in(more, &[("AWS_EC2_METADATA_DISABLED", "true")])
    }

    /// The same in another environment.
    fn run_in(&self, more: &[&str], environment: &[(&str, &str)]) -> Child {
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
            .envs(environment.iter().copied())
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

/// Answers as the instance metadata service and as EC2 would, until the test ends. Keeps the signatures that it got.
fn aws() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let signatures: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&signatures);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || answer(stream.unwrap(), &kept));
        }
    });
    (port, signatures)
}

fn answer(mut stream: TcpStream, signatures: &Mutex<Vec<String>>) {
    let (mut request, mut part) = (String::new(), [0; 4096]);
    while !request.contains("\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(read @ 1..) => request.push_str(&String::from_utf8_lossy(&part[..read])),
            _ => return,
        }
    }
    let signature = request.split_once("Signature=").map(|(_, rest)| rest);
    signatures
        .lock()
        .unwrap()
        .extend(signature.and_then(|rest| rest.lines().next()).map(str::to_owned));

    let (status, body) = if request.starts_with("PUT /latest/api/token") {
        ("200 OK", "metadata-session")
    } else if request.contains("meta-data/instance-id") {
        ("200 OK", "i-0123456789abcdef0")
    } else if request.starts_with("POST /") {
        (
            "200 OK",
            "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>",
        )
    } else {
        ("404 Not Found", "")
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nx-aws-ec2-metadata-token-ttl-seconds: 60\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = stream.write_all((head + body).as_bytes());
}

#[test]
fn no_filter_shows_a_signed_request_or_credentials() {
    const SECRETS: [(&str, &str); 3] = [
        ("AWS_ACCESS_KEY_ID", "AKIAFORTHELOGTEST001"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-key-that-no-line-may-hold"),
        ("AWS_SESSION_TOKEN", "a-session-token-that-no-line-may-hold"),
    ];
    for filter in [
        "trace",
        "aws_smithy_runtime=trace,aws_sigv4=trace,aws_runtime=trace,aws_config=trace,hyper=trace,hyper_util=trace,h2=trace",
        "info,aws_smithy_runtime[{}]=trace",
    ] {
        let start = Start::new();
        let (port, signatures) = aws();
        let section = |service: &str| {
            format!(
                "[ServiceOverride \"{service}\"]\nService={service}\nRegion=us-east-1\nSigningRegion=us-east-1\nURL=http://127.0.0.1:{port}\n"
            )
        };
        let cloud = format!(
            "[Global]\nZone = us-east-1a\nKubernetesClusterID = prod\n{}{}",
            section("EC2"),
            section("ec2imds")
        );
        std::fs::write(start.0.path().join("cloud.conf"), cloud).unwrap();
        let environment = [&[("RUST_LOG", filter)][..], &SECRETS].concat();
        end(&start, start.run_in(&["--v=10"], &environment), "never written");

        let text = start.written();
        assert!(text.contains("EC2 does not know this manager's own instance"), "{text}");
        let signatures = signatures.lock().unwrap().clone();
        assert!(!signatures.is_empty(), "no signed request was sent");
        let secrets = SECRETS.iter().map(|(_, secret)| (*secret).to_owned());
        for secret in secrets
            .chain(signatures)
            .chain(["AWS4-HMAC-SHA256".to_owned(), "metadata-session".to_owned()])
        {
            let shown = text.lines().find(|line| line.contains(&secret));
            assert_eq!(shown, None, "RUST_LOG={filter}: {secret}");
        }
    }
}
