//! The steward on a paused clock, with every source in the test's hand.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::{ApiResource, DynamicObject};
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::Phase;
use tokio::time::sleep;

use super::*;
use crate::evidence::tests::{EXTERNAL, GUARDED, UNGUARDED, kcm, seen, unreadable};
use crate::latch::Basis;
use crate::record::Record;

const LEASE: Duration = Duration::from_secs(15);

/// The other ends of all that a steward has.
struct Ends {
    spec: watch::Sender<Reading<MigrationSpec>>,
    managers: watch::Sender<ControllerManagers>,
    main: watch::Sender<View>,
    migration: watch::Sender<View>,
    holding: watch::Sender<Option<Acquired>>,
    service_writes: watch::Sender<Observed>,
    annotation_changes: mpsc::Receiver<AnnotationChange>,
    gate: watch::Receiver<Gate>,
    steward: tokio::task::JoinHandle<()>,
    reports: watch::Receiver<Option<Report>>,
    all_reports: mpsc::UnboundedReceiver<Report>,
    version: u64,
}

fn spec(phase: Phase) -> Reading<MigrationSpec> {
    Reading::Known(MigrationSpec {
        uid: "u".into(),
        generation: 1,
        phase,
        attested_phase: None,
    })
}

impl Ends {
    fn new(phase: Phase, latch: Option<Latch>) -> Self {
        let absent = || {
            let mut view = View::default();
            view.see_none(Instant::now());
            view
        };
        let (spec, spec_rx) = watch::channel(spec(phase));
        let (managers, managers_rx) = watch::channel(seen(vec![kcm(GUARDED)]));
        let ((main, main_rx), (migration, migration_rx)) = (watch::channel(absent()), watch::channel(absent()));
        let (holding, holding_rx) = watch::channel(None);
        let (service_writes, service_writes_rx) = watch::channel(Observed {
            read: true,
            newest: None,
        });
        let (notes_tx, annotation_changes) = mpsc::channel(4);
        let (gate_tx, gate) = watch::channel(Gate::Closed);
        let sources = Sources {
            spec: spec_rx,
            controller_managers: managers_rx,
            main: main_rx,
            migration: migration_rx,
            holding: holding_rx,
            service_writes: service_writes_rx,
        };
        let config = Config {
            identity: "us".into(),
            lease_duration: LEASE,
            own: OwnSettings {
                routes: false,
                node_ipam: Placement::NotHere,
                renew_deadline: Duration::from_secs(10),
            },
            latch: latch.map_or(Stored::Absent, Stored::Latch),
        };
        let (newest, reports) = watch::channel(None);
        let (all, all_reports) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        Self {
            spec,
            managers,
            main,
            migration,
            holding,
            service_writes,
            annotation_changes,
            gate,
            steward: tokio::spawn(run(config, sources, notes_tx, gate_tx, Reports { newest, all }, stop)),
            reports,
            all_reports,
            version: 0,
        }
    }

    /// Both leases were written before the first observation.
    fn found(&mut self, holder: &str) {
        for lease in [&self.main, &self.migration] {
            lease.send_replace(View::default());
        }
        self.renew_both(holder);
    }

    /// This process releases M.
    fn release(&mut self) {
        self.migration.send_modify(|view| {
            if let Some(mut lease) = view.lease.clone() {
                Record::of(&lease).released(Timestamp::UNIX_EPOCH).write_to(&mut lease);
                view.see(lease, Instant::now());
            }
        });
    }

    /// A process writes a lease.
    fn renew(&mut self, lease: fn(&Self) -> &watch::Sender<View>, holder: &str) {
        self.version += 1;
        let mut object = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
        let at = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        Record::created_by(holder, LEASE, at).write_to(&mut object);
        object.metadata.resource_version = Some(self.version.to_string());
        lease(self).send_modify(|view| view.see(object, Instant::now()));
    }

    fn renew_both(&mut self, holder: &str) {
        self.renew(|ends| &ends.main, holder);
        self.renew(|ends| &ends.migration, holder);
    }

    /// An old manager writes the status of a Service.
    fn wrote(&self, second: i64) {
        let write = crate::service_write::ServiceWrite {
            service: "shop/web".into(),
            time: Timestamp::from_second(second).unwrap(),
        };
        self.service_writes
            .send_modify(|observed| observed.newest = Some((write, Instant::now())));
    }

    /// The latch that is handed in, if one is within a second; it counts as stored at once.
    async fn latched(&mut self) -> Option<Option<Latch>> {
        let second = Duration::from_secs(1);
        let note = tokio::time::timeout(second, self.annotation_changes.recv())
            .await
            .ok()??;
        let _ = note.stored.send(());
        Some(note.value.map(|text| Latch::parse(&text).unwrap()))
    }

