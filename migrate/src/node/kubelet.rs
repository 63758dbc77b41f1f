//! The kubelet's flags in the files of kubeadm.
//!
//! kubeadm's unit starts the kubelet with `$KUBELET_KUBEADM_ARGS` and then `$KUBELET_EXTRA_ARGS`. The last flag applies.
//! <https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/kubelet-integration/>
//!
//! The `KubeletConfiguration` has no field for a provider; its feature gates are read, and the file is not changed.

use std::fs;
use std::path::{Path, PathBuf};

use outrigger_shared::command_line::CommandLine;
use outrigger_shared::component::Component;
use outrigger_shared::limited_file;
use outrigger_shared::migration::Phase;
use outrigger_shared::phase_flags;
use outrigger_shared::yaml_text::YamlText;
use outrigger_webhook::decide::{self, Decision, Migration, Outcome};
use serde_json::{Value, json};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::disk;
use super::env_file::Variable;
use super::error::Error;
use super::file::{Plan, Source, Status};
use crate::args::MachineArgs;
use crate::explain::explanations;

pub(super) const KUBEADM_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// Environment files with their variables, in the order of the flags. Packages for Debian have the second, those for
/// RPM the third.
pub(super) const FILES: [(&str, &str); 3] = [
    (KUBEADM_FLAGS, "KUBELET_KUBEADM_ARGS"),
    ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS"),
    ("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS"),
];

/// Folders with units and their drop-ins.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// An environment file that sets flags of the kubelet.
struct FlagFile {
    source: Source,
    variable: Variable,
}

/// Decides the files of the kubelet; none if no file sets its flags.
pub(super) fn plan(machine: &MachineArgs, migration: &Migration<'_>) -> Result<Vec<Plan>, Error> {
    let units = units(machine)?;
    let mut files = Vec::new();
    for (path, name) in FILES {
        let is_used = units.is_empty() || units.iter().any(|unit| unit.text.contains(path));
        if is_used {
            files.extend(read(machine, Path::new(path), name)?);
        }
    }
    let in_units: Vec<String> = match migration.spec.phase {
        Phase::InTree | Phase::Prepare => Vec::new(),
        Phase::Migrate | Phase::Complete => units.iter().filter_map(Unit::provider).collect(),
    };
    if files.is_empty() {
        return match in_units.into_iter().next() {
            Some(cause) => Err(Error::Unit { cause }),
            None => Ok(Vec::new()),
        };
    }

    let gates = feature_gates(machine)?;
    let in_files = files.iter().flat_map(|file| file.variable.flags());
    let flags: Vec<String> = gates.iter().cloned().chain(in_files.map(str::to_owned)).collect();
    let pod = pod(&flags);
    let decision = decide::static_pods(migration, &[&pod]);
    let decision = decision.into_iter().next().unwrap_or_default();
    let mut lines = explanations_of(&decision, gates.is_some());

    let obstacles = in_units.into_iter().chain(end_of_original(&files, &pod, migration));
    let obstacles: Vec<String> = obstacles.map(|obstacle| format!("! {obstacle}")).collect();
    if decision.outcome == Outcome::Refused || !obstacles.is_empty() {
        lines.splice(0..0, obstacles);
        return Ok(all(files, lines, Plan::refused));
    }
    if let Some(changed) = files.iter().position(|file| file.source.has_changed()) {
        let refuse = |source: Source, lines| match source.has_changed() {
            true => Plan::changed_since(machine, source),
            false => Plan::refused(source, lines),
        };
        let path = files.get(changed).map(|file| file.source.path.display().to_string());
        let others = vec![format!("! {} is refused", path.unwrap_or_default())];
        return Ok(all(files, others, refuse));
    }

    let after = flags_after(&pod, &decision)?;
    Ok(written(files, &flags, &after, lines))
}

