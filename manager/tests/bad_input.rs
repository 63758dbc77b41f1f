//! The program itself with input that is wrong: it ends with a status that says so and a message that names what is
//! wrong and what to do, on one screen. What each fault is called in detail is tested where it is found.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of these starts takes; they end at once.
const LIMIT: Duration = Duration::from_secs(30);
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

    /// Starts the program with more arguments, expects it to end with status 1, and returns what it said.
    fn refused(&self, more: &[&str]) -> String {
        let mut arguments = self.arguments();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let log = self.path("stderr");
        let mut child = Command::new(env!("CARGO_BIN_EXE_outrigger-manager"))
            .args(&arguments)
            .env_clear()
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

/// What the program said. A log line shows a message with quotes and line ends escaped.
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

#[test]
fn a_broken_cloud_configuration_ends_the_start_with_place_value_and_fix() {
    let zone_and_vpc = "[Global]\nZone = us-east-1a\nVPC = vpc-1\n";
    let service = "Service = ec2\nRegion = us-east-1\nURL = http://127.0.0.1:1\n";
    let files = Files::new();
    for (case, content, words) in [
        (
            "syntax",
            "[Global\nZone = us-east-1a".to_owned(),
            vec!["cloud.conf:1:8:", "not closed with ]"],
        ),
        (
            "a quote without end",
            "[Global]\nZone = \"us".to_owned(),
            vec!["cloud.conf:2:11:", "not closed"],
        ),
        (
            "unknown key",
            format!("{CLOUD}Zome = a\n"),
            vec!["cloud.conf:5:1:", "\"Zome\"", "did you mean Zone?"],
        ),
        (
            "unknown section",
            "[Globel]\n".to_owned(),
            vec!["cloud.conf:1:2:", "\"Globel\"", "did you mean Global?"],
        ),
        (
            "wrong type",
            format!("{CLOUD}DisableSecurityGroupIngress = maybe\n"),
            vec![
                "cloud.conf:5:31:",
                "DisableSecurityGroupIngress",
                "\"maybe\"",
                "expected true",
            ],
        ),
        (
            "missing field",
            format!("{CLOUD}[ServiceOverride \"1\"]\n{service}"),
            vec!["cloud.conf:5:2:", "ServiceOverride \"1\"", "SigningRegion is missing"],
        ),
        (
            "no region",
            "[Global]\nVPC = vpc-1\nKubernetesClusterID = prod".to_owned(),
            vec!["no AWS region", "set Zone or Region"],
        ),
        (
            "a zone of no region",
            CLOUD.replace("us-east-1a", "nowhere"),
            vec!["Zone \"nowhere\"", "names no region", "us-east-1a"],
        ),
        (
            "no cluster",
            zone_and_vpc.to_owned(),
            vec!["no cluster ID", "set --cluster-id, or KubernetesClusterID"],
        ),
        (
            "two clusters",
            format!("{CLOUD}KubernetesClusterTag = test\n"),
            vec![
                "KubernetesClusterTag \"test\"",
                "KubernetesClusterID \"prod\"",
                "remove one or make them equal",
            ],
        ),
        (
            "no VPC",
            CLOUD.replace("VPC = vpc-1\n", ""),
            vec!["no VPC", "set VPC in section Global"],
        ),
    ] {
        files.write("cloud.conf", content);
        assert_says(&files.refused(&[]), &words, case);
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

#[test]
fn a_broken_leader_migration_configuration_ends_the_start_and_names_the_rule() {
    let kind = "kind: LeaderMigrationConfiguration\n";
    let beta = format!("apiVersion: controllermanager.config.k8s.io/v1beta1\n{kind}leaderName: m\n");
    let entries = "leaderName: m\ncontrollerLeaders:\n";
    let files = Files::new();
    let flag = format!("--leader-migration-config={}", files.path("migration.yaml").display());
    for (case, content, words) in [
        ("empty file", String::new(), vec!["the text is empty", "leaderName"]),
        (
            "no kind",
            HEAD.replace(kind, "") + "leaderName: m\n",
            vec!["unexpected kind \"\"", "expected LeaderMigrationConfiguration"],
        ),
        (
            "wrong kind",
            HEAD.replace("kind: Leader", "kind: Follower") + "leaderName: m\n",
            vec![
                "\"FollowerMigrationConfiguration\"",
                "expected LeaderMigrationConfiguration",
            ],
        ),
        (
            "unknown version",
            HEAD.replace("/v1", "/v2") + "leaderName: m\n",
            vec!["controllermanager.config.k8s.io/v2", "use", "v1beta1"],
        ),
        (
            "empty leaderName",
            format!("{HEAD}leaderName: \"\"\n"),
            vec!["leaderName: required value", "name the migration lease"],
        ),
        (
            "bad resourceLock",
            format!("{beta}resourceLock: endpoints\n"),
            vec!["resourceLock", "\"endpoints\"", "\"leases\""],
        ),
        (
            "resourceLock in v1",
            format!("{HEAD}leaderName: m\nresourceLock: leases\n"),
            vec!["resourceLock is no field", "remove it"],
        ),
        (
            "empty component",
            format!("{HEAD}{entries}- {{name: service, component: \"\"}}\n"),
            vec![
                "controllerLeaders[0].component: required value",
                "write kube-controller-manager",
            ],
        ),
        (
            "empty name",
            format!("{HEAD}{entries}- {{name: \"\", component: \"*\"}}\n"),
            vec!["controllerLeaders[0].name: required value", "name a controller"],
        ),
        (
            "unknown field",
            format!("{HEAD}leaderName: m\nleadername: n\n"),
            vec!["unknown field leadername", "correct its spelling"],
        ),
        (
            "duplicate key",
            format!("{HEAD}leaderName: m\nleaderName: n\n"),
            vec!["line 4", "duplicate", "leaderName"],
        ),
        (
            "unquoted *",
            format!("{HEAD}{entries}- name: service\n  component: *\n"),
            vec!["line 6", "a bare * is a YAML alias", "component: \"*\""],
        ),
        (
            "wrong type",
            format!("{HEAD}leaderName: [m]\n"),
            vec!["leaderName is a list, expected a string"],
        ),
        ("a flood of brackets", "[".repeat(100_000), vec!["not valid YAML"]),
    ] {
        files.write("migration.yaml", content);
        let said = files.refused(&["--enable-leader-migration", &flag]);
        assert_says(&said, &words, case);
        assert_says(&said, &["migration.yaml"], case);
    }
    let unreadable = "--leader-migration-config=/nonexistent/migration.yaml";
    let said = files.refused(&["--enable-leader-migration", unreadable]);
    assert_says(
        &said,
        &[
            "/nonexistent/migration.yaml",
            "No such file",
            "correct --leader-migration-config",
        ],
        "unreadable",
    );
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
        ("garbage", vec!["kubeconfig YAML", "line 1"]),
        ("apiVersion: v1\nkind: Config\n", vec!["current context"]),
        ("\u{0}\u{1}", vec!["kubeconfig YAML"]),
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
