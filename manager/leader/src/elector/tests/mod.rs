//! The elector against an API server in memory, on a paused clock.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::coordination::v1::Lease;
use kube::core::ApiResource;
use tokio::sync::mpsc;

mod decisions;
mod deleted;
mod inherited;
mod problem;
mod slow;

use super::*;
use crate::lease::UNSIGNED;
use crate::permit::Permit;

pub(crate) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// An API server with one Lease: resourceVersions, conflicts, and switches for faults.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    view: Arc<watch::Sender<View>>,
    /// The delays of this client alone, instead of those of the state.
    own_delays: Option<(Duration, Duration)>,
}

#[derive(Default)]
struct State {
    lease: Option<DynamicObject>,
    version: u64,
    /// Requests time out and have no effect.
    away: bool,
    /// Each write has a conflict.
    conflicts: bool,
    /// The watch shows nothing.
    stalled: bool,
    /// How long a write takes until it is stored, and then until it is answered.
    delays: (Duration, Duration),
    /// Creates the Lease right after a read that found none.
    creates_next: Option<String>,
    requests: u32,
    writes: u32,
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The view of a Lease that does not exist since `at`.
fn absent(at: Instant) -> View {
    let mut view = View::default();
    view.see_none(at);
    view
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            view: Arc::new(watch::channel(absent(Instant::now())).0),
            own_delays: None,
        }
    }

    pub(crate) fn elector(&self, identity: &str) -> Elector<Self> {
        Elector::new(self.clone(), "lease", identity, TIMING, self.view.subscribe())
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// A write by any process.
    fn store(&self, mut lease: DynamicObject) -> DynamicObject {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        state.writes += 1;
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease.clone());
        if !state.stalled {
            let seen = lease.clone();
            self.view.send_modify(|view| view.see(seen, Instant::now()));
        }
        lease
    }

    fn delete(&self) {
        let mut state = self.state.lock().unwrap();
        state.lease = None;
        if !state.stalled {
            self.view.send_modify(|view| view.see_none(Instant::now()));
        }
    }

    fn held_by(&self, holder: &str, renewed: i64) {
        let mut lease = self.new_object();
        let at = Timestamp::from_second(renewed).unwrap();
        Record::created_by(holder, Duration::from_secs(15), at).write_to(&mut lease);
        self.store(lease);
    }

    /// Another process changes the Lease.
    fn edit(&self, change: impl FnOnce(&mut DynamicObject)) {
        let mut lease = self.lease();
        change(&mut lease);
        self.store(lease);
    }

    pub(crate) fn lease(&self) -> DynamicObject {
        self.state.lock().unwrap().lease.clone().unwrap()
    }

    fn holder(&self) -> String {
        Record::of(&self.lease()).holder
    }

    fn check(&self, lease: &DynamicObject) -> Result<(), LeaseError> {
        let state = self.state.lock().unwrap();
        let current = state.lease.as_ref().map(|l| l.metadata.resource_version.clone());
        let based_on = lease.metadata.resource_version.clone();
        match current {
            _ if state.conflicts => Err(LeaseError::Conflict),
            Some(version) if version == based_on => Ok(()),
            None if based_on.is_none() => Ok(()),
            _ => Err(LeaseError::Conflict),
        }
    }

    fn request(&self) -> Result<(), LeaseError> {
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        assert!(state.requests < 10_000, "requests without a pause");
        match state.away {
            true => Err(LeaseError::TimedOut(Duration::from_secs(1))),
            false => Ok(()),
        }
    }

    /// A write, which is also stored if its caller does not wait for the answer.
    async fn write(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        self.request()?;
        let delays = self.own_delays.unwrap_or(self.state.lock().unwrap().delays);
        let (server, (before, after)) = (self.clone(), delays);
        if before.is_zero() && after.is_zero() {
            self.check(&lease)?;
            return Ok(self.store(lease));
        }

        let written = tokio::spawn(async move {
            tokio::time::sleep(before).await;
            let stored = server.check(&lease).map(|()| server.store(lease));
            tokio::time::sleep(after).await;
            stored
        });
        written.await.unwrap()
    }
}

