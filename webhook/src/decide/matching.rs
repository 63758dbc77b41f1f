//! Which migration does an object belong to.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use outrigger_shared::{
    annotations::NAMESPACE_NAME_LABEL,
    migration::{Profile, Target},
};
use serde_json::Value;

use super::{Input, Migration};

type Labels = BTreeMap<String, String>;

/// What came of the search.
#[derive(Debug)]
pub(super) enum Match<'a> {
    /// The object belongs to no migration.
    None,
    /// It belongs to this one.
    One(&'a Migration<'a>),
    /// It belongs to more than one, so to none.
    Several(Vec<&'a str>),
    /// A target may match, but the labels of this namespace are not known.
    NamespaceUnknown(&'a str),
}

enum Verdict {
    No,
    Yes,
    Unknown,
}

/// Namespaces that only a target that names them reaches, besides the webhook's own.
const PROTECTED: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Finds the migration that has a target of one of the profiles for the object.
pub(super) fn find<'a>(input: &Input<'a>, profiles: &[Profile]) -> Match<'a> {
    let labels = labels_of(input.object);
    let mut unknown = false;
    let mut found: Vec<&'a Migration<'a>> = Vec::new();
    for migration in input.migrations.iter().filter(|migration| may_ask(input, migration)) {
        let verdicts: Vec<Verdict> = migration
            .spec
            .targets
            .iter()
            .filter(|target| profiles.contains(&target.profile))
            .map(|target| judge(input, target, &labels))
            .collect();
        if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Yes)) {
            found.push(migration);
        }
        unknown |= verdicts.iter().any(|verdict| matches!(verdict, Verdict::Unknown));
    }
    match (&found[..], input.namespace) {
        // Whoever is unknown might be the second one.
        (_, Some(namespace)) if unknown => Match::NamespaceUnknown(namespace),
        ([], _) => Match::None,
        ([migration], _) => Match::One(migration),
        (several, _) => Match::Several(several.iter().map(|migration| migration.name).collect()),
    }
}

/// A named path is the cluster of one migration. On the unnamed one, the Nodes are those of the API server that holds
/// the migrations, so a cluster whose control plane is hosted there has no Node among them.
fn may_ask(input: &Input<'_>, migration: &Migration<'_>) -> bool {
    match input.path_migration {
        Some(name) => migration.name == name,
        None if input.namespace.is_none() => !migration
            .spec
            .targets
            .iter()
            .any(|target| target.profile.in_management_cluster()),
        None => true,
    }
}

fn judge(input: &Input<'_>, target: &Target, labels: &Labels) -> Verdict {
    let needs_selector = target.profile.needs_selector();
    let (namespace_selector, object_selector) = (&target.namespace_selector, &target.object_selector);
    if needs_selector && namespace_selector.is_none() && object_selector.is_none() {
        return Verdict::No;
    }
    if object_selector
        .as_ref()
        .is_some_and(|selector| !matches(selector, labels, needs_selector))
    {
        return Verdict::No;
    }
    let Some(namespace) = input.namespace else {
        return Verdict::Yes;
    };
    let is_protected = PROTECTED.contains(&namespace) || input.own_namespace == Some(namespace);
    let Some(selector) = namespace_selector else {
        return if is_protected { Verdict::No } else { Verdict::Yes };
    };
    if is_protected && !names_namespace(selector, namespace) {
        return Verdict::No;
    }
    match input.namespace_labels {
        Some(labels) if matches(selector, labels, needs_selector) => Verdict::Yes,
        Some(_) => Verdict::No,
        None if needs_selector && is_empty(selector) => Verdict::No,
        None => Verdict::Unknown,
    }
}

/// As Kubernetes matches label selectors, but that an empty one matches nothing where the profile says so, and an
/// invalid one never matches.
fn matches(selector: &LabelSelector, labels: &Labels, empty_matches_nothing: bool) -> bool {
    if is_empty(selector) {
        return !empty_matches_nothing;
    }
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a selector asks for a namespace by its very name.
fn names_namespace(selector: &LabelSelector, namespace: &str) -> bool {
    let by_label = selector
        .match_labels
        .as_ref()
        .and_then(|labels| labels.get(NAMESPACE_NAME_LABEL));
    let by_expression = selector.match_expressions.iter().flatten().any(|expression| {
        expression.key == NAMESPACE_NAME_LABEL
            && expression.operator == "In"
            && expression.values.iter().flatten().any(|value| value == namespace)
    });
    by_label.is_some_and(|name| name == namespace) || by_expression
}

fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
