//! Garbage at the HTTPS port of the program itself, which has to serve on. Its API server is not there, which keeps it
//! waiting for its lease and touches nothing here.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outrigger_certs::{Authority, Validity, bundle};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const SOON: Duration = Duration::from_secs(60);
/// More than the program takes at once.
const CROWD: usize = 300;

/// The running program; killed when the test ends early.
struct Manager {
    child: Child,
    port: u16,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Manager {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let validity = Validity::starting(jiff::Timestamp::now(), Duration::from_secs(86_400));
        let authority = Authority::new("test", validity).unwrap();
        let issued = authority.issue(&["localhost"], validity).unwrap();
        outrigger_certs::write(folder.path(), &issued, None).unwrap();
        let kubeconfig = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"#;
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let cloud = "[Global]\nZone = us-east-1a\nVPC = vpc-1\nKubernetesClusterID = prod\n";
        std::fs::write(folder.path().join("cloud.conf"), cloud).unwrap();
        let port = free_port();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_outrigger-manager"))
            .args([
                "--cloud-provider=aws",
                "--configure-cloud-routes=false",
                "--bind-address=127.0.0.1",
            ])
            .arg(format!("--cloud-config={}", file("cloud.conf")))
            .arg(format!("--kubeconfig={}", file("kubeconfig")))
            .arg(format!("--tls-cert-file={}", file("tls.crt")))
            .arg(format!("--tls-private-key-file={}", file("tls.key")))
            .arg(format!("--secure-port={port}"))
            .env_clear()
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut manager = Self {
            child,
            port,
            authority,
            folder,
        };
        manager.assert_serving("at the start").await;
        manager
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    async fn tcp(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).await
    }

    async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let config = rustls::ClientConfig::builder_with_provider(outrigger_certs::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(bundle::roots(self.authority.certificate_pem()).unwrap())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, self.tcp().await?)
            .await
    }

    async fn healthz(&self) -> std::io::Result<String> {
        let mut stream = self.tls().await?;
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// It answers a probe, soon, and is still the same process.
    async fn assert_serving(&mut self, after: &str) {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended {after}: {ended:?}\n{}", self.said());
            let answer = tokio::time::timeout(Duration::from_secs(5), self.healthz()).await;
            if matches!(&answer, Ok(Ok(text)) if text.starts_with("HTTP/1.1 200")) {
                return;
            }
            assert!(start.elapsed() < SOON, "{after}: {answer:?}\n{}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Sends bytes and reads until the other side closes, or a moment long. Being cut off while sending is an answer too.
async fn throw(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_millis(500), async {
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        let _ = stream.read_to_end(&mut answer).await;
    })
    .await;
    answer
}

/// Bytes without any sense, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(&mut next).take(length).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_at_the_port_is_turned_away_and_probes_are_answered_on() {
    let mut manager = Manager::start().await;
    garbage_instead_of_tls(&mut manager).await;
    garbage_inside_tls(&mut manager).await;
    a_crowd(&mut manager).await;
    let said = manager.said();
    assert!(!said.contains("panicked"), "{said}");
    ends_politely(&mut manager).await;
}

async fn garbage_instead_of_tls(manager: &mut Manager) {
    let truncated_hello = [&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01][..], &noise(100)].concat();
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("noise", noise(100_000)),
        (
            "plain HTTP",
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        ),
        ("half a handshake", truncated_hello),
        (
            "a record of a length that cannot be",
            vec![0x16, 0x03, 0x01, 0xff, 0xff],
        ),
    ] {
        let answer = throw(manager.tcp().await.unwrap(), &bytes).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{what}");
        manager.assert_serving(what).await;
    }
}

async fn garbage_inside_tls(manager: &mut Manager) {
    let long_head = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1_000_000));
    let announced = b"POST /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 104857600\r\n\r\n";
    let chunked = b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzzzz\r\n";
    for (what, bytes) in [
        ("noise in TLS", noise(100_000)),
        ("no method", b"\0\0\0\0 / HTTP/9.9\r\n\r\n".to_vec()),
        ("a head of a megabyte", long_head.into_bytes()),
        ("a body of 100 MiB", [&announced[..], &vec![b' '; 8 << 20]].concat()),
        ("a chunk without a length", chunked.to_vec()),
        (
            "HTTP/2 with noise for frames",
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &noise(10_000)].concat(),
        ),
    ] {
        let answer = throw(manager.tls().await.unwrap(), &bytes).await;
        assert!(
            !answer.starts_with(b"HTTP/1.1 200"),
            "{what}: {}",
            String::from_utf8_lossy(&answer)
        );
        manager.assert_serving(what).await;
    }
}

/// More connections than are taken at once, all silent: those too many are closed, and probes get through again as
/// soon as the others are gone.
async fn a_crowd(manager: &mut Manager) {
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(manager.tcp().await.unwrap());
    }
    drop(crowd);
    manager.assert_serving("a crowd that left").await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(manager.tcp().await.unwrap());
    }
    manager.assert_serving("a crowd that stays silent").await;
    drop(crowd);
}

async fn ends_politely(manager: &mut Manager) {
    let pid = manager.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = manager.child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < SOON, "it does not end:\n{}", manager.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}\n{}", manager.said());
}
