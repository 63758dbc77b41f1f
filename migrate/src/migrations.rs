//! Finds and parses migrations. Parsing is strict, because a misspelt selector field selects other objects.

use std::path::Path;

use outrigger_shared::migration::{
    CloudProviderMigration, CloudProviderMigrationSpec, CloudProviderMigrationStatus, Phase,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::documents::{self, Document, Inputs, Origin, STDIN};

pub const GROUP: &str = "outrigger.dev";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "CloudProviderMigration";

/// A migration and where it was found.
#[derive(Clone, Debug)]
pub struct Found {
    pub origin: Origin,
    /// `metadata.name`.
    pub name: String,
    pub migration: CloudProviderMigration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Documents(#[from] documents::Error),
    /// Another object in a file of migrations.
    #[error("{origin}: {kind} of {api_version}; --migration takes {KIND} of {GROUP}/{VERSION}")]
    Kind {
        origin: Origin,
        api_version: String,
        kind: String,
    },
    #[error("{origin}: {KIND} of version {version:?}; this tool knows {GROUP}/{VERSION}")]
    Version { origin: Origin, version: String },
    /// A field that is missing, unknown, of another type, or has a value that the schema does not allow.
    #[error("{origin}: {field}: {cause}")]
    Field {
        origin: Origin,
        field: String,
        cause: String,
    },
    #[error("migration {name:?} is given twice: {first}, and {second}; give it once")]
    Twice {
        name: String,
        first: Box<Origin>,
        second: Box<Origin>,
    },
    /// A value of `--migration` that is neither a file nor a name.
    #[error("--migration={value}: no such file exists, and no migration has that name (known: {names})")]
    Neither { value: String, names: String },
    #[error("there is no {KIND}: give one with --migration=FILE, or in the documents of -f")]
    Nothing,
}

/// Whether a document is a migration, of any version.
pub fn is_migration(document: &Document) -> bool {
    document.group == GROUP && document.kind == KIND
}

/// Selects migrations. `wanted` are files and names: a name selects one of those files and of `objects`; without a
/// name, all in the files are selected; without either, all in the objects.
pub fn find(wanted: &[String], objects: &[Document], inputs: &mut Inputs<'_>) -> Result<Vec<Found>, Error> {
    let (files, names): (Vec<&String>, Vec<&String>) = wanted.iter().partition(|value| is_file(value));
    let mut read = Vec::new();
    for file in &files {
        for document in inputs.read(file)? {
            read.push(parse(&document)?);
        }
    }

    if files.is_empty() || !names.is_empty() {
        let others: Result<Vec<Found>, Error> = objects.iter().filter(|one| is_migration(one)).map(parse).collect();
        read.extend(others?);
    }

    if let Some(missing) = names
        .iter()
        .find(|name| !read.iter().any(|found| found.name == ***name))
    {
        return Err(Error::Neither {
            value: (*missing).clone(),
            names: listed(&read),
        });
    }

    if !names.is_empty() {
        read.retain(|found| names.contains(&&found.name));
    }

    if read.is_empty() {
        return Err(Error::Nothing);
    }

    each_once(&read)?;

    Ok(read)
}

/// Warnings about a migration, one line each.
pub fn problems(found: &Found) -> Vec<String> {
    let Found { name, origin, .. } = found;
    let problems = found.migration.spec.problems().into_iter();
    problems
        .map(|problem| format!("warning: migration {name} ({origin}): {problem}"))
        .collect()
}

/// A note where the phase of an option is not next to the migration's own.
pub fn skipped_step(found: &Found, phase: Option<Phase>) -> Option<String> {
    let Found { name, migration, .. } = found;
    let from = migration.spec.phase;
    let to = phase.filter(|to| !from.may_become(*to))?;
    Some(format!(
        "note: migration {name} is in phase {from}; the API server takes one step at a time, so {to} is not next"
    ))
}

fn is_file(value: &str) -> bool {
    value == STDIN || value.contains('/') || Path::new(value).exists()
}

pub(crate) fn listed(found: &[Found]) -> String {
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

fn each_once(found: &[Found]) -> Result<(), Error> {
    for (index, second) in found.iter().enumerate() {
        if let Some(first) = found.iter().take(index).find(|first| first.name == second.name) {
            return Err(Error::Twice {
                name: second.name.clone(),
                first: Box::new(first.origin.clone()),
                second: Box::new(second.origin.clone()),
            });
        }
    }
    Ok(())
}

/// Reads one migration. A field that is not known is an error, at any level: the API server would refuse it.
pub fn parse(document: &Document) -> Result<Found, Error> {
    let origin = document.origin.clone();
    if !is_migration(document) {
        return Err(Error::Kind {
            origin,
            api_version: document.api_version(),
            kind: document.kind.clone(),
        });
    }
    if document.version != VERSION {
        return Err(Error::Version {
            origin,
            version: document.version.clone(),
        });
    }

    let failed = |(field, cause)| Error::Field {
        origin: origin.clone(),
        field,
        cause,
    };
    let migration = strict(&document.object).map_err(failed)?;
    let name = document.name().to_owned();
    if name.is_empty() {
        return Err(failed(missing("metadata.name")));
    }

    Ok(Found {
        name,
        origin,
        migration,
    })
}

/// A field's path and its problem.
type Wrong = (String, String);

fn strict(object: &Value) -> Result<CloudProviderMigration, Wrong> {
    // Separately first, so that the message names the part.
    part::<CloudProviderMigrationSpec>(object, "spec")?;
    if object.get("status").is_some_and(|status| !status.is_null()) {
        part::<CloudProviderMigrationStatus>(object, "status")?;
    }

    let migration: CloudProviderMigration =
        serde_json::from_value(object.clone()).map_err(|error| ("metadata".to_owned(), error.to_string()))?;
    let known = serde_json::to_value(&migration).map_err(|error| ("spec".to_owned(), error.to_string()))?;
    match unknown("", object, &known) {
        Some(field) => Err((field, "no such field; correct or remove it".to_owned())),
        None => Ok(migration),
    }
}

fn missing(field: &str) -> Wrong {
    (field.to_owned(), "missing; every migration has one".to_owned())
}

fn part<T: DeserializeOwned>(object: &Value, key: &str) -> Result<T, Wrong> {
    let value = object.get(key).ok_or_else(|| missing(key))?;
    serde_json::from_value(value.clone()).map_err(|error| (key.to_owned(), error.to_string()))
}

/// The first field that parsing has dropped. Kubernetes' own types drop unknown fields silently, and omit empty ones.
fn unknown(path: &str, given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(key, value)| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match known.get(key) {
                Some(known) => unknown(&path, value, known),
                None if is_empty(value) => None,
                // The status is not the operator's, and a newer manager may say more.
                None if path.starts_with("status") => None,
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(index, (given, known))| unknown(&format!("{path}[{index}]"), given, known)),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Found>, Error> {
        documents::parse("f", text).unwrap().iter().map(parse).collect()
    }

    const GOOD: &str = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: prod}\n\
         spec: {clusterID: prod, targets: [{profile: Nodes, objectSelector: {matchLabels: {a: b}}}]}\n";

    #[test]
    fn a_migration_as_the_api_server_gives_it_is_read() {
        let text = format!(
            "{GOOD}status:\n  newerField: 1\n  conditions:\n  - {{type: Prepared, status: \"True\", reason: R, message: m, lastTransitionTime: \"2026-01-02T03:04:05Z\"}}\n"
        );
        let text = text.replace(
            "{name: prod}",
            "{name: prod, uid: u, generation: 3, creationTimestamp: \"2026-01-02T03:04:05Z\", managedFields: []}",
        );
        let found = read(&text).unwrap();
        assert!(found[0].migration.is_prepared());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (from, to, said) in [
            (
                "matchLabels",
                "matchLabel",
                "spec.targets[0].objectSelector.matchLabel: no such field",
            ),
            ("clusterID", "clusterId", "spec: unknown field `clusterId`"),
            ("{name: prod}", "{nam: prod}", "metadata.nam: no such field"),
            ("{name: prod}", "{}", "metadata.name: missing"),
            ("spec:", "specs:", "spec: missing"),
            ("spec:", "extra: 1\nspec:", "extra: no such field"),
            ("profile: Nodes", "profile: nodes", "spec: unknown variant `nodes`"),
            (
                "v1alpha1",
                "v1",
                "of version \"v1\"; this tool knows outrigger.dev/v1alpha1",
            ),
            (
                "kind: Cloud",
                "kind: Claud",
                "ClaudProviderMigration of outrigger.dev/v1alpha1; --migration takes",
            ),
        ] {
            let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }
}
