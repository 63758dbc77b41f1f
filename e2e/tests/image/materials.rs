//! The bill of materials agrees with Cargo.lock, and with the files of the image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{Image, dynamic_program, stand_ins};

/// A package of Cargo.lock: its checksum, and the names of its dependencies.
#[derive(Debug, Default)]
struct Locked {
    checksum: Option<String>,
    dependencies: Vec<String>,
}

/// By name and version.
fn locked() -> BTreeMap<(String, String), Locked> {
    let text = fs::read_to_string("../Cargo.lock").expect("Cargo.lock");
    let packages = text.split("[[package]]").skip(1);
    let packages = packages.map(|package| {
        let field = |name: &str| {
            let line = package
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name} = \"")));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        let list = package.split_once("dependencies = [").map_or("", |(_, list)| list);
        let names = list.lines().filter_map(|line| line.trim().strip_prefix('"'));
        let names = names.map(|line| line.trim_end_matches(['"', ',']).to_owned());
        let locked = Locked {
            checksum: field("checksum"),
            dependencies: names.collect(),
        };
        (
            (field("name").expect("a name"), field("version").expect("a version")),
            locked,
        )
    });
    packages.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_crates_are_those_of_the_lock_file_with_its_checksums() {
    let programs = stand_ins(&dynamic_program());
    let image = Image::build(programs.path(), &[]);

    let bill = image.bill();

    let locked = locked();
    let components = bill["components"].as_array().expect("components");
    let crates: BTreeMap<(String, String), &Value> = components
        .iter()
        .filter(|component| text(&component["bom-ref"]).starts_with("pkg:cargo/"))
        .map(|component| ((text(&component["name"]), text(&component["version"])), component))
        .collect();
    assert!(crates.len() > 200, "{} crates", crates.len());
    for (name, component) in &crates {
        let locked = locked
            .get(name)
            .unwrap_or_else(|| panic!("{name:?} is not in Cargo.lock"));
        let hash = component["hashes"][0]["content"].as_str();
        assert_eq!(hash, locked.checksum.as_deref(), "{name:?}");
        assert!(
            !text(&component["licenses"][0]["expression"]).is_empty(),
            "{name:?} has no licence"
        );
    }

    let names: BTreeSet<&str> = crates.keys().map(|(name, _)| name.as_str()).collect();
    // Of each program, by Cargo.lock: a crate that it needs, and crates that only tests need.
    for needed in [
        "outrigger-manager",
        "aws-sdk-ec2",
        "outrigger-webhook",
        "axum",
        "outrigger-migrate",
        "similar",
    ] {
        assert!(names.contains(needed), "no {needed}");
    }
    for (name, locked) in &locked {
        let is_ours = ["outrigger-manager", "outrigger-webhook", "outrigger-migrate"].contains(&name.0.as_str());
        let own = locked
            .dependencies
            .iter()
            .filter(|name| is_ours && name.starts_with("outrigger-"));
        for dependency in own {
            assert!(names.contains(dependency.as_str()), "{name:?} needs {dependency}");
        }
    }
    for unneeded in ["proptest", "insta", "outrigger-e2e", "syn", "windows-sys"] {
        assert!(!names.contains(unneeded), "{unneeded} is in no program");
    }
}

#[test]
fn the_graph_and_the_files_are_complete() {
    let programs = stand_ins(&dynamic_program());
    let image = Image::build(programs.path(), &[]);

    let bill = image.bill();

    let components = bill["components"].as_array().expect("components");
    let known: BTreeSet<String> = components.iter().map(|component| text(&component["bom-ref"])).collect();
    assert_eq!(known.len(), components.len(), "an entry is there twice");
    let graph = bill["dependencies"].as_array().expect("a graph");
    let edges = graph
        .iter()
        .flat_map(|node| node["dependsOn"].as_array().expect("a list"));
    assert!(edges.clone().count() > 500, "{} edges", edges.clone().count());
    for end in edges.chain(graph.iter().map(|node| &node["ref"])) {
        assert!(known.contains(end.as_str().expect("a name")), "{end}");
    }

    assert!(known.contains("file:/etc/ssl/certs/ca-certificates.crt"), "{known:?}");
    assert!(
        known
            .iter()
            .any(|name| name.starts_with("file:") && name.contains("libc.so.")),
        "{known:?}"
    );
    assert!(
        known.iter().any(|name| name.starts_with("pkg:generic/rust-std@1.")),
        "{known:?}"
    );
    assert_eq!(bill["bomFormat"], "CycloneDX");
}
