//! From one holder of M to the next: how long nobody owned the cloud controllers.

use std::time::Duration;

use jiff::Timestamp;

use super::attribute::{self, Actor};
use super::input::Inputs;
use super::overlap::since;
use super::rules::{Controller, Limits, Rules, Side};
use super::tenure::Tenure;
use outrigger_cluster_harness::leases::Lease;

/// From the release of M to the end of a process that was told to end.
const ENDING: Duration = Duration::from_secs(2);
/// From the start of a process to its first read of M, at most. With four scenarios at the same time on two processors it is
/// half a second.
const START: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    pub from: Actor,
    pub to: Actor,
    /// When the old process ended, released M or was stopped by a signal, whichever came first; `None` when none.
    pub ended: Option<Timestamp>,
    /// True when M was released rather than left to expire.
    pub released: bool,
    /// How long the new process had to wait from the old one's end because of the record of an old manager that it found
    /// when it started: in the last lease duration before the old process of ours acquired M. Nothing shows how old that
    /// record was.
    pub found: Option<Duration>,
    /// True when our process released M and ran on, or ended in a step back: it offered M to a Go manager, for which
    /// nothing limits the gap to another process of ours.
    pub offered: bool,
    /// True when the lease of a process that ended expired and another one of ours emptied it.
    pub emptied: bool,
    /// True when M had not been renewed for its whole duration: then it may be taken from a process that still runs.
    pub expired: bool,
    /// `acquireTime` of M by the new holder.
    pub acquired: Timestamp,
    /// From the old process's end to the acquisition; zero when that came later. For a Go manager it begins when the
    /// manager leads and so competes for M. For ours it begins again when our leader ends meanwhile without a release:
    /// only the next leader may acquire M.
    pub gap: Option<Duration>,
    /// From the acquisition to the new holder's first call of a migrated controller.
    pub first_sync: Option<Duration>,
    /// From the acquisition until the new holder had asked AWS about each load balancer of the snapshot before it; `None`
    /// when it did not ask about all of them, or there was none.
    pub all_observed: Option<Duration>,
}

impl HandOver {
    /// The longest gap that is good enough; `None` where nothing is promised.
    pub fn limit(&self, limits: &Limits) -> Option<Duration> {
        match (self.from.side, self.to.side) {
            (Side::Old, Side::New) => Some(limits.old_to_new),
            (Side::New, Side::New) if self.offered => None,
            (Side::New, Side::New) if self.released => {
                Some(limits.new_to_new_released.max(self.found.unwrap_or_default()))
            }
            (Side::New, Side::New) => Some(limits.new_to_new_killed),
            (Side::New, Side::Old) if self.released => Some(limits.new_to_old_released),
            (Side::New, Side::Old) if self.emptied => Some(limits.new_to_new_killed + limits.new_to_old_released),
            _ => None,
        }
    }
}

