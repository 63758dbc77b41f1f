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

/// One change of hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The holder before.
    pub from: Actor,
    pub to: Actor,
    /// When the old process ended, released M or was stopped by a signal, whichever came first; `None` when none.
    pub ended: Option<Timestamp>,
    /// True when M was released rather than left to expire.
    pub released: bool,
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
            (Side::New, Side::New) if self.released => Some(limits.new_to_new_released),
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
    let of_holder = inputs
        .pauses
        .iter()
        .filter(|pause| holder.actor.names.contains(&pause.process));
    let lasting = of_holder.filter(|pause| pause.from <= at && pause.until.is_none_or(|until| at < until));
    lasting.map(|pause| pause.from).min()
}

/// The in-tree process that was there before `before` and ended last (or has not ended).
fn last_in_tree(before: Timestamp, inputs: &Inputs, rules: &Rules) -> Option<(Actor, Option<Timestamp>)> {
    let in_tree = inputs.processes.iter().filter(|process| {
        process.started < before
            && rules
                .component(&process.component)
                .is_some_and(|component| component.side == Side::Old)
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
    let before = inputs.snapshots.iter().filter(|snapshot| snapshot.at <= to.from);
    let balancers = &before.max_by_key(|snapshot| snapshot.at)?.load_balancers;
    let calls = || {
        let calls = inputs.aws_calls.iter().filter(|call| !call.preflight);
        calls.filter(|call| to.actor.names.contains(&call.caller) && to.from <= call.at && call.at <= to.until)
    };
    let observed = balancers.iter().map(|(name, balancer)| {
        let names = |value: &String| value == name || balancer.identifiers.contains(value);
        let of_it = calls().filter(|call| call.parameters.values().any(names));
        of_it.map(|call| call.at).min()
    });

    observed.collect::<Option<Vec<_>>>()?.into_iter().max()
}
