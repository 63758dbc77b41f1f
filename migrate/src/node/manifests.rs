//! The manifests of static Pods.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use outrigger_decide::{Decision, Migration, Outcome, static_pods};
use outrigger_shared::annotations;
use outrigger_shared::component::{self, Component};
use outrigger_shared::limited_file;
use outrigger_shared::yaml_text::YamlText;
use serde_json::Value;

use super::error::Error;
use super::file::{Plan, Source};
use super::yaml_patch::{self, Unfit};
use crate::args::MachineArgs;
use crate::explain::explanations;

/// Most files of a folder. A control plane has four.
const MAX_FILES: usize = 100;

/// Components with a static Pod that a phase changes.
const COMPONENTS: [Component; 2] = [Component::KubeControllerManager, Component::KubeApiserver];

/// A manifest of the control plane.
struct Manifest {
    source: Source,
    /// The original text.
    text: YamlText,
    components: Vec<Component>,
}

impl Manifest {
    fn pod(&self) -> &Value {
        self.text.documents().first().unwrap_or(&Value::Null)
    }
}

/// Decides the manifests of a folder together, and selects those of the components.
pub(super) fn plan(
    machine: &MachineArgs,
    folder: &Path,
    migration: &Migration<'_>,
    components: &[Component],
) -> Result<Vec<Plan>, Error> {
    let manifests = read_all(machine, folder)?;
    each_once(&manifests)?;

    let pods: Vec<&Value> = manifests.iter().map(Manifest::pod).collect();
    let decisions = static_pods(migration, &pods);
    let is_wanted = |manifest: &Manifest| manifest.components.iter().any(|one| components.contains(one));
    let plans = manifests
        .into_iter()
        .zip(decisions)
        .filter(|(manifest, _)| is_wanted(manifest))
        .map(|(manifest, decision)| plan_of(machine, manifest, &decision));

    plans.collect()
}

fn plan_of(machine: &MachineArgs, manifest: Manifest, decision: &Decision) -> Result<Plan, Error> {
    let Manifest { source, mut text, .. } = manifest;
    if source.has_changed() {
        return Ok(Plan::changed_since(source));
    }

    let mut lines = explanations(decision);
    if decision.outcome == Outcome::Refused {
        return Ok(Plan::refused(source, lines));
    }
    let undo = text.get(0, &["metadata", "annotations", annotations::UNDO]);
    if source.record.is_none() && undo.is_some() {
        lines.push(format!(
            "! its annotation {} is from an earlier edit, for which {} has no record: `outrigger node undo` restores \
             the present text, and --phase=InTree the flags before that edit",
            annotations::UNDO,
            machine.state.display()
        ));
    }

    match yaml_patch::apply(&mut text, &decision.patch) {
        Ok(()) => Ok(Plan::write(source, text.text().to_owned(), lines)),
        Err(Unfit::Text(refusal)) => {
            lines.insert(0, format!("! {refusal}"));
            Ok(Plan::refused(source, lines))
        }
        Err(Unfit::Patch(cause)) => {
            let path = source.path;
            Err(Error::Patch { path, cause })
        }
    }
}

/// The manifests of the control plane's components. The kubelet reads every file whose name has no dot at its start,
/// so a copy of a manifest is a second Pod.
fn read_all(machine: &MachineArgs, folder: &Path) -> Result<Vec<Manifest>, Error> {
    let mut manifests = Vec::new();
    for path in files(machine, folder)? {
        if mentions_a_component(&machine.followed(&path)?)? {
            manifests.extend(read(machine, &path, folder)?);
        }
    }

    Ok(manifests)
}

fn files(machine: &MachineArgs, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::io(folder, source);
    let entries = match fs::read_dir(machine.followed(folder)?) {
        Ok(entries) => entries,
        // A worker needs no such folder.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };

    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let path = folder.join(&name);
        // The kubelet follows links.
        let is_file = machine.followed(&path).is_ok_and(|place| place.is_file());
        if is_file && !name.to_string_lossy().starts_with('.') {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            let folder = folder.to_owned();
            return Err(Error::TooManyFiles { folder, max: MAX_FILES });
        }
    }

    files.sort();
    Ok(files)
}

/// A file of another component is not parsed, so its form does not matter.
fn mentions_a_component(path: &Path) -> Result<bool, Error> {
    match limited_file::read_text(path) {
        Ok(text) => Ok(COMPONENTS.iter().any(|component| text.contains(component.as_str()))),
        // No kubelet starts it.
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(false),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// A manifest, if it is one of the components.
fn read(machine: &MachineArgs, path: &Path, folder: &Path) -> Result<Option<Manifest>, Error> {
    // A file beside the folder is on its file system, and the kubelet does not read it.
    let temporary_folder = folder.parent().unwrap_or(folder);
    let Some(source) = Source::read(machine, path, temporary_folder)? else {
        return Ok(None);
    };

    let text = YamlText::parse(source.original()).map_err(|source| {
        let path = path.to_owned();
        Error::Text { path, source }
    })?;
    let components = components(text.documents());
    if components.is_empty() {
        return Ok(None);
    }

    let count = text.documents().len();
    if count != 1 {
        let path = path.to_owned();
        return Err(Error::Documents { path, count });
    }

    Ok(Some(Manifest {
        source,
        text,
        components,
    }))
}

fn components(documents: &[Value]) -> Vec<Component> {
    let findings = documents.iter().filter_map(|pod| {
        let spec = pod.get("spec")?;
        Some(component::find(spec, pod.pointer("/metadata/labels")))
    });
    let components = findings.flatten().map(|finding| finding.component);
    components.filter(|component| COMPONENTS.contains(component)).collect()
}

fn each_once(manifests: &[Manifest]) -> Result<(), Error> {
    for component in COMPONENTS {
        let mut with_it = manifests.iter().filter(|one| one.components.contains(&component));
        if let (Some(first), Some(second)) = (with_it.next(), with_it.next()) {
            return Err(Error::Twice {
                component: component.to_string(),
                first: first.source.path.clone(),
                second: second.source.path.clone(),
            });
        }
    }

    Ok(())
}
