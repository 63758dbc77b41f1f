//! The manager reaches AWS through the proxy and with the authorities that its environment names.
//!
//! AWS's host names here do not exist, so that only the proxy's `CONNECT` leads to them. The manager has no API server and
//! ends when it looks for one, which is after it has read its own instance from EC2.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, Validity};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

const DAY: Duration = Duration::from_secs(86_400);
const PATIENCE: Duration = Duration::from_secs(60);
const INSTANCE: &str = "i-0123456789abcdef0";
/// These may not be in any output.
const TOKEN: &str = "the-web-identity-token";
const SECRET_KEY: &str = "the-secret-access-key";
const SESSION: &str = "the-session-token";
/// The manager got as far as it can here.
const AWS_ANSWERED: &str = "no API server: set --kubeconfig";

/// AWS behind a proxy, and the metadata of the instance.
struct World {
    folder: TempDir,
    proxy: String,
    metadata: String,
    /// The first line and the credentials of each request to the proxy.
    proxied: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn start() -> Self {
        Self::start_with((200, credentials("2099-01-01T00:00:00Z"))).await
    }

    /// `sts`: its answer, status and body.
    async fn start_with(sts: (u16, String)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let validity = Validity::starting(Timestamp::now(), DAY);
        let authority = Authority::new("authority of the test", validity).unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.certificate_pem()).unwrap();
        let other = Authority::new("another authority", validity).unwrap();
        std::fs::write(folder.path().join("other.pem"), other.certificate_pem()).unwrap();
        std::fs::write(folder.path().join("token"), TOKEN).unwrap();

        let aws = aws(&authority, validity, sts).await;
        let proxied = Arc::<Mutex<Vec<String>>>::default();
        let proxy = proxy(aws, Arc::clone(&proxied)).await;
        let metadata = metadata().await;
        Self {
            folder,
            proxy,
            metadata,
            proxied,
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The manager with these variables besides those that lead to AWS.
    fn manager(&self, variables: &[(&str, String)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger-manager"));
        command
            .args(["--cloud-provider=aws", "--vpc-id=vpc-1", "--leader-elect=false"])
            .env_clear()
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_MAX_ATTEMPTS", "1")
            .env("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/manager")
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", self.file("token"))
            .env("AWS_ENDPOINT_URL_STS", "https://sts.outrigger.test")
            .env("AWS_ENDPOINT_URL_EC2", "https://ec2.outrigger.test")
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &self.metadata)
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The output of the manager until it ends.
    async fn run(&self, variables: &[(&str, String)]) -> String {
        let ended = tokio::time::timeout(PATIENCE, self.manager(variables).output()).await;
        let output = ended.unwrap().unwrap();
        assert!(!output.status.success());
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn through_proxy(&self) -> Vec<(&'static str, String)> {
        let proxy = |user: &str| format!("http://{user}{}", self.proxy);
        vec![("HTTPS_PROXY", proxy("user:pw@")), ("HTTP_PROXY", proxy(""))]
    }
}

/// Answers of EC2 and of STS over TLS. Returns the address.
async fn aws(authority: &Authority, validity: Validity, sts: (u16, String)) -> String {
    let names = ["ec2.outrigger.test", "sts.outrigger.test"];
    let issued = authority.issue(&names, validity).unwrap();
    let certificate = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(outrigger_certs::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sts) = (acceptor.clone(), sts.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let request = request(&mut stream).await;
                let (status, body) = if request.contains("Action=AssumeRoleWithWebIdentity") {
                    sts
                } else {
                    assert!(request.contains("Action=DescribeInstances"), "{request}");
                    (200, instance())
                };
                answer(&mut stream, status, &body).await;
            });
        }
    });
    address
}

fn credentials(expiration: &str) -> String {
    let keys = format!(
        "<AccessKeyId>AKID</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey><SessionToken>{SESSION}</SessionToken>"
    );
    let result = format!("<Credentials>{keys}<Expiration>{expiration}</Expiration></Credentials>");
    let action = "AssumeRoleWithWebIdentity";
    format!("<{action}Response><{action}Result>{result}</{action}Result></{action}Response>")
}

