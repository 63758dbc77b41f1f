//! The decisions as data, as text, and as versioned JSON.

use std::fmt::Write;

use outrigger_decide::{Decision, Outcome};
use outrigger_shared::annotations::UNDO;
use serde_json::{Value, json};
use similar::TextDiff;

use crate::args::Operation;
use crate::documents::Document;
use crate::end::Failure;
use crate::explain::{explanations, printable};
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

impl Entry<'_> {
    pub fn what(&self) -> String {
        what(self.document, self.namespace.as_deref())
    }

    /// `migration` or `phase`; none if no single migration matches.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.decision.audit_annotations.get(key).map(String::as_str)
    }

    /// Whether the object has nothing to say to a person: nothing selects it, and nothing in it names the provider.
    fn is_silent(&self) -> bool {
        self.decision.outcome == Outcome::NotOurs && self.decision.reasons.is_empty()
    }

    fn text(&self, with_patch: bool) -> Result<String, Failure> {
        let decision = &self.decision;
        if decision.outcome == Outcome::NotOurs {
            let reasons = printable(&decision.reasons.join("; "));
            return Ok(format!(
                "{} ({}): not managed, but {reasons}\n",
                self.what(),
                self.document.origin
            ));
        }

        let mut text = format!("{} ({})\n", self.what(), self.document.origin);
        let by = match (self.annotation("migration"), self.annotation("phase")) {
            (Some(migration), Some(phase)) => format!(" (migration {migration}, phase {phase})"),
            _ => String::new(),
        };
        line(&mut text, &format!("{}{by}", meaning(decision.outcome)));
        for explanation in explanations(decision) {
            line(&mut text, &explanation);
        }

        if decision.patch.is_empty() {
            return Ok(text);
        }

        if with_patch {
            line(&mut text, "JSON patch:");
            for operation in &decision.patch {
                line(&mut text, &format!("  {}", serde_json::to_string(operation)?));
            }
        }

        let (before, after) = (without_record(&self.document.object), without_record(&self.after));
        let (before, after) = (yaml::write(&before)?, yaml::write(&after)?);
        let diff = TextDiff::from_lines(&before, &after);
        let unified = diff.unified_diff().header("before", "after").to_string();
        text.push_str(&unified);

        Ok(text)
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
            "migration": self.annotation("migration"),
            "phase": self.annotation("phase"),
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

    /// For people. Objects about which there is nothing to say are only counted.
    pub fn text(&self, with_patch: bool) -> Result<String, Failure> {
        let (silent, told): (Vec<_>, Vec<_>) = self.entries.iter().partition(|entry| entry.is_silent());
        let texts: Result<Vec<String>, Failure> = told.iter().map(|entry| entry.text(with_patch)).collect();
        let mut texts = texts?;
        if !silent.is_empty() {
            let plural = if silent.len() == 1 { "" } else { "s" };
            texts.push(format!(
                "not managed: {} object{plural}, which no migration selects, or for which the webhook has no rule\n",
                silent.len()
            ));
        }

        Ok(texts.join("\n"))
    }

    /// Whether an object gets the form of another phase than the one that was asked for.
    pub fn has_other_phase(&self) -> bool {
        let mut decisions = self.entries.iter().map(|entry| &entry.decision);
        decisions.any(|decision| {
            let mut texts = decision.reasons.iter().chain(&decision.warnings);
            texts.any(|text| text.contains(NOT_PREPARED))
        })
    }

    /// The objects as they would be stored, one YAML document each, unchanged ones too.
    pub fn objects(&self) -> Result<String, yaml::Error> {
        yaml::write_all(self.entries.iter().map(|entry| &entry.after))
    }

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

/// The webhook gives the form of an earlier phase while the migration is not Prepared.
const NOT_PREPARED: &str = "as the migration is not Prepared yet";

/// The object without the records for a step back: JSON in JSON, of which nobody reads a difference.
fn without_record(object: &Value) -> Value {
    match object {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| *key != UNDO);
            let kept = kept.map(|(key, value)| (key.clone(), without_record(value)));
            // Annotations that hold nothing else.
            let is_left = |(key, value): &(String, Value)| {
                key != "annotations" || value != &json!({}) || fields.get(key) == Some(value)
            };
            Value::Object(kept.filter(is_left).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_record).collect()),
        other => other.clone(),
    }
}

fn line(text: &mut String, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {}", printable(content));
}

const fn meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotOurs => "not managed",
        Outcome::Unchanged => "unchanged",
        Outcome::Changed => "changed",
        Outcome::Audited => "audited: it would be changed, but the migration's mode is Audit",
        Outcome::Refused => "refused: it stays unchanged, for the reasons below",
    }
}
