//! One shell per run that kills the run's children should the run itself be killed.
//!
//! It lives in a process group of its own, so that Ctrl-C at a terminal does not end it before its work. It reads the
//! children from a pipe. When the pipe closes, the run has ended, and every process group that is still in its list is
//! killed. Rust opens pipes close-on-exec, so no child can hold this one open.

use std::io::{Error, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
groups=' '
while read -r verb group; do
    case $verb in
    add) groups="$groups$group " ;;
    remove) groups="${groups%% $group *} ${groups#* $group }" ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

static GUARD: Mutex<Option<Child>> = Mutex::new(None);

/// Makes sure that the guard runs.
pub(super) fn ready() -> Result<(), Error> {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        *guard = Some(command.process_group(0).spawn()?);
    }

    Ok(())
}

/// Puts a process group on the guard's list.
pub(super) fn add(group: i32) -> Result<(), Error> {
    tell("add", group)
}

/// Takes a process group off the list: it has ended, and its number may be given out again.
pub(super) fn remove(group: i32) {
    if let Err(error) = tell("remove", group) {
        tracing::warn!(%error, group, "the guard of the children cannot be told");
    }
}

fn tell(verb: &str, group: i32) -> Result<(), Error> {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    match guard.as_mut().and_then(|child| child.stdin.as_mut()) {
        Some(pipe) => writeln!(pipe, "{verb} {group}"),
        None => Err(Error::other("the guard was not started")),
    }
}