fn instance() -> String {
    let tag = "<item><key>kubernetes.io/cluster/prod</key><value>owned</value></item>";
    let instance = format!("<item><instanceId>{INSTANCE}</instanceId><tagSet>{tag}</tagSet></item>");
    let reservation = format!("<item><instancesSet>{instance}</instancesSet></item>");
    format!("<DescribeInstancesResponse><reservationSet>{reservation}</reservationSet></DescribeInstancesResponse>")
}

/// A proxy that opens tunnels, all of them to `aws`. Returns the address.
async fn proxy(aws: String, proxied: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (aws, proxied) = (aws.clone(), Arc::clone(&proxied));
            tokio::spawn(async move {
                let request = request(&mut stream).await;
                let first = request.lines().next().unwrap_or_default().to_owned();
                let head = request.to_ascii_lowercase();
                let credentials = head
                    .find("proxy-authorization: ")
                    .map(|at| request[at + 21..].lines().next());
                let credentials = credentials.flatten().unwrap_or_default();
                proxied.lock().unwrap().push(format!("{first} {credentials}"));
                if !first.starts_with("CONNECT ") {
                    return answer(&mut stream, 502, "tunnels only").await;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut aws = TcpStream::connect(aws).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut aws).await;
            });
        }
    });
    address
}

/// The metadata service. Returns its URL.
async fn metadata() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let request = request(&mut stream).await;
                let (status, body) = match request.lines().next().unwrap_or_default() {
                    first if first.starts_with("PUT /latest/api/token") => (200, "token"),
                    first if first.contains("/meta-data/instance-id") => (200, INSTANCE),
                    _ => (404, ""),
                };
                answer(&mut stream, status, body).await;
            });
        }
    });
    url
}

