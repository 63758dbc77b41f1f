//! `provenance.json`: a predicate of SLSA 1.0. `cosign attest` adds the type of the statement and the digest of the image.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{ARCHITECTURE, Image, build_command, dynamic_program, stand_ins};

const BUILDER: &str = "https://ci.example.com/outrigger";
const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

fn sha256(path: &str) -> String {
    let run = Command::new("sha256sum").arg(Path::new("..").join(path)).output();
    let printed = String::from_utf8(run.expect("sha256sum").stdout).expect("text");
    printed.split(' ').next().expect("a digest").to_owned()
}

#[test]
fn the_provenance_names_the_builder_and_the_sources() {
    let programs = stand_ins(&dynamic_program());
    let revision = format!("--revision={REVISION}");

    let image = Image::build(programs.path(), &["--builder", BUILDER, &revision]);

    let text = fs::read_to_string(image.path("provenance.json")).expect("the provenance");
    let provenance: Value = serde_json::from_str(&text).expect("JSON");
    let source = |name: &str| json!({"name": name, "digest": {"sha256": sha256(name)}});
    assert_eq!(
        provenance,
        json!({
            "buildDefinition": {
                "buildType": "https://outrigger.dev/make-image/v1",
                "externalParameters": {"architectures": [ARCHITECTURE], "revision": REVISION},
                "resolvedDependencies": [
                    {"name": "outrigger", "digest": {"gitCommit": REVISION}},
                    source("Cargo.lock"),
                    source("rust-toolchain.toml"),
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        })
    );
}

#[test]
fn the_builder_does_not_change_the_digest_and_an_older_provenance_is_removed() {
    let programs = stand_ins(&dynamic_program());
    let image = Image::build(programs.path(), &["--builder", BUILDER]);
    assert!(image.path("provenance.json").is_file());

    let run = build_command(programs.path(), &image.path(""))
        .output()
        .expect("python3");

    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), image.digest);
    assert!(!image.path("provenance.json").exists(), "it describes another build");
}
