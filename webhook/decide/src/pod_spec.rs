//! Command lines in a Pod or Pod template: restores the original by the undo annotation, then applies the form of the
//! phase.
//!
//! The way through the original makes the step between any two phases the same, and makes it idempotent. The undo
//! annotation is on the Pod template, so it is copied with the flags that it describes.

use std::collections::BTreeMap;

use outrigger_shared::{
    annotations,
    command_line::{CommandLine, Edit, List, Unreadable},
    component::{self, Certainty, Component, Finding, Form},
    leader_migration::{FILE, TooOld},
    migration::{Phase, Problem},
    phase_flags::{self, Circumstances, NodeIpam, OwnConfiguration, Refusal, flag},
    version::KubernetesVersion,
};
use serde_json::Value;

use super::{
    Draft, Migration,
    leader_migration_file::{self, FileRequest},
    node_names,
    pod_undo::{self, Undo},
    warning,
};
use crate::patch::{Builder, Path};

/// The new command line of a container and its undo entries.
struct Rewritten {
    line: CommandLine,
    edits: Vec<Edit>,
    file: FileRequest,
    reasons: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error(transparent)]
    Flags(#[from] Refusal),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Version(#[from] TooOld),
    #[error(transparent)]
    Name(#[from] Problem),
    #[error("{0}")]
    File(String),
    /// Leader migration would not guard all controllers; it needs a file, which the owner must provide.
    #[error("{0}")]
    ManagerNames(&'static str),
    /// The original does not start in the current version.
    #[error("{0}")]
    Ends(String),
}

/// Whether a Pod (or template) runs, or seems to run, a component.
pub(super) fn is_concerned(pod: &Value) -> bool {
    !findings(pod).is_empty()
}

fn findings(pod: &Value) -> Vec<Finding<'_>> {
    pod.get("spec")
        .map_or_else(Vec::new, |spec| component::find(spec, pod.pointer("/metadata/labels")))
}

/// Whether one of the Pods runs the kube-controller-manager, and one of them the kube-apiserver.
pub(super) fn hold_both(pods: &[&Value]) -> bool {
    let all: Vec<Finding<'_>> = pods.iter().flat_map(|pod| findings(pod)).collect();
    [Component::KubeControllerManager, Component::KubeApiserver]
        .iter()
        .all(|component| all.iter().any(|finding| finding.component == *component))
}

/// Changes the containers of a Pod, or of a Pod template at `root`, to the form of the phase. `old` is the stored
/// template.
pub(super) fn draft(migration: &Migration<'_>, root: &Path, pod: &Value, old: Option<&Value>) -> Draft {
    draft_beside(migration, root, pod, old, hold_both(&[pod]))
}

/// As [`draft`], where `both` states whether kube-controller-manager and kube-apiserver roll together.
pub(super) fn draft_beside(
    migration: &Migration<'_>,
    root: &Path,
    pod: &Value,
    old: Option<&Value>,
    both: bool,
) -> Draft {
    let before = match Undo::read(pod) {
        Ok(undo) => undo,
        Err(error) => return Draft::refused(warning::of_unreadable_undo(&error)),
    };

    let key = annotations::UNDO;
    let findings = findings(pod);
    let mut draft = Draft::default();
    let mut builder = Builder::default();
    let (mut after, mut requests) = (Undo::default(), BTreeMap::new());

    for finding in &findings {
        let edits = before.edits(finding.name);
        if migration.spec.phase == Phase::InTree && edits.is_empty() {
            draft.warnings.extend(fatal_in_tree(migration, finding));
            continue;
        }

        let context = ContainerContext {
            finding,
            both,
            pod,
            old,
        };
        let Some(rewritten) = rewrite(migration, &context, &edits, &mut draft) else {
            after.note(finding.name, edits);
            requests.insert(finding.index, FileRequest::AsItIs);
            continue;
        };

        write_lists(&mut builder, root, finding, &rewritten.line);
        after.note(finding.name, rewritten.edits);
        requests.insert(finding.index, rewritten.file);
        draft.reasons.extend(rewritten.reasons);
    }

    let file = leader_migration_file::change(&mut builder, root, pod, &before.made, &requests);
    after.made = file.made;
    draft.reasons.extend(file.reasons);
    if let Err(error) = pod_undo::write(&mut builder, root, pod, (&before, &after), file.annotation) {
        draft.refuse(format!(
            "annotation {key} cannot be written ({error}), so nothing is changed"
        ));
        return draft;
    }

    draft.patch = builder.finish();
    if !draft.patch.is_empty() && draft.reasons.is_empty() {
        let reason = format!("annotation {key} no longer lists containers that were removed");
        draft.reasons.push(reason);
    }

    draft
}

struct ContainerContext<'a> {
    finding: &'a Finding<'a>,
    /// The kube-controller-manager and the kube-apiserver roll together.
    both: bool,
    pod: &'a Value,
    old: Option<&'a Value>,
}

