//! The program dies before each change of the disk.

#![allow(clippy::unwrap_used, reason = "tests may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::*;
use crate::args::{Args, Command, NodeCommand};

const PREPARE: &str = "Prepare";
const MIGRATE: &str = "Migrate";

/// A machine of kubeadm in a temporary folder.
struct TestMachine(tempfile::TempDir);

fn files() -> PathBuf {
    PathBuf::from("tests/files")
}

impl TestMachine {
    fn new() -> Self {
        Self::of(&files().join("machine"))
    }

    fn of(machine: &Path) -> Self {
        // In memory, where a sync costs nothing, if there is such a folder.
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        copy(machine, folder.path());
        Self(folder)
    }

    fn again(&self) -> Self {
        Self::of(self.0.path())
    }

    fn command(&self, words: &[&str]) -> NodeCommand {
        let rootfs = format!("--rootfs={}", self.0.path().display());
        let all = ["outrigger", "node"]
            .iter()
            .chain(words)
            .copied()
            .chain([rootfs.as_str()]);
        let Command::Node(command) = Args::try_parse_from(all).unwrap().command else {
            unreachable!("the words name it");
        };
        command
    }

    fn edit(&self, phase: &str, disk: &mut Disk<'_>) -> Result<End, Failure> {
        self.reported_edit(phase, &mut Vec::new(), disk)
    }

    fn reported_edit(&self, phase: &str, out: &mut Vec<u8>, disk: &mut Disk<'_>) -> Result<End, Failure> {
        let migration = files().join("kubeadm-migration.yaml");
        let migration = format!("--migration={}", migration.display());
        let phase = format!("--phase={phase}");
        let NodeCommand::Edit(args) = self.command(&["edit", &migration, &phase, "--prepared", "--back"]) else {
            unreachable!("the words name it");
        };
        let found = super::migration(&args, &mut io::empty())?;
        edit_on(&args, &found, out, disk)
    }

    fn undo(&self, disk: &mut Disk<'_>) -> Result<End, Failure> {
        let NodeCommand::Undo(args) = self.command(&["undo"]) else {
            unreachable!("the words name it");
        };
        undo_on(&args, &mut Vec::new(), disk)
    }

    /// Manifests and kubelet files with temporary ones, without the records.
    fn texts(&self) -> BTreeMap<PathBuf, String> {
        let mut texts = BTreeMap::new();
        read_below(self.0.path(), &mut texts);
        texts.retain(|path, _| !path.starts_with(self.0.path().join("etc/kubernetes/outrigger")));
        texts
            .into_iter()
            .map(|(path, text)| (path.strip_prefix(self.0.path()).unwrap().to_owned(), text))
            .collect()
    }

    fn without_temporary(&self) -> BTreeMap<PathBuf, String> {
        let mut texts = self.texts();
        texts.retain(|path, _| !path.file_name().unwrap().to_string_lossy().starts_with(".outrigger-"));
        texts
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn read_below(folder: &Path, texts: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => read_below(&entry.path(), texts),
            false => drop(texts.insert(entry.path(), fs::read_to_string(entry.path()).unwrap())),
        }
    }
}

fn alive() -> impl FnMut() -> io::Result<()> {
    || Ok(())
}

