//! The texts of the licences of the crates and Debian packages in the image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Image, build_command, dynamic_program, stand_ins};

const FOLDER: &str = "licenses/third-party";
/// A phrase of the text of a licence that is the only one of a crate.
const PHRASES: [(&str, &str); 2] = [
    ("MIT", "Permission is hereby granted, free of charge"),
    ("Apache-2.0", "Apache License"),
];

/// The index: below the line of each crate, the lines with its texts.
fn index(image: &Image) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(image.root().join(FOLDER).join("crates.txt")).expect("the index");
    let mut crates = BTreeMap::<String, Vec<String>>::new();
    let mut last = String::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(text) => crates.get_mut(&last).expect("a crate").push(text.to_owned()),
            None => {
                last = line.to_owned();
                crates.insert(last.clone(), Vec::new());
            }
        }
    }
    // Sentences.
    crates.retain(|_, texts| !texts.is_empty());
    crates
}

/// The path of the text in a line of the index, beside the index.
fn path(line: &str) -> &str {
    let (_, path) = line.split_once(": ").expect("a name and a path");
    path.split(',').next().unwrap_or_default()
}

fn read(image: &Image, path: &str) -> String {
    let file = image.root().join(FOLDER).join(path);
    let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    // Names of authors have several encodings. One text has a line end within the phrase.
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_crate_of_the_bill_has_the_text_of_its_licence() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);
    let index = index(&image);

    let bill = image.bill();
    let components = bill["components"].as_array().expect("components").iter();
    let linked = components.filter(|component| {
        let name = component["name"].as_str().unwrap_or_default();
        let of = component["bom-ref"].as_str().unwrap_or_default();
        name == "rust-std" || of.starts_with("pkg:cargo/") && !name.starts_with("outrigger-")
    });

    let mut count = 0;
    for component in linked {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let licence = text(&component["licenses"][0]["expression"]);
        let heading = format!(
            "{} {}: {licence}",
            text(&component["name"]),
            text(&component["version"])
        );
        let found = index.range(heading.clone()..).next();
        let (_, lines) = found
            .filter(|(line, _)| **line == heading || line.starts_with(&format!("{heading} (")))
            .unwrap_or_else(|| panic!("{heading} has no text"));
        let texts: Vec<String> = lines.iter().map(|line| read(&image, path(line))).collect();
        if let Some((_, phrase)) = PHRASES.iter().find(|(name, _)| *name == licence) {
            assert!(texts.iter().any(|text| text.contains(phrase)), "{heading}: {lines:?}");
        }
        count += 1;
    }
    assert_eq!(count, index.len(), "the index has other crates");
}

#[test]
fn equal_texts_are_one_file_and_each_file_is_in_the_index() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);

    let index = index(&image);
    let named: BTreeSet<&str> = index.values().flatten().map(|line| path(line)).collect();

    let folder = image.root().join(FOLDER);
    let files = fs::read_dir(folder.join("texts")).expect("a folder");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    let found: BTreeSet<String> = files
        .iter()
        .map(|file| file.strip_prefix(&folder).expect("below").display().to_string())
        .collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), named);
    let contents: BTreeSet<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a text")).collect();
    assert_eq!(contents.len(), files.len(), "a text is there twice");
    assert!(files.len() > 100 && files.len() < index.len(), "{} texts", files.len());
}

/// Some packages have no text, for example those of kube. The index says of which crate the text is.
#[test]
fn a_crate_without_a_text_gets_that_of_another_crate_with_the_same_licence() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);

    let index = index(&image);
    let of_another = |name: &str| {
        let (_, lines) = index
            .iter()
            .find(|(line, _)| line.starts_with(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{name} is not in the index"));
        lines.clone()
    };

    let lines = of_another("kube");
    assert!(
        matches!(lines.as_slice(), [line] if line.starts_with("Apache-2.0: ") && line.contains(", of ")),
        "{lines:?}"
    );
    let text = read(&image, path(&lines[0]));
    assert!(text.contains("Version 2.0, January 2004"), "{text}");
    // The library of Rust is no package, and libc has the same authors.
    let lines = of_another("rust-std");
    assert!(
        lines.len() == 2 && lines.iter().all(|line| line.contains(", of libc ")),
        "{lines:?}"
    );
    assert!(read(&image, path(&lines[0])).contains("The Rust Project Developers"));
}

/// Stand-ins for the files of Rust's target and of the package `musl`, which `make image LIBC=musl` names.
fn musl(library: &[u8], has_copyright: bool) -> (tempfile::TempDir, [String; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, notices) = (folder.path().join("libc.a"), folder.path().join("COPYRIGHT"));
    fs::write(&archive, library).expect("written");
    if has_copyright {
        fs::write(&notices, "the notices of musl").expect("written");
    }
    let options = [
        format!("--musl={}", archive.display()),
        format!("--musl-copyright={}", notices.display()),
    ];
    (folder, options)
}

#[test]
fn an_image_with_musl_has_its_notices_and_names_its_version() {
    let (_folder, options) = musl(b"!<arch>\n\x001.2.5\0", true);
    let image = Image::build(
        stand_ins(&dynamic_program()).path(),
        &options.each_ref().map(String::as_str),
    );

    assert_eq!(read(&image, "musl.txt"), "the notices of musl");
    let bill = image.bill();
    let components = bill["components"].as_array().expect("components");
    let found: Vec<_> = components.iter().filter(|one| one["name"] == "musl").collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["purl"], "pkg:generic/musl@1.2.5");
    assert_eq!(found[0]["licenses"][0]["expression"], "MIT");
}

#[test]
fn a_musl_without_version_or_notices_is_refused() {
    let cases: [(&[u8], bool, &str); 2] = [
        (b"!<arch>\n", true, "does not name one version of musl"),
        (b"\x001.2.5\0", false, "install the package musl"),
    ];
    for (library, has_copyright, reason) in cases {
        let (folder, options) = musl(library, has_copyright);
        let programs = stand_ins(&dynamic_program());
        let run = build_command(programs.path(), &folder.path().join("image"))
            .args(options)
            .output();
        let run = run.expect("python3 runs image/build");
        let message = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && message.contains(reason), "{message}");
    }
}

#[test]
fn the_copyright_file_of_each_debian_package_is_in_the_image() {
    let image = Image::build(stand_ins(&dynamic_program()).path(), &[]);

    let bill = image.bill();
    let components = bill["components"].as_array().expect("components").iter();
    for component in components {
        let name = component["name"].as_str().expect("a name");
        let of = component["bom-ref"].as_str().expect("a reference");
        let file = Path::new("/usr/share/doc").join(name).join("copyright");
        if of.starts_with("pkg:deb/") && file.is_file() {
            let copied = image.root().join(FOLDER).join(format!("debian/{name}.txt"));
            assert_eq!(
                fs::read(&copied).expect("copied"),
                fs::read(file).expect("the file"),
                "{name}"
            );
        }
    }
}
