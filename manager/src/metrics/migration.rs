//! Metrics of the migration, from the holder of the main lease. Another replica serves none of them.

use outrigger_leader::Snapshot;
use outrigger_shared::controller::Party;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Catalog;

/// Values of the label `status`.
const TRUTH: [&str; 3] = ["True", "False", "Unknown"];
/// Values of the label `owner`.
const OWNERS: [(Option<Party>, &str); 3] = [
    (Some(Party::KubeControllerManager), "kube-controller-manager"),
    (Some(Party::CloudControllerManager), "cloud-controller-manager"),
    (None, "none"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InfoLabels {
    name: String,
    phase: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    name: String,
    r#type: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OwnerLabels {
    controller: String,
    owner: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    name: String,
    source: &'static str,
}

#[derive(Debug, Clone)]
pub struct Migration {
    info: Family<InfoLabels, Gauge>,
    conditions: Family<ConditionLabels, Gauge>,
    owners: Family<OwnerLabels, Gauge>,
    unreadable: Family<SourceLabels, Gauge>,
    alarm: Family<NameLabel, Gauge>,
}

impl Migration {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            info: catalog.labelled(
                "outrigger_migration_info",
                &["name", "phase"],
                "Always 1; the phase that the manager follows in a label. Only the holder of the main lease reports it",
            ),
            conditions: catalog.labelled(
                "outrigger_migration_condition",
                &["name", "type", "status"],
                "1 for the current status of each condition that the manager writes, 0 for the others. Only the holder of the main lease reports it",
            ),
            owners: catalog.labelled(
                "outrigger_controller_owner",
                &["controller", "owner"],
                "1 for the current owner of each controller, 0 for the others. The owner is none during a handover, and while it is not proven. Only the holder of the main lease reports it",
            ),
            unreadable: catalog.labelled(
                "outrigger_migration_unreadable",
                &["name", "source"],
                "Whether a source of the migration's evidence cannot be read now. Only the holder of the main lease reports it",
            ),
            alarm: catalog.labelled(
                "outrigger_migration_alarm",
                &["name"],
                "1 if a process that is not proven to need the migration lease holds the main lease of the kube-controller-manager, or an in-tree one runs without that lease, after the manager acquired the migration lease, else 0. Only the holder of the main lease reports it",
            ),
        }
    }

    pub fn set(&self, snapshot: &Snapshot) {
        let name = &snapshot.name;

        // A phase that is over has no series.
        self.info.clear();
        if let Some(phase) = snapshot.phase {
            let labels = InfoLabels {
                name: name.clone(),
                phase: phase.to_string(),
            };
            self.info.get_or_create(&labels).set(1);
        }

        // A condition that the status has no more.
        self.conditions.clear();
        for (condition, present) in &snapshot.conditions {
            for status in TRUTH {
                let labels = ConditionLabels {
                    name: name.clone(),
                    r#type: condition,
                    status,
                };
                let value = i64::from(*present == status);
                self.conditions.get_or_create(&labels).set(value);
            }
        }

        for (controller, present) in &snapshot.owners {
            for (party, owner) in OWNERS {
                let labels = OwnerLabels {
                    controller: controller.clone(),
                    owner,
                };
                self.owners.get_or_create(&labels).set(i64::from(*present == party));
            }
        }

        for (source, unreadable) in snapshot.unreadable {
            let labels = SourceLabels {
                name: name.clone(),
                source,
            };
            self.unreadable.get_or_create(&labels).set(i64::from(unreadable));
        }

        let by_name = NameLabel { name: name.clone() };
        self.alarm.get_or_create(&by_name).set(i64::from(snapshot.alarm));
    }
}

#[cfg(test)]
mod tests {
    use outrigger_shared::migration::Phase;

    use super::*;
    use crate::metrics::Metrics;

    fn snapshot(phase: Phase, owner: Option<Party>) -> Snapshot {
        Snapshot {
            name: "prod".into(),
            phase: Some(phase),
            conditions: vec![("Prepared", "True".into())],
            owners: vec![("service-lb-controller".into(), owner)],
            unreadable: [("migration", false); 4],
            alarm: false,
        }
    }

    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.prometheus().unwrap();
        let is_of_migration =
            |line: &&str| line.starts_with("outrigger_migration_") || line.starts_with("outrigger_controller_owner");
        text.lines().filter(is_of_migration).map(str::to_owned).collect()
    }

    #[test]
    fn a_replica_that_does_not_lead_serves_none() {
        assert!(series(&Metrics::new()).is_empty());
    }

    #[test]
    fn only_the_present_values_are_one() {
        let metrics = Metrics::new();
        metrics
            .migration
            .set(&snapshot(Phase::Prepare, Some(Party::KubeControllerManager)));
        metrics.migration.set(&snapshot(Phase::Migrate, None));
        let mut ones = series(&metrics);
        ones.retain(|line| line.ends_with(" 1"));
        ones.sort();
        assert_eq!(
            ones,
            [
                "outrigger_controller_owner{controller=\"service-lb-controller\",owner=\"none\"} 1",
                "outrigger_migration_condition{name=\"prod\",type=\"Prepared\",status=\"True\"} 1",
                "outrigger_migration_info{name=\"prod\",phase=\"Migrate\"} 1",
            ]
        );
        let all = series(&metrics);
        assert!(!all.iter().any(|line| line.contains("phase=\"Prepare\"")), "{all:#?}");
        assert!(
            all.contains(&"outrigger_migration_alarm{name=\"prod\"} 0".to_owned()),
            "{all:#?}"
        );
    }
}
