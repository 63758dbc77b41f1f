//! The state of a migration for metrics, and the Events about it.

use std::sync::Arc;

use outrigger_shared::controller::Party;
use outrigger_shared::event::About;
use outrigger_shared::migration::{CloudProviderMigrationStatus, Phase, condition};

use super::conditions::LEADER_NOT_LISTED;
use super::notices::Notice;
use crate::evidence::Reading;
use crate::permit::Permit;
use crate::steward::Report;

/// The state of a migration, from the holder of lease C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The name of the `CloudProviderMigration`.
    pub name: String,
    /// The phase that the manager follows; `None` while it is unknown.
    pub phase: Option<Phase>,
    /// Each condition of the manager, with its status.
    pub conditions: Vec<(&'static str, String)>,
    /// Each controller, with its owner.
    pub owners: Vec<(String, Option<Party>)>,
    /// Each source of evidence, and whether it cannot be read now.
    pub unreadable: [(&'static str, bool); 4],
    pub alarm: bool,
    /// The holder of lease K is none of the kube-controller-managers that can be read.
    pub leader_not_listed: bool,
}

/// Emits an Event about an object, if the permit allows it.
pub type EmitEvent = Arc<dyn Fn(&Permit, &About, &Notice) + Send + Sync>;

/// Takes what the holder of lease C reports.
#[derive(Clone)]
pub struct Reporter {
    /// Called at each pass.
    pub metrics: Arc<dyn Fn(&Snapshot) + Send + Sync>,
    /// Called at each change. The Event may be written only while the permit of lease C is valid.
    pub events: EmitEvent,
}

impl Snapshot {
    pub(super) fn of(name: &str, report: &Report, status: &CloudProviderMigrationStatus) -> Self {
        let of_type = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let conditions = condition::ALL
            .into_iter()
            .filter_map(|type_| Some((type_, of_type(type_)?.status.clone())));
        let owners = status.controllers.iter().map(|row| (row.name.clone(), row.owner));
        let inputs = &report.inputs;

        Self {
            name: name.to_owned(),
            phase: report.decision.phase,
            conditions: conditions.collect(),
            owners: owners.collect(),
            unreadable: [
                ("migration", matches!(inputs.spec, Reading::Unreadable(_))),
                (
                    "kube-controller-managers",
                    !inputs.facts.controller_managers.unreadable.is_empty(),
                ),
                ("kube-controller-manager-lease", report.holders.is_main_unreadable),
                ("migration-lease", report.holders.is_migration_unreadable),
            ],
            alarm: status.history.last().is_some_and(|newest| newest.alarm),
            leader_not_listed: of_type(condition::CONTROL_PLANE_MIGRATED)
                .is_some_and(|condition| condition.reason == LEADER_NOT_LISTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{migrating, report};
    use super::*;

    #[test]
    fn each_source_that_cannot_be_read_is_named() {
        let mut report = report(migrating());
        let status = CloudProviderMigrationStatus::default();
        let unreadable = |report: &Report| {
            let all = Snapshot::of("prod", report, &status).unreadable.into_iter();
            all.filter(|(_, unreadable)| *unreadable)
                .map(|(source, _)| source)
                .collect::<Vec<_>>()
        };
        assert!(unreadable(&report).is_empty());

        report.inputs.spec = Reading::Unreadable("gone".into());
        report.inputs.facts.controller_managers.unreadable = vec!["Namespace tenant: forbidden".into()];
        assert_eq!(unreadable(&report), ["migration", "kube-controller-managers"]);

        report.holders.is_main_unreadable = true;
        report.holders.is_migration_unreadable = true;
        let all = Snapshot::of("prod", &report, &status).unreadable;
        assert_eq!(unreadable(&report), all.map(|(source, _)| source));
    }
}
