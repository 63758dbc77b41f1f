//! Follows the migration object.

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use outrigger_evidence::facts::Reading;
use outrigger_evidence::gate::MigrationSpec;
use outrigger_serving::Tasks;
use outrigger_shared::migration::{CloudProviderMigration, Phase};
use tokio::sync::watch;

use super::send_new;
use crate::object_watch;

/// The settings that the migration object must agree with.
#[derive(Debug, Clone)]
pub struct Own {
    /// The cluster's ID in AWS tags.
    pub cluster_id: String,
    /// Of the leases.
    pub namespace: String,
    pub lease: String,
    pub main_lease: String,
}

impl Own {
    /// Why nothing is read from the object or written to it, with the fix.
    fn other_cluster(&self, object: &CloudProviderMigration) -> Option<String> {
        let theirs = &object.spec.cluster_id;
        (*theirs != self.cluster_id).then(|| {
            format!(
                "CloudProviderMigration {} is of cluster {theirs:?} by spec.clusterID, and this manager's cluster is {:?}: correct --migration, or --cluster-name and the cloud configuration",
                object.name_any(),
                self.cluster_id
            )
        })
    }

    /// Why the spec is not followed, with the fix: its leases are not this manager's.
    pub(crate) fn other_leases(&self, object: &CloudProviderMigration) -> Option<String> {
        let (name, spec) = (object.name_any(), &object.spec);
        let main = &spec.kube_controller_manager_lease;
        if *main == self.lease || *main == self.main_lease {
            return Some(format!(
                "CloudProviderMigration {name}: spec.kubeControllerManagerLease is {main:?}, which this manager uses for itself: set it to the main lease of the kube-controller-manager"
            ));
        }

        let theirs = spec.leader_migration.as_ref().map(|theirs| &theirs.leader_name);
        theirs.filter(|theirs| **theirs != self.lease).map(|theirs| {
            format!(
                "CloudProviderMigration {name}: spec.leaderMigration.leaderName is {theirs:?}, and this manager's migration lease is {:?}: give both the same name",
                self.lease
            )
        })
    }
}

#[derive(Clone)]
pub struct Migration {
    /// Of this manager's cluster: the status is written to it.
    pub stored: watch::Receiver<Reading<CloudProviderMigration>>,
    /// With this manager's leases, too: its spec is followed.
    pub agreed: watch::Receiver<Reading<CloudProviderMigration>>,
}

/// Follows the migration object `name`, which has to agree with `own`.
pub fn follow_own_migration(client: Client, name: &str, own: &Own, tasks: &Tasks) -> Migration {
    agreeing(follow_migration(client, name, tasks), own, tasks)
}

fn agreeing(mut object: watch::Receiver<Reading<CloudProviderMigration>>, own: &Own, tasks: &Tasks) -> Migration {
    let ((stored_tx, stored), (agreed_tx, agreed)) =
        (watch::channel(Reading::Pending), watch::channel(Reading::Pending));
    let (own, stop) = (own.clone(), tasks.stop().clone());
    tasks.spawn("settings of the migration", async move {
        loop {
            let reading = object.borrow_and_update().clone();
            let reading = pass(&stored_tx, reading, |object| own.other_cluster(object));
            pass(&agreed_tx, reading, |object| own.other_leases(object));
            if !matches!(stop.run_until_cancelled(object.changed()).await, Some(Ok(()))) {
                return;
            }
        }
    });

    Migration { stored, agreed }
}

/// Sends the object, or [`Reading::Unreadable`] with the reason against it.
fn pass(
    tx: &watch::Sender<Reading<CloudProviderMigration>>,
    reading: Reading<CloudProviderMigration>,
    reason: impl Fn(&CloudProviderMigration) -> Option<String>,
) -> Reading<CloudProviderMigration> {
    if let Some(why) = reading.known().and_then(reason) {
        refuse(tx, why.clone());
        return Reading::Unreadable(why);
    }
    tx.send_replace(reading.clone());
    reading
}

fn refuse(tx: &watch::Sender<Reading<CloudProviderMigration>>, why: String) {
    if send_new(tx, Reading::Unreadable(why.clone())) {
        tracing::error!(
            why,
            "cannot read the CloudProviderMigration; keeping current leases and following the phase of the latch"
        );
    }
}

