//! Follows the migration object.

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use outrigger_shared::migration::CloudProviderMigration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::evidence::Reading;
use crate::gate::MigrationSpec;
use crate::object_watch;

/// The settings that the migration object must agree with.
#[derive(Debug, Clone)]
pub struct Own {
    /// The cluster's ID in AWS tags.
    pub cluster_id: String,
    /// The migration lease's name.
    pub lease: String,
    /// The name of this manager's main lease.
    pub main_lease: String,
}

impl Own {
    /// Why the object says nothing about this manager's cluster and leases, with the fix.
    fn disagreement(&self, object: &CloudProviderMigration) -> Option<String> {
        let (name, spec) = (object.name_any(), &object.spec);
        if spec.cluster_id != self.cluster_id {
            return Some(format!(
                "CloudProviderMigration {name} is of cluster {:?} by spec.clusterID, and this manager's cluster is {:?}: correct --migration, or --cluster-name and the cloud configuration",
                spec.cluster_id, self.cluster_id
            ));
        }

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

/// Follows the migration object `name`. Deleted, forbidden, unreachable and one that disagrees with `own` are all
/// [`Reading::Unreadable`]. Without `own`, nothing is compared.
#[must_use]
pub fn follow_migration(
    client: Client,
    name: &str,
    own: Option<Own>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<CloudProviderMigration>> {
    let (tx, rx) = watch::channel(Reading::Pending);
    let api: Api<CloudProviderMigration> = Api::all(client);
    let name = name.to_owned();

    tokio::spawn(async move {
        let start = || watcher::watch_object(api.clone(), &name);
        let pass = |event| {
            let reading = match event {
                Ok(Some(object)) => match own.as_ref().and_then(|own| own.disagreement(&object)) {
                    Some(why) => Reading::Unreadable(why),
                    None => Reading::Known(object),
                },
                Ok(None) => Reading::Unreadable(format!("there is no CloudProviderMigration {name}")),
                Err(error) => Reading::Unreadable(format!("CloudProviderMigration {name} cannot be read: {error}")),
            };
            if let Reading::Unreadable(why) = &reading {
                tx.send_if_modified(|old| {
                    let changed = *old != reading;
                    if changed {
                        tracing::error!(why, "cannot read the CloudProviderMigration; keeping current leases and following the phase of the latch");
                        *old = reading.clone();
                    }
                    changed
                });
            } else {
                tx.send_replace(reading);
            }
        };
        object_watch::follow(start, stop, pass).await;
    });

    rx
}

/// The part of the object that the gate needs, kept current.
#[must_use]
pub fn follow_spec(
    mut migration: watch::Receiver<Reading<CloudProviderMigration>>,
    stop: CancellationToken,
) -> watch::Receiver<Reading<MigrationSpec>> {
    let (tx, rx) = watch::channel(spec_of(&migration.borrow()));
    tokio::spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(migration.changed()).await {
            let next = spec_of(&migration.borrow());
            tx.send_if_modified(|old| {
                *old != next && {
                    *old = next;
                    true
                }
            });
        }
    });

    rx
}

fn spec_of(reading: &Reading<CloudProviderMigration>) -> Reading<MigrationSpec> {
    match reading {
        Reading::Pending => Reading::Pending,
        Reading::Unreadable(why) => Reading::Unreadable(why.clone()),
        Reading::Known(object) => Reading::Known(MigrationSpec {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            phase: object.spec.phase,
            attested_phase: object.spec.attested_phase,
        }),
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::leader_migration;
    use serde_json::{Value, json};

    use super::*;

    const LEASE: &str = leader_migration::DEFAULT_LEADER_NAME;

    #[test]
    fn an_object_of_another_cluster_or_with_our_lease_says_nothing_about_us() {
        let own = Own {
            cluster_id: "prod".into(),
            lease: LEASE.into(),
            main_lease: "cloud-controller-manager".into(),
        };
        let disagreement = |changes: Value| {
            let mut spec = json!({"clusterID": "prod", "phase": "Prepare", "targets": []});
            for (key, value) in changes.as_object().unwrap() {
                spec[key] = value.clone();
            }
            own.disagreement(&serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": spec})).unwrap())
        };
        let names = |name: &str| json!({"leaderMigration": {"leaderName": name, "controllerLeaders": []}});

        assert_eq!(disagreement(json!({})), None);
        assert_eq!(disagreement(names(LEASE)), None);
        for (changes, text) in [
            (json!({"clusterID": "test"}), r#"cluster is "prod""#),
            (
                json!({"kubeControllerManagerLease": LEASE}),
                "spec.kubeControllerManagerLease",
            ),
            (
                json!({"kubeControllerManagerLease": own.main_lease}),
                "spec.kubeControllerManagerLease",
            ),
            (names("other"), "spec.leaderMigration.leaderName"),
        ] {
            let why = disagreement(changes.clone()).unwrap_or_default();
            assert!(why.contains(text), "{changes}: {why}");
        }
    }
}
