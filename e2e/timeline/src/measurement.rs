//! The figures of one scenario, and the violations of its bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::handover::HandOver;
use super::overlap::milliseconds;
use super::ownerless::Ownerless;
use super::report::{ControllerTimeline, Report};
use super::rules::{Controller, Side};

/// The bounds of a scenario. Those of the gaps are the rules' [`Limits`](super::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The least number of handovers of M: fewer measure nothing.
    pub hand_overs: usize,
    /// The longest time without an owner, except between two processes of the old side.
    pub ownerless: Duration,
    /// From an acquisition of M by ours until it asked AWS about every load balancer, and until a Node that joined
    /// meanwhile is a target of every one.
    pub observed: Option<Duration>,
    /// Whether AWS may carry out a write after another process acquired the lease of its sender.
    pub late_effects: bool,
    /// The longest time in which the Service controller may have two owners through the fault of a Go manager, if that is
    /// bounded.
    pub overrun: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Gaps {
    /// From a Go manager to ours.
    OldToNew,
    /// From ours to ours after SIGTERM.
    Released,
    /// From ours to ours after SIGKILL or SIGSTOP, or with an older record that counted until its expiry.
    Expired,
    /// From ours to a Go manager.
    NewToOld,
}

impl Gaps {
    pub const ALL: [Self; 4] = [Self::OldToNew, Self::Released, Self::Expired, Self::NewToOld];

    /// The kind of a handover; `None` where nothing is promised.
    fn of(hand_over: &HandOver) -> Option<Self> {
        match (hand_over.from.side, hand_over.to.side) {
            (Side::Old, Side::New) => Some(Self::OldToNew),
            (Side::New, Side::New) if hand_over.offered => None,
            (Side::New, Side::New) if hand_over.released && hand_over.found.is_none() => Some(Self::Released),
            (Side::New, Side::New) => Some(Self::Expired),
            // Its limit includes the lease's expiry.
            (Side::New, Side::Old) if hand_over.emptied => None,
            (Side::New, Side::Old) => Some(Self::NewToOld),
            _ => None,
        }
    }
}

/// The figures of one or more runs of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    pub hand_overs: usize,
    /// Time with two owners that a process of ours caused.
    pub overlap: Duration,
    /// Time with two owners that a Go manager caused, which was stopped and continued.
    pub overrun: Duration,
    pub gaps: BTreeMap<Gaps, Vec<Duration>>,
    /// From each acquisition of M by ours until it had asked AWS about every load balancer.
    pub all_observed: Vec<Duration>,
    /// The longest time without an owner, except between two processes of the old side.
    pub ownerless: Option<Ownerless>,
    /// The longest time without an owner between two processes of the old side, as in the roll in phase Prepare.
    #[serde(default)]
    pub rolled: Option<Duration>,
    pub needless_writes: usize,
    pub writes_without_lease: usize,
    pub recreated: usize,
    pub lost_targets: usize,
    pub contradictions: usize,
    /// The violations of bounds, in words.
    pub violations: Vec<String>,
}

impl Measurement {
    pub fn of(report: &Report, bounds: &Bounds) -> Self {
        let mut gaps: BTreeMap<Gaps, Vec<Duration>> = BTreeMap::new();
        for hand_over in &report.hand_overs {
            if let (Some(kind), Some(gap)) = (Gaps::of(hand_over), hand_over.gap) {
                gaps.entry(kind).or_default().push(gap);
            }
        }

        let ours = report.ownerless.iter().filter(|time| time.concerns_ours());
        Self {
            hand_overs: report.hand_overs.len(),
            overlap: report.controllers.iter().map(ControllerTimeline::overlap).sum(),
            overrun: report
                .controllers
                .iter()
                .map(ControllerTimeline::overlap_by_old_side)
                .sum(),
            gaps,
            all_observed: report.acquired_by_ours().filter_map(|one| one.all_observed).collect(),
            ownerless: ours.max_by_key(|time| time.length()).cloned(),
            rolled: report.longest_roll(),
            needless_writes: report.writes_by_switch.len(),
            writes_without_lease: report.writes_without_lease.len(),
            recreated: report.recreated.len(),
            lost_targets: report.lost_targets.len(),
            contradictions: report.contradictions.len(),
            violations: violations(report, bounds),
        }
    }

    pub fn add(&mut self, other: Self) {
        self.hand_overs += other.hand_overs;
        self.overlap += other.overlap;
        self.overrun += other.overrun;
        for (kind, gaps) in other.gaps {
            self.gaps.entry(kind).or_default().extend(gaps);
        }

        self.all_observed.extend(other.all_observed);
        let both = [self.ownerless.take(), other.ownerless];
        self.ownerless = both.into_iter().flatten().max_by_key(Ownerless::length);
        self.rolled = self.rolled.max(other.rolled);
        self.needless_writes += other.needless_writes;
        self.writes_without_lease += other.writes_without_lease;
        self.recreated += other.recreated;
        self.lost_targets += other.lost_targets;
        self.contradictions += other.contradictions;
        self.violations.extend(other.violations);
    }