/// Follows the migration object `name`. Deleted, forbidden and unreachable are all [`Reading::Unreadable`].
pub fn follow_migration(client: Client, name: &str, tasks: &Tasks) -> watch::Receiver<Reading<CloudProviderMigration>> {
    let (tx, rx) = watch::channel(Reading::Pending);
    let api: Api<CloudProviderMigration> = Api::all(client);
    let (name, stop) = (name.to_owned(), tasks.stop().clone());

    tasks.spawn("watch of the migration", async move {
        let start = || watcher::watch_object(api.clone(), &name);
        let pass = |event| match event {
            Ok(Some(object)) => drop(tx.send_replace(Reading::Known(object))),
            // A usual state: the guides install the manager first, and then create the object.
            Ok(None) => {
                let why = format!("CloudProviderMigration {name} does not exist");
                if send_new(&tx, Reading::Unreadable(why)) {
                    tracing::warn!(
                        name,
                        "waiting for the CloudProviderMigration; keeping current leases and following the phase of the latch"
                    );
                }
            }
            Err(error) => refuse(&tx, format!("CloudProviderMigration {name} cannot be read: {error}")),
        };
        object_watch::follow(start, stop, pass).await;
    });

    rx
}

/// The part of the object that the gate needs, kept current.
pub fn follow_spec(
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    tasks: &Tasks,
) -> watch::Receiver<Reading<MigrationSpec>> {
    let mut run = Run::default();
    let (tx, rx) = watch::channel(run.spec_of(&migration.borrow_and_update()));
    let stop = tasks.stop().clone();
    tasks.spawn("spec of the migration", async move {
        while let Some(Ok(())) = stop.run_until_cancelled(migration.changed()).await {
            send_new(&tx, run.spec_of(&migration.borrow_and_update()));
        }
    });

    rx
}

/// The run of the present phase. Migrate and Complete are one.
#[derive(Default)]
struct Run {
    uid: String,
    phase: Phase,
    /// The object had no attestation of this phase before.
    seen_unattested: bool,
}

impl Run {
    fn spec_of(&mut self, reading: &Reading<CloudProviderMigration>) -> Reading<MigrationSpec> {
        match reading {
            Reading::Pending => Reading::Pending,
            Reading::Unreadable(why) => Reading::Unreadable(why.clone()),
            Reading::Known(object) => Reading::Known(self.observe(object)),
        }
    }

