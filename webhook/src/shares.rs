//! A number of units, shared between callers so that none of them takes all.
//!
//! - Callers that are no API servers hold at most half of all units.
//! - A caller holds at most [`TIMES`] times the units that it leaves free. One that takes all it can leaves a fifth to
//!   others; each further one leaves a fifth of the rest. With few callers nothing is wasted on limits for each.
//!   (The rule is the dynamic threshold of shared-memory switches, <https://doi.org/10.1109/90.664262>.)

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::callers::{Caller, Rank};

/// A caller holds at most this many times the free units.
const TIMES: usize = 4;

#[derive(Debug)]
pub struct Shares {
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_api_servers: usize,
    by_others: usize,
    callers: HashMap<IpAddr, usize>,
}

/// Units of a caller, until it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    caller: Caller,
    units: usize,
}

impl Shares {
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            held: Mutex::default(),
        })
    }

    /// A share without units.
    #[must_use]
    pub fn empty(self: &Arc<Self>, caller: Caller) -> Share {
        Share {
            shares: Arc::clone(self),
            caller,
            units: 0,
        }
    }

    /// Units for a caller; none if it has its share, or too few are free.
    #[must_use]
    pub fn take(self: &Arc<Self>, caller: Caller, units: usize) -> Option<Share> {
        let mut share = self.empty(caller);
        share.grow(units).then_some(share)
    }

    /// Units that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        let held = self.lock();
        held.by_api_servers + held.by_others
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn take(&mut self, limit: usize, caller: Caller, units: usize) -> bool {
        let free_of_all = limit.saturating_sub(self.by_api_servers + self.by_others);
        let free = match caller.rank {
            Rank::ApiServer => free_of_all,
            Rank::Other => free_of_all.min(limit.div_ceil(2).saturating_sub(self.by_others)),
        };
        let own = self.callers.get(&caller.address).copied().unwrap_or_default();
        let Some(left) = free.checked_sub(units) else {
            return false;
        };
        // The last unit is for a caller that has none, so that a pool of one is of use.
        let is_first = own == 0 && units == 1;
        if own.saturating_add(units) > TIMES.saturating_mul(left) && !is_first {
            return false;
        }

        *self.callers.entry(caller.address).or_default() += units;
        *self.of(caller.rank) += units;

        true
    }

    fn put_back(&mut self, caller: Caller, units: usize) {
        *self.of(caller.rank) -= units;
        if let Some(own) = self.callers.get_mut(&caller.address) {
            *own -= units;
            if *own == 0 {
                self.callers.remove(&caller.address);
            }
        }
    }

    const fn of(&mut self, rank: Rank) -> &mut usize {
        match rank {
            Rank::ApiServer => &mut self.by_api_servers,
            Rank::Other => &mut self.by_others,
        }
    }
}

impl Share {
    /// Takes more units; false, and no change, if there are none for this caller.
    pub fn grow(&mut self, units: usize) -> bool {
        let is_taken = self.shares.lock().take(self.shares.limit, self.caller, units);
        if is_taken {
            self.units += units;
        }
        is_taken
    }

    /// Puts units back, except so many.
    pub fn shrink_to(&mut self, units: usize) {
        let surplus = self.units.saturating_sub(units);
        self.units -= surplus;
        self.shares.lock().put_back(self.caller, surplus);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caller(rank: Rank, number: u8) -> Caller {
        Caller {
            rank,
            address: IpAddr::from([192, 0, 2, number]),
        }
    }

    /// As many units, one by one, as the caller gets.
    fn all(shares: &Arc<Shares>, caller: Caller) -> Share {
        let mut share = shares.empty(caller);
        while share.grow(1) {}
        share
    }

    #[test]
    fn one_caller_leaves_a_fifth_and_others_half() {
        let shares = Shares::new(256);
        let greedy = all(&shares, caller(Rank::Other, 1));
        assert_eq!(greedy.units, 102, "of 128");
        let second = all(&shares, caller(Rank::Other, 2));
        assert_eq!(second.units, 20);
        assert!(shares.take(caller(Rank::Other, 3), 1).is_some());

        let api_server = all(&shares, caller(Rank::ApiServer, 9));
        assert_eq!(api_server.units, 107, "of the 134 that are free");
        drop((greedy, second, api_server));
        assert_eq!(shares.held(), 0);
        assert!(shares.lock().callers.is_empty());
    }

    #[test]
    fn a_pool_of_one_is_of_use() {
        let shares = Shares::new(1);
        let other = shares.take(caller(Rank::Other, 1), 1);
        assert!(other.is_some());
        assert!(shares.take(caller(Rank::ApiServer, 2), 1).is_none(), "it is only one");
        drop(other);
        assert!(shares.take(caller(Rank::ApiServer, 2), 1).is_some());
    }

    #[test]
    fn a_share_shrinks() {
        let shares = Shares::new(100);
        let mut share = shares.take(caller(Rank::Other, 1), 30).unwrap();
        share.shrink_to(50);
        assert_eq!(shares.held(), 30);
        share.shrink_to(10);
        assert_eq!(shares.held(), 10);
    }

    proptest! {
        #[test]
        fn others_leave_room_for_api_servers_and_each_caller_for_new_ones(
            takes in prop::collection::vec((any::<bool>(), 0_u8..6, 1_usize..40), 0..60),
        ) {
            let shares = Shares::new(1000);
            let mut held = Vec::new();
            for (is_other, number, units) in takes {
                let (rank, number) = if is_other { (Rank::Other, 100 + number % 3) } else { (Rank::ApiServer, number % 2) };
                held.extend(shares.take(caller(rank, number), units));
                prop_assert!(shares.lock().by_others <= 500 && shares.held() <= 1000);
                prop_assert!(shares.take(caller(Rank::ApiServer, 50), 1).is_some());
                prop_assert!(shares.take(caller(Rank::Other, 150), 1).is_some());
            }
            drop(held);
            prop_assert_eq!(shares.held(), 0);
        }
    }
}
