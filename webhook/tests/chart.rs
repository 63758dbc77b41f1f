//! The Helm chart agrees with its sources, without Helm: its files are those of `manifests/`, its table of profiles is
//! the table of kinds, its README lists its values. `UPDATE_CHART=1 cargo test -p outrigger-webhook --test chart` writes
//! them. `e2e/tests/chart` compares the rendered objects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use outrigger_decide::kinds;
use outrigger_decide::registration::{entries, match_conditions};
use serde_json::Value;

/// The copies: a file of the chart, and its source below `manifests/`.
const COPIES: [(&str, &str); 18] = [
    ("crds/cloudprovidermigrations.yaml", "base/crd.yaml"),
    ("files/roles.yaml", "base/roles.yaml"),
    ("files/rbac-manager.yaml", "base/manager/rbac-manager.yaml"),
    ("files/rbac-leases.yaml", "base/manager/rbac-leases.yaml"),
    (
        "files/rbac-controller-accounts.yaml",
        "components/controller-accounts/rbac.yaml",
    ),
    ("files/rbac-webhook.yaml", "base/webhook/rbac-webhook.yaml"),
    ("files/certificates.yaml", "components/cert-manager/certificates.yaml"),
    ("files/self-signed-rbac.yaml", "components/self-signed/rbac.yaml"),
    ("files/self-signed-secret.yaml", "components/self-signed/secret.yaml"),
    (
        "files/mutating-webhook-configuration.yaml",
        "base/webhook/mutating-webhook-configuration.yaml",
    ),
    (
        "files/mutating-webhook-configuration-early.yaml",
        "base/webhook/mutating-webhook-configuration-early.yaml",
    ),
    (
        "files/mutating-webhook-configuration-kube-system.yaml",
        "components/kube-system/mutating-webhook-configuration.yaml",
    ),
    (
        "files/validating-webhook-configuration.yaml",
        "components/validation/validating-webhook-configuration.yaml",
    ),
    (
        "files/pod-monitor-manager.yaml",
        "components/monitoring/manager/pod-monitor.yaml",
    ),
    (
        "files/pod-monitor-webhook.yaml",
        "components/monitoring/webhook/pod-monitor.yaml",
    ),
    (
        "files/prometheus-rule-manager.yaml",
        "components/monitoring/manager/prometheus-rule.yaml",
    ),
    (
        "files/prometheus-rule-webhook.yaml",
        "components/monitoring/webhook/prometheus-rule.yaml",
    ),
    ("files/dashboard.json", "components/monitoring/dashboard/outrigger.json"),
];
const PROFILES: &str = "files/profiles.yaml";
const CONDITIONS: &str = "files/match-conditions.yaml";

/// The chart of Outrigger, and the one that replaces aws-cloud-controller-manager.
const CHARTS: [&str; 2] = ["outrigger", "aws-cloud-controller-manager"];

fn chart() -> PathBuf {
    folder(CHARTS[0])
}

fn folder(chart: &str) -> PathBuf {
    Path::new("../charts").join(chart)
}

fn read(path: &str) -> String {
    read_in(&chart(), path)
}

fn read_in(folder: &Path, path: &str) -> String {
    let path = folder.join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> Value {
    yaml_in(&chart(), path)
}

fn yaml_in(folder: &Path, path: &str) -> Value {
    serde_saphyr::from_str(&read_in(folder, path)).unwrap()
}

/// Compares a file of Outrigger's chart with its wanted text, or writes it.
fn assert_is(path: &str, wanted: &str) {
    assert_is_in(&chart(), path, wanted);
}

fn assert_is_in(folder: &Path, path: &str, wanted: &str) {
    let path = folder.join(path);
    if std::env::var_os("UPDATE_CHART").is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "{} is out of date: run UPDATE_CHART=1 cargo test -p outrigger-webhook --test chart",
        path.display()
    );
}

#[test]
fn the_chart_has_the_files_of_the_manifests() {
    for (copy, source) in COPIES {
        let source = Path::new("../manifests").join(source);
        assert_is(copy, &fs::read_to_string(source).unwrap());
    }

    let present: BTreeSet<String> = fs::read_dir(chart().join("files"))
        .unwrap()
        .map(|entry| format!("files/{}", entry.unwrap().file_name().display()))
        .collect();
    let mut known: BTreeSet<String> = COPIES.iter().map(|(copy, _)| (*copy).to_owned()).collect();
    known.extend([PROFILES, CONDITIONS].map(str::to_owned));
    let unknown: Vec<&String> = present.difference(&known).collect();
    assert!(unknown.is_empty(), "files without a source: {unknown:?}");
}

