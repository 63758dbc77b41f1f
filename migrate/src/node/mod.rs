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
//! | atomic replacement | `disk.rs` |

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use outrigger_shared::component::Component;
use outrigger_shared::migration::{CloudProviderMigrationSpec, Mode, Phase};
use outrigger_webhook::decide::Migration;
use similar::TextDiff;

use self::disk::Disk;
use self::error::Error;
use self::file::{Plan, Record, Source, Status};
use crate::args::{COMPONENTS, EditArgs, MANIFESTS, MachineArgs, UndoArgs};
use crate::documents::Inputs;
use crate::end::{End, Failure};
use crate::explain::printable;
use crate::migrations::{self, Found};

mod disk;
mod env_file;
pub mod error;
mod file;
mod flags;
mod kubelet;
mod manifests;
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
    let heading = format!("migration {}, phase {}", found.name, spec.phase);
    let end = apply_all(&plans, machine, (&found.name, spec.phase), &heading, out, disk)?;
    for note in notes.into_iter().chain(missing(args, &plans)) {
        writeln!(out, "note: {note}")?;
    }
    Ok(end)
}

fn undo_on(args: &UndoArgs, out: &mut dyn Write, disk: &mut Disk<'_>) -> Result<End, Failure> {
    let machine = &args.machine;
    absolute("state", &machine.state)?;
    let records = Record::all(machine)?;
    if records.is_empty() {
        let state = machine.state.display();
        writeln!(out, "nothing to undo: {state} has no record of an edit")?;
        return Ok(End::Success);
    }

    let _lock = lock(machine, disk)?;
    let plans: Result<Vec<Plan>, Error> = records.iter().map(|record| undo_plan(args, record)).collect();
    apply_all(&plans?, machine, ("", Phase::InTree), "undo", out, disk)
}

/// Changes the files one after the other, unless one is refused, and reports them. If one fails, those before it are
/// reported.
fn apply_all(
    plans: &[Plan],
    machine: &MachineArgs,
    owner: (&str, Phase),
    heading: &str,
    out: &mut dyn Write,
    disk: &mut Disk<'_>,
) -> Result<End, Failure> {
    let is_refused = plans.iter().any(|plan| plan.status == Status::Refused);
    if !is_refused && !machine.dry_run {
        for (index, plan) in plans.iter().enumerate() {
            if let Err(error) = plan.apply(machine, owner, disk) {
                print_changed(plans.get(..index).unwrap_or_default(), out)?;
                return Err(error.into());
            }
        }
    }

    print(plans, heading, machine, out)?;
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

/// Prints what happened to each file, the differences of a dry run, and the next steps.
fn print(plans: &[Plan], heading: &str, args: &MachineArgs, out: &mut dyn Write) -> io::Result<()> {
    let is_refused = plans.iter().any(|plan| plan.status == Status::Refused);
    for plan in plans {
        let word = word(plan.status, is_refused || args.dry_run);
        writeln!(out, "{word} {} ({heading})", plan.source.path.display())?;
        for explanation in &plan.explanations {
            writeln!(out, "  {}", printable(explanation))?;
        }
        if args.dry_run {
            write!(out, "{}", difference(plan))?;
        }
    }

    if is_refused {
        writeln!(out, "No file was changed.")?;
        return out.flush();
    }

    for step in next_steps(plans, args) {
        writeln!(out, "next: {step}")?;
    }

    out.flush()
}

/// Prints the files that were changed before an error.
fn print_changed(plans: &[Plan], out: &mut dyn Write) -> io::Result<()> {
    for plan in plans.iter().filter(|plan| plan.is_changed()) {
        writeln!(out, "{} {}", word(plan.status, false), plan.source.path.display())?;
    }

    out.flush()
}

const fn word(status: Status, is_only_planned: bool) -> &'static str {
    match (status, is_only_planned) {
        (Status::Unchanged, _) => "unchanged",
        (Status::Refused, _) => "refused",
        (Status::Changed, false) => "changed",
        (Status::Changed, true) => "would change",
        (Status::Restored, false) => "restored",
        (Status::Restored, true) => "would restore",
    }
}

fn difference(plan: &Plan) -> String {
    let path = plan.source.path.display().to_string();
    let (before, after) = (&plan.source.current.text, &plan.written);
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().header(&path, &path).to_string()
}

/// The options that name this machine.
fn place(args: &MachineArgs) -> String {
    let mut place = String::new();
    for (flag, path, default) in [
        ("rootfs", &args.rootfs, "/"),
        ("state", &args.state, "/etc/kubernetes/outrigger"),
    ] {
        if path.as_os_str() != default {
            // Writing to a String cannot fail.
            let _ = write!(place, " --{flag}={}", path.display());
        }
    }

    place
}

fn next_steps(plans: &[Plan], args: &MachineArgs) -> Vec<String> {
    let changed: Vec<&Plan> = plans.iter().filter(|plan| plan.is_changed()).collect();
    if changed.is_empty() || args.dry_run {
        return Vec::new();
    }

    let mut steps = Vec::new();
    if changed.iter().any(|plan| plan.source.is_manifest()) {
        steps.push(
        "the kubelet restarts the static Pods of changed manifests by itself, in about 20 s; wait until they are Running \
         before you change the next machine: kubectl -n kube-system get pods -l tier=control-plane -o wide"
                .to_owned(),
        );
    }
    if changed.iter().any(|plan| !plan.source.is_manifest()) {
        steps.push("the kubelet reads its flags when it starts: systemctl restart kubelet".to_owned());
    }
    if changed.iter().any(|plan| plan.status == Status::Changed) {
        steps.push(format!("to go back: outrigger node undo{}", place(args)));
    }

    steps
}
