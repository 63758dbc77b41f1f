//! Checks that the migration object and this manager's own configuration have the same name for the migration lease. With
//! two names there are two locks, so the old and the new manager would own the same controllers at once.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::{Api, Client};
use outrigger_shared::leader_migration::LeaderMigrationConfiguration;
use outrigger_shared::migration::CloudProviderMigration;

/// How long the start waits for the object.
const PATIENCE: Duration = Duration::from_secs(5);

/// Compares the lease name in the migration object with this manager's migration lease. If the object cannot be read,
/// the start continues with a warning: an unavailable API server must not stop a manager from running latched
/// controllers.
///
/// # Errors
/// When the names differ.
pub async fn check(management: Client, migration: &str, own: &str) -> Result<()> {
    let api: Api<CloudProviderMigration> = Api::all(management);
    let why = match tokio::time::timeout(PATIENCE, api.get_opt(migration)).await {
        Ok(Ok(Some(object))) => match disagreement(&object, own) {
            Some(problem) => bail!("{problem}"),
            None => return Ok(()),
        },
        Ok(Ok(None)) => "there is none yet".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };

    tracing::warn!(
        migration,
        why,
        "the migration's spec.leaderMigration was not compared with this manager's own configuration"
    );
    Ok(())
}

/// The difference, and how to fix it. If the object lacks the field, Kubernetes' default applies.
fn disagreement(object: &CloudProviderMigration, own: &str) -> Option<String> {
    let default = LeaderMigrationConfiguration::default();
    let theirs = object.spec.leader_migration.as_ref().unwrap_or(&default);
    (theirs.leader_name != own).then(|| {
        format!(
            "CloudProviderMigration {}: spec.leaderMigration.leaderName is {:?}, but this manager's --leader-migration-config \
             names {:?} (without the flag it is {:?}); give both the same name, or old and new manager hold two locks",
            object.metadata.name.as_deref().unwrap_or_default(),
            theirs.leader_name,
            own,
            default.leader_name
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(leader_migration: Value) -> CloudProviderMigration {
        let spec = json!({"clusterID": "prod", "phase": "Prepare", "targets": [], "leaderMigration": leader_migration});
        serde_json::from_value(json!({"metadata": {"name": "prod"}, "spec": spec})).unwrap()
    }

    #[test]
    fn both_name_one_lease_or_the_start_ends_with_both_names() {
        let default = LeaderMigrationConfiguration::default().leader_name;
        let other = json!({"leaderName": "other", "controllerLeaders": []});
        assert_eq!(disagreement(&object(Value::Null), &default), None);
        assert_eq!(disagreement(&object(other.clone()), "other"), None);
        for (object, own) in [(object(other), default.as_str()), (object(Value::Null), "other")] {
            let text = disagreement(&object, own).unwrap();
            assert!(
                text.contains("\"other\"") && text.contains("cloud-provider-extraction-migration"),
                "{text}"
            );
        }
    }
}
