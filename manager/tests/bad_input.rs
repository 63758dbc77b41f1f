//! The program with invalid input: it ends with an error status and a message that names the problem and its fix, on
//! one screen. The tests of each module check its exact messages.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of these starts takes; they end at once.
const LIMIT: Duration = Duration::from_secs(60);
/// A usual terminal.
const SCREEN: (usize, usize) = (24, 80);
const CLOUD: &str = "[Global]\nZone = us-east-1a\nVPC = vpc-1\nKubernetesClusterID = prod\n";
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"#;
const HEAD: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";

/// A folder with files that are right; a test makes one of them wrong.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write("cloud.conf", CLOUD);
        files.write("kubeconfig", KUBECONFIG);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// The arguments of a start that would go well.
    fn arguments(&self) -> Vec<String> {
        vec![
            "--cloud-provider=aws".into(),
            format!("--cloud-config={}", self.path("cloud.conf").display()),
            format!("--kubeconfig={}", self.path("kubeconfig").display()),
            "--configure-cloud-routes=false".into(),
            "--secure-port=0".into(),
        ]
    }

    /// Starts the program with more arguments, expects it to end with status 1, and returns what it said. Nothing answers as
    /// instance metadata service.
    fn refused(&self, more: &[&str]) -> String {
        self.refused_beside("http://127.0.0.1:1", more)
    }

    /// The same with an instance metadata service at this address.
    fn refused_beside(&self, metadata: &str, more: &[&str]) -> String {
        let mut arguments = self.arguments();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let log = self.path("stderr");
        let mut child = Command::new(env!("CARGO_BIN_EXE_outrigger-manager"))
            .args(&arguments)
            .env_clear()
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{more:?} is taken:\n{}", said(&log));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = said(&log);
        assert_eq!(status.code(), Some(1), "{more:?}: {status}\n{said}");
        assert_readable(&said);
        said
    }
}

/// The output of the program. Log lines escape quotes and line ends of messages.
fn said(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.replace("\\n", "\n").replace("\\\"", "\"")
}

/// No crash, and no more than fits on one screen.
fn assert_readable(said: &str) {
    for word in ["panicked", "RUST_BACKTRACE", "stack overflow", "unwrap"] {
        assert!(!said.contains(word), "{said}");
    }
    let lines: usize = said
        .lines()
        .map(|line| line.chars().count().div_ceil(SCREEN.1).max(1))
        .sum();
    assert!((1..=SCREEN.0).contains(&lines), "{lines} lines:\n{said}");
}

fn assert_says(said: &str, words: &[&str], case: &str) {
    for word in words {
        assert!(said.contains(word), "{case}: {word:?} is missing in\n{said}");
    }
}

/// A case: what is wrong, the file, and what the message must say. CLOUD, HEAD, BETA and FLOOD stand for longer texts.
type Case = (&'static str, &'static str, &'static [&'static str]);

