//! Each file of `cloud-configs/` is given to both programs. Both must refuse it, or both must read it.
//!
//! Neither program needs a cluster for that: each reads the file before it connects to an API server. Of the values
//! only the cluster ID is compared, which both programs log; most files about values write it in an unusual way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, stream};
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_environment::manager_flags;
use serde_json::Value;

use super::{Programs, explained};

const UNKNOWN: &str = "unknown section or key, a name in quotes after `Global`";
const PORT: &str = "health probe port";
const MODES: &str = "`NLBSecurityGroupMode`, `ClusterServiceLoadBalancerHealthProbeMode` with a wrong value";
const OVERRIDE_URL: &str = "`ServiceOverride` with an invalid `URL`";
const PATTERN: &str = "syntax of `SupportedTopologyInstanceTypePattern`";

/// Files that one program reads and the other refuses, each with its row in `docs/parity.md`.
const DIFFERS: &[(&str, &str)] = &[
    ("bom", "byte order mark"),
    ("group-mode-unknown", MODES),
    ("key-unknown", UNKNOWN),
    ("key-unknown-without-value", UNKNOWN),
    ("more-than-a-mebibyte", "more than 1 MiB"),
    ("number-above-65535", PORT),
    ("number-negative", PORT),
    ("number-with-underscore", PORT),
    ("override-unknown-key", UNKNOWN),
    ("override-url-empty-host", OVERRIDE_URL),
    ("override-url-without-scheme", OVERRIDE_URL),
    ("pattern-literal-text", PATTERN),
    ("pattern-many-repetitions", PATTERN),
    ("probe-mode-unknown", MODES),
    ("section-global-with-a-name", UNKNOWN),
    ("section-unknown", UNKNOWN),
    ("section-unknown-with-a-name", UNKNOWN),
];

/// Texts in the incumbent's log after which it ends because of the file.
const INCUMBENT_REFUSES: [&str; 6] = [
    "unable to read AWS cloud provider config file",
    "unable to validate custom endpoint overrides",
    "unable to create sts v2 client: arn: ",
    "clusterID tags did not match",
    "invalid AZ: ",
    "panic: regexp: Compile(",
];
/// The incumbent needs more than the file has: it has read the file.
const INCUMBENT_ASKS: &str = "access disabled to EC2 IMDS";
const INCUMBENT_CLUSTER: &str = "AWS cloud filtering on ClusterID: ";
/// Ours needs more than the file has.
const OURS_ASKS: [&str; 3] = ["no AWS region", "no cluster ID", "no VPC"];
/// Ours ends because of what two values say together, or of a value that is no zone, without a place in the file.
const OURS_REFUSES: [&str; 2] = ["name different clusters", "names no region"];

const AT_ONCE: usize = 3;
const LIMIT: Duration = Duration::from_secs(30);
/// Fewer are not the whole folder.
const LEAST: usize = 100;

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Refused,
    /// Read, with the cluster ID where the program has logged it.
    Read(Option<String>),
}

impl Answer {
    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Read(Some(one)), Self::Read(Some(other))) => one == other,
            (Self::Read(_), Self::Read(_)) | (Self::Refused, Self::Refused) => true,
            _ => false,
        }
    }
}

struct Bench {
    programs: Programs,
    run: RunFolder,
    kubeconfig: PathBuf,
}

