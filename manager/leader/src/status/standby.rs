//! The status while its last observer does not hold lease C: the reason `NotLed`, written by a manager that waits.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use outrigger_evidence::facts::Reading;
use outrigger_evidence::why::{Item, code};
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{
    CloudProviderMigration, CloudProviderMigrationStatus, ControllerStatus, MissingFact, condition,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{HEARTBEAT, WRITE_STATUS, in_time, is_same, patch};
use crate::lease::View;
use crate::readers::note_problem;
use crate::run::Guard;

/// Without a holder of lease C, a manager that is able to acquires it within this time.
const FREE: Duration = Duration::from_secs(5);
/// A new holder of lease C writes the status within this time.
const FIRST_STATUS: Duration = Duration::from_secs(30);
/// Time between two observations of the lease and the object.
const PERIOD: Duration = Duration::from_secs(2);

/// Lease C, as texts name it.
pub struct MainLease {
    /// Namespace and name.
    pub name: String,
    pub view: watch::Receiver<View>,
    pub duration: Duration,
}

/// Writes into the status that nobody observes the cluster, while that lasts. The next holder of lease C overwrites it.
/// `problems`: why this process does not compete for the lease, or why its requests for it fail.
pub async fn report_not_led(
    guard: Guard,
    object: watch::Receiver<Reading<CloudProviderMigration>>,
    lease: MainLease,
    problems: [watch::Receiver<Option<String>>; 2],
) -> Infallible {
    let api: Api<CloudProviderMigration> = Api::all(guard.management);
    let (mut causes, mut observers) = (Lasting::default(), Lasting::default());
    let mut failure = None;
    loop {
        sleep(PERIOD).await;
        let Some(object) = object.borrow().known().cloned() else {
            continue;
        };
        let old = object.status.unwrap_or_default();
        let unchanged = observers.lasts(old.observed_by.clone());
        let observer = old.observed_by.as_ref().map(|observer| observer.identity.as_str());
        let cause = cause(&lease.view.borrow(), observer, unchanged);
        let lasts = causes.lasts(cause.clone());
        let Some(cause) = cause.filter(|cause| lasts >= cause.grace(lease.duration)) else {
            continue;
        };

        let problem = problems.iter().find_map(|problem| problem.borrow().clone());
        let new = not_led(
            &old,
            &cause.item(&lease.name, problem.as_deref()),
            object.metadata.generation,
        );
        if is_same(&old, &new) {
            continue;
        }
        let write = patch(&api, &guard.migration, &new);
        note_problem(&mut failure, in_time(write).await.err(), WRITE_STATUS);
    }
}

/// A value, and since when it is the same.
pub(super) struct Lasting<T>(Option<(T, Instant)>);

impl<T> Default for Lasting<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq> Lasting<T> {
    /// How long it has had this value.
    pub(super) fn lasts(&mut self, value: T) -> Duration {
        match &self.0 {
            Some((last, since)) if *last == value => since.elapsed(),
            _ => {
                self.0 = Some((value, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

/// Why nobody is known to write the status.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    /// No process holds lease C.
    Free,
    /// It holds lease C and did not write the last status.
    Other(String),
    /// It holds lease C, and its status has not changed for some heartbeats.
    Silent(String),
    /// This process has no right to watch lease C.
    Unwatched,
}

/// `observer`: the process that wrote the status, which has been unchanged for some time. None while the holder of lease C
/// writes it, or may write it.
fn cause(lease: &View, observer: Option<&str>, unchanged: Duration) -> Option<Cause> {
    if let Some(failure) = &lease.failure {
        // A request that fails in another way may succeed elsewhere. A living holder with more rights overwrites this.
        return failure.is_forbidden.then_some(Cause::Unwatched);
    }
    if !lease.synced {
        return None;
    }

    let heartbeat = Duration::try_from(HEARTBEAT).unwrap_or(Duration::MAX);
    let now = Instant::now();
    match lease.live_holder(now) {
        // A record that was found may be of a living process until it expires.
        None => lease.holder(now).is_none().then_some(Cause::Free),
        Some(holder) if observer != Some(holder) => Some(Cause::Other(holder.to_owned())),
        Some(holder) => (unchanged > 3 * heartbeat).then(|| Cause::Silent(holder.to_owned())),
    }
}

impl Cause {
    /// How long it may last without a report.
    fn grace(&self, lease_duration: Duration) -> Duration {
        match self {
            Self::Free => FREE,
            Self::Other(_) => FIRST_STATUS,
            Self::Silent(_) => Duration::ZERO,
            Self::Unwatched => lease_duration,
        }
    }

    fn item(&self, lease: &str, problem: Option<&str>) -> Item {
        let cannot = problem.map_or_else(String::new, |problem| {
            format!(", and this manager cannot acquire it: {problem}")
        });
        let (observation, fix) = match self {
            Self::Free => (
                format!("no process holds the main lease {lease} of the manager{cannot}"),
                "end this problem, or start a manager that can acquire the lease",
            ),
            Self::Other(holder) => (
                format!("{holder:?} holds the main lease {lease} of the manager, and does not write this status"),
                "stop that process if it is no manager of Outrigger, or read its log",
            ),
            Self::Silent(holder) => (
                format!(
                    "{holder:?} holds the main lease {lease} of the manager, and has written no status for some minutes"
                ),
                "read its log: it has to patch cloudprovidermigrations/status",
            ),
            Self::Unwatched => (
                format!(
                    "it is not known which process holds the main lease {lease} of the manager, because this one may not watch it{cannot}"
                ),
                "let this manager get, list, watch and update it (Role outrigger-manager:main-lease)",
            ),
        };
        Item::new(code::NOT_LED, observation, fix)
    }
}

/// The last status, without claims that need a manager.
fn not_led(old: &CloudProviderMigrationStatus, item: &Item, generation: Option<i64>) -> CloudProviderMigrationStatus {
    let now = Timestamp::now();
    let rows = [
        (condition::READY, "Unknown"),
        (condition::RECONCILING, "False"),
        (condition::STALLED, "True"),
        (condition::PHASE_FOLLOWED, "Unknown"),
        (condition::CONTROL_PLANE_MIGRATED, "Unknown"),
        (condition::COMPLETED, "Unknown"),
        (condition::ADOPTION_CLEAN, "Unknown"),
    ];
    let is_kept = |type_: &str| condition::ALL.contains(&type_) && rows.iter().all(|row| row.0 != type_);
    let kept = old.conditions.iter().filter(|condition| is_kept(&condition.type_));
    let had = |type_: &str| old.conditions.iter().any(|condition| condition.type_ == type_);
    let is_shown = |(type_, _): &&(&str, &str)| *type_ != condition::ADOPTION_CLEAN || had(type_);
    let new = rows.iter().filter(is_shown).map(|(type_, truth)| {
        let reason = (code::NOT_LED, item.message());
        old.condition(type_, truth, reason, generation, now)
    });

    CloudProviderMigrationStatus {
        conditions: kept.cloned().chain(new).collect(),
        missing: vec![MissingFact {
            code: item.code.to_owned(),
            observation: item.observation.clone(),
            consequence: "nobody observes the cluster: this status shows an earlier state".to_owned(),
            fix: item.fix.clone(),
        }],
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
    use outrigger_evidence::samples::{broken, forbidden};
    use outrigger_shared::migration::Observer;
    use tokio::time::advance;

    use super::*;
    use crate::lease::tests::Server;

    const LEASE: Duration = Duration::from_secs(15);
    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn nobody_observes_while_the_lease_is_free_or_its_holder_did_not_write_the_status() {
        let mut server = Server::default();
        let cause_of = |server: &Server, observer| cause(&server.view, observer, MINUTE);
        assert_eq!(cause_of(&server, None), None, "not listed yet");

        server.delete();
        assert_eq!(cause_of(&server, Some("ours_a")), Some(Cause::Free));
        server.renew("ours_b");
        assert_eq!(cause_of(&server, Some("ours_b")), None);
        assert_eq!(cause_of(&server, Some("ours_a")), Some(Cause::Other("ours_b".into())));
        assert_eq!(cause_of(&server, None), Some(Cause::Other("ours_b".into())));
        advance(LEASE).await;
        assert_eq!(cause_of(&server, Some("ours_b")), Some(Cause::Free));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_was_found_may_be_of_a_living_process_until_it_expires() {
        let mut server = Server::default();
        server.renew("ours_a");
        assert_eq!(cause(&server.view, None, MINUTE), None);
        advance(LEASE).await;
        assert_eq!(cause(&server.view, None, MINUTE), Some(Cause::Free));
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_has_written_nothing_for_three_heartbeats_does_not_observe() {
        let mut server = Server::default();
        server.delete();
        server.renew("ours_a");
        assert_eq!(cause(&server.view, Some("ours_a"), 3 * MINUTE), None);
        let silent = Some(Cause::Silent("ours_a".into()));
        assert_eq!(cause(&server.view, Some("ours_a"), 3 * MINUTE + PERIOD), silent);
    }

    #[test]
    fn only_a_refused_watch_of_the_lease_is_reported_and_only_after_the_lease_duration() {
        let failing = |failure| {
            let mut view = View::default();
            view.failure = Some(failure);
            view
        };
        assert_eq!(cause(&failing(broken()), None, MINUTE), None);
        let refused = cause(&failing(forbidden()), None, MINUTE).unwrap();
        assert_eq!(refused, Cause::Unwatched);
        assert_eq!(refused.grace(LEASE), LEASE);
        assert_eq!(Cause::Free.grace(LEASE), FREE);
        assert_eq!(Cause::Other("x".into()).grace(LEASE), FIRST_STATUS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_counts_from_its_own_beginning() {
        let mut lasting = Lasting::default();
        assert_eq!(lasting.lasts(Some(Cause::Free)), Duration::ZERO);
        advance(FREE).await;
        assert_eq!(lasting.lasts(Some(Cause::Free)), FREE);
        assert_eq!(lasting.lasts(Some(Cause::Other("x".into()))), Duration::ZERO);
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
    fn the_status_has_the_reason_and_keeps_the_evidence_and_its_last_observer() {
        let now = Timestamp::UNIX_EPOCH;
        let written = CloudProviderMigrationStatus::default();
        let row = |type_, reason| written.condition(type_, "True", (reason, String::new()), Some(2), now);
        let old = CloudProviderMigrationStatus {
            conditions: vec![
                row(condition::READY, "Completed"),
                row(condition::PREPARED, "EvidenceLatched"),
                row(condition::COMPLETED, "Completed"),
                row(condition::OBJECTS_APPLIED, "AllApplied"),
            ],
            observed_generation: Some(2),
            observed_by: Some(Observer {
                identity: "ours_a".into(),
                time: Time(now),
            }),
            controllers: vec![
                owned(Party::CloudControllerManager, "host_1"),
                owned(Party::KubeControllerManager, "kcm-0_a"),
            ],
            ..written.clone()
        };
        let problem = "create of lease kube-system/c is forbidden";
        let item = Cause::Free.item("kube-system/c", Some(problem));
        let status = not_led(&old, &item, Some(3));

        let owners = status.controllers.iter().map(|row| (row.owner, row.holder.as_deref()));
        assert_eq!(
            owners.collect::<Vec<_>>(),
            [(None, None), (Some(Party::KubeControllerManager), Some("kcm-0_a"))]
        );
        assert!(status.controllers[0].since > Some(Time(now)));
        assert_eq!(status.observed_by, old.observed_by);
        assert_eq!(status.observed_generation, Some(2));

        let of = |type_: &str| {
            let row = status.conditions.iter().find(|row| row.type_ == type_);
            row.map(|row| (row.status.as_str(), row.reason.as_str()))
        };
        assert_eq!(of(condition::READY), Some(("Unknown", "NotLed")));
        assert_eq!(of(condition::STALLED), Some(("True", "NotLed")));
        assert_eq!(of(condition::COMPLETED), Some(("Unknown", "NotLed")));
        assert_eq!(of(condition::PREPARED), Some(("True", "EvidenceLatched")));
        assert_eq!(of(condition::OBJECTS_APPLIED), None, "it is the webhook's");
        assert!(status.missing[0].observation.contains(problem), "{:?}", status.missing);
        assert!(is_same(&status, &not_led(&status, &item, Some(3))), "written once");
    }
}
