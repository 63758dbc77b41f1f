//! `CloudProviderMigration`s in YAML blocks, and patches of them in commands.

use outrigger_shared::migration::{CloudProviderMigration, CloudProviderMigrationSpec};
use serde_json::{Value, json};

use crate::page::Page;
use crate::shell;

pub fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for document in documents(page) {
        faults.extend(of_document(&document).map(|fault| page.fault(fault)));
    }
    for line in page.console() {
        let commands = shell::commands(&line).into_iter();
        let patches = commands.filter(|words| words.starts_with(&["kubectl".into()]) && is_patch(words));
        faults.extend(
            patches
                .filter_map(|words| of_patch(&words))
                .map(|fault| page.fault(fault)),
        );
    }
    faults
}

/// The texts of all migrations.
pub fn documents(page: &Page) -> Vec<String> {
    let blocks = page.blocks().into_iter().filter(|block| block.language == "yaml");
    let documents = blocks.flat_map(|block| block.text.split("\n---\n").map(str::to_owned).collect::<Vec<_>>());
    documents
        .filter(|text| text.contains("kind: CloudProviderMigration"))
        .collect()
}

fn of_document(text: &str) -> Option<String> {
    let migration: CloudProviderMigration = match serde_saphyr::from_str(text) {
        Ok(migration) => migration,
        Err(error) => return Some(format!("{error}\n{text}")),
    };
    let problems = migration.spec.problems();
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn is_patch(words: &[String]) -> bool {
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    has("patch") && has("cpm")
}

/// A merge patch may set every field of the spec, and no other. An attestation does not count for a phase that the same
/// write enters.
fn of_patch(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == "-p")?;
    let patch: Value = serde_json::from_str(words.get(at + 1)?).unwrap();
    if patch["spec"]["phase"].is_string() && patch["spec"]["attestation"].is_object() {
        return Some(format!("{patch}: set the attestation in a later write"));
    }

    let mut spec = json!({"clusterID": "a"});
    for (field, value) in patch["spec"].as_object().unwrap() {
        spec[field] = value.clone();
    }

    let parsed = serde_json::from_value::<CloudProviderMigrationSpec>(spec);
    match parsed {
        Ok(spec) => spec.problems().first().map(|problem| format!("{patch}: {problem}")),
        Err(error) => Some(format!("{patch}: {error}")),
    }
}
