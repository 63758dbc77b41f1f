//! Text to configuration, strictly, collecting every fault.
//!
//! The document is read as a tree first and then walked, since a derived decoder stops at the first fault.

use serde_json::{Map, Value};

use super::{ControllerLeader, LeaderMigrationConfiguration, Problem};

pub(super) const GROUP: &str = "controllermanager.config.k8s.io";
pub(super) const KIND: &str = "LeaderMigrationConfiguration";
const WILDCARD_HINT: &str = " (a bare * is a YAML alias: write component: \"*\")";

pub(super) fn decode(text: &str) -> Result<LeaderMigrationConfiguration, Vec<Problem>> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| vec![syntax(text, &error)])?;
    let document = match document {
        Value::Null => return Err(vec![Problem::Empty]),
        Value::Object(document) => document,
        other => return Err(vec![wrong_type("the document", "a mapping", &other)]),
    };
    let mut walk = Walk::default();
    let config = walk.document(&document);

    if walk.problems.is_empty() {
        Ok(config)
    } else {
        Err(walk.problems)
    }
}

fn syntax(text: &str, error: &serde_saphyr::Error) -> Problem {
    if text.trim().is_empty() {
        return Problem::Empty;
    }

    let bare_wildcard = text.lines().any(|line| {
        let line = line.split(" #").next().unwrap_or_default();
        line.trim_end().ends_with(": *")
    });
    // The decoder's message has several lines with an excerpt; the first line is sufficient. The text after a semicolon
    // is the decoder's advice to its programmer.
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default();

    Problem::Syntax {
        message: first.split(';').next().unwrap_or_default().to_owned(),
        hint: if bare_wildcard { WILDCARD_HINT } else { "" },
    }
}

fn wrong_type(field: impl Into<String>, expected: &'static str, found: &Value) -> Problem {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    Problem::Type {
        field: field.into(),
        expected,
        found,
    }
}

#[derive(Default)]
struct Walk {
    problems: Vec<Problem>,
}

impl Walk {
    fn document(&mut self, document: &Map<String, Value>) -> LeaderMigrationConfiguration {
        let version = self.header(document);
        self.resource_lock(document, version);

        let leader_name = self.required(document, "leaderName", "leaderName", "name the migration lease");
        let controller_leaders = self.controller_leaders(document.get("controllerLeaders"));
        self.unknown_fields(
            document,
            "",
            &["apiVersion", "kind", "leaderName", "resourceLock", "controllerLeaders"],
        );

        LeaderMigrationConfiguration {
            leader_name,
            controller_leaders,
        }
    }

    /// Kind and version; the version's last part if it is one of the three.
    fn header<'a>(&mut self, document: &'a Map<String, Value>) -> Option<&'a str> {
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("kind") != KIND {
            self.problems.push(Problem::Kind {
                kind: text("kind").to_owned(),
            });
        }

        let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let known = version
            .strip_prefix(GROUP)
            .and_then(|rest| rest.strip_prefix('/'))
            .filter(|version| ["v1", "v1beta1", "v1alpha1"].contains(version));
        if known.is_none() {
            self.problems.push(Problem::ApiVersion {
                version: version.to_owned(),
            });
        }

        known
    }

    /// `v1` has no such field; the older two must give it, and only one lock is left.
    fn resource_lock(&mut self, document: &Map<String, Value>, version: Option<&str>) {
        const FIX: &str = "write resourceLock: leases";
        match (version, document.get("resourceLock")) {
            (None, _) | (Some("v1"), None) => {}
            (Some("v1"), Some(_)) => self.problems.push(Problem::ResourceLockInV1),
            (_, Some(Value::String(lock))) if lock == "leases" => {}
            (_, Some(Value::String(lock))) if !lock.is_empty() => {
                self.problems.push(Problem::ResourceLock { value: lock.clone() });
            }
            (_, None | Some(Value::Null | Value::String(_))) => {
                self.problems.push(Problem::Required {
                    field: "resourceLock".to_owned(),
                    fix: FIX,
                });
            }
            (_, Some(other)) => self.problems.push(wrong_type("resourceLock", "a string", other)),
        }
    }

    fn controller_leaders(&mut self, list: Option<&Value>) -> Vec<ControllerLeader> {
        let entries = match list {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(other) => {
                self.problems.push(wrong_type("controllerLeaders", "a list", other));
                return Vec::new();
            }
        };
        entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| self.controller_leader(index, entry))
            .collect()
    }

    fn controller_leader(&mut self, index: usize, entry: &Value) -> Option<ControllerLeader> {
        let path = format!("controllerLeaders[{index}]");
        let Value::Object(entry) = entry else {
            self.problems.push(wrong_type(path, "a mapping", entry));
            return None;
        };

        const COMPONENT: &str = "write kube-controller-manager, cloud-controller-manager or \"*\"";
        let component = format!("{path}.component");
        let name = self.required(
            entry,
            "name",
            &format!("{path}.name"),
            "name a controller, such as service",
        );
        let component = self.required(entry, "component", &component, COMPONENT);

        self.unknown_fields(entry, &format!("{path}."), &["name", "component"]);

        Some(ControllerLeader { name, component })
    }

    fn required(&mut self, map: &Map<String, Value>, key: &str, path: &str, fix: &'static str) -> String {
        match map.get(key) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            None | Some(Value::Null | Value::String(_)) => {
                self.problems.push(Problem::Required {
                    field: path.to_owned(),
                    fix,
                });
                String::new()
            }
            Some(other) => {
                self.problems.push(wrong_type(path, "a string", other));
                String::new()
            }
        }
    }

    fn unknown_fields(&mut self, map: &Map<String, Value>, prefix: &str, known: &[&str]) {
        let unknown = map.keys().filter(|key| !known.contains(&key.as_str()));
        self.problems.extend(unknown.map(|key| Problem::UnknownField {
            field: format!("{prefix}{key}"),
        }));
    }
}
