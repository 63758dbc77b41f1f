//! The command lines in a Pod or Pod template: back to the original by the undo annotation, then on to the phase's form.
//!
//! Going through the original makes every way between two phases the same two steps, and applying it twice the same as
//! once. The undo annotation stands on the Pod template, so it travels with the flags that it describes.

use outrigger_shared::{
    annotations,
    command_line::{CommandLine, Edit, List},
    component::{self, Certainty, Component, Finding, Form},
    migration::{Phase, Profile},
    phase_flags::{self, Circumstances, Refusal},
    version::KubernetesVersion,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Draft, Migration};
use crate::patch::{Builder, NotAnObject, Path};

/// One entry of the undo annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UndoEntry {
    container: String,
    #[serde(flatten)]
    edit: Edit,
}

/// Why the undo annotation cannot be written; without it the way back would be lost.
#[derive(Debug, thiserror::Error)]
enum UndoUnwritable {
    #[error(transparent)]
    Text(#[from] serde_json::Error),
    #[error(transparent)]
    Place(#[from] NotAnObject),
}

/// A container's new command line and the entries that undo it.
struct Rewritten {
    line: CommandLine,
    edits: Vec<Edit>,
    reasons: Vec<String>,
}

/// Whether a Pod (or template) runs, or seems to run, a component.
pub(super) fn is_concerned(pod: &Value) -> bool {
    !findings(pod).is_empty()
}

fn findings(pod: &Value) -> Vec<Finding<'_>> {
    pod.get("spec")
        .map_or_else(Vec::new, |spec| component::find(spec, pod.pointer("/metadata/labels")))
}

/// Brings the containers of a Pod, or of a Pod template at `root`, to the form of the migration's phase. `old` is the
/// template as it is stored.
pub(super) fn draft(migration: &Migration<'_>, root: &Path, pod: &Value, old: Option<&Value>) -> Draft {
    let mut draft = Draft::default();
    let entries = match undo_entries(pod) {
        Ok(entries) => entries,
        Err(error) => {
            draft.refuse(format!(
                "annotation {} cannot be read ({error}), so nothing is changed; restore or remove it",
                annotations::UNDO
            ));
            return draft;
        }
    };
    if migration.spec.leader_migration.is_some() {
        draft
            .warnings
            .push("spec.leaderMigration is not built yet; remove it".to_owned());
    }
    let findings = findings(pod);
    let mut builder = Builder::default();
    let mut kept = Vec::new();
    for finding in &findings {
        let own = |entry: &&UndoEntry| entry.container == finding.name;
        let edits: Vec<Edit> = entries.iter().filter(own).map(|entry| entry.edit.clone()).collect();
        let after = rewrite(migration, finding, &findings, &edits, old, &mut draft);
        let edits = after.as_ref().map_or(edits, |after| after.edits.clone());
        kept.extend(edits.into_iter().map(|edit| UndoEntry {
            container: finding.name.to_owned(),
            edit,
        }));
        if let Some(after) = after {
            write_lists(&mut builder, root, finding, &after.line);
            draft.reasons.extend(after.reasons);
        }
    }
    if let Err(error) = write_undo(&mut builder, root, pod, &entries, &kept) {
        draft.refuse(format!(
            "annotation {} cannot be written ({error}), so nothing is changed",
            annotations::UNDO
        ));
        return draft;
    }
    draft.patch = builder.finish();
    draft
}

/// The container's new command line; none when it stays as it is, and then the draft says why if it should not.
fn rewrite(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    all: &[Finding<'_>],
    edits: &[Edit],
    old: Option<&Value>,
    draft: &mut Draft,
) -> Option<Rewritten> {
    let phase = migration.spec.phase;
    if phase == Phase::InTree && edits.is_empty() {
        return None;
    }
    if finding.certainty == Certainty::Suspected {
        draft.refuse(format!(
            "container {:?} may be a {}, but only one of program, name, image and labels says so; it is not changed",
            finding.name, finding.component
        ));
        return None;
    }
    let result = CommandLine::of_container(finding.container)
        .map_err(Refusal::from)
        .and_then(|current| to_phase(migration, finding, all, current, edits, old, draft));
    result
        .map_err(|refusal| draft.refuse(format!("container {:?} is not changed: {refusal}", finding.name)))
        .ok()
}

fn to_phase(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    all: &[Finding<'_>],
    current: CommandLine,
    edits: &[Edit],
    old: Option<&Value>,
    draft: &mut Draft,
) -> Result<Rewritten, Refusal> {
    let mut line = current.clone();
    // When the owner has rewritten the line since, what stands there is the original.
    let restored = line.undo(edits);
    let row = row(migration, finding, &current, &line, old)?;
    let circumstances = Circumstances {
        phase: row,
        version: version(migration, finding),
        both_in_one_object: holds_both(all),
        downtime: migration.spec.downtime,
        own_configuration: migration.spec.leader_migration.is_some(),
    };
    let changes = phase_flags::changes(finding.component, &line, &circumstances)?;
    if let Some(shortcoming) = phase_flags::shortcoming(finding.component, &line, &circumstances)? {
        draft
            .warnings
            .push(format!("container {:?}: {shortcoming}", finding.name));
    }
    if row != migration.spec.phase && !migration.spec.downtime {
        draft.warnings.push(format!(
            "container {:?} gets the flags of {row}, as the migration is not Prepared yet; wait for that condition or set spec.downtime",
            finding.name
        ));
    }
    for change in &changes {
        change.apply(&mut line)?;
    }
    let reasons = if same_lists(&current, &line) {
        vec![format!("container {:?} has the form of {row}", finding.name)]
    } else {
        let restored = Some("original command line restored".to_owned()).filter(|_| restored && !edits.is_empty());
        let steps = restored.into_iter().chain(changes.iter().map(ToString::to_string));
        steps
            .map(|step| format!("container {:?}: {step}", finding.name))
            .collect()
    };
    let edits = line.edits().to_vec();
    Ok(Rewritten { line, edits, reasons })
}

/// A cloud-controller-manager has a version of its own, which the cluster's does not tell.
fn version(migration: &Migration<'_>, finding: &Finding<'_>) -> Option<KubernetesVersion> {
    let own = finding.version();
    if finding.component == Component::CloudControllerManager {
        return own;
    }
    own.or_else(|| migration.spec.version())
}

fn same_lists(one: &CommandLine, other: &CommandLine) -> bool {
    [List::Command, List::Args]
        .into_iter()
        .all(|list| one.list(list) == other.list(list))
}

fn row(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    current: &CommandLine,
    original: &CommandLine,
    old: Option<&Value>,
) -> Result<Phase, Refusal> {
    if finding.component != Component::KubeControllerManager {
        return Ok(migration.spec.phase);
    }
    let is_external = |form: &Form| matches!(form, Form::External { .. });
    let stored = old
        .and_then(|old| old.get("spec"))
        .and_then(component::controller_manager_form);
    let stays_external = is_external(&Form::of_command_line(current)) || stored.as_ref().is_some_and(is_external);
    let original = Form::of_command_line(original);
    let row = phase_flags::controller_manager_row(
        migration.spec.phase,
        &original,
        stays_external,
        migration.prepared,
        migration.spec.downtime,
    );
    let in_tree = matches!(original, Form::InTree { .. });
    match row {
        Phase::Prepare if in_tree && is_kubermatic(migration) && migration.spec.downtime => Ok(Phase::InTree),
        Phase::Prepare if in_tree && is_kubermatic(migration) => Err(Refusal::KubermaticNeedsDowntime),
        row => Ok(row),
    }
}

fn is_kubermatic(migration: &Migration<'_>) -> bool {
    let mut targets = migration.spec.targets.iter();
    targets.any(|target| target.profile == Profile::Kubermatic)
}

fn holds_both(findings: &[Finding<'_>]) -> bool {
    [Component::KubeControllerManager, Component::KubeApiserver]
        .iter()
        .all(|component| findings.iter().any(|finding| finding.component == *component))
}

fn write_lists(builder: &mut Builder, root: &Path, finding: &Finding<'_>, after: &CommandLine) {
    let Ok(before) = CommandLine::of_container(finding.container) else {
        return;
    };
    let container = root.child("spec").child("containers").index(finding.index);
    for list in [List::Command, List::Args] {
        builder.list(&container.child(list.as_str()), before.list(list), after.list(list));
    }
}

fn undo_entries(pod: &Value) -> Result<Vec<UndoEntry>, serde_json::Error> {
    let text = pod
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(annotations::UNDO));
    text.and_then(Value::as_str)
        .map_or_else(|| Ok(Vec::new()), serde_json::from_str)
}

fn write_undo(
    builder: &mut Builder,
    root: &Path,
    pod: &Value,
    before: &[UndoEntry],
    after: &[UndoEntry],
) -> Result<(), UndoUnwritable> {
    if before == after {
        return Ok(());
    }
    if !after.is_empty() {
        let text = serde_json::to_string(after)?;
        builder.set(root, pod, &["metadata", "annotations", annotations::UNDO], json!(text))?;
        return Ok(());
    }
    let annotations = root.child("metadata").child("annotations");
    let Some(all) = pod.pointer("/metadata/annotations").and_then(Value::as_object) else {
        return Ok(());
    };
    match all.get(annotations::UNDO) {
        Some(_) if all.len() == 1 => builder.remove(&annotations, json!(all)),
        Some(text) => builder.remove(&annotations.child(annotations::UNDO), text.clone()),
        None => {}
    }
    Ok(())
}
