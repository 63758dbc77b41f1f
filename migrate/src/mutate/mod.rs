//! `outrigger mutate`: the webhook's decisions about objects in files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};

use outrigger_shared::migration::Labels;
use outrigger_webhook::decide::{Migration, Outcome};
use serde_json::Value;

use self::error::Error;
use self::old::{Old, namespace_of};
use self::report::{Entry, Report};
use crate::args::{MutateArgs, Operation, Output};
use crate::decide::{self, Settings};
use crate::documents::{Document, Inputs};
use crate::end::{End, Failure};
use crate::migrations::{self, Found};

pub mod error;
mod old;
pub(crate) mod report;
mod text;

/// Reads, decides, prints.
///
/// # Errors
/// [`Failure`] on wrong input; then nothing is printed to `out`.
pub fn run(args: &MutateArgs, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let operation = operation(args)?;
    let mut inputs = Inputs::new(stdin);
    let mut documents = Vec::new();

    for file in &args.filename {
        documents.extend(inputs.read(file)?);
    }

    let old = match &args.old {
        Some(file) => Old::new(file, inputs.read(file)?, args)?,
        None => Old::default(),
    };
    let mut found = migrations::find(&args.migration, &documents, &mut inputs)?;
    let mut notes = notes(args, &found);
    check_path(args, &found)?;
    for found in &mut found {
        found.migration.spec.phase = args.phase.unwrap_or(found.migration.spec.phase);
    }

    let settings = Settings {
        operation,
        migrations: found.iter().map(|found| migration(args, found)).collect(),
        path: args.path.as_deref(),
        own_namespace: &args.own_namespace,
        manager_ready: args.manager_ready,
    };
    let namespaces = namespaces(&documents);
    let mut entries = Vec::new();

    for document in &documents {
        entries.push(entry(args, &settings, &namespaces, &old, document)?);
    }

    let report = Report { operation, entries };
    if report.entries.iter().any(|entry| entry.namespace_is_unknown) {
        notes.push(
            "hint: name labels of namespaces with --namespace-labels=KEY=VALUE,..., or add the Namespaces to -f"
                .to_owned(),
        );
    }

    notes.extend(not_sent(&report.entries));
    print(args, &report, &notes, out, err)?;

    let refused = report.count(Outcome::Refused) > 0;
    Ok(if refused { End::Refused } else { End::Success })
}

/// The webhook's registration in `manifests/base` leaves kube-system out.
fn not_sent(entries: &[Entry<'_>]) -> Option<String> {
    let would_change = |entry: &&Entry<'_>| matches!(entry.decision.outcome, Outcome::Changed | Outcome::Audited);
    let of_kube_system = |entry: &&Entry<'_>| entry.namespace.as_deref() == Some("kube-system");
    let count = entries.iter().filter(would_change).filter(of_kube_system).count();

    (count > 0).then(|| {
        format!(
            "note: {count} of these objects are in kube-system, which manifests/base does not send to the webhook: ConfigMaps and \
             HelmCharts need manifests/components/kube-system, other kinds a webhook entry of your own"
        )
    })
}

fn operation(args: &MutateArgs) -> Result<Operation, Error> {
    match (args.operation, &args.old) {
        (Some(Operation::Update), None) => Err(Error::OldMissing),
        (Some(Operation::Create), Some(_)) => Err(Error::OldOnCreate),
        (_, Some(_)) => Ok(Operation::Update),
        (_, None) => Ok(Operation::Create),
    }
}

/// Notes about the migrations, printed before the decisions.
fn notes(args: &MutateArgs, found: &[Found]) -> Vec<String> {
    let mut notes = Vec::new();
    for found in found {
        notes.extend(migrations::problems(found));
        notes.extend(migrations::skipped_step(found, args.phase));
    }

    notes
}

fn migration<'a>(args: &MutateArgs, found: &'a Found) -> Migration<'a> {
    let migration = Migration::from(&found.migration);
    Migration {
        prepared: args.prepared.unwrap_or(migration.prepared),
        ..migration
    }
}

fn check_path(args: &MutateArgs, found: &[Found]) -> Result<(), Error> {
    let Some(path) = &args.path else { return Ok(()) };
    if found.iter().any(|found| found.name == *path) {
        return Ok(());
    }

    Err(Error::Path {
        path: path.clone(),
        names: migrations::listed(found),
    })
}

/// Labels of the namespaces that are among the documents.
fn namespaces(documents: &[Document]) -> BTreeMap<&str, Labels> {
    let all = documents
        .iter()
        .filter(|one| one.group.is_empty() && one.kind == "Namespace");
    all.map(|one| (one.name(), decide::stored_labels(one.name(), labels(&one.object))))
        .collect()
}

fn labels(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

fn entry<'a>(
    args: &MutateArgs,
    settings: &Settings<'_>,
    namespaces: &BTreeMap<&str, Labels>,
    old: &Old,
    document: &'a Document,
) -> Result<Entry<'a>, Error> {
    let namespace = namespace_of(args, document);
    if let Some(expected) = decide::expected_versions(document) {
        return Err(Error::Version {
            origin: Box::new(document.origin.clone()),
            what: report::what(document, namespace),
            version: document.version.clone(),
            expected,
        });
    }

    let labels = namespace.and_then(|name| {
        let others = || {
            args.namespace_labels
                .clone()
                .map(|labels| decide::stored_labels(name, labels))
        };
        namespaces.get(name).cloned().or_else(others)
    });

    let stored = old.of(args, document)?;
    let decision = decide::decide(settings, document, stored, namespace, labels.as_ref());
    let mut after = document.object.clone();

    json_patch::patch(&mut after, &decision.patch).map_err(|source| Error::Patch {
        origin: document.origin.clone(),
        source,
    })?;

    let unmatched = decision.outcome == Outcome::Refused && !decision.audit_annotations.contains_key("migration");
    Ok(Entry {
        document,
        namespace_is_unknown: unmatched && namespace.is_some() && labels.is_none(),
        namespace: namespace.map(str::to_owned),
        decision,
        after,
    })
}

fn print(
    args: &MutateArgs,
    report: &Report<'_>,
    notes: &[String],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    if let Some(path) = &args.out {
        fs::write(path, report.objects()?).map_err(|source| Error::Out {
            path: path.clone(),
            source,
        })?;
    }

    for note in notes {
        writeln!(err, "{}", report::printable(note))?;
    }

    match args.output {
        Output::Text => out.write_all(text::write(report)?.as_bytes())?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &report.to_json(notes))?;
            writeln!(out)?;
        }
        Output::Yaml => {
            out.write_all(report.objects()?.as_bytes())?;
            // Only the objects are written to stdout; the warnings that kubectl would show are written to stderr.
            for entry in &report.entries {
                for warning in &entry.decision.warnings {
                    writeln!(err, "warning: {}: {}", entry.what(), report::printable(warning))?;
                }
            }
        }
    }

    out.flush()?;
    writeln!(err, "{}", report.summary())?;

    Ok(())
}
