//! The programs run with the image's files as their whole file system.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use outrigger_certs::{Authority, Validity};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_environment::Binaries;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Image, PROGRAMS};

const LIMIT: Duration = Duration::from_secs(60);
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";
const HOST: &str = "sts.outrigger.test";
/// The file that lists the tests that were left out. `make test` prints it.
const LEFT_OUT: &str = "OUTRIGGER_LEFT_OUT";
pub(super) const NO_ROOT: &str = "unshare may not change the root folder";

/// Arguments of `unshare` that change the root folder and, as root, the user. None where the kernel allows neither.
pub(super) fn user() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--setuid=65532", "--setgid=65532"], &["--map-root-user"]];
    let works = |way: &&&[&str]| {
        let run = Command::new("unshare").args(**way).args(["--root=/", "true"]).output();
        run.is_ok_and(|run| run.status.success())
    };
    ways.iter().find(works).copied()
}

pub(super) fn leave_out(test: &str, reason: &str) {
    let Some(list) = std::env::var_os(LEFT_OUT) else { return };
    let list = fs::File::options().create(true).append(true).open(list);
    writeln!(list.expect("opened"), "{test}\t{reason}").expect("written");
}

/// Our programs of this build, in an image.
struct Root {
    image: Image,
    user: &'static [&'static str],
}

impl Root {
    fn build() -> Option<Self> {
        let Some(user) = user() else {
            leave_out("image::root", NO_ROOT);
            return None;
        };
        let programs = PROGRAMS.map(|name| Binaries::one(name).expect("built"));
        let folder = programs[0].parent().expect("a folder");
        let image = Image::build(folder, &["--strip"]);
        Some(Self { image, user })
    }

    fn folder(&self) -> PathBuf {
        self.image.root()
    }

    fn unshare(&self, program: &str) -> Vec<String> {
        let root = format!("--root={}", self.folder().display());
        let words = self.user.iter().copied().chain([root.as_str(), program]);
        words.map(str::to_owned).collect()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        command.args(self.unshare(program)).args(arguments).env_clear();
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command.output().expect("unshare")
    }

    fn launch(&self, program: &str) -> Launch {
        Launch::new(program.rsplit('/').next().unwrap_or_default(), "/usr/bin/unshare").arguments(self.unshare(program))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder().join(name), text).expect("written");
    }
}

#[test]
fn each_program_starts_under_each_of_its_names() {
    let Some(root) = Root::build() else { return };
    for (program, name) in [
        ("/usr/local/bin/outrigger-manager", "outrigger-manager"),
        ("/usr/local/bin/outrigger-webhook", "outrigger-webhook"),
        ("/usr/local/bin/outrigger", "outrigger"),
        ("/bin/aws-cloud-controller-manager", "outrigger-manager"),
        ("/aws-cloud-controller-manager", "outrigger-manager"),
        ("/usr/bin/kubectl-outrigger", "outrigger"),
    ] {
        let run = root.run(program, &["--version"]);

        let version = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{program}: {run:?}");
        let starts = version.starts_with(&format!("{name} "));
        assert!(
            starts && version.contains(env!("CARGO_PKG_VERSION")),
            "{program}: {version}"
        );
    }

    let shell = root.run("/bin/sh", &["-c", "true"]);
    assert!(!shell.status.success(), "the image has a shell");
}

/// The flags that kOps, Kubermatic and HyperShift give to aws-cloud-controller-manager.
#[test]
fn the_incumbents_path_accepts_the_incumbents_arguments() {
    let Some(root) = Root::build() else { return };
    let flags = [
        "--allocate-node-cidrs=true",
        "--cloud-provider=aws",
        "--cluster-cidr=100.96.0.0/11",
        "--cluster-name=minimal.example.com",
        "--configure-cloud-routes=false",
        "--enable-leader-migration=true",
        "--leader-elect=true",
        "--use-service-account-credentials=true",
        "--v=2",
    ];
    let refusal = |more: &[&str]| {
        let run = root.run("/bin/aws-cloud-controller-manager", &[&flags[..], more].concat());
        assert!(!run.status.success(), "{run:?}");
        String::from_utf8_lossy(&run.stderr).into_owned()
    };

    // It reads the flags first. Here it does not find AWS.
    assert!(refusal(&[]).contains("no AWS region"), "{}", refusal(&[]));
    assert!(refusal(&["--no-such-flag"]).contains("unknown flag: --no-such-flag"));
}

/// Answers of the instance metadata service. Returns its URL.
async fn metadata() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    url
}