/// The new command line; none when the container stays, for a reason in the draft.
fn rewrite(
    migration: &Migration<'_>,
    context: &ContainerContext<'_>,
    edits: &[Edit],
    draft: &mut Draft,
) -> Option<Rewritten> {
    let finding = context.finding;
    if let Some(doubt) = doubt(finding) {
        draft.refuse(doubt);
        return None;
    }

    let result = CommandLine::of_container(finding.container)
        .map_err(Obstacle::from)
        .and_then(|current| to_phase(migration, context, current, edits, draft));
    let refuse = |obstacle: Obstacle| {
        draft.refuse(format!("container {:?} is not changed: {obstacle}", finding.name));
        if matches!(obstacle, Obstacle::ManagerNames(_)) {
            draft.reasons.push(leader_migration_file::for_manager(migration.spec));
        }

        let is_script = matches!(
            obstacle,
            Obstacle::Flags(Refusal::Script { .. } | Refusal::Hidden { .. })
        );
        if is_script && finding.component == Component::KubeControllerManager && migration.spec.phase == Phase::Prepare
        {
            let file = leader_migration_file::text_for_owner(migration.spec, version(migration, finding));
            draft.reasons.extend(file);
        }
    };

    result.map_err(refuse).ok()
}

/// Why it is uncertain that the container runs the component with these flags.
fn doubt(finding: &Finding<'_>) -> Option<String> {
    let Finding { name, component, .. } = finding;
    match finding.certainty {
        Certainty::Recognized => None,
        Certainty::Suspected => Some(format!(
            "container {name:?} may be a {component}, but only one of program, name, image and labels says so; it is not changed"
        )),
        Certainty::Wrapped => {
            let program = CommandLine::of_container(finding.container).and_then(|line| line.locate());
            let program = program.ok().and_then(|located| located.program).unwrap_or_default();
            let program: String = program.chars().take(40).collect();
            Some(format!(
                "container {name:?} is not changed: {program:?}, which starts the {component}, is not known; start the {component} directly, or change its flags by hand"
            ))
        }
    }
}

