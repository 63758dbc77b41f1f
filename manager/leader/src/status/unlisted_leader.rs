//! A holder of lease K that is none of the kube-controller-managers that can be read, while this process holds lease M:
//! it may be in-tree without leader migration.

use std::time::Duration;

use outrigger_shared::migration::{CloudProviderMigration, condition};
use tokio::sync::watch;
use tokio::time::Instant;

use super::conditions::LEADER_NOT_LISTED;
use super::notices::Notice;
use crate::evidence::{self, Reading};
use crate::readers::send_new;
use crate::steward::Report;

/// client-go's default, where the record of the lease has none.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// The problem, and since when it was observed in each report.
#[derive(Debug, Default)]
struct Unlisted(Option<(String, Instant)>);

impl Unlisted {
    /// The problem, if it has lasted for more than the duration of the lease. Until then the holder may be a Pod that was
    /// just deleted.
    fn observe(&mut self, report: &Report, now: Instant) -> Option<String> {
        let problem = problem(report);
        let last = self.0.take().filter(|(last, _)| Some(last) == problem.as_ref());
        let (problem, since) = self.0.insert(last.or_else(|| Some((problem?, now)))?);

        let duration = report.inputs.facts.main.duration.unwrap_or(LEASE_DURATION);
        (now.saturating_duration_since(*since) > duration).then(|| problem.clone())
    }
}

fn problem(report: &Report) -> Option<String> {
    let facts = &report.inputs.facts;
    let phase = report.decision.phase?;
    // A place that cannot be listed may have the holder. The condition names that place.
    let every_place_is_listed = facts.controller_managers.unreadable.is_empty();
    if !report.inputs.holding || !every_place_is_listed || facts.attested_phase == Some(phase) {
        return None;
    }

    let problem = evidence::unlisted_leader(facts)?;
    Some(format!(
        "{problem}; stop it, if it is in-tree without leader migration; or, if it is not, attest that with spec.attestedPhase: {phase}"
    ))
}

/// Follows the problem in the reports, and emits an Event when it begins to last, until the reports end. A restart of the
/// process repeats no Event.
pub(super) async fn follow(
    object: watch::Receiver<Reading<CloudProviderMigration>>,
    mut reports: watch::Receiver<Option<Report>>,
    lasting: watch::Sender<Option<String>>,
    notify: impl Fn(&Notice) + Send,
) {
    let mut unlisted = Unlisted::default();
    let mut reported = None;
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else {
            continue;
        };

        let problem = unlisted.observe(&report, Instant::now());
        if let Some(problem) = problem.as_ref().filter(|_| reported != problem) {
            if !is_written(&object.borrow(), problem) {
                notify(&Notice::warning(LEADER_NOT_LISTED, problem.clone()));
            }
            reported = Some(problem.clone());
        }
        send_new(&lasting, problem);
    }
}

