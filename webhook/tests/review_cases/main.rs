//! What an expert wants of objects that reviewers made up: `reviews/cases` of the test data beside the repository, in
//! `../shared` or where `OUTRIGGER_SHARED` says. Without it this test checks nothing and says so.
//!
//! A row of the table is one review: an object, a file of migrations from the same folder, a phase, and what must come of it.
//! A file without a row fails, so a new one needs its expectation. The rows are written by hand, not rendered.

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

use outrigger_shared::migration::CloudProviderMigrationSpec;
use outrigger_webhook::decide::{Decision, Input, Migration, Outcome, decide};
use serde_json::{Value, json};
use shared_data::patched;

use case::{At, Row, Want, row, update};

fn table() -> Vec<Row> {
    [
        command_lines::rows(),
        workloads::rows(),
        kubeadm::rows(),
        rancher::rows(),
        objects::rows(),
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

fn decided(row: &Row, folder: &Path) -> (Decision, Value) {
    let (file, index) = row.object.split_once('#').unwrap_or((row.object, "0"));
    let mut object = objects_of(&folder.join(file))[index.parse::<usize>().unwrap()].clone();
    if row.labelled {
        object["metadata"]["labels"]["cluster"] = json!("prod");
    }
    let old = row.over.map(|over| objects_of(&folder.join(over)).remove(0));
    let mut specs: Vec<(String, CloudProviderMigrationSpec)> = Vec::new();
    for migration in objects_of(&folder.join(row.migrations)) {
        let mut spec: CloudProviderMigrationSpec = serde_json::from_value(migration["spec"].clone()).unwrap();
        spec.phase = row.at.phase();
        specs.push((migration["metadata"]["name"].as_str().unwrap().to_owned(), spec));
    }
    let prepared = matches!(row.at, At::Migrate | At::Complete);
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

fn holds(want: &Want, decision: &Decision, stored: &Value) -> bool {
    let mut found = Vec::new();
    lines(stored, "", &mut found);
    let any = |texts: &[String], part: &str| texts.iter().any(|text| text.contains(part));
    match want {
        Want::NotOurs => decision.outcome == Outcome::NotOurs,
        Want::Unchanged => decision.outcome == Outcome::Unchanged,
        Want::Changed => decision.outcome == Outcome::Changed,
        Want::Audited => decision.outcome == Outcome::Audited,
        Want::Refused => decision.outcome == Outcome::Refused && decision.patch.is_empty(),
        Want::Warns(part) => any(&decision.warnings, part),
        Want::Silent(part) => !any(&decision.warnings, part),
        Want::Because(part) => any(&decision.reasons, part),
        Want::Has(part) => any(&found, part),
        Want::Lacks(part) => !any(&found, part),
    }
}

/// The outcomes in the table; each row names one.
fn names_an_outcome(want: &Want) -> bool {
    matches!(
        want,
        Want::NotOurs | Want::Unchanged | Want::Changed | Want::Audited | Want::Refused
    )
}

#[test]
fn every_case_is_decided_as_an_expert_wants() {
    let Some(folder) = shared_data::path("reviews/cases") else {
        return;
    };
    let rows = table();
    assert!(rows.len() >= 250, "only {} rows", rows.len());

    let mut failed = Vec::new();
    for row in &rows {
        assert!(row.wants.iter().any(names_an_outcome), "{row:?} names no outcome");
        let (decision, stored) = decided(row, &folder);
        let missed: Vec<&Want> = row
            .wants
            .iter()
            .filter(|want| !holds(want, &decision, &stored))
            .collect();
        if !missed.is_empty() {
            failed.push(format!(
                "{} under {} in {:?}: {missed:?}\n  {:?} {:#?} {:#?}",
                row.object, row.migrations, row.at, decision.outcome, decision.warnings, decision.reasons
            ));
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
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
    let rows = table();
    let used: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| [Some(row.object), Some(row.migrations), row.over])
        .flatten()
        .map(|name| name.split('#').next().unwrap_or_default().to_owned())
        .collect();
    let without: Vec<&String> = files.difference(&used).collect();
    let gone: Vec<&String> = used.difference(&files).collect();
    assert!(without.is_empty(), "write what an expert wants of {without:?}");
    assert!(gone.is_empty(), "not there any more: {gone:?}");
    assert!(files.len() >= 115, "only {} files", files.len());
}
