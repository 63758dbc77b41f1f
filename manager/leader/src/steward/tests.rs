//! The steward on a paused clock, with every source in the test's hand.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::{ApiResource, DynamicObject};
use outrigger_evidence::facts::{Basis, ControllerManager};
use outrigger_evidence::record::Record;
use outrigger_evidence::samples::{EXTERNAL, GUARDED, UNGUARDED, kcm};
use outrigger_evidence::why::code;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::Phase;
use tokio::time::sleep;

use super::*;

const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);

/// The other ends of all that a steward has.
struct Ends {
    spec: watch::Sender<Reading<MigrationSpec>>,
    listing: watch::Sender<Listing>,
    main: watch::Sender<View>,
    migration: watch::Sender<View>,
    own_main: watch::Sender<View>,
    holding: watch::Sender<Option<Instant>>,
    annotation_changes: mpsc::Receiver<AnnotationChange>,
    gate: watch::Receiver<Gate>,
    fence: watch::Receiver<Fence>,
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
        attestation: None,
        seen_unattested: true,
    })
}

fn attested(phase: Phase, seen_unattested: bool) -> Reading<MigrationSpec> {
    Reading::Known(MigrationSpec {
        attestation: Some(Attestation {
            phase: phase.min(Phase::Migrate),
            holders: Vec::new(),
        }),
        seen_unattested,
        ..spec(phase).known().unwrap().clone()
    })
}

fn on_host(host: &str, form: outrigger_shared::component::Form) -> ControllerManager {
    ControllerManager {
        object: format!("Pod tenant/{host}"),
        host_names: vec![host.into()],
        ..kcm(form)
    }
}

impl Ends {
    fn new(phase: Phase, latch: Option<Latch>) -> Self {
        Self::with(phase, latch.map_or(Stored::Absent, Stored::Latch))
    }

    fn with(phase: Phase, latch: Stored) -> Self {
        let absent = || {
            let mut view = View::default();
            view.see_none(Instant::now());
            view
        };
        let (spec, spec_rx) = watch::channel(spec(phase));
        let (listing, listing_rx) = watch::channel(Listing::of(vec![kcm(GUARDED)], &[]));
        let ((main, main_rx), (migration, migration_rx)) = (watch::channel(absent()), watch::channel(absent()));
        let (own_main, own_main_rx) = watch::channel(absent());
        let (holding, holding_rx) = watch::channel(None);
        let (changes_tx, annotation_changes) = mpsc::channel(4);
        let (gate_tx, gate) = watch::channel(Gate::Closed);
        let (fence_tx, fence) = watch::channel(Fence::OPEN);
        let sources = Sources {
            spec: spec_rx,
            listing: listing_rx,
            main: main_rx,
            migration: migration_rx,
            own_main: own_main_rx,
            holding: holding_rx,
        };
        let config = Config {
            identity: "us".into(),
            lease_duration: LEASE,
            own: OwnSettings {
                routes: false,
                node_ipam: Placement::NotHere,
                renew_deadline: DEADLINE,
            },
            latch,
        };
        let controls = Controls {
            annotation_changes: changes_tx,
            gate: gate_tx,
            fence: fence_tx,
        };
        let (newest, reports) = watch::channel(None);
        let (all, all_reports) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        Self {
            spec,
            listing,
            main,
            migration,
            own_main,
            holding,
            annotation_changes,
            gate,
            fence,
            steward: tokio::spawn(run(config, sources, controls, Reports { newest, all }, stop)),
            reports,
            all_reports,
            version: 0,
        }
    }

    /// This process holds M in phase Migrate beside one external kube-controller-manager, which holds K.
    async fn leading() -> Self {
        Self::leading_beside(vec![kcm(EXTERNAL)]).await
    }

    async fn leading_beside(all: Vec<ControllerManager>) -> Self {
        let mut ends = Self::new(Phase::Migrate, Some(latch(Phase::Migrate)));
        ends.renew(|ends| &ends.main, KCM);
        ends.list(all);
        ends.stores_all().await;
        assert!(ends.is_open());
        ends.hold();
        ends.stores_all().await;
        ends.renew(|ends| &ends.main, KCM);
        sleep(MOMENT).await;
        ends
    }

    /// A list that begins now.
    fn list(&self, all: Vec<ControllerManager>) {
        self.listing.send_replace(Listing::of(all, &[]));
    }

    /// A place that cannot be listed.
    fn list_failed(&self) {
        self.listing.send_replace(Listing::of(Vec::new(), &["forbidden"]));
    }

    fn hold(&mut self) {
        self.renew(|ends| &ends.migration, "us");
        self.holding.send_replace(Some(Instant::now()));
    }

    /// The other task has released M.
    fn released(&self) {
        self.release();
        self.holding.send_replace(None);
    }

