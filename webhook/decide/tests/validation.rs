//! Golden validations: `golden-validation/<what>/<case>/input.yaml` holds a review and the migrations,
//! `expected.yaml` the validation. `UPDATE_GOLDEN=1 cargo test -p outrigger-decide --test validation` writes the
//! expectations anew; read the difference before committing it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use outrigger_decide::{Input, Migration, Operation, Validation, ValidationOutcome, validate};
use outrigger_shared::migration::CloudProviderMigrationSpec;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    operation: String,
    namespace_labels: Option<BTreeMap<String, String>>,
    migrations: BTreeMap<String, CaseMigration>,
    manager_ready: Option<bool>,
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
    fn validate(&self) -> Validation {
        let migrations: Vec<Migration<'_>> = self
            .migrations
            .iter()
            .map(|(name, migration)| Migration {
                name,
                spec: &migration.spec,
                prepared: migration.prepared,
            })
            .collect();
        validate(&Input {
            operation: match self.operation.as_str() {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                other => panic!("unknown operation {other}"),
            },
            namespace_labels: self.namespace_labels.as_ref(),
            old_object: self.old_object.as_ref(),
            own_namespace: Some("outrigger-system"),
            manager_fresh: self.manager_ready,
            ..Input::creation(&self.object, &migrations)
        })
    }
}

fn cases() -> Vec<(PathBuf, Case)> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let root = PathBuf::from("tests/golden-validation");
    let mut cases: Vec<PathBuf> = folders(&root).iter().flat_map(|what| folders(what)).collect();
    cases.sort();
    let read = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("input.yaml")).unwrap();
        let case = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        (folder, case)
    };
    cases.into_iter().map(read).collect()
}

#[test]
fn every_case_is_judged_as_expected() {
    let mut different = Vec::new();
    for (folder, case) in cases() {
        let validation = case.validate();
        let mut found = json!({ "judged": validation.outcome.as_str() });
        if !validation.message.is_empty() {
            found["message"] = json!(validation.message);
        }
        if !validation.warnings.is_empty() {
            found["warnings"] = json!(validation.warnings);
        }
        let found = serde_saphyr::to_string(&found).unwrap();
        let file = folder.join("expected.yaml");
        if found == fs::read_to_string(&file).unwrap_or_default() {
            continue;
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &found).unwrap();
        } else {
            different.push(format!("{}\n{found}", folder.display()));
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
fn there_is_a_case_for_every_judgement_and_only_refusals_have_a_message() {
    let mut seen = BTreeSet::new();
    for (folder, case) in cases() {
        let validation = case.validate();
        seen.insert(validation.outcome.as_str());
        let denied = validation.outcome == ValidationOutcome::Denied;
        assert_eq!(denied, !validation.message.is_empty(), "{}", folder.display());
        for warning in &validation.warnings {
            assert!(warning.chars().count() <= 256, "{warning}");
        }
    }
    assert_eq!(seen.len(), ValidationOutcome::ALL.len(), "{seen:?}");
}
