//! Requests for Leases: get, create, update and watch.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client};
use outrigger_evidence::facts::WatchFailure;
use outrigger_evidence::record::Record;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::object_watch;
use crate::observation::Observation;

/// The annotation by which a manager of ours signs its release of the Lease: the `renewTime` of that record.
pub(crate) const RELEASED: &str = outrigger_shared::annotations::RELEASED;

/// How long a released lease without a signature stays free before it is acquired: client-go 0.34 to 0.37 can empty the
/// lease of another process, which is alive and acquires it again at its next attempt, one retry period later
/// (<https://github.com/kubernetes/client-go/blob/v0.36.6/tools/leaderelection/leaderelection.go#L315>).
pub(crate) const UNSIGNED: Duration = Duration::from_millis(4500);

/// How many processes that a lease has named are remembered.
const NAMED: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease was changed by another writer")]
    Conflict,
    #[error("{verb} of lease {namespace}/{name} is forbidden: {message}; grant it in a Role of that namespace")]
    Forbidden {
        /// get, create or update.
        verb: &'static str,
        namespace: String,
        name: String,
        message: String,
    },
    #[error(
        "lease {name} cannot be created, since there is no namespace {namespace}: create it, or correct --leader-elect-resource-namespace"
    )]
    NoNamespace { namespace: String, name: String },
    #[error("no answer from the API server within {0:?}")]
    TimedOut(Duration),
    #[error("request for the lease failed: {0}")]
    Request(#[source] Box<kube::Error>),
}

impl LeaseError {
    fn of(verb: &'static str, (namespace, name): (&str, &str), error: kube::Error) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            // The Lease was deleted. The API server answers 409 if it checks the UID first, else 404.
            kube::Error::Api(status) if status.code == 404 && verb == "update" => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 && verb == "create" => Self::NoNamespace { namespace, name },
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden {
                verb,
                namespace,
                name,
                message: status.message.clone(),
            },
            other => Self::Request(Box::new(other)),
        }
    }
}

/// The requests of an elector, which limits their time. A trait, so that tests can run the elector on a paused clock.
pub trait Leases: Send {
    /// Reads the Lease; `None` when there is none.
    fn get(&self) -> impl Future<Output = Result<Option<DynamicObject>, LeaseError>> + Send;
    fn create(&self, lease: DynamicObject) -> impl Future<Output = Result<DynamicObject, LeaseError>> + Send;
    /// Replaces it; the object carries the resourceVersion that it was read at.
    fn replace(&self, lease: DynamicObject) -> impl Future<Output = Result<DynamicObject, LeaseError>> + Send;
    fn new_object(&self) -> DynamicObject;
}

/// One named Lease, reached through a client of its own: the controllers' traffic must not starve its renewal.
#[derive(Clone)]
pub struct KubeLease {
    api: Api<DynamicObject>,
    name: String,
    namespace: String,
}

impl KubeLease {
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let resource = ApiResource::erase::<Lease>(&());
        let api = Api::namespaced_with(client, namespace, &resource);
        Self {
            api,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    fn error(&self, verb: &'static str, error: kube::Error) -> LeaseError {
        LeaseError::of(verb, (&self.namespace, &self.name), error)
    }

    /// The watch of the Lease until `stop`, to be run. While it runs, the receiver has the newest view. `shortest`: see
    /// [`View::shortest`].
    pub fn watch(
        &self,
        shortest: Duration,
        stop: CancellationToken,
    ) -> (watch::Receiver<View>, impl Future<Output = ()> + Send + use<>) {
        let (tx, rx) = watch::channel(View::lasting(shortest));
        let (api, name) = (self.api.clone(), self.name.clone());
        let watching = async move {
            let start = || watcher::watch_object(api.clone(), &name);
            object_watch::follow(start, stop, |event| {
                tx.send_modify(|view| view.update(&name, event, Instant::now()));
            })
            .await;
        };

        (rx, watching)
    }
}

impl Leases for KubeLease {
    async fn get(&self) -> Result<Option<DynamicObject>, LeaseError> {
        let answer = self.api.get_opt(&self.name).await;
        answer.map_err(|error| self.error("get", error))
    }