/// Runs until the process would die: from that change on, no further one is made.
fn until<T>(death: usize, work: impl FnOnce(&mut Disk<'_>) -> T) -> (T, usize) {
    let mut changes = 0;
    let mut before = || {
        changes += 1;
        if changes > death {
            return Err(io::Error::other("the process has died"));
        }
        Ok(())
    };
    let result = work(&mut Disk::new(&mut before));
    (result, changes)
}

/// Every file has the text of one of the states. In the manifest folder, no other file appears.
fn assert_one_of(copy: &TestMachine, states: &[&BTreeMap<PathBuf, String>], when: &str) {
    let found = copy.texts();
    for (path, text) in &copy.without_temporary() {
        assert!(
            states.iter().any(|state| state.get(path) == Some(text)),
            "{when}: {} is neither old nor new:\n{text}",
            path.display()
        );
    }
    let known = states[0];
    for path in found.keys().filter(|path| !known.contains_key(*path)) {
        let name = path.file_name().unwrap().to_string_lossy();
        assert!(name.starts_with(".outrigger-"), "{when}: {}", path.display());
        assert!(
            !path.starts_with("etc/kubernetes/manifests"),
            "{when}: the kubelet sees {}",
            path.display()
        );
    }
    assert_eq!(copy.without_temporary().len(), known.len(), "{when}: a file is gone");
}

/// A machine in the form of the last phase.
fn machine_after(phases: &[&str]) -> TestMachine {
    let copy = TestMachine::new();
    for phase in phases {
        copy.edit(phase, &mut Disk::new(&mut alive())).unwrap();
    }
    copy
}

/// Kills an edit from one phase to the next at every change, then tries each way on.
fn killed_edit(before: &[&str], phase: &str) {
    let (original, start) = (TestMachine::new().texts(), machine_after(before));
    let (old, new) = (start.texts(), machine_after(&[before, &[phase]].concat()).texts());
    assert_ne!(old, new);

    for death in 0.. {
        let when = format!("{before:?} to {phase}, killed before change {}", death + 1);
        let copy = start.again();
        let (result, changes) = until(death, |disk| copy.edit(phase, disk));
        assert_one_of(&copy, &[&old, &new], &when);

        let undone = copy.again();
        assert_eq!(undone.undo(&mut Disk::new(&mut alive())).unwrap(), End::Success);
        assert_eq!(undone.without_temporary(), original, "{when}, then undone");

        copy.edit(phase, &mut Disk::new(&mut alive())).unwrap();
        assert_eq!(copy.texts(), new, "{when}, then edited again");
        copy.undo(&mut Disk::new(&mut alive())).unwrap();
        assert_eq!(copy.texts(), original, "{when}, then edited again and undone");

        if result.is_ok() {
            assert!(changes >= 12, "only {changes} changes");
            return;
        }
    }
}

#[test]
fn an_edit_killed_at_any_moment_leaves_the_old_or_the_new_file_and_can_go_on_or_back() {
    killed_edit(&[], PREPARE);
    killed_edit(&[PREPARE], MIGRATE);
    killed_edit(&[PREPARE, MIGRATE], PREPARE);
    killed_edit(&[PREPARE, MIGRATE], "Complete");
}

#[test]
fn an_undo_killed_at_any_moment_leaves_the_old_or_the_new_file_and_can_go_on_or_forward() {
    let (original, start) = (TestMachine::new().texts(), machine_after(&["Complete"]));
    let edited = start.texts();
    for death in 0.. {
        let when = format!("undo killed before change {}", death + 1);
        let copy = start.again();
        let (result, _) = until(death, |disk| copy.undo(disk));
        assert_one_of(&copy, &[&original, &edited], &when);

        let forward = copy.again();
        forward.edit("Complete", &mut Disk::new(&mut alive())).unwrap();
        assert_eq!(forward.without_temporary(), edited, "{when}, then edited");

        assert_eq!(copy.undo(&mut Disk::new(&mut alive())).unwrap(), End::Success);
        assert_eq!(copy.without_temporary(), original, "{when}, then undone again");

        if result.is_ok() {
            return;
        }
    }
}

/// The flag is in a drop-in, so the edit creates an environment file.
#[test]
fn a_file_that_is_created_is_there_or_not_at_any_moment_and_undo_removes_it() {
    let start = TestMachine::new();
    let created = start.0.path().join("etc/default/kubelet");
    fs::remove_file(&created).unwrap();
    let drop_in = start
        .0
        .path()
        .join("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf");
    let text = fs::read_to_string(&drop_in).unwrap();
    let flags = "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=aws";
    fs::write(&drop_in, text.replace("[Service]", flags)).unwrap();

    let original = start.texts();
    let edited = start.again();
    edited.edit(MIGRATE, &mut Disk::new(&mut alive())).unwrap();
    let (new, path) = (edited.texts(), Path::new("etc/default/kubelet"));
    let external = Some("KUBELET_EXTRA_ARGS=\"--cloud-provider=external\"\n");
    assert_eq!(new.get(path).map(String::as_str), external);

    for death in 0.. {
        let when = format!("killed before change {}", death + 1);
        let copy = start.again();
        let (result, _) = until(death, |disk| copy.edit(MIGRATE, disk));
        let found = copy.without_temporary();
        assert!(
            [None, external].contains(&found.get(path).map(String::as_str)),
            "{when}"
        );

        let undone = copy.again();
        undone.undo(&mut Disk::new(&mut alive())).unwrap();
        assert_eq!(undone.without_temporary(), original, "{when}, then undone");
        copy.edit(MIGRATE, &mut Disk::new(&mut alive())).unwrap();
        assert_eq!(copy.texts(), new, "{when}, then edited again");
        if result.is_ok() {
            break;
        }
    }
    for death in 0.. {
        let copy = edited.again();
        let (result, _) = until(death, |disk| copy.undo(disk));
        copy.undo(&mut Disk::new(&mut alive())).unwrap();
        assert_eq!(
            copy.without_temporary(),
            original,
            "undo killed before change {}",
            death + 1
        );
        if result.is_ok() {
            return;
        }
    }
}

/// Another program writes the file after the plan: its text stays.
#[test]
fn a_file_that_changes_after_the_plan_stays() {
    let copy = TestMachine::new();
    let path = copy
        .0
        .path()
        .join("etc/kubernetes/manifests/kube-controller-manager.yaml");
    let mut changes = 0;
    let mut before = || {
        changes += 1;
        // After the folder of the records was created.
        if changes == 4 {
            fs::write(&path, "apiVersion: v1\nkind: Pod\n").unwrap();
        }
        Ok(())
    };
    let error = copy.edit(PREPARE, &mut Disk::new(&mut before)).unwrap_err();
    assert!(
        error.to_string().contains("has changed while this command was running"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\nkind: Pod\n");
    let manifests = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(manifests, 3);
    assert!(!copy.texts().keys().any(|path| path.to_string_lossy().contains(".tmp")));
}

#[test]
fn files_that_are_changed_before_an_error_are_reported() {
    let manager = Path::new("etc/kubernetes/manifests/kube-controller-manager.yaml");
    let original = TestMachine::new().texts();
    let mut partial = 0;
    for death in 0.. {
        let (copy, mut out) = (TestMachine::new(), Vec::new());
        let (result, _) = until(death, |disk| copy.reported_edit("Complete", &mut out, disk));
        let out = String::from_utf8(out).unwrap();
        // The API server's manifest is changed first, and the kubelet's file last.
        if result.is_err() && copy.texts().get(manager) != original.get(manager) {
            assert!(
                out.contains("changed /etc/kubernetes/manifests/kube-apiserver.yaml\n"),
                "{out}"
            );
            partial += 1;
        }
        if result.is_ok() {
            break;
        }
    }
    assert!(partial > 5, "{partial}");
}

#[test]
fn two_processes_do_not_change_one_machine() {
    let copy = TestMachine::new();
    let state = copy.0.path().join("etc/kubernetes/outrigger");
    fs::create_dir(&state).unwrap();
    let folder = File::open(&state).unwrap();
    folder.lock().unwrap();
    let error = copy.edit(PREPARE, &mut Disk::new(&mut alive())).unwrap_err();
    assert!(error.to_string().contains("another outrigger"), "{error}");
}