async fn answer(mut stream: TcpStream) {
    let mut request = [0; 4096];
    let read = stream.read(&mut request).await.unwrap_or(0);
    let request = String::from_utf8_lossy(&request[..read]).into_owned();
    let (status, body) = match request.lines().next().unwrap_or_default() {
        first if first.starts_with("PUT /latest/api/token") => (200, "token"),
        first if first.contains("/meta-data/instance-id") => (200, "i-0123456789abcdef0"),
        _ => (404, ""),
    };
    let ttl = "x-aws-ec2-metadata-token-ttl-seconds: 21600";
    let head = format!(
        "HTTP/1.1 {status} x\r\n{ttl}\r\nConnection: close\r\nContent-Length: {}",
        body.len()
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
}

/// The webhook as a TLS server, whose certificate is for [`HOST`]. It answers a call of STS with an error.
async fn webhook(root: &Root, authority: &Authority, validity: Validity, run: &Path) -> Result<(Process, u16)> {
    let issued = authority.issue(&[HOST], validity)?;
    root.write("etc/tls.crt", &issued.certificate_pem);
    root.write("etc/tls.key", &issued.key_pem);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        // Nothing listens there.
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    root.write("etc/kubeconfig", &kubeconfig.to_string());

    let (admission, health) = (free_port()?, free_port()?);
    let launch = root.launch("/usr/local/bin/outrigger-webhook").arguments([
        format!("--bind-address=127.0.0.1:{admission}"),
        format!("--health-bind-address=127.0.0.1:{health}"),
        format!("--server-name={HOST}"),
        "--cert-dir=/etc".to_owned(),
        "--kubeconfig=/etc/kubeconfig".to_owned(),
    ]);
    let process = Process::start(&launch, run)?;
    let listening = async || {
        let connected = TcpStream::connect(("127.0.0.1", admission)).await;
        connected.map(drop).map_err(|error| error.to_string())
    };
    process.ready("port", LIMIT, listening).await?;
    Ok((process, admission))
}

/// The output of a manager that asks STS at [`HOST`] for credentials.
async fn manager(root: &Root, metadata: &str, port: u16, run: &Path) -> Result<String> {
    let launch = root
        .launch("/usr/local/bin/outrigger-manager")
        .arguments(["--cloud-provider=aws", "--vpc-id=vpc-1"])
        .environment("AWS_REGION", "eu-central-1")
        .environment("AWS_MAX_ATTEMPTS", "1")
        .environment("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/manager")
        .environment("AWS_WEB_IDENTITY_TOKEN_FILE", "/etc/token")
        .environment("AWS_ENDPOINT_URL_STS", format!("https://{HOST}:{port}"))
        .environment("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata);
    let process = Process::start(&launch, run)?;
    let ended = tokio::time::timeout(LIMIT, process.ended()).await;
    ensure!(ended.is_ok(), "the manager runs on: {}", process.log_tail());
    let said = fs::read_to_string(process.log())?;
    fs::remove_file(process.log())?;
    Ok(said)
}

/// The name of the host is found through the image's files, too: in /etc/hosts, which a kubelet mounts.
#[tokio::test(flavor = "multi_thread")]
async fn the_manager_trusts_the_authorities_of_the_image_and_no_others() -> Result<()> {
    let Some(root) = Root::build() else { return Ok(()) };
    let run = tempfile::tempdir()?;
    let validity = Validity::starting(Timestamp::now(), Duration::from_secs(86_400));
    let authority = Authority::new("authority of the test", validity).context("an authority")?;
    root.write("etc/hosts", &format!("127.0.0.1 {HOST}\n"));
    root.write("etc/token", "a token");
    let (_webhook, port) = webhook(&root, &authority, validity, run.path()).await?;
    let metadata = metadata().await;

    let with_those_of_the_web = manager(&root, &metadata, port, run.path()).await?;
    root.write(BUNDLE, authority.certificate_pem());
    let with_the_tests = manager(&root, &metadata, port, run.path()).await?;
    fs::remove_file(root.folder().join(BUNDLE))?;
    let with_none = manager(&root, &metadata, port, run.path()).await?;

    let none = "the system has no CA certificates";
    let unknown = "UnknownIssuer";
    ensure!(with_those_of_the_web.contains(unknown), "{with_those_of_the_web}");
    ensure!(!with_those_of_the_web.contains(none), "{with_those_of_the_web}");
    ensure!(!with_the_tests.contains(unknown), "{with_the_tests}");
    // The webhook has answered: there is no STS.
    ensure!(with_the_tests.contains("service error"), "{with_the_tests}");
    ensure!(with_none.contains(none) && with_none.contains(unknown), "{with_none}");
    Ok(())
}
