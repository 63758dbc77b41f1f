//! Selects the connections to serve when their number exceeds the limit.
//!
//! An idle connection costs its client nothing, so with a limit alone any client could block all others. A connection
//! without a free slot therefore gets the slot of an idle one where [`WhenFull`] allows it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::{ConnectionLimits, WhenFull};

/// The source of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    /// A whole address also for IPv6, not its /64: on AWS the machines of a subnet share a /64, API servers and Pods
    /// alike. <https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html>
    address: IpAddr,
    /// Whether the caller is on this machine.
    own: bool,
}

impl Caller {
    /// A caller on this machine has the address that it called, or a loopback address. The kubelet probes a Pod in the
    /// host's network at the machine's own address.
    pub(crate) fn of(peer: SocketAddr, called: Option<SocketAddr>) -> Self {
        let address = peer.ip().to_canonical();
        let called = called.map(|called| called.ip().to_canonical());
        Self {
            address,
            own: address.is_loopback() || called == Some(address),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    next: u64,
    sources: HashMap<IpAddr, Source>,
}

#[derive(Debug, Default)]
struct Source {
    open: usize,
    /// Connections that may be ended for another one, by number: the lowest is the oldest.
    idle: BTreeMap<u64, CancellationToken>,
}

impl Slots {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            table: Mutex::default(),
        })
    }

    /// A slot for a new connection, which counts as idle until it has a request.
    pub(crate) fn take(self: &Arc<Self>, caller: Caller) -> Option<Slot> {
        let (number, end) = self.with(|table| table.take(caller, &self.limits))?;
        Some(Slot(Place {
            slots: Arc::clone(self),
            address: caller.address,
            number,
            end,
        }))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn take(&mut self, caller: Caller, limits: &ConnectionLimits) -> Option<(u64, CancellationToken)> {
        if !self.make_way(caller, limits) {
            return None;
        }

        let (number, end) = (self.next, CancellationToken::new());
        self.next += 1;
        self.open += 1;

        let source = self.sources.entry(caller.address).or_default();
        source.open += 1;
        source.idle.insert(number, end.clone());

        Some((number, end))
    }

    /// Whether there is a slot, after an idle connection was ended if need be.
    fn make_way(&mut self, caller: Caller, limits: &ConnectionLimits) -> bool {
        let held = self.sources.get(&caller.address).map_or(0, |source| source.open);
        if !caller.own && held >= limits.per_source {
            return limits.when_full == WhenFull::EndIdle && self.end_idle(caller.address);
        }

        let reserved = if caller.own { 0 } else { limits.reserved };
        if self.open < limits.connections.saturating_sub(reserved) {
            return true;
        }

        match (self.largest_with_idle(), limits.when_full) {
            (Some((address, _)), WhenFull::EndIdle) => self.end_idle(address),
            (Some((address, open)), WhenFull::FairShare) if open > held => self.end_idle(address),
            _ => false,
        }
    }

    /// The source with the most connections of those with an idle one, and how many it holds; of equal ones that with
    /// the oldest idle connection.
    fn largest_with_idle(&self) -> Option<(IpAddr, usize)> {
        let with_idle = self.sources.iter().filter_map(|(address, source)| {
            let (oldest, _) = source.idle.first_key_value()?;
            Some((source.open, Reverse(*oldest), *address))
        });
        with_idle.max().map(|(open, _, address)| (address, open))
    }

    fn end_idle(&mut self, address: IpAddr) -> bool {
        let source = self.sources.get_mut(&address);
        let Some((_, end)) = source.and_then(|source| source.idle.pop_first()) else {
            return false;
        };
        end.cancel();
        self.leave(address);
        true
    }

    fn leave(&mut self, address: IpAddr) {
        self.open -= 1;
        if let Some(source) = self.sources.get_mut(&address) {
            source.open -= 1;
            if source.open == 0 {
                self.sources.remove(&address);
            }
        }
    }
}

/// A slot, held until it is dropped or given to another connection.
#[derive(Debug)]
pub(crate) struct Slot(Place);

impl Slot {
    pub(crate) const fn place(&self) -> &Place {
        &self.0
    }

