//! The parts of the policies' expressions (CEL) that are the same for every kind.
//!
//! `object` is the object as it is to be stored, `params` the CloudProviderMigration of the binding. An expression that
//! fails leaves the object unchanged (`failurePolicy: Ignore`), as a decision about an unreadable object does.

use outrigger_shared::annotations::{APPLY, NAMESPACE_NAME_LABEL};
use outrigger_shared::migration::{KUBE_SYSTEM, PROTECTED, Profile};

const OBJECT_LABELS: &str = "object.metadata.?labels.orValue({})";
const NAMESPACE_LABELS: &str = "namespaceObject.metadata.?labels.orValue({})";

/// A text literal.
pub(super) fn text(value: &str) -> String {
    // A JSON text is a CEL text.
    serde_json::Value::from(value).to_string()
}

/// A list of text literals.
pub(super) fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let values: Vec<String> = values.into_iter().map(text).collect();
    format!("[{}]", values.join(", "))
}

/// A field of the object, by way of fields that may be missing: an optional value.
pub(super) fn optional(root: &str, path: &[&str]) -> String {
    path.iter().fold(root.to_owned(), |text, key| format!("{text}.?{key}"))
}

/// The mode carries decisions out, and the phase is one of these.
pub(super) fn in_force(phases: &[&str]) -> String {
    format!(
        r#"params.spec.?mode.orValue("Enforce") == "Enforce" && params.spec.?phase.orValue("InTree") in {}"#,
        list(phases.iter().copied())
    )
}

/// No target is about a control plane in a management cluster: such a migration's Nodes are those of another API
/// server. A target that names kube-system alone is about the cluster's own workloads
/// ([`outrigger_shared::migration::Target::hosts_a_control_plane`]).
pub(super) fn migrates_its_own_nodes() -> String {
    let elsewhere = Profile::ALL
        .into_iter()
        .filter(|profile| profile.in_management_cluster());
    let elsewhere = elsewhere.map(Profile::as_str);
    let (label, own) = (text(NAMESPACE_NAME_LABEL), text(KUBE_SYSTEM));

    format!(
        "!params.spec.?targets.orValue([]).exists(target, target.profile in {profiles}\n  \
         && target.?namespaceSelector.?matchLabels[?{label}].orValue(\"\") != {own}\n  \
         && !target.?namespaceSelector.?matchExpressions.orValue([]).exists(e,\n    \
         e.key == {label} && e.operator == \"In\" && e.?values.orValue([]) == [{own}]))",
        profiles = list(elsewhere)
    )
}

/// An update changes a part of the object, or the operator requests it by annotation; and the object is not being
/// deleted.
pub(super) fn may_act(part: &[&str]) -> String {
    let (new, old) = (optional("object", part), optional("oldObject", part));
    let apply = |root: &str| format!("{root}.metadata.?annotations[?{}]", text(APPLY));
    format!(
        "!has(object.metadata.deletionTimestamp) && (request.operation == \"CREATE\"\n  || {new} != {old}\n  || {} != {})",
        apply("object"),
        apply("oldObject")
    )
}

/// A target of the migration selects the object.
pub(super) fn selected(profiles: &[Profile], namespaced: bool, own_namespace: &str) -> String {
    let targets: Vec<String> = profiles
        .iter()
        .map(|profile| target(*profile, namespaced, own_namespace))
        .collect();
    format!(
        "params.spec.?targets.orValue([]).exists(target,\n  {})",
        targets.join("\n  || ")
    )
}

fn target(profile: Profile, namespaced: bool, own_namespace: &str) -> String {
    let needs_selector = profile.needs_selector();
    let mut all = vec![format!("target.profile == {}", text(profile.as_str()))];
    if needs_selector {
        all.push("(has(target.objectSelector) || has(target.namespaceSelector))".to_owned());
    }

    let object = selector("target.objectSelector", OBJECT_LABELS, needs_selector);
    all.push(format!("(!has(target.objectSelector) || {object})"));
    if namespaced {
        let protected = list(PROTECTED.into_iter().chain([own_namespace]));
        let names = names_namespace("target.namespaceSelector");
        let namespace = selector("target.namespaceSelector", NAMESPACE_LABELS, needs_selector);
        all.push(format!(
            "(has(target.namespaceSelector)\n      ? (!(request.namespace in {protected}) || {names})\n        && {namespace}\n      : !(request.namespace in {protected}))"
        ));
    }

    format!("({})", all.join("\n    && "))
}

/// As Kubernetes matches label selectors, but that an empty one matches nothing where the profile needs one, and an
/// invalid one never matches.
fn selector(selector: &str, labels: &str, needs_selector: bool) -> String {
    let by_label = format!("{selector}.?matchLabels.orValue({{}})");
    let by_expression = format!("{selector}.?matchExpressions.orValue([])");
    let not_empty = if needs_selector {
        format!("({by_label}.size() > 0 || {by_expression}.size() > 0) && ")
    } else {
        String::new()
    };

    format!(
        r#"({not_empty}{by_label}.all(key, key in {labels} && {labels}[key] == {selector}.matchLabels[key])
      && {by_expression}.all(e,
        e.operator == "In" ? has(e.values) && e.key in {labels} && {labels}[e.key] in e.values
        : e.operator == "NotIn" ? has(e.values) && !(e.key in {labels} && {labels}[e.key] in e.values)
        : e.operator == "Exists" ? e.key in {labels}
        : e.operator == "DoesNotExist" && !(e.key in {labels})))"#
    )
}

/// The selector asks for the object's namespace by its very name.
fn names_namespace(selector: &str) -> String {
    let label = text(NAMESPACE_NAME_LABEL);
    format!(
        r#"({selector}.?matchLabels[?{label}].orValue("") == request.namespace
        || {selector}.?matchExpressions.orValue([]).exists(e,
          e.key == {label} && e.operator == "In" && request.namespace in e.?values.orValue([])))"#
    )
}
