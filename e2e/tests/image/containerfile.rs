//! The image that an engine builds from the `Containerfile` is that of `image/build`. The engine is buildah.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::{Value, json};

use super::root::leave_out;
use super::{Image, dynamic_program, list, stand_ins};

const REVISION: &str = "0123abcd";
/// buildah as root writes a cache below `/var/lib`, which no option moves: it gets an empty folder there. The folder of the
/// program has to stay, wherever it is.
const SCRIPT: &str = r#"
set -euo pipefail
prefix=$1 run=$2 containerfile=$3 context=$4 version=$5 revision=$6
mkdir "$run/prefix" "$run/tmp"
mount --rbind "$prefix" "$run/prefix"
mount -t tmpfs none /var/lib
export HOME=$run TMPDIR=$run/tmp
for folder in "$run"/prefix/lib/*-linux-gnu "$run"/prefix/usr/lib/*-linux-gnu; do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LD_LIBRARY_PATH
buildah() {
    "$run/prefix/usr/bin/buildah" --storage-driver=vfs --root="$run/storage" --runroot="$run/state" "$@"
}
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$run/policy.json"
buildah bud --isolation=chroot --timestamp=0 --signature-policy="$run/policy.json" --file="$containerfile" \
    --build-arg=VERSION="$version" --build-arg=REVISION="$revision" --tag=localhost/outrigger "$context"
buildah push --signature-policy="$run/policy.json" localhost/outrigger "oci:$run/oci"
"#;

/// The reason why this machine cannot run buildah.
fn impossible() -> Option<String> {
    let script = repository::root().join("e2e/tools/buildah-possible");
    let run = Command::new(script).output().expect("bash");
    if run.status.success() {
        return None;
    }
    let reason = String::from_utf8_lossy(&run.stdout).trim().to_owned();
    assert!(!reason.is_empty(), "{run:?}");
    Some(reason)
}

/// The image of buildah, in a folder of its own.
struct OfBuildah {
    folder: tempfile::TempDir,
}

impl OfBuildah {
    /// `root` is the root filesystem that `image/build` wrote.
    async fn build(root: &Path) -> Self {
        let tools = Tools::load(&[Tool::Buildah]).await.expect("tools");
        let program = tools.path(Tool::Buildah).expect("built");
        let prefix = program.ancestors().nth(3).expect("PREFIX/usr/bin/buildah");
        let folder = tempfile::tempdir().expect("a folder");

        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", SCRIPT, "bash"]);
        command.args([prefix, folder.path()]);
        command.arg(repository::root().join("image/Containerfile"));
        command.arg(root.parent().expect("the context"));
        command.args([env!("CARGO_PKG_VERSION"), REVISION]);
        let run = command.output().expect("unshare");

        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        Self { folder }
    }

    fn blob(&self, digest: &Value) -> PathBuf {
        let digest = digest.as_str().expect("a digest").replace(':', "/");
        self.folder.path().join("oci/blobs").join(digest)
    }

    fn json(&self, digest: &Value) -> Value {
        serde_json::from_str(&fs::read_to_string(self.blob(digest)).expect("a blob")).expect("JSON")
    }

    fn manifest(&self) -> Value {
        let index = fs::read_to_string(self.folder.path().join("oci/index.json")).expect("the index");
        let index: Value = serde_json::from_str(&index).expect("JSON");
        self.json(&index["manifests"][0]["digest"])
    }
}

/// The only layer of an image, unpacked.
fn unpack(layer: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(layer).arg("-C").arg(folder.path());
    let run = tar.output().expect("tar");
    assert!(run.status.success(), "{run:?}");
    folder
}

fn sorted(mut files: Vec<String>) -> Vec<String> {
    files.sort();
    files
}

#[tokio::test]
async fn buildah_builds_the_same_files_and_the_same_configuration_from_the_containerfile() {
    if let Some(reason) = impossible() {
        return leave_out("image::containerfile", &reason);
    }
    let revision = format!("--revision={REVISION}");
    let ours = Image::build(stand_ins(&dynamic_program()).path(), &[&revision]);

    let theirs = OfBuildah::build(&ours.root()).await;

    let manifests = [ours.manifest(), theirs.manifest()];
    for manifest in &manifests {
        assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1), "{manifest}");
    }
    let layers = [
        ours.blob(&manifests[0]["layers"][0]["digest"]),
        theirs.blob(&manifests[1]["layers"][0]["digest"]),
    ];
    // Modes, owners, times and links.
    assert_eq!(sorted(list(&layers[1])), sorted(list(&layers[0])));
    let [our_files, their_files] = layers.map(|layer| unpack(&layer));
    let mut diff = Command::new("diff");
    diff.args(["--recursive", "--no-dereference"]);
    let run = diff
        .args([our_files.path(), their_files.path()])
        .output()
        .expect("diff");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));

    let mut config = theirs.json(&manifests[1]["config"]["digest"]);
    let label = config["config"]["Labels"].as_object_mut().expect("labels");
    assert!(label.remove("io.buildah.version").is_some(), "buildah adds its version");
    // Without the field it is the same folder: https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md
    config["config"]["WorkingDir"] = json!("/");
    for field in ["architecture", "config", "created", "os"] {
        assert_eq!(config[field], ours.config()[field], "{field}");
    }
}
