//! The output.

use std::fmt::Write as _;
use std::io::{self, Write};

use similar::TextDiff;

use super::file::{Plan, Status};
use crate::args::MachineArgs;
use crate::mutate::report::printable;

/// Prints what happened to each file, the differences of a dry run, and the next steps.
pub(super) fn write(plans: &[Plan], heading: &str, args: &MachineArgs, out: &mut dyn Write) -> io::Result<()> {
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
pub(super) fn before_error(plans: &[Plan], out: &mut dyn Write) -> io::Result<()> {
    let is_changed = |plan: &&Plan| matches!(plan.status, Status::Changed | Status::Restored);
    for plan in plans.iter().filter(is_changed) {
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
    let is_changed = |plan: &&Plan| matches!(plan.status, Status::Changed | Status::Restored);
    let changed: Vec<&Plan> = plans.iter().filter(is_changed).collect();
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
