//! The status while no manager can acquire lease C.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use outrigger_evidence::facts::Reading;
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, condition};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{in_time, is_same, patch};
use crate::lease::View;
use crate::run::Guard;

/// A problem that ends within this time is not written.
const LASTING: Duration = Duration::from_secs(5);
/// Time between two observations of the lease and the problem.
const PERIOD: Duration = Duration::from_secs(2);

/// Writes the reason for which this process cannot acquire lease C, once for each reason, and only while no other process
/// is seen to hold it. The next holder overwrites it. `problems`: why it is not competed for, or why requests for it fail.
pub async fn report_unled(
    guard: Guard,
    object: watch::Receiver<Reading<CloudProviderMigration>>,
    lease: watch::Receiver<View>,
    lease_duration: Duration,
    problems: [watch::Receiver<Option<String>>; 2],
) {
    let api: Api<CloudProviderMigration> = Api::all(guard.management);
    let mut progress = Progress::default();
    loop {
        sleep(PERIOD).await;
        let problem = problems.iter().find_map(|problem| problem.borrow().clone());
        let due = progress.due(&lease.borrow(), lease_duration, problem.as_deref());
        if let Some(why) = due {
            let object = object.borrow().known().cloned();
            let answer = match object {
                Some(object) => write(&api, &guard.migration, object, &why).await.map(|()| true),
                None => Ok(false),
            };
            progress.note(why, answer);
        }
    }
}

async fn write(
    api: &Api<CloudProviderMigration>,
    name: &str,
    object: CloudProviderMigration,
    why: &str,
) -> Result<(), String> {
    let old = object.status.unwrap_or_default();
    let new = unled(&old, why, object.metadata.generation, Timestamp::now());
    match is_same(&old, &new) {
        true => Ok(()),
        false => in_time(patch(api, name, &new)).await,
    }
}

#[derive(Default)]
struct Progress {
    /// Since when requests for lease C fail.
    since: Option<Instant>,
    written: Option<String>,
    last_error: Option<String>,
}

impl Progress {
    fn due(&mut self, lease: &View, lease_duration: Duration, problem: Option<&str>) -> Option<String> {
        let Some(problem) = problem else {
            *self = Self::default();
            return None;
        };
        let lasted = self.since.get_or_insert_with(Instant::now).elapsed();
        let why = why_unled(lease, lasted, lease_duration, problem);
        if why.is_none() {
            self.written = None;
        }
        why.filter(|why| self.written.as_ref() != Some(why))
    }

    /// Notes whether `why` was written. If not, it stays due.
    fn note(&mut self, why: String, answer: Result<bool, String>) {
        match answer {
            Ok(is_written) => {
                self.written = is_written.then_some(why);
                self.last_error = None;
            }
            Err(error) if self.last_error.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(error, "cannot write the migration's status");
                self.last_error = Some(error);
            }
        }
    }
}

/// The text about lease C, whose requests have failed for `lasted`; none if another process may hold the lease.
fn why_unled(lease: &View, lasted: Duration, lease_duration: Duration, problem: &str) -> Option<String> {
    match &lease.failure {
        // A request that fails in another way may succeed elsewhere. A living holder with more rights overwrites this.
        Some(failure) => (failure.is_forbidden && lasted > lease_duration).then(|| {
            format!("it is not known whether a manager holds the main lease, since this one can neither watch nor acquire it: {problem}")
        }),
        None => (lease.synced && lease.live_holder(Instant::now()).is_none() && lasted >= LASTING)
            .then(|| format!("no manager holds the main lease, since this one cannot acquire it: {problem}")),
    }
}