const BROKEN_CLOUD: [Case; 11] = [
    (
        "syntax",
        "[Global\nZone = us-east-1a",
        &["cloud.conf:1:8:", "not closed with ]"],
    ),
    (
        "a quote without end",
        "[Global]\nZone = \"us",
        &["cloud.conf:2:11:", "not closed"],
    ),
    (
        "unknown key",
        "CLOUDZome = a\n",
        &["cloud.conf:5:1:", "\"Zome\"", "did you mean Zone?"],
    ),
    (
        "unknown section",
        "[Globel]\n",
        &["cloud.conf:1:2:", "\"Globel\"", "did you mean Global?"],
    ),
    (
        "wrong type",
        "CLOUDDisableSecurityGroupIngress = maybe\n",
        &[
            "cloud.conf:5:31:",
            "DisableSecurityGroupIngress",
            "\"maybe\"",
            "expected true",
        ],
    ),
    (
        "missing field",
        "CLOUD[ServiceOverride \"1\"]\nService = ec2\nRegion = us-east-1\nURL = http://127.0.0.1:1\n",
        &["cloud.conf:5:2:", "ServiceOverride \"1\"", "SigningRegion is missing"],
    ),
    (
        "no region",
        "[Global]\nVPC = vpc-1\nKubernetesClusterID = prod",
        &["no AWS region", "http://127.0.0.1:1", "set --region, or Zone or Region"],
    ),
    (
        "a zone of no region",
        "[Global]\nZone = nowhere\nVPC = vpc-1\nKubernetesClusterID = prod\n",
        &["Zone \"nowhere\"", "names no region", "us-east-1a"],
    ),
    (
        "no cluster",
        "[Global]\nZone = us-east-1a\nVPC = vpc-1\n",
        &[
            "no cluster ID",
            "KubernetesClusterID",
            "http://127.0.0.1:1",
            "set --cluster-id",
        ],
    ),
    (
        "two clusters",
        "CLOUDKubernetesClusterTag = test\n",
        &[
            "KubernetesClusterTag \"test\"",
            "KubernetesClusterID \"prod\"",
            "remove one or make them equal",
        ],
    ),
    (
        "no VPC",
        "[Global]\nZone = us-east-1a\nKubernetesClusterID = prod\n",
        &["no VPC", "VPC in section Global", "http://127.0.0.1:1", "set --vpc-id"],
    ),
];

/// Answers every request with this status and no content.
fn answering(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
    });
    address
}

#[test]
fn an_instance_metadata_service_that_is_no_help_costs_two_seconds_and_the_flag_is_named() {
    let files = Files::new();
    files.write("cloud.conf", "[Global]\nVPC = vpc-1\nKubernetesClusterID = prod\n");
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", hanging.local_addr().unwrap());
    for (address, word) in [
        (silent, "did not answer within 2 s"),
        ("http://127.0.0.1:1".into(), "cannot be reached"),
        (answering("401 Unauthorized"), "rejects"),
        (answering("404 Not Found"), "rejects"),
        ("nonsense".into(), "not an http:// URL"),
    ] {
        let start = Instant::now();
        let said = files.refused_beside(&address, &[]);
        assert_says(&said, &["no AWS region", &address, word, "set --region"], word);
        assert!(start.elapsed() < LIMIT / 2, "{word}: {:?}", start.elapsed());
    }
}

#[test]
fn a_broken_cloud_configuration_ends_the_start_with_place_value_and_fix() {
    let files = Files::new();
    for (case, content, words) in BROKEN_CLOUD {
        files.write("cloud.conf", content.replace("CLOUD", CLOUD));
        assert_says(&files.refused(&[]), words, case);
    }
    files.write("cloud.conf", CLOUD);
    let said = files.refused(&["--cluster-id=test"]);
    let both = [
        "KubernetesClusterID \"prod\"",
        "--cluster-id \"test\"",
        "make them equal",
    ];
    assert_says(&said, &both, "a flag for another cluster");
}

#[test]
fn all_faults_of_a_cloud_configuration_are_told_at_once() {
    let files = Files::new();
    files.write(
        "cloud.conf",
        format!("{CLOUD}Zome = a\nNLBSecurityGroupMode = managed\n[ServiceOverride \"1\"]\n"),
    );
    let said = files.refused(&[]);
    assert_says(
        &said,
        &["cloud.conf:5:1:", "cloud.conf:6:24:", "cloud.conf:7:2:"],
        "three places",
    );
}

#[test]
fn a_cloud_configuration_that_is_no_text_or_not_there_is_named() {
    let files = Files::new();
    files.write("cloud.conf", b"[Global]\nVPC = \xff\xfe\x00");
    assert_says(&files.refused(&[]), &["cloud.conf:2:7:", "not UTF-8"], "binary");
    let said = files.refused(&["--cloud-config=/nonexistent/aws.conf"]);
    assert_says(
        &said,
        &["--cloud-config=/nonexistent/aws.conf", "No such file"],
        "missing",
    );
}