/// Every change of hands of M, in order. The first taker of M takes over from the in-tree process that ended last,
/// if there was one: a migration with downtime has no earlier holder of M.
pub(super) fn hand_overs(tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<HandOver> {
    let of_m: Vec<_> = tenures.iter().filter(|tenure| tenure.lease == Lease::M).collect();
    let mut found = Vec::new();
    for (index, to) in of_m.iter().enumerate() {
        let previous = index.checked_sub(1).and_then(|index| of_m.get(index));
        let (from, ended) = match previous {
            Some(from) if from.actor == to.actor => continue,
            Some(from) => (
                from.actor.clone(),
                [from.released, from.process_ended, paused(from, to.from, inputs)]
                    .into_iter()
                    .flatten()
                    .min(),
            ),
            None if to.actor.side != Side::New => continue,
            None => match last_in_tree(to.from, inputs, rules) {
                Some(from) => from,
                None => continue,
            },
        };

        let gap = ended.map(|ended| {
            let candidate = candidate_since(to, tenures).max(leader_lost((&from, ended), to, tenures));
            since(ended.max(candidate), to.from)
        });

        found.push(HandOver {
            from,
            ended,
            released: previous.is_some_and(|from| from.released.is_some()),
            found: found_record_expires(&of_m[..=index], inputs, rules)
                .zip(ended)
                .filter(|(expires, ended)| expires > ended)
                .map(|(expires, ended)| since(ended, expires)),
            offered: previous.is_some_and(|from| is_offer(from) || free(from).is_some_and(|at| steps_back(at, inputs))),
            emptied: previous.is_some_and(|from| from.emptied.is_some()),
            expired: previous.is_some_and(|from| from.expires <= to.from),
            acquired: to.from,
            gap,
            first_sync: first_call(to, tenures, inputs, rules).map(|at| since(to.from, at)),
            all_observed: all_observed(to, inputs).map(|at| since(to.from, at)),
            to: to.actor.clone(),
        });
    }

    found
}

/// When the record that an old manager left expires for the last of these holders of M, by what it can know. `None` if it
/// saw how the former one, of ours, acquired M, or began later.
fn found_record_expires(of_m: &[&Tenure], inputs: &Inputs, rules: &Rules) -> Option<Timestamp> {
    let [earlier @ .., from, to] = of_m else {
        return None;
    };
    let before = earlier.iter().rev().find(|tenure| tenure.actor != from.actor)?;
    if (before.actor.side, from.actor.side, to.actor.side) != (Side::Old, Side::New, Side::New) {
        return None;
    }

    let mut processes = inputs.processes.iter();
    let started = processes
        .find(|process| to.actor.names.contains(&process.process))?
        .started;
    let expires = started + START + rules.limits.new_to_new_killed;
    (started <= from.from && from.from < expires).then_some(expires)
}

/// When M became free before its next acquisition, other than by its expiry.
fn free(holder: &Tenure) -> Option<Timestamp> {
    holder.released.or(holder.emptied)
}

/// A process that ends by SIGTERM releases M last.
fn is_offer(holder: &Tenure) -> bool {
    let ran_on = |released: Timestamp| holder.process_ended.is_none_or(|ended| since(released, ended) > ENDING);
    holder.actor.names.len() == 1 && holder.released.is_some_and(ran_on)
}

/// Whether the last change of the phase before `at` was a step back.
fn steps_back(at: Timestamp, inputs: &Inputs) -> bool {
    const PHASES: [&str; 4] = ["phase InTree", "phase Prepare", "phase Migrate", "phase Complete"];
    let phase = |name: &str| PHASES.iter().position(|phase| *phase == name);
    let before = inputs.markers.iter().filter(|marker| marker.at <= at);
    let mut phases = before.filter_map(|marker| phase(&marker.name)).rev();
    matches!((phases.next(), phases.next()), (Some(last), Some(earlier)) if last < earlier)
}

/// The last end of a leader of ours between `ended` and the acquisition that left the main lease to expire.
fn leader_lost((from, ended): (&Actor, Timestamp), to: &Tenure, tenures: &[Tenure]) -> Timestamp {
    let leaders = tenures
        .iter()
        .filter(|tenure| tenure.lease == Lease::C && tenure.actor.side == Side::New && tenure.released.is_none());
    let lost = leaders
        .filter(|leader| leader.actor != *from)
        .filter_map(|leader| leader.process_ended);
    let meanwhile = lost.filter(|at| ended < *at && *at < to.from && to.actor.side == Side::New);
    meanwhile.max().unwrap_or(Timestamp::MIN)
}

/// From when on a Go manager competes for M: it acquires its main lease first.
fn candidate_since(to: &Tenure, tenures: &[Tenure]) -> Timestamp {
    let mut main = tenures
        .iter()
        .filter(|tenure| tenure.lease == Lease::K && tenure.actor == to.actor);
    let is_old = to.actor.side == Side::Old;
    main.find(|_| is_old).map_or(Timestamp::MIN, |tenure| tenure.from)
}

/// When the holder was stopped by a signal that still stopped it at `at`.
fn paused(holder: &Tenure, at: Timestamp, inputs: &Inputs) -> Option<Timestamp> {
    let of_holder = inputs.pauses_of(&holder.actor.names);
    let lasting = of_holder.filter(|pause| pause.from <= at && pause.until.is_none_or(|until| at < until));
    lasting.map(|pause| pause.from).min()
}

/// The in-tree process that was there before `before` and ended last (or has not ended).
fn last_in_tree(before: Timestamp, inputs: &Inputs, rules: &Rules) -> Option<(Actor, Option<Timestamp>)> {
    let in_tree = inputs.processes.iter().filter(|process| {
        process.started < before
            && rules.side_of(&process.component) == Side::Old
            && rules.governing(Controller::Service, process).is_some()
    });
    let last = in_tree.max_by_key(|process| process.ended.unwrap_or(Timestamp::MAX))?;
    Some((Actor::known(last, rules), last.ended))
}

fn first_call(to: &Tenure, tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Option<Timestamp> {
    let calls = inputs
        .aws_calls
        .iter()
        .filter(|call| attribute::of_aws_call(call).is_some() && to.actor.names.contains(&call.caller))
        .map(|call| call.at);
    let writes = inputs.audit_events.iter().filter_map(|event| {
        let controller = attribute::of_api_write(event)?;
        let writer = attribute::writer(event, controller, tenures, inputs, rules)?;
        writer.may_be(&to.actor).then_some(event.request_received_timestamp)
    });

    calls.chain(writes).filter(|at| to.from <= *at && *at <= to.until).min()
}

/// When the holder had named each load balancer in a call.
fn all_observed(to: &Tenure, inputs: &Inputs) -> Option<Timestamp> {
    let balancers = inputs.balancers_at(to.from)?;
    let calls = || {
        let calls = inputs.aws_calls.iter().filter(|call| !call.preflight);
        calls.filter(|call| to.actor.names.contains(&call.caller) && to.from <= call.at && call.at <= to.until)
    };
    let observed = balancers.iter().map(|(name, balancer)| {
        let of_it = calls().filter(|call| call.names(name, balancer));
        of_it.map(|call| call.at).min()
    });

    observed.collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{AwsCall, LoadBalancer, Marker, Pause, Snapshot};
    use crate::samples::{actor, at, hand_over, process, tenure};

    const KCM: &str = "kube-controller-manager";

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Ours, released at 10 s.
    fn released(names: &[&str], ended: Option<i64>) -> Tenure {
        Tenure {
            actor: actor(names, Side::New),
            released: Some(at(10)),
            process_ended: ended.map(at),
            ..tenure(Lease::M, "a", Side::New, (0, 10))
        }
    }

    #[test]
    fn each_kind_of_handover_has_its_limit() {
        let limits = Limits {
            old_to_new: seconds(1),
            new_to_new_released: seconds(2),
            new_to_new_killed: seconds(4),
            new_to_old_released: seconds(8),
            silence: seconds(16),
        };
        let limit = |from, to, change: fn(&mut HandOver)| {
            let mut hand_over = hand_over(from, to, None);
            change(&mut hand_over);
            hand_over.limit(&limits)
        };
        let (old, new) = (Side::Old, Side::New);
        assert_eq!(limit(old, new, |_| {}), Some(seconds(1)));
        assert_eq!(limit(new, new, |_| {}), Some(seconds(4)));
        assert_eq!(limit(new, new, |it| it.released = true), Some(seconds(2)));
        assert_eq!(limit(new, new, |it| (it.released, it.offered) = (true, true)), None);
        let found = |found| limit(new, new, |it| it.released = true).max(Some(seconds(found)));
        assert_eq!(
            limit(new, new, |it| (it.released, it.found) = (true, Some(seconds(3)))),
            found(3)
        );
        assert_eq!(
            limit(new, new, |it| (it.released, it.found) = (true, Some(seconds(1)))),
            Some(seconds(2))
        );
        assert_eq!(limit(new, old, |it| it.released = true), Some(seconds(8)));
        assert_eq!(limit(new, old, |it| it.emptied = true), Some(seconds(12)));
        assert_eq!(limit(new, old, |_| {}), None);
        assert_eq!(limit(old, old, |it| it.released = true), None);
    }

    #[test]
    fn the_first_holder_of_ours_takes_over_from_the_in_tree_process_and_nobody_from_itself() {
        let rules = Rules::new(crate::Component::outrigger_manager());
        let inputs = Inputs {
            processes: vec![process("kcm", KCM, &["--cloud-provider=aws"], 0, Some(5))],
            ..Inputs::default()
        };
        let found = |tenures: &[Tenure]| {
            let all = hand_overs(tenures, &inputs, &rules);
            let rows = all
                .iter()
                .map(|one| (one.from.label(), one.to.label(), one.ended, one.gap));
            rows.collect::<Vec<_>>()
        };
        let ours = |lease, times| tenure(lease, "ours", Side::New, times);
        let first = ("kcm".to_owned(), "ours".to_owned(), Some(at(5)), Some(seconds(3)));
        assert_eq!(found(&[ours(Lease::M, (8, 10)), ours(Lease::M, (12, 20))]), [first]);
        assert_eq!(found(&[ours(Lease::C, (8, 20))]), []);
        assert_eq!(found(&[tenure(Lease::M, "kcm", Side::Old, (2, 5))]), []);
    }

    #[test]
    fn a_record_that_was_found_at_the_start_counts_for_a_lease_duration() {
        let rules = Rules::new(crate::Component::outrigger_manager());
        let expires = |started, old: Side| {
            let inputs = Inputs {
                processes: vec![process("next", "outrigger-manager", &[], started, None)],
                ..Inputs::default()
            };
            let of_m = [
                tenure(Lease::M, "kcm", old, (0, 5)),
                tenure(Lease::M, "first", Side::New, (20, 30)),
                tenure(Lease::M, "next", Side::New, (32, 40)),
            ];
            found_record_expires(&of_m.each_ref(), &inputs, &rules)
        };
        let after = |started| Some(at(started) + START + rules.limits.new_to_new_killed);
        assert_eq!(expires(19, Side::Old), after(19));
        assert_eq!(expires(5, Side::Old), after(5));
        assert_eq!(expires(3, Side::Old), None, "it saw the record expire");
        assert_eq!(expires(21, Side::Old), None, "it found the record of the first one");
        assert_eq!(expires(19, Side::New), None);
    }

    #[test]
    fn a_process_that_runs_on_after_its_release_has_offered_the_lease() {
        assert!(is_offer(&released(&["a"], None)));
        assert!(is_offer(&released(&["a"], Some(13))));
        assert!(!is_offer(&released(&["a"], Some(12))), "it ended");
        assert!(!is_offer(&released(&["a", "b"], None)), "it is not known which it was");
        assert!(!is_offer(&tenure(Lease::M, "a", Side::New, (0, 10))), "not released");
    }

    #[test]
    fn a_lease_is_free_from_its_release_or_from_the_moment_when_it_was_emptied() {
        let expired = tenure(Lease::M, "a", Side::New, (0, 10));
        assert_eq!(free(&expired), None);
        assert_eq!(free(&released(&["a"], None)), Some(at(10)));
        let emptied = Tenure {
            emptied: Some(at(12)),
            ..expired
        };
        assert_eq!(free(&emptied), Some(at(12)));
    }

    #[test]
    fn the_last_two_phases_before_a_moment_show_a_step_back() {
        let inputs = Inputs {
            markers: [
                (1, "phase Migrate"),
                (2, "something else"),
                (3, "phase Prepare"),
                (5, "phase Migrate"),
            ]
            .map(|(second, name)| Marker {
                at: at(second),
                name: name.into(),
            })
            .into(),
            ..Inputs::default()
        };
        for (second, expected) in [(0, false), (1, false), (2, false), (3, true), (4, true), (5, false)] {
            assert_eq!(steps_back(at(second), &inputs), expected, "{second}");
        }
    }

    #[test]
    fn the_gap_to_ours_begins_again_when_another_leader_of_ours_ends_without_a_release() {
        let leader = |ended, released: Option<i64>| Tenure {
            process_ended: ended,
            released: released.map(at),
            ..tenure(Lease::C, "leader", Side::New, (0, 30))
        };
        let to = tenure(Lease::M, "next", Side::New, (20, 30));
        let from = actor(&["former"], Side::New);
        let lost = |leader: Tenure| leader_lost((&from, at(10)), &to, &[leader]);
        let never = Timestamp::MIN;

        assert_eq!(lost(leader(Some(at(15)), None)), at(15));
        assert_eq!(lost(leader(Some(at(10)), None)), never, "before");
        assert_eq!(lost(leader(Some(at(20)), None)), never, "after");
        assert_eq!(lost(leader(Some(at(15)), Some(14))), never, "released");
        assert_eq!(lost(leader(None, None)), never);
        for other in [
            tenure(Lease::K, "leader", Side::New, (0, 30)),
            tenure(Lease::C, "leader", Side::Old, (0, 30)),
            tenure(Lease::C, "former", Side::New, (0, 30)),
        ] {
            let other = Tenure {
                process_ended: Some(at(15)),
                ..other
            };
            assert_eq!(lost(other.clone()), never, "{other:?}");
        }
        let to_old = tenure(Lease::M, "kcm", Side::Old, (20, 30));
        let ended = leader(Some(at(15)), None);
        assert_eq!(leader_lost((&from, at(10)), &to_old, &[ended]), never);
    }

    #[test]
    fn a_go_manager_competes_from_its_acquisition_of_the_main_lease_on() {
        let to = tenure(Lease::M, "kcm", Side::Old, (20, 30));
        let main = tenure(Lease::K, "kcm", Side::Old, (15, 30));
        assert_eq!(candidate_since(&to, std::slice::from_ref(&main)), at(15));
        for other in [
            tenure(Lease::C, "kcm", Side::Old, (15, 30)),
            tenure(Lease::K, "other", Side::Old, (15, 30)),
        ] {
            assert_eq!(candidate_since(&to, &[other]), Timestamp::MIN);
        }
        let ours = tenure(Lease::M, "a", Side::New, (20, 30));
        let same = Tenure {
            actor: ours.actor.clone(),
            ..main
        };
        assert_eq!(candidate_since(&ours, &[same]), Timestamp::MIN);
    }

    #[test]
    fn a_signal_counts_that_still_stops_the_holder() {
        let holder = tenure(Lease::M, "a", Side::New, (0, 30));
        let since = |process: &str, from, until: Option<i64>| {
            let pause = Pause {
                process: process.into(),
                from: at(from),
                until: until.map(at),
            };
            let inputs = Inputs {
                pauses: vec![pause],
                ..Inputs::default()
            };
            paused(&holder, at(20), &inputs)
        };
        assert_eq!(since("a", 10, None), Some(at(10)));
        assert_eq!(since("a", 20, Some(21)), Some(at(20)));
        assert_eq!(since("a", 10, Some(20)), None, "continued");
        assert_eq!(since("a", 21, None), None, "stopped later");
        assert_eq!(since("b", 10, None), None, "another process");
    }

    #[test]
    fn without_an_earlier_holder_the_in_tree_process_that_ended_last_is_the_former_owner() {
        let in_tree = ["--cloud-provider=aws"];
        let inputs = Inputs {
            processes: vec![
                process("first", KCM, &in_tree, 0, Some(5)),
                process("last", KCM, &in_tree, 0, Some(8)),
                process("external", KCM, &["--cloud-provider=external"], 0, Some(9)),
                process("ours", "outrigger-manager", &[], 0, Some(9)),
                process("unknown", "other", &in_tree, 0, Some(9)),
                process("later", KCM, &in_tree, 20, None),
            ],
            ..Inputs::default()
        };
        let rules = Rules::new(crate::Component::outrigger_manager());
        let last = |before| last_in_tree(at(before), &inputs, &rules).map(|(actor, ended)| (actor.label(), ended));
        assert_eq!(last(20), Some(("last".to_owned(), Some(at(8)))));
        assert_eq!(last(21), Some(("later".to_owned(), None)), "it runs");
        assert_eq!(last(0), None);
    }

    /// A read of `balancer` by ours.
    fn read(second: i64, balancer: &str) -> AwsCall {
        AwsCall {
            at: at(second),
            caller: "a".into(),
            service: "elasticloadbalancing".into(),
            action: "DescribeLoadBalancers".into(),
            preflight: false,
            is_write: false,
            parameters: [("LoadBalancerName".to_owned(), balancer.to_owned())].into(),
            status: 200,
            done: at(second),
        }
    }

    #[test]
    fn the_first_call_is_one_of_the_holder_while_it_holds_the_lease() {
        let to = tenure(Lease::M, "a", Side::New, (10, 20));
        let rules = Rules::new(crate::Component::outrigger_manager());
        let first = |calls: &[AwsCall]| {
            let inputs = Inputs {
                aws_calls: calls.to_vec(),
                ..Inputs::default()
            };
            first_call(&to, &[], &inputs, &rules)
        };
        assert_eq!(first(&[read(15, "x"), read(10, "x"), read(9, "x")]), Some(at(10)));
        assert_eq!(first(&[read(20, "x")]), Some(at(20)));
        assert_eq!(first(&[read(21, "x"), read(9, "x")]), None);
        let other = AwsCall {
            caller: "b".into(),
            ..read(15, "x")
        };
        let shared = AwsCall {
            service: "ec2".into(),
            action: "DescribeInstances".into(),
            ..read(15, "x")
        };
        assert_eq!(first(&[other, shared]), None);
    }

    #[test]
    fn all_load_balancers_of_the_last_snapshot_before_are_observed_when_each_was_named() {
        let to = tenure(Lease::M, "a", Side::New, (10, 20));
        let snapshot = |second, names: &[&str]| Snapshot {
            at: at(second),
            load_balancers: names
                .iter()
                .map(|name| {
                    let balancer = LoadBalancer {
                        dns_name: String::new(),
                        created: String::new(),
                        targets: [].into(),
                        identifiers: [format!("sg-{name}")].into(),
                    };
                    ((*name).to_owned(), balancer)
                })
                .collect(),
            routes: [].into(),
        };
        let observed = |calls: &[AwsCall]| {
            let inputs = Inputs {
                aws_calls: calls.to_vec(),
                snapshots: vec![snapshot(1, &["gone"]), snapshot(10, &["x", "y"]), snapshot(11, &["z"])],
                ..Inputs::default()
            };
            all_observed(&to, &inputs)
        };
        assert_eq!(
            observed(&[read(10, "x"), read(12, "x"), read(20, "sg-y")]),
            Some(at(20))
        );
        assert_eq!(observed(&[read(10, "x")]), None, "y is missing");
        for late in [9, 21] {
            assert_eq!(observed(&[read(10, "x"), read(late, "y")]), None);
        }
        let probe = AwsCall {
            preflight: true,
            ..read(12, "y")
        };
        let other = AwsCall {
            caller: "b".into(),
            ..read(12, "y")
        };
        assert_eq!(observed(&[read(10, "x"), probe, other]), None);
    }
}
