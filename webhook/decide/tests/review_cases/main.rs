//! The results that an expert expects for objects that reviewers wrote: `reviews/cases` of the published data.
//!
//! A case is one review: an object, a file of migrations from the same folder, a phase, and what must come of it.
//! A file without a case fails, so a new one needs its expectation. The cases are written by hand, not rendered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::too_many_lines, reason = "tables of cases")]

#[path = "../shared_data/mod.rs"]
mod shared_data;

mod case;
mod command_lines;
mod kubeadm;
mod objects;
mod rancher;
mod workloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use outrigger_decide::{Decision, Input, Migration, Outcome, decide};
use outrigger_shared::migration::CloudProviderMigrationSpec;
use serde_json::{Value, json};
use shared_data::patched;

use case::{Case, Expectation, MigrationState, row, update};

fn table() -> Vec<Case> {
    [
        command_lines::cases(),
        workloads::cases(),
        kubeadm::cases(),
        rancher::cases(),
        objects::cases(),
    ]
    .concat()
}

/// Every object of a file; those of a List one by one.
fn objects_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let items = |object: Value| object["items"].as_array().cloned().unwrap_or_else(|| vec![object]);
    documents.into_iter().flat_map(items).collect()
}

fn decided(case: &Case, folder: &Path) -> (Decision, Value) {
    let (file, index) = case.object.split_once('#').unwrap_or((case.object, "0"));
    let mut object = objects_of(&folder.join(file))[index.parse::<usize>().unwrap()].clone();
    if case.labelled {
        object["metadata"]["labels"]["cluster"] = json!("prod");
    }
    let old = case.over.map(|over| objects_of(&folder.join(over)).remove(0));
    let mut specs: Vec<(String, CloudProviderMigrationSpec)> = Vec::new();
    for migration in objects_of(&folder.join(case.migrations)) {
        let mut spec: CloudProviderMigrationSpec = serde_json::from_value(migration["spec"].clone()).unwrap();
        spec.phase = case.at.phase();
        specs.push((migration["metadata"]["name"].as_str().unwrap().to_owned(), spec));
    }
    let prepared = matches!(case.at, MigrationState::Migrate | MigrationState::Complete);
    let migrations: Vec<Migration<'_>> = specs
        .iter()
        .map(|(name, spec)| Migration { name, spec, prepared })
        .collect();
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let labels = BTreeMap::from([
        ("cluster".to_owned(), "prod".to_owned()),
        (
            "kubernetes.io/metadata.name".to_owned(),
            namespace.unwrap_or_default().to_owned(),
        ),
    ]);
    let input = Input::creation(&object, &migrations).over(old.as_ref());
    let decision = decide(&Input {
        namespace_labels: Some(&labels),
        ..input
    });
    let stored = patched(&object, &decision);
    (decision, stored)
}

/// The lines of an object, but for annotations, which hold what is to be undone.
fn lines(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| *key != "annotations") {
                lines(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                lines(value, &format!("{at}/{index}"), found);
            }
        }
        Value::String(text) => found.push(format!("{at}: {text}")),
        other => found.push(format!("{at}: {other}")),
    }
}

fn holds(want: &Expectation, decision: &Decision, stored: &Value) -> bool {
    let mut found = Vec::new();
    lines(stored, "", &mut found);
    let any = |texts: &[String], part: &str| texts.iter().any(|text| text.contains(part));
    match want {
        Expectation::NotOurs => decision.outcome == Outcome::NotOurs,
        Expectation::Unchanged => decision.outcome == Outcome::Unchanged,
        Expectation::Changed => decision.outcome == Outcome::Changed,
        Expectation::Audited => decision.outcome == Outcome::Audited,
        Expectation::Refused => decision.outcome == Outcome::Refused && decision.patch.is_empty(),
        Expectation::Warns(part) => any(&decision.warnings, part),
        Expectation::Silent(part) => !any(&decision.warnings, part),
        Expectation::Because(part) => any(&decision.reasons, part),
        Expectation::Has(part) => any(&found, part),
        Expectation::Lacks(part) => !any(&found, part),
    }
}

/// The outcomes in the table; each case names one.
fn names_an_outcome(want: &Expectation) -> bool {
    matches!(
        want,
        Expectation::NotOurs
            | Expectation::Unchanged
            | Expectation::Changed
            | Expectation::Audited
            | Expectation::Refused
    )
}

#[test]
fn every_case_is_decided_as_an_expert_wants() {
    let Some(folder) = shared_data::path("reviews/cases") else {
        return;
    };
    let cases = table();
    assert!(cases.len() >= 250, "only {} cases", cases.len());

    let mut failed = Vec::new();
    for case in &cases {
        assert!(
            case.expectations.iter().any(names_an_outcome),
            "{case:?} names no outcome"
        );
        let (decision, stored) = decided(case, &folder);
        let missed: Vec<&Expectation> = case
            .expectations
            .iter()
            .filter(|want| !holds(want, &decision, &stored))
            .collect();
        if !missed.is_empty() {
            failed.push(format!(
                "{} under {} in {:?}: {missed:?}\n  {:?} {:#?} {:#?}",
                case.object, case.migrations, case.at, decision.outcome, decision.warnings, decision.reasons
            ));
        }
    }
    assert!(failed.is_empty(), "{} cases:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_file_of_the_reviews_has_an_expectation() {
    let Some(folder) = shared_data::path("reviews/cases") else {
        return;
    };
    let files: BTreeSet<String> = shared_data::list(&folder)
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let cases = table();
    let used: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| [Some(case.object), Some(case.migrations), case.over])
        .flatten()
        .map(|name| name.split('#').next().unwrap_or_default().to_owned())
        .collect();
    let without: Vec<&String> = files.difference(&used).collect();
    let gone: Vec<&String> = used.difference(&files).collect();
    assert!(without.is_empty(), "write what an expert expects of {without:?}");
    assert!(gone.is_empty(), "not there any more: {gone:?}");
    assert!(files.len() >= 115, "only {} files", files.len());
}