    pub fn median_and_worst(&self, kind: Gaps) -> Option<(Duration, Duration)> {
        median_and_worst(self.gaps.get(&kind)?)
    }

    pub fn observed_median_and_worst(&self) -> Option<(Duration, Duration)> {
        median_and_worst(&self.all_observed)
    }
}

fn median_and_worst(times: &[Duration]) -> Option<(Duration, Duration)> {
    let mut times = times.to_vec();
    times.sort();
    let middle = times.get(times.len() / 2)?;
    Some((*middle, *times.last()?))
}

fn violations(report: &Report, bounds: &Bounds) -> Vec<String> {
    let mut found = report.verdict_of_events();
    if report.hand_overs.len() < bounds.hand_overs {
        let (seen, least) = (report.hand_overs.len(), bounds.hand_overs);
        found.push(format!("{seen} handovers were seen, at least {least} are expected"));
    }

    let ours = report.ownerless.iter().filter(|time| time.concerns_ours());
    found.extend(ours.filter(|time| time.length() > bounds.ownerless).map(|time| {
        format!(
            "nobody owned the Service controller for {} ms, the limit is {} ms; the status said {}",
            milliseconds(time.length()),
            milliseconds(bounds.ownerless),
            time.shown.as_deref().unwrap_or("nothing")
        )
    }));

    let service = report.controller(Controller::Service);
    let overrun = service.map_or(Duration::ZERO, ControllerTimeline::overlap_by_old_side);
    if bounds.overrun.is_some_and(|limit| overrun > limit) {
        let time = milliseconds(overrun);
        found.push(format!(
            "service: an old manager owned it together with another owner for {time} ms"
        ));
    }

    found.extend(slow(report, bounds));
    for effect in report.late_effects.iter().filter(|_| !bounds.late_effects) {
        found.push(format!(
            "AWS carried out {} of {} {} ms after another process acquired the lease",
            effect.call.action,
            effect.call.caller,
            milliseconds(effect.after)
        ));
    }
    for call in &report.writes_without_lease {
        found.push(format!(
            "{} wrote to AWS without the lease: {}",
            call.caller, call.action
        ));
    }
    for contradiction in &report.contradictions {
        let seconds = contradiction.at.duration_since(report.start).as_secs_f64();
        found.push(format!("at {seconds:.1} s {}", contradiction.text));
    }

    found
}