impl Leases for Server {
    async fn get(&self) -> Result<Option<DynamicObject>, LeaseError> {
        self.request()?;
        let (found, creator) = {
            let mut state = self.state.lock().unwrap();
            let found = state.lease.clone();
            let creator = state.creates_next.take_if(|_| found.is_none());
            (found, creator)
        };
        if let Some(holder) = creator {
            self.held_by(&holder, 77);
        }
        Ok(found)
    }

    async fn create(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        self.write(lease).await
    }

    async fn replace(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        self.write(lease).await
    }

    fn new_object(&self) -> DynamicObject {
        DynamicObject::new("lease", &ApiResource::erase::<Lease>(&()))
    }
}

/// Acquires the lease and holds it in a task of its own.
struct Holder {
    permit: Permit,
    task: tokio::task::JoinHandle<(Result<(), Lost>, Elector<Server>)>,
    stop: CancellationToken,
    annotation_changes: mpsc::Sender<AnnotationChange>,
}

impl Holder {
    async fn start(server: &Server, identity: &str) -> Self {
        let (_open, mut gate) = open();
        let mut elector = server.elector(identity);
        let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
        let (grantor, permit) = Permit::pair();
        elector.grant(&held, &grantor);
        let (annotation_changes, mut rx) = mpsc::channel(1);
        let stop = never();
        let until = stop.clone();
        let task = tokio::spawn(async move {
            let ended = elector.hold(&mut held, &grantor, &mut rx, &until).await;
            (ended, elector)
        });
        // Lets the first pass of the task begin.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Self {
            permit,
            task,
            stop,
            annotation_changes,
        }
    }

    /// Ends holding without a release.
    async fn stop(self) -> Elector<Server> {
        self.stop.cancel();
        let (ended, elector) = self.task.await.unwrap();
        assert_eq!(ended, Ok(()));
        elector
    }

    async fn lost(self) -> Lost {
        self.task.await.unwrap().0.unwrap_err()
    }

    async fn annotate(&self, key: &str) {
        let (stored, done) = oneshot::channel();
        let change = AnnotationChange {
            values: vec![(key.into(), Some("1".into()))],
            stored,
        };
        self.annotation_changes.send(change).await.unwrap();
        done.await.unwrap();
    }
}

