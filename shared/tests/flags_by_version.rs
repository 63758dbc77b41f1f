//! `docs/flags-by-version.md` has what the rules do with typical flags, in each phase and version. `UPDATE_DOCS=1 cargo
//! test -p outrigger-shared --test flags_by_version` writes it anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::ops::RangeInclusive;

use outrigger_shared::{
    command_line::{CommandLine, List},
    component::Component::{self, CloudControllerManager, KubeApiserver, KubeControllerManager, Kubelet},
    migration::Phase,
    phase_flags::{Circumstances, NodeIpam, OwnConfiguration, changes, fatal, gates_warning},
    version::KubernetesVersion,
};
use serde_json::json;

const PAGE: &str = "../docs/flags-by-version.md";

const INTRODUCTION: &str = "\
# Flags by phase and version

Written from the rules in `shared/src/phase_flags/`, which the webhook and `outrigger` apply; after a change run
`UPDATE_DOCS=1 cargo test -p outrigger-shared --test flags_by_version`.

Each table has the flags that a component gets, for one form of its original flags. In phase InTree, and after a way
back to it, the original flags apply. All other flags stay as they are.

- **starts**: whether a component of this version starts with the original flags. A phase with whose flags it does not
  start says so: then a feature gate has to be removed by hand.
- In Migrate and Complete an in-tree kube-controller-manager gets the flags of Prepare until the condition `Prepared` is
  true.
- **refused**: the object keeps its flags, and a warning has this text.
- The tables are for a migration without `spec.downtime` and without `spec.leaderMigration`, and for one component in
  each object. The page about the [webhook](webhook.md#flags-by-phase) has the other cases.
";

/// The versions of the guides.
const MINORS: RangeInclusive<u32> = 22..=36;

const IN_TREE: &str = "--cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf";

/// The original flags in the page, by component.
const ORIGINALS: [(Component, &[&str]); 4] = [
    (
        KubeControllerManager,
        &[
            IN_TREE,
            "--cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf --feature-gates=CSIMigrationAWS=true",
            "--cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf --feature-gates=CSIMigrationAWS=false",
            "--cloud-provider=external --enable-leader-migration=true",
        ],
    ),
    (KubeApiserver, &[IN_TREE, "--cloud-provider=external"]),
    (
        Kubelet,
        &[
            IN_TREE,
            "--cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf --feature-gates=CSIMigrationAWS=true",
            "",
        ],
    ),
    (CloudControllerManager, &["--cloud-provider=aws"]),
];

fn line(component: Component, flags: &str) -> CommandLine {
    let tokens: Vec<&str> = std::iter::once(component.as_str())
        .chain(flags.split_whitespace())
        .collect();
    CommandLine::of_container(&json!({ "command": tokens })).unwrap()
}

fn at(phase: Phase, minor: u32) -> Circumstances {
    Circumstances {
        phase,
        version: Some(KubernetesVersion::v1(minor)),
        both_in_one_object: false,
        downtime: false,
        own_configuration: OwnConfiguration::None,
        node_ipam: NodeIpam::Stays,
        named_elsewhere: false,
    }
}

/// The flags after the change.
fn cell(component: Component, original: &str, phase: Phase, minor: u32) -> String {
    let mut line = line(component, original);
    let changes = match changes(component, &line, &at(phase, minor)) {
        Ok(changes) => changes,
        // Without the version, so that rows of several versions are equal.
        Err(refusal) => {
            let version = KubernetesVersion::v1(minor).to_string();
            return format!("refused: {}", refusal.to_string().replace(&version, "this version"));
        }
    };
    for change in &changes {
        change.apply(&mut line).unwrap();
    }

    let flags = &line.list(List::Command).unwrap()[1..];
    let quoted: Vec<String> = flags.iter().map(|flag| format!("`{flag}`")).collect();
    let end = if starts(component, &line, minor) {
        ""
    } else {
        ": does not start"
    };
    match (changes.is_empty(), quoted.is_empty()) {
        (true, _) => "original".to_owned(),
        (false, true) => "none of these flags".to_owned(),
        (false, false) => quoted.join(" ") + end,
    }
}

fn starts(component: Component, line: &CommandLine, minor: u32) -> bool {
    let version = Some(KubernetesVersion::v1(minor));
    let is_fatal = fatal(component, line, version).unwrap().is_some();
    let has_gates = gates_warning(line, &at(Phase::Migrate, minor)).unwrap().is_some();
    !is_fatal && !has_gates
}

/// The cells of a version.
fn row(component: Component, original: &str, minor: u32) -> String {
    let [prepare, migrate, complete] =
        [Phase::Prepare, Phase::Migrate, Phase::Complete].map(|phase| cell(component, original, phase, minor));
    let starts = if starts(component, &line(component, original), minor) {
        "yes"
    } else {
        "no"
    };
    let complete = if complete == migrate {
        "as in Migrate"
    } else {
        &complete
    };
    format!("{starts} | {prepare} | {migrate} | {complete}")
}

/// One table; versions with equal cells share a row.
fn table(component: Component, original: &str) -> String {
    let mut rows: Vec<(u32, u32, String)> = Vec::new();
    for minor in MINORS {
        let row = row(component, original, minor);
        match rows.last_mut() {
            Some((_, last, same)) if *same == row => *last = minor,
            _ => rows.push((minor, minor, row)),
        }
    }

    let name = match original {
        "" => "no `--cloud-provider`".to_owned(),
        flags => format!("`{flags}`"),
    };
    let mut text = format!(
        "\nOriginal: {name}\n\n| Kubernetes | starts | Prepare | Migrate | Complete |\n|---|---|---|---|---|\n"
    );
    for (first, last, row) in rows {
        let versions = match last - first {
            0 => format!("1.{first}"),
            1 => format!("1.{first}, 1.{last}"),
            _ => format!("1.{first} to 1.{last}"),
        };
        text += &format!("| {versions} | {row} |\n");
    }
    text
}

fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (component, originals) in ORIGINALS {
        text += &format!("\n## {component}\n");
        for original in originals {
            text += &table(component, original);
        }
    }
    text
}

#[test]
fn the_page_has_what_the_rules_do() {
    let wanted = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/flags-by-version.md is out of date: run UPDATE_DOCS=1 cargo test -p outrigger-shared --test flags_by_version"
    );
}

/// A table with one row would mean that the versions have no effect.
#[test]
fn versions_and_phases_make_a_difference() {
    for (component, originals) in ORIGINALS {
        let rows = table(component, originals[0])
            .lines()
            .filter(|line| line.starts_with("| 1."))
            .count();
        let differs = component != CloudControllerManager;
        assert_eq!(rows > 1, differs, "{component}: {rows} rows");
    }
    let migrate = cell(KubeControllerManager, IN_TREE, Phase::Migrate, 26);
    assert_eq!(migrate, "`--cloud-provider=external`");
}
