//! Index of the CloudProviderMigrations.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use kube::ResourceExt;
use kube::api::DynamicObject;
use outrigger_shared::migration::CloudProviderMigration;
use tokio::sync::Notify;

use super::watch::Index;
use crate::metrics::Metrics;

pub static EMPTY_SNAPSHOT: MigrationSnapshot = MigrationSnapshot {
    by_name: BTreeMap::new(),
};

/// The migrations at one moment, by name.
#[derive(Debug, Default, Clone)]
pub struct MigrationSnapshot {
    by_name: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Migration(Arc<CloudProviderMigration>),
    /// Of a newer version, or invalid by the schema: it exists, but is not applied.
    Unreadable,
}

impl MigrationSnapshot {
    /// The migrations that can be read, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &CloudProviderMigration> {
        self.by_name.values().filter_map(|entry| match entry {
            Entry::Migration(migration) => Some(migration.as_ref()),
            Entry::Unreadable => None,
        })
    }

    fn unreadable(&self) -> usize {
        self.by_name
            .values()
            .filter(|entry| matches!(entry, Entry::Unreadable))
            .count()
    }
}

/// The index of migrations. Objects are read as JSON and parsed one by one, so that an unreadable one does not hide the
/// others.
///
/// Before the first list no review can be decided. When the watch breaks, the last state stays in use: without it, a
/// Pod of a kube-controller-manager would start in its old form while the new manager is active. When the CRD is
/// deleted, so are the migrations.
#[derive(Debug)]
pub struct Migrations {
    known: RwLock<Option<Arc<MigrationSnapshot>>>,
    changed: Notify,
    metrics: Arc<Metrics>,
}

impl Migrations {
    /// An empty index, before the first list.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            known: RwLock::new(None),
            changed: Notify::new(),
            metrics,
        })
    }

    /// The migrations; `None` before the first list.
    #[must_use]
    pub fn known(&self) -> Option<Arc<MigrationSnapshot>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes after a change since the last call. For one caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut MigrationSnapshot)) {
        let mut guard = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = guard.as_deref().unwrap_or(&EMPTY_SNAPSHOT).clone();
        change(&mut known);
        self.metrics.migrations(known.iter().count(), known.unreadable());
        *guard = Some(Arc::new(known));
        self.changed.notify_one();
    }
}

impl Index<DynamicObject> for Migrations {
    fn replace(&self, objects: Vec<DynamicObject>) {
        let by_name = objects.into_iter().map(read).collect();
        self.change(|known| known.by_name = by_name);
    }

    fn apply(&self, object: DynamicObject) {
        let (name, entry) = read(object);
        self.change(|known| drop(known.by_name.insert(name, entry)));
    }

    fn delete(&self, object: &DynamicObject) {
        self.change(|known| drop(known.by_name.remove(&object.name_any())));
    }

    fn absent(&self) {
        self.replace(Vec::new());
    }
}

fn read(object: DynamicObject) -> (String, Entry) {
    let name = object.name_any();
    match object.try_parse::<CloudProviderMigration>() {
        Ok(migration) => (name, Entry::Migration(Arc::new(migration))),
        Err(error) => {
            tracing::error!(name, %error, "cannot read CloudProviderMigration; ignoring it");
            (name, Entry::Unreadable)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, spec: &serde_json::Value) -> DynamicObject {
        let object = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn names(migrations: &Migrations) -> Vec<String> {
        migrations.known().unwrap().iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn nothing_is_known_before_the_first_list_and_an_empty_list_is_knowledge() {
        let migrations = Migrations::new(Metrics::new());
        assert!(migrations.known().is_none());
        migrations.broken();
        assert!(migrations.known().is_none());
        migrations.replace(Vec::new());
        assert!(names(&migrations).is_empty());
    }

    #[test]
    fn the_index_follows_changes_and_keeps_what_it_saw_when_the_watch_breaks() {
        let migrations = Migrations::new(Metrics::new());
        migrations.replace(vec![
            object("b", &json!({"clusterID": "b"})),
            object("a", &json!({"clusterID": "a"})),
        ]);
        migrations.apply(object("c", &json!({"clusterID": "c", "phase": "Migrate"})));
        migrations.delete(&object("b", &json!({})));
        migrations.broken();
        assert_eq!(names(&migrations), ["a", "c"]);
        migrations.absent();
        assert!(names(&migrations).is_empty());
    }

    #[test]
    fn one_that_cannot_be_read_hides_no_other_and_is_counted() {
        let metrics = Metrics::new();
        let migrations = Migrations::new(Arc::clone(&metrics));
        migrations.replace(vec![
            object("bad", &json!({"clusterID": "x", "phase": "Sideways"})),
            object("good", &json!({"clusterID": "g"})),
        ]);
        assert_eq!(names(&migrations), ["good"]);
        assert!(
            metrics
                .text()
                .unwrap()
                .contains("outrigger_webhook_migrations_unreadable 1")
        );
        migrations.apply(object("bad", &json!({"clusterID": "x"})));
        assert_eq!(names(&migrations), ["bad", "good"]);
    }
}
