//! The durable objects of provisioners, from which control planes and machines are made: back to the original by the undo
//! annotation, then on to the form of the phase.
//!
//! As with Pod templates, going through the original makes every way between two phases the same two steps, and
//! applying it twice the same as once. A kind's file says only what the phases mean for its fields.

use outrigger_shared::{
    annotations,
    command_line::{CommandLine, Unreadable},
    component::{Component, Form},
    migration::Phase,
    phase_flags::{self, Change, Circumstances, NodeIpam, OwnConfiguration, Refusal, flag},
    version::KubernetesVersion,
    yaml_text,
};
use serde_json::{Value, json};

use super::{
    Draft, Input, Migration, annotation,
    arguments::{ListFormat, Unfit},
    document::{Document, Entry},
    fields, leader_migration_file, warning,
};
use crate::patch::{Builder, NotAnObject, Path};

/// Why an object stays as it is, though the phase wants more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Obstacle {
    /// A component's flags.
    #[error("{component} is not changed: {reason}")]
    Flags { component: Component, reason: Refusal },
    /// Leader migration would guard too little, and the file that it needs is its owner's to bring.
    #[error("{0}")]
    ManagerNames(&'static str),
    /// A field that holds no argument list.
    #[error(transparent)]
    Arguments(#[from] Unfit),
    /// A field whose parent is no object.
    #[error(transparent)]
    Place(#[from] NotAnObject),
    /// A YAML text inside the object.
    #[error(transparent)]
    Text(#[from] yaml_text::Refusal),
    /// Anything else, in plain words, with what to do.
    #[error("{0}")]
    Other(String),
}

impl Obstacle {
    /// These objects have a version of their own, where Pods have an image's tag.
    pub fn of_flags(component: Component, reason: Refusal) -> Self {
        match reason {
            Refusal::VersionUnknown => Self::Other(format!(
                "{component} is not changed: the object does not tell its Kubernetes version; set spec.kubernetesVersion of the migration"
            )),
            reason => Self::Flags { component, reason },
        }
    }
}

/// What a kind's form is made by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    /// The migration that the object belongs to.
    pub migration: &'a Migration<'a>,
    /// The row of the table of phases that applies: the migration's phase, or Prepare while the evidence is missing.
    pub effective_phase: Phase,
    /// The object's own Kubernetes version, else the migration's.
    pub version: Option<KubernetesVersion>,
    /// One object carries both components, so the API server moves in Complete.
    pub both_in_one_object: bool,
    /// What `--controllers` is where the object does not write it; none if that is not known.
    pub controllers: Option<&'static str>,
    /// Another field may name the provider of a component whose list names none.
    pub named_elsewhere: bool,
}

/// What kubeadm and Kamaji write for `--controllers`. A value of the object's own replaces it.
/// <https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kubeadm/app/phases/controlplane/manifests.go>
pub(super) const KUBEADM_CONTROLLERS: &str = "*,bootstrapsigner,tokencleaner";

/// What the shared part must know of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Where the part of the object is that the rules are about, as JSON Pointers: an update acts only when one of them
    /// changes. `spec` of most kinds.
    pub triggers: &'static [&'static str],
    /// Fields below the triggers whose change is no reason to act, by name: `replicas` is written by autoscalers.
    pub besides: &'static [&'static str],
    /// The object's own Kubernetes version, as JSON Pointers; the first one that is there counts.
    pub version: &'static [&'static str],
    /// The object carries kube-controller-manager and kube-apiserver.
    pub both_in_one_object: bool,
    /// Whether an object has its external form already; then a lack of evidence does not turn it back.
    pub is_external: fn(&Value) -> bool,
    /// Brings the original to the form of the situation.
    pub form: fn(&mut Document, &Situation<'_>) -> Result<(), Obstacle>,
    /// What to tell whoever writes the object, whatever becomes of it.
    pub warnings: fn(&Value, &Situation<'_>) -> Vec<String>,
}

/// No warnings.
pub(super) fn no_warnings(_: &Value, _: &Situation<'_>) -> Vec<String> {
    Vec::new()
}

/// What becomes of the object.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>, rules: &Rules) -> Draft {
    let mut draft = Draft::default();
    if !input.may_act(rules.triggers, rules.besides) {
        draft.reasons.push(input.why_not(rules.triggers));
        return draft;
    }
    let entries = match undo_entries(input.object) {
        Ok(entries) => entries,
        Err(error) => {
            let key = annotations::UNDO;
            draft.refuse(format!(
                "annotation {key} cannot be read ({error}), so nothing is changed; restore or remove it"
            ));
            return draft;
        }
    };
    let situation = situation(input, migration, rules);
    if let Some(fatal) = fatal_undoing(input.object, &entries, rules, &situation) {
        draft.refuse(format!("nothing is changed: {}", warning::of_undoing(&fatal)));
        return draft;
    }
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
            draft.reasons.extend(file_to_bring(&obstacle, &situation));
        }
    }
    draft
}

/// The leader migration file without which nothing is changed.
fn file_to_bring(obstacle: &Obstacle, situation: &Situation<'_>) -> Option<String> {
    let spec = situation.migration.spec;
    match obstacle {
        Obstacle::ManagerNames(_) => Some(leader_migration_file::for_manager(spec)),
        Obstacle::Flags {
            reason: Refusal::OwnConfiguration,
            ..
        } => leader_migration_file::by_hand(spec, situation.version),
        _ => None,
    }
}