/// The status of the last holder, without claims that need a holder.
fn unled(
    old: &CloudProviderMigrationStatus,
    why: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> CloudProviderMigrationStatus {
    let rows = [
        (condition::CONTROL_PLANE_MIGRATED, "Unknown"),
        (condition::COMPLETED, "False"),
    ];
    let is_kept = |type_: &str| condition::ALL.contains(&type_) && rows.iter().all(|row| row.0 != type_);
    let kept = old
        .conditions
        .iter()
        .filter(|condition| is_kept(&condition.type_))
        .cloned();
    let reason = "MainLeaseRequestFailed";
    let new = rows
        .iter()
        .map(|(type_, truth)| old.condition(type_, truth, (reason, why.to_owned()), generation, now));

    CloudProviderMigrationStatus {
        conditions: kept.chain(new).collect(),
        controllers: old.controllers.iter().map(|row| without_manager(row, now)).collect(),
        ..old.clone()
    }
}

fn without_manager(row: &ControllerStatus, now: Timestamp) -> ControllerStatus {
    if row.owner != Some(Party::CloudControllerManager) {
        return row.clone();
    }
    ControllerStatus {
        owner: None,
        holder: None,
        since: Some(Time(now)),
        ..row.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::{broken, forbidden};

    const LEASE: Duration = Duration::from_secs(15);

    #[test]
    fn a_lease_that_this_process_may_not_watch_is_unknown_after_its_duration() {
        let (watched, mut refused, mut failing) = (absent(), absent(), absent());
        (refused.failure, failing.failure) = (Some(forbidden()), Some(broken()));
        let why = |lease: &View, seconds| why_unled(lease, Duration::from_secs(seconds), LEASE, "forbidden");
        assert_eq!(why(&watched, 4), None);
        let text = why(&watched, 5).unwrap();
        assert!(
            text.starts_with("no manager holds") && text.ends_with("forbidden"),
            "{text}"
        );
        assert_eq!(why(&refused, 15), None);
        let text = why(&refused, 16).unwrap();
        assert!(text.starts_with("it is not known whether a manager holds"), "{text}");
        assert_eq!(why(&failing, 60), None);
        assert_eq!(why(&View::default(), 60), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_written_once_also_if_the_first_write_fails_or_the_watch_is_refused_too() {
        let mut lease = absent();
        lease.failure = Some(forbidden());
        let (mut progress, start) = (Progress::default(), Instant::now());
        let mut answers = [Err("no answer".to_owned()), Ok(false), Ok(true), Ok(true)].into_iter();
        let mut writes = Vec::new();
        for second in 0..60 {
            let problem = Some("forbidden").filter(|_| second != 30);
            if let Some(why) = progress.due(&lease, LEASE, problem) {
                writes.push(start.elapsed().as_secs());
                progress.note(why, answers.next().unwrap());
            }
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(
            writes,
            [16, 17, 18, 47],
            "failed, object not read, written; a new problem"
        );
    }

    fn absent() -> View {
        let mut view = View::default();
        view.see_none(Instant::now());
        view
    }

    fn owned(owner: Party, holder: &str) -> ControllerStatus {
        ControllerStatus {
            name: "service-lb-controller".into(),
            owner: Some(owner),
            lease: None,
            holder: Some(holder.into()),
            since: None,
        }
    }

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
            controllers: vec![
                owned(Party::CloudControllerManager, "host_1"),
                owned(Party::KubeControllerManager, "kcm-0_a"),
            ],
            ..written.clone()
        };
        let problem = "create of lease kube-system/c is forbidden";
        let status = unled(&old, problem, Some(3), now);
        let owners = status.controllers.iter().map(|row| (row.owner, row.holder.as_deref()));
        assert_eq!(
            owners.collect::<Vec<_>>(),
            [(None, None), (Some(Party::KubeControllerManager), Some("kcm-0_a"))]
        );
        assert_eq!(status.controllers[0].since, Some(Time(now)));

        assert!(status.is_true(condition::PREPARED) && !status.is_true(condition::COMPLETED));
        let of = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let control_plane = of(condition::CONTROL_PLANE_MIGRATED).unwrap();
        assert_eq!(control_plane.reason, "MainLeaseRequestFailed");
        assert!(control_plane.message.contains(problem), "{}", control_plane.message);
        assert!(of(condition::OBJECTS_APPLIED).is_none(), "it is the webhook's");
        assert_eq!(status.observed_generation, Some(2));
    }
}