#[test]
fn the_table_of_profiles_is_the_table_of_kinds() {
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in kinds() {
        let profiles = table.entry(format!("{}/{}", kind.group, kind.plural)).or_default();
        profiles.extend(kind.profiles.iter().map(|profile| format!("{profile:?}")));
    }

    let mut text =
        "# The profiles of targets that select each resource: the table of kinds in webhook/decide/src/kinds.rs.\n\
        # Rendered: UPDATE_CHART=1 cargo test -p outrigger-webhook --test chart\n"
            .to_owned();
    for (resource, profiles) in &table {
        let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
        text += &format!("\"{resource}\": [{}]\n", profiles.join(", "));
    }
    assert_is(PROFILES, &text);

    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let permitted = schema["properties"]["profiles"]["items"]["enum"].as_array().unwrap();
    let permitted: BTreeSet<&str> = permitted.iter().map(|profile| profile.as_str().unwrap()).collect();
    let used: BTreeSet<&str> = table.values().flatten().map(String::as_str).collect();
    assert_eq!(permitted, used, "values.schema.json and the table of kinds");
}

#[test]
fn the_match_conditions_are_those_of_the_table_of_entries() {
    let mut text = "# The matchConditions of each entry: webhook/decide/src/registration/conditions.rs.\n\
        # Rendered: UPDATE_CHART=1 cargo test -p outrigger-webhook --test chart\n"
        .to_owned();
    for entry in entries() {
        let conditions = match_conditions(&entry);
        if !conditions.is_empty() {
            text += &format!("{}:\n", entry.name);
        }
        for condition in conditions {
            text += &format!(
                "  - name: {}\n    expression: {}\n",
                condition["name"], condition["expression"]
            );
        }
    }
    assert_is(CONDITIONS, &text);
    let read = yaml(CONDITIONS);
    for entry in entries() {
        let conditions = read[&entry.name].as_array().cloned().unwrap_or_default();
        assert_eq!(conditions, match_conditions(&entry), "{}", entry.name);
    }
}

#[test]
fn the_charts_have_the_version_of_the_workspace() {
    for name in CHARTS {
        let chart = yaml_in(&folder(name), "Chart.yaml");
        assert_eq!(chart["name"], name);
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(
            chart["annotations"]["artifacthub.io/license"],
            env!("CARGO_PKG_LICENSE")
        );
    }
}

/// A value of values.yaml: its path, the comment above it, and its default.
struct Documented {
    path: String,
    comment: String,
    default: Value,
}

/// The values with a comment. Everything below such a value is its content.
fn documented(text: &str, values: &Value) -> Vec<Documented> {
    let mut found: Vec<Documented> = Vec::new();
    let mut parents: Vec<&str> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        let content = line.trim_start();
        let depth = (line.len() - content.len()) / 2;
        if let Some(part) = content.strip_prefix("# ") {
            comment = format!("{comment} {part}").trim().to_owned();
            continue;
        }
        let Some((key, _)) = content.split_once(':').filter(|_| depth <= parents.len()) else {
            comment.clear();
            continue;
        };

        parents.truncate(depth);
        let is_content = found
            .last()
            .is_some_and(|last| format!("{}.", parents.join(".")).starts_with(&format!("{}.", last.path)));
        parents.push(key);
        if is_content {
            continue;
        }
        let pointer = format!("/{}", parents.join("/"));
        let default = values.pointer(&pointer).unwrap().clone();
        if !comment.is_empty() {
            found.push(Documented {
                path: parents.join("."),
                comment: std::mem::take(&mut comment),
                default,
            });
        } else {
            assert!(default.is_object(), "values.yaml: no comment above {pointer}");
        }
    }
    found
}

/// The values in the schema: those that are no groups of values.
fn in_the_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in schema["properties"].as_object().unwrap() {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        assert!(
            value["type"] != "object" || !value["additionalProperties"].is_null() || key == "global",
            "{path} accepts unknown keys"
        );
        if value["properties"].is_object() {
            in_the_schema(value, &path, found);
        } else if key != "global" {
            found.insert(path);
        }
    }
}

fn table_of_values(chart: &Path) -> String {
    let text = read_in(chart, "values.yaml");
    let mut table = "| value | default | meaning |\n|---|---|---|\n".to_owned();
    for value in documented(&text, &yaml_in(chart, "values.yaml")) {
        let default = match &value.default {
            Value::Null => String::new(),
            default if default.to_string().len() > 60 => "see `values.yaml`".to_owned(),
            default => format!("`{default}`"),
        };
        table += &format!("| `{}` | {default} | {} |\n", value.path, value.comment);
    }
    table
}

#[test]
fn every_value_is_documented_and_in_the_schema() {
    for chart in CHARTS.map(folder) {
        let paths: BTreeSet<String> = documented(&read_in(&chart, "values.yaml"), &yaml_in(&chart, "values.yaml"))
            .into_iter()
            .map(|value| value.path)
            .collect();
        let schema: Value = serde_json::from_str(&read_in(&chart, "values.schema.json")).unwrap();
        let mut known = BTreeSet::new();
        in_the_schema(&schema, "", &mut known);
        assert_eq!(paths, known, "{}: values.yaml and values.schema.json", chart.display());

        let readme = read_in(&chart, "README.md");
        let (begin, end) = ("<!-- values: begin -->\n", "<!-- values: end -->");
        let (before, rest) = readme.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        let table = table_of_values(&chart);
        assert_is_in(&chart, "README.md", &format!("{before}{begin}{table}{end}{after}"));
    }
}