/// What an update of an unchangeable part becomes where the stored object has the form of a phase from its creation: an owner
/// that applies its own manifest again finds that part as it is stored. None where the owner changes that part itself, or
/// nothing was changed at the creation.
pub(super) fn kept(input: &Input<'_>, part: &Path) -> Option<Draft> {
    let old = input.old_object.filter(|_| !input.is_being_deleted())?;
    let noted = undo_entries(old).ok().filter(|entries| !entries.is_empty())?;
    let own = undo_entries(input.object).ok()?;
    let entries = if own.is_empty() { &noted } else { &own };
    let at = part.pointer();
    let stored = old.pointer(at.as_str())?;
    let was = Document::restored(old, &noted);
    let is = Document::restored(input.object, entries);
    if was.whole().pointer(at.as_str()) != is.whole().pointer(at.as_str()) {
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

/// Why the way back ends a component that starts now: the version has no in-tree provider any more.
fn fatal_undoing(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Option<String> {
    if situation.effective_phase >= Phase::Migrate || entries.is_empty() {
        return None;
    }
    let now = fatal_flags(object, &[], rules, situation);
    let restored = fatal_flags(object, entries, rules, situation);
    restored.into_iter().find(|fatal| !now.contains(fatal))
}

/// Flags with which a component would not start in the object's version. The form of Prepare reads every list; what it would
/// change or refuse counts for nothing here.
fn fatal_flags(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Vec<String> {
    let mut document = Document::restored(object, entries);
    let situation = Situation {
        effective_phase: Phase::Prepare,
        ..*situation
    };
    let _refused_or_not = (rules.form)(&mut document, &situation);
    document.fatal()
}

fn formed(object: &Value, entries: &[Entry], rules: &Rules, situation: &Situation<'_>) -> Result<Draft, Obstacle> {
    let mut document = Document::restored(object, entries);
    let stays_external =
        situation.effective_phase < Phase::Migrate && !entries.is_empty() && (rules.is_external)(document.whole());
    (rules.form)(&mut document, situation)?;
    let mut warnings = document.warnings();
    let fatal = document.fatal();
    if situation.effective_phase == Phase::Prepare {
        warnings.extend(fatal);
    }
    let notes = document.notes();
    if stays_external {
        warnings.push(format!(
            "it is external also without what annotation {} records; if it was in-tree before, another hand has moved what was recorded: restore it by hand",
            annotations::UNDO
        ));
    }
    let (mut value, entries, mut reasons) = document.finish();
    // Kubelets of several machines in one object change alike.
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

/// In Migrate and Complete an object waits for the evidence in the form of Prepare, but one that is external stays so.
fn situation<'a>(input: &Input<'_>, migration: &'a Migration<'a>, rules: &Rules) -> Situation<'a> {
    let spec = migration.spec;
    let stays_external = (rules.is_external)(input.object) || input.old_object.is_some_and(rules.is_external);
    // What is there in the end is in-tree or nothing; either waits.
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

/// Gives a component's argument list the flags of the situation.
pub(super) fn arguments(
    document: &mut Document,
    path: &Path,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
) -> Result<(), Obstacle> {
    arguments_beside(document, path, shape, component, situation, None)
}

/// The same where another field of the object gives the component its cloud provider, unless the list names one. That
/// field follows the phase by itself, so the list gets no `cloud-provider` of its own.
pub(super) fn arguments_beside(
    document: &mut Document,
    path: &Path,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
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
    let reasons = flags(&mut line, component, situation, provider)?;
    document.set_arguments(path, shape, &line, reasons)?;
    Ok(())
}

/// Notes what to tell about the flags that a component has without the situation's.
pub(super) fn note_warnings(
    document: &mut Document,
    line: &CommandLine,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) {
    // A line that cannot be read is an obstacle of its flags, which says so.
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

/// Gives a component's command line the flags of the situation; says why. `provider` is what another field gives it.
pub(super) fn flags(
    line: &mut CommandLine,
    component: Component,
    situation: &Situation<'_>,
    provider: Option<&str>,
) -> Result<Vec<String>, Obstacle> {
    let because = |reason: Refusal| Obstacle::of_flags(component, reason);
    let unreadable = |reason: Unreadable| because(reason.into());
    let whole = with_provider(line, component, provider)?;
    let has_own = line.value(flag::CLOUD_PROVIDER).map_err(unreadable)?.is_some();
    let provider = provider.filter(|_| !has_own);
    let mut changes = phase_flags::changes(component, &whole, &situation.circumstances()).map_err(because)?;
    changes.retain(|change| provider.is_none() || !matches!(change, Change::Set(flag::CLOUD_PROVIDER, ..)));
    for change in &changes {
        change.apply(line).map_err(unreadable)?;
    }
    Ok(changes.iter().map(|change| format!("{component}: {change}")).collect())
}

/// The list with the provider that another field gives the component, unless the list names one.
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

/// Tells what the flags of a phase do not see to: EBS volumes and feature gates. `whole` is all that the component gets.
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
    // Below 1.27 the gates are those of the EBS volumes, which other warnings of these objects are about.
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
    /// What the flags depend on.
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

/// Whether an argument list says `cloud-provider=external`.
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
    if entries.is_empty() {
        take_undo(value);
        return Ok(());
    }
    let text = serde_json::to_string(entries).map_err(|error| Obstacle::Other(error.to_string()))?;
    fields::write(
        value,
        &Path::new(&["metadata", "annotations", annotations::UNDO]),
        json!(text),
    )?;
    Ok(())
}

fn take_undo(value: &mut Value) {
    let Some(all) = value
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let was_there = all.remove(annotations::UNDO).is_some();
    let is_empty = all.is_empty();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        && was_there
        && is_empty
    {
        metadata.remove("annotations");
    }
}
