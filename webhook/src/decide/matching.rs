//! Which migration does an object belong to.

use outrigger_shared::migration::{Candidate, Labels, Profile, Selected};
use serde_json::Value;

use super::{Input, Migration};

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
        if verdicts.contains(&Selected::Yes) {
            found.push(migration);
        }
        unknown |= verdicts.contains(&Selected::Unknown);
    }
    match (&found[..], input.namespace) {
        // Whoever is unknown might be the second one.
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

/// A named path is the cluster of one migration. On the unnamed one, the Nodes are those of the API server that holds
/// the migrations, so a cluster whose control plane is hosted there has no Node among them. A target in kube-system alone is
/// about the cluster's own workloads: no hosted control plane is there.
fn may_ask(input: &Input<'_>, migration: &Migration<'_>) -> bool {
    match input.path_migration {
        Some(name) => migration.name == name,
        None if input.kind == "Node" && input.group.is_empty() => !migration
            .spec
            .targets
            .iter()
            .any(outrigger_shared::migration::Target::hosts_a_control_plane),
        None => true,
    }
}

fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