    /// Runs until another connection gets the slot; `None` if that happened.
    pub(crate) async fn run<F: Future>(&self, serving: F) -> Option<F::Output> {
        self.0.end.run_until_cancelled(serving).await
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let place = &self.0;
        place.slots.with(|table| {
            if place.end.is_cancelled() {
                return;
            }

            // A request that outlives its connection must not make it idle again.
            place.end.cancel();
            if let Some(source) = table.sources.get_mut(&place.address) {
                source.idle.remove(&place.number);
            }

            table.leave(place.address);
        });
    }
}

/// The state of a connection, which does not hold its slot.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    slots: Arc<Slots>,
    address: IpAddr,
    number: u64,
    end: CancellationToken,
}

impl Place {
    /// Counts connections from 0.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The connection has an open request: it is not ended for another one.
    pub(crate) fn busy(&self) {
        self.slots.with(|table| {
            if let Some(source) = table.sources.get_mut(&self.address) {
                source.idle.remove(&self.number);
            }
        });
    }

    /// The last open request is answered.
    pub(crate) fn idle(&self) {
        if self.slots.limits.when_full == WhenFull::FairShare {
            return;
        }
        self.slots.with(|table| {
            if let Some(source) = table.sources.get_mut(&self.address)
                && !self.end.is_cancelled()
            {
                source.idle.insert(self.number, self.end.clone());
            }
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn limits(when_full: WhenFull) -> ConnectionLimits {
        ConnectionLimits {
            connections: 10,
            reserved: 2,
            per_source: 4,
            when_full,
            streams: 1,
            handshake: Duration::from_secs(1),
            header: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            age: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }

    fn caller(peer: &str) -> Caller {
        Caller::of(
            SocketAddr::new(peer.parse().unwrap(), 40_000),
            Some("10.0.0.1:443".parse().unwrap()),
        )
    }

    fn take(slots: &Arc<Slots>, peer: &str, number: usize) -> Vec<Slot> {
        (0..number).map_while(|_| slots.take(caller(peer))).collect()
    }

    fn replaced(slots: &[Slot]) -> Vec<bool> {
        slots.iter().map(|slot| slot.0.end.is_cancelled()).collect()
    }

    fn counts(slots: &Slots) -> (usize, usize) {
        slots.with(|table| (table.open, table.sources.values().map(|source| source.open).sum()))
    }

    #[test]
    fn a_caller_with_the_called_address_is_on_this_machine() {
        let own = |peer: &str, called: &str| {
            let called = (!called.is_empty()).then(|| called.parse().unwrap());
            Caller::of(peer.parse().unwrap(), called).own
        };
        assert!(own("127.0.0.9:1", "127.0.0.1:443") && own("[::1]:1", "[::1]:443"));
        assert!(own("10.0.0.1:1", "10.0.0.1:443") && own("[fd00::1]:1", "[fd00::1]:443"));
        assert!(
            own("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:443"),
            "a listener of both families"
        );
        assert!(own("[::ffff:127.0.0.1]:1", ""));
        assert!(!own("10.0.0.2:1", "10.0.0.1:443") && !own("10.0.0.1:1", ""));
    }

    #[test]
    fn one_source_gets_its_share_and_other_sources_all_but_the_reserved_slots() {
        let slots = Slots::new(limits(WhenFull::FairShare));
        let first = take(&slots, "10.0.0.2", 9);
        assert_eq!(first.len(), 4, "the share of one source");
        let second = take(&slots, "10.0.0.3", 9);
        assert_eq!(second.len(), 4, "all but the reserved slots");
        for slot in first.iter().chain(&second) {
            slot.place().busy();
        }
        assert!(slots.take(caller("10.0.0.4")).is_none());

        let own = take(&slots, "10.0.0.1", 9);
        assert_eq!(own.len(), 2, "the reserved slots");
        drop(first);
        assert_eq!(counts(&slots), (6, 6));
        assert_eq!(take(&slots, "10.0.0.4", 9).len(), 2);
    }

    #[test]
    fn callers_on_this_machine_may_use_all_slots() {
        let slots = Slots::new(limits(WhenFull::FairShare));
        assert_eq!(take(&slots, "127.0.0.1", 11).len(), 10);
        assert_eq!(counts(&slots), (0, 0), "all slots are free again");
    }

    #[test]
    fn by_fair_share_a_source_with_fewer_connections_gets_the_slot_of_one_that_never_asked() {
        let slots = Slots::new(limits(WhenFull::FairShare));
        let mut crowd = take(&slots, "10.0.0.2", 4);
        crowd.extend(take(&slots, "10.0.0.3", 4));
        crowd[0].place().busy();
        crowd[0].place().idle();

        let newcomers = take(&slots, "10.0.0.4", 9);
        assert_eq!(newcomers.len(), 3, "until no other source holds more");
        let ended = [false, true, true, false, true, false, false, false];
        assert_eq!(replaced(&crowd), ended, "the first one has had a request");
        assert_eq!(counts(&slots), (8, 8));
    }

    #[test]
    fn by_fair_share_a_source_never_ends_its_own_connections() {
        let slots = Slots::new(limits(WhenFull::FairShare));
        let crowd = take(&slots, "127.0.0.1", 10);
        assert!(slots.take(caller("127.0.0.1")).is_none());
        assert_eq!(replaced(&crowd), [false; 10]);
        assert!(slots.take(caller("127.0.0.2")).is_some(), "another source holds none");
    }

    #[test]
    fn the_oldest_idle_connection_of_the_largest_source_makes_way() {
        let slots = Slots::new(limits(WhenFull::EndIdle));
        let small = take(&slots, "10.0.0.2", 2);
        let large = take(&slots, "10.0.0.3", 4);
        let other = take(&slots, "10.0.0.4", 2);
        large[0].place().busy();
        let newcomer = take(&slots, "10.0.0.5", 1);
        assert_eq!(newcomer.len(), 1);
        assert_eq!(
            replaced(&large),
            [false, true, false, false],
            "the oldest without a request"
        );
        assert_eq!((replaced(&small), replaced(&other)), (vec![false; 2], vec![false; 2]));

        large[0].place().idle();
        let next = take(&slots, "10.0.0.5", 1);
        assert_eq!(next.len(), 1);
        assert!(replaced(&large)[0], "idle again");
    }

    #[test]
    fn a_source_at_its_share_ends_its_own_idle_connection_and_no_other() {
        let slots = Slots::new(limits(WhenFull::EndIdle));
        let other = take(&slots, "10.0.0.3", 1);
        let crowd = take(&slots, "10.0.0.2", 5);
        assert_eq!(replaced(&crowd), [true, false, false, false, false]);
        for slot in &crowd {
            slot.place().busy();
        }
        assert!(slots.take(caller("10.0.0.2")).is_none(), "all have requests");
        assert_eq!(replaced(&other), [false]);
    }

    #[test]
    fn no_number_of_idle_connections_keeps_a_new_one_out() {
        let slots = Slots::new(limits(WhenFull::EndIdle));
        let mut held = Vec::new();
        for number in 0..10_000_u32 {
            let peer = IpAddr::from((0x0a01_0000 + number % 300).to_be_bytes()).to_string();
            held.extend(slots.take(caller(&peer)));
            assert!(counts(&slots).0 <= 8);
        }
        assert_eq!(held.len(), 10_000);
        assert!(slots.take(caller("127.0.0.1")).is_some() && slots.take(caller("10.9.9.9")).is_some());
        drop(held);
        assert_eq!(counts(&slots), (0, 0));
    }

    #[test]
    fn a_request_that_outlives_its_connection_changes_nothing() {
        let slots = Slots::new(limits(WhenFull::EndIdle));
        let (kept, gone) = (take(&slots, "10.0.0.2", 1), take(&slots, "10.0.0.2", 1));
        let place = gone[0].place().clone();
        place.busy();
        drop(gone);
        place.idle();
        assert_eq!(counts(&slots), (1, 1));
        assert_eq!(
            slots.with(|table| table.sources.values().map(|source| source.idle.len()).sum::<usize>()),
            1
        );
        drop(kept);
        assert_eq!(counts(&slots), (0, 0));
    }
}