    async fn create(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        let answer = self.api.create(&PostParams::default(), &lease).await;
        answer.map_err(|error| self.error("create", error))
    }

    async fn replace(&self, lease: DynamicObject) -> Result<DynamicObject, LeaseError> {
        let answer = self.api.replace(&self.name, &PostParams::default(), &lease).await;
        answer.map_err(|error| self.error("update", error))
    }

    fn new_object(&self) -> DynamicObject {
        DynamicObject::new(&self.name, &ApiResource::erase::<Lease>(&())).within(&self.namespace)
    }
}

/// The state of the watch of a Lease.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The watch has completed its first list.
    pub synced: bool,
    /// Why the watch fails at present; the object may be outdated.
    pub failure: Option<WatchFailure>,
    /// The newest object; `None` when there is no such Lease.
    pub lease: Option<DynamicObject>,
    pub observation: Option<Observation>,
    pub(crate) holder_since: Option<Instant>,
    /// [`Self::named_holder`] was there at the first read.
    is_found: bool,
    /// The newest record of a holder that wrote it under our eyes; `None` after that holder released the lease.
    pub(crate) last_holder: Option<Observation>,
    /// The holders before the present one that lost the lease before their record expired. A release ends no such time:
    /// each user that may write the Lease can empty it in another process's name.
    pub(crate) former: Vec<Observation>,
    /// No record of a holder expires earlier. A record for a shorter time may be written in the name of a living process.
    shortest: Duration,
    /// The last processes that the lease has named.
    named: VecDeque<String>,
    pub(crate) deletion: Option<Deletion>,
    pub(crate) updated: Option<Instant>,
}

fn failure_of(error: &object_watch::Error) -> WatchFailure {
    use object_watch::Error::Watch;
    use watcher::Error::{InitialListFailed, WatchError, WatchStartFailed};
    let status = match error {
        Watch(InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)))
        | Watch(WatchError(status)) => Some(status),
        _ => None,
    };
    WatchFailure {
        message: status.map_or_else(|| error.to_string(), |status| status.message.clone()),
        is_forbidden: status.is_some_and(|status| status.code == 403),
    }
}

/// There is no such Lease.
#[derive(Debug, Clone)]
pub(crate) struct Deletion {
    /// When this process first observed that.
    pub(crate) since: Instant,
    /// The object before; `None` when there was none.
    pub(crate) last: Option<DynamicObject>,
}

impl View {
    pub(crate) fn lasting(shortest: Duration) -> Self {
        Self {
            shortest,
            ..Self::default()
        }
    }

    fn update(&mut self, name: &str, event: Result<Option<DynamicObject>, object_watch::Error>, now: Instant) {
        match event {
            Ok(Some(lease)) => {
                if self.is_failing() {
                    tracing::info!(lease = name, "the watch of the lease recovered");
                }
                self.see(lease, now);
            }
            Ok(None) => self.see_none(now),
            Err(error) => {
                if !self.is_failing() {
                    tracing::warn!(lease = name, %error, "the watch of the lease failed; reading the lease at intervals");
                }
                self.failure = Some(failure_of(&error));
            }
        }
    }

    pub fn is_failing(&self) -> bool {
        self.failure.is_some()
    }

    pub fn see(&mut self, lease: DynamicObject, now: Instant) {
        let newer = self.lease.as_ref().is_none_or(|old| version(&lease) > version(old));
        let record = Record::of(&lease).lasting(self.shortest);
        if self.named_holder() != Some(&record.holder) {
            self.holder_since = (!record.is_free()).then_some(now);
            self.is_found = !self.synced;
            self.note_holders(&record, now);
        }

        Observation::update(&mut self.observation, record, self.synced && newer, now);
        match &self.observation {
            Some(seen) if seen.record.is_released() => self.last_holder = None,
            Some(seen) if seen.live && !seen.record.is_free() => self.last_holder = Some(seen.clone()),
            _ => {}
        }

        self.lease = Some(lease);
        self.deletion = None;
        self.updated = Some(now);
        self.synced = true;
        self.failure = None;
    }

