//! Checks that the migration object and this manager's own leader migration configuration agree: one name of the migration
//! lease, which no main lease has, and the same controllers under it. With two names, or two lists, the old and the new
//! manager would own the same controllers at once.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::{Api, Client};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::{LeaderMigrationConfiguration, Placement};
use outrigger_shared::migration::{CloudProviderMigration, DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE};

/// How long the start waits for the object.
const PATIENCE: Duration = Duration::from_secs(5);

/// Compares the name of the migration lease with those of the main leases: with a common name, two electors of one process
/// hold one lease, or this manager takes the lease that the kube-controller-manager leads by.
pub fn own_names(migration_lease: &str, main_lease: &str) -> Result<()> {
    let taken = [main_lease, DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE];
    if taken.contains(&migration_lease) {
        bail!(
            "leaderName in --leader-migration-config is {migration_lease:?}, which is the main lease of this manager \
             (--leader-elect-resource-name={main_lease}) or of the kube-controller-manager; give the migration lease a name \
             of its own, for example {:?}, in every leader migration configuration",
            LeaderMigrationConfiguration::default().leader_name
        );
    }

    Ok(())
}

/// Compares `spec.leaderMigration` of the migration object with this manager's own configuration. If the object cannot be read,
/// the start continues with a warning: an unavailable API server must not stop a manager from running latched
/// controllers.
pub async fn check(management: Client, migration: &str, own: &LeaderMigrationConfiguration) -> Result<()> {
    let api: Api<CloudProviderMigration> = Api::all(management);
    let why = match tokio::time::timeout(PATIENCE, api.get_opt(migration)).await {
        Ok(Ok(Some(object))) => match name_disagreement(&object, own).or_else(|| list_disagreement(&object, own)) {
            Some(problem) => bail!("{problem}"),
            None => return Ok(()),
        },
        Ok(Ok(None)) => "the object does not exist yet".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };

    tracing::warn!(
        migration,
        why,
        "cannot compare the migration's spec.leaderMigration with this manager's own configuration; if it is set, restart this manager when the object can be read"
    );
    Ok(())
}

/// The difference, and how to fix it. If the object lacks the field, Kubernetes' default applies.
fn name_disagreement(object: &CloudProviderMigration, own: &LeaderMigrationConfiguration) -> Option<String> {
    let default = LeaderMigrationConfiguration::default();
    let theirs = object.spec.leader_migration.as_ref().unwrap_or(&default);
    (theirs.leader_name != own.leader_name).then(|| {
        format!(
            "CloudProviderMigration {}: spec.leaderMigration.leaderName is {:?}, but this manager's --leader-migration-config \
             names {:?} (without the flag it is {:?}); give both the same name, otherwise the old \
             and the new manager hold different leases",
            object.metadata.name.as_deref().unwrap_or_default(),
            theirs.leader_name,
            own.leader_name,
            default.leader_name
        )
    })
}

/// The first controller that both lists place differently. Without the field, the kube-controller-managers have lists that
/// this manager does not know.
fn list_disagreement(object: &CloudProviderMigration, own: &LeaderMigrationConfiguration) -> Option<String> {
    let theirs = object.spec.leader_migration.as_ref()?;
    let place = |config: &LeaderMigrationConfiguration, controller| match config
        .placement(controller, Party::CloudControllerManager)
    {
        Placement::Migrated => "under the migration lease",
        Placement::Main => "under the main lease",
        Placement::NotHere => "not at all",
    };
    let differs = |controller: &Controller| place(theirs, *controller) != place(own, *controller);

    Controller::ALL.into_iter().find(differs).map(|controller| {
        format!(
            "CloudProviderMigration {}: by spec.leaderMigration.controllerLeaders this manager runs {controller} {}, and by \
             its --leader-migration-config {}; give both the same list",
            object.metadata.name.as_deref().unwrap_or_default(),
            place(theirs, controller),
            place(own, controller)
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
        let named = |name: &str| LeaderMigrationConfiguration {
            leader_name: name.to_owned(),
            ..LeaderMigrationConfiguration::default()
        };
        let default = LeaderMigrationConfiguration::default();
        let other = json!({"leaderName": "other", "controllerLeaders": []});
        assert_eq!(name_disagreement(&object(Value::Null), &default), None);
        assert_eq!(name_disagreement(&object(other.clone()), &named("other")), None);
        for (object, own) in [(object(other), default), (object(Value::Null), named("other"))] {
            let text = name_disagreement(&object, &own).unwrap();
            assert!(
                text.contains("\"other\"") && text.contains("cloud-provider-extraction-migration"),
                "{text}"
            );
        }
    }

    #[test]
    fn both_place_each_controller_alike_or_the_start_ends_with_its_name() {
        let own = LeaderMigrationConfiguration::default();
        let list = |entries: &[(&str, &str)]| {
            let entries = entries
                .iter()
                .map(|(name, component)| json!({"name": name, "component": component}));
            object(json!({"leaderName": own.leader_name, "controllerLeaders": entries.collect::<Vec<_>>()}))
        };
        assert_eq!(list_disagreement(&object(Value::Null), &own), None);
        assert_eq!(list_disagreement(&list(&[]), &own), None, "omitted counts as listed");
        assert_eq!(list_disagreement(&list(&[("service-lb-controller", "*")]), &own), None);
        for (entry, text) in [
            (("service", "kube-controller-manager"), "not at all, and"),
            (("nodeipam", "*"), "under the migration lease, and"),
        ] {
            let why = list_disagreement(&list(&[entry]), &own).unwrap_or_default();
            assert!(
                why.contains(text) && why.contains("controllerLeaders"),
                "{entry:?}: {why}"
            );
        }
    }

    #[test]
    fn a_main_lease_is_no_migration_lease() {
        assert!(own_names("cloud-provider-extraction-migration", "ccm").is_ok());
        for name in ["ccm", "kube-controller-manager"] {
            let why = own_names(name, "ccm").unwrap_err().to_string();
            assert!(
                why.contains("leaderName") && why.contains("--leader-elect-resource-name=ccm"),
                "{why}"
            );
        }
    }
}
