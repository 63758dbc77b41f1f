//! The status while no manager can acquire lease C.

use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Client};
use outrigger_shared::migration::{CloudProviderMigration, CloudProviderMigrationStatus, condition};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{in_time, patch};
use crate::evidence::Reading;
use crate::lease::View;

/// A problem that ends within this time is not written.
const LASTING: Duration = Duration::from_secs(5);

/// A process that competes for lease C.
pub struct Candidate {
    /// The API server of the object.
    pub management: Client,
    /// The object's name.
    pub migration: String,
    pub object: watch::Receiver<Reading<CloudProviderMigration>>,
    /// The watch of lease C.
    pub lease: watch::Receiver<View>,
    /// Why the last request for lease C failed, while they fail.
    pub problem: watch::Receiver<Option<String>>,
}

impl Candidate {
    /// Writes the reason for which lease C cannot be acquired, once for each reason, and only while no other process is
    /// seen to hold it. The next holder overwrites it.
    pub async fn run(mut self) {
        let api: Api<CloudProviderMigration> = Api::all(self.management.clone());
        while self.problem.changed().await.is_ok() {
            sleep(LASTING).await;
            let Some(problem) = self.problem.borrow_and_update().clone() else {
                continue;
            };
            // Without a watch that works it is unknown whether another process holds the lease.
            let may_be_held = |view: &View| view.failing || !view.synced || view.live_holder(Instant::now()).is_some();
            if may_be_held(&self.lease.borrow()) {
                continue;
            }

            let Some(object) = self.object.borrow().known().cloned() else {
                continue;
            };
            let old = object.status.unwrap_or_default();
            let status = unled(&old, &problem, object.metadata.generation, Timestamp::now());
            if let Err(error) = in_time(patch(&api, &self.migration, &status)).await {
                tracing::error!(error, "cannot write the migration's status");
            }
        }
    }
}

/// The status of the last holder, without claims that need a holder.
fn unled(
    old: &CloudProviderMigrationStatus,
    problem: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> CloudProviderMigrationStatus {
    let why = format!("no manager holds the main lease, since this one cannot acquire it: {problem}");
    let rows = [
        (
            condition::CONTROL_PLANE_MIGRATED,
            "Unknown",
            "MainLeaseRequestFailed",
            why.clone(),
        ),
        (condition::COMPLETED, "False", "MainLeaseRequestFailed", why),
    ];
    let is_kept = |type_: &str| condition::ALL.contains(&type_) && rows.iter().all(|row| row.0 != type_);
    let kept = old
        .conditions
        .iter()
        .filter(|condition| is_kept(&condition.type_))
        .cloned();
    let new = rows
        .iter()
        .map(|(type_, truth, reason, message)| old.condition(type_, truth, (reason, message.clone()), generation, now));

    CloudProviderMigrationStatus {
        conditions: kept.chain(new).collect(),
        ..old.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_holder_of_the_main_lease_the_status_has_the_reason_and_keeps_the_evidence() {
        let now = Timestamp::UNIX_EPOCH;
        let written = CloudProviderMigrationStatus::default();
        let row = |type_, reason| written.condition(type_, "True", (reason, String::new()), Some(2), now);
        let old = CloudProviderMigrationStatus {
            conditions: vec![
                row(condition::PREPARED, "EvidenceLatched"),
                row(condition::COMPLETED, "Completed"),
                row(condition::OBJECTS_APPLIED, "AllApplied"),
            ],
            observed_generation: Some(2),
            ..written.clone()
        };
        let problem = "create of lease kube-system/c is forbidden";
        let status = unled(&old, problem, Some(3), now);

        assert!(status.is_true(condition::PREPARED) && !status.is_true(condition::COMPLETED));
        let of = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let control_plane = of(condition::CONTROL_PLANE_MIGRATED).unwrap();
        assert_eq!(control_plane.reason, "MainLeaseRequestFailed");
        assert!(control_plane.message.contains(problem), "{}", control_plane.message);
        assert!(of(condition::OBJECTS_APPLIED).is_none(), "it is the webhook's");
        assert_eq!(status.observed_generation, Some(2));
    }
}
