//! The webhook's state when a request arrives.

use std::collections::BTreeMap;

use outrigger_decide::{Decision, Input, Migration, Operation, decide};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Mode, Phase};
use outrigger_webhook::review::{self, Request};
use serde_json::Value;

/// The webhook's default for one request.
pub(super) const MEMORY: usize = 64 * 1024 * 1024;

/// Fields have the names of the webhook's golden cases: `migrations`, `namespaceLabels`, `path`, `managerReady`. An
/// invalid field counts as missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    migrations: BTreeMap<String, (bool, CloudProviderMigrationSpec)>,
    namespace_labels: Option<BTreeMap<String, String>>,
    path: Option<String>,
    manager_ready: Option<bool>,
}

impl Situation {
    pub fn read(line: &[u8]) -> Self {
        let line: Value = serde_json::from_slice(line).unwrap_or_default();
        let migration = |(name, migration): (&String, &Value)| {
            let spec = serde_json::from_value(migration.get("spec")?.clone()).ok()?;
            Some((
                name.clone(),
                (migration.get("prepared") == Some(&Value::Bool(true)), spec),
            ))
        };
        let migrations = line.get("migrations").and_then(Value::as_object);

        Self {
            migrations: migrations.into_iter().flatten().filter_map(migration).collect(),
            namespace_labels: line
                .get("namespaceLabels")
                .and_then(|labels| serde_json::from_value(labels.clone()).ok()),
            path: line.get("path").and_then(Value::as_str).map(str::to_owned),
            manager_ready: line.get("managerReady").and_then(Value::as_bool),
        }
    }

    /// The same with every migration at this phase, prepared and in force.
    pub fn at(&self, phase: Phase) -> Self {
        let mut there = self.clone();
        for (prepared, spec) in there.migrations.values_mut() {
            *prepared = true;
            spec.phase = phase;
            spec.mode = Mode::Enforce;
        }
        there
    }

    pub fn decide(&self, request: &Request, object: &Value, old_object: Option<&Value>) -> Decision {
        let migrations: Vec<Migration<'_>> = self
            .migrations
            .iter()
            .map(|(name, (prepared, spec))| Migration {
                name,
                spec,
                prepared: *prepared,
            })
            .collect();
        decide(&Input {
            operation: match request.operation {
                review::Operation::Create => Operation::Create,
                review::Operation::Update => Operation::Update,
                _ => Operation::Other,
            },
            group: &request.kind.group,
            kind: &request.kind.kind,
            subresource: &request.sub_resource,
            namespace: Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty()),
            namespace_labels: self.namespace_labels.as_ref(),
            name: &request.name,
            object,
            old_object,
            migrations: &migrations,
            path_migration: self.path.as_deref(),
            own_namespace: Some("outrigger-system"),
            manager_fresh: self.manager_ready,
        })
    }
}

/// The first line of an input, which is the situation, and the rest, which is the request's body.
pub(super) fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    (&data[..end], data.get(end + 1..).unwrap_or_default())
}