fn open() -> (watch::Sender<Gate>, watch::Receiver<Gate>) {
    watch::channel(Gate::Open)
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created() {
    let server = Server::new();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    let record = Record::of(&server.lease());
    assert_eq!((record.holder.as_str(), record.transitions), ("us", 0));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_record_is_watched_for_its_full_duration_however_old_its_times_are() {
    let server = Server::new();
    server.held_by("kcm", 0);
    let start = Instant::now();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 15);
    assert_eq!(Record::of(&server.lease()).transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn each_renewal_by_the_other_starts_the_wait_anew() {
    let server = Server::new();
    server.held_by("kcm", 0);
    let start = Instant::now();
    let other = server.clone();
    tokio::spawn(async move {
        for second in 1..=3 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            other.held_by("kcm", second);
        }
    });
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 45);
}

/// A process that signs nothing, such as client-go, releases the lease.
fn released_by_hand(server: &Server) {
    server.edit(|lease| Record::of(lease).released(Timestamp::now()).write_to(lease));
}

/// How long a candidate waits for the lease of `kcm`, to which this happens after three seconds.
async fn acquired_after(change: impl FnOnce(&Server) + Send + 'static) -> Duration {
    let server = Server::new();
    server.held_by("kcm", 0);
    let other = server.clone();
    tokio::spawn(async move {
        tokio::time::sleep(seconds(3)).await;
        change(&other);
    });
    let start = Instant::now();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(server.holder(), "us");
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_one_of_our_managers_released_is_acquired_at_once() {
    let released = |server: &Server| server.edit(|lease| *lease = emptied(lease.clone()));
    assert_eq!(acquired_after(released).await, seconds(3));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_released_without_a_signature_is_acquired_after_a_retry_period_of_its_holder() {
    assert_eq!(acquired_after(released_by_hand).await, seconds(3) + UNSIGNED);
}

#[tokio::test(start_paused = true)]
async fn the_signature_of_an_earlier_release_does_not_count() {
    let released_twice = |server: &Server| {
        server.edit(|lease| *lease = emptied(lease.clone()));
        server.held_by("kcm", 1);
        server.edit(|lease| {
            let signature = "2026-01-01T00:00:00.000000Z".to_owned();
            lease.metadata.annotations = Some([(RELEASED.to_owned(), signature)].into());
        });
        released_by_hand(server);
    };
    assert_eq!(acquired_after(released_twice).await, seconds(3) + UNSIGNED);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_keeps_even_a_free_lease_alone() {
    let server = Server::new();
    let (gate, mut rx) = watch::channel(Gate::Closed);
    let mut elector = server.elector("us");
    let waiting = tokio::time::timeout(Duration::from_secs(60), elector.acquire(&mut rx, &never())).await;
    assert!(waiting.is_err());
    assert_eq!(server.state.lock().unwrap().writes, 0);
    gate.send_replace(Gate::Open);
    elector.acquire(&mut rx, &never()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_holder_renews_and_its_annotations_are_stored() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    let (grantor, permit) = Permit::pair();
    let (annotation_changes, mut rx) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let until = stop.clone();
    let renewing = tokio::spawn(async move { elector.hold(&mut held, &grantor, &mut rx, &until).await });
    let (stored, done) = oneshot::channel();
    annotation_changes
        .send(AnnotationChange {
            values: vec![("outrigger.dev/x".into(), Some("1".into()))],
            stored,
        })
        .await
        .unwrap();
    done.await.unwrap();
    assert_eq!(server.lease().metadata.annotations.unwrap()["outrigger.dev/x"], "1");

    // Somebody else writes an annotation: the lease stays ours, and both annotations live.
    let mut lease = server.lease();
    lease
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("theirs".into(), "2".into());
    server.store(lease);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(permit.check(), Ok(()));
    assert_eq!(server.lease().metadata.annotations.unwrap().len(), 2);
    assert_eq!(Record::of(&server.lease()).transitions, 0);
    stop.cancel();
    assert_eq!(renewing.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_the_permit_at_once() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    let (grantor, permit) = Permit::pair();
    let (_notes, mut rx) = mpsc::channel(1);
    let renewing = tokio::spawn(async move {
        let stop = CancellationToken::new();
        elector.hold(&mut held, &grantor, &mut rx, &stop).await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.held_by("thief", 5);
    assert_eq!(renewing.await.unwrap(), Err(Lost::Taken("thief".into())));
    assert!(permit.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn without_renewals_the_permit_ends_at_the_deadline_counted_from_the_start_of_the_last_good_one() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    let began = held.renewed;
    server.state.lock().unwrap().away = true;
    let (grantor, permit) = Permit::pair();
    let (_notes, mut rx) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let lost = elector.hold(&mut held, &grantor, &mut rx, &stop).await;
    assert_eq!(lost, Err(Lost::Deadline));
    assert_eq!(began.at.elapsed(), TIMING.renew_deadline);
    assert!(permit.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn releasing_empties_the_holder_signs_the_record_and_keeps_the_annotations() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    held.lease.metadata.annotations = Some([("outrigger.dev/prepared".to_owned(), "x".to_owned())].into());
    let (grantor, permit) = Permit::pair();
    elector.release(held, &grantor).await.unwrap();
    let lease = server.lease();
    let (record, annotations) = (Record::of(&lease), lease.metadata.annotations.unwrap());
    assert!(record.is_released());
    assert_eq!(annotations["outrigger.dev/prepared"], "x");
    assert_eq!(Some(&annotations[RELEASED]), record.signature().as_ref());
    assert!(permit.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn two_candidates_never_hold_at_once() {
    let server = Server::new();
    server.held_by("kcm", 0);
    let mut tasks = Vec::new();
    for identity in ["a", "b"] {
        let mut elector = server.elector(identity);
        tasks.push(tokio::spawn(async move {
            let (_open, mut gate) = watch::channel(Gate::Open);
            tokio::time::timeout(Duration::from_secs(20), elector.acquire(&mut gate, &never()))
                .await
                .is_ok()
        }));
    }
    let mut winners = 0;
    for task in tasks {
        winners += u32::from(task.await.unwrap());
    }
    assert_eq!(winners, 1);
}

#[tokio::test(start_paused = true)]
async fn a_view_whose_watch_has_ended_neither_stops_renewals_nor_spins() {
    let server = Server::new();
    let (view, rx) = watch::channel(absent(Instant::now()));
    let (_open, mut gate) = open();
    let mut elector = Elector::new(server.clone(), "lease", "us", TIMING, rx);
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    drop(view);
    let (grantor, permit) = Permit::pair();
    let (_notes, mut rx) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let renewing = elector.hold(&mut held, &grantor, &mut rx, &stop);
    assert!(tokio::time::timeout(Duration::from_secs(60), renewing).await.is_err());
    assert_eq!(permit.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_only_our_own_annotation_is_written_again() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let slow = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&slow);
    let mut elector = server
        .elector("us")
        .with_slow_path(Arc::new(move |lease| told.lock().unwrap().push(lease.to_owned())));
    let mut held = elector.acquire(&mut gate, &never()).await.unwrap();
    let mut theirs = server.lease();
    theirs.metadata.annotations = Some([("outrigger.dev/of-a-tool".to_owned(), "1".to_owned())].into());
    server.store(theirs);
    let (grantor, _permit) = Permit::pair();
    let (_notes, mut rx) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let renewing = elector.hold(&mut held, &grantor, &mut rx, &stop);
    assert!(tokio::time::timeout(Duration::from_secs(5), renewing).await.is_err());
    assert_eq!(
        server.lease().metadata.annotations.unwrap()["outrigger.dev/of-a-tool"],
        "1"
    );
    assert_eq!(
        *slow.lock().unwrap(),
        ["lease"],
        "one renewal had to read the Lease first"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_succeeds_although_somebody_wrote_an_annotation_meanwhile() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let held = elector.acquire(&mut gate, &never()).await.unwrap();
    server.edit(|lease| {
        lease.metadata.annotations = Some([("theirs".to_owned(), "2".to_owned())].into());
    });
    let (grantor, _permit) = Permit::pair();
    elector.release(held, &grantor).await.unwrap();
    let annotations = server.lease().metadata.annotations.unwrap();
    assert_eq!(annotations["theirs"], "2");
    assert_eq!(
        Some(&annotations[RELEASED]),
        Record::of(&server.lease()).signature().as_ref()
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_leaves_another_holders_lease_alone() {
    let server = Server::new();
    let (_open, mut gate) = open();
    let mut elector = server.elector("us");
    let held = elector.acquire(&mut gate, &never()).await.unwrap();
    server.held_by("kcm", 5);
    let (grantor, _permit) = Permit::pair();
    assert!(elector.release(held, &grantor).await.is_err());
    assert_eq!(Record::of(&server.lease()).holder, "kcm");
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_fails_a_released_lease_is_found_by_reading_it() {
    let server = Server::new();
    server.held_by("kcm", 0);
    server
        .view
        .send_modify(|view| view.failure = Some(crate::lease::tests::forbidden()));
    let hidden = server.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut lease = emptied(hidden.lease());
        let mut state = hidden.state.lock().unwrap();
        state.version += 1;
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease);
    });
    let start = Instant::now();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_recovers_late_does_not_start_the_wait_again() {
    let server = Server::new();
    server.held_by("kcm", 0);
    server.view.send_modify(|view| {
        *view = View::default();
        view.failure = Some(crate::lease::tests::broken());
    });

    let recovering = server.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let lease = recovering.lease();
        recovering.view.send_modify(|view| view.see(lease, Instant::now()));
    });
    let start = Instant::now();
    let (_open, mut gate) = open();
    server.elector("us").acquire(&mut gate, &never()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 15);
}
