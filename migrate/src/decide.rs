//! The one door to the webhook's decision: what an object in a file lacks of a review is made up here, and nowhere else.

use outrigger_shared::annotations::NAMESPACE_NAME_LABEL;
use outrigger_shared::migration::Labels;
use outrigger_webhook::decide::{self, Decision, Input, Kind, Migration};
use serde_json::Value;

use crate::args::Operation;
use crate::documents::Document;

/// What holds for every object of a run.
#[derive(Debug)]
pub struct Settings<'a> {
    /// What happens to the objects.
    pub operation: Operation,
    /// Every migration that counts.
    pub migrations: Vec<Migration<'a>>,
    /// The webhook's path, `/mutate/NAME`.
    pub path: Option<&'a str>,
    /// The webhook's own namespace.
    pub own_namespace: &'a str,
    /// Whether a cloud-controller-manager is at work.
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

/// The labels that a namespace has once the API server has stored it: its name is one of them.
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

/// Whether objects of a kind have no namespace: by the webhook's table. Of the kinds without rules, those are known that
/// are read here for other reasons; for the rest the answer changes nothing.
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

/// The versions that a document of this kind should have instead of its own; none when its own will do. The API server
/// converts what it asks the webhook about, and nothing is converted here.
#[must_use]
pub fn expected_versions(document: &Document) -> Option<String> {
    let versions = || rows(&document.group, &document.kind).flat_map(|row| row.versions);
    let known = versions().any(|version| *version == document.version);
    let mut names: Vec<&str> = versions().copied().collect();
    names.sort_unstable();
    names.dedup();
    (!known && !names.is_empty()).then(|| names.join(" or "))
}