    fn is_open(&self) -> bool {
        *self.gate.borrow() == Gate::Open
    }
}

fn acquired(at: Instant) -> Option<Acquired> {
    Some(Acquired { at, stored_at: None })
}

const KCM: &str = "kcm-0_a";

fn latch(phase: Phase) -> Latch {
    Latch {
        version: latch::VERSION,
        uid: "u".into(),
        generation: 1,
        phase,
        basis: Basis::LeaderMigration,
        held_by: Some("us".into()),
        held_since: None,
        main_holder: None,
        superseded: false,
        other: std::collections::BTreeMap::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_found_are_no_evidence_until_their_holder_renews_them() {
    let mut ends = Ends::new(Phase::Prepare, None);
    ends.found(KCM);
    assert!(ends.latched().await.is_none(), "the holder may be long dead");
    sleep(Duration::from_secs(2)).await;
    ends.renew_both(KCM);
    let latch = ends.latched().await.unwrap().unwrap();
    assert_eq!((latch.phase, latch.held_by), (Phase::Prepare, None));
}

#[tokio::test(start_paused = true)]
async fn a_dead_predecessors_record_does_not_end_the_step_back() {
    let killed = Latch {
        held_by: Some("our predecessor, killed".into()),
        ..latch(Phase::Prepare)
    };
    let mut ends = Ends::new(Phase::Prepare, Some(killed));
    ends.renew(|ends| &ends.migration, "our predecessor, killed");
    ends.renew(|ends| &ends.migration, "our predecessor, killed");
    assert!(ends.latched().await.is_none());
    sleep(YIELD).await;
    assert_eq!(
        *ends.gate.borrow(),
        Gate::EmptyExpired,
        "its lease runs; the old manager has to find it free when it expires"
    );
    sleep(LEASE).await;
    assert!(ends.is_open(), "nobody acquired it: it is acquired again");
    ends.renew(|ends| &ends.migration, KCM);
    let latch = ends.latched().await.unwrap().unwrap();
    assert_eq!(latch.held_by, None, "a living holder ends it");
    sleep(Duration::from_secs(1)).await;
    assert!(!ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_gate_closes_before_the_latch_is_voided_and_opens_after_it_is_stored() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Prepare)));
    sleep(Duration::from_secs(1)).await;
    assert!(!ends.is_open(), "phase Migrate is not stored yet");
    assert_eq!(ends.latched().await, Some(Some(latch(Phase::Migrate))));
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open());
    ends.holding.send_replace(acquired(Instant::now()));
    ends.managers.send_replace(seen(vec![kcm(UNGUARDED)]));
    sleep(Duration::from_secs(1)).await;
    assert!(!ends.is_open(), "closing waits for nothing");
    assert_eq!(ends.latched().await, Some(None));
}

