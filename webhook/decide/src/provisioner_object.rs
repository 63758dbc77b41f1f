//! Objects of provisioners that describe control planes and machines: restores the original by the undo annotation,
//! then applies the form of the phase.
//!
//! As with Pod templates, the way through the original makes the step between any two phases the same, and makes it
//! idempotent. The file of a kind defines only what the phases mean for its fields.

use outrigger_shared::{
    annotations,
    command_line::{CommandLine, Unreadable},
    component::{Component, Form},
    migration::Phase,
    phase_flags::{self, Change, Circumstances, NodeIpam, OwnConfiguration, Refusal, flag},
    version::KubernetesVersion,
    work::WorkExceeded,
    yaml_text,
};
use serde_json::Value;

use super::{
    Draft, Input, Migration, annotation,
    arguments::{ListFormat, Unfit},
    document::{Document, Entry},
    fields, leader_migration_file, warning,
};
use crate::patch::{Builder, NotAnObject, Path};

/// Why an object is not changed, although the phase requires it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Obstacle {
    #[error("{component} is not changed: {reason}")]
    Flags { component: Component, reason: Refusal },
    /// Leader migration would not guard all controllers; it needs a file, which the owner must provide.
    #[error("{0}")]
    ManagerNames(&'static str),
    #[error(transparent)]
    Arguments(#[from] Unfit),
    #[error(transparent)]
    Place(#[from] NotAnObject),
    #[error(transparent)]
    Text(#[from] yaml_text::Refusal),
    #[error(transparent)]
    Work(#[from] WorkExceeded),
    /// Other reasons, with the remedy.
    #[error("{0}")]
    Other(String),
}

impl Obstacle {
    /// These objects have a version of their own; Pods have the tag of an image.
    pub fn of_flags(component: Component, reason: Refusal) -> Self {
        match reason {
            Refusal::VersionUnknown => Self::Other(format!(
                "{component} is not changed: the object does not state its Kubernetes version; set spec.kubernetesVersion of the migration"
            )),
            reason => Self::Flags { component, reason },
        }
    }
}

/// Input for the form of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    pub migration: &'a Migration<'a>,
    /// The phase whose form applies: the phase of the migration, or Prepare while the migration is not Prepared.
    pub effective_phase: Phase,
    /// The object's Kubernetes version, else that of the migration.
    pub version: Option<KubernetesVersion>,
    /// One object configures both components, so the API server changes in Complete.
    pub both_in_one_object: bool,
    /// Default of `--controllers`; none if not known.
    pub controllers: Option<&'static str>,
    /// Another field may name the provider of a component whose list names none.
    pub named_elsewhere: bool,
}

/// The default of `--controllers` of kubeadm and Kamaji. A value in the object replaces it.
/// <https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kubeadm/app/phases/controlplane/manifests.go>
pub(super) const KUBEADM_CONTROLLERS: &str = "*,bootstrapsigner,tokencleaner";

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// JSON Pointers: an update is changed only when one of these parts changes. `spec` for most kinds.
    pub triggers: &'static [&'static str],
    /// Names of fields below the triggers that do not count as a change: autoscalers write `replicas`.
    pub besides: &'static [&'static str],
    /// JSON Pointers to the object's Kubernetes version; the first existing one counts.
    pub version: &'static [&'static str],
    /// The object configures kube-controller-manager and kube-apiserver.
    pub both_in_one_object: bool,
    /// Whether an object is external already; then missing evidence does not turn it back.
    pub is_external: fn(&Value) -> bool,
    /// Changes the original to the form of the situation.
    pub form: fn(&mut Document, &Situation<'_>) -> Result<(), Obstacle>,
    /// Warnings for the client, changed or not.
    pub warnings: fn(&Value, &Situation<'_>) -> Vec<String>,
}

pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>, rules: &Rules) -> Draft {
    if !input.may_act(rules.triggers, rules.besides) {
        return Draft::unchanged(input.why_not(rules.triggers));
    }

    let entries = match undo_entries(input.object) {
        Ok(entries) => entries,
        Err(error) => return Draft::refused(warning::of_unreadable_undo(&error)),
    };
    let situation = situation(input, migration, rules);
    if let Some(fatal) = fatal_undoing(input.object, &entries, rules, &situation) {
        return Draft::refused(format!("nothing is changed: {}", warning::of_undoing(&fatal)));
    }

    let mut draft = Draft::default();
    if migration.spec.phase == Phase::InTree {
        draft
            .warnings
            .extend(fatal_flags(input.object, &entries, rules, &situation));
        if entries.is_empty() {
            draft.reasons.push("phase InTree leaves objects as they are".to_owned());
            return draft;
        }
    }

    draft.warnings.extend((rules.warnings)(input.object, &situation));
    if situation.effective_phase != migration.spec.phase {
        draft.warnings.push(format!(
            "the object gets the form of {}, as the migration is not Prepared yet; wait for that condition or set spec.downtime",
            situation.effective_phase
        ));
    }

    match formed(input.object, &entries, rules, &situation) {
        Ok(formed) => {
            draft.patch = formed.patch;
            draft.reasons.extend(formed.reasons);
            draft.warnings.extend(formed.warnings);
        }
        Err(obstacle) => {
            draft.refuse(format!("nothing is changed: {obstacle}"));
            draft.warnings.extend(of_manager(input, &obstacle, &situation));
            draft.reasons.extend(file_to_bring(&obstacle, &situation));
        }
    }

    draft
}

