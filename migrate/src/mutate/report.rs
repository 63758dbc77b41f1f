//! The decisions as data, and as versioned JSON.

use std::fmt::Write;

use outrigger_webhook::decide::{Decision, Outcome};
use serde_json::{Value, json};

use crate::args::Operation;
use crate::documents::Document;
use crate::yaml;

/// `apiVersion` of the JSON output. A field that is removed or changes its meaning needs a new version; an added field
/// does not.
const API_VERSION: &str = "cli.outrigger.dev/v1alpha1";

/// One object and its decision.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub document: &'a Document,
    /// None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Refused because the namespace's labels are unknown.
    pub namespace_is_unknown: bool,
    pub decision: Decision,
    /// The object as it would be stored.
    pub after: Value,
}

#[derive(Debug)]
pub(super) struct Report<'a> {
    pub operation: Operation,
    /// In the order of the files.
    pub entries: Vec<Entry<'a>>,
}

/// A name for an object in a message.
pub(super) fn what(document: &Document, namespace: Option<&str>) -> String {
    let generated = || {
        document
            .object
            .pointer("/metadata/generateName")
            .and_then(Value::as_str)
    };
    let name = match (document.name(), generated()) {
        ("", Some(prefix)) => format!("{prefix}*"),
        ("", None) => "(no name)".to_owned(),
        (name, _) => name.to_owned(),
    };
    let namespace = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));

    printable(&format!("{} {namespace}{name}", document.kind))
}

/// Escapes control characters, so that a text from an object cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => printed.extend(character.escape_default()),
            false => printed.push(character),
        }
    }

    printed
}

impl Entry<'_> {
    /// Kind, namespace and name.
    pub fn what(&self) -> String {
        what(self.document, self.namespace.as_deref())
    }

    /// None if no single migration matches.
    pub fn migration(&self) -> Option<&str> {
        self.decision.audit_annotations.get("migration").map(String::as_str)
    }

    pub fn phase(&self) -> Option<&str> {
        self.decision.audit_annotations.get("phase").map(String::as_str)
    }

    fn to_json(&self) -> Value {
        let document = self.document;
        json!({
            "source": {
                "file": document.origin.file,
                "document": document.origin.document,
                "items": document.origin.items,
            },
            "group": document.group,
            "version": document.version,
            "kind": document.kind,
            "namespace": self.namespace,
            "name": document.name(),
            "migration": self.migration(),
            "phase": self.phase(),
            "decision": self.decision.outcome.as_str(),
            "reasons": self.decision.reasons,
            "warnings": self.decision.warnings,
            "patch": self.decision.patch,
            "object": self.after,
        })
    }
}

impl Report<'_> {
    pub fn count(&self, outcome: Outcome) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.decision.outcome == outcome)
            .count()
    }

    pub fn summary(&self) -> String {
        let counts = Outcome::ALL.map(|outcome| (outcome, self.count(outcome)));
        let parts: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(outcome, count)| format!("{count} {}", outcome.as_str()))
            .collect();
        let plural = if self.entries.len() == 1 { "" } else { "s" };

        format!("{} object{plural}: {}", self.entries.len(), parts.join(", "))
    }

    /// The objects as they would be stored, one YAML document each, unchanged ones too.
    pub fn objects(&self) -> Result<String, yaml::Error> {
        let mut text = String::new();
        for entry in &self.entries {
            let object = yaml::write(&entry.after)?;
            // Writing to a String cannot fail.
            let _ = write!(text, "---\n{object}");
        }
        Ok(text)
    }

    /// The versioned output.
    pub fn to_json(&self, notes: &[String]) -> Value {
        let counts = Outcome::ALL.map(|outcome| (outcome.as_str().to_owned(), json!(self.count(outcome))));
        json!({
            "apiVersion": API_VERSION,
            "kind": "MutateReport",
            "operation": match self.operation {
                Operation::Create => "create",
                Operation::Update => "update",
            },
            "counts": serde_json::Map::from_iter(counts),
            "notes": notes,
            "objects": self.entries.iter().map(Entry::to_json).collect::<Vec<_>>(),
        })
    }
}
