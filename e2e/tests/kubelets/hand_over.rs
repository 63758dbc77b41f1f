//! `kubectl delete pod` of the leading manager: the kubelet sends SIGTERM, the manager releases its leases, and another
//! manager acquires them.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::Client;
use outrigger_cluster_harness::leases::{Lease, LeaseChange, LeaseName, Recorder};
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::SOON;
use outrigger_timeline::Limits;

use crate::processes::{NEW, Processes};

/// From the command to the end of the process, on a machine with free processors. The kubelet kills a manager that takes
/// 30 s.
const STOP: Duration = Duration::from_secs(5);
/// Processors with less free time are busy.
const FREE_PERCENT: u64 = 10;

/// Runs `delete`, which deletes the Pod of the manager that holds `leases`, and judges their hand-over. `processes` began
/// to record when that manager was the only one on `node`.
pub async fn by_deletion(
    client: &Client,
    processes: &Processes,
    node: &str,
    leases: &[Lease],
    delete: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let recorder = Recorder::start(client, LeaseName::defaults());
    let old = async || {
        let runs = processes.spans().iter().any(|span| is_of(span, node));
        let holders: Vec<_> = leases.iter().map(|lease| holder(&recorder, *lease)).collect();
        let old = holders.first().cloned().flatten();
        let is_one = old.as_ref().is_some_and(|old| old.starts_with(&format!("{node}_")))
            && holders.iter().all(|holder| *holder == old);
        old.filter(|_| is_one && runs)
            .map(Some)
            .ok_or_else(|| format!("holders {holders:?}, process {runs}"))
    };
    let old = until("one holder of the leases, and its process, in the record", SOON, old).await?;

    let (asked, processors) = (Timestamp::now(), Processors::now()?);
    delete().await?;
    let taken = async || {
        let holders: Vec<_> = leases.iter().map(|lease| holder(&recorder, *lease)).collect();
        let other = |holder: &Option<String>| holder.as_ref().is_some_and(|holder| *holder != old);
        holders
            .iter()
            .all(other)
            .then_some(())
            .ok_or_else(|| format!("{holders:?}"))
    };
    until("the leases in the hands of another manager", SOON, taken).await?;

    let hand_over = HandOver {
        old,
        asked,
        ended: ended(processes, node).await?,
        is_busy: processors.were_busy()?,
    };
    for lease in leases {
        println!("{}", hand_over.judge(*lease, &recorder.changes())?);
    }
    Ok(())
}

fn is_of(span: &ProcessSpan, node: &str) -> bool {
    span.pod == format!("{NEW}-{node}")
}

fn holder(recorder: &Recorder, lease: Lease) -> Option<String> {
    recorder.latest(lease)?.holder
}

/// The end of the first process of the recorder on this machine.
async fn ended(processes: &Processes, node: &str) -> Result<Timestamp> {
    let ended = async || {
        let spans = processes.spans();
        let first = spans.iter().find(|span| is_of(span, node));
        first
            .and_then(|span| span.ended)
            .map(Some)
            .ok_or_else(|| format!("{first:?}"))
    };
    Ok(until("the end of the process", SOON, ended).await?)
}

/// Times of the processors of this host until a moment.
struct Processors {
    free: u64,
    total: u64,
}

impl Processors {
    /// The fields of the first line are user, nice, system, idle, iowait and others:
    /// <https://man7.org/linux/man-pages/man5/proc_stat.5.html>
    fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .take(8)
            .collect();
        let free = ticks.iter().skip(3).take(2).sum();
        Ok(Self {
            free,
            total: ticks.iter().sum(),
        })
    }

    /// Whether the processors had hardly any free time since then.
    fn were_busy(&self) -> Result<bool> {
        let now = Self::now()?;
        let (free, total) = (now.free.saturating_sub(self.free), now.total - self.total);
        let percent = 100 * free / total.max(1);
        println!("free time of the processors: {percent} %");
        Ok(percent < FREE_PERCENT)
    }
}

