//! Where two processes owned one controller at the same time, and who is at fault.

use std::time::Duration;

use jiff::Timestamp;

use super::attribute::Actor;
use super::input::Inputs;
use super::interval::Interval;
use super::rules::{Controller, Rules};
use super::tenure::Tenure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The process that should not have acted.
    pub caused_by: Actor,
    pub against: Actor,
    pub from: Timestamp,
    /// Never before [`Overlap::from`].
    pub until: Timestamp,
}

/// All overlaps among the intervals of one controller, which are sorted by their starts.
pub(super) fn overlaps(
    controller: Controller,
    intervals: &[Interval],
    tenures: &[Tenure],
    inputs: &Inputs,
    rules: &Rules,
) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (index, first) in intervals.iter().enumerate() {
        for second in intervals.iter().skip(index + 1) {
            let (from, until) = (second.from, first.until.min(second.until));
            if first.actor.may_be(&second.actor) || !overlap(first, second) {
                continue;
            }

            let lease_of = |actor: &Actor| rules.governing(controller, inputs.processes_named(&actor.names).next()?);
            let holds = |lease| {
                tenures
                    .iter()
                    .any(|tenure| tenure.lease == lease && tenure.contains(from) && tenure.actor.may_be(&second.actor))
            };
            // The later one causes the overlap, unless it holds the very lease that should have stopped the first.
            let rightful =
                lease_of(&second.actor).is_some_and(|lease| holds(lease) && lease_of(&first.actor) == Some(lease));
            let (caused_by, against) = if rightful { (first, second) } else { (second, first) };

            found.push(Overlap {
                caused_by: caused_by.actor.clone(),
                against: against.actor.clone(),
                from,
                until: until.max(from),
            });
        }
    }

    found
}

/// Touching is no overlap, but a single call within the other's time is one.
fn overlap(first: &Interval, second: &Interval) -> bool {
    let meets = |a: &Interval, b: &Interval| a.from <= b.from && b.from < a.until;
    meets(first, second) || meets(second, first)
}

/// How long any of `overlaps` lasted: times that several share count once, each separate one at least 1 ms.
pub(super) fn length<'a>(overlaps: impl IntoIterator<Item = &'a Overlap>) -> Duration {
    let mut windows: Vec<_> = overlaps
        .into_iter()
        .map(|overlap| (overlap.from, overlap.until))
        .collect();
    windows.sort();

    let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
    for (from, until) in windows {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }

    merged
        .iter()
        .map(|(from, until)| since(*from, *until).max(Duration::from_millis(1)))
        .sum()
}

/// The time from `from` to `until`; zero when `until` is earlier.
pub(super) fn since(from: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// Whole milliseconds, rounded up: a figure may look worse than it is, never better.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Side;
    use crate::samples::actor;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn touching_is_no_overlap_and_a_single_call_within_is_one() {
        let interval = |(from, until)| Interval {
            actor: actor(&["a"], Side::Old),
            from: at(from),
            until: at(until),
            aws_calls: 0,
            api_writes: 0,
            lease: None,
        };
        for (first, second, expected) in [
            ((0, 10), (10, 20), false),
            ((0, 10), (9, 20), true),
            ((0, 10), (0, 0), true),
            ((0, 10), (5, 5), true),
            ((0, 10), (10, 10), false),
            ((0, 10), (11, 12), false),
            ((5, 5), (5, 5), false),
        ] {
            let (first, second) = (interval(first), interval(second));
            assert_eq!(overlap(&first, &second), expected, "{first:?} {second:?}");
            assert_eq!(overlap(&second, &first), expected, "{second:?} {first:?}");
        }
    }

    #[test]
    fn shared_times_count_once_and_each_separate_one_at_least_a_millisecond() {
        let length = |windows: &[(i64, i64)]| {
            let overlaps: Vec<Overlap> = windows
                .iter()
                .map(|(from, until)| Overlap {
                    caused_by: actor(&["a"], Side::New),
                    against: actor(&["b"], Side::Old),
                    from: at(*from),
                    until: at(*until),
                })
                .collect();
            milliseconds(length(&overlaps))
        };
        for (windows, expected) in [
            (&[][..], 0),
            (&[(0, 10), (5, 20)], 20),
            (&[(0, 10), (2, 3)], 10),
            (&[(11, 20), (0, 10)], 19),
            (&[(0, 10), (10, 10)], 10),
            (&[(5, 5)], 1),
            (&[(5, 5), (7, 7)], 2),
        ] {
            assert_eq!(length(windows), expected, "{windows:?}");
        }
    }

    #[test]
    fn a_figure_is_rounded_up_and_never_negative() {
        assert_eq!(since(at(5), at(3)), Duration::ZERO);
        assert_eq!(since(at(3), at(5)), Duration::from_millis(2));
        for (nanoseconds, expected) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(milliseconds(Duration::from_nanos(nanoseconds)), expected);
        }
    }
}
