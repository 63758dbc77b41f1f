//! Index of the CloudProviderMigrations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use outrigger_shared::migration::{CloudProviderMigration, Phase};
use tokio::sync::{Notify, watch};

use super::watch::Index;
use crate::metrics::Metrics;

/// How long a review waits for the phase that it requests. The API server waits 3 s for the whole answer.
const CATCH_UP: Duration = Duration::from_secs(1);

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

    fn phase(&self, name: &str) -> Option<Phase> {
        match self.by_name.get(name)? {
            Entry::Migration(migration) => Some(migration.spec.phase),
            Entry::Unreadable => None,
        }
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
    known: watch::Sender<Option<Arc<MigrationSnapshot>>>,
    changed: Notify,
    metrics: Arc<Metrics>,
}

impl Migrations {
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            known: watch::Sender::new(None),
            changed: Notify::new(),
            metrics,
        })
    }

    /// The migrations; `None` before the first list.
    pub fn known(&self) -> Option<Arc<MigrationSnapshot>> {
        self.known.borrow().clone()
    }

    /// The migrations, for a review that requests this phase of a migration. An operator may change the phase and an
    /// object one after another, before the watch has delivered the phase: this waits for it, at most [`CATCH_UP`].
    pub async fn known_with_phase(&self, name: &str, phase: Phase) -> Option<Arc<MigrationSnapshot>> {
        let mut known = self.known.subscribe();
        let other = |known: &Option<Arc<MigrationSnapshot>>| {
            let now = known.as_ref().and_then(|known| known.phase(name));
            now.is_some_and(|now| now != phase)
        };
        let caught_up = known.wait_for(|known| !other(known));
        // After the limit the phase of the migration counts, and the answer says so.
        drop(tokio::time::timeout(CATCH_UP, caught_up).await);

        self.known()
    }

    /// Completes after a change since the last call. For one caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut MigrationSnapshot)) {
        self.known.send_modify(|current| {
            let mut known = current.as_deref().unwrap_or(&EMPTY_SNAPSHOT).clone();
            change(&mut known);
            self.metrics.migrations(known.iter().count(), known.unreadable());
            *current = Some(Arc::new(known));
        });
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
        Ok(mut migration) => {
            // Of InTree that is not followed, a kube-controller-manager would become in-tree without leader migration.
            migration.spec.phase = migration.followed_phase();
            (name, Entry::Migration(Arc::new(migration)))
        }
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
        migrations.broken("gone");
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
        migrations.broken("gone");
        assert_eq!(names(&migrations), ["a", "c"]);
        migrations.absent();
        assert!(names(&migrations).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_waits_for_the_phase_that_it_requests() {
        let migrations = Migrations::new(Metrics::new());
        let in_phase = |phase: &str| object("a", &json!({"clusterID": "a", "phase": phase}));
        migrations.replace(vec![in_phase("Migrate")]);
        let phase_after = async |name: &str, phase| {
            let began = tokio::time::Instant::now();
            let known = migrations.known_with_phase(name, phase).await.unwrap();
            (known.phase("a").unwrap(), began.elapsed())
        };
        assert_eq!(phase_after("a", Phase::Migrate).await, (Phase::Migrate, Duration::ZERO));
        assert_eq!(
            phase_after("none", Phase::Prepare).await,
            (Phase::Migrate, Duration::ZERO)
        );
        assert_eq!(
            phase_after("a", Phase::Prepare).await,
            (Phase::Migrate, CATCH_UP),
            "another phase"
        );

        let delivered = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            migrations.apply(in_phase("Prepare"));
        };
        let (after, ()) = tokio::join!(phase_after("a", Phase::Prepare), delivered);
        assert_eq!(after, (Phase::Prepare, Duration::from_millis(20)));
    }

    #[test]
    fn a_phase_that_the_manager_does_not_follow_decides_nothing() {
        let migrations = Migrations::new(Metrics::new());
        let mut refused = object("a", &json!({"clusterID": "a", "phase": "InTree"}));
        refused.metadata.generation = Some(2);
        refused.data["status"] = json!({"phase": "Prepare", "conditions": [{
            "type": "PhaseFollowed", "status": "False", "reason": "InTreeNotFollowed", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 2,
        }]});
        migrations.apply(refused);
        assert_eq!(migrations.known().unwrap().phase("a"), Some(Phase::Prepare));
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