/// A path that leads to what never ends must not fill the memory.
#[test]
fn a_file_that_never_ends_is_refused_with_its_limit() {
    let files = Files::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port = format!("--secure-port={port}");
    for arguments in [
        &["--cloud-config=/dev/zero"][..],
        &["--kubeconfig=/dev/zero"],
        &["--migration-kubeconfig=/dev/zero", "--migration=prod"],
        &["--leader-migration-config=/dev/zero", "--enable-leader-migration"],
        &["--client-ca-file=/dev/zero", "--bind-address=127.0.0.1", &port],
        &[
            "--tls-cert-file=/dev/zero",
            "--tls-private-key-file=/dev/zero",
            "--bind-address=127.0.0.1",
            &port,
        ],
    ] {
        assert_says(&files.refused(arguments), &["/dev/zero", "1048576 bytes"], arguments[0]);
    }
}

const BROKEN_LEADER_MIGRATION: [Case; 15] = [
    ("empty file", "", &["the text is empty", "leaderName"]),
    (
        "no kind",
        "apiVersion: controllermanager.config.k8s.io/v1\nleaderName: m\n",
        &["unexpected kind \"\"", "expected LeaderMigrationConfiguration"],
    ),
    (
        "wrong kind",
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: Deployment\nleaderName: m\n",
        &["\"Deployment\"", "expected LeaderMigrationConfiguration"],
    ),
    (
        "unknown version",
        "apiVersion: controllermanager.config.k8s.io/v2\nkind: LeaderMigrationConfiguration\nleaderName: m\n",
        &["controllermanager.config.k8s.io/v2", "use", "v1beta1"],
    ),
    (
        "empty leaderName",
        "HEADleaderName: \"\"\n",
        &["leaderName: required value", "name the migration lease"],
    ),
    (
        "bad resourceLock",
        "BETAresourceLock: endpoints\n",
        &["resourceLock", "\"endpoints\"", "\"leases\""],
    ),
    (
        "no resourceLock in v1beta1",
        "BETA",
        &["resourceLock: required value", "write resourceLock: leases"],
    ),
    (
        "resourceLock in v1",
        "HEADleaderName: m\nresourceLock: leases\n",
        &["resourceLock is not a field", "remove it"],
    ),
    (
        "empty component",
        "HEADleaderName: m\ncontrollerLeaders:\n- {name: service, component: \"\"}\n",
        &[
            "controllerLeaders[0].component: required value",
            "write kube-controller-manager",
        ],
    ),
    (
        "empty name",
        "HEADleaderName: m\ncontrollerLeaders:\n- {name: \"\", component: \"*\"}\n",
        &["controllerLeaders[0].name: required value", "name a controller"],
    ),
    (
        "unknown field",
        "HEADleaderName: m\nleadername: n\n",
        &["unknown field leadername", "correct its spelling"],
    ),
    (
        "duplicate key",
        "HEADleaderName: m\nleaderName: n\n",
        &["line 4", "duplicate", "leaderName"],
    ),
    (
        "unquoted *",
        "HEADleaderName: m\ncontrollerLeaders:\n- name: service\n  component: *\n",
        &["line 6", "a bare * is a YAML alias", "component: \"*\""],
    ),
    (
        "wrong type",
        "HEADleaderName: [m]\n",
        &["leaderName is a list, expected a string"],
    ),
    ("a flood of brackets", "FLOOD", &["not valid YAML"]),
];

#[test]
fn a_broken_leader_migration_configuration_ends_the_start_and_names_the_rule() {
    let beta = HEAD.replace("/v1", "/v1beta1") + "leaderName: m\n";
    let files = Files::new();
    let flag = format!("--leader-migration-config={}", files.path("migration.yaml").display());
    for (case, content, words) in BROKEN_LEADER_MIGRATION {
        let content = content.replace("HEAD", HEAD).replace("BETA", &beta);
        files.write("migration.yaml", content.replace("FLOOD", &"[".repeat(100_000)));
        let said = files.refused(&["--enable-leader-migration", &flag]);
        assert_says(&said, words, case);
        assert_says(&said, &["migration.yaml"], case);
    }
    let unreadable = "--leader-migration-config=/nonexistent/migration.yaml";
    let said = files.refused(&["--enable-leader-migration", unreadable]);
    let words = [
        "/nonexistent/migration.yaml",
        "No such file",
        "correct --leader-migration-config",
    ];
    assert_says(&said, &words, "unreadable");
}