    /// Both leases were written before the first observation.
    fn found(&mut self, holder: &str) {
        for lease in [&self.main, &self.migration] {
            lease.send_replace(View::default());
        }
        self.renew_both(holder);
    }

    /// One of our managers releases M.
    fn release(&self) {
        self.migration.send_modify(|view| {
            let Some(mut lease) = view.lease.clone() else { return };
            let record = Record::of(&lease).released(Timestamp::UNIX_EPOCH);
            record.write_to(&mut lease);
            let signature = (crate::lease::RELEASED.to_owned(), record.signature().unwrap());
            lease.metadata.annotations = Some([signature].into());
            view.see(lease, Instant::now());
        });
    }

    /// A process writes a lease.
    fn renew(&mut self, lease: fn(&Self) -> &watch::Sender<View>, holder: &str) {
        self.version += 1;
        let mut object = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
        let at = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        Record {
            acquire_time: Some(Timestamp::UNIX_EPOCH - LEASE),
            ..Record::created_by(holder, LEASE, at)
        }
        .write_to(&mut object);
        object.metadata.resource_version = Some(self.version.to_string());
        lease(self).send_modify(|view| view.see(object, Instant::now()));
    }

    fn renew_both(&mut self, holder: &str) {
        self.renew(|ends| &ends.main, holder);
        self.renew(|ends| &ends.migration, holder);
    }

    /// Lease C with this annotation.
    fn own_lease(&mut self, latch: Option<&str>) -> DynamicObject {
        self.version += 1;
        let mut lease = DynamicObject::new("c", &ApiResource::erase::<Lease>(&()));
        let annotation = latch.map(|text| (latch::ANNOTATION.to_owned(), text.to_owned()));
        lease.metadata.annotations = Some(annotation.into_iter().collect());
        lease.metadata.resource_version = Some(self.version.to_string());
        lease
    }

    /// The next change of the annotations within a second. It is not stored.
    async fn next_change(&mut self) -> Option<AnnotationChange> {
        tokio::time::timeout(SECOND, self.annotation_changes.recv())
            .await
            .ok()?
    }

    /// The latch that is handed in, if one is within a second; it counts as stored at once.
    async fn latched(&mut self) -> Option<Option<Latch>> {
        let mut change = self.next_change().await?;
        let (key, text) = change.values.pop().unwrap();
        assert_eq!((key.as_str(), change.values.len()), (latch::ANNOTATION, 0));
        let lease = self.own_lease(text.as_deref());
        let _ = change.stored.send(Box::new(lease));
        Some(text.map(|text| Latch::parse(&text).unwrap()))
    }

    /// Stores all changes of the latch. Returns the last one.
    async fn stores_all(&mut self) -> Option<Latch> {
        let mut last = None;
        while let Some(latch) = self.latched().await {
            last = latch;
        }
        last
    }

    fn is_open(&self) -> bool {
        *self.gate.borrow() == Gate::Open
    }

    fn fence(&self) -> Fence {
        *self.fence.borrow()
    }

    fn is_fenced(&self) -> bool {
        !self.fence().is_open
    }

    /// The newest of all reports since the last call.
    fn newest(&mut self) -> Report {
        std::iter::from_fn(|| self.all_reports.try_recv().ok()).last().unwrap()
    }

    fn code(&mut self) -> &'static str {
        self.newest().decision.action.why().map_or("", Why::code)
    }
}

const KCM: &str = "kcm-0_a";

fn latch(phase: Phase) -> Latch {
    let MigrationSpec { uid, .. } = spec(phase).known().unwrap().clone();
    Latch {
        version: latch::VERSION,
        uid,
        phase,
        held_by: Some("us".into()),
        proven: Vec::new(),
        led_before: None,
        seen_unattested: true,
        superseded: false,
        other: BTreeMap::new(),
    }
}

