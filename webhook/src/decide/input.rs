//! What a decision may look at, and whether the review is an occasion to act.

use std::collections::BTreeMap;

use outrigger_shared::{
    annotations,
    migration::{CloudProviderMigration, CloudProviderMigrationSpec},
};
use serde_json::Value;

use super::fields::annotation;

/// A migration as decisions see it.
#[derive(Clone, Copy, Debug)]
pub struct Migration<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// What the operator asks for.
    pub spec: &'a CloudProviderMigrationSpec,
    /// Status condition `Prepared` is `True`.
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

/// What happens to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is written again.
    Update,
    /// Anything else; never changed.
    Other,
}

/// Everything that a decision may look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What happens to the object.
    pub operation: Operation,
    /// API group of the object's kind; empty for the core group.
    pub group: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// The part of the object that is written (`status`, `scale`, …); empty for the object itself.
    pub subresource: &'a str,
    /// The object's namespace; none for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// Labels of that namespace; none when they are not known, and then no selector on them matches.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// The object's name; empty while the API server has not generated it.
    pub name: &'a str,
    /// The object as it is about to be stored.
    pub object: &'a Value,
    /// The object as it is stored now; none on creation.
    pub old_object: Option<&'a Value>,
    /// Every migration there is.
    pub migrations: &'a [Migration<'a>],
    /// The migration that the request's path names, `/mutate/NAME`: the API server that asks is that cluster's own.
    pub path_migration: Option<&'a str>,
    /// The webhook's own namespace, which it leaves alone.
    pub own_namespace: Option<&'a str>,
    /// Whether a cloud-controller-manager holds its main lease in the cluster of the Node; none when it is not known.
    pub manager_fresh: Option<bool>,
}

impl<'a> Input<'a> {
    /// The creation of an object, which tells its own kind, namespace and name. Nothing is known of its surroundings: no
    /// labels of its namespace, no manager.
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

    /// The same object written over a stored one; without one it stays a creation.
    #[must_use]
    pub fn over(mut self, old: Option<&'a Value>) -> Self {
        if old.is_some() {
            self.operation = Operation::Update;
        }
        self.old_object = old;
        self
    }

    /// Whether a part of the object differs between what is stored and what is written, leaving out fields of that part by
    /// name; false without a stored object.
    pub(super) fn changes(&self, pointer: &str, besides: &[&str]) -> bool {
        self.old_object
            .is_some_and(|old| differ(old.pointer(pointer), self.object.pointer(pointer), besides))
    }

    /// Whether the operator asks for the phase to be applied now.
    pub(super) fn asks_for_phase(&self) -> bool {
        let asked = |object: &'a Value| annotation(object, annotations::APPLY);
        self.old_object.is_some_and(|old| asked(old) != asked(self.object))
    }

    /// A phase permits, it never triggers: a creation, a change of one of these parts, or the operator's own word. What is
    /// being deleted is left alone.
    pub(super) fn may_act(&self, triggers: &[&str], besides: &[&str]) -> bool {
        let is_occasion = self.operation == Operation::Create
            || self.asks_for_phase()
            || triggers.iter().any(|trigger| self.changes(trigger, besides));
        is_occasion && !self.is_being_deleted()
    }

    /// Why [`Self::may_act`] says no.
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