/// Why the original flags are not restored: the kubelet may have another version since they were edited, with which it
/// does not start. A manifest holds its version, so this concerns the kubelet alone.
fn end_of_original(files: &[FlagFile], pod: &Value, migration: &Migration<'_>) -> Option<String> {
    let is_edited = |file: &FlagFile| file.source.original() != file.source.current.text;
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

/// Gives each file its flags, and explains the first change. Added flags are written to the first file, which kubeadm creates on every machine.
fn written(files: Vec<FlagFile>, before: &[String], after: &[String], lines: Vec<String>) -> Vec<Plan> {
    let (mut kept, mut added) = (vec![None; before.len()], Vec::new());
    let names = |flags: &[String]| -> Vec<String> { flags.iter().map(|flag| name(flag).to_owned()).collect() };
    for operation in capture_diff_slices(Algorithm::Myers, &names(before), &names(after)) {
        let new = after.get(operation.new_range()).unwrap_or_default();
        if let DiffOp::Equal { old_index, .. } = operation {
            for (offset, flag) in new.iter().enumerate() {
                if let Some(kept) = kept.get_mut(old_index + offset) {
                    *kept = Some(flag.clone());
                }
            }
        } else {
            added.extend_from_slice(new);
        }
    }

    // The gates of the configuration file are in front.
    let mut at = before.len() - files.iter().map(|file| file.variable.flags().count()).sum::<usize>();
    let mut plans = Vec::new();
    for FlagFile { source, variable } in files {
        let count = variable.flags().count();
        let own = kept.get(at..at + count).unwrap_or_default();
        at += count;
        let text = variable.with(source.original(), own, &std::mem::take(&mut added));
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
fn all(files: Vec<FlagFile>, lines: Vec<String>, plan: impl Fn(Source, Vec<String>) -> Plan) -> Vec<Plan> {
    let lines = std::iter::once(lines).chain(std::iter::repeat_with(Vec::new));
    let plans = files
        .into_iter()
        .zip(lines)
        .map(|(file, lines)| plan(file.source, lines));
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

fn read(machine: &MachineArgs, path: &Path, name: &str) -> Result<Option<FlagFile>, Error> {
    let folder = path.parent().unwrap_or(path);
    let Some(source) = Source::read(machine, path, folder)? else {
        return Ok(None);
    };

    let variable = Variable::find(source.original(), name).map_err(|cause| Error::Environment {
        path: path.to_owned(),
        cause,
    })?;

    Ok(variable.map(|variable| FlagFile { source, variable }))
}

/// The gates of the configuration file as a flag. A kubelet applies its flags over them.
fn feature_gates(machine: &MachineArgs) -> Result<Option<String>, Error> {
    let path = Path::new(CONFIG);
    let Some(content) = disk::read(&machine.real(path), disk::MAX_BYTES)? else {
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

/// A unit of the kubelet, or a drop-in of it.
struct Unit {
    path: PathBuf,
    text: String,
}

impl Unit {
    /// A line that sets another provider than `external`.
    fn provider(&self) -> Option<String> {
        let is_comment = |line: &str| line.trim_start().starts_with(['#', ';']);
        let sets = |line: &str| {
            let others = line
                .replace("--cloud-provider=external", "")
                .replace("--cloud-provider external", "");
            others.contains("--cloud-provider") || others.contains("--cloud-config")
        };
        let mut lines = self.text.lines().zip(1..);
        let (_, number) = lines.find(|(line, _)| !is_comment(line) && sets(line))?;
        let path = self.path.display();

        Some(format!(
            "{path}, line {number} sets --cloud-provider or --cloud-config, is not edited and may override the edited \
             files; move these flags to KUBELET_EXTRA_ARGS in /etc/default/kubelet (or /etc/sysconfig/kubelet)"
        ))
    }
}

fn units(machine: &MachineArgs) -> Result<Vec<Unit>, Error> {
    let mut units = Vec::new();
    for folder in UNITS.map(Path::new) {
        let mut paths = vec![folder.join("kubelet.service")];
        let drop_ins = folder.join("kubelet.service.d");
        if let Ok(entries) = fs::read_dir(machine.real(&drop_ins)) {
            let names = entries.flatten().map(|entry| drop_ins.join(entry.file_name()));
            paths.extend(names.filter(|path| path.extension().is_some_and(|extension| extension == "conf")));
        }

        paths.sort();
        for path in paths {
            let real = machine.real(&path);
            if real.is_file() {
                let text = limited_file::read_text(&real).map_err(|source| Error::io(&path, source))?;
                units.push(Unit { path, text });
            }
        }
    }

    Ok(units)
}
