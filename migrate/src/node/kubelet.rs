//! The kubelet's flags in the environment files of its unit.
//!
//! kubeadm's unit starts the kubelet with `$KUBELET_KUBEADM_ARGS` and then `$KUBELET_EXTRA_ARGS`. The last flag applies,
//! wherever it is set, so the whole command line is made as systemd makes it ([`super::flags`]).
//! <https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/kubelet-integration/>
//!
//! The `KubeletConfiguration` has no field for a provider; its feature gates are read, and the file is not changed.

use std::path::{Path, PathBuf};

use outrigger_decide::{Decision, Migration, Outcome, static_pods};
use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::Component;
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase};
use outrigger_shared::phase_flags;
use outrigger_shared::yaml_text::YamlText;
use serde_json::{Value, json};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::disk;
use super::error::Error;
use super::file::{Plan, Record, Source, Status};
use super::flags::{Change, Flags, KUBEADM_FLAGS};
use super::unit::{self, Service};
use crate::args::MachineArgs;
use crate::explain::explanations;

const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// The files of the kubelet, and what a later phase refuses.
#[derive(Debug, Default)]
pub(super) struct Plans {
    pub plans: Vec<Plan>,
    pub notes: Vec<String>,
}

/// The kubelet of a machine: its unit, and its environment files with their original texts.
struct Kubelet {
    service: Service,
    /// A file that is a symbolic link is read, and not edited, for a reason.
    sources: Vec<Result<Source, String>>,
    texts: Vec<String>,
    flags: Flags,
    /// The gates of the configuration file, as a flag.
    gates: Option<String>,
}

/// The decision about the flags.
struct Decided {
    decision: Decision,
    lines: Vec<String>,
    /// The texts of the files, or why they are not edited.
    texts: Result<Vec<String>, Vec<String>>,
}

/// Decides the files of the kubelet; none if no file sets its flags.
pub(super) fn plan(machine: &MachineArgs, migration: &Migration<'_>) -> Result<Plans, Error> {
    let is_switched = migration.spec.phase >= Phase::Migrate;
    let kubelet = match Kubelet::read(machine) {
        // These phases need no flags of the kubelet.
        Err(Error::Unit { cause }) if !is_switched => {
            return Ok(Plans {
                plans: recorded(machine)?,
                notes: vec![of_later_phase(&cause)],
            });
        }
        read => read?,
    };
    if !kubelet.has_flags() {
        return Ok(Plans {
            plans: recorded(machine)?,
            notes: Vec::new(),
        });
    }

    let decided = kubelet.decide(machine, migration)?;
    let mut notes = Vec::new();
    if !is_switched {
        let spec = CloudProviderMigrationSpec {
            phase: Phase::Migrate,
            ..migration.spec.clone()
        };
        let later = Migration {
            spec: &spec,
            prepared: true,
            ..*migration
        };
        let obstacles = kubelet.decide(machine, &later)?.texts.err();
        notes.extend(
            obstacles
                .into_iter()
                .flatten()
                .map(|obstacle| of_later_phase(&obstacle)),
        );
    }
    let plans = kubelet.plans(migration, decided)?;

    Ok(Plans { plans, notes })
}

fn of_later_phase(obstacle: &str) -> String {
    format!("Migrate will refuse the kubelet of this machine: {obstacle}")
}

/// The files that an earlier edit has changed, with their originals.
fn recorded(machine: &MachineArgs) -> Result<Vec<Plan>, Error> {
    let mut plans = Vec::new();
    for record in Record::all(machine)? {
        let source = Source::read(machine, &record.path, &record.temporary_folder)?;
        let Some(source) = source.filter(|source| !source.is_manifest()) else {
            continue;
        };
        plans.push(match source.has_changed() {
            true => Plan::changed_since(source),
            false => Plan::write(source, record.original, Vec::new()),
        });
    }

    Ok(plans)
}

impl Kubelet {
    fn read(machine: &MachineArgs) -> Result<Self, Error> {
        let mut service = unit::read(machine)?;
        // A file that is named twice counts where it is named last.
        let files = std::mem::take(&mut service.files);
        for (number, file) in files.iter().enumerate() {
            if files.iter().skip(number + 1).all(|later| later.path != file.path) {
                service.files.push(file.clone());
            }
        }

        let (mut sources, mut texts) = (Vec::new(), Vec::new());
        for file in &service.files {
            let folder = file.path.parent().unwrap_or(&file.path);
            let (source, text) = match Source::read_or_absent(machine, &file.path, folder) {
                Ok(source) => {
                    let text = (!source.is_absent() || source.record.is_some()).then(|| source.original().to_owned());
                    (Ok(source), text)
                }
                Err(error @ Error::SymbolicLink { .. }) => (Err(error.to_string()), unit::text(machine, &file.path)?),
                Err(error) => return Err(error),
            };
            if text.is_none() && !file.is_optional {
                return Err(Error::Unit {
                    cause: format!(
                        "{} names {}, which is absent, so the kubelet does not start; create the file, or write - before \
                         its path",
                        file.place,
                        file.path.display()
                    ),
                });
            }
            sources.push(source);
            texts.push(text.unwrap_or_default());
        }

        let flags = Flags::of(&service, &texts).map_err(|cause| Error::Unit { cause })?;
        Ok(Self {
            gates: feature_gates(machine)?,
            service,
            sources,
            texts,
            flags,
        })
    }

