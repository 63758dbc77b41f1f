//! Pass or fail, with the reasons.

use std::time::Duration;

use super::attribute::Actor;
use super::overlap::{milliseconds, since};
use super::report::Report;
use super::rules::{Controller, Limits, Side};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Why it does not; empty when it does.
    pub reasons: Vec<String>,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl Report {
    /// Checks the figures against the limits, and that there was enough evidence to check: a run in which nobody was
    /// seen to own anything proves nothing.
    pub fn verdict(&self) -> Verdict {
        let mut reasons = Vec::new();
        self.judge_overlaps(&mut reasons);
        if self.taken_over().next().is_none() {
            reasons.push("M never went from the old side to the new one".into());
        }
        self.judge_gaps(&mut reasons);
        self.judge_aws_effects(&mut reasons);
        self.judge_evidence(&mut reasons);
        Verdict { reasons }
    }

    /// The same report, judged by other limits.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        self.rules.limits = limits;
        self
    }

    /// The reasons that hold for every run, whether M went from one side to the other or not.
    pub(super) fn verdict_of_events(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        self.judge_overlaps(&mut reasons);
        self.judge_gaps(&mut reasons);
        self.judge_aws_effects(&mut reasons);
        self.judge_snapshots(&mut reasons);
        self.judge_attribution(&mut reasons);
        reasons
    }

    fn judge_overlaps(&self, reasons: &mut Vec<String>) {
        for timeline in &self.controllers {
            for overlap in timeline.overlaps_by_others() {
                reasons.push(format!(
                    "{}: {} owned it together with {} for {} ms",
                    timeline.controller,
                    overlap.caused_by.label(),
                    overlap.against.label(),
                    milliseconds(since(overlap.from, overlap.until)).max(1),
                ));
            }
        }
    }

    fn judge_gaps(&self, reasons: &mut Vec<String>) {
        for hand_over in &self.hand_overs {
            let (from, to) = (hand_over.from.label(), hand_over.to.label());
            match (hand_over.limit(&self.rules.limits), hand_over.gap) {
                (Some(limit), Some(gap)) if gap > limit => reasons.push(format!(
                    "{to} took M from {from} after {} ms, the limit is {} ms",
                    milliseconds(gap),
                    limit.as_millis()
                )),
                // Of a process that stands still and is continued there is no end; its lease has run out all the same.
                (Some(_), None) if !hand_over.expired => {
                    reasons.push(format!("{to} took M although {from} neither ended nor released it"))
                }
                _ => {}
            }
        }
    }

    fn judge_aws_effects(&self, reasons: &mut Vec<String>) {
        for call in &self.writes_by_switch {
            reasons.push(format!("{} wrote to AWS without need: {}", call.caller, call.action));
        }

        for name in &self.recreated {
            reasons.push(format!("load balancer {name} is gone or another one"));
        }

        for (name, target) in &self.lost_targets {
            reasons.push(format!("load balancer {name} lost target {target}"));
        }

        for route in &self.lost_routes {
            reasons.push(format!("route {route} is gone or another one"));
        }
    }

    fn judge_snapshots(&self, reasons: &mut Vec<String>) {
        let targets = |snapshot: &super::Snapshot| snapshot.load_balancers.values().any(|lb| !lb.targets.is_empty());
        if self.snapshots.len() < 2 || !self.snapshots.first().is_some_and(targets) {
            reasons.push(
                "AWS must be looked at before and after, with a load balancer that has targets: nothing is proved"
                    .into(),
            );
        }
    }

    fn judge_evidence(&self, reasons: &mut Vec<String>) {
        self.judge_snapshots(reasons);
        for timeline in &self.controllers {
            for (side, name) in [(Side::Old, "old"), (Side::New, "new")] {
                if !timeline.intervals.iter().any(|interval| interval.actor.side == side) {
                    reasons.push(format!("{}: no owner on the {name} side was seen", timeline.controller));
                }
            }
        }

        self.judge_attribution(reasons);
        for hand_over in self.taken_over() {
            self.judge_silence(&hand_over.from, hand_over.ended.unwrap_or(hand_over.acquired), reasons);
            if hand_over.first_sync.is_none() {
                reasons.push(format!("{} took M and was never seen to work", hand_over.to.label()));
            }
        }
    }

    fn judge_attribution(&self, reasons: &mut Vec<String>) {
        for timeline in &self.controllers {
            let intervals = timeline.intervals.iter();
            for interval in intervals.filter(|interval| interval.actor.side == Side::Unknown) {
                reasons.push(format!(
                    "{}: nobody knows who {} is",
                    timeline.controller,
                    interval.actor.label()
                ));
            }
        }

        for user_agent in &self.overlooked {
            reasons.push(format!(
                "service: writes to Services by {user_agent:?} are counted for nobody"
            ));
        }
    }

    /// An owner that makes no call cannot be seen to overlap; the load on Services is there to make it call.
    fn judge_silence(&self, old: &Actor, end: jiff::Timestamp, reasons: &mut Vec<String>) {
        let Some(service) = self.controller(Controller::Service) else {
            return;
        };

        let last = service
            .intervals
            .iter()
            .filter(|i| i.actor.may_be(old) && i.from <= end)
            .map(|i| i.until)
            .max();
        let silence = last.map_or(Duration::MAX, |last| since(last, end));
        if silence > self.rules.limits.silence && last.is_some() {
            reasons.push(format!(
                "service: {} made no call in the last {} ms before its end: was the load running?",
                old.label(),
                milliseconds(silence)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{actor, at, hand_over};
    use crate::{Component, HandOver, Inputs, Interval, LoadBalancer, Rules, Snapshot, analyse};

    /// The reasons against one change from the old side to ours.
    fn faults(gap: Option<Duration>, expired: bool) -> Vec<String> {
        let mut report = analyse(&Inputs::default(), &Rules::new(Component::outrigger_manager()));
        report.hand_overs.push(HandOver {
            expired,
            ..hand_over(Side::Old, Side::New, gap)
        });
        let mut reasons = Vec::new();
        report.judge_gaps(&mut reasons);
        reasons
    }

    #[test]
    fn a_gap_of_exactly_the_limit_passes() {
        let limit = Limits::default().old_to_new;
        assert!(faults(Some(limit), false).is_empty());
        assert_eq!(faults(Some(limit + Duration::from_millis(1)), false).len(), 1);
    }

    #[test]
    fn the_lease_of_a_process_that_did_not_end_is_acquired_only_after_its_expiry() {
        assert!(faults(None, true).is_empty());
        assert_eq!(faults(None, false).len(), 1);
    }

    #[test]
    fn two_snapshots_with_targets_at_first_are_enough() {
        let balancer = |targets: &[&str]| LoadBalancer {
            dns_name: String::new(),
            created: String::new(),
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            identifiers: [].into(),
        };
        let snapshot = |targets: &[&str]| Snapshot {
            at: at(0),
            load_balancers: [("lb".to_owned(), balancer(targets))].into(),
            routes: [].into(),
        };
        let faults = |snapshots: Vec<Snapshot>| {
            let inputs = Inputs {
                snapshots,
                ..Inputs::default()
            };
            let mut reasons = Vec::new();
            analyse(&inputs, &Rules::new(Component::outrigger_manager())).judge_snapshots(&mut reasons);
            reasons.len()
        };
        assert_eq!(faults(vec![snapshot(&["i-1"]), snapshot(&[])]), 0);
        assert_eq!(faults(vec![snapshot(&["i-1"])]), 1);
        assert_eq!(faults(vec![snapshot(&[]), snapshot(&["i-1"])]), 1);
    }

    #[test]
    fn an_owner_that_made_no_call_before_its_end_for_longer_than_the_limit_is_silent() {
        let silent = |intervals: &[(&str, i64, i64)]| {
            let mut report = analyse(&Inputs::default(), &Rules::new(Component::outrigger_manager()));
            report.controllers[0].intervals = intervals
                .iter()
                .map(|(name, from, until)| Interval {
                    actor: actor(&[name], Side::Old),
                    from: at(*from),
                    until: at(*until),
                    aws_calls: 0,
                    api_writes: 0,
                    lease: None,
                })
                .collect();
            let mut reasons = Vec::new();
            report.judge_silence(&actor(&["kcm"], Side::Old), at(100), &mut reasons);
            !reasons.is_empty()
        };
        assert!(!silent(&[]));
        assert!(!silent(&[("kcm", 0, 85)]));
        assert!(silent(&[("kcm", 0, 84)]));
        assert!(silent(&[("kcm", 0, 84), ("other", 90, 95)]));
        assert!(silent(&[("kcm", 0, 84), ("kcm", 101, 110)]), "after its end");
    }
}
