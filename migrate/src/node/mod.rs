//! `outrigger node`: edits kubeadm's files on a machine, and restores them.
//!
//! ```text
//! edit: read ─▶ plan every file ─▶ undo record ─▶ temporary file ─▶ compare ─▶ rename     (a refusal writes nothing)
//! undo: records ─▶ plan every file ─▶ temporary file ─▶ compare ─▶ rename ─▶ remove the record
//! ```
//!
//! | subject | module |
//! |---|---|
//! | the change of one file, undo records | `file.rs` |
//! | manifests of static Pods | `manifests.rs` |
//! | flags of the kubelet | `kubelet.rs`, `flags.rs` |
//! | unit and environment files, as systemd reads them | `unit.rs`, `env_file.rs`, `words.rs` |
//! | a JSON Patch on a YAML text | `yaml_patch.rs` |
//! | the output | `report.rs` |
//! | atomic replacement | `disk.rs` |

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use outrigger_decide::Migration;
use outrigger_shared::component::Component;
use outrigger_shared::migration::{CloudProviderMigrationSpec, Mode, Phase};

use self::disk::Disk;
use self::error::Error;
use self::file::{Plan, Record, Source, Status};
use self::report::{PhaseStep, Report};
use crate::args::{COMPONENTS, EditArgs, MANIFESTS, MachineArgs, NodeOutput, UndoArgs};
use crate::documents::Inputs;
use crate::end::{End, Failure};
use crate::migrations::{self, Found};

mod disk;
mod env_file;
pub mod error;
mod file;
mod flags;
mod kubelet;
mod manifests;
mod report;
mod rootfs;
#[cfg(test)]
mod tests;
mod unit;
mod words;
mod yaml_patch;

/// Edits the files of a machine.
///
/// # Errors
/// [`Failure`] on wrong input, and when a file cannot be written.
pub fn edit(args: &EditArgs, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let found = migration(args, stdin)?;
    for note in migrations::problems(&found)
        .into_iter()
        .chain(migrations::skipped_step(&found, args.phase))
    {
        writeln!(err, "{note}")?;
    }

    edit_on(args, &found, out, &mut Disk::new(&mut || Ok(())))
}

/// Restores the files of a machine.
///
/// # Errors
/// [`Failure`] on wrong input, and when a file cannot be written.
pub fn undo(args: &UndoArgs, out: &mut dyn Write) -> Result<End, Failure> {
    undo_on(args, out, &mut Disk::new(&mut || Ok(())))
}

fn edit_on(args: &EditArgs, found: &Found, out: &mut dyn Write, disk: &mut Disk<'_>) -> Result<End, Failure> {
    let machine = &args.machine;
    absolute("state", &machine.state)?;
    check_manifests(args)?;
    let spec = spec(args, found)?;
    let migration = Migration {
        name: &found.name,
        spec: &spec,
        prepared: is_prepared(args, found),
    };
    let _lock = lock(machine, disk)?;

    let (plans, notes) = plans(args, &migration)?;
    let (from, to) = (present_phase(&plans), spec.phase);
    let direction = check_direction(args, found, (from, to))?;
    let notes = direction
        .into_iter()
        .chain(notes)
        .chain(missing(args, &plans))
        .collect();
    let report = Report {
        heading: format!("migration {}, phase {to}", found.name),
        step: Some(PhaseStep {
            migration: &found.name,
            from,
            to,
        }),
        notes,
        machine,
    };
    apply_all(&plans, &report, out, disk)
}

/// The latest phase of which a file of this machine has the form.
fn present_phase(plans: &[Plan]) -> Phase {
    let records = plans.iter().filter_map(|plan| plan.source.record.as_ref());
    records.map(|record| record.phase).max().unwrap_or(Phase::InTree)
}

/// Refuses a file of which nobody knows whether it is the object of the cluster, and a step back that nobody has asked
/// for: a wrong file would take a machine back without a word. A dry run gets a note instead.
fn check_direction(args: &EditArgs, found: &Found, (from, to): (Phase, Phase)) -> Result<Vec<String>, Error> {
    let (place, migration) = (found.origin.to_string(), found.name.clone());
    let mut refusals = Vec::new();
    if found.migration.metadata.uid.is_none() {
        refusals.push(Error::NoObject {
            place: place.clone(),
            migration: migration.clone(),
        });
    }
    if to < from && !args.back {
        refusals.push(Error::StepBack {
            place,
            migration,
            from,
            to,
        });
    }

    if args.machine.dry_run {
        let note = |refusal: &Error| format!("without --dry-run: {refusal}");
        return Ok(refusals.iter().map(note).collect());
    }
    refusals.into_iter().next().map_or(Ok(Vec::new()), Err)
}

fn undo_on(args: &UndoArgs, out: &mut dyn Write, disk: &mut Disk<'_>) -> Result<End, Failure> {
    let machine = &args.machine;
    absolute("state", &machine.state)?;
    let report = Report {
        heading: "undo".to_owned(),
        step: None,
        notes: Vec::new(),
        machine,
    };
    let records = Record::all(machine)?;
    if records.is_empty() {
        let state = machine.state.display();
        match machine.output {
            NodeOutput::Text => writeln!(out, "nothing to undo: {state} has no record of an edit")?,
            NodeOutput::Json => report.end(&[], false, out)?,
        }
        return Ok(End::Success);
    }

    let _lock = lock(machine, disk)?;
    let plans: Result<Vec<Plan>, Error> = records.iter().map(|record| undo_plan(args, record)).collect();
    apply_all(&plans?, &report, out, disk)
}