    /// Whether there is a flag to edit, or a file to which kubeadm or the operator adds flags.
    fn has_flags(&self) -> bool {
        let mut words = self.flags.words.iter();
        let is_about_cloud =
            words.any(|word| word.text.starts_with("--cloud-provider") || word.text.starts_with("--cloud-config"));
        is_about_cloud || self.flags.files().next().is_some()
    }

    fn before(&self) -> Vec<String> {
        let words = self.flags.words.iter().map(|word| word.text.clone());
        self.gates.iter().cloned().chain(words).collect()
    }

    fn decide(&self, machine: &MachineArgs, migration: &Migration<'_>) -> Result<Decided, Error> {
        let before = self.before();
        let pod = pod(&before);
        let decision = static_pods(migration, &[&pod]);
        let decision = decision.into_iter().next().unwrap_or_default();
        let lines = explanations_of(&decision, self.gates.is_some());

        let change = change(
            &before,
            &flags_after(&pod, &decision)?,
            usize::from(self.gates.is_some()),
        );
        let texts = self.flags.edited(&self.service, &self.texts, &change);
        let texts = texts.and_then(|texts| {
            let obstacle = self.link(&texts).or_else(|| self.without_folder(machine, &texts));
            obstacle.map_or(Ok(texts), |obstacle| Err(vec![obstacle]))
        });
        Ok(Decided { decision, lines, texts })
    }

    /// A file that would be edited, and is a link.
    fn link(&self, texts: &[String]) -> Option<String> {
        let mut files = self.sources.iter().zip(texts.iter().zip(&self.texts));
        files.find_map(|(source, (text, original))| source.as_ref().err().filter(|_| text != original).cloned())
    }

    /// A file that would be created in a folder that is absent.
    fn without_folder(&self, machine: &MachineArgs, texts: &[String]) -> Option<String> {
        let files = self.sources.iter().zip(texts);
        let mut created = files.filter_map(|(source, text)| Some((source.as_ref().ok()?, text)));
        let (source, _) = created.find(|(source, text)| {
            let is_there = machine
                .followed(&source.temporary_folder)
                .is_ok_and(|folder| folder.is_dir());
            source.is_absent() && !text.is_empty() && !is_there
        })?;
        let folder = source.temporary_folder.display();
        Some(format!(
            "{} cannot be created: {folder} is absent; create it",
            source.path.display()
        ))
    }

    fn plans(self, migration: &Migration<'_>, decided: Decided) -> Result<Vec<Plan>, Error> {
        let Decided {
            decision,
            mut lines,
            texts,
        } = decided;
        let pod = pod(&self.before());
        let used: Vec<usize> = self.flags.files().collect();
        let changed = |number: usize| match &texts {
            Ok(texts) => texts.get(number) != self.texts.get(number),
            Err(_) => false,
        };
        let files = (0..).zip(self.sources);
        let files: Vec<(usize, Source)> = files
            .filter_map(|(number, source)| Some((number, source.ok()?)))
            .collect();
        let files: Vec<(usize, Source)> = files
            .into_iter()
            .filter(|(number, source)| used.contains(number) || source.record.is_some() || changed(*number))
            .collect();

        let mut obstacles: Vec<String> = texts.as_ref().err().cloned().unwrap_or_default();
        obstacles.extend(end_of_original(&files, &pod, migration));
        let sources = || files.iter().map(|(_, source)| source);
        if sources().next().is_none() && (!obstacles.is_empty() || decision.outcome == Outcome::Refused) {
            let cause = obstacles
                .first()
                .or(decision.warnings.first())
                .cloned()
                .unwrap_or_default();
            return Err(Error::Unit { cause });
        }
        if decision.outcome == Outcome::Refused || !obstacles.is_empty() {
            lines.splice(0..0, obstacles.iter().map(|obstacle| format!("! {obstacle}")));
            return Ok(all(files, lines, Plan::refused));
        }
        if let Some(changed) = sources().find(|source| source.has_changed()) {
            let others = vec![format!("! {} is refused", changed.path.display())];
            let refuse = |source: Source, lines| match source.has_changed() {
                true => Plan::changed_since(source),
                false => Plan::refused(source, lines),
            };
            return Ok(all(files, others, refuse));
        }

        Ok(written(files, &texts.unwrap_or_default(), lines))
    }
}