    /// The record names another holder, or none.
    fn note_holders(&mut self, record: &Record, now: Instant) {
        let found = self.observation.as_ref().filter(|seen| !seen.record.is_free());
        let last = self.last_holder.as_ref().or(found).filter(|last| now < last.expires());
        let last = last.filter(|last| last.record.holder != record.holder).cloned();
        let is_last = |former: &Observation| {
            last.as_ref()
                .is_some_and(|last| last.record.holder == former.record.holder)
        };
        self.former.retain(|former| now < former.expires() && !is_last(former));
        self.former.extend(last);

        if !record.is_free() && !self.was_named(&record.holder) {
            self.named.push_front(record.holder.clone());
            self.named.truncate(NAMED);
        }
    }

    /// Whether the lease has named this process.
    pub(crate) fn was_named(&self, identity: &str) -> bool {
        self.named.iter().any(|named| named == identity)
    }

    /// Takes in that there is no such Lease. Its last holder may be alive.
    pub fn see_none(&mut self, now: Instant) {
        let last = self.lease.take();
        self.deletion.get_or_insert(Deletion { since: now, last });
        self.observation = None;
        self.holder_since = None;
        self.updated = Some(now);
        self.synced = true;
        self.failure = None;
    }

    /// This view, with the time at which `other` observed the same record, if that was earlier: a watch that recovers late
    /// does not make a record newer.
    #[must_use]
    pub(crate) fn with_earlier_observation(mut self, other: &Self) -> Self {
        if let (Some(seen), Some(before)) = (&mut self.observation, &other.observation)
            && seen.record == before.record
        {
            seen.since = seen.since.min(before.since);
        }
        self
    }

    /// The holders before the present one that may still act, until their records would have expired: see [`Self::former`].
    pub fn former_holders(&self, now: Instant) -> Vec<String> {
        let alive = self.former.iter().filter(|former| now < former.expires());
        let holders = alive.map(|former| former.record.holder.clone());
        holders.filter(|holder| self.named_holder() != Some(holder)).collect()
    }

    /// The holder was found at the start, and had acquired the lease less than its duration before, by its own clock. So this
    /// process has not seen how the holder before lost it, and that one may still act.
    pub fn has_new_holder(&self) -> bool {
        let record = self.observation.as_ref().map(|seen| &seen.record);
        let is_new = |record: &Record| match (record.acquire_time, record.renew_time) {
            (Some(acquired), Some(renewed)) => renewed.duration_since(acquired).unsigned_abs() < record.duration,
            _ => true,
        };
        self.is_found && record.is_some_and(is_new)
    }

    /// The present holder, if it has written the record under our own eyes and has renewed it in time since.
    pub fn live_holder(&self, now: Instant) -> Option<&str> {
        let seen = self.observation.as_ref()?;
        (seen.live && seen.is_held(now)).then_some(seen.record.holder.as_str())
    }

    /// The holder that the record names, alive or not; `None` for a free lease.
    pub fn named_holder(&self) -> Option<&str> {
        let seen = self.observation.as_ref()?;
        (!seen.record.is_free()).then_some(seen.record.holder.as_str())
    }

    /// The duration in the record of [`Self::named_holder`].
    pub fn named_duration(&self) -> Option<Duration> {
        self.named_holder()?;
        self.lease.as_ref().map(|lease| Record::of(lease).duration)
    }

    /// When this process first observed [`Self::named_holder`].
    pub fn holder_since(&self) -> Option<Instant> {
        self.holder_since
    }

    /// From when on any process may acquire the lease, unless the record changes before: when it was released, or when it
    /// expires. A deletion or an emptied holder does not end the leadership of a holder that is alive: client-go's elector
    /// writes the lease again. So the lease is then free when the last record expires that was written under our eyes.
    /// `None` before the first list.
    pub fn frees_at(&self) -> Option<Instant> {
        let emptied = match (&self.observation, &self.deletion) {
            (Some(seen), _) if !seen.record.is_free() => return Some(seen.expires()),
            (Some(seen), _) if seen.record.is_released() => return Some(self.released_at(seen)),
            (Some(seen), _) => seen.since,
            (None, Some(deletion)) => deletion.since,
            (None, None) => return None,
        };

        Some(self.last_holder.as_ref().map_or(emptied, Observation::expires))
    }