fn to_phase(
    migration: &Migration<'_>,
    context: &ContainerContext<'_>,
    current: CommandLine,
    edits: &[Edit],
    draft: &mut Draft,
) -> Result<Rewritten, Obstacle> {
    let finding = context.finding;
    let mut line = current.clone();
    // If the owner has rewritten the command line since, the current one is the original.
    let restored = line.undo(edits);
    let row = effective_phase(migration, finding, &current, &line, context.old);
    let circumstances = Circumstances {
        phase: row,
        version: version(migration, finding),
        both_in_one_object: context.both,
        downtime: migration.spec.downtime,
        own_configuration: OwnConfiguration::brought(migration.spec),
        node_ipam: NodeIpam::of(migration.spec, Some("*")),
        named_elsewhere: false,
    };
    if let Some(fatal) = fatal_undoing(finding.component, &current, &line, &circumstances)? {
        return Err(Obstacle::Ends(warning::of_undoing(&fatal)));
    }

    let changes = phase_flags::changes(finding.component, &line, &circumstances)?;
    if let Some(shortcoming) = phase_flags::shortcoming(finding.component, &line, &circumstances)? {
        return Err(Obstacle::ManagerNames(shortcoming));
    }

    let warnings = warnings(migration, finding, &line, &circumstances)?;
    draft.warnings.extend(warnings);

    let told = what_to_see_to(finding.component, &line, &circumstances)?;
    let told = told
        .into_iter()
        .map(|text| format!("container {:?}: {text}", finding.name));
    draft.warnings.extend(told);

    let nothing_to_add = match finding.component {
        Component::KubeControllerManager => phase_flags::nothing_to_add(&line, &circumstances)?,
        _ => None,
    };
    for change in &changes {
        change.apply(&mut line)?;
    }

    let file = file(migration, context, &line, &circumstances)?;
    if let FileRequest::Text(_) = file {
        let problems = migration.spec.controller_leaders_problems();
        draft.warnings.extend(problems.iter().map(ToString::to_string));
    }

    let reasons = if same_lists(&current, &line) {
        let why = nothing_to_add.map(|why| format!(": {why}")).unwrap_or_default();
        vec![format!("container {:?} has the form of {row}{why}", finding.name)]
    } else {
        let restored = Some("original command line restored".to_owned()).filter(|_| restored && !edits.is_empty());
        let steps = restored
            .into_iter()
            .chain(changes.iter().map(ToString::to_string))
            .chain(nothing_to_add.map(str::to_owned));
        steps
            .map(|step| format!("container {:?}: {step}", finding.name))
            .collect()
    };

    let edits = line.edits().to_vec();
    Ok(Rewritten {
        line,
        edits,
        file,
        reasons,
    })
}

