//! Input of a decision, and whether the review is an occasion to change the object.

use std::collections::BTreeMap;

use outrigger_shared::{
    annotations,
    migration::{CloudProviderMigration, CloudProviderMigrationSpec, Phase},
};
use serde_json::Value;

use super::fields::annotation;

/// The parts of a migration that decisions read.
#[derive(Clone, Copy, Debug)]
pub struct Migration<'a> {
    pub name: &'a str,
    pub spec: &'a CloudProviderMigrationSpec,
    pub prepared: bool,
}

impl<'a> From<&'a CloudProviderMigration> for Migration<'a> {
    fn from(migration: &'a CloudProviderMigration) -> Self {
        Self {
            name: migration.metadata.name.as_deref().unwrap_or_default(),
            spec: &migration.spec,
            prepared: migration.is_prepared(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    /// Never changed.
    Other,
}

/// A phase that an update requests by the annotation `outrigger.dev/apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedPhase<'a> {
    pub migration: &'a str,
    pub phase: Phase,
}

impl<'a> RequestedPhase<'a> {
    /// The request of an update; none if the annotation does not change, or is not `NAME/PHASE`.
    #[must_use]
    pub fn of(object: &'a Value, old: Option<&Value>) -> Option<Self> {
        let value = annotation(object, annotations::APPLY)?;
        if annotation(old?, annotations::APPLY) == Some(value) {
            return None;
        }

        let (migration, phase) = value.as_str()?.split_once('/')?;
        let phase = Phase::ALL.into_iter().find(|known| known.as_str() == phase)?;
        Some(Self { migration, phase })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub operation: Operation,
    /// API group of the object's kind; empty for the core group.
    pub group: &'a str,
    pub kind: &'a str,
    /// The subresource (`status`, `scale`, …); empty for the object itself.
    pub subresource: &'a str,
    /// None for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// None when not known; then no namespace selector matches.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// Empty while the API server has not generated it.
    pub name: &'a str,
    pub object: &'a Value,
    /// The stored object; none on creation.
    pub old_object: Option<&'a Value>,
    pub migrations: &'a [Migration<'a>],
    /// The migration in the path `/mutate/NAME`: the API server of that cluster sends the review.
    pub path_migration: Option<&'a str>,
    /// The webhook changes nothing in its own namespace.
    pub own_namespace: Option<&'a str>,
    /// Whether a cloud-controller-manager holds its main lease in the cluster of the Node or of the reviewed migration;
    /// none when it is not known.
    pub manager_fresh: Option<bool>,
}

impl<'a> Input<'a> {
    /// The creation of an object, with kind, namespace and name of the object itself. Labels of its namespace and the
    /// state of managers are not known.
    #[must_use]
    pub fn creation(object: &'a Value, migrations: &'a [Migration<'a>]) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let api_version = text("/apiVersion").unwrap_or_default();
        Self {
            operation: Operation::Create,
            group: api_version.split_once('/').map_or("", |(group, _)| group),
            kind: text("/kind").unwrap_or_default(),
            subresource: "",
            namespace: text("/metadata/namespace"),
            namespace_labels: None,
            name: text("/metadata/name").unwrap_or_default(),
            object,
            old_object: None,
            migrations,
            path_migration: None,
            own_namespace: None,
            manager_fresh: None,
        }
    }

    /// Turns the creation into an update of a stored object, if there is one.
    #[must_use]
    pub fn over(mut self, old: Option<&'a Value>) -> Self {
        if old.is_some() {
            self.operation = Operation::Update;
        }
        self.old_object = old;
        self
    }

    /// Whether a part of the object differs from the stored one, without some fields of that part; false without a
    /// stored object.
    pub(super) fn changes(&self, pointer: &str, besides: &[&str]) -> bool {
        self.old_object
            .is_some_and(|old| differ(old.pointer(pointer), self.object.pointer(pointer), besides))
    }

    /// Whether the operator requests that the phase is applied now.
    pub(super) fn asks_for_phase(&self) -> bool {
        let asked = |object: &'a Value| annotation(object, annotations::APPLY);
        self.old_object.is_some_and(|old| asked(old) != asked(self.object))
    }

    /// The operator requests another phase of this migration than it has.
    pub(super) fn requests_another_phase(&self, migration: &Migration<'_>) -> Option<Phase> {
        let request = RequestedPhase::of(self.object, self.old_object)?;
        (request.migration == migration.name && request.phase != migration.spec.phase).then_some(request.phase)
    }

    /// Whether this review may change the object: at its creation, when one of these parts changes, or when the
    /// operator requests it. A change of phase alone changes no object. Objects that are being deleted are not changed.
    pub(super) fn may_act(&self, triggers: &[&str], besides: &[&str]) -> bool {
        let is_occasion = self.operation == Operation::Create
            || self.asks_for_phase()
            || triggers.iter().any(|trigger| self.changes(trigger, besides));
        is_occasion && !self.is_being_deleted()
    }

    /// Why [`Self::may_act`] is false.
    pub(super) fn why_not(&self, triggers: &[&str]) -> String {
        if self.is_being_deleted() {
            return "the object is being deleted".to_owned();
        }
        format!("the update does not change {}", triggers.join(", "))
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        let time = self.object.pointer("/metadata/deletionTimestamp");
        time.is_some_and(|time| !time.is_null())
    }
}

fn differ(old: Option<&Value>, new: Option<&Value>, besides: &[&str]) -> bool {
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) else {
        return old != new;
    };

    let counts = |name: &String| !besides.contains(&name.as_str());
    let number = |fields: &serde_json::Map<String, Value>| fields.keys().filter(|name| counts(name)).count();
    number(old) != number(new)
        || old
            .iter()
            .any(|(name, value)| counts(name) && new.get(name) != Some(value))
}