    /// [`Self::frees_at`], and not before the records of former holders expire that are none of our managers. None of them
    /// signs a release, and one that lost the lease to an edit acts until its renew deadline. If its lease was emptied
    /// without a signature, it has it again by then.
    pub(crate) fn frees_after(&self, is_ours: impl Fn(&str) -> bool) -> Option<Instant> {
        let at = self.frees_at()?;
        let is_released = |seen: &Observation| seen.record.is_released();
        if self.observation.as_ref().is_some_and(is_released) && !self.is_signed() {
            return Some(at);
        }

        let others = self.former.iter().filter(|former| !is_ours(&former.record.holder));
        others.map(Observation::expires).chain([at]).max()
    }

    /// When a released lease is free. Only our own managers release a lease after the last write under it has ended.
    fn released_at(&self, seen: &Observation) -> Instant {
        match self.is_signed() {
            true => seen.since,
            false => seen.since + UNSIGNED,
        }
    }

    fn is_signed(&self) -> bool {
        let annotations = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.annotations.as_ref());
        let signature = annotations.and_then(|all| all.get(RELEASED));
        let expected = self.observation.as_ref().and_then(|seen| seen.record.signature());
        signature.is_some() && signature == expected.as_ref()
    }

    /// The holder until its record expires, alive or not. A lease that was deleted or emptied keeps its last one until
    /// then: see [`Self::frees_at`].
    pub fn holder(&self, now: Instant) -> Option<&str> {
        let last = || self.last_holder.as_ref().map(|last| last.record.holder.as_str());
        self.frees_at().filter(|at| *at > now)?;
        self.named_holder().or_else(last)
    }

    /// Another election decides about this Lease: coordinated leader election of API servers
    /// (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4355-coordinated-leader-election>).
    /// An elector that follows it does not wait for the expiry of the record.
    pub fn is_coordinated(&self) -> bool {
        let spec = self.lease.as_ref().map(|lease| &lease.data["spec"]);
        spec.is_some_and(|spec| {
            ["strategy", "preferredHolder"]
                .iter()
                .any(|field| spec[*field].is_string())
        })
    }

    /// Since when any process may acquire the lease; `None` while it is held. See [`Self::frees_at`].
    pub fn free_since(&self, now: Instant) -> Option<Instant> {
        self.frees_at().filter(|at| *at <= now)
    }

    /// Whether the lease is free, or its record unchanged for at least `full`. False while the watch fails.
    pub fn was_idle_for(&self, full: Duration, now: Instant) -> bool {
        let unchanged = |seen: &Observation| now.saturating_duration_since(seen.since) >= full;
        self.synced
            && !self.is_failing()
            && (self.free_since(now).is_some() || self.observation.as_ref().is_some_and(unchanged))
    }
}