async fn request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.map_or(0, |length| length.trim().parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        match stream.read(&mut part).await {
            Ok(read) if read > 0 => request.extend(&part[..read]),
            _ => return text,
        }
    }
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), status: u16, body: &str) {
    let ttl = "x-aws-ec2-metadata-token-ttl-seconds: 21600";
    let head = format!(
        "HTTP/1.1 {status} x\r\n{ttl}\r\nConnection: close\r\nContent-Length: {}",
        body.len()
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ec2_and_sts_are_reached_through_the_proxy_and_metadata_is_not() {
    for trust in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
        let world = World::start().await;
        let mut variables = world.through_proxy();
        variables.push((trust, world.file("ca.pem")));
        let said = world.run(&variables).await;
        assert!(said.contains(AWS_ANSWERED), "{trust}: {said}");
        let mut proxied = world.proxied.lock().unwrap().clone();
        proxied.sort();
        proxied.dedup();
        // The credentials are user:pw.
        assert_eq!(
            proxied,
            [
                "CONNECT ec2.outrigger.test:443 HTTP/1.1 Basic dXNlcjpwdw==",
                "CONNECT sts.outrigger.test:443 HTTP/1.1 Basic dXNlcjpwdw==",
            ],
            "{trust}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_replaces_the_authorities_of_the_system() {
    let world = World::start().await;
    let mut variables = world.through_proxy();
    variables.push(("AWS_CA_BUNDLE", world.file("other.pem")));
    variables.push(("SSL_CERT_FILE", world.file("ca.pem")));
    let said = world.run(&variables).await;
    assert!(!said.contains(AWS_ANSWERED), "{said}");
    assert!(!world.proxied.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_no_proxy_is_looked_for_directly() {
    let world = World::start().await;
    let mut variables = world.through_proxy();
    variables.push(("AWS_CA_BUNDLE", world.file("ca.pem")));
    variables.push(("NO_PROXY", "example.com,.outrigger.test:443".to_owned()));
    let said = world.run(&variables).await;
    assert!(!said.contains(AWS_ANSWERED), "there is no such host: {said}");
    assert_eq!(*world.proxied.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_of_a_kubeconfig_is_reached_without_the_proxy() {
    let world = World::start().await;
    let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", api.local_addr().unwrap());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster: {{server: {server}}}\nusers:\n- name: u\n  user: {{}}\n"
    );
    std::fs::write(world.file("kubeconfig"), kubeconfig).unwrap();
    let mut variables = world.through_proxy();
    variables.push(("AWS_CA_BUNDLE", world.file("ca.pem")));
    let mut command = world.manager(&variables);
    command.arg(format!("--kubeconfig={}", world.file("kubeconfig")));
    command.arg("--secure-port=0");
    let running = command.output();

    tokio::select! {
        connected = tokio::time::timeout(PATIENCE, api.accept()) => assert!(connected.unwrap().is_ok()),
        ended = running => panic!("{}", String::from_utf8_lossy(&ended.unwrap().stderr)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_ends_the_start_with_variable_value_and_fix() {
    let world = World::start().await;
    let absent = world.file("absent.pem");
    let said = world.run(&[("AWS_CA_BUNDLE", absent.clone())]).await;
    assert!(
        said.contains(&format!("AWS_CA_BUNDLE={absent} cannot be read: mount the file there")),
        "{said}"
    );
    let said = world.run(&[("HTTPS_PROXY", "ftp://proxy:21".to_owned())]).await;
    assert!(
        said.contains("HTTPS_PROXY") && said.contains("ftp://proxy:21"),
        "{said}"
    );
    assert!(said.contains("expected http://HOST:PORT"), "{said}");
}

/// The SDK logs an answer that it cannot read, unless its logs are off.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_of_sts_shows_a_secret_and_the_failure_is_named() {
    let good = credentials("2099-01-01T00:00:00Z");
    for (case, sts) in [
        ("no time", (200, credentials("soon"))),
        ("no XML", (200, format!("{SECRET_KEY} {SESSION}"))),
        ("an error", (403, good.clone())),
        ("a failure", (500, good)),
    ] {
        let world = World::start_with(sts).await;
        for filter in ["info", "trace"] {
            let mut variables = world.through_proxy();
            variables.push(("AWS_CA_BUNDLE", world.file("ca.pem")));
            variables.push(("RUST_LOG", filter.to_owned()));
            let said = world.run(&variables).await;
            for secret in [TOKEN, SECRET_KEY, SESSION, "dXNlcjpwdw"] {
                assert!(!said.contains(secret), "{case}, {filter}: {said}");
            }
            assert!(said.contains("credentials"), "{case}, {filter}: {said}");
        }
    }
}

/// The tenant of a hosted control plane writes the file: it may not send the token of this Pod anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_credentials_file_gets_no_token() {
    let world = World::start().await;
    let file = format!(
        "[default]\nrole_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = {}\nendpoint_url = https://sts.outrigger.test\n",
        world.file("token")
    );
    std::fs::write(world.file("credentials"), file).unwrap();
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts:\n- name: c\n  context: {cluster: k, user: u}\n\
         clusters:\n- name: k\n  cluster: {server: http://127.0.0.1:9}\nusers:\n- name: u\n  user: {}\n";
    std::fs::write(world.file("kubeconfig"), kubeconfig).unwrap();

    let mut variables = world.through_proxy();
    variables.push(("AWS_CA_BUNDLE", world.file("ca.pem")));
    let mut command = world.manager(&variables);
    command
        .env_remove("AWS_ROLE_ARN")
        .env_remove("AWS_WEB_IDENTITY_TOKEN_FILE");
    command.args([
        "--migration=prod",
        "--leader-elect=true",
        "--cluster-name=prod",
        "--secure-port=0",
    ]);
    command.arg(format!("--aws-keys-file={}", world.file("credentials")));
    for flag in ["kubeconfig", "migration-kubeconfig"] {
        command.arg(format!("--{flag}={}", world.file("kubeconfig")));
    }
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();

    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("credentials cannot be used: line 2"), "{said}");
    assert_eq!(*world.proxied.lock().unwrap(), Vec::<String>::new());
}
