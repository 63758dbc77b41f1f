//! AWS tags that identify the resources of a cluster: adds the cluster's tag where no other controller does, and finds
//! tags that must not be present.
//!
//! | what | file |
//! |---|---|
//! | the kinds with tags, and whether the cluster's tag may be added | [`tag_rows`], its types in `row.rs`, and the rows of `machines`, `cluster_api`, `ack`, `crossplane`, `others` |
//! | reading and writing the formats | `format.rs` |
//! | adding the cluster's tag | `add.rs` |
//! | the findings of a review: keys that must not be forged, and what AWS does not accept | `findings.rs` |
//! | the EBS driver, which takes the cluster as an argument | `ebs.rs` |
//!
//! An added tag stays in every phase. The in-tree provider uses the same tag, so it belongs to the original as well;
//! removing it from a template would replace every machine again, and both managers would ignore an instance without
//! it. The argument of the EBS driver is restored in InTree.

use outrigger_shared::migration::Phase;
use serde_json::Value;

use super::{Draft, Input, Kind, Migration, Operation, annotation, kubermatic, machine_scripts};

mod ack;
mod add;
mod cluster_api;
mod crossplane;
mod ebs;
mod findings;
mod format;
mod machines;
mod others;
mod row;

pub(crate) use self::ebs::DRIVER as EBS_DRIVER;
pub(crate) use self::others::SERVICE_TAGS;
pub(super) use self::{ebs::KINDS as DRIVERS, findings::new_findings};
pub use self::{
    findings::{Finding, Problem, forged},
    format::TagFormat,
    row::{Add, FieldIs, Policy, Reserver, Role, TagPath, TagRow, When},
};

const FAMILIES: [&[TagRow]; 5] = [
    machines::ROWS,
    cluster_api::ROWS,
    ack::ROWS,
    crossplane::ROWS,
    others::ROWS,
];

/// **The table of the kinds with AWS tags, their formats, and whether the cluster's tag may be added.**
pub fn tag_rows() -> impl Iterator<Item = &'static TagRow> {
    FAMILIES.iter().copied().flatten()
}

/// The rows of the table of kinds.
pub(super) fn kinds() -> Vec<Kind> {
    tag_rows().map(kind).collect()
}

fn kind(row: &TagRow) -> Kind {
    Kind {
        group: row.group,
        versions: row.versions,
        kind: row.kind,
        plural: row.plural,
        namespaced: row.namespaced,
        on_update: true,
        profiles: row.profiles,
        is_concerned: |input| row_of(input).is_some(),
        draft,
    }
}

/// Whether the kind is one of tags that never changes an existing object.
pub fn only_warns_on_update(kind: &Kind) -> bool {
    let row = tag_rows().find(|row| row.group == kind.group && row.kind == kind.kind && row.profiles == kind.profiles);
    row.is_some_and(|row| !row.adds_on_update())
}

/// The row of the object; none for objects of another cloud, or without tags.
pub(super) fn row_of(input: &Input<'_>) -> Option<&'static TagRow> {
    tag_rows()
        .find(|row| row.group == input.group && row.kind == input.kind)
        .filter(|row| row.is_about(input.object) || input.old_object.is_some_and(|old| row.is_about(old)))
}

impl TagRow {
    /// Whether the object is about AWS, and has tags or could get one.
    fn is_about(&'static self, object: &Value) -> bool {
        let on_aws = self.on_aws.is_none_or(|field| {
            let found = object.pointer(field.pointer).and_then(Value::as_str);
            found.is_some_and(|found| field.values.contains(&found))
        });
        let says_more = || is_in_tree_class(object) || machine_scripts::user_data(object, Phase::Prepare).is_some();
        on_aws && (matches!(self.policy, Policy::Add(_)) || !findings::places(self, object).is_empty() || says_more())
    }
}

fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let mut draft = Draft::default();
    let Some(row) = row_of(input) else { return draft };
    let reported = add::draft(input, migration, row, &mut draft);
    let findings = new_findings(input, migration, row).into_iter();
    for finding in findings.filter(|finding| reported.as_deref() != Some(finding.key.as_str())) {
        let text = finding.to_string();
        draft.reasons.push(text.clone());
        draft.warnings.push(text);
    }

    draft.warnings.extend(beside_tags(input, migration));
    if (row.group, row.kind) == MACHINE && kubermatic::is_marked_anew(input) {
        draft.warnings.extend(kubermatic::completion(input, migration));
    }

    draft
}

/// Warnings about such an object besides its tags.
fn beside_tags(input: &Input<'_>, migration: &Migration<'_>) -> Vec<String> {
    const IN_TREE: &str = "install the EBS CSI driver before Migrate: without the in-tree provider, volumes of kubernetes.io/aws-ebs \
        are created and mounted by CSI migration only";

    let phase = migration.spec.phase;
    let is_new = input.operation == Operation::Create || input.asks_for_phase() || input.changes("/spec", &[]);
    if phase == Phase::InTree || !is_new || input.is_being_deleted() {
        return Vec::new();
    }

    let class = is_in_tree_class(input.object).then(|| IN_TREE.to_owned());
    class
        .into_iter()
        .chain(machine_scripts::user_data(input.object, phase))
        .collect()
}

fn is_in_tree_class(object: &Value) -> bool {
    object
        .get("provisioner")
        .is_some_and(|name| name == "kubernetes.io/aws-ebs")
}

/// A Machine can also carry Kubermatic's mark of completion, and only the first matching row is used.
const MACHINE: (&str, &str) = ("cluster.k8s.io", "Machine");