/// Warnings of settings that the flags of a phase do not handle.
fn what_to_see_to(
    component: Component,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<String>, Unreadable> {
    let volumes = phase_flags::volumes_warning(component, line, circumstances)?;
    let name = phase_flags::is_named_by_host(component, line, circumstances)?.then_some(node_names::OF_KUBELET);
    let gates = phase_flags::gates_warning(line, circumstances)?;

    Ok(volumes
        .into_iter()
        .chain(name)
        .map(str::to_owned)
        .chain(gates)
        .collect())
}

/// The leader migration file that the new command line needs.
fn file(
    migration: &Migration<'_>,
    context: &ContainerContext<'_>,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<FileRequest, Obstacle> {
    let is_asked_for = context.finding.component == Component::KubeControllerManager
        && circumstances.phase == Phase::Prepare
        && matches!(Form::of_command_line(line), Form::InTree { leader_migration: true })
        && line.value(flag::LEADER_MIGRATION_CONFIG)?.as_deref() == Some(FILE);
    let (Some(config), Some(version), true) = (&migration.spec.leader_migration, circumstances.version, is_asked_for)
    else {
        return Ok(FileRequest::Nothing);
    };
    if let Some(problem) = migration.spec.leader_name_problem() {
        return Err(problem.into());
    }
    if let Some(obstacle) = leader_migration_file::obstacle(context.pod, context.finding.container) {
        return Err(Obstacle::File(obstacle));
    }

    Ok(FileRequest::Text(config.for_kube_controller_manager(version)?.yaml()))
}

fn same_lists(one: &CommandLine, other: &CommandLine) -> bool {
    [List::Command, List::Args]
        .into_iter()
        .all(|list| one.list(list) == other.list(list))
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

/// The phase of the migration, or Prepare while it is not Prepared. `old` is the stored Pod or template.
fn effective_phase(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    current: &CommandLine,
    original: &CommandLine,
    old: Option<&Value>,
) -> Phase {
    let Migration { spec, prepared, .. } = migration;
    let component = finding.component;
    let current = Form::of_command_line(current);
    let original = Form::of_command_line(original);
    let waits = match (component, &original) {
        // In Migrate it keeps leader migration, in Complete it loses it.
        (Component::CloudControllerManager, _) if spec.phase == Phase::Migrate => return spec.phase,
        // External also without a provider in its original.
        (Component::CloudControllerManager, _) | (Component::Kubelet, Form::NoProvider { .. }) => Form::InTree {
            leader_migration: false,
        },
        (_, form) => form.clone(),
    };

    let stored = old.and_then(|old| stored_form(old, component));
    let stays = has_left(component, &original, &current)
        || stored.is_some_and(|stored| has_left(component, &original, &stored));

    phase_flags::controller_manager_row(spec.phase, &waits, stays, *prepared, spec.downtime)
}

/// Whether the component is external already, so that missing evidence does not turn it back. An API server may have
/// lost its flag.
fn has_left(component: Component, original: &Form, now: &Form) -> bool {
    match (component, now) {
        (Component::CloudControllerManager, _) => false,
        (_, Form::External { .. }) => true,
        (Component::KubeApiserver, Form::NoProvider { .. }) => matches!(original, Form::InTree { .. }),
        _ => false,
    }
}

fn stored_form(old: &Value, component: Component) -> Option<Form> {
    let spec = old.get("spec")?;
    if component == Component::KubeControllerManager {
        return component::controller_manager_form(spec);
    }

    let findings = component::find(spec, old.pointer("/metadata/labels"));
    let finding = findings.iter().find(|finding| finding.component == component)?;
    let line = CommandLine::of_container(finding.container).ok()?;

    Some(Form::of_command_line(&line))
}

/// Warnings about flags before the change.
fn warnings(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    original: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<String>, Unreadable> {
    let Finding { component, name, .. } = *finding;
    let spec = migration.spec;
    let row = circumstances.phase;
    let mut warnings = Vec::new();

    if row < Phase::Migrate {
        warnings.extend(phase_flags::fatal(component, original, circumstances.version)?);
    }

    if row == Phase::Prepare && !spec.downtime {
        let expected = spec.kube_controller_manager_lease.as_str();
        warnings.extend(phase_flags::other_lease(component, original, expected)?);
    }

    let mut warnings: Vec<String> = warnings
        .into_iter()
        .map(|warning| format!("container {name:?}: {warning}"))
        .collect();
    if row != spec.phase && !spec.downtime {
        warnings.push(format!(
            "container {name:?} gets the flags of {row}, as the migration is not Prepared yet; wait for that condition or set spec.downtime"
        ));
    }

    Ok(warnings)
}

/// Why the original would not start any more: its version has no in-tree provider.
fn fatal_undoing(
    component: Component,
    current: &CommandLine,
    original: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Option<String>, Unreadable> {
    if circumstances.phase >= Phase::Migrate {
        return Ok(None);
    }
    let fatal = phase_flags::fatal(component, original, circumstances.version)?;
    // If the current flags fail for the same reason, the owner wrote them.
    let is_new = fatal.is_some() && phase_flags::fatal(component, current, circumstances.version)? != fatal;
    Ok(fatal.filter(|_| is_new))
}

/// InTree changes nothing, but warns of flags with which the version does not start.
fn fatal_in_tree(migration: &Migration<'_>, finding: &Finding<'_>) -> Option<String> {
    if finding.certainty != Certainty::Recognized {
        return None;
    }

    let line = CommandLine::of_container(finding.container).ok()?;
    let warning = phase_flags::fatal(finding.component, &line, version(migration, finding));
    // A command line that cannot be read is reported from Prepare on.
    let warning = warning.ok().flatten()?;

    Some(format!("container {:?}: {warning}", finding.name))
}

/// A cloud-controller-manager has its own version, independent of the cluster. An image tag that is no version of
/// Kubernetes is ignored.
fn version(migration: &Migration<'_>, finding: &Finding<'_>) -> Option<KubernetesVersion> {
    let own = finding.version();
    let cluster = migration.spec.version();
    if finding.component == Component::CloudControllerManager {
        return own;
    }
    own.filter(|own| cluster.is_none_or(|cluster| own.fits_cluster(cluster)))
        .or(cluster)
}
