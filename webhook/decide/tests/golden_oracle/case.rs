//! A golden case as plain values: nothing of the webhook's own types.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

pub struct Case {
    pub name: String,
    pub input: Value,
    pub expected: Value,
}

/// `1.26.13` is `(26, 13)`.
pub type Version = (u64, u64);

impl Case {
    pub fn object(&self) -> &Value {
        &self.input["object"]
    }

    /// The object that is stored.
    pub fn result(&self) -> &Value {
        self.expected.get("object").unwrap_or(self.object())
    }

    pub fn outcome(&self) -> &str {
        self.expected["outcome"].as_str().unwrap()
    }

    pub fn kind(&self) -> &str {
        self.object()["kind"].as_str().unwrap()
    }

    pub fn group(&self) -> &str {
        let api_version = self.object()["apiVersion"].as_str().unwrap();
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub fn is_update(&self) -> bool {
        self.input["operation"] == "UPDATE"
    }

    pub fn migrations(&self) -> &Map<String, Value> {
        self.input["migrations"].as_object().unwrap()
    }

    /// The only migration, or the first.
    pub fn migration(&self) -> &Value {
        self.migrations().values().next().unwrap_or(&Value::Null)
    }

    pub fn spec(&self) -> &Value {
        &self.migration()["spec"]
    }

    pub fn has_downtime(&self) -> bool {
        self.spec()["downtime"] == true
    }

    /// Until the migration is prepared, the phases from Migrate on have the form of Prepare.
    pub fn phase(&self) -> &str {
        match self.spec()["phase"].as_str().unwrap() {
            "Migrate" | "Complete" if self.migration()["prepared"] != true && !self.has_downtime() => "Prepare",
            phase => phase,
        }
    }

    pub fn is_migrated(&self) -> bool {
        matches!(self.phase(), "Migrate" | "Complete")
    }

    pub fn has_profile(&self, profile: &str) -> bool {
        let targets = self.spec()["targets"].as_array();
        targets.into_iter().flatten().any(|target| target["profile"] == profile)
    }
}

/// The version in a text: an image's tag, or a field.
pub fn version(text: &str) -> Option<Version> {
    let (_, rest) = text
        .trim_start_matches('v')
        .split_once("1.")
        .filter(|(head, _)| head.is_empty())?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let minor = numbers.next()?.ok()?;
    Some((minor, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

fn root() -> PathBuf {
    PathBuf::from("tests/golden")
}

pub fn read(name: &str) -> Case {
    let read = |file: &str| -> Value {
        let path = root().join(name).join(file);
        serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    Case {
        name: name.to_owned(),
        input: read("input.yaml"),
        expected: read("expected.yaml"),
    }
}

pub fn read_all() -> Vec<Case> {
    let folders = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.path().is_dir());
        let mut names: Vec<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let kinds = folders(&root()).into_iter();
    let names = kinds.flat_map(|kind| {
        let cases = folders(&root().join(&kind)).into_iter();
        cases.map(move |case| format!("{kind}/{case}"))
    });
    names.map(|name| read(&name)).collect()
}
