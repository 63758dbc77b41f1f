//! The holders of each lease over time.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::attribute::{Actor, alive_at};
use super::input::Inputs;
use super::rules::Rules;
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_cluster_harness::pods::ProcessSpan;

/// `--leader-elect-lease-duration` where a lease does not say its own.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);
/// `leaseDurationSeconds` of a lease that its holder released.
const RELEASED: Duration = Duration::from_secs(1);

/// One holder's time with one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    pub lease: Lease,
    /// `holderIdentity`.
    pub holder: String,
    pub actor: Actor,
    /// The holder's own `acquireTime`.
    pub from: Timestamp,
    /// The last moment at which it was surely held or could be used: release, next holder, the process's end, or the
    /// lease's expiry.
    pub until: Timestamp,
    pub released: Option<Timestamp>,
    /// When another process emptied the lease, after it expired.
    pub emptied: Option<Timestamp>,
    /// When the lease would expire after its last renewal.
    pub expires: Timestamp,
    /// The process's exact end, if it is known and has ended.
    pub process_ended: Option<Timestamp>,
}

impl Tenure {
    /// True when `at` lies inside.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }

    /// When the holder lost the lease. The end of its process shows nowhere in the lease: it is held until it expires.
    pub(super) fn lease_ended(&self) -> Timestamp {
        if self.process_ended == Some(self.until) && self.released.is_none() {
            self.expires.max(self.until)
        } else {
            self.until
        }
    }
}

/// The identity's time with a lease, before the process behind it is known.
struct Span {
    lease: Lease,
    holder: String,
    acquire_time: Option<Timestamp>,
    from: Timestamp,
    last_renewed: Timestamp,
    duration: Duration,
    until: Option<Timestamp>,
    released: Option<Timestamp>,
    emptied: Option<Timestamp>,
}

impl Span {
    /// When it expires after the last renewal.
    fn expires(&self) -> Timestamp {
        let duration = SignedDuration::try_from(self.duration).unwrap_or(SignedDuration::MAX);
        self.last_renewed.saturating_add(duration).unwrap_or(Timestamp::MAX)
    }
}

/// All tenures of all leases, in the order of their starts.
pub(super) fn tenures(inputs: &Inputs, rules: &Rules) -> Vec<Tenure> {
    let mut changes: Vec<_> = inputs
        .lease_changes
        .iter()
        .filter(|change| change.at <= inputs.until)
        .collect();

    changes.sort_by_key(|change| change.at);

    let spans: Vec<_> = [Lease::K, Lease::C, Lease::M]
        .into_iter()
        .flat_map(|lease| spans(changes.iter().copied().filter(|change| change.lease == lease)))
        .collect();
    let mut tenures: Vec<_> = spans.iter().map(|span| resolve(span, &spans, inputs, rules)).collect();
    tenures.sort_by_key(|tenure| (tenure.from, tenure.lease));

    tenures
}

fn spans<'a>(changes: impl Iterator<Item = &'a LeaseChange>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for change in changes {
        // The holder's own stamp, unless it lies after the moment at which we saw it (a wrong clock).
        let acquired = change
            .acquired
            .filter(|acquired| *acquired <= change.at)
            .unwrap_or(change.at);
        let open = spans.last_mut().filter(|span| span.until.is_none());
        match (open, &change.holder) {
            (Some(span), Some(holder)) if span.holder == *holder && span.acquire_time == change.acquired => {
                span.last_renewed = change.renewed.unwrap_or(change.at).max(span.last_renewed);
                continue;
            }
            (Some(span), Some(_)) => span.until = Some(acquired),
            (Some(span), None) => {
                let free = released(change).map(|at| at.max(span.from));
                // A holder gives up before its lease expires.
                (span.released, span.emptied) = match free {
                    Some(at) if at >= span.expires() => (None, free),
                    _ => (free, None),
                };
                span.until = free.or(Some(change.at));
            }
            (None, _) => {}
        }

        if let Some(holder) = &change.holder {
            // client-go stamps an attempt before it reads the lease, so the stamp may be before the release that it read:
            // <https://github.com/kubernetes/client-go/blob/v0.26.13/tools/leaderelection/leaderelection.go>.
            let released = spans.last().and_then(|span| span.released);
            let acquired = acquired.max(released.unwrap_or(acquired)).min(change.at);
            spans.push(Span {
                lease: change.lease,
                holder: holder.clone(),
                acquire_time: change.acquired,
                from: acquired,
                last_renewed: change.renewed.unwrap_or(acquired).max(acquired),
                duration: change.duration.unwrap_or(DEFAULT_DURATION),
                until: None,
                released: None,
                emptied: None,
            });
        }
    }

    spans
}

/// When an elector emptied a lease. Only electors write the duration of one second
/// (<https://github.com/kubernetes/client-go/blob/v0.26.13/tools/leaderelection/leaderelection.go>): a lease that
/// somebody else deleted or emptied is lost, and its holder may still act.
fn released(change: &LeaseChange) -> Option<Timestamp> {
    let by_holder = !change.deleted && change.duration == Some(RELEASED);
    let at = || change.renewed.filter(|at| *at <= change.at).unwrap_or(change.at);
    by_holder.then(at)
}