/// A kubelet that cannot follow keeps the whole object back, also its kube-controller-manager.
fn of_manager(input: &Input<'_>, obstacle: &Obstacle, situation: &Situation<'_>) -> Option<String> {
    const STAYS: &str = "kube-controller-manager stays in the form of Prepare too, as it is in the same object; correct the \
        kubelet first";

    let is_kubelet = matches!(
        obstacle,
        Obstacle::Flags {
            component: Component::Kubelet,
            ..
        }
    );
    let has_manager = input.kind.contains("ControlPlane") || input.kind == "Cluster";
    let stays = is_kubelet && has_manager && situation.effective_phase >= Phase::Migrate;
    stays.then(|| STAYS.to_owned())
}

/// The leader migration file that the owner must provide.
fn file_to_bring(obstacle: &Obstacle, situation: &Situation<'_>) -> Option<String> {
    let spec = situation.migration.spec;
    match obstacle {
        Obstacle::ManagerNames(_) => Some(leader_migration_file::for_manager(spec)),
        Obstacle::Flags {
            reason: Refusal::OwnConfiguration,
            ..
        } => leader_migration_file::text_for_owner(spec, situation.version),
        _ => None,
    }
}

/// Keeps an immutable part that got the form of a phase at its creation: an owner that applies its manifest again would
/// otherwise be rejected. None if the owner changes that part itself, or nothing was changed at the creation.
pub(super) fn keep_immutable(input: &Input<'_>, part: &Path) -> Option<Draft> {
    let old = input.old_object.filter(|_| !input.is_being_deleted())?;
    let noted = undo_entries(old).ok().filter(|entries| !entries.is_empty())?;
    let own = undo_entries(input.object).ok()?;
    let entries = if own.is_empty() { &noted } else { &own };
    let at = part.pointer();
    let stored = old.pointer(at.as_str())?;
    let was = Document::restored(old, &noted);
    let is = Document::restored(input.object, entries);
    if was.value.pointer(at.as_str()) != is.value.pointer(at.as_str()) {
        return None;
    }

    let mut value = input.object.clone();
    fields::write(&mut value, part, stored.clone()).ok()?;
    write_undo(&mut value, &noted).ok()?;

    let mut builder = Builder::default();
    builder.value(&Path::default(), input.object, &value);

    let patch = builder.finish();
    let why = if patch.is_empty() {
        "it is as it is stored"
    } else {
        "as it is stored, since this part cannot be changed after the creation"
    };

    Some(Draft {
        patch,
        reasons: vec![format!("{at}: {why}")],
        ..Draft::default()
    })
}

