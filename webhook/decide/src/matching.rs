//! Finds the migration that selects an object.

use outrigger_shared::migration::{Candidate, Labels, Profile, Selected, Target};
use serde_json::Value;

use super::{Input, Migration};

#[derive(Debug)]
pub(super) enum Match<'a> {
    None,
    One(&'a Migration<'a>),
    /// More than one selects it, so none applies.
    Several(Vec<&'a str>),
    /// A target may select it, but the labels of this namespace are not known.
    NamespaceUnknown(&'a str),
}

/// Finds the migration that has a target of one of the profiles for the object.
pub(super) fn find<'a>(input: &Input<'a>, profiles: &[Profile]) -> Match<'a> {
    let labels = labels_of(input.object);
    let candidate = candidate(input, &labels);
    let mut unknown = false;
    let mut found: Vec<&'a Migration<'a>> = Vec::new();

    for migration in input.migrations.iter().filter(|migration| may_ask(input, migration)) {
        let targets = migration
            .spec
            .targets
            .iter()
            .filter(|target| profiles.contains(&target.profile));
        let verdicts: Vec<Selected> = targets.map(|target| target.selects(&candidate)).collect();
        if verdicts.contains(&Selected::Yes) || is_node_of_tenant(input, migration) {
            found.push(migration);
        }

        unknown |= verdicts.contains(&Selected::Unknown);
    }

    match (&found[..], input.namespace) {
        // An unknown one might be a second match.
        (_, Some(namespace)) if unknown => Match::NamespaceUnknown(namespace),
        ([], _) => Match::None,
        ([migration], _) => Match::One(migration),
        (several, _) => Match::Several(several.iter().map(|migration| migration.name).collect()),
    }
}

/// Whether a target of the profile selects the object.
pub(super) fn selects(input: &Input<'_>, migration: &Migration<'_>, profile: Profile) -> bool {
    let labels = labels_of(input.object);
    let candidate = candidate(input, &labels);
    let targets = migration.spec.targets.iter();
    targets
        .filter(|target| target.profile == profile)
        .any(|target| target.selects(&candidate) == Selected::Yes)
}

fn candidate<'a>(input: &Input<'a>, labels: &'a Labels) -> Candidate<'a> {
    Candidate {
        namespace: input.namespace,
        namespace_labels: input.namespace_labels,
        labels,
        own_namespace: input.own_namespace,
    }
}

/// A named path is the cluster of one migration. On the path without a name, Nodes are those of the management cluster,
/// so a migration with a hosted control plane does not apply to them. A target in kube-system alone selects workloads
/// of the cluster itself, not a hosted control plane.
fn may_ask(input: &Input<'_>, migration: &Migration<'_>) -> bool {
    match input.path_migration {
        Some(name) => migration.name == name,
        None if is_node(input) => !migration.spec.targets.iter().any(Target::hosts_a_control_plane),
        None => true,
    }
}

/// A tenant's API server asks on the path of its migration. Every Node there is the tenant's, unless targets of profile Nodes
/// choose among them.
fn is_node_of_tenant(input: &Input<'_>, migration: &Migration<'_>) -> bool {
    let targets = &migration.spec.targets;
    let is_tenant = targets.iter().any(Target::hosts_a_control_plane);
    let chooses = targets.iter().any(|target| target.profile == Profile::Nodes);
    is_node(input) && input.path_migration.is_some() && is_tenant && !chooses
}

fn is_node(input: &Input<'_>) -> bool {
    input.kind == "Node" && input.group.is_empty()
}

fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
