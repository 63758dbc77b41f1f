//! `outrigger node`: edits kubeadm's files on a machine, and restores them.
//!
//! ```text
//! edit: read ─▶ plan every file ─▶ undo record ─▶ temporary file ─▶ compare ─▶ rename     (a refusal writes nothing)
//! undo: records ─▶ plan every file ─▶ temporary file ─▶ compare ─▶ rename ─▶ remove the record
//! ```
//!
//! | subject | module |
//! |---|---|
//! | the change of one file | `file.rs` |
//! | manifests of static Pods | `manifests.rs` |
//! | flags of the kubelet, and the files with them | `kubelet.rs`, `env_file.rs` |
//! | a JSON Patch on a YAML text | `yaml_patch.rs` |
//! | undo records | `record.rs` |
//! | atomic replacement | `disk.rs` |
//! | output | `report.rs` |

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use clap::ValueEnum;
use outrigger_shared::component::Component;
use outrigger_shared::migration::{CloudProviderMigrationSpec, Mode, Phase};
use outrigger_webhook::decide::Migration;

use self::disk::Disk;
use self::error::Error;
use self::file::{Machine, Plan, Source, Status};
use crate::args::{EditArgs, MANIFESTS, MachineArgs, NodeComponent, UndoArgs};
use crate::documents::Inputs;
use crate::end::{End, Failure};
use crate::migrations::{self, Found};

mod disk;
mod env_file;
pub mod error;
mod file;
mod kubelet;
mod manifests;
mod record;
mod report;
#[cfg(test)]
mod tests;
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
    let machine = machine(&args.machine)?;
    check_manifests(args, &machine)?;
    let spec = spec(args, found)?;
    let migration = Migration {
        name: &found.name,
        spec: &spec,
        prepared: is_prepared(args, found),
    };
    let _lock = lock(&args.machine, &machine, disk)?;

    let plans = plans(args, &machine, &migration)?;
    let is_refused = plans.iter().any(|plan| plan.status == Status::Refused);
    let heading = format!("migration {}, phase {}", found.name, spec.phase);
    if !is_refused && !args.machine.dry_run {
        apply_all(&plans, &machine, (&found.name, spec.phase), out, disk)?;
    }

    report::write(&plans, &heading, &args.machine, out)?;
    for note in missing(args, &plans) {
        writeln!(out, "note: {note}")?;
    }
    Ok(end(is_refused))
}

fn undo_on(args: &UndoArgs, out: &mut dyn Write, disk: &mut Disk<'_>) -> Result<End, Failure> {
    let machine = machine(&args.machine)?;
    let records = record::all(&machine.real_state())?;
    if records.is_empty() {
        let state = machine.state.display();
        writeln!(out, "nothing to undo: {state} has no record of an edit")?;
        return Ok(End::Success);
    }

    let _lock = lock(&args.machine, &machine, disk)?;
    let mut plans = Vec::new();
    for record in records {
        plans.push(undo_plan(args, &machine, &record)?);
    }

    let is_refused = plans.iter().any(|plan| plan.status == Status::Refused);
    if !is_refused && !args.machine.dry_run {
        apply_all(&plans, &machine, ("", Phase::InTree), out, disk)?;
    }

    report::write(&plans, "undo", &args.machine, out)?;
    Ok(end(is_refused))
}

/// Changes the files one after the other. If one fails, those before it are reported.
fn apply_all(
    plans: &[Plan],
    machine: &Machine<'_>,
    owner: (&str, Phase),
    out: &mut dyn Write,
    disk: &mut Disk<'_>,
) -> Result<(), Failure> {
    for (index, plan) in plans.iter().enumerate() {
        if let Err(error) = plan.apply(machine, owner, disk) {
            report::before_error(plans.get(..index).unwrap_or_default(), out)?;
            return Err(error.into());
        }
    }

    Ok(())
}

const fn end(is_refused: bool) -> End {
    if is_refused { End::Refused } else { End::Success }
}

fn undo_plan(args: &UndoArgs, machine: &Machine<'_>, record: &record::Record) -> Result<Plan, Error> {
    let Some(mut source) = Source::read(machine, &record.path, &record.temporary_folder)? else {
        return Err(Error::Gone {
            path: record.path.clone(),
            record: machine.record_place(&record.path),
        });
    };
    if source.has_changed() && !args.force {
        return Ok(Plan::changed_since(machine, source));
    }

    if source.has_changed() {
        source.accept();
    }

    Ok(Plan::write(source, record.original.clone(), Vec::new()))
}

/// The one migration of this machine.
fn migration(args: &EditArgs, stdin: &mut dyn Read) -> Result<Found, Failure> {
    let found = migrations::find(&args.migration, &[], &mut Inputs::new(stdin))?;
    let names = migrations::listed(&found);
    let count = found.len();
    let mut found = found.into_iter();
    match (found.next(), count) {
        (Some(only), 1) => Ok(only),
        _ => Err(Error::Migrations { count, names }.into()),
    }
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

fn machine(args: &MachineArgs) -> Result<Machine<'_>, Error> {
    absolute("state", &args.state)?;
    Ok(Machine {
        rootfs: &args.rootfs,
        state: &args.state,
    })
}

fn check_manifests(args: &EditArgs, machine: &Machine<'_>) -> Result<(), Error> {
    let (state, manifests) = (args.machine.state.clone(), args.manifests.clone());
    absolute("manifests", &manifests)?;
    if state.starts_with(&manifests) {
        return Err(Error::StateInManifests { state, manifests });
    }
    // A worker needs no such folder, but a path of the command line has to be right.
    if manifests != Path::new(MANIFESTS) && !machine.real(&manifests).is_dir() {
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
fn lock(args: &MachineArgs, machine: &Machine<'_>, disk: &mut Disk<'_>) -> Result<Option<File>, Error> {
    if args.dry_run {
        return Ok(None);
    }

    let state = machine.real_state();
    let failed = |source: io::Error| Error::io(&state, source);
    disk.create_folder(&state).map_err(failed)?;
    let folder = File::open(&state).map_err(failed)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            state: machine.state.to_owned(),
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
        let files = kubelet::FILES.map(|(path, name)| format!("{name} of {path}"));
        notes.push(format!(
            "no flags of the kubelet found in {}, so it is not changed",
            files.join(", ")
        ));
    }

    notes
}

fn components(args: &EditArgs) -> Vec<Component> {
    let wanted = match args.component.as_slice() {
        [] => NodeComponent::value_variants(),
        wanted => wanted,
    };
    wanted.iter().map(|component| component_of(*component)).collect()
}

fn plans(args: &EditArgs, machine: &Machine<'_>, migration: &Migration<'_>) -> Result<Vec<Plan>, Error> {
    let components = components(args);
    let mut plans = manifests::plan(machine, &args.manifests, migration, &components)?;
    if components.contains(&Component::Kubelet) {
        plans.extend(kubelet::plan(machine, migration)?);
    }
    if plans.is_empty() {
        return Err(Error::Nothing {
            folder: args.manifests.clone(),
            what: components
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" or "),
            kubelet: kubelet::KUBEADM_FLAGS,
        });
    }

    Ok(plans)
}

const fn component_of(component: NodeComponent) -> Component {
    match component {
        NodeComponent::KubeControllerManager => Component::KubeControllerManager,
        NodeComponent::KubeApiserver => Component::KubeApiserver,
        NodeComponent::Kubelet => Component::Kubelet,
    }
}
