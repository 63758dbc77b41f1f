//! Calls the webhook's decision. Only this module fills in the parts of an admission request that an object in a file
//! lacks.

use outrigger_shared::annotations::NAMESPACE_NAME_LABEL;
use outrigger_shared::migration::Labels;
use outrigger_webhook::decide::{self, Decision, Input, Kind, Migration};
use serde_json::Value;

use crate::args::Operation;
use crate::documents::Document;

/// The same for every object of a run.
#[derive(Debug)]
pub struct Settings<'a> {
    pub operation: Operation,
    pub migrations: Vec<Migration<'a>>,
    /// The webhook's path, `/mutate/NAME`.
    pub path: Option<&'a str>,
    /// The webhook's own namespace.
    pub own_namespace: &'a str,
    /// Whether a cloud-controller-manager is running; none if unknown.
    pub manager_ready: Option<bool>,
}

/// Decides one object as the webhook would when the API server asks about it.
#[must_use]
pub fn decide(
    settings: &Settings<'_>,
    document: &Document,
    old: Option<&Value>,
    namespace: Option<&str>,
    namespace_labels: Option<&Labels>,
) -> Decision {
    decide::decide(&Input {
        operation: match settings.operation {
            Operation::Create => decide::Operation::Create,
            Operation::Update => decide::Operation::Update,
        },
        group: &document.group,
        kind: &document.kind,
        subresource: "",
        namespace,
        namespace_labels,
        name: document.name(),
        object: &document.object,
        old_object: old,
        migrations: &settings.migrations,
        path_migration: settings.path,
        own_namespace: Some(settings.own_namespace),
        manager_fresh: settings.manager_ready,
    })
}

/// The labels of a stored namespace: the API server adds its name.
#[must_use]
pub fn stored_labels(name: &str, labels: Labels) -> Labels {
    let mut labels = labels;
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
    labels
}

/// The rows of the webhook's table for a kind.
fn rows<'a>(group: &'a str, kind: &'a str) -> impl Iterator<Item = &'static Kind> + 'a {
    decide::kinds().filter(move |row| row.group == group && row.kind == kind)
}

/// Whether objects of a kind have no namespace, by the webhook's table. For most kinds without rules the answer changes
/// nothing; the exceptions are listed here.
#[must_use]
pub fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    match rows(group, kind).next() {
        Some(row) => !row.namespaced,
        None => matches!(
            (group, kind),
            ("", "Namespace" | "PersistentVolume") | ("outrigger.dev", _)
        ),
    }
}

/// The versions that a document of this kind should have instead of its own; none if its own is known. The API server
/// converts objects before it calls the webhook; this command does not.
#[must_use]
pub fn expected_versions(document: &Document) -> Option<String> {
    let versions = || rows(&document.group, &document.kind).flat_map(|row| row.versions);
    let known = versions().any(|version| *version == document.version);
    let mut names: Vec<&str> = versions().copied().collect();
    names.sort_unstable();
    names.dedup();
    (!known && !names.is_empty()).then(|| names.join(" or "))
}

/// Warnings, then the reasons that are not part of one.
#[must_use]
pub fn explanations(decision: &Decision) -> Vec<String> {
    let Decision { warnings, reasons, .. } = decision;
    let is_in_warning = |reason: &&String| warnings.iter().any(|warning| warning.ends_with(reason.as_str()));
    let others = reasons.iter().filter(|reason| !is_in_warning(reason));
    let warnings = warnings.iter().map(|warning| format!("! {warning}"));

    warnings.chain(others.map(|reason| format!("- {reason}"))).collect()
}