fn resolve(span: &Span, all: &[Span], inputs: &Inputs, rules: &Rules) -> Tenure {
    let candidates = candidates(span, all, inputs, rules);
    let component = candidates
        .first()
        .map_or_else(String::new, |process| process.component.clone());
    let mut actor = Actor::one_of(&candidates, &component, rules);

    if candidates.is_empty() {
        actor.names = [format!("holder {}", span.holder)].into();
    }

    let process_ended = match candidates.as_slice() {
        [process] => process.ended,
        _ => None,
    };
    // A holder that gives up without a release leaves the lease to expire. It writes nothing then; what it writes all the
    // same is measured by its calls.
    let until = [span.until, process_ended, Some(inputs.until), Some(span.expires())]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(inputs.until);

    Tenure {
        lease: span.lease,
        holder: span.holder.clone(),
        actor,
        from: span.from,
        until: until.max(span.from),
        released: span.released,
        emptied: span.emptied,
        expires: span.expires(),
        process_ended,
    }
}

/// The processes that can have this identity: named by the harness, else those of the component that the identity's
/// main lease tells, alive from its first acquisition to its last renewal.
fn candidates<'a>(span: &Span, all: &[Span], inputs: &'a Inputs, rules: &Rules) -> Vec<&'a ProcessSpan> {
    if let Some(name) = inputs.holders.get(&span.holder) {
        let named = inputs.processes.iter().filter(|process| process.process == *name);
        return named.collect();
    }

    let same: Vec<_> = all.iter().filter(|other| other.holder == span.holder).collect();
    let leases: BTreeSet<_> = same
        .iter()
        .map(|other| other.lease)
        .filter(|lease| *lease != Lease::M)
        .collect();
    let first = same.iter().map(|other| other.from).min().unwrap_or(span.from);
    let last = same
        .iter()
        .map(|other| other.last_renewed)
        .max()
        .unwrap_or(span.last_renewed);

    inputs
        .processes
        .iter()
        .filter(|process| {
            rules
                .component(&process.component)
                .is_some_and(|component| leases.is_empty() || leases.contains(&component.main_lease))
        })
        .filter(|process| alive_at(process, first) && alive_at(process, last))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::{Component, Side};
    use crate::samples::{at, process, tenure};

    /// The record of M at a second. Empty without a holder.
    fn change(second: i64, holder: Option<&str>, acquired: i64, renewed: i64) -> LeaseChange {
        LeaseChange {
            lease: Lease::M,
            at: at(second),
            since_start: Duration::ZERO,
            holder: holder.map(str::to_owned),
            acquired: Some(at(acquired)),
            renewed: Some(at(renewed)),
            duration: Some(Duration::from_secs(if holder.is_some() { 15 } else { 1 })),
            transitions: 0,
            annotations: BTreeMap::new(),
            deleted: false,
        }
    }

    fn only(changes: &[LeaseChange]) -> Span {
        let mut all = spans(changes.iter());
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn a_tenure_has_its_first_moment_and_not_its_last() {
        let tenure = tenure(Lease::M, "a", Side::New, (5, 10));
        let inside = [4, 5, 9, 10].map(|second| tenure.contains(at(second)));
        assert_eq!(inside, [false, true, true, false]);
    }

    #[test]
    fn a_tenure_begins_no_earlier_than_the_release_before_it() {
        let released = [change(5, Some("a"), 5, 15), change(20, None, 20, 20)];
        let from = |acquired| {
            let next = change(21, Some("b"), acquired, acquired);
            spans(released.iter().chain([&next])).pop().unwrap().from
        };
        assert_eq!([19, 20, 21].map(from), [20, 20, 21].map(at));

        let emptied = LeaseChange {
            duration: Some(Duration::from_secs(15)),
            ..released[1].clone()
        };
        let next = change(21, Some("b"), 19, 19);
        let all = spans([&released[0], &emptied, &next].into_iter());
        assert_eq!(all[1].from, at(19), "somebody else emptied it, and its holder may act");
    }

    #[test]
    fn a_span_lasts_over_renewals_and_ends_with_a_release() {
        let span = only(&[
            change(5, Some("a"), 5, 5),
            change(7, Some("a"), 5, 7),
            change(9, None, 5, 8),
        ]);
        assert_eq!((span.from, span.last_renewed, span.expires()), (at(5), at(7), at(22)));
        assert_eq!(
            (span.until, span.released, span.emptied),
            (Some(at(8)), Some(at(8)), None)
        );
    }

    #[test]
    fn a_lease_that_is_emptied_at_or_after_its_expiry_is_not_released() {
        let span = only(&[change(5, Some("a"), 5, 5), change(20, None, 5, 20)]);
        assert_eq!(
            (span.until, span.released, span.emptied),
            (Some(at(20)), None, Some(at(20)))
        );
        let span = only(&[change(5, Some("a"), 5, 5), change(19, None, 5, 19)]);
        assert_eq!((span.released, span.emptied), (Some(at(19)), None));
    }

    #[test]
    fn a_deletion_or_an_edit_by_hand_ends_a_span_without_a_release() {
        let mut deleted = change(9, None, 5, 8);
        deleted.deleted = true;
        let mut edited = change(9, None, 5, 8);
        edited.duration = Some(Duration::from_secs(15));
        for end in [deleted, edited] {
            let span = only(&[change(5, Some("a"), 5, 5), end]);
            assert_eq!((span.until, span.released, span.emptied), (Some(at(9)), None, None));
        }
    }

    #[test]
    fn times_after_the_observation_are_those_of_a_wrong_clock() {
        let span = only(&[change(5, Some("a"), 6, 5), change(9, None, 5, 10)]);
        assert_eq!((span.from, span.released), (at(5), Some(at(9))));
        assert_eq!(only(&[change(5, Some("a"), 5, 5)]).from, at(5));
    }

    #[test]
    fn the_next_holder_and_another_acquisition_begin_a_span() {
        let changes = [
            change(5, Some("a"), 5, 5),
            change(8, Some("b"), 7, 7),
            change(12, Some("b"), 11, 11),
        ];
        let all = spans(changes.iter());
        let times: Vec<_> = all
            .iter()
            .map(|span| (span.holder.as_str(), span.from, span.until))
            .collect();
        assert_eq!(
            times,
            [
                ("a", at(5), Some(at(7))),
                ("b", at(7), Some(at(11))),
                ("b", at(11), None)
            ]
        );
        let mut unknown = change(5, Some("a"), 5, 5);
        unknown.duration = None;
        assert_eq!(only(&[unknown]).expires(), at(20));
    }

    #[test]
    fn a_tenure_ends_with_its_span_its_process_or_the_run() {
        let (kcm, ours) = ("kube-controller-manager", "outrigger-manager");
        let rules = Rules::new(Component::outrigger_manager());
        let mut inputs = Inputs {
            lease_changes: vec![change(5, Some("a"), 5, 5), change(60, Some("b"), 60, 60)],
            processes: vec![
                process("ours", ours, &[], 0, Some(9)),
                process("kcm", kcm, &[], 20, None),
            ],
            holders: [("a".to_owned(), "ours".to_owned())].into(),
            until: at(50),
            ..Inputs::default()
        };
        let all = tenures(&inputs, &rules);
        assert_eq!(all.len(), 1, "the second is later than the run");
        assert_eq!((all[0].until, all[0].process_ended), (at(9), Some(at(9))));

        inputs.holders.clear();
        inputs.processes[0].ended = None;
        let all = tenures(&inputs, &rules);
        assert_eq!(all[0].actor.label(), "ours", "the other started later");
        assert_eq!((all[0].until, all[0].process_ended), (at(20), None), "left to expire");

        inputs.lease_changes.insert(1, change(40, Some("a"), 5, 40));
        let all = tenures(&inputs, &rules);
        assert_eq!(all[0].until, at(50), "renewed");

        inputs.until = at(60);
        let all = tenures(&inputs, &rules);
        assert_eq!((all.len(), all[0].until), (2, at(55)));
        assert_eq!(all[1].actor.names.len(), 2, "either may be the holder of M alone");
        inputs.processes.clear();
        assert_eq!(tenures(&inputs, &rules)[0].actor.label(), "holder a");
    }

    #[test]
    fn the_main_lease_of_a_holder_tells_its_component() {
        let (kcm, ours) = ("kube-controller-manager", "outrigger-manager");
        let rules = Rules::new(Component::outrigger_manager());
        let main = LeaseChange {
            lease: Lease::K,
            ..change(5, Some("a"), 5, 5)
        };
        let inputs = Inputs {
            lease_changes: vec![change(6, Some("a"), 6, 6), main],
            processes: vec![process("ours", ours, &[], 0, None), process("kcm", kcm, &[], 0, None)],
            until: at(50),
            ..Inputs::default()
        };
        let all = tenures(&inputs, &rules);
        let leases: Vec<_> = all.iter().map(|tenure| (tenure.lease, tenure.actor.label())).collect();
        assert_eq!(leases, [(Lease::K, "kcm".to_owned()), (Lease::M, "kcm".to_owned())]);
    }

    #[test]
    fn a_lease_outlives_its_process_until_it_expires_and_ends_at_once_otherwise() {
        let ended = |process_ended: Option<i64>, released: Option<i64>| {
            let tenure = Tenure {
                process_ended: process_ended.map(at),
                released: released.map(at),
                expires: at(45),
                ..tenure(Lease::M, "ours", Side::New, (10, 30))
            };
            tenure.lease_ended()
        };
        assert_eq!(ended(Some(30), None), at(45));
        assert_eq!(ended(Some(30), Some(30)), at(30), "released");
        assert_eq!(ended(None, None), at(30), "deleted or acquired by another process");
        assert_eq!(ended(Some(40), None), at(30), "the process ended later");
    }
}