/// Why the original would not start any more: the version has no in-tree provider.
fn fatal_undoing(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Option<String> {
    if situation.effective_phase >= Phase::Migrate || entries.is_empty() {
        return None;
    }
    let now = fatal_flags(object, &[], rules, situation);
    let restored = fatal_flags(object, entries, rules, situation);
    restored.into_iter().find(|fatal| !now.contains(fatal))
}

/// Flags with which a component does not start in the version of the object. The form of Prepare reads every list; its
/// changes and refusals are ignored here.
fn fatal_flags(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Vec<String> {
    let mut document = Document::restored(object, entries);
    let situation = Situation {
        effective_phase: Phase::Prepare,
        ..*situation
    };
    let _refused_or_not = (rules.form)(&mut document, &situation);
    document.fatal
}

fn formed(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Result<Draft, Obstacle> {
    let mut document = Document::restored(object, entries);
    let stays_external =
        situation.effective_phase < Phase::Migrate && !entries.is_empty() && (rules.is_external)(&document.value);
    (rules.form)(&mut document, situation)?;

    let Document {
        mut value,
        entries,
        mut reasons,
        mut warnings,
        notes,
        fatal,
    } = document;
    if situation.effective_phase == Phase::Prepare {
        warnings.extend(fatal);
    }

    if stays_external {
        warnings.push(format!(
            "it is external even after the fields of annotation {} are restored; if it was in-tree before, somebody moved these fields: restore them by hand",
            annotations::UNDO
        ));
    }

    // Kubelets of several machines in one object have equal reasons.
    reasons.dedup();
    write_undo(&mut value, &entries)?;

    let mut builder = Builder::default();
    builder.value(&Path::default(), object, &value);

    let patch = builder.finish();
    if patch.is_empty() {
        reasons = vec![format!("the object has the form of {}", situation.effective_phase)];
    } else if reasons.is_empty() {
        reasons = vec!["original fields restored".to_owned()];
    }

    reasons.extend(notes);

    Ok(Draft {
        patch,
        warnings,
        reasons,
        refused: false,
    })
}

/// An object waits for the evidence in the form of Prepare, unless it is external already.
fn situation<'a>(input: &Input<'_>, migration: &'a Migration<'a>, rules: &Rules) -> Situation<'a> {
    let spec = migration.spec;
    let stays_external = (rules.is_external)(input.object) || input.old_object.is_some_and(rules.is_external);
    // The original is in-tree or names no provider; both wait.
    let original = Form::InTree {
        leader_migration: false,
    };
    let row =
        phase_flags::controller_manager_row(spec.phase, &original, stays_external, migration.prepared, spec.downtime);
    let own = rules
        .version
        .iter()
        .find_map(|pointer| input.object.pointer(pointer)?.as_str()?.parse().ok());

    Situation {
        migration,
        effective_phase: row,
        version: own.or_else(|| spec.version()),
        both_in_one_object: rules.both_in_one_object,
        controllers: None,
        named_elsewhere: false,
    }
}

/// Applies the flags of the situation to the argument list of a component.
///
/// `provider` is that of another field, which the component has unless the list names one. That field follows the phase,
/// so the list gets no `cloud-provider`.
pub(super) fn arguments(
    document: &mut Document,
    path: &Path,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) -> Result<(), Obstacle> {
    write_arguments(document, path, shape, component, situation, (provider, true))
}

/// The same, where the other field stays, so the list overrides it.
pub(super) fn overriding_arguments(
    document: &mut Document,
    path: &Path,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) -> Result<(), Obstacle> {
    write_arguments(document, path, shape, component, situation, (provider, false))
}

fn write_arguments(
    document: &mut Document,
    path: &Path,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
    (provider, follows): (Option<&str>, bool),
) -> Result<(), Obstacle> {
    let shape = shape.of(document.get(path));
    let mut line = document.arguments(path, shape)?;
    warn_of_flags(
        document,
        component,
        &with_provider(&line, component, provider)?,
        situation,
    )?;
    note_warnings(document, &line, component, situation, provider);

    let reasons = changed(&mut line, component, situation, (provider, follows))?;
    document.set_arguments(path, shape, &line, reasons)?;

    Ok(())
}

/// Adds warnings about the flags that a component has before the change.
pub(super) fn note_warnings(
    document: &mut Document,
    line: &CommandLine,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) {
    // A list that cannot be read is reported as an obstacle.
    if let Ok(Some(fatal)) = phase_flags::fatal(component, line, situation.version) {
        document.note_fatal(fatal);
    }

    let spec = situation.migration.spec;
    if situation.effective_phase == Phase::Prepare && !spec.downtime {
        let expected = spec.kube_controller_manager_lease.as_str();
        if let Ok(Some(other)) = phase_flags::other_lease(component, line, expected) {
            document.warn(other);
        }
    }

    if component == Component::KubeControllerManager
        && provider.is_none()
        && let Ok(Some(why)) = phase_flags::nothing_to_add(line, &situation.circumstances())
    {
        document.note(format!("{component}: {why}"));
    }
}

/// Applies the flags of the situation to a command line; returns the reasons. `provider` is the value of another field.
pub(super) fn flags(
    line: &mut CommandLine,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) -> Result<Vec<String>, Obstacle> {
    changed(line, component, situation, (provider, true))
}

/// `follows`: the other field follows the phase.
fn changed(
    line: &mut CommandLine,
    component: Component,
    situation: &Situation<'_>,
    (provider, follows): (Option<&str>, bool),
) -> Result<Vec<String>, Obstacle> {
    let because = |reason: Refusal| Obstacle::of_flags(component, reason);
    let unreadable = |reason: Unreadable| because(reason.into());
    let whole = with_provider(line, component, provider)?;
    let has_own = line.value(flag::CLOUD_PROVIDER).map_err(unreadable)?.is_some();
    let provider = provider.filter(|_| !has_own && follows);
    let mut changes = phase_flags::changes(component, &whole, &situation.circumstances()).map_err(because)?;
    changes.retain(|change| provider.is_none() || !matches!(change, Change::Set(flag::CLOUD_PROVIDER, ..)));
    for change in &changes {
        change.apply(line).map_err(unreadable)?;
    }

    Ok(changes.iter().map(|change| format!("{component}: {change}")).collect())
}

/// The list, preceded by the provider of another field, unless the list names one.
pub(super) fn with_provider(
    line: &CommandLine,
    component: Component,
    provider: Option<&str>,
) -> Result<CommandLine, Obstacle> {
    let unreadable = |reason: Unreadable| Obstacle::of_flags(component, reason.into());
    let mut whole = line.clone();
    let has_own = line.value(flag::CLOUD_PROVIDER).map_err(unreadable)?.is_some();
    if let Some(provider) = provider.filter(|_| !has_own) {
        whole.set(flag::CLOUD_PROVIDER, provider).map_err(unreadable)?;
    }
    Ok(whole)
}

/// Warns of settings that the flags of a phase do not handle: EBS volumes and feature gates. `whole` is the complete
/// command line.
pub(super) fn warn_of_flags(
    document: &mut Document,
    component: Component,
    whole: &CommandLine,
    situation: &Situation<'_>,
) -> Result<(), Obstacle> {
    let warning = phase_flags::volumes_warning(component, whole, &situation.circumstances());
    let warning = warning.map_err(|reason| Obstacle::of_flags(component, reason.into()))?;
    if let Some(warning) = warning {
        document.warn(warning.to_owned());
    }

    // Below 1.27 these gates concern EBS volumes, which other warnings cover.
    let circumstances = situation.circumstances();
    if circumstances.version.is_some_and(|version| version.minor >= 27)
        && let Some(warning) = phase_flags::gates_warning(whole, &circumstances)
            .map_err(|reason| Obstacle::of_flags(component, reason.into()))?
    {
        document.warn(format!("{component}: {warning}"));
    }

    Ok(())
}

impl Situation<'_> {
    pub fn circumstances(&self) -> Circumstances {
        Circumstances {
            phase: self.effective_phase,
            version: self.version,
            both_in_one_object: self.both_in_one_object,
            downtime: self.migration.spec.downtime,
            own_configuration: OwnConfiguration::by_hand(self.migration.spec),
            node_ipam: NodeIpam::of(self.migration.spec, self.controllers),
            named_elsewhere: self.named_elsewhere,
        }
    }
}

pub(super) fn is_external(object: &Value, path: &Path, shape: ListFormat) -> bool {
    let found = object.pointer(path.pointer().as_str());
    let line = shape.of(found).read(found.filter(|value| !value.is_null()), path);
    line.is_ok_and(|line| matches!(Form::of_command_line(&line), Form::External { .. }))
}

fn undo_entries(object: &Value) -> Result<Vec<Entry>, serde_json::Error> {
    let text = annotation(object, annotations::UNDO).and_then(Value::as_str);
    text.map_or_else(|| Ok(Vec::new()), serde_json::from_str)
}

fn write_undo(value: &mut Value, entries: &[Entry]) -> Result<(), Obstacle> {
    let text = (!entries.is_empty())
        .then(|| serde_json::to_string(entries))
        .transpose();
    let text = text.map_err(|error| Obstacle::Other(error.to_string()))?;
    Ok(fields::set_annotation(value, annotations::UNDO, text.map(Value::from))?)
}
