//! Golden decisions: `golden/<kind>/<case>/input.yaml` holds a review and the migrations, `expected.yaml` what comes of
//! it. `UPDATE_GOLDEN=1 cargo test -p outrigger-decide --test golden` writes the expectations anew; read the difference
//! before committing it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use outrigger_decide::{Decision, Input, Migration, Operation, Outcome, decide};
use outrigger_shared::migration::CloudProviderMigrationSpec;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    operation: String,
    path: Option<String>,
    manager_ready: Option<bool>,
    namespace_labels: Option<BTreeMap<String, String>>,
    migrations: BTreeMap<String, CaseMigration>,
    object: Value,
    old_object: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseMigration {
    prepared: bool,
    spec: CloudProviderMigrationSpec,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn decide(&self, object: &Value) -> Decision {
        let migrations: Vec<Migration<'_>> = self
            .migrations
            .iter()
            .map(|(name, migration)| Migration {
                name,
                spec: &migration.spec,
                prepared: migration.prepared,
            })
            .collect();
        decide(&Input {
            operation: match self.operation.as_str() {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                other => panic!("unknown operation {other}"),
            },
            namespace_labels: self.namespace_labels.as_ref(),
            old_object: self.old_object.as_ref(),
            path_migration: self.path.as_deref(),
            own_namespace: Some("outrigger-system"),
            manager_fresh: self.manager_ready,
            ..Input::creation(object, &migrations)
        })
    }
}

fn patched(object: &Value, decision: &Decision) -> Value {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &decision.patch).unwrap();
    patched
}

fn cases() -> Vec<PathBuf> {
    let root = PathBuf::from("tests/golden");
    let folders = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect()
    };
    let mut cases: Vec<PathBuf> = folders(&root).iter().flat_map(|kind| folders(kind)).collect();
    cases.sort();
    cases
}

fn outcome(case: &Case, decision: &Decision) -> String {
    let mut outcome = json!({ "outcome": decision.outcome.as_str() });
    if !decision.warnings.is_empty() {
        outcome["warnings"] = json!(decision.warnings);
    }
    if !decision.reasons.is_empty() {
        outcome["reasons"] = json!(decision.reasons);
    }
    if !decision.patch.is_empty() {
        outcome["patch"] = json!(decision.patch);
        outcome["object"] = patched(&case.object, decision);
    }
    serde_saphyr::to_string(&outcome).unwrap()
}

/// An API server cuts a warning after 256 characters, and the end is where it says what to do.
#[test]
fn no_warning_is_cut() {
    let mut long = Vec::new();
    for folder in cases() {
        let case = Case::read(&folder.join("input.yaml"));
        let warnings = case.decide(&case.object).warnings;
        long.extend(
            warnings
                .into_iter()
                .filter(|warning| warning.chars().count() > 256)
                .map(|warning| format!("{}: {warning}", folder.display())),
        );
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_case_comes_out_as_expected() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut different = Vec::new();
    for folder in cases() {
        let case = Case::read(&folder.join("input.yaml"));
        let found = outcome(&case, &case.decide(&case.object));
        let file = folder.join("expected.yaml");
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if found == expected {
            continue;
        }
        if update {
            fs::write(&file, &found).unwrap();
        } else {
            different.push(format!(
                "{}\n--- expected\n{expected}+++ found\n{found}",
                folder.display()
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} cases differ:\n{}",
        different.len(),
        different.join("\n")
    );
}

#[test]
fn every_case_is_settled_after_one_decision() {
    for folder in cases() {
        let case = Case::read(&folder.join("input.yaml"));
        let first = case.decide(&case.object);
        let again = case.decide(&patched(&case.object, &first));
        assert!(again.patch.is_empty(), "{}: {:?}", folder.display(), again.patch);
    }
}

#[test]
fn only_changed_objects_have_a_patch_and_whatever_is_refused_says_why() {
    let mut seen = std::collections::BTreeSet::new();
    for folder in cases() {
        let case = Case::read(&folder.join("input.yaml"));
        let decision = case.decide(&case.object);
        seen.insert(decision.outcome);
        assert_eq!(
            decision.outcome == Outcome::Changed,
            !decision.patch.is_empty(),
            "{}",
            folder.display()
        );
        if matches!(decision.outcome, Outcome::Refused | Outcome::Audited) {
            assert!(!decision.warnings.is_empty(), "{}", folder.display());
        }
    }
    assert_eq!(seen.len(), Outcome::ALL.len(), "there is a case for every outcome");
}