#[tokio::test(start_paused = true)]
async fn an_alarm_is_reported_before_the_latch_is_stored_also_if_the_lease_is_released_meanwhile() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    ends.holding.send_replace(acquired(Instant::now()));
    sleep(Duration::from_secs(1)).await;
    ends.managers.send_replace(seen(vec![kcm(EXTERNAL), kcm(UNGUARDED)]));
    sleep(Duration::from_secs(1)).await;
    let mut observed = || {
        let all = std::iter::from_fn(|| ends.all_reports.try_recv().ok());
        all.map(|report| (report.inputs.holding, report.decision.action))
            .collect::<Vec<_>>()
    };
    let alarm = |(holding, action): &(bool, LeaseAction)| *holding && matches!(action, LeaseAction::Alarm(_));
    assert!(observed().last().is_some_and(alarm), "the latch is not stored yet");

    ends.holding.send_replace(None);
    let change = ends.annotation_changes.recv().await.unwrap();
    change.stored.send(()).unwrap();
    sleep(Duration::from_millis(1)).await;
    let all = observed();
    assert!(all.first().is_some_and(alarm), "{all:?}");
    assert!(matches!(all.last(), Some((false, LeaseAction::StandBy(_)))), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn after_an_alarm_the_lease_is_acquired_again_when_its_cause_is_gone() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    ends.holding.send_replace(acquired(Instant::now()));
    ends.managers.send_replace(seen(vec![kcm(EXTERNAL), kcm(UNGUARDED)]));
    assert_eq!(ends.latched().await, Some(None));
    ends.holding.send_replace(None);
    sleep(Duration::from_secs(60)).await;
    assert!(!ends.is_open());
    ends.managers.send_replace(seen(vec![kcm(EXTERNAL)]));
    assert_eq!(ends.latched().await.unwrap().unwrap().basis, Basis::External);
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_released_is_offered_for_the_full_time_after_its_expiry() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    sleep(Duration::from_secs(11)).await;
    assert!(ends.is_open());
    ends.renew(|ends| &ends.migration, "us");
    ends.holding.send_replace(acquired(Instant::now()));
    ends.spec.send_replace(spec(Phase::Prepare));
    assert!(ends.latched().await.is_some());
    ends.renew(|ends| &ends.migration, "us");
    // A write was not answered, so the lease is left to expire.
    ends.holding.send_replace(None);
    sleep(LEASE + YIELD - Duration::from_secs(1)).await;
    assert!(!ends.is_open());
    sleep(Duration::from_secs(2)).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_own_acquisition_does_not_close_the_gate_before_it_counts_as_held() {
    let mut ends = Ends::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    sleep(YIELD + Duration::from_secs(1)).await;
    assert!(ends.is_open());
    ends.renew(|ends| &ends.migration, "us");
    sleep(Duration::from_secs(1)).await;
    assert!(
        ends.is_open(),
        "the watch was faster than the answer to the own request"
    );
    ends.holding.send_replace(Some(Acquired {
        at: Instant::now(),
        stored_at: None,
    }));
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_offered_again_with_a_growing_backoff() {
    assert_eq!(kept_in_step_back(seen(vec![kcm(GUARDED)])).await, [2, 2, 4]);
    assert_eq!(
        kept_in_step_back(unreadable()).await,
        [2, 2, 4],
        "one of them may be in-tree"
    );
}

/// For how many minutes M is kept before each offer of a step back.
async fn kept_in_step_back(managers: ControllerManagers) -> Vec<u64> {
    let mut ends = Ends::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    ends.managers.send_replace(managers);
    ends.renew(|ends| &ends.main, KCM);
    let mut kept = Vec::new();
    for _ in 0..3 {
        while !ends.is_open() {
            sleep(Duration::from_secs(1)).await;
            ends.renew(|ends| &ends.main, KCM);
        }
        let since = Instant::now();
        ends.holding.send_replace(acquired(since));
        while ends.is_open() && since.elapsed() < LONGEST_BACKOFF {
            sleep(Duration::from_secs(1)).await;
            ends.renew(|ends| &ends.main, KCM);
        }
        kept.push(since.elapsed().as_secs() / 60);
        ends.holding.send_replace(None);
        ends.release();
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn a_new_main_holder_gets_its_time_although_the_first_was_dead_when_it_was_found() {
    let mut ends = Ends::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    ends.renew(|ends| &ends.main, "dead");
    sleep(YIELD + Duration::from_secs(1)).await;
    assert!(ends.is_open());
    ends.holding.send_replace(acquired(Instant::now()));
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open(), "acquired again, so it is kept");
    ends.renew(|ends| &ends.main, KCM);
    sleep(Duration::from_secs(1)).await;
    assert!(!ends.is_open(), "offered to the new one");
    ends.holding.send_replace(None);
    sleep(YIELD - Duration::from_secs(1)).await;
    assert!(!ends.is_open());
    sleep(Duration::from_secs(2)).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn without_the_object_a_restarted_manager_offers_the_lease_only_to_a_new_main_holder() {
    for (recorded, offers) in [(Some(KCM), false), (Some("former_a"), true), (None, true)] {
        let recorded = Latch {
            main_holder: recorded.map(str::to_owned),
            ..latch(Phase::Migrate)
        };
        let mut ends = Ends::new(Phase::Migrate, Some(recorded));
        ends.spec.send_replace(Reading::Unreadable("forbidden".into()));
        ends.managers.send_replace(unreadable());
        ends.main.send_replace(View::default());
        ends.renew(|ends| &ends.main, KCM);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ends.is_open(), !offers);
        if !offers {
            continue;
        }

        sleep(YIELD).await;
        let latch = ends.latched().await.unwrap().unwrap();
        assert_eq!(latch.main_holder.as_deref(), Some(KCM), "it was offered in vain");
        sleep(Duration::from_secs(1)).await;
        assert!(ends.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_of_the_object_costs_the_owner_nothing() {
    for (managers, is_offered_later) in [(unreadable(), true), (seen(vec![kcm(EXTERNAL)]), false)] {
        let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
        ends.managers.send_replace(managers);
        let second = Duration::from_secs(1);
        sleep(YIELD).await;
        ends.renew(|ends| &ends.migration, "us");
        ends.holding.send_replace(acquired(Instant::now()));
        sleep(second).await;
        ends.renew(|ends| &ends.main, KCM);
        sleep(second).await;
        let failed = || Reading::Unreadable("410".into());
        ends.spec.send_replace(failed());
        sleep(gate::UNREADABLE * 2).await;
        assert!(ends.is_open(), "K's holder appeared before: it was rolled in Migrate");

        ends.spec.send_replace(spec(Phase::Migrate));
        sleep(second).await;
        ends.spec.send_replace(failed());
        sleep(second).await;
        ends.renew(|ends| &ends.main, "kcm-0_b");
        sleep(gate::UNREADABLE - second).await;
        assert!(ends.is_open(), "the object may be readable again soon");
        sleep(second * 2).await;
        assert_eq!(ends.is_open(), !is_offered_later, "the operator may have gone back");
    }
}

#[tokio::test(start_paused = true)]
async fn without_one_of_its_sources_the_steward_ends_instead_of_deciding_by_the_past() {
    let ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    let Ends { managers, steward, .. } = ends;
    drop(managers);
    tokio::time::timeout(Duration::from_secs(1), steward)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_of_an_old_manager_keeps_the_lease_free_for_a_while() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    ends.managers.send_replace(seen(vec![kcm(EXTERNAL)]));
    sleep(Duration::from_secs(1)).await;
    assert!(ends.gate.has_changed().unwrap() && ends.is_open());
    ends.renew(|ends| &ends.migration, "us");
    ends.holding.send_replace(Some(Acquired {
        at: Instant::now(),
        stored_at: Some(Timestamp::UNIX_EPOCH),
    }));
    assert!(
        ends.latched()
            .await
            .flatten()
            .is_some_and(|latch| latch.held_since.is_some())
    );

    ends.wrote(60);
    sleep(Duration::from_millis(1)).await;
    assert!(!ends.is_open(), "an alarm");
    ends.release();
    ends.holding.send_replace(None);

    sleep(gate::QUIET - Duration::from_secs(1)).await;
    assert!(!ends.is_open());
    sleep(Duration::from_secs(6)).await;
    assert!(ends.is_open(), "the old manager is gone");
}

#[tokio::test(start_paused = true)]
async fn a_write_before_the_acquisition_is_no_alarm_although_its_api_server_is_a_minute_ahead() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    ends.managers.send_replace(seen(vec![kcm(EXTERNAL)]));
    ends.wrote(60);
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open());
    ends.renew(|ends| &ends.migration, "us");
    ends.holding.send_replace(Some(Acquired {
        at: Instant::now(),
        stored_at: Some(Timestamp::UNIX_EPOCH),
    }));
    let latch = ends.latched().await.flatten().unwrap();
    assert_eq!(latch.held_since.unwrap().as_second(), 60, "for the next process, too");
    sleep(Duration::from_secs(1)).await;
    assert!(ends.is_open());

    ends.wrote(76);
    sleep(Duration::from_millis(1)).await;
    assert!(!ends.is_open(), "it writes again");
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_known_once_it_has_renewed_or_its_record_has_expired() {
    let mut ends = Ends::new(Phase::InTree, None);
    let mut reports = ends.reports.clone();
    ends.found("kcm-0_a");
    sleep(Duration::from_millis(1)).await;
    let known = |reports: &mut watch::Receiver<Option<Report>>| {
        let report = reports.borrow_and_update().clone();
        report.map(|report| (report.holders.known, report.holders.migration))
    };
    let kcm = || Some("kcm-0_a".to_owned());
    assert_eq!(known(&mut reports), Some((false, kcm())));

    ends.renew_both("kcm-0_a");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(known(&mut reports), Some((true, kcm())));

    sleep(LEASE).await;
    assert_eq!(known(&mut reports), Some((true, None)));

    ends.main
        .send_modify(|view| view.failure = Some(crate::lease::tests::forbidden()));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(known(&mut reports), Some((false, None)), "K may have a new holder");
    ends.renew(|ends| &ends.main, "kcm-0_a");

    // The process that released M sees its own record for a moment.
    ends.renew(|ends| &ends.migration, "us");
    sleep(Duration::from_millis(1)).await;
    assert!(!reports.borrow().as_ref().unwrap().holders.known);
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_new_only_if_it_came_after_the_own_acquisition_and_the_failure() {
    let start = Instant::now();
    let second = |second| start + Duration::from_secs(second);
    let since = |at: Instant| View {
        holder_since: Some(at),
        ..View::default()
    };
    let readable = Past::default();
    assert!(!readable.has_new_main_holder(&since(second(10)), second(10), second(20)));
    assert!(readable.has_new_main_holder(&since(second(11)), second(10), second(20)));
    assert!(!readable.has_new_main_holder(&View::default(), second(10), second(20)));

    let unreadable = Past {
        unreadable_since: Some(second(30)),
        ..Past::default()
    };
    let at_its_end = |at: Instant| unreadable.has_new_main_holder(&since(at), second(10), at + gate::UNREADABLE);
    assert!(!at_its_end(second(20)) && !at_its_end(second(30)) && at_its_end(second(31)));
    let before = second(30) + gate::UNREADABLE;
    assert!(!unreadable.has_new_main_holder(&since(second(31)), second(10), before));
}
