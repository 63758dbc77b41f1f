//! A copy of a machine of kubeadm, on which the real binary runs.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Run, files, outrigger};

pub const MIGRATION: &str = "--migration=kubeadm-migration.yaml";

/// A copy of a machine.
pub struct Machine(pub tempfile::TempDir);

impl Machine {
    pub fn new() -> Self {
        let machine = Self::empty();
        copy(&files().join("machine"), machine.0.path());
        machine
    }

    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    pub fn run(&self, words: &[&str]) -> Run {
        let root = self.0.path().to_str().unwrap();
        let mut run = outrigger(&[&["node"], words, &["--rootfs", root]].concat());
        run.stdout = run.stdout.replace(root, "ROOT");
        run
    }

    pub fn edit(&self, words: &[&str]) -> Run {
        self.run(&[&["edit", MIGRATION], words].concat())
    }

    pub fn edited(&self, phase: &str) -> Run {
        let run = self.edit(&[&format!("--phase={phase}"), "--prepared"]);
        assert_eq!(run.code, Some(0), "{}", run.seen());
        run
    }

    pub fn edited_back(&self, phase: &str) -> Run {
        let run = self.edit(&[&format!("--phase={phase}"), "--prepared", "--back"]);
        assert_eq!(run.code, Some(0), "{}", run.seen());
        run
    }

    pub fn undone(&self) -> Run {
        let run = self.run(&["undo"]);
        assert_eq!(run.code, Some(0), "{}", run.seen());
        run
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}