#[tokio::test(flavor = "multi_thread")]
async fn both_read_or_both_refuse_each_cloud_config() {
    let bench = Bench::new().await;
    let files = bench.files();
    assert!(files.len() >= LEAST, "{} files", files.len());

    let answers = stream::iter(&files).map(|(name, file)| async {
        let theirs = bench.incumbent(name, file).await;
        let ours = bench.ours(name, file, &[]).await;
        (name.as_str(), theirs, ours)
    });
    let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;

    let (mut differences, mut clusters) = (Vec::new(), 0);
    for (name, theirs, ours) in &answers {
        clusters += usize::from(matches!((theirs, ours), (Answer::Read(Some(_)), Answer::Read(Some(_)))));
        if !theirs.agrees(ours) {
            println!("{name}: {theirs:?} by v1.37, {ours:?} here");
            differences.push(*name);
        }
    }
    assert!(
        clusters > LEAST / 3,
        "the cluster IDs of {clusters} files were compared"
    );
    explained(differences, DIFFERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_strict_check_unknown_names_are_ignored_as_by_the_incumbent() {
    let bench = Bench::new().await;
    let files = bench.files();
    let unknown = DIFFERS.iter().filter(|(_, topic)| *topic == UNKNOWN);
    for (name, _) in unknown {
        let file = &files[*name];
        let theirs = bench.incumbent(name, file).await;
        let ours = bench.ours(name, file, &["--cloud-config-strict=false"]).await;
        assert_eq!(theirs, ours, "{name}");
    }
}

impl Bench {
    async fn new() -> Self {
        let run = RunFolder::new("outrigger-cloud-configs-").expect("a folder");
        let kubeconfig = run.path().join("kubeconfig");
        // Nothing listens there.
        let text = "{apiVersion: v1, kind: Config, current-context: c, \
                    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
                    contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}";
        std::fs::write(&kubeconfig, text).expect("written");
        Self {
            programs: Programs::find().await,
            run,
            kubeconfig,
        }
    }

    /// The files by name, with those that are too long for the folder.
    fn files(&self) -> BTreeMap<String, PathBuf> {
        let folder = PathBuf::from("tests/incumbent/cloud-configs");
        let paths = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("a file").path());
        let name = |path: &Path| {
            path.file_stem()
                .and_then(|name| name.to_str())
                .expect("a name")
                .to_owned()
        };
        let mut files: BTreeMap<String, PathBuf> = paths.map(|path| (name(&path), path)).collect();

        let whole = std::fs::read_to_string(&files["key-twice"]).expect("a text");
        let generated = [
            (
                "value-long",
                format!("{whole}KubernetesClusterID = {}\n", "a".repeat(70_000)),
            ),
            ("more-than-a-mebibyte", format!("{whole};{}\n", "-".repeat(1 << 20))),
        ];
        for (name, text) in generated {
            let path = self.run.path().join(format!("{name}.conf"));
            std::fs::write(&path, text).expect("written");
            files.insert(name.to_owned(), path);
        }

        files
    }

    async fn incumbent(&self, name: &str, file: &Path) -> Answer {
        let launch = Launch::new(format!("incumbent-{name}"), &self.programs.incumbent)
            .arguments(["--authentication-skip-lookup=true"]);
        self.answer(launch, file, |log| {
            if INCUMBENT_REFUSES.iter().any(|text| log.contains(text)) {
                return Some(Answer::Refused);
            }
            if log.contains(INCUMBENT_ASKS) {
                return Some(Answer::Read(None));
            }
            let (_, rest) = log.split_once(INCUMBENT_CLUSTER)?;
            // The ID may have line breaks; the next line is about the address families.
            let (cluster, _) = rest.split_once(" aws.go:")?;
            let (cluster, _) = cluster.rsplit_once('\n')?;
            Some(Answer::Read(Some(cluster.to_owned())))
        })
        .await
    }

    async fn ours(&self, name: &str, file: &Path, flags: &[&str]) -> Answer {
        let place = format!("{}:", file.display());
        let launch = Launch::new(format!("ours-{name}"), &self.programs.ours)
            .arguments(["--logging-format=json"])
            .arguments(flags.iter().copied());
        self.answer(launch, file, |log| {
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.into_iter().find_map(|line| our_answer(&line, &place))
        })
        .await
    }

    /// Starts a program and waits until its log has the answer.
    async fn answer(&self, launch: Launch, file: &Path, read: impl Fn(&str) -> Option<Answer>) -> Answer {
        let launch = launch
            .arguments(manager_flags(file, &self.kubeconfig))
            .environment("AWS_EC2_METADATA_DISABLED", "true")
            .environment("AWS_ACCESS_KEY_ID", "test")
            .environment("AWS_SECRET_ACCESS_KEY", "test");
        let process = Process::start(&launch, self.run.path()).expect("it starts");

        let answer = || {
            read(&String::from_utf8_lossy(
                &std::fs::read(process.log()).unwrap_or_default(),
            ))
        };
        let asked = process.ready("answer", LIMIT, || {
            std::future::ready(answer().map(drop).ok_or_else(|| "none yet".to_owned()))
        });
        let asked = asked.await;
        process.kill_now().await.expect("it ends");

        answer().unwrap_or_else(|| panic!("{}: {asked:?}", file.display()))
    }
}

fn our_answer(line: &Value, place: &str) -> Option<Answer> {
    if line["msg"] == "serving this cluster" {
        return Some(Answer::Read(line["cluster"].as_str().map(str::to_owned)));
    }
    if line["level"] != "error" {
        return None;
    }

    let error = line["err"].as_str()?;
    let refused = error.contains(place) || OURS_REFUSES.iter().any(|text| error.contains(text));
    let asks = OURS_ASKS.iter().any(|text| error.contains(text));
    match (refused, asks) {
        (true, _) => Some(Answer::Refused),
        (false, true) => Some(Answer::Read(None)),
        (false, false) => None,
    }
}