/// Changes the files one after the other, unless one is refused, and reports them. If one fails, those before it are
/// reported.
fn apply_all(plans: &[Plan], report: &Report<'_>, out: &mut dyn Write, disk: &mut Disk<'_>) -> Result<End, Failure> {
    let machine = report.machine;
    report.begin(out)?;
    let is_refused = plans.iter().any(|plan| plan.status == Status::Refused);
    if !is_refused && !machine.dry_run {
        let owner = report
            .step
            .as_ref()
            .map_or(("", Phase::InTree), |step| (step.migration, step.to));
        for (index, plan) in plans.iter().enumerate() {
            if let Err(error) = plan.apply(machine, owner, disk) {
                report.end(plans.get(..index).unwrap_or_default(), true, out)?;
                return Err(error.into());
            }
        }
    }

    report.end(plans, false, out)?;
    Ok(if is_refused { End::Refused } else { End::Success })
}

fn undo_plan(args: &UndoArgs, record: &Record) -> Result<Plan, Error> {
    let machine = &args.machine;
    let Some(mut source) = Source::read(machine, &record.path, &record.temporary_folder)? else {
        return Err(Error::Gone {
            path: record.path.clone(),
            record: machine.record_place(&record.path)?,
        });
    };
    if source.has_changed() && !args.force {
        return Ok(Plan::changed_since(source));
    }

    // Its present text counts as one of this command's own.
    if let Some(record) = source.record.as_mut() {
        record.replaced.clone_from(&source.current.text);
    }

    Ok(Plan::write(source, record.original.clone(), Vec::new()))
}

/// The one migration of this machine.
fn migration(args: &EditArgs, stdin: &mut dyn Read) -> Result<Found, Failure> {
    let found = migrations::find(&args.migration, &[], &mut Inputs::new(stdin))?;
    let [only] = <[Found; 1]>::try_from(found).map_err(|found| Error::Migrations {
        count: found.len(),
        names: migrations::listed(&found),
    })?;
    Ok(only)
}

fn is_prepared(args: &EditArgs, found: &Found) -> bool {
    args.prepared.unwrap_or_else(|| found.migration.is_prepared())
}

/// The spec with the phase of the command line. The webhook waits for Prepared by giving the form of another phase; a
/// person gets an error instead.
fn spec(args: &EditArgs, found: &Found) -> Result<CloudProviderMigrationSpec, Error> {
    let mut spec = found.migration.spec.clone();
    spec.phase = args.phase.unwrap_or(spec.phase);
    if spec.phase >= Phase::Migrate && !is_prepared(args, found) && !spec.downtime {
        return Err(Error::NotPrepared {
            migration: found.name.clone(),
            phase: spec.phase,
        });
    }

    if spec.mode == Mode::Audit && !args.machine.dry_run {
        let migration = found.name.clone();
        return Err(Error::Audit { migration });
    }
    spec.mode = Mode::Enforce;

    Ok(spec)
}

fn check_manifests(args: &EditArgs) -> Result<(), Error> {
    let (state, manifests) = (args.machine.state.clone(), args.manifests.clone());
    absolute("manifests", &manifests)?;
    if state.starts_with(&manifests) {
        return Err(Error::StateInManifests { state, manifests });
    }
    // A worker needs no such folder, but a path of the command line has to be right.
    if manifests != Path::new(MANIFESTS) && !args.machine.followed(&manifests)?.is_dir() {
        return Err(Error::io(&manifests, io::ErrorKind::NotFound.into()));
    }

    Ok(())
}

fn absolute(flag: &'static str, path: &Path) -> Result<(), Error> {
    if path.is_absolute() {
        return Ok(());
    }
    let path = path.to_owned();
    Err(Error::RelativePath { flag, path })
}

/// Only one process changes the files of a machine.
fn lock(machine: &MachineArgs, disk: &mut Disk<'_>) -> Result<Option<File>, Error> {
    if machine.dry_run {
        return Ok(None);
    }

    let state = machine.real_state()?;
    let failed = |source: io::Error| Error::io(&state, source);
    disk.create_folder(&state).map_err(failed)?;
    let folder = File::open(&state).map_err(failed)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            state: machine.state.clone(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Components without a file on this machine: a worker has no manifests.
fn missing(args: &EditArgs, plans: &[Plan]) -> Vec<String> {
    let components = components(args);
    let (manifests, flags): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| plan.source.is_manifest());
    let mut notes = Vec::new();
    if manifests.is_empty() && components.iter().any(|component| *component != Component::Kubelet) {
        let folder = args.manifests.display();
        notes.push(format!(
            "{folder} holds no manifest of these components, so no static Pod is changed"
        ));
    }
    if flags.is_empty() && components.contains(&Component::Kubelet) {
        notes.push("no environment file of the kubelet's unit sets its flags, so it is not changed".to_owned());
    }

    notes
}

fn components(args: &EditArgs) -> &[Component] {
    match args.component.as_slice() {
        [] => &COMPONENTS,
        wanted => wanted,
    }
}

/// The plan of each file, and notes about the kubelet.
fn plans(args: &EditArgs, migration: &Migration<'_>) -> Result<(Vec<Plan>, Vec<String>), Error> {
    let (machine, components) = (&args.machine, components(args));
    let mut plans = manifests::plan(machine, &args.manifests, migration, components)?;
    let mut notes = Vec::new();
    if components.contains(&Component::Kubelet) {
        let kubelet = kubelet::plan(machine, migration)?;
        plans.extend(kubelet.plans);
        notes = kubelet.notes;
    }
    if plans.is_empty() {
        let names: Vec<&str> = components.iter().map(|component| component.as_str()).collect();
        return Err(Error::Nothing {
            folder: args.manifests.clone(),
            what: names.join(" or "),
            kubelet: flags::KUBEADM_FLAGS,
        });
    }

    Ok((plans, notes))
}
