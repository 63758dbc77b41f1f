//! The image that `image/build` writes.
//!
//! | aspect | file |
//! |---|---|
//! | `image/check`, the check before a release | `check.rs` |
//! | an engine builds the same from the `Containerfile` | `containerfile.rs` |
//! | files, modes and owners, configuration, digests | `layout.rs` |
//! | the texts of the licences of crates and packages | `licences.rs` |
//! | the bill of materials agrees with Cargo.lock | `materials.rs` |
//! | who built it from which sources | `provenance.rs` |
//! | push to a registry and pull from it | `registry.rs` |
//! | the programs run with nothing else than the image's files | `root.rs` |
//!
//! Only `root.rs` and one test of `check.rs` need our programs. The other tests put programs in their place that are at hand.

#![allow(clippy::expect_used, clippy::panic, reason = "test helpers")]

mod check;
mod containerfile;
mod layout;
mod licences;
mod materials;
mod provenance;
mod registry;
mod root;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::Value;

const PROGRAMS: [&str; 3] = ["outrigger", "outrigger-manager", "outrigger-webhook"];
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// A folder with a program under the names of ours.
fn stand_ins(program: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in PROGRAMS {
        fs::copy(program, folder.path().join(name)).expect("copied");
    }
    folder
}

/// Go links it without libraries.
async fn static_program() -> PathBuf {
    let tools = Tools::load(&[Tool::Crane]).await.expect("tools");
    tools.path(Tool::Crane).expect("built").to_owned()
}

fn dynamic_program() -> PathBuf {
    PathBuf::from("/bin/true")
}

fn build_command(programs: &Path, output: &Path) -> Command {
    let mut command = Command::new(repository::root().join("image/build"));
    command
        .arg(format!("--programs={ARCHITECTURE}={}", programs.display()))
        .arg(format!("--output={}", output.display()))
        .env_remove("SOURCE_DATE_EPOCH");
    command
}

/// An image in a folder of its own.
struct Image {
    folder: tempfile::TempDir,
    digest: String,
}

impl Image {
    fn build(programs: &Path, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run = build_command(programs, folder.path()).args(more).output();
        let run = run.expect("python3 runs image/build");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let digest = fs::read_to_string(folder.path().join("digest")).expect("the digest");
        let digest = digest.trim().to_owned();
        assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), digest);
        Self { folder, digest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path(ARCHITECTURE).join("rootfs")
    }

    /// The file of a blob in the layout.
    fn blob(&self, digest: &Value) -> PathBuf {
        let digest = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        self.path("oci/blobs/sha256").join(digest.expect("a digest"))
    }

    fn json(&self, digest: &Value) -> Value {
        let text = fs::read_to_string(self.blob(digest)).expect("a blob");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The manifest of the only architecture.
    fn manifest(&self) -> Value {
        let index = self.json(&Value::from(self.digest.as_str()));
        self.json(&index["manifests"][0]["digest"])
    }

    fn config(&self) -> Value {
        self.json(&self.manifest()["config"]["digest"])
    }

    /// The bill of materials.
    fn bill(&self) -> Value {
        let text = fs::read_to_string(self.root().join("usr/local/share/sbom/outrigger.cdx.json"));
        serde_json::from_str(&text.expect("the bill")).expect("JSON")
    }

    /// The files of the layer.
    fn files(&self) -> Vec<String> {
        list(&self.blob(&self.manifest()["layers"][0]["digest"]))
    }
}

/// Mode, owner, time and path of each file of a layer, and the target of links.
fn list(layer: &Path) -> Vec<String> {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--utc", "--full-time", "-tvzf"])
        .arg(layer);
    let listed = tar.output().expect("tar");
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).expect("text");
    text.lines().map(without_size).collect()
}

/// `-rw-r--r-- 0/0 27 1970-01-01 00:00:00 etc/group`
fn without_size(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.len() >= 6, "{line}");
    words.remove(2);
    words.join(" ")
}