/// Whether the object has the problem already, by another process.
fn is_written(object: &Reading<CloudProviderMigration>, problem: &str) -> bool {
    let status = object.known().and_then(|object| object.status.as_ref());
    let mut conditions = status.iter().flat_map(|status| &status.conditions);
    conditions.any(|row| {
        row.type_ == condition::CONTROL_PLANE_MIGRATED
            && row.reason == LEADER_NOT_LISTED
            && row.message.contains(problem)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use outrigger_shared::migration::{CloudProviderMigrationSpec, CloudProviderMigrationStatus, Phase};

    use super::super::conditions::control_plane;
    use super::super::tests::{holding, report};
    use super::*;
    use crate::evidence::tests::held;
    use crate::gate::Inputs;

    /// Phase Migrate with M held by this process. The kube-controller-manager that can be read is external, on host kcm-0.
    fn led_by(holder: &str) -> Inputs {
        let mut inputs = holding();
        inputs.facts.main = held(holder);
        inputs
    }

    #[test]
    fn a_holder_that_is_not_listed_for_longer_than_its_lease_is_a_problem() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut unlisted = Unlisted::default();
        let mut observe = |inputs: Inputs, second| unlisted.observe(&report(inputs), at(second));

        assert_eq!(observe(led_by("kcm-0_a"), 0), None, "listed");
        assert_eq!(observe(led_by("other_b"), 100), None);
        assert_eq!(observe(led_by("other_b"), 115), None, "it may have ended");
        let problem = observe(led_by("other_b"), 116).unwrap();
        assert!(
            problem.contains("other_b") && problem.contains("spec.attestedPhase: Migrate"),
            "{problem}"
        );
        assert_eq!(observe(led_by("other_c"), 117), None, "another holder");

        let cases: [fn(&mut Inputs); 3] = [
            |inputs| inputs.holding = false,
            |inputs| inputs.facts.attested_phase = Some(Phase::Migrate),
            |inputs| inputs.facts.controller_managers.unreadable = vec!["Namespace tenant: forbidden".into()],
        ];
        for change in cases {
            let mut inputs = led_by("other_c");
            change(&mut inputs);
            assert_eq!(observe(inputs, 200), None);
            assert_eq!(observe(led_by("other_c"), 300), None, "it begins again");
        }
    }

    #[test]
    fn the_condition_is_unknown_while_the_leader_is_not_listed() {
        let report = report(led_by("other_b"));
        let (_, truth, reason, message) = control_plane(&report, None, Some("a problem"));
        assert_eq!((truth, reason), (None, LEADER_NOT_LISTED), "{message}");
        assert!(message.contains("a problem"), "{message}");
    }

    #[test]
    fn only_the_condition_of_the_control_plane_has_the_problem_of_another_process() {
        let none = CloudProviderMigrationStatus::default();
        let is_written = |type_: &str, reason: &'static str, message: &str| {
            let row = none.condition(
                type_,
                "Unknown",
                (reason, message.into()),
                None,
                jiff::Timestamp::UNIX_EPOCH,
            );
            let mut object = CloudProviderMigration::new("x", CloudProviderMigrationSpec::new("x"));
            object.status = Some(CloudProviderMigrationStatus {
                conditions: vec![row],
                ..none.clone()
            });
            is_written(&Reading::Known(object), "a problem")
        };
        let control_plane = condition::CONTROL_PLANE_MIGRATED;
        assert!(is_written(control_plane, LEADER_NOT_LISTED, "but a problem"));
        assert!(!is_written(condition::PREPARED, LEADER_NOT_LISTED, "but a problem"));
        assert!(!is_written(control_plane, "Undecided", "but a problem"));
        assert!(!is_written(control_plane, LEADER_NOT_LISTED, "but another one"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_event_is_emitted_and_none_after_a_restart() {
        let mut object = CloudProviderMigration::new("x", CloudProviderMigrationSpec::new("x"));
        for events in [1, 0] {
            let (_object, object_rx) = watch::channel(Reading::Known(object.clone()));
            let (reports, reports_rx) = watch::channel(None);
            let (lasting, lasting_rx) = watch::channel(None);
            let notices = std::sync::Arc::new(Mutex::new(Vec::new()));
            let sink = std::sync::Arc::clone(&notices);
            let notify = move |notice: &Notice| sink.lock().unwrap().push(notice.reason);
            let task = tokio::spawn(follow(object_rx, reports_rx, lasting, notify));
            for _ in 0..5 {
                reports.send_replace(Some(report(led_by("other_b"))));
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            drop(reports);
            task.await.unwrap();
            assert_eq!(notices.lock().unwrap().len(), events);

            let problem = lasting_rx.borrow().clone().unwrap();
            let none = CloudProviderMigrationStatus::default();
            let (type_, _, reason, message) = control_plane(&report(led_by("other_b")), None, Some(&problem));
            let row = none.condition(type_, "Unknown", (reason, message), None, jiff::Timestamp::UNIX_EPOCH);
            object.status = Some(CloudProviderMigrationStatus {
                conditions: vec![row],
                ..none
            });
        }
    }
}