    fn observe(&mut self, object: &CloudProviderMigration) -> MigrationSpec {
        let mut spec = MigrationSpec {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            phase: object.spec.phase,
            attestation: object.spec.attestation.clone(),
            seen_unattested: false,
        };

        let is_same = self.uid == spec.uid && self.phase.min(Phase::Migrate) == spec.phase.min(Phase::Migrate);
        let is_attested = spec.attestation().is_some();
        *self = Self {
            uid: spec.uid.clone(),
            phase: spec.phase,
            seen_unattested: is_same && self.seen_unattested || !is_attested,
        };
        spec.seen_unattested = self.seen_unattested;

        spec
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::leader_migration;
    use serde_json::{Value, json};

    use super::*;

    const LEASE: &str = leader_migration::DEFAULT_LEADER_NAME;

    fn own() -> Own {
        Own {
            cluster_id: "prod".into(),
            namespace: "kube-system".into(),
            lease: LEASE.into(),
            main_lease: "cloud-controller-manager".into(),
        }
    }

    fn object(changes: &Value) -> CloudProviderMigration {
        let mut spec = json!({"clusterID": "prod", "phase": "Prepare", "targets": []});
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": spec})).unwrap()
    }

    fn names(name: &str) -> Value {
        json!({"leaderMigration": {"leaderName": name, "controllerLeaders": []}})
    }

    #[test]
    fn an_object_of_another_cluster_or_with_our_lease_says_nothing_about_us() {
        let disagreement = |changes: &Value| {
            let (own, object) = (own(), object(changes));
            own.other_cluster(&object).or_else(|| own.other_leases(&object))
        };

        assert_eq!(disagreement(&json!({})), None);
        assert_eq!(disagreement(&names(LEASE)), None);
        for (changes, text) in [
            (json!({"clusterID": "test"}), r#"cluster is "prod""#),
            (
                json!({"kubeControllerManagerLease": LEASE}),
                "spec.kubeControllerManagerLease",
            ),
            (
                json!({"kubeControllerManagerLease": own().main_lease}),
                "spec.kubeControllerManagerLease",
            ),
            (names("other"), "spec.leaderMigration.leaderName"),
        ] {
            let why = disagreement(&changes).unwrap_or_default();
            assert!(why.contains(text), "{changes}: {why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_other_leases_is_not_followed_and_gets_a_status() {
        let (tasks, _ended) = Tasks::new();
        for (changes, stored, agreed) in [
            (json!({}), true, true),
            (names("other"), true, false),
            (json!({"clusterID": "test"}), false, false),
        ] {
            let (_object, raw) = watch::channel(Reading::Known(object(&changes)));
            let migration = agreeing(raw, &own(), &tasks);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let known = |rx: &watch::Receiver<Reading<_>>| rx.borrow().known().is_some();
            assert_eq!(
                (known(&migration.stored), known(&migration.agreed)),
                (stored, agreed),
                "{changes}"
            );
        }
    }

    fn in_phase(phase: &str, attested: Option<&str>) -> Reading<CloudProviderMigration> {
        let attestation = attested.map(|phase| json!({"phase": phase}));
        let mut object = object(&json!({"phase": phase, "attestation": attestation}));
        object.metadata.uid = Some("u".into());
        object.metadata.generation = Some(3);
        Reading::Known(object)
    }

    /// Whether the attestation was set after the phase began, for the last of these states.
    fn seen_unattested(states: &[(&str, Option<&str>)]) -> bool {
        let mut run = Run::default();
        let seen = states
            .iter()
            .map(|(phase, attested)| run.spec_of(&in_phase(phase, *attested)));
        let last = seen.last().unwrap();
        last.known().unwrap().seen_unattested
    }

    #[test]
    fn an_attestation_that_was_there_when_its_phase_began_is_of_an_earlier_run() {
        let (prepare, migrate) = (Some("Prepare"), Some("Migrate"));
        for (states, expected) in [
            (&[("Prepare", None), ("Prepare", prepare)][..], true),
            (&[("Prepare", prepare)], false),
            (&[("Migrate", migrate), ("Migrate", None), ("Migrate", migrate)], true),
            (&[("Prepare", migrate), ("Migrate", migrate)], false),
            (&[("Prepare", migrate)], true),
            (&[("Migrate", prepare), ("Migrate", migrate)], true),
            (&[("Migrate", None), ("Prepare", None), ("Migrate", migrate)], false),
            // Migrate and Complete are one run.
            (&[("Migrate", None), ("Migrate", migrate), ("Complete", migrate)], true),
            (&[("Complete", None), ("Migrate", migrate)], true),
            (&[("Migrate", migrate), ("Complete", migrate)], false),
        ] {
            assert_eq!(seen_unattested(states), expected, "{states:?}");
        }
    }

    #[test]
    fn another_object_begins_another_run_and_a_failure_to_read_it_does_not() {
        let mut run = Run::default();
        run.spec_of(&in_phase("Migrate", None));
        let unreadable = Reading::Unreadable("forbidden".to_owned());
        assert_eq!(run.spec_of(&unreadable), Reading::Unreadable("forbidden".to_owned()));
        let attested = in_phase("Migrate", Some("Migrate"));
        let spec = run.spec_of(&attested).known().cloned().unwrap();
        assert!(spec.seen_unattested);
        assert_eq!(
            (spec.uid.as_str(), spec.generation, spec.phase),
            ("u", 3, Phase::Migrate)
        );
        assert_eq!(
            spec.attestation.map(|attestation| attestation.phase),
            Some(Phase::Migrate)
        );

        let Reading::Known(mut other) = attested else {
            panic!("it can be read")
        };
        other.metadata.uid = Some("other".into());
        let spec = run.spec_of(&Reading::Known(other)).known().cloned().unwrap();
        assert!(!spec.seen_unattested);
    }
}
