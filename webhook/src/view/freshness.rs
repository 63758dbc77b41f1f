//! Whether a cloud-controller-manager runs in a cluster: whether its main lease is being renewed.
//!
//! A Node with the uninitialized taint waits for such a manager, so the taint is added only where one is observed. The
//! renew time is compared with earlier observations, never with the local clock, which may differ from that of the
//! writer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::watch::Index;

#[derive(Debug, Default)]
pub struct Freshness(Mutex<LeaseState>);

#[derive(Debug, Clone, Default, PartialEq)]
enum LeaseState {
    /// Not observed since the start, or since the watch broke.
    #[default]
    Nothing,
    Absent,
    /// Held, but observed only once: the holder may be dead.
    Held(Observation),
    /// Renewed since the first observation.
    Renewed(Observation),
}

#[derive(Debug, Clone, PartialEq)]
struct Observation {
    holder: String,
    renewed: Option<Timestamp>,
    duration: Duration,
    at: Instant,
}

impl Freshness {
    /// Whether the lease is held and being renewed at `now`; `None` when that is not known.
    pub fn at(&self, now: Instant) -> Option<bool> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let expired = |observation: &Observation| now >= observation.at + observation.duration;
        match &*state {
            LeaseState::Nothing => None,
            LeaseState::Absent => Some(false),
            LeaseState::Held(observation) => expired(observation).then_some(false),
            LeaseState::Renewed(observation) => Some(!expired(observation)),
        }
    }

    fn observe(&self, spec: Option<&LeaseSpec>, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A lease without a holder was released: no manager runs. The same for an invalid duration.
        let Some(observation) = spec.and_then(|spec| Observation::of(spec, now)) else {
            *state = LeaseState::Absent;
            return;
        };

        *state = match &*state {
            LeaseState::Nothing => LeaseState::Held(observation),
            LeaseState::Held(before) | LeaseState::Renewed(before) if before.same_record(&observation) => return,
            // A holder that appears after the first observation has just written the lease.
            LeaseState::Absent | LeaseState::Held(_) | LeaseState::Renewed(_) => LeaseState::Renewed(observation),
        };
    }
}

impl Observation {
    fn of(spec: &LeaseSpec, at: Instant) -> Option<Self> {
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let seconds = u64::try_from(spec.lease_duration_seconds?)
            .ok()
            .filter(|seconds| *seconds > 0)?;
        let renewed = spec.renew_time.as_ref().map(|time| time.0);

        Some(Self {
            holder,
            renewed,
            duration: Duration::from_secs(seconds),
            at,
        })
    }

    /// Annotations can change without a renewal, so only holder and renew time count.
    fn same_record(&self, other: &Self) -> bool {
        self.holder == other.holder && self.renewed == other.renewed
    }
}

impl Index<Lease> for Freshness {
    fn replace(&self, objects: Vec<Lease>) {
        self.observe(objects.first().and_then(|lease| lease.spec.as_ref()), Instant::now());
    }

    fn apply(&self, object: Lease) {
        self.observe(object.spec.as_ref(), Instant::now());
    }

    fn delete(&self, _object: &Lease) {
        self.observe(None, Instant::now());
    }

    fn absent(&self) {
        self.broken("not served");
    }

    fn broken(&self, _: &str) {
        // A renewal observed after the gap may be older than it looks, so observation starts over.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = LeaseState::Nothing;
    }
}

/// Leases of the clusters that the webhook can read.
#[derive(Debug, Default, Clone)]
pub struct Clusters {
    /// The cluster of --kubeconfig.
    pub own: Arc<Freshness>,
    /// Other clusters, by the name of their migration.
    pub named: BTreeMap<String, Arc<Freshness>>,
}

impl Clusters {
    /// Whether a manager runs in the cluster that sent the review: on `/mutate` the own cluster, on `/mutate/NAME` the
    /// named one; `None` when not known.
    pub fn manager_fresh(&self, path: Option<&str>, now: Instant) -> Option<bool> {
        match path {
            None => self.own.at(now),
            Some(name) => self.named.get(name)?.at(now),
        }
    }

    /// Whether a manager runs in the cluster of a migration; `None` when not known. A hosted control plane's cluster is
    /// known only by the name of its migration.
    pub fn of_migration(&self, name: &str, hosted: bool, now: Instant) -> Option<bool> {
        match self.named.get(name) {
            Some(cluster) => cluster.at(now),
            None if hosted => None,
            None => self.own.at(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        };
        Lease {
            spec: Some(spec),
            ..Lease::default()
        }
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_at_first_sight_is_unknown_then_dead_unless_it_is_renewed() {
        let freshness = Freshness::default();
        assert_eq!(freshness.at(Instant::now()), None);
        freshness.replace(vec![lease("a", 100)]);
        pass(14).await;
        assert_eq!(freshness.at(Instant::now()), None);
        pass(1).await;
        assert_eq!(freshness.at(Instant::now()), Some(false));
        freshness.apply(lease("a", 4_000_000_000));
        assert_eq!(freshness.at(Instant::now()), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_count_from_when_they_are_seen_whatever_time_they_carry() {
        let freshness = Freshness::default();
        freshness.replace(vec![lease("a", 100)]);
        freshness.apply(lease("a", 102));
        pass(14).await;
        assert_eq!(freshness.at(Instant::now()), Some(true));
        freshness.apply(lease("a", 102));
        pass(1).await;
        assert_eq!(
            freshness.at(Instant::now()),
            Some(false),
            "an unchanged record is no renewal"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_or_deleted_lease_is_nobodys_and_a_new_holder_is_at_work() {
        let freshness = Freshness::default();
        freshness.replace(Vec::new());
        assert_eq!(freshness.at(Instant::now()), Some(false));
        freshness.apply(lease("a", 100));
        assert_eq!(freshness.at(Instant::now()), Some(true));
        freshness.apply(lease("", 101));
        assert_eq!(freshness.at(Instant::now()), Some(false));
        freshness.apply(lease("b", 102));
        freshness.delete(&lease("b", 102));
        assert_eq!(freshness.at(Instant::now()), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_in_the_watch_makes_it_unknown_again() {
        let freshness = Freshness::default();
        freshness.replace(vec![lease("a", 100)]);
        freshness.apply(lease("a", 102));
        freshness.broken("gone");
        assert_eq!(freshness.at(Instant::now()), None);
        freshness.replace(vec![lease("a", 104)]);
        assert_eq!(freshness.at(Instant::now()), None);
        freshness.apply(lease("a", 106));
        assert_eq!(freshness.at(Instant::now()), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_asks_for_its_own_cluster_only() {
        let clusters = Clusters {
            named: [("prod".to_owned(), Arc::default())].into(),
            ..Clusters::default()
        };
        clusters.own.replace(Vec::new());
        let now = Instant::now();
        assert_eq!(clusters.manager_fresh(None, now), Some(false));
        assert_eq!(clusters.manager_fresh(Some("prod"), now), None);
        assert_eq!(clusters.manager_fresh(Some("other"), now), None);
        assert_eq!(clusters.of_migration("prod", true, now), None, "by its own lease");
        assert_eq!(clusters.of_migration("other", true, now), None, "elsewhere");
        assert_eq!(clusters.of_migration("other", false, now), Some(false), "here");
    }
}
