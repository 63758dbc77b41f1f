//! The output of `outrigger node`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use outrigger_shared::migration::Phase;
use serde::Serialize;
use similar::TextDiff;

use super::file::{Plan, Status};
use crate::args::{MachineArgs, NodeOutput};
use crate::explain::printable;

const API_VERSION: &str = "cli.outrigger.dev/v1alpha1";
const KIND: &str = "NodeReport";

/// The migration, and its phases on this machine.
#[derive(Debug, Serialize)]
pub(super) struct PhaseStep<'a> {
    pub migration: &'a str,
    /// The latest phase of which a file has the form until now.
    pub from: Phase,
    pub to: Phase,
}

/// The parts of the output that are known before a file changes.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// The reason, beside each file.
    pub heading: String,
    /// `None`: the originals are restored.
    pub step: Option<PhaseStep<'a>>,
    pub notes: Vec<String>,
    pub machine: &'a MachineArgs,
}

/// The report as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    step: Option<&'a PhaseStep<'a>>,
    dry_run: bool,
    /// Whether a file was refused, so that none was changed.
    is_refused: bool,
    /// Whether an error has ended the command after these files.
    is_cut_off: bool,
    files: Vec<JsonFile<'a>>,
    notes: &'a [String],
    next: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonFile<'a> {
    path: &'a Path,
    result: &'static str,
    explanations: Vec<String>,
    /// Of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

impl Report<'_> {
    /// Says what will be done, before the first file is written.
    pub fn begin(&self, out: &mut dyn Write) -> io::Result<()> {
        if let (Some(step), NodeOutput::Text) = (&self.step, self.machine.output) {
            writeln!(out, "migration {}: from {} to {}", step.migration, step.from, step.to)?;
            out.flush()?;
        }

        Ok(())
    }

    /// Says what happened to each file, the differences of a dry run, and the next steps. `is_cut_off`: an error has ended the
    /// command after these files.
    pub fn end(&self, plans: &[Plan], is_cut_off: bool, out: &mut dyn Write) -> io::Result<()> {
        match self.machine.output {
            NodeOutput::Json => self.json(plans, is_cut_off, out)?,
            NodeOutput::Text if is_cut_off => print_changed(plans, out)?,
            NodeOutput::Text => self.text(plans, out)?,
        }

        out.flush()
    }

    fn json(&self, plans: &[Plan], is_cut_off: bool, out: &mut dyn Write) -> io::Result<()> {
        let is_refused = is_refused(plans);
        let is_only_planned = is_refused || self.machine.dry_run;
        let file = |plan| file_report(plan, is_only_planned, self.machine.dry_run);
        let json = Json {
            api_version: API_VERSION,
            kind: KIND,
            step: self.step.as_ref(),
            dry_run: self.machine.dry_run,
            is_refused,
            is_cut_off,
            files: plans.iter().map(file).collect(),
            notes: &self.notes,
            next: if is_refused {
                Vec::new()
            } else {
                next_steps(plans, self.machine)
            },
        };

        serde_json::to_writer_pretty(&mut *out, &json)?;
        writeln!(out)
    }

    fn text(&self, plans: &[Plan], out: &mut dyn Write) -> io::Result<()> {
        let is_refused = is_refused(plans);
        for plan in plans {
            let word = word(plan.status, is_refused || self.machine.dry_run);
            writeln!(out, "{word} {} ({})", plan.source.path.display(), self.heading)?;
            for explanation in &plan.explanations {
                writeln!(out, "  {}", printable(explanation))?;
            }
            if self.machine.dry_run {
                write!(out, "{}", difference(plan))?;
            }
        }

        if is_refused {
            writeln!(out, "No file was changed.")?;
        } else {
            for step in next_steps(plans, self.machine) {
                writeln!(out, "next: {step}")?;
            }
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }

        Ok(())
    }
}

fn is_refused(plans: &[Plan]) -> bool {
    plans.iter().any(|plan| plan.status == Status::Refused)
}

/// Prints the files that were changed before an error.
fn print_changed(plans: &[Plan], out: &mut dyn Write) -> io::Result<()> {
    for plan in plans.iter().filter(|plan| plan.is_changed()) {
        writeln!(out, "{} {}", word(plan.status, false), plan.source.path.display())?;
    }

    Ok(())
}

fn file_report(plan: &Plan, is_only_planned: bool, with_difference: bool) -> JsonFile<'_> {
    JsonFile {
        path: &plan.source.path,
        result: word(plan.status, is_only_planned),
        explanations: plan.explanations.iter().map(|text| printable(text)).collect(),
        difference: with_difference.then(|| difference(plan)),
    }
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
