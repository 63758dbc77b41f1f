//! Another manager that leads the same migration under another lease C. It writes the same status, which shows that it
//! is alive: this process may have no right to read its lease.

use std::time::Duration;

use outrigger_shared::controller::Controller;
use outrigger_shared::migration::{CloudProviderMigration, ControllerStatus};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::notices::Notice;
use crate::evidence::Reading;
use crate::steward::Report;

/// How often it has to overwrite the status. The last write of a predecessor may be stored late, but only once.
const OVERWRITES: u32 = 2;
/// How long the status is left to it after that. It may have ended.
const GIVES_WAY: Duration = Duration::from_secs(300);
/// Time in which no overwrite is expected, so that the receiver stays current.
const PERIOD: Duration = Duration::from_secs(5);

const REASON: &str = "SecondManager";

/// The observed writes of the row of the node controller, which has the holder of C.
#[derive(Debug, Default)]
struct Overwrites {
    /// The row had this process last.
    own_is_last: bool,
    count: u32,
    last: Option<Instant>,
}

impl Overwrites {
    fn observe(&mut self, row: &ControllerStatus, identity: &str, now: Instant) {
        match row.holder.as_deref() {
            Some(holder) if holder == identity => self.own_is_last = true,
            Some(_) if self.own_is_last => {
                self.own_is_last = false;
                self.count += 1;
                self.last = Some(now);
            }
            _ => {}
        }
    }

    fn gives_way(&self, now: Instant) -> bool {
        self.count >= OVERWRITES && self.last.is_some_and(|last| now < last + GIVES_WAY)
    }
}

fn message(row: &ControllerStatus) -> String {
    let (holder, lease) = (row.holder.as_deref(), row.lease.as_deref());
    format!(
        "{} leads this migration, too, under a lease {} that this manager does not use, so two managers run the controllers: give both the same --leader-elect-resource-name and --leader-elect-resource-namespace, or stop one of them. The other manager writes the status",
        holder.unwrap_or_default(),
        lease.unwrap_or_default()
    )
}

fn row(object: &Reading<CloudProviderMigration>) -> Option<&ControllerStatus> {
    let rows = &object.known()?.status.as_ref()?.controllers;
    rows.iter().find(|row| row.name == Controller::Node.canonical_name())
}

/// Follows whether the status is left to another manager, and emits an Event when that begins, until the reports end.
pub(super) async fn follow(
    mut object: watch::Receiver<Reading<CloudProviderMigration>>,
    reports: watch::Receiver<Option<Report>>,
    gives_way: watch::Sender<bool>,
    notify: impl Fn(&Notice) + Send,
) {
    let mut overwrites = Overwrites::default();
    while reports.has_changed().is_ok() {
        let identity = reports.borrow().as_ref().map(|report| report.inputs.identity.clone());
        let row = row(&object.borrow_and_update()).cloned();
        if let (Some(row), Some(identity)) = (row, identity) {
            overwrites.observe(&row, &identity, Instant::now());
            let now = overwrites.gives_way(Instant::now());
            let before = gives_way.send_replace(now);
            if now && !before {
                let message = message(&row);
                tracing::error!(message, "another manager leads the migration");
                notify(&Notice::warning(REASON, message));
            }
        }

        tokio::select! {
            Ok(()) = object.changed() => {}
            () = sleep(PERIOD) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use outrigger_shared::controller::Party;
    use outrigger_shared::migration::{CloudProviderMigrationSpec, CloudProviderMigrationStatus};

    use super::super::tests::{migrating, report};
    use super::*;

    fn written_by(holder: &str) -> Reading<CloudProviderMigration> {
        let mut object = CloudProviderMigration::new("x", CloudProviderMigrationSpec::new("x"));
        object.status = Some(CloudProviderMigrationStatus {
            controllers: vec![ControllerStatus {
                name: Controller::Node.canonical_name().to_owned(),
                owner: Some(Party::CloudControllerManager),
                lease: Some("other".into()),
                holder: Some(holder.into()),
                since: None,
            }],
            ..CloudProviderMigrationStatus::default()
        });
        Reading::Known(object)
    }

    /// Whether the process gives way a second after each of these writes, and the Events.
    async fn after(writers: &[&str], later: Duration) -> (Vec<bool>, Vec<Notice>) {
        let (object, object_rx) = watch::channel(Reading::Pending);
        let (reports, reports_rx) = watch::channel(Some(report(migrating())));
        let (gives_way, gives_way_rx) = watch::channel(false);
        let notices = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&notices);
        let notify = move |notice: &Notice| all.lock().unwrap().push(notice.clone());
        let task = tokio::spawn(follow(object_rx, reports_rx, gives_way, notify));
        let mut seen = Vec::new();
        for writer in writers {
            object.send_replace(written_by(writer));
            sleep(Duration::from_secs(1)).await;
            seen.push(*gives_way_rx.borrow());
        }
        sleep(later).await;
        seen.push(*gives_way_rx.borrow());
        drop(reports);
        task.await.unwrap();
        let notices = notices.lock().unwrap().clone();
        (seen, notices)
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_overwrites_the_status_again_is_a_second_manager() {
        let (seen, notices) = after(&["us", "b", "us", "b", "b"], Duration::ZERO).await;
        assert_eq!(seen, [false, false, false, true, true, true]);
        assert_eq!(notices.len(), 1, "{notices:?}");
        let text = &notices[0].message;
        assert!(
            text.starts_with("b leads this migration, too, under a lease other"),
            "{text}"
        );

        let (_, notices) = after(&["us", "b", "us", "b"], Duration::ZERO).await;
        assert_eq!(notices.len(), 1, "the Event is emitted at once: {notices:?}");
        let (seen, _) = after(&["us", "b", "us", "b"], GIVES_WAY + PERIOD).await;
        assert_eq!(seen.last(), Some(&false), "it may have ended");
    }

    #[test]
    fn the_status_is_left_to_it_for_five_minutes() {
        let overwrites = Overwrites {
            own_is_last: false,
            count: OVERWRITES,
            last: Some(Instant::now()),
        };
        let last = overwrites.last.unwrap();
        assert!(overwrites.gives_way(last + GIVES_WAY - Duration::from_secs(1)));
        assert!(!overwrites.gives_way(last + GIVES_WAY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_predecessor_is_no_second_manager() {
        for writers in [&["a", "us", "us"][..], &["us", "a", "us"], &["a", "b", "a", "us"]] {
            let (seen, notices) = after(writers, Duration::ZERO).await;
            assert!(!seen.contains(&true) && notices.is_empty(), "{writers:?}");
        }
    }
}
