//! The writes of this process that take or renew the lease, until one is known to be stored. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_evidence::record::Record;
use tokio::time::Instant;

/// How many are remembered. More than a renew deadline has room for.
const REMEMBERED: usize = 16;

/// Writes whose outcome may be unknown. A record in the API server with the `renewTime` of one of them shows that it was
/// stored, also if its answer never arrived.
#[derive(Debug, Default)]
pub struct Attempts {
    present: VecDeque<(Timestamp, Began)>,
    /// The `renewTime` of those before the last [`Self::settle`].
    settled: VecDeque<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    pub at: Instant,
    /// How long the machine had been suspended in total.
    pub suspended: Duration,
}

impl Attempts {
    /// Notes a write of `renew_time` that begins now.
    pub fn begin(&mut self, renew_time: Timestamp, now: Began) {
        push(&mut self.present, (renew_time, now));
    }

    /// When the present write began that stored `record`; `None` if none of these did. Leadership counts from then on.
    pub fn began(&self, record: &Record, identity: &str) -> Option<Began> {
        let wrote = |attempt: &&(Timestamp, Began)| Some(attempt.0) == record.renew_time;
        let found = self.present.iter().find(wrote).filter(|_| record.holder == identity);
        found.map(|(_, began)| *began)
    }

    pub fn has_settled(&self, record: &Record, identity: &str) -> bool {
        let renewed = record.renew_time;
        record.holder == identity && renewed.is_some_and(|renewed| self.settled.contains(&renewed))
    }

    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// The present writes no longer decide about the leadership.
    pub fn settle(&mut self) {
        for (renew_time, _) in std::mem::take(&mut self.present) {
            push(&mut self.settled, renew_time);
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_sixteen_writes_are_remembered() {
        let mut attempts = Attempts::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let now = Began {
            at: Instant::now(),
            suspended: Duration::ZERO,
        };
        for second in 0..17 {
            attempts.begin(at(second), now);
        }
        let began = |second| {
            let record = Record::created_by("us", Duration::from_secs(15), at(second));
            attempts.began(&record, "us")
        };
        assert_eq!(began(0), None);
        for second in 1..17 {
            assert_eq!(began(second), Some(now), "{second}");
        }
    }
}