/// Why the original flags are not restored: the kubelet may have another version since they were edited, with which it
/// does not start. A manifest holds its version, so this concerns the kubelet alone.
fn end_of_original(files: &[(usize, Source)], pod: &Value, migration: &Migration<'_>) -> Option<String> {
    let is_edited = |(_, source): &(usize, Source)| source.original() != source.current.text;
    if migration.spec.phase >= Phase::Migrate || !files.iter().any(is_edited) {
        return None;
    }

    let line = CommandLine::of_container(pod.pointer("/spec/containers/0")?).ok()?;
    let fatal = phase_flags::fatal(Component::Kubelet, &line, migration.spec.version());
    // The decision reports flags that cannot be read.
    let fatal = fatal.ok().flatten()?;

    Some(format!("the original flags are not restored: {fatal}"))
}

/// The flags as a container, so that the rules of the webhook apply to them.
fn pod(flags: &[String]) -> Value {
    let command: Vec<&str> = std::iter::once("kubelet")
        .chain(flags.iter().map(String::as_str))
        .collect();
    json!({"metadata": {}, "spec": {"containers": [{"name": "kubelet", "image": "kubelet", "command": command}]}})
}

fn flags_after(pod: &Value, decision: &Decision) -> Result<Vec<String>, Error> {
    let failed = |cause: String| Error::Patch {
        path: PathBuf::from(KUBEADM_FLAGS),
        cause,
    };
    let mut after = pod.clone();
    json_patch::patch(&mut after, &decision.patch).map_err(|error| failed(error.to_string()))?;

    let container = after.pointer("/spec/containers/0");
    let lists = ["command", "args"].map(|list| container.and_then(|container| container.get(list)?.as_array()));
    let tokens = lists.into_iter().flatten().flatten().skip(1);
    let texts: Option<Vec<String>> = tokens.map(|token| token.as_str().map(str::to_owned)).collect();

    texts.ok_or_else(|| failed("a flag is not a string".to_owned()))
}

/// The intended flags. The gates of the configuration file are in front, and stay.
fn change(before: &[String], after: &[String], gates: usize) -> Change {
    let (mut kept, mut added) = (vec![None; before.len()], Vec::new());
    let names = |flags: &[String]| -> Vec<String> { flags.iter().map(|flag| name(flag).to_owned()).collect() };
    for operation in capture_diff_slices(Algorithm::Myers, &names(before), &names(after)) {
        let old = operation.old_range();
        let new = after.get(operation.new_range()).unwrap_or_default();
        // A replaced word without a name is the value of the flag before it.
        let is_in_place = matches!(operation, DiffOp::Equal { .. } | DiffOp::Replace { .. }) && old.len() == new.len();
        if is_in_place {
            for (kept, flag) in kept.iter_mut().skip(old.start).zip(new) {
                *kept = Some(flag.clone());
            }
        } else {
            added.extend_from_slice(new);
        }
    }

    Change {
        kept: kept.split_off(gates.min(kept.len())),
        added,
    }
}

/// Gives each file its text, and explains the first change.
fn written(files: Vec<(usize, Source)>, texts: &[String], lines: Vec<String>) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (number, source) in files {
        let text = texts.get(number).cloned().unwrap_or_default();
        plans.push(Plan::write(source, text, Vec::new()));
    }

    let explained = plans.iter().position(|plan| plan.status != Status::Unchanged);
    if let Some(plan) = plans.get_mut(explained.unwrap_or_default()) {
        plan.explanations = lines;
    }

    plans
}

fn name(flag: &str) -> &str {
    flag.split_once('=').map_or(flag, |(name, _)| name)
}

/// The explanations are those of the first file.
fn all(files: Vec<(usize, Source)>, lines: Vec<String>, plan: impl Fn(Source, Vec<String>) -> Plan) -> Vec<Plan> {
    let lines = std::iter::once(lines).chain(std::iter::repeat_with(Vec::new));
    let plans = files
        .into_iter()
        .zip(lines)
        .map(|((_, source), lines)| plan(source, lines));
    plans.collect()
}

/// The rules speak of containers.
fn explanations_of(decision: &Decision, has_gates: bool) -> Vec<String> {
    let component = Component::Kubelet;
    let container = format!("container \"{component}\"");
    let mut lines: Vec<String> = explanations(decision)
        .iter()
        .map(|line| line.replace(&container, component.as_str()))
        .collect();
    if has_gates {
        lines.push(format!("- featureGates of {CONFIG} count as --feature-gates"));
    }

    lines
}

/// The gates of the configuration file as a flag. A kubelet applies its flags over them.
fn feature_gates(machine: &MachineArgs) -> Result<Option<String>, Error> {
    let path = Path::new(CONFIG);
    let Some(content) = disk::read(&machine.real(path)?, disk::MAX_BYTES)? else {
        return Ok(None);
    };
    let text = YamlText::parse(&content.text).map_err(|source| Error::Text {
        path: path.to_owned(),
        source,
    })?;

    let gates = text.get(0, &["featureGates"]).and_then(Value::as_object);
    let gates: Vec<String> = gates
        .into_iter()
        .flatten()
        .map(|(gate, on)| format!("{gate}={on}"))
        .collect();
    Ok((!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(","))))
}