/// Load balancers that ours read, or added a Node to, too late.
fn slow(report: &Report, bounds: &Bounds) -> Vec<String> {
    let Some(limit) = bounds.observed else {
        return Vec::new();
    };
    let text =
        |time: Option<Duration>| time.map_or("never".to_owned(), |time| format!("after {} ms", milliseconds(time)));
    let is_slow = |time: Option<Duration>| time.is_none_or(|time| time > limit);

    let reads = report.acquired_by_ours().filter(|one| is_slow(one.all_observed));
    let reads = reads.map(|one| {
        let (who, when) = (one.to.label(), text(one.all_observed));
        format!("{who} asked about the last load balancer {when}")
    });
    let joined = report
        .joined
        .iter()
        .filter(|one| one.owner.side == Side::New && is_slow(one.took));
    let joined = joined.map(|one| {
        format!(
            "{} was a target of the last load balancer {}",
            one.target,
            text(one.took)
        )
    });
    reads.chain(joined).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse;
    use crate::input::Inputs;
    use crate::overlap::Overlap;
    use crate::rules::{Component, Rules};
    use crate::samples::{actor, at, hand_over};

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn empty_report() -> Report {
        analyse(&Inputs::default(), &Rules::new(Component::outrigger_manager()))
    }

    #[test]
    fn a_gap_is_measured_by_the_sides_and_by_the_end_of_the_lease() {
        let (old, new) = (Side::Old, Side::New);
        let of = |from, to, change: fn(&mut HandOver)| {
            let mut hand_over = hand_over(from, to, None);
            change(&mut hand_over);
            Gaps::of(&hand_over)
        };
        assert_eq!(of(old, new, |_| {}), Some(Gaps::OldToNew));
        assert_eq!(of(new, new, |it| it.released = true), Some(Gaps::Released));
        assert_eq!(of(new, new, |_| {}), Some(Gaps::Expired));
        let found = |it: &mut HandOver| (it.released, it.found) = (true, Some(seconds(3)));
        assert_eq!(of(new, new, found), Some(Gaps::Expired));
        assert_eq!(of(new, new, |it| (it.released, it.offered) = (true, true)), None);
        assert_eq!(of(new, old, |it| it.released = true), Some(Gaps::NewToOld));
        assert_eq!(of(new, old, |it| it.emptied = true), None);
        assert_eq!(of(old, old, |_| {}), None);
    }

    #[test]
    fn the_sum_of_two_measurements_has_the_sum_of_each_figure_and_the_longest_time_without_an_owner() {
        let ownerless = |until| {
            Some(Ownerless {
                from: at(0),
                until: at(until),
                before: Side::Old,
                after: Some(Side::New),
                shown: None,
            })
        };
        let mut sum = Measurement {
            hand_overs: 2,
            overlap: seconds(3),
            overrun: seconds(4),
            gaps: [(Gaps::OldToNew, vec![seconds(5)])].into(),
            all_observed: vec![seconds(6)],
            ownerless: ownerless(9),
            rolled: Some(seconds(7)),
            needless_writes: 3,
            writes_without_lease: 4,
            recreated: 5,
            lost_targets: 6,
            contradictions: 7,
            violations: vec!["one".into()],
        };
        sum.add(Measurement {
            hand_overs: 10,
            overlap: seconds(20),
            overrun: seconds(30),
            gaps: [(Gaps::OldToNew, vec![seconds(40)]), (Gaps::Expired, vec![seconds(50)])].into(),
            all_observed: vec![seconds(60)],
            ownerless: ownerless(8),
            rolled: None,
            needless_writes: 10,
            writes_without_lease: 20,
            recreated: 30,
            lost_targets: 40,
            contradictions: 50,
            violations: vec!["two".into()],
        });
        let expected = Measurement {
            hand_overs: 12,
            overlap: seconds(23),
            overrun: seconds(34),
            gaps: [
                (Gaps::OldToNew, vec![seconds(5), seconds(40)]),
                (Gaps::Expired, vec![seconds(50)]),
            ]
            .into(),
            all_observed: vec![seconds(6), seconds(60)],
            ownerless: ownerless(9),
            rolled: Some(seconds(7)),
            needless_writes: 13,
            writes_without_lease: 24,
            recreated: 35,
            lost_targets: 46,
            contradictions: 57,
            violations: vec!["one".into(), "two".into()],
        };
        assert_eq!(sum, expected);
    }

    #[test]
    fn the_median_is_the_middle_time_and_of_two_the_longer_one() {
        let of = |times: &[u64]| {
            let measurement = Measurement {
                all_observed: times.iter().copied().map(seconds).collect(),
                ..Measurement::default()
            };
            measurement.observed_median_and_worst()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((seconds(7), seconds(7))));
        assert_eq!(of(&[9, 1, 4]), Some((seconds(4), seconds(9))));
        assert_eq!(of(&[3, 8]), Some((seconds(8), seconds(8))));
    }

    const BOUNDS: Bounds = Bounds {
        hand_overs: 0,
        ownerless: Duration::from_secs(5),
        observed: Some(Duration::from_secs(5)),
        late_effects: false,
        overrun: Some(Duration::from_secs(5)),
    };

    #[test]
    fn a_time_without_an_owner_of_exactly_the_limit_is_no_violation() {
        for (length, red) in [(5, false), (6, true)] {
            let mut report = empty_report();
            report.ownerless = vec![Ownerless {
                from: at(0),
                until: at(length),
                before: Side::Old,
                after: Some(Side::New),
                shown: None,
            }];
            let found = violations(&report, &BOUNDS).join(", ");
            assert_eq!(found.contains("nobody owned the Service controller"), red, "{found}");
        }
    }

    #[test]
    fn an_overrun_of_the_service_controller_of_exactly_the_limit_is_no_violation() {
        for (length, side, red) in [(5, Side::Old, false), (6, Side::Old, true), (6, Side::New, false)] {
            let mut report = empty_report();
            report.controllers[0].overlaps = vec![Overlap {
                caused_by: actor(&["a"], side),
                against: actor(&["b"], Side::New),
                from: at(0),
                until: at(length),
            }];
            let found = violations(&report, &BOUNDS).join(", ");
            assert_eq!(found.contains("an old manager owned it together"), red, "{found}");
            let unbounded = Bounds {
                overrun: None,
                ..BOUNDS
            };
            assert!(!violations(&report, &unbounded).join(", ").contains("an old manager"));
        }
    }

    #[test]
    fn load_balancers_that_were_read_within_exactly_the_limit_are_no_violation() {
        for (time, red) in [(Some(5), false), (Some(6), true), (None, true)] {
            let mut report = empty_report();
            report.hand_overs = vec![HandOver {
                all_observed: time.map(seconds),
                ..hand_over(Side::Old, Side::New, Some(seconds(1)))
            }];
            let found = violations(&report, &BOUNDS).join(", ");
            assert_eq!(found.contains("b asked about the last load balancer"), red, "{found}");
        }
    }
}