/// A hand-over that a command asked for.
#[derive(Debug)]
struct HandOver {
    /// The identity of the holder that ended.
    old: String,
    asked: Timestamp,
    /// The end of its process.
    ended: Timestamp,
    /// Whether processes had to wait for the processors.
    is_busy: bool,
}

impl HandOver {
    /// The old manager released the lease and the next one acquired it within the limits of `make prove`. On busy
    /// processors, each of the two may take as much longer as in every test beside other work.
    fn judge(&self, lease: Lease, changes: &[LeaseChange]) -> Result<String> {
        let (quiet, beside) = (Limits::default(), Limits::default().beside_other_work());
        let allowance = beside.new_to_new_released - quiet.new_to_new_released;
        let allowance = if self.is_busy { allowance } else { Duration::ZERO };
        let limit = quiet.new_to_new_released + allowance;

        let of_lease = || changes.iter().filter(|change| change.lease == lease);
        let released = of_lease().any(|change| !change.deleted && change.holder.is_none());
        let is_next = |change: &&LeaseChange| change.holder.as_ref().is_some_and(|holder| *holder != self.old);
        let acquired = of_lease().find(is_next).and_then(|change| change.acquired);
        let acquired = acquired.with_context(|| format!("nobody acquired {lease:?}: {changes:#?}"))?;

        // The next manager may acquire the lease before the old process has ended.
        let since = |begin: Timestamp| Duration::try_from(acquired.duration_since(begin)).unwrap_or_default();
        let (gap, whole) = (since(self.ended), since(self.asked));
        let measured = format!("{lease:?}: acquired {gap:?} after the end of the process, {whole:?} after the command");
        ensure!(released, "{} did not release {lease:?}: {changes:#?}", self.old);
        ensure!(gap <= limit, "{measured}; no holder for longer than {limit:?}");
        let whole_limit = STOP + allowance + limit;
        ensure!(whole <= whole_limit, "{measured}; longer than {whole_limit:?}");
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "node_1";

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).expect("a time")
    }

    fn change(milliseconds: i64, holder: Option<&str>) -> LeaseChange {
        LeaseChange {
            holder: holder.map(str::to_owned),
            acquired: Some(at(milliseconds)),
            deleted: false,
            ..LeaseChange::deleted(Lease::C, at(milliseconds), Duration::ZERO)
        }
    }

    /// Of a command at 0.
    fn judged(ended: i64, acquired: i64, is_busy: bool) -> Result<String> {
        let hand_over = HandOver {
            old: OLD.to_owned(),
            asked: at(0),
            ended: at(ended),
            is_busy,
        };
        let changes = [
            change(-9000, Some(OLD)),
            change(ended, None),
            change(acquired, Some("node_2")),
        ];
        hand_over.judge(Lease::C, &changes)
    }

    #[test]
    fn a_hand_over_within_its_limits_is_good() {
        judged(900, 1200, false).unwrap();
        judged(4900, 6800, false).unwrap();
        judged(4900, 4800, false).unwrap();
        judged(9900, 16_800, true).unwrap();
    }

    #[test]
    fn a_long_gap_and_a_manager_that_takes_long_to_stop_are_not() {
        for (ended, acquired, is_busy) in [
            (900, 3000, false),
            (900, 8000, true),
            (30_000, 30_100, false),
            (30_000, 30_100, true),
            (7200, 7300, false),
        ] {
            judged(ended, acquired, is_busy).unwrap_err();
        }
    }

    #[test]
    fn a_lease_that_was_not_released_is_a_fault() {
        let hand_over = HandOver {
            old: OLD.to_owned(),
            asked: at(0),
            ended: at(500),
            is_busy: false,
        };
        let expired = [change(-9000, Some(OLD)), change(900, Some("node_2"))];
        let error = hand_over.judge(Lease::C, &expired).unwrap_err().to_string();
        assert!(error.contains("did not release"), "{error}");
    }
}