fn proven(identity: &str, by: Basis) -> Proven {
    Proven {
        identity: identity.into(),
        by,
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_found_are_no_evidence_until_their_holder_renews_them() {
    let mut ends = Ends::new(Phase::Prepare, None);
    for _ in 0..20 {
        ends.version += 1;
    }
    ends.found(KCM);
    ends.list(vec![kcm(GUARDED)]);
    assert!(ends.latched().await.is_none(), "the holder may be long dead");
    sleep(SECOND * 2).await;
    ends.renew_both(KCM);
    let latch = ends.latched().await.unwrap().unwrap();
    assert_eq!((latch.phase, latch.held_by), (Phase::Prepare, None));
    assert_eq!(latch.proven, [proven(KCM, Basis::MigrationLease)]);
}

#[tokio::test(start_paused = true)]
async fn the_gate_opens_after_the_latch_of_the_phase_is_stored() {
    let mut ends = Ends::new(Phase::Migrate, Some(latch(Phase::Prepare)));
    ends.list(vec![kcm(EXTERNAL)]);
    sleep(SECOND).await;
    assert!(!ends.is_open(), "phase Migrate is not stored yet");
    assert_eq!(ends.latched().await, Some(Some(latch(Phase::Migrate))));
    sleep(SECOND).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_permit_is_closed_in_the_pass_that_sees_another_holder_of_the_main_lease() {
    let mut ends = Ends::leading_beside(vec![kcm(EXTERNAL), on_host("kcm-1", EXTERNAL)]).await;
    assert!(ends.is_open() && !ends.is_fenced());

    sleep(SECOND).await;
    let noticed = Instant::now();
    ends.renew(|ends| &ends.main, "kcm-1_b");
    sleep(MOMENT).await;
    let expected = Fence {
        is_open: false,
        ends: Some(noticed + IN_FLIGHT),
    };
    assert_eq!(ends.fence(), expected);
    assert_eq!(ends.code(), code::LISTING);
    assert!(ends.is_open(), "the lease is kept");

    // A list of before does not count, and the fence keeps its end.
    for _ in 0..10 {
        sleep(SECOND * 2).await;
        ends.renew(|ends| &ends.main, "kcm-1_b");
        ends.renew(|ends| &ends.migration, "us");
        assert_eq!(ends.fence(), expected);
    }

    ends.renew(|ends| &ends.main, "kcm-1_b");
    ends.list(vec![kcm(EXTERNAL), on_host("kcm-1", EXTERNAL)]);
    sleep(MOMENT).await;
    assert_eq!(ends.fence(), Fence::OPEN);
    assert!(ends.is_open());
    let latch = ends.stores_all().await.unwrap();
    assert_eq!(latch.proven[0], proven("kcm-1_b", Basis::External));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_a_later_list_does_not_prove_causes_an_alarm() {
    type Change = fn(&mut Ends);
    let changes: [(&str, Change); 3] = [
        (code::LEADER_NOT_PROVEN, |ends| ends.list(vec![kcm(EXTERNAL)])),
        (code::UNGUARDED, |ends| {
            ends.list(vec![kcm(EXTERNAL), on_host("kcm-1", UNGUARDED)]);
        }),
        (code::LEADER_NOT_PROVEN, |ends| ends.list_failed()),
    ];
    for (expected, change) in changes {
        let mut ends = Ends::leading().await;
        ends.renew(|ends| &ends.main, "kcm-1_b");
        sleep(MOMENT).await;
        assert!(ends.is_fenced() && ends.is_open());

        change(&mut ends);
        sleep(MOMENT).await;
        assert!(ends.is_fenced() && !ends.is_open(), "{expected}");
        let report = ends.newest();
        assert!(matches!(report.decision.action, LeaseAction::Alarm(_)));
        assert_eq!(report.decision.action.why().map(Why::code), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_alarm_the_lease_is_acquired_again_when_its_cause_is_gone() {
    let mut ends = Ends::leading().await;
    ends.renew(|ends| &ends.main, "kcm-1_b");
    ends.list(vec![kcm(EXTERNAL)]);
    sleep(MOMENT).await;
    assert!(!ends.is_open());
    ends.released();
    for _ in 0..30 {
        sleep(SECOND * 2).await;
        ends.renew(|ends| &ends.main, "kcm-1_b");
    }
    assert!(!ends.is_open());

    ends.renew(|ends| &ends.main, KCM);
    ends.list(vec![kcm(EXTERNAL)]);
    for _ in 0..14 {
        ends.latched().await;
        ends.renew(|ends| &ends.main, KCM);
    }
    assert!(!ends.is_open(), "the one before may act until its record expires");
    sleep(SECOND * 2).await;
    assert!(ends.is_open());
    assert_eq!(ends.fence(), Fence::OPEN);
}

#[tokio::test(start_paused = true)]
async fn where_a_process_may_take_the_main_lease_the_permit_ends_with_its_last_renewal() {
    let beside = |standby| vec![kcm(EXTERNAL), on_host("kcm-1", standby)];
    let mut ends = Ends::leading_beside(beside(UNGUARDED)).await;
    for _ in 0..3 {
        let renewed = Instant::now();
        ends.renew(|ends| &ends.main, KCM);
        sleep(MOMENT).await;
        let expected = Fence {
            is_open: true,
            ends: Some(renewed + DEADLINE),
        };
        assert_eq!(ends.fence(), expected);
        sleep(SECOND * 2).await;
    }

    // The holder of K dies. The permit ends before the lease expires, and then the pause is known, too.
    let renewed = ends.fence().ends.unwrap() - DEADLINE;
    tokio::time::sleep_until(renewed + LEASE - MOMENT).await;
    assert_eq!(ends.fence().ends, Some(renewed + DEADLINE));
    sleep(MOMENT * 2).await;
    assert!(ends.is_fenced() && ends.is_open());
    assert_eq!(ends.code(), code::MAIN_LEASE_NOT_HELD);

    ends.list(beside(EXTERNAL));
    sleep(MOMENT).await;
    assert_eq!(ends.fence(), Fence::OPEN, "nobody may act without M any more");
    ends.listing.send_replace(Listing::of(beside(EXTERNAL), &["forbidden"]));
    ends.renew(|ends| &ends.main, KCM);
    sleep(MOMENT).await;
    assert!(ends.fence().ends.is_some(), "a place that cannot be read may have one");
}

#[tokio::test(start_paused = true)]
async fn a_main_lease_that_cannot_be_watched_ends_the_permit_with_its_last_renewal() {
    let mut ends = Ends::leading().await;
    ends.renew(|ends| &ends.main, KCM);
    let renewed = Instant::now();
    sleep(SECOND).await;
    assert_eq!(ends.fence(), Fence::OPEN);
    ends.main
        .send_modify(|view| view.failure = Some(crate::lease::tests::forbidden()));
    sleep(MOMENT).await;
    let expected = Fence {
        is_open: true,
        ends: Some(renewed + DEADLINE),
    };
    assert_eq!(ends.fence(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_is_never_stored_does_not_delay_an_alarm() {
    let mut ends = Ends::leading().await;
    ends.spec.send_replace(spec(Phase::Complete));
    let pending = ends.next_change().await.unwrap();
    assert!(ends.is_open() && !ends.is_fenced());

    ends.list(vec![kcm(UNGUARDED)]);
    ends.renew(|ends| &ends.main, "kcm-0_b");
    sleep(MOMENT).await;
    ends.list(vec![kcm(UNGUARDED)]);
    sleep(MOMENT).await;
    assert!(ends.is_fenced() && !ends.is_open());
    assert!(matches!(ends.newest().decision.action, LeaseAction::Alarm(_)));

    ends.released();
    sleep(SECOND).await;
    let report = ends.newest();
    assert!(!report.inputs.holding && matches!(report.decision.action, LeaseAction::StandBy(_)));
    assert!(ends.next_change().await.is_none(), "one write at a time");
    drop(pending);
}

#[tokio::test(start_paused = true)]
async fn an_alarm_is_reported_before_the_latch_is_stored_also_if_the_lease_is_released_meanwhile() {
    let mut ends = Ends::leading().await;
    ends.spec.send_replace(spec(Phase::Complete));
    ends.renew(|ends| &ends.main, "kcm-0_b");
    ends.list(vec![kcm(UNGUARDED)]);
    sleep(MOMENT).await;
    let mut observed = || {
        let all = std::iter::from_fn(|| ends.all_reports.try_recv().ok());
        all.map(|report| (report.inputs.holding, report.decision.action))
            .collect::<Vec<_>>()
    };
    let is_alarm = |(holding, action): &(bool, LeaseAction)| *holding && matches!(action, LeaseAction::Alarm(_));
    assert!(observed().last().is_some_and(is_alarm));
    ends.released();
    sleep(MOMENT).await;
    let newest = ends.newest();
    assert!(!newest.inputs.holding && matches!(newest.decision.action, LeaseAction::StandBy(_)));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_latch_counts_as_absent_and_its_text_is_kept_beside_the_new_one() {
    let mut ends = Ends::with(Phase::Prepare, Stored::Damaged("yes".into()));
    ends.renew_both(KCM);
    ends.list(vec![kcm(GUARDED)]);
    let change = ends.next_change().await.unwrap();
    let damaged = (latch::DAMAGED_ANNOTATION.to_owned(), Some("yes".to_owned()));
    assert_eq!(change.values[0], damaged);
    let (key, text) = change.values[1].clone();
    assert_eq!(key, latch::ANNOTATION);
    let stored = Latch::parse(&text.unwrap()).unwrap();
    assert_eq!((stored.phase, stored.held_by), (Phase::Prepare, None));
    assert_eq!(ends.newest().inputs.latch, Stored::Absent);

    let lease = ends.own_lease(None);
    change.stored.send(Box::new(lease)).unwrap();
    ends.spec.send_replace(spec(Phase::Migrate));
    assert_eq!(
        ends.latched().await.unwrap().unwrap().phase,
        Phase::Migrate,
        "it is kept once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_appears_on_the_main_lease_counts_while_this_process_has_none() {
    let mut ends = Ends::new(Phase::Prepare, None);
    sleep(SECOND).await;
    assert_eq!(ends.newest().inputs.latch, Stored::Absent);
    let lease = ends.own_lease(Some(&latch(Phase::Prepare).to_text()));
    ends.own_main.send_modify(|view| view.see(lease, Instant::now()));
    sleep(MOMENT).await;
    assert_eq!(ends.newest().inputs.latch, Stored::Latch(latch(Phase::Prepare)));

    let other = Latch {
        held_by: Some("forged".into()),
        ..latch(Phase::Prepare)
    };
    let lease = ends.own_lease(Some(&other.to_text()));
    ends.own_main.send_modify(|view| view.see(lease, Instant::now()));
    sleep(MOMENT).await;
    assert_eq!(
        ends.newest().inputs.latch,
        Stored::Latch(latch(Phase::Prepare)),
        "the elector restores it"
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_state_of_the_main_lease_does_not_bring_back_a_latch_that_this_process_removed() {
    let mut ends = Ends::new(Phase::InTree, Some(latch(Phase::Prepare)));
    let old = ends.own_lease(Some(&latch(Phase::Prepare).to_text()));
    assert_eq!(ends.latched().await, Some(None));
    ends.own_main.send_modify(|view| view.see(old, Instant::now()));
    sleep(SECOND).await;
    assert_eq!(ends.newest().inputs.latch, Stored::Absent);
    assert!(ends.latched().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_leases_are_left_to_a_newer_manager_whose_latch_is_found() {
    let newer = r#"{"version":2}"#;
    let mut ends = Ends::new(Phase::Prepare, None);
    sleep(SECOND).await;
    assert!(!ends.steward.is_finished());
    let lease = ends.own_lease(Some(newer));
    ends.own_main.send_modify(|view| view.see(lease, Instant::now()));
    tokio::time::timeout(SECOND, ends.steward).await.unwrap().unwrap();

    let ends = Ends::with(Phase::Prepare, Stored::read(Some(newer)));
    tokio::time::timeout(SECOND, ends.steward).await.unwrap().unwrap();
    assert!(ends.reports.borrow().is_none());
}

/// Each user that may write lease C can write a latch while no manager holds it.
#[tokio::test(start_paused = true)]
async fn a_command_line_that_can_be_read_counts_more_than_a_latch_and_less_than_an_own_judgement() {
    let forged = || Latch {
        held_by: Some("thief".into()),
        proven: vec![Proven {
            identity: KCM.into(),
            by: Basis::External,
        }],
        ..latch(Phase::Migrate)
    };
    for (listed, is_open) in [
        (kcm(UNGUARDED), false),
        (kcm(EXTERNAL), true),
        (on_host("other", EXTERNAL), true),
    ] {
        let mut ends = Ends::new(Phase::Migrate, Some(forged()));
        ends.renew(|ends| &ends.main, KCM);
        ends.list(vec![listed.clone()]);
        ends.stores_all().await;
        assert_eq!(ends.is_open(), is_open, "{listed:?}");

        ends.list(vec![on_host("other", EXTERNAL)]);
        ends.stores_all().await;
        assert_eq!(ends.is_open(), is_open, "its Pod was deleted: {listed:?}");
    }

    // Another Pod with the host name of the leader, which this process found external.
    let ends = Ends::leading().await;
    ends.list(vec![kcm(UNGUARDED)]);
    sleep(SECOND).await;
    assert!(ends.is_open());
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
    assert!(!ends.is_open(), "its lease has not expired");
    sleep(LEASE).await;
    assert!(ends.is_open(), "no process acquired it: it is acquired again");
    ends.renew(|ends| &ends.migration, KCM);
    let latch = ends.latched().await.unwrap().unwrap();
    assert_eq!(latch.held_by, None, "a living holder ends it");
    sleep(SECOND).await;
    assert!(!ends.is_open());
}

/// A process that has just acquired K observes the record of M for its whole duration before it takes M.
#[tokio::test(start_paused = true)]
async fn an_expired_record_is_offered_longer_to_a_new_holder_of_the_main_lease() {
    let seen = |holder: Option<&str>| {
        let mut ends_view = View::default();
        ends_view.see_none(Instant::now());
        if let Some(holder) = holder {
            let mut lease = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
            Record::created_by(holder, LEASE, Timestamp::UNIX_EPOCH).write_to(&mut lease);
            ends_view.see(lease, Instant::now());
        }
        ends_view
    };
    let start = Instant::now();
    let (expiring, absent) = (seen(Some("our predecessor, killed")), seen(None));
    sleep(LEASE + SECOND).await;
    let main = seen(Some(KCM));
    let (led, now) = (Instant::now(), Instant::now());
    let ends = |main: &View, migration: &View, offer| yield_ends(main, migration, offer, LEASE, now);
    assert_eq!(ends(&seen(None), &expiring, None), Some(start + LEASE + YIELD));
    assert_eq!(ends(&main, &expiring, None), Some(led + LEASE + YIELD));
    assert_eq!(
        ends(&main, &absent, None),
        Some(led + YIELD),
        "there is no record to observe"
    );

    let offer = |at| {
        Some(Offer {
            at,
            time: Timestamp::UNIX_EPOCH,
            count: 1,
        })
    };
    assert_eq!(ends(&main, &absent, offer(led + SECOND)), Some(led + SECOND + YIELD));
    assert_eq!(ends(&main, &seen(Some("us")), None), None, "it is held");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_released_is_offered_for_the_full_time_after_its_expiry() {
    let mut ends = Ends::leading_beside(vec![kcm(GUARDED)]).await;
    ends.spec.send_replace(spec(Phase::Prepare));
    assert!(ends.latched().await.is_some());
    ends.renew(|ends| &ends.migration, "us");
    // A write was not answered, so the lease is left to expire.
    ends.holding.send_replace(None);
    sleep(LEASE + YIELD - SECOND).await;
    assert!(!ends.is_open());
    sleep(SECOND * 2).await;
    assert!(ends.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_own_acquisition_does_not_close_the_gate_before_it_counts_as_held() {
    let mut ends = Ends::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    sleep(YIELD + SECOND).await;
    assert!(ends.is_open());
    ends.renew(|ends| &ends.migration, "us");
    sleep(SECOND).await;
    assert!(
        ends.is_open(),
        "the watch was faster than the answer to the own request"
    );
    ends.holding.send_replace(Some(Instant::now()));
    sleep(SECOND).await;
    assert!(ends.is_open());
}

/// A step back in which K is held by guarded kube-controller-managers that do not acquire M.
struct StepBack {
    ends: Ends,
    leader: String,
    all: Vec<ControllerManager>,
}

impl StepBack {
    fn new(leader: &str) -> Self {
        let mut this = Self {
            ends: Ends::new(Phase::Prepare, Some(latch(Phase::Prepare))),
            leader: leader.into(),
            all: ["kcm-0", "kcm-1"].map(|host| on_host(host, GUARDED)).to_vec(),
        };
        this.led_by(leader);
        this
    }

    fn led_by(&mut self, leader: &str) {
        self.leader = leader.into();
        self.ends.renew(|ends| &ends.main, leader);
        self.ends.list(self.all.clone());
    }

    /// A second in which K is renewed and each latch is stored.
    async fn second(&mut self) {
        let _ = self.ends.latched().await;
        self.ends.renew(|ends| &ends.main, &self.leader.clone());
        tokio::task::yield_now().await;
        sleep(MOMENT).await;
    }

    async fn until_open(&mut self) {
        while !self.ends.is_open() {
            self.second().await;
        }
    }

    /// Acquires M, and returns for how many seconds it is kept; `None` when that is longer than `most`.
    async fn kept(&mut self, most: Duration) -> Option<u64> {
        let since = Instant::now();
        self.ends.hold();
        self.kept_since(since, most).await
    }

    async fn kept_since(&mut self, since: Instant, most: Duration) -> Option<u64> {
        sleep(MOMENT).await;
        while self.ends.is_open() && since.elapsed() < most {
            self.second().await;
            let (ends, migration) = (&mut self.ends, |ends: &Ends| ends.migration.borrow().lease.is_some());
            if ends.is_open() && migration(ends) {
                ends.renew(|ends| &ends.migration, "us");
            }
        }
        let kept = since.elapsed().as_secs();
        (!self.ends.is_open()).then(|| {
            self.ends.released();
            kept
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_offered_again_to_the_same_host_with_a_growing_backoff() {
    let mut back = StepBack::new(KCM);
    back.until_open().await;
    let mut kept = Vec::new();
    for number in 0..3 {
        // A crash loop: each process has an identity of its own.
        back.led_by(&format!("kcm-0_{number}"));
        kept.push(back.kept(LONGEST_BACKOFF).await.unwrap() / 60);
        back.until_open().await;
    }
    assert_eq!(kept, [0, 2, 4], "at once for the first time");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_offered_at_once_to_another_host() {
    let mut back = StepBack::new(KCM);
    back.until_open().await;
    let since = Instant::now();
    assert_eq!(back.kept(LONGEST_BACKOFF).await, Some(0));
    back.until_open().await;
    let offered = since.elapsed().as_secs();
    assert!((10..13).contains(&offered), "{offered}");

    back.ends.hold();
    assert_eq!(
        back.kept_since(Instant::now(), SECOND * 5).await,
        None,
        "the same process leads"
    );
    back.led_by("kcm-0_restarted");
    assert_eq!(back.kept_since(Instant::now(), SECOND * 5).await, None, "the same host");
    back.led_by("kcm-1_b");
    assert_eq!(back.kept_since(Instant::now(), SECOND * 5).await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_new_main_holder_gets_its_time_after_the_offer() {
    let mut back = StepBack::new(KCM);
    back.until_open().await;
    assert_eq!(back.kept(LONGEST_BACKOFF).await, Some(0));
    for _ in 0..8 {
        back.second().await;
    }
    assert!(!back.ends.is_open());
    back.led_by("kcm-1_b");
    let since = Instant::now();
    back.until_open().await;
    let offered = since.elapsed().as_secs();
    assert!((10..13).contains(&offered), "{offered}");
}

#[tokio::test(start_paused = true)]
async fn the_offers_of_a_step_back_end_with_it() {
    let (mut past, now) = (Past::default(), Instant::now());
    let mut main = View::default();
    let mut lease = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
    Record::created_by(KCM, LEASE, Timestamp::UNIX_EPOCH).write_to(&mut lease);
    main.see(lease, now);

    past.observe(&spec(Phase::Prepare), &main, None, now);
    past.note_offer(&main);
    past.note_offer(&main);
    assert_eq!(past.offer_of(&main, now).map(|offer| offer.count), Some(2));
    past.observe(&Reading::Unreadable("forbidden".into()), &main, None, now);
    past.observe(&spec(Phase::Prepare), &main, None, now);
    assert!(past.offer_of(&main, now).is_some());
    past.observe(&spec(Phase::Migrate), &main, None, now);
    past.observe(&spec(Phase::Prepare), &main, None, now);
    assert_eq!(past.offer_of(&main, now), None);
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_the_main_lease_when_a_phase_begins_is_noted_unless_it_was_proven() {
    let now = Instant::now();
    let mut main = View::default();
    let mut lease = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
    Record::created_by(KCM, LEASE, Timestamp::UNIX_EPOCH).write_to(&mut lease);
    main.see(lease, now);
    let noted = |past: &mut Past, phase| {
        past.observe(&spec(phase), &main, None, now);
        past.led_before.clone()
    };

    let mut past = Past::default();
    assert_eq!(
        noted(&mut past, Phase::Prepare),
        None,
        "this process did not see the phase begin"
    );
    assert_eq!(noted(&mut past, Phase::Prepare), None);
    assert_eq!(noted(&mut past, Phase::Migrate).as_deref(), Some(KCM));
    past.observe(&spec(Phase::Complete), &View::default(), None, now);
    assert_eq!(
        past.led_before.as_deref(),
        Some(KCM),
        "Migrate and Complete are one run"
    );

    past.proven.push(proven(KCM, Basis::MigrationLease));
    assert_eq!(noted(&mut past, Phase::Prepare), None);

    // A restart.
    let latched = |phase| Latch {
        led_before: Some("before".into()),
        ..latch(phase)
    };
    let after_restart = |phase, latch: &Latch| {
        let mut past = Past::default();
        past.observe(&spec(phase), &main, Some(latch), now);
        past.led_before
    };
    let before = Some("before".to_owned());
    assert_eq!(after_restart(Phase::Migrate, &latched(Phase::Migrate)), before);
    assert_eq!(after_restart(Phase::Complete, &latched(Phase::Migrate)), before);
    assert_eq!(after_restart(Phase::Migrate, &latched(Phase::Prepare)), None);
    let of_another = Latch {
        uid: "other".into(),
        ..latched(Phase::Migrate)
    };
    assert_eq!(after_restart(Phase::Migrate, &of_another), None);
}

#[tokio::test(start_paused = true)]
async fn an_attestation_does_not_count_for_a_process_that_led_before_the_phase() {
    let mut ends = Ends::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    ends.renew(|ends| &ends.main, "hidden_a");
    ends.list_failed();
    sleep(SECOND).await;
    ends.spec.send_replace(spec(Phase::Migrate));
    sleep(SECOND).await;
    ends.spec.send_replace(attested(Phase::Migrate, true));
    let latch = ends.stores_all().await.unwrap();
    assert_eq!(latch.led_before.as_deref(), Some("hidden_a"));
    ends.renew(|ends| &ends.main, "hidden_a");
    ends.list_failed();
    sleep(MOMENT).await;
    let facts = ends.newest().inputs.facts;
    assert!(
        matches!(facts.main_holder(), MainHolder::Unproven(_)),
        "{:?}",
        facts.main_holder()
    );

    ends.renew(|ends| &ends.main, "restarted_a");
    ends.list_failed();
    sleep(MOMENT).await;
    let expected = MainHolder::Proven(proven("restarted_a", Basis::AttestedInMigrate));
    assert_ne!(
        ends.newest().inputs.facts.main_holder(),
        expected,
        "the one before may still act"
    );
    sleep(LEASE).await;
    ends.renew(|ends| &ends.main, "restarted_a");
    sleep(MOMENT).await;
    assert_eq!(ends.newest().inputs.facts.main_holder(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_attestation_that_is_left_over_does_not_count_and_one_that_was_set_later_goes_on_counting() {
    let unseen = |phase| Latch {
        seen_unattested: false,
        ..latch(phase)
    };
    let counts = async |ends: &mut Ends| {
        ends.stores_all().await;
        ends.newest().inputs.facts.attestation.is_some()
    };
    let mut ends = Ends::new(Phase::Prepare, Some(unseen(Phase::Prepare)));
    ends.spec.send_replace(attested(Phase::Migrate, false));
    assert!(!counts(&mut ends).await, "it was there when the phase began");

    ends.spec.send_replace(spec(Phase::Migrate));
    sleep(SECOND).await;
    ends.spec.send_replace(attested(Phase::Migrate, true));
    assert!(counts(&mut ends).await);
    ends.spec.send_replace(attested(Phase::Complete, true));
    assert!(counts(&mut ends).await, "Migrate and Complete are one run");

    // A restart: the latch has it.
    for (phase, latched, expected) in [
        (Phase::Migrate, latch(Phase::Migrate), true),
        (Phase::Complete, latch(Phase::Migrate), true),
        (Phase::Migrate, unseen(Phase::Migrate), false),
        (Phase::Migrate, latch(Phase::Prepare), false),
        (
            Phase::Migrate,
            Latch {
                uid: "other".into(),
                ..latch(Phase::Migrate)
            },
            false,
        ),
    ] {
        let mut ends = Ends::new(phase, Some(latched.clone()));
        ends.spec.send_replace(attested(phase, false));
        sleep(MOMENT).await;
        let first = ends.newest().inputs.facts.attestation.is_some();
        ends.spec.send_replace(attested(phase, false));
        assert_eq!(
            (first, counts(&mut ends).await),
            (expected, expected),
            "{phase} {latched:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_proofs_of_the_latch_are_known_after_a_restart() {
    let latched = Latch {
        proven: vec![
            proven(KCM, Basis::External),
            proven("kcm-1_b", Basis::AttestedInPrepare),
        ],
        ..latch(Phase::Migrate)
    };
    let mut ends = Ends::new(Phase::Migrate, Some(latched.clone()));
    ends.renew(|ends| &ends.main, KCM);
    ends.list_failed();
    sleep(SECOND).await;
    assert_eq!(ends.newest().inputs.facts.proven, latched.proven);
    assert!(
        ends.is_open() && !ends.is_fenced(),
        "its Pod was listed before the restart"
    );

    ends.spec.send_replace(spec(Phase::Prepare));
    sleep(SECOND).await;
    let proven = ends.newest().inputs.facts.proven;
    assert_eq!(proven, latched.proven[..1], "the attestation was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_of_the_object_costs_the_owner_nothing() {
    let mut ends = Ends::leading().await;
    ends.spec.send_replace(Reading::Unreadable("410".into()));
    for _ in 0..30 {
        sleep(SECOND * 2).await;
        ends.renew(|ends| &ends.main, KCM);
        ends.renew(|ends| &ends.migration, "us");
        assert!(ends.is_open() && !ends.is_fenced());
    }
    assert!(ends.latched().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn without_one_of_its_sources_the_steward_ends_instead_of_deciding_by_the_past() {
    let ends = Ends::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    let Ends { listing, steward, .. } = ends;
    drop(listing);
    tokio::time::timeout(SECOND, steward).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_known_once_it_has_renewed_or_its_record_has_expired() {
    let mut ends = Ends::new(Phase::InTree, None);
    let mut reports = ends.reports.clone();
    ends.found("kcm-0_a");
    sleep(MOMENT).await;
    let known = |reports: &mut watch::Receiver<Option<Report>>| {
        let report = reports.borrow_and_update().clone();
        report.map(|report| (report.holders.known, report.holders.migration))
    };
    let kcm = || Some("kcm-0_a".to_owned());
    assert_eq!(known(&mut reports), Some((false, kcm())));

    ends.renew_both("kcm-0_a");
    sleep(MOMENT).await;
    assert_eq!(known(&mut reports), Some((true, kcm())));

    sleep(LEASE).await;
    assert_eq!(known(&mut reports), Some((true, None)));

    ends.main
        .send_modify(|view| view.failure = Some(crate::lease::tests::forbidden()));
    sleep(MOMENT).await;
    assert_eq!(known(&mut reports), Some((false, None)), "K may have a new holder");
    ends.renew(|ends| &ends.main, "kcm-0_a");

    // The process that released M sees its own record for a moment.
    ends.renew(|ends| &ends.migration, "us");
    sleep(MOMENT).await;
    assert!(!reports.borrow().as_ref().unwrap().holders.known);
}

/// The watch of K stood still until the fence had ended, and then shows another holder.
#[tokio::test(start_paused = true)]
async fn a_fence_that_has_ended_does_not_permit_again_when_it_closes() {
    let (past, soon) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let fence = |is_open, ends| Fence { is_open, ends };
    for (was, new, ends) in [
        (fence(true, Some(past)), fence(false, Some(soon)), Some(past)),
        (fence(true, None), fence(false, Some(soon)), Some(soon)),
        (fence(false, Some(past)), fence(false, Some(soon)), Some(past)),
        (fence(false, Some(past)), fence(true, Some(soon)), Some(soon)),
        (fence(false, Some(past)), fence(true, None), None),
    ] {
        let (sender, receiver) = watch::channel(was);
        set_fence(&sender, new);
        assert_eq!(*receiver.borrow(), fence(new.is_open, ends), "{was:?} to {new:?}");
    }
}