#[test]
fn a_wrong_command_line_ends_the_start_before_anything_else_and_names_the_flag() {
    let files = Files::new();
    for (more, words) in [
        (
            vec!["--clod-config=x"],
            vec!["unknown flag: --clod-config", "did you mean --cloud-config?"],
        ),
        (vec!["--pineapple"], vec!["unknown flag: --pineapple"]),
        (vec!["start"], vec!["unexpected argument \"start\"", "flags only"]),
        (vec!["--leader-elect", "false"], vec!["unexpected argument \"false\""]),
        (vec!["--cluster-name"], vec!["flag needs an argument: --cluster-name"]),
        (vec!["--secure-port=70000"], vec!["--secure-port", "70000"]),
        (
            vec!["--leader-elect-lease-duration=15"],
            vec!["--leader-elect-lease-duration", "expected a duration such as", "15s"],
        ),
        (
            vec!["--cloud-provider=gce"],
            vec!["--cloud-provider", "gce", "aws only"],
        ),
        (
            vec!["--migration=prod", "--leader-elect=false"],
            vec![
                "--leader-elect=false contradicts --migration",
                "remove one of the two flags",
            ],
        ),
        (
            vec!["--migration=prod", "--enable-leader-migration=false"],
            vec![
                "--enable-leader-migration=false contradicts --migration",
                "remove one of the two flags",
            ],
        ),
        (
            vec!["--pineapple", "start", "--secure-port=x"],
            vec!["--pineapple", "\"start\"", "--secure-port"],
        ),
    ] {
        let said = files.refused(&more);
        assert_says(&said, &words, &more.join(" "));
        assert_says(&said, &["run with --help"], &more.join(" "));
    }
}

#[test]
fn a_kubeconfig_that_is_none_is_named_with_its_flag() {
    let files = Files::new();
    for (content, words) in [
        ("garbage", vec!["kubeconfig in YAML", "line 1"]),
        ("apiVersion: v1\nkind: Config\n", vec!["current context"]),
        ("\u{0}\u{1}", vec!["kubeconfig in YAML"]),
    ] {
        files.write("broken", content);
        let flag = format!("--kubeconfig={}", files.path("broken").display());
        assert_says(
            &files.refused(&[&flag]),
            &[&words[..], &[flag.as_str()]].concat(),
            content,
        );
        let flag = format!("--migration-kubeconfig={}", files.path("broken").display());
        assert_says(
            &files.refused(&["--migration=prod", &flag]),
            &[&words[..], &[flag.as_str()]].concat(),
            content,
        );
    }
    let said = files.refused(&["--kubeconfig=/nonexistent/kubeconfig"]);
    assert_says(
        &said,
        &["--kubeconfig=/nonexistent/kubeconfig", "No such file"],
        "missing",
    );
}

#[test]
fn a_serving_certificate_that_is_none_and_a_port_that_is_taken_are_named() {
    let files = Files::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let said = files.refused(&["--bind-address=127.0.0.1", &port]);
    assert_says(
        &said,
        &["cannot listen on 127.0.0.1:", "--secure-port", "in use"],
        "port",
    );
    files.write("garbage.pem", "garbage");
    let pem = files.path("garbage.pem").display().to_string();
    let (certificate, key) = (
        format!("--tls-cert-file={pem}"),
        format!("--tls-private-key-file={pem}"),
    );
    let said = files.refused(&["--bind-address=127.0.0.1", "--secure-port=10258", &certificate, &key]);
    assert_says(&said, &["garbage.pem"], "certificate");
}
