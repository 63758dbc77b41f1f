//! The steward on a paused clock, with every source in the test's hand.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::{ApiResource, DynamicObject};
use outrigger_shared::component::Form;
use tokio::time::sleep;

use super::*;
use crate::evidence::tests::kcm;
use crate::record::Record;

const LEASE: Duration = Duration::from_secs(15);

/// The other ends of all that a steward has.
struct StatusInputs {
    _wish: watch::Sender<Reading<(MigrationSpec, Option<Phase>)>>,
    managers: watch::Sender<Reading<Vec<ControllerManager>>>,
    main: watch::Sender<View>,
    migration: watch::Sender<View>,
    holding: watch::Sender<bool>,
    annotation_changes: mpsc::Receiver<AnnotationChange>,
    gate: watch::Receiver<bool>,
    steward: tokio::task::JoinHandle<()>,
    version: u64,
}

fn spec(phase: Phase) -> Reading<(MigrationSpec, Option<Phase>)> {
    let spec = MigrationSpec {
        uid: "u".into(),
        phase,
        downtime: false,
    };
    Reading::Known((spec, None))
}

fn managers(leader_migration: bool) -> Reading<Vec<ControllerManager>> {
    Reading::Known(vec![kcm(Form::InTree { leader_migration })])
}

impl StatusInputs {
    fn new(phase: Phase, latch: Option<Latch>) -> Self {
        let (spec, wish_rx) = watch::channel(spec(phase));
        let (managers, managers_rx) = watch::channel(managers(true));
        let ((main, main_rx), (migration, migration_rx)) =
            (watch::channel(View::default()), watch::channel(View::default()));
        let (holding, holding_rx) = watch::channel(false);
        let (notes_tx, annotation_changes) = mpsc::channel(4);
        let (gate_tx, gate) = watch::channel(false);
        let sources = Sources {
            spec: wish_rx,
            controller_managers: managers_rx,
            main: main_rx,
            migration: migration_rx,
            holding: holding_rx,
        };
        let config = Config {
            identity: "us".into(),
            lease_duration: LEASE,
            latch,
        };
        let (reports, _) = watch::channel(None);
        let stop = CancellationToken::new();
        Self {
            _wish: spec,
            managers,
            main,
            migration,
            holding,
            annotation_changes,
            gate,
            steward: tokio::spawn(run(config, sources, notes_tx, gate_tx, reports, stop)),
            version: 0,
        }
    }

    /// Somebody writes a lease.
    fn renew(&mut self, lease: fn(&Self) -> &watch::Sender<View>, holder: &str) {
        self.version += 1;
        let mut object = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
        let at = Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap();
        Record::created_by(holder, LEASE, at).write_to(&mut object);
        object.metadata.resource_version = Some(self.version.to_string());
        lease(self).send_modify(|view| view.see(object, Instant::now()));
    }

    fn renew_both(&mut self, holder: &str) {
        self.renew(|world| &world.main, holder);
        self.renew(|world| &world.migration, holder);
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
        *self.gate.borrow()
    }
}

fn latch(phase: Phase) -> Latch {
    Latch {
        uid: "u".into(),
        phase,
        held_migration_lease: true,
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_found_are_no_evidence_until_their_holder_renews_them() {
    let mut world = StatusInputs::new(Phase::Prepare, None);
    world.renew_both("kcm");
    assert!(world.latched().await.is_none(), "the holder may be long dead");
    sleep(Duration::from_secs(2)).await;
    world.renew_both("kcm");
    let latch = world.latched().await.unwrap().unwrap();
    assert_eq!((latch.phase, latch.held_migration_lease), (Phase::Prepare, false));
}

#[tokio::test(start_paused = true)]
async fn a_dead_predecessors_record_does_not_end_the_step_back() {
    let mut world = StatusInputs::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    world.renew(|world| &world.migration, "our predecessor, killed");
    assert!(world.latched().await.is_none());
    sleep(YIELD).await;
    assert!(world.is_open(), "nobody took it: it is taken back");
    world.renew(|world| &world.migration, "kcm");
    let latch = world.latched().await.unwrap().unwrap();
    assert!(!latch.held_migration_lease, "a living holder ends it");
    sleep(Duration::from_secs(1)).await;
    assert!(!world.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_gate_closes_before_the_latch_is_voided_and_opens_after_it_is_stored() {
    let mut world = StatusInputs::new(Phase::Migrate, Some(latch(Phase::Prepare)));
    sleep(Duration::from_secs(1)).await;
    assert!(!world.is_open(), "phase Migrate is not stored yet");
    assert_eq!(world.latched().await, Some(Some(latch(Phase::Migrate))));
    sleep(Duration::from_secs(1)).await;
    assert!(world.is_open());
    world.holding.send_replace(true);
    world.managers.send_replace(managers(false));
    sleep(Duration::from_secs(1)).await;
    assert!(!world.is_open(), "closing waits for nothing");
    assert_eq!(world.latched().await, Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_new_main_holder_gets_its_time_although_the_first_was_dead_when_it_was_found() {
    let mut world = StatusInputs::new(Phase::Prepare, Some(latch(Phase::Prepare)));
    world.renew(|world| &world.main, "dead");
    sleep(YIELD + Duration::from_secs(1)).await;
    assert!(world.is_open());
    world.holding.send_replace(true);
    sleep(Duration::from_secs(1)).await;
    assert!(world.is_open(), "taken back, so it is kept");
    world.renew(|world| &world.main, "kcm");
    sleep(Duration::from_secs(1)).await;
    assert!(!world.is_open(), "offered to the new one");
    world.holding.send_replace(false);
    sleep(YIELD - Duration::from_secs(1)).await;
    assert!(!world.is_open());
    sleep(Duration::from_secs(2)).await;
    assert!(world.is_open());
}

#[tokio::test(start_paused = true)]
async fn without_one_of_its_sources_the_steward_ends_instead_of_ruling_by_the_past() {
    let world = StatusInputs::new(Phase::Migrate, Some(latch(Phase::Migrate)));
    let StatusInputs { managers, steward, .. } = world;
    drop(managers);
    tokio::time::timeout(Duration::from_secs(1), steward)
        .await
        .unwrap()
        .unwrap();
}