/// Orders two states of one Lease. resourceVersions of one object grow; one that cannot be read counts as oldest, so
/// that it never ends or starts a leadership by itself.
pub(crate) fn version(lease: &DynamicObject) -> u64 {
    lease
        .metadata
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::Timestamp;
    use tokio::time::advance;

    use super::*;

    /// A watch without the right to it.
    pub(crate) fn forbidden() -> WatchFailure {
        let status = kube::core::Status::failure("leases is forbidden", "Forbidden").with_code(403);
        failure_of(&watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())).into())
    }

    /// A watch that fails for another reason.
    pub(crate) fn broken() -> WatchFailure {
        failure_of(&watcher::Error::NoResourceVersion.into())
    }

    #[test]
    fn a_refused_watch_is_distinguished_from_one_that_breaks() {
        let expected = WatchFailure {
            message: "leases is forbidden".into(),
            is_forbidden: true,
        };
        assert_eq!(forbidden(), expected);
        assert!(!broken().is_forbidden);
    }

    const FULL: Duration = Duration::from_secs(15);

    #[test]
    fn a_refused_request_names_the_verb_and_the_remedy() {
        let error = |verb, code| {
            let status = kube::core::Status::failure("no", "").with_code(code);
            LeaseError::of(verb, ("kube-system", "m"), kube::Error::Api(status.boxed()))
        };
        let forbidden = error("create", 403).to_string();
        assert!(
            forbidden.starts_with("create of lease kube-system/m is forbidden: no; grant it"),
            "{forbidden}"
        );
        let absent = error("create", 404).to_string();
        assert!(absent.contains("--leader-elect-resource-namespace"), "{absent}");
        assert!(matches!(error("update", 404), LeaseError::Conflict));
        assert!(matches!(error("update", 409), LeaseError::Conflict));
        for (verb, code) in [("update", 500), ("get", 404)] {
            assert!(matches!(error(verb, code), LeaseError::Request(_)), "{verb} {code}");
        }
    }

    #[derive(Default)]
    pub(crate) struct Server {
        pub(crate) view: View,
        version: i64,
    }

    impl Server {
        fn write(&mut self, record: impl FnOnce(Record, Timestamp) -> Record) {
            self.version += 1;
            let mut lease = self.view.lease.clone().unwrap_or_else(|| {
                let resource = ApiResource::erase::<Lease>(&());
                DynamicObject::new("x", &resource)
            });
            let at = Timestamp::from_second(self.version).unwrap();
            record(Record::of(&lease), at).write_to(&mut lease);
            lease.metadata.resource_version = Some(self.version.to_string());
            self.view.see(lease, Instant::now());
        }

        pub(crate) fn renew(&mut self, holder: &str) {
            self.write(|record, now| record.held_by(holder, FULL, now));
        }

        pub(crate) fn delete(&mut self) {
            self.view.see_none(Instant::now());
        }

        /// Empties the record as client-go releases a lease.
        fn empty(&mut self) {
            self.write(|record, now| record.released(now));
        }

        /// Signs the present record as one of our managers does.
        fn sign(&mut self) {
            let mut lease = self.view.lease.clone().unwrap();
            let signature = Record::of(&lease)
                .signature()
                .map(|signature| (RELEASED.to_owned(), signature));
            lease.metadata.annotations = Some(signature.into_iter().collect());
            self.view.see(lease, Instant::now());
        }

        fn release(&mut self) {
            self.empty();
            self.sign();
        }

        fn holder(&self) -> Option<&str> {
            self.view.holder(Instant::now())
        }

        fn former_holders(&self) -> Vec<String> {
            self.view.former_holders(Instant::now())
        }

        /// How long the lease has been free.
        fn free_for(&self) -> Option<u64> {
            let since = self.view.free_since(Instant::now());
            since.map(|at| at.elapsed().as_secs())
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_free_from_its_release_or_its_expiry_on() {
        let mut server = Server::default();
        assert_eq!(server.free_for(), None, "not synced");
        assert!(!server.view.was_idle_for(FULL, Instant::now()));

        server.renew("kcm");
        advance(seconds(14)).await;
        assert_eq!(server.free_for(), None);
        advance(seconds(3)).await;
        assert_eq!(server.free_for(), Some(2));

        server.renew("kcm");
        assert_eq!(server.free_for(), None);
        server.release();
        advance(seconds(1)).await;
        assert_eq!(server.free_for(), Some(1));
        server.delete();
        assert_eq!(server.free_for(), Some(0), "the holder had released it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_without_a_signature_frees_the_lease_when_a_living_holder_would_have_it_again() {
        let free_after_release = async |server: &mut Server| {
            assert_eq!(server.free_for(), None);
            assert!(!server.view.was_idle_for(FULL, Instant::now()));
            advance(UNSIGNED - Duration::from_millis(1)).await;
            assert_eq!(server.free_for(), None);
            advance(Duration::from_millis(1)).await;
            assert_eq!(server.free_for(), Some(0));
            assert!(server.view.was_idle_for(FULL, Instant::now()));
        };

        let mut server = Server::default();
        server.renew("kcm");
        server.empty();
        free_after_release(&mut server).await;

        // The signature of an earlier release is left over.
        server.renew("kcm");
        server.release();
        assert_eq!(server.free_for(), Some(0));
        server.renew("other");
        server.empty();
        free_after_release(&mut server).await;

        // The living holder has it again.
        server.renew("kcm");
        server.empty();
        advance(seconds(2)).await;
        server.renew("kcm");
        advance(seconds(5)).await;
        assert_eq!((server.free_for(), server.holder()), (None, Some("kcm")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_has_its_holder_until_the_record_expires() {
        let mut server = Server::default();
        assert_eq!(server.holder(), None);
        server.renew("found");
        assert_eq!(server.holder(), Some("found"), "it may be alive");
        advance(seconds(14)).await;
        assert_eq!(server.holder(), Some("found"));
        advance(seconds(1)).await;
        assert_eq!(server.holder(), None);

        type Change = fn(&mut Server);
        let changes: [Change; 2] = [Server::delete, |server| {
            server.write(|record, _| Record {
                holder: String::new(),
                ..record
            });
        }];
        for change in changes {
            server.renew("kcm");
            advance(seconds(2)).await;
            change(&mut server);
            assert_eq!(server.holder(), Some("kcm"));
            advance(seconds(12)).await;
            assert_eq!(server.holder(), Some("kcm"));
            advance(seconds(1)).await;
            assert_eq!(server.holder(), None);
        }

        server.renew("kcm");
        server.release();
        assert_eq!(server.holder(), None, "every write of it has ended");
    }

    const NONE: [&str; 0] = [];

    #[tokio::test(start_paused = true)]
    async fn each_holder_that_lost_the_lease_by_an_edit_or_a_deletion_is_known_until_its_record_expires() {
        type Change = fn(&mut Server);
        let changes: [Change; 2] = [|_| {}, Server::delete];
        for change in changes {
            let mut server = Server::default();
            server.renew("kcm");
            server.renew("kcm");
            advance(seconds(2)).await;
            change(&mut server);
            server.renew("other");
            assert_eq!(
                (server.holder(), server.former_holders()),
                (Some("other"), vec!["kcm".into()])
            );
            advance(seconds(2)).await;
            change(&mut server);
            server.renew("third");
            assert_eq!(server.former_holders(), ["kcm", "other"]);
            advance(seconds(10)).await;
            server.renew("third");
            assert_eq!(server.former_holders(), ["kcm", "other"]);
            advance(seconds(1)).await;
            assert_eq!(server.former_holders(), ["other"]);
            advance(seconds(2)).await;
            assert_eq!(server.former_holders(), NONE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_did_not_renew_the_lease_or_has_it_again_is_no_former_one() {
        let mut server = Server::default();
        server.renew("other");
        advance(seconds(15)).await;
        server.renew("kcm");
        assert_eq!(server.former_holders(), NONE, "the record of the other one had expired");

        server.renew("other");
        assert_eq!(server.former_holders(), ["kcm"]);
        server.renew("kcm");
        assert_eq!(server.former_holders(), ["other"]);
    }

    /// Each user that may write the Lease can empty it in the name of its holder.
    #[tokio::test(start_paused = true)]
    async fn a_holder_whose_lease_was_emptied_is_a_former_one_until_its_record_expires() {
        let changes: [fn(&mut Server); 2] = [Server::empty, Server::release];
        for change in changes {
            let mut server = Server::default();
            server.renew("kcm");
            advance(seconds(2)).await;
            change(&mut server);
            assert_eq!(server.former_holders(), ["kcm"]);
            server.renew("other");
            assert_eq!(server.former_holders(), ["kcm"]);
            advance(seconds(13)).await;
            assert_eq!(server.former_holders(), NONE);

            change(&mut server);
            server.renew("other");
            change(&mut server);
            assert_eq!(server.view.former.len(), 1, "one entry for each holder");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_signed_release_counts_only_for_our_managers() {
        let mut server = Server::default();
        let frees_in = |server: &Server, ours: &str| {
            let at = server.view.frees_after(|holder| holder == ours).unwrap();
            at.saturating_duration_since(Instant::now())
        };
        server.renew("a");
        advance(seconds(2)).await;
        server.release();
        assert_eq!(frees_in(&server, "a"), Duration::ZERO);
        assert_eq!(
            frees_in(&server, "b"),
            seconds(13),
            "a living process may have been named"
        );

        server.renew("a");
        server.empty();
        assert_eq!(frees_in(&server, "b"), UNSIGNED, "it would have the lease again");

        server.renew("a");
        server.write(|record, now| record.held_by("thief", seconds(1), now));
        assert_eq!(frees_in(&server, "b"), FULL);
        assert_eq!(frees_in(&server, "a"), seconds(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_for_a_shorter_time_than_our_own_lease_lasts_as_long_as_ours() {
        let mut server = Server {
            view: View::lasting(FULL),
            ..Server::default()
        };
        server.write(|record, now| record.held_by("kcm", seconds(1), now));
        advance(seconds(14)).await;
        assert_eq!((server.holder(), server.free_for()), (Some("kcm"), None));
        assert_eq!(server.view.named_duration(), Some(seconds(1)), "as it is written");
        advance(seconds(1)).await;
        assert_eq!(server.free_for(), Some(0));

        server.empty();
        assert_eq!(
            server.view.frees_at(),
            Some(Instant::now() + UNSIGNED),
            "a release is known by its duration"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_was_found_is_new_until_it_has_renewed_for_a_full_duration() {
        let is_new = |server: &Server| server.view.has_new_holder();
        let mut server = Server::default();
        server.renew("kcm");
        assert!(is_new(&server), "the holder before may still act");
        for second in 2..16 {
            server.renew("kcm");
            assert!(is_new(&server), "{second}");
        }
        server.renew("kcm");
        assert!(!is_new(&server));

        server.renew("other");
        assert!(!is_new(&server), "this process saw how the one before lost the lease");

        let mut created = Server::default();
        created.delete();
        created.renew("kcm");
        assert!(!is_new(&created));
    }

    #[test]
    fn a_lease_of_coordinated_leader_election_is_recognized_by_its_spec() {
        let of = |spec: serde_json::Value| {
            let mut view = View::default();
            let mut lease = DynamicObject::new("x", &ApiResource::erase::<Lease>(&()));
            lease.data = serde_json::json!({ "spec": spec });
            view.lease = Some(lease);
            view.is_coordinated()
        };
        assert!(!View::default().is_coordinated());
        assert!(!of(serde_json::json!({"holderIdentity": "a"})));
        assert!(!of(serde_json::json!({"strategy": null})));
        assert!(of(serde_json::json!({"strategy": "OldestEmulationVersion"})));
        assert!(of(serde_json::json!({"preferredHolder": "b"})));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_a_deletion_nor_an_emptied_holder_ends_a_living_holders_lease() {
        type Change = fn(&mut Server);
        let changes: [Change; 3] = [
            Server::delete,
            |server| {
                server.write(|record, _| Record {
                    holder: String::new(),
                    ..record
                })
            },
            |server| {
                server.write(|record, _| Record {
                    holder: String::new(),
                    ..record
                });
                server.delete();
            },
        ];
        for change in changes {
            let mut server = Server::default();
            server.renew("kcm");
            server.renew("kcm");
            advance(seconds(2)).await;
            change(&mut server);
            let now = Instant::now();
            assert_eq!((server.view.named_holder(), server.view.live_holder(now)), (None, None));
            assert!(!server.view.was_idle_for(FULL, now));
            advance(seconds(12)).await;
            assert_eq!(server.free_for(), None);
            advance(seconds(2)).await;
            assert_eq!(server.free_for(), Some(1));
            assert!(server.view.was_idle_for(FULL, Instant::now()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_found_record_keeps_nobody_away_after_its_deletion_and_a_created_one_does() {
        let mut server = Server::default();
        server.renew("dead");
        server.delete();
        assert_eq!(server.free_for(), Some(0));

        server.renew("kcm");
        assert_eq!(
            server.view.live_holder(Instant::now()),
            Some("kcm"),
            "created under our eyes"
        );
        server.delete();
        assert_eq!(server.free_for(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_holder_is_kept_over_renewals_and_ends_with_it() {
        let mut server = Server::default();
        let start = Instant::now();
        server.renew("a");
        advance(seconds(2)).await;
        server.renew("a");
        assert_eq!(server.view.holder_since(), Some(start));
        advance(seconds(2)).await;
        server.renew("b");
        assert_eq!(server.view.holder_since(), Some(start + seconds(4)));
        server.empty();
        assert_eq!(server.view.holder_since(), None);
        server.renew("b");
        server.delete();
        assert_eq!(server.view.holder_since(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_watch_shows_no_idle_lease() {
        let mut server = Server::default();
        server.delete();
        assert!(server.view.was_idle_for(FULL, Instant::now()));
        let error = watcher::Error::NoResourceVersion.into();
        server.view.update("x", Err(error), Instant::now());
        assert!(!server.view.was_idle_for(FULL, Instant::now()));
    }
}
