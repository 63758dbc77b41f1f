//! The bodies that are being received: a pool of their own, so that callers that send nothing take no slot of a request.
//!
//! A full pool refuses nobody. The slowest body of the source with the most bodies ends instead, so callers of other
//! sources never wait for it. Bodies of API servers end only if these have more than half of the pool.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::callers::{Caller, Rank};

/// A body must arrive at this rate on average, in bytes per second, after [`GRACE`].
const MIN_RATE: u32 = 16 * 1024;

/// Time in which nothing has to arrive: an API server sends headers and body together.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Bodies {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    caller: Caller,
    begin: Instant,
    received: usize,
    displaced: CancellationToken,
}

impl Entry {
    /// When it is too slow, if nothing more arrives.
    fn deadline(&self) -> Instant {
        let earned =
            u32::try_from(self.received).map_or(Duration::MAX, |bytes| Duration::from_secs(1) * bytes / MIN_RATE);
        self.begin + GRACE + earned
    }
}

/// The place of a body in the pool, until it is dropped.
#[derive(Debug)]
pub struct BodyPlace {
    bodies: Arc<Bodies>,
    number: u64,
    displaced: CancellationToken,
}

impl Bodies {
    /// A pool for `limit` bodies, at least one.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            table: Mutex::default(),
        })
    }

    /// Adds a body of a source. If the pool is full, another one ends.
    pub fn add(self: &Arc<Self>, caller: Caller, now: Instant) -> BodyPlace {
        let mut table = self.lock();
        if table.open.len() >= self.limit {
            table.displace(caller, self.limit);
        }

        let (number, displaced) = (table.next, CancellationToken::new());
        table.next += 1;
        table.open.insert(
            number,
            Entry {
                caller,
                begin: now,
                received: 0,
                displaced: displaced.clone(),
            },
        );
        drop(table);

        BodyPlace {
            bodies: Arc::clone(self),
            number,
            displaced,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Ends the slowest body of the largest source, counting one more of `newcomer`.
    fn displace(&mut self, newcomer: Caller, limit: usize) {
        let all = || self.open.values().map(|entry| entry.caller).chain([newcomer]);
        let mut sources: HashMap<IpAddr, usize> = HashMap::new();
        for caller in all() {
            *sources.entry(caller.address).or_default() += 1;
        }
        let of_api_servers = all().filter(|caller| caller.rank == Rank::ApiServer).count();

        let may_end = |entry: &Entry| entry.caller.rank == Rank::Other || of_api_servers > limit.div_ceil(2);
        let size = |entry: &Entry| sources.get(&entry.caller.address).copied().unwrap_or_default();
        let open = || self.open.iter().filter(|(_, entry)| may_end(entry));
        let largest = open().map(|(_, entry)| size(entry)).max().unwrap_or_default();
        let of_largest = open().filter(|(_, entry)| size(entry) == largest);
        // The earliest deadline; of equal ones the oldest.
        let slowest = of_largest.min_by_key(|(number, entry)| (entry.deadline(), **number));
        let slowest = slowest.map(|(number, _)| *number);
        if let Some(entry) = slowest.and_then(|number| self.open.remove(&number)) {
            entry.displaced.cancel();
        }
    }
}

impl BodyPlace {
    /// Counts bytes that have arrived.
    pub fn received(&self, bytes: usize) {
        if let Some(entry) = self.bodies.lock().open.get_mut(&self.number) {
            entry.received += bytes;
        }
    }

    /// When the body is too slow, if nothing more arrives.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.bodies.lock().open.get(&self.number).map(Entry::deadline)
    }

    /// Waits until another body has taken the place.
    pub async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.bodies.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACKER: Caller = caller(Rank::Other, 1);
    const HONEST: Caller = caller(Rank::Other, 2);

    const fn caller(rank: Rank, number: u8) -> Caller {
        Caller {
            rank,
            address: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, number)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_pool_is_kept_for_api_servers() {
        let (bodies, now) = (Bodies::new(4), Instant::now());
        let api_servers: Vec<BodyPlace> = (10..12)
            .map(|number| bodies.add(caller(Rank::ApiServer, number), now))
            .collect();
        // Each from another address, so that no source is larger than another one.
        let others: Vec<BodyPlace> = (20..90)
            .map(|number| bodies.add(caller(Rank::Other, number), now))
            .collect();
        assert!(!api_servers.iter().any(is_displaced));
        assert_eq!(others.iter().filter(|place| !is_displaced(place)).count(), 2);

        let more: Vec<BodyPlace> = (12..15)
            .map(|number| bodies.add(caller(Rank::ApiServer, number), now))
            .collect();
        assert!(more.iter().any(|place| !is_displaced(place)));
        assert!(api_servers.iter().any(is_displaced), "they have more than half");
    }

    fn is_displaced(place: &BodyPlace) -> bool {
        place.displaced.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_body_of_the_largest_source_ends() {
        let (bodies, now) = (Bodies::new(4), Instant::now());
        let honest = bodies.add(HONEST, now);
        let attackers: Vec<BodyPlace> = (0..3).map(|_| bodies.add(ATTACKER, now)).collect();
        attackers[0].received(1000);

        let newcomer = bodies.add(HONEST, now);
        assert!(!is_displaced(&honest) && !is_displaced(&newcomer));
        assert_eq!(
            attackers.iter().map(is_displaced).collect::<Vec<_>>(),
            [false, true, false]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_source_takes_the_place_of_its_own_bodies() {
        let (bodies, now) = (Bodies::new(4), Instant::now());
        let honest = bodies.add(HONEST, now);
        let attackers: Vec<BodyPlace> = (0..300).map(|_| bodies.add(ATTACKER, now)).collect();
        assert!(!is_displaced(&honest));
        assert_eq!(attackers.iter().filter(|place| !is_displaced(place)).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_received_or_given_up_frees_its_place() {
        let (bodies, now) = (Bodies::new(1), Instant::now());
        drop(bodies.add(ATTACKER, now));
        let first = bodies.add(ATTACKER, now);
        assert!(!is_displaced(&first));
        let second = bodies.add(HONEST, now);
        assert!(is_displaced(&first) && !is_displaced(&second));
        assert_eq!(first.deadline(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_byte_earns_time() {
        let (bodies, now) = (Bodies::new(1), Instant::now());
        let place = bodies.add(HONEST, now);
        assert_eq!(place.deadline(), Some(now + GRACE));
        place.received(2 * MIN_RATE as usize);
        assert_eq!(place.deadline(), Some(now + GRACE + Duration::from_secs(2)));
    }
}
