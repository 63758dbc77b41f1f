//! The writes of this process that take or renew the lease, until one is known to be stored. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::record::Record;

/// How many are remembered. More than a renew deadline has room for.
const REMEMBERED: usize = 16;

/// Writes whose outcome may be unknown. A record in the API server with the `renewTime` of one of them shows that it was
/// stored, also if its answer never arrived.
#[derive(Debug, Default)]
pub struct Attempts(VecDeque<(Timestamp, Began)>);

/// When a write began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    pub at: Instant,
    /// How long the machine had been suspended in total.
    pub suspended: Duration,
}

impl Attempts {
    /// Notes a write of `renew_time` that begins now.
    pub fn begin(&mut self, renew_time: Timestamp, now: Began) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((renew_time, now));
    }

    /// When the write began that stored `record`; `None` if none of these did. Leadership counts from then on.
    pub fn began(&self, record: &Record, identity: &str) -> Option<Began> {
        let wrote = |attempt: &&(Timestamp, Began)| Some(attempt.0) == record.renew_time;
        let found = self.0.iter().find(wrote).filter(|_| record.holder == identity);
        found.map(|(_, began)| *began)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
