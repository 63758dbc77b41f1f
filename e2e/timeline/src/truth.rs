//! When the records of a run agree with a claim of the status.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;

use super::attribute;
use super::claim::Claim;
use super::input::{AwsCall, Inputs};
use super::interval::governs;
use super::rules::{Controller, Rules, Side};
use super::spans::Spans;
use super::tenure::Tenure;

/// The writer collects reports for 200 ms, and the record of the lease and of the status come from two watches.
pub(super) const WRITING: SignedDuration = SignedDuration::from_secs(2);
/// A writer that lives corrects its status within this: the period of a status without another reason to write, and one
/// request.
pub(super) const CORRECTION: Duration = Duration::from_secs(20);
/// Kubernetes' lease duration. A process that starts believes a record that it finds for this long. The manager is as long
/// in doubt about a new holder of K.
const LEASE_DURATION: SignedDuration = SignedDuration::from_secs(15);
/// How long M is offered in a step back.
const OFFER: SignedDuration = SignedDuration::from_secs(10);

type End = fn(&Tenure) -> Timestamp;

/// The records of a run, asked for the times in which a claim is true.
pub(super) struct Records<'a> {
    pub(super) tenures: &'a [Tenure],
    pub(super) inputs: &'a Inputs,
    pub(super) rules: &'a Rules,
}

impl Records<'_> {
    /// When a condition with this claim may be written.
    pub(super) fn truth(&self, claim: Claim) -> Spans {
        self.truth_by(claim, Tenure::lease_ended)
    }

    /// `end`: until when a holder counts as an owner.
    fn truth_by(&self, claim: Claim, end: End) -> Spans {
        match claim {
            Claim::Owned => self.owned(end),
            Claim::InTreeLeft => self.owned(end).and(&self.in_tree()),
            Claim::OldManagerOwns => self.owned_by_old(end),
            Claim::NoOwner => self
                .held(|tenure| self.guards(tenure), until)
                .or(&self.unlocked())
                .not(),
            Claim::MainLeaseNotHeld => self.held(|tenure| tenure.lease == Lease::K, recorded).not(),
            Claim::OtherHoldsM => self.held_by_other(),
            Claim::UnguardedLeads => self.seen(|tenure| self.acts_under_k(tenure)),
            Claim::Unlocked => self.unlocked(),
            Claim::LeaderNotProven => self.seen(|tenure| tenure.lease == Lease::K),
            Claim::NewLeader => self.main_lease_changed(),
            Claim::SteppingBack => self.stepping_back(),
            Claim::NotLed => self.held(|tenure| is_ours(tenure, Lease::C), until).not(),
            Claim::MigrationLeaseFree => self.held(|tenure| tenure.lease == Lease::M, recorded).not(),
            Claim::NotAcquired => self.held(|tenure| is_ours(tenure, Lease::M), until).not(),
            Claim::Prepared => self.acting_without_m().not(),
            Claim::Completed => self.phase("Complete").and(&self.owned(end)),
            Claim::Ready => self.ready(end),
            Claim::EvidenceMissing | Claim::WritesNothing | Claim::PhaseFollowed | Claim::NotRecorded => Spans::all(),
        }
    }

    /// When the claim of a condition that was written at `from` is true. Some events end a claim that was true then.
    pub(super) fn truth_since(&self, claim: Claim, from: Timestamp) -> Spans {
        let held = || self.held(|tenure| is_ours(tenure, Lease::M), until);
        let mut truth = self.truth_by(claim, until);
        if claim.releases() {
            truth = truth.and(&held().not());
        }
        if claim == Claim::PhaseFollowed {
            truth = truth.and(&self.phase("InTree").and(&held()).not());
        }

        let write = (claim.writes_nothing() || claim == Claim::NoOwner)
            .then(|| self.first_write(from + WRITING, claim == Claim::NoOwner));
        let taken = (claim == Claim::EvidenceMissing).then(|| self.taken_over(from));
        let end = [write.flatten(), taken.flatten()].into_iter().flatten().min();
        truth.and(&Spans::until(end.unwrap_or(Timestamp::MAX)))
    }

    /// The holders, the phase, and an AWS write of this moment.
    pub(super) fn record(&self, at: Timestamp) -> String {
        let holders = [Lease::K, Lease::M, Lease::C].map(|lease| {
            let mut held = self.tenures.iter().filter(|tenure| tenure.lease == lease);
            let holder = held.find(|tenure| tenure.contains(at));
            let name = holder.map_or("no process".to_owned(), |tenure| tenure.actor.label());
            let acts = holder.is_some_and(|tenure| self.acts_under_k(tenure));
            let form = if acts { ", which acts without M" } else { "" };
            format!("{lease} was held by {name}{form}")
        });

        let said = self.inputs.statement_at(at);
        let phase = said.and_then(|said| {
            Some(format!(
                "the phase was {} (generation {})",
                said.phase.as_ref()?,
                said.generation?
            ))
        });
        let write = self.writes(true).find(|call| call.at == at);
        let write = write.map(|call| format!("{} called {}", call.caller, call.action));
        holders
            .into_iter()
            .chain(phase)
            .chain(write)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn first_write(&self, from: Timestamp, of_all: bool) -> Option<Timestamp> {
        let later = self.writes(of_all).filter(|call| from < call.at);
        later.map(|call| call.at).min()
    }

    /// The AWS writes of the controllers that both managers have, by ours or by all.
    fn writes(&self, of_all: bool) -> impl Iterator<Item = &AwsCall> {
        let writes = self.inputs.writes();
        writes.filter(move |call| {
            let side = attribute::caller(call, self.inputs, self.rules).side;
            attribute::of_aws_call(call).is_some() && (side == Side::New || of_all && side == Side::Old)
        })
    }

    /// When our manager acquired M next, and no manager of ours had held it last.
    fn taken_over(&self, from: Timestamp) -> Option<Timestamp> {
        let of_m: Vec<_> = self.tenures.iter().filter(|tenure| tenure.lease == Lease::M).collect();
        let before = [None]
            .into_iter()
            .chain(of_m.iter().map(|tenure| Some(tenure.actor.side)));
        let mut taken = of_m.iter().zip(before);
        let first = taken.find(|(tenure, before)| {
            tenure.actor.side == Side::New && *before != Some(Side::New) && from < tenure.from
        });
        first.map(|(tenure, _)| tenure.from)
    }

    pub(super) fn held(&self, is: impl Fn(&Tenure) -> bool, end: impl Fn(&Tenure) -> Timestamp) -> Spans {
        let held = self.tenures.iter().filter(|tenure| is(tenure));
        Spans::of(held.map(|tenure| (tenure.from, end(tenure))))
    }

    /// When the lease shows such a holder.
    fn seen(&self, is: impl Fn(&Tenure) -> bool) -> Spans {
        let shown = self.held(&is, |tenure| tenure.until.max(recorded(tenure)));
        shown.or(&self.found(is))
    }

    /// When a manager of ours that has just started believes the record of such a holder.
    fn found(&self, is: impl Fn(&Tenure) -> bool) -> Spans {
        let believed = self.tenures.iter().filter(|tenure| is(tenure)).flat_map(|tenure| {
            let mut later = self.tenures.iter().filter(|next| next.lease == tenure.lease);
            let next = later.find(|next| tenure.until <= next.from && *next != tenure);
            let end = next.map_or(Timestamp::MAX, |next| next.from);
            let is_left = tenure.released.is_none() && tenure.emptied.is_none();
            let starts = self
                .starts()
                .filter(move |start| is_left && tenure.from < *start && *start < end);
            starts.map(move |start| (start, end.min(start + LEASE_DURATION)))
        });
        Spans::of(believed)
    }

    /// The starts of our managers.
    fn starts(&self) -> impl Iterator<Item = Timestamp> {
        let ours = self.inputs.processes.iter();
        let ours = ours.filter(|process| self.rules.side_of(&process.component) == Side::New);
        ours.map(|process| process.started)
    }

    pub(super) fn guards(&self, tenure: &Tenure) -> bool {
        governs(tenure, Controller::Service, self.inputs, self.rules)
    }

    pub(super) fn acts_under_k(&self, tenure: &Tenure) -> bool {
        tenure.lease == Lease::K && self.guards(tenure)
    }

    fn acting_without_m(&self) -> Spans {
        self.held(|tenure| self.acts_under_k(tenure), until)
            .or(&self.unlocked())
    }

    fn owned(&self, end: End) -> Spans {
        let held = self.held(|tenure| is_ours(tenure, Lease::M), end);
        held.and(&self.acting_without_m().not())
    }

    fn owned_by_old(&self, end: End) -> Spans {
        let owns = |tenure: &Tenure| tenure.actor.side == Side::Old && self.guards(tenure);
        self.held(owns, end).or(&self.found(owns))
    }

    /// When M has a holder that is not the leader of our managers at that time.
    fn held_by_other(&self) -> Spans {
        let of_m = self.tenures.iter().filter(|tenure| tenure.lease == Lease::M);
        let by_other = of_m.map(|tenure| {
            let leads = self.held(|main| is_ours(main, Lease::C) && main.holder == tenure.holder, until);
            self.seen(|other| other == tenure).and(&leads.not())
        });
        by_other.fold(Spans::of([]), |all, one| all.or(&one))
    }

    fn main_lease_changed(&self) -> Spans {
        let of_k = self.tenures.iter().filter(|tenure| tenure.lease == Lease::K);
        let changes = of_k.flat_map(|tenure| [tenure.from, tenure.until]);
        Spans::of(changes.chain(self.starts()).map(|at| (at, at + LEASE_DURATION)))
    }

    /// An offer begins when M is free, and again with each holder of K. A process that starts first waits until the record
    /// of M that it finds has expired.
    fn stepping_back(&self) -> Spans {
        let ours = self.held(|tenure| is_ours(tenure, Lease::M), Tenure::lease_ended);
        let Some((first, _)) = ours.iter().next() else {
            return ours;
        };
        let free = ours.iter().map(|(_, end)| (end, end + OFFER));
        let leaders = self.tenures.iter().filter(|tenure| tenure.lease == Lease::K);
        let leaders = leaders.map(|tenure| (tenure.from, tenure.from + OFFER));
        let starts = self.starts().map(|start| (start, start + LEASE_DURATION + OFFER));

        let others = self.held(
            |tenure| tenure.lease == Lease::M && tenure.actor.side != Side::New,
            until,
        );
        let offered = Spans::of(free.chain(leaders).chain(starts)).and(&others.not());
        let since = Spans::of([(first, Timestamp::MAX)]);
        let phases = self.phase("InTree").or(&self.phase("Prepare"));
        phases.and(&ours.or(&offered.and(&since)))
    }

    fn ready(&self, end: End) -> Spans {
        let prepare = self.phase("Prepare").and(&self.acting_without_m().not());
        let before = self.phase("InTree").or(&prepare).and(&self.owned_by_old(end));
        let later = self.phase("Migrate").or(&self.phase("Complete"));
        before.or(&later.and(&self.owned(end)))
    }

    /// When the spec had this phase.
    fn phase(&self, phase: &str) -> Spans {
        let said = &self.inputs.statements;
        let ends = said.iter().skip(1).map(|next| next.at).chain([self.inputs.until]);
        let of_phase = said
            .iter()
            .zip(ends)
            .filter(|(said, _)| said.phase.as_deref() == Some(phase));
        Spans::of(of_phase.map(|(said, end)| (said.at, end)))
    }

    fn in_tree(&self) -> Spans {
        self.running(|process| self.rules.is_in_tree(process))
    }

    fn unlocked(&self) -> Spans {
        self.running(|process| self.rules.is_unlocked(process))
    }

    fn running(&self, is: impl Fn(&ProcessSpan) -> bool) -> Spans {
        let running = self.inputs.processes.iter().filter(|process| is(process));
        Spans::of(running.map(|process| (process.started, process.ended.unwrap_or(self.inputs.until))))
    }
}

fn is_ours(tenure: &Tenure, lease: Lease) -> bool {
    tenure.lease == lease && tenure.actor.side == Side::New
}

fn until(tenure: &Tenure) -> Timestamp {
    tenure.until
}

/// Until when the record of the lease counts. One that was deleted or edited counts until it would have expired.
fn recorded(tenure: &Tenure) -> Timestamp {
    match tenure.released.or(tenure.emptied) {
        Some(free) => free,
        None => tenure.expires,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Condition, Statement};
    use crate::rules::Component;
    use crate::samples::{at, call, process, tenure};
    use crate::status_record::contradictions;

    const CPM: &str = "ControlPlaneMigrated";
    const KCM: &str = "kube-controller-manager";
    const END: i64 = 1000;

    /// A run with a process of each form. Ours leads all the time, in this phase.
    struct Run {
        tenures: Vec<Tenure>,
        inputs: Inputs,
    }

    impl Run {
        fn new(phase: &str, tenures: &[Tenure]) -> Self {
            let inputs = Inputs {
                processes: vec![
                    process("ours", "outrigger-manager", &["--migration=prod"], 0, None),
                    process("original", KCM, &["--cloud-provider=aws"], 0, None),
                    process(
                        "guarded",
                        KCM,
                        &["--cloud-provider=aws", "--enable-leader-migration"],
                        0,
                        None,
                    ),
                    process("external", KCM, &["--cloud-provider=external"], 0, None),
                ],
                statements: vec![spec(phase, 0)],
                until: at(END),
                ..Inputs::default()
            };
            let mut tenures = [vec![tenure(Lease::C, "ours", Side::New, (0, END))], tenures.to_vec()].concat();
            tenures.sort_by_key(|tenure| tenure.from);
            Self { tenures, inputs }
        }

        /// Whether a condition is false that is written at one second and replaced at another.
        fn is_false(&self, condition: [&str; 3], written: i64, replaced: i64) -> bool {
            let [kind, status, reason] = condition.map(str::to_owned);
            let message = String::new();
            let condition = Condition {
                kind,
                status,
                reason,
                message,
            };
            let mut inputs = self.inputs.clone();
            let mut times = vec![at(written), at(replaced)];
            times.extend(inputs.statements.iter().map(|said| said.at));
            times.sort();
            times.dedup();
            let said = times.into_iter().map(|time| Statement {
                at: time,
                conditions: match at(written) <= time && time < at(replaced) {
                    true => vec![condition.clone()],
                    false => Vec::new(),
                },
                ..self.inputs.statement_at(time).cloned().unwrap_or_default()
            });
            inputs.statements = said.collect();
            let rules = Rules::new(Component::outrigger_manager());
            !contradictions(&self.tenures, &inputs, &rules).is_empty()
        }

        /// Checks the first and last seconds at which the condition may be written.
        fn may_be_written(&self, condition: [&str; 3], from: i64, until: i64) {
            for (second, expected) in [(from - 1, true), (from, false), (until, false), (until + 1, true)] {
                assert_eq!(
                    self.is_false(condition, second, second + 1),
                    expected,
                    "{condition:?} at {second}"
                );
            }
        }

        /// Checks the last second at which the condition may be replaced.
        fn may_stay(&self, condition: [&str; 3], written: i64, until: i64) {
            for (second, expected) in [(until, false), (until + 1, true)] {
                assert_eq!(
                    self.is_false(condition, written, second),
                    expected,
                    "{condition:?} until {second}"
                );
            }
        }
    }

    fn spec(phase: &str, second: i64) -> Statement {
        Statement {
            at: at(second),
            phase: Some(phase.into()),
            ..Statement::default()
        }
    }

    fn old(lease: Lease, name: &str, times: (i64, i64)) -> Tenure {
        tenure(lease, name, Side::Old, times)
    }

    fn ours(times: (i64, i64)) -> Tenure {
        tenure(Lease::M, "ours", Side::New, times)
    }

    fn write(second: i64, caller: &str) -> AwsCall {
        AwsCall {
            at: at(second),
            caller: caller.into(),
            is_write: true,
            ..call("ec2", "CreateRoute", &[])
        }
    }

    /// Our manager holds M from 100 s to 200 s; an external one leads.
    fn owned() -> Run {
        let leads = old(Lease::K, "external", (0, END));
        Run::new("Migrate", &[leads, ours((100, 200))])
    }

    #[test]
    fn ours_owns_while_it_holds_m() {
        for condition in [
            [CPM, "True", "Migrated"],
            [CPM, "False", "NodeIpamConflict"],
            [CPM, "False", "LeaderMigrationLeftOn"],
            [CPM, "Unknown", "Undecided"],
            [CPM, "Unknown", "NotReadable"],
            ["Reconciling", "False", "Migrated"],
            ["Ready", "False", "InTreeLeft"],
        ] {
            owned().may_be_written(condition, 98, 202);
            owned().may_stay(condition, 150, 220);
        }
    }

    #[test]
    fn ours_does_not_own_beside_a_leader_that_acts_without_m() {
        let condition = [CPM, "True", "Migrated"];
        let leads = [
            old(Lease::K, "external", (0, 150)),
            old(Lease::K, "original", (150, END)),
        ];
        let run = Run::new("Migrate", &[leads.to_vec(), vec![ours((100, 400))]].concat());
        run.may_be_written(condition, 98, 152);
        run.may_stay(condition, 120, 170);

        let mut run = owned();
        let unlocked = ["--cloud-provider=aws", "--leader-elect=false"];
        run.inputs.processes.push(process("hidden", KCM, &unlocked, 130, None));
        run.may_be_written(condition, 98, 132);
    }

    #[test]
    fn an_old_manager_is_left_in_tree_while_one_runs() {
        let condition = [CPM, "False", "InTreeLeft"];
        let mut run = owned();
        run.may_be_written(condition, 98, 202);
        run.inputs.processes.retain(|process| process.process != "original");
        run.inputs.processes[1].ended = Some(at(150));
        run.may_be_written(condition, 98, 152);
        run.may_stay(condition, 120, 170);
        run.inputs.processes.retain(|process| process.process != "guarded");
        assert!(run.is_false(condition, 120, 121), "an external one is none");
    }

    #[test]
    fn the_old_manager_owns_while_it_holds_the_lease_of_its_form() {
        let condition = [CPM, "False", "OldManagerOwns"];
        for (lease, name) in [(Lease::K, "original"), (Lease::M, "guarded")] {
            let run = Run::new("InTree", &[old(lease, name, (100, 200))]);
            run.may_be_written(condition, 98, 202);
            run.may_stay(condition, 150, 220);
        }
        for (lease, name) in [(Lease::K, "guarded"), (Lease::K, "external"), (Lease::M, "external")] {
            let run = Run::new("InTree", &[old(lease, name, (100, 200))]);
            assert!(run.is_false(condition, 150, 151), "{name} with {lease}");
        }
        assert!(owned().is_false(condition, 150, 151));
    }

    #[test]
    fn a_manager_that_starts_believes_a_record_for_the_lease_duration() {
        let condition = [CPM, "False", "OldManagerOwns"];
        let left = old(Lease::K, "original", (100, 200));
        let mut run = Run::new("InTree", std::slice::from_ref(&left));
        run.inputs.processes[0].started = at(300);
        run.may_be_written(condition, 298, 317);

        let free = Tenure {
            released: Some(at(200)),
            ..left
        };
        run.tenures[1] = free.clone();
        assert!(run.is_false(condition, 305, 306), "released");
        run.tenures[1] = Tenure {
            released: None,
            emptied: Some(at(200)),
            ..free
        };
        assert!(run.is_false(condition, 305, 306), "emptied");
        run.tenures[1].emptied = None;
        run.tenures.push(old(Lease::K, "external", (310, END)));
        run.may_be_written(condition, 298, 312);
    }

    #[test]
    fn no_process_owns_while_none_holds_its_lease_or_writes() {
        let condition = [CPM, "False", "NoOwner"];
        let before = [old(Lease::K, "external", (0, END)), old(Lease::M, "guarded", (50, 100))];
        let mut run = Run::new("Prepare", &[before.to_vec(), vec![ours((200, 300))]].concat());
        run.may_be_written(condition, 98, 202);
        run.may_stay(condition, 150, 220);

        run.inputs.aws_calls = vec![write(152, "original"), write(153, "original"), write(160, "ours")];
        run.may_stay(condition, 150, 173);
        assert!(!run.is_false(condition, 153, 180), "a write at the same time");
        run.inputs.aws_calls = vec![
            write(160, "unknown"),
            AwsCall {
                is_write: false,
                ..write(160, "ours")
            },
        ];
        run.may_stay(condition, 150, 220);
    }

    #[test]
    fn nobody_holds_k_until_it_is_acquired_and_after_its_record_expired() {
        let condition = [CPM, "Unknown", "MainLeaseNotHeld"];
        let expired = Tenure {
            expires: at(115),
            ..old(Lease::K, "external", (0, 100))
        };
        let run = Run::new("Migrate", &[expired, old(Lease::K, "external", (200, END))]);
        run.may_be_written(condition, 113, 202);
        run.may_stay(condition, 150, 220);
    }

    #[test]
    fn another_process_holds_m_as_long_as_its_record_shows_it() {
        for reason in ["LeaseInUse", "LeaseHeldByOther", "HeldForNothing"] {
            let condition = [CPM, "False", reason];
            let ended = Tenure {
                expires: at(215),
                process_ended: Some(at(200)),
                ..old(Lease::M, "guarded", (100, 200))
            };
            let run = Run::new("Migrate", &[ended]);
            run.may_be_written(condition, 98, 217);
            run.may_stay(condition, 150, 235);
            assert!(owned().is_false(condition, 150, 151), "it leads");
        }

        // A predecessor of ours, and another program in its place.
        let mut run = owned();
        run.tenures[0].until = at(160);
        run.may_be_written([CPM, "False", "LeaseHeldByOther"], 158, 202);
        for tenure in &mut run.tenures {
            tenure.actor.side = Side::Old;
        }
        run.may_be_written([CPM, "False", "LeaseHeldByOther"], 98, 202);
    }

    #[test]
    fn an_alarm_is_about_a_leader_that_acts_without_m_and_releases_m() {
        let condition = [CPM, "False", "UnguardedControllerManager"];
        let leads = old(Lease::K, "original", (100, 200));
        let run = Run::new("Migrate", std::slice::from_ref(&leads));
        run.may_be_written(condition, 98, 202);
        run.may_stay(condition, 150, 220);
        for name in ["guarded", "external"] {
            let run = Run::new("Migrate", &[old(Lease::K, name, (100, 200))]);
            assert!(run.is_false(condition, 150, 151), "{name}");
        }

        let mut run = Run::new("Migrate", &[leads, ours((50, 199))]);
        run.may_stay(condition, 120, 140);
        run.tenures[1].until = at(110);
        run.may_stay(condition, 120, 220);
        run.inputs.aws_calls = vec![write(122, "ours"), write(130, "original"), write(140, "ours")];
        run.may_stay(condition, 120, 160);
    }

    #[test]
    fn a_deleted_record_of_k_counts_until_it_would_have_expired() {
        let deleted = Tenure {
            expires: at(215),
            ..old(Lease::K, "original", (100, 200))
        };
        let run = Run::new("Migrate", &[deleted]);
        run.may_be_written([CPM, "False", "UnguardedControllerManager"], 98, 217);
    }

    #[test]
    fn an_unlocked_manager_runs_and_m_is_released() {
        let condition = [CPM, "False", "UnlockedControllerManager"];
        let mut run = Run::new("Migrate", &[ours((50, 120))]);
        assert!(run.is_false(condition, 150, 151), "each elects a leader");
        let flags = ["--cloud-provider=aws", "--leader-elect=false"];
        run.inputs
            .processes
            .push(process("unlocked", KCM, &flags, 100, Some(200)));
        run.may_be_written(condition, 98, 202);
        run.may_stay(condition, 130, 220);
        run.tenures[1].until = at(300);
        run.may_stay(condition, 110, 130);
    }

    #[test]
    fn a_leader_that_is_not_proven_holds_k_and_m_is_released() {
        let condition = [CPM, "False", "LeaderNotProven"];
        let mut run = Run::new("Migrate", &[old(Lease::K, "external", (100, 200)), ours((50, 120))]);
        run.may_be_written(condition, 98, 202);
        run.may_stay(condition, 110, 220);
        run.tenures[1].until = at(300);
        run.may_stay(condition, 110, 130);
        run.tenures[1].until = at(50);
        run.inputs.aws_calls = vec![write(140, "ours")];
        run.may_stay(condition, 110, 160);
    }

    #[test]
    fn a_new_leader_is_new_for_the_lease_duration() {
        for condition in [[CPM, "Unknown", "Listing"], [CPM, "False", "NewLeader"]] {
            let mut run = Run::new("Migrate", &[old(Lease::K, "external", (100, END))]);
            run.may_be_written(condition, 98, 117);
            run.may_stay(condition, 110, 135);
            run.inputs.aws_calls = vec![write(113, "ours")];
            run.may_stay(condition, 110, 133);

            let ended = Run::new("Migrate", &[old(Lease::K, "external", (50, 100))]);
            ended.may_be_written(condition, 48, 67);
            assert!(!ended.is_false(condition, 117, 118), "the record was deleted");
            run.inputs.processes[0].started = at(500);
            run.may_be_written(condition, 98, 117);
            assert!(!run.is_false(condition, 517, 518) && run.is_false(condition, 518, 519));
        }
    }

    #[test]
    fn ours_steps_back_while_it_holds_or_offers_m_before_migrate() {
        let condition = [CPM, "False", "SteppingBack"];
        let leads = old(Lease::K, "guarded", (0, END));
        let run = Run::new("Prepare", &[leads.clone(), ours((100, 200))]);
        run.may_be_written(condition, 98, 212);
        run.may_stay(condition, 150, 230);

        let taken = [leads.clone(), ours((100, 200)), old(Lease::M, "guarded", (204, END))];
        Run::new("Prepare", &taken).may_be_written(condition, 98, 206);
        let mut restarted = Run::new("Prepare", &[leads.clone(), ours((100, 200))]);
        restarted
            .inputs
            .processes
            .push(process("next", "outrigger-manager", &[], 210, None));
        restarted.may_be_written(condition, 98, 237);
        let next = [
            old(Lease::K, "guarded", (0, 205)),
            old(Lease::K, "external", (205, END)),
            ours((100, 200)),
        ];
        Run::new("Prepare", &next).may_be_written(condition, 98, 217);

        let mut stepped = Run::new("Migrate", &[leads.clone(), ours((100, 400))]);
        stepped
            .inputs
            .statements
            .extend([spec("InTree", 200), spec("Migrate", 300)]);
        stepped.may_be_written(condition, 198, 302);
        stepped.may_stay(condition, 250, 320);
        assert!(
            Run::new("Prepare", &[leads]).is_false(condition, 5, 6),
            "ours never held M"
        );
    }

    #[test]
    fn nobody_leads_while_no_manager_of_ours_holds_c() {
        for condition in [
            [CPM, "Unknown", "NotLed"],
            ["PhaseFollowed", "Unknown", "NotLed"],
            ["Ready", "Unknown", "NotLed"],
            ["Completed", "Unknown", "NotLed"],
        ] {
            let mut run = Run::new("Migrate", &[]);
            run.tenures = vec![
                tenure(Lease::C, "ours", Side::New, (0, 100)),
                tenure(Lease::C, "incumbent", Side::Old, (110, 150)),
                tenure(Lease::C, "ours", Side::New, (200, END)),
            ];
            run.may_be_written(condition, 98, 202);
            run.may_stay(condition, 150, 220);
        }
    }

    #[test]
    fn m_is_free_while_no_record_shows_a_holder() {
        let condition = [CPM, "False", "Acquiring"];
        let expired = Tenure {
            expires: at(115),
            ..old(Lease::M, "guarded", (0, 100))
        };
        let run = Run::new("Migrate", &[expired, ours((200, END))]);
        run.may_be_written(condition, 113, 202);
        run.may_stay(condition, 150, 220);
    }

    #[test]
    fn m_is_not_ours_until_ours_acquires_it() {
        for reason in [
            "EvidenceMissing",
            "StoringEvidence",
            "LeaseRequestFailed",
            "MigrationUnreadable",
        ] {
            let condition = [CPM, "False", reason];
            let run = Run::new(
                "Migrate",
                &[ours((0, 100)), old(Lease::M, "guarded", (110, 150)), ours((200, END))],
            );
            run.may_be_written(condition, 98, 202);
            run.may_stay(condition, 150, 220);
        }
    }

    #[test]
    fn evidence_is_missing_until_ours_takes_over_from_the_old_manager() {
        for condition in [
            ["Prepared", "False", "EvidenceMissing"],
            ["Stalled", "True", "EvidenceMissing"],
        ] {
            let taken = [old(Lease::M, "guarded", (0, 90)), ours((100, 200))];
            Run::new("Migrate", &taken).may_stay(condition, 50, 120);
            Run::new("Migrate", &taken[1..]).may_stay(condition, 50, 120);
            assert!(
                !Run::new("Migrate", &taken).is_false(condition, 100, END),
                "written later"
            );

            // A standby without leader migration blocks the next step, and no restart of ours.
            let again = [ours((0, 90)), ours((100, 200))];
            assert!(!Run::new("Migrate", &again).is_false(condition, 50, END));
        }
    }

    #[test]
    fn nothing_is_written_before_the_sources_are_read() {
        let condition = [CPM, "Unknown", "NotReadYet"];
        let mut run = owned();
        assert!(!run.is_false(condition, 50, END));
        run.inputs.aws_calls = vec![write(52, "ours"), write(60, "original"), write(153, "ours")];
        run.may_stay(condition, 50, 173);
        run.inputs.aws_calls = vec![AwsCall {
            is_write: false,
            ..write(153, "ours")
        }];
        assert!(!run.is_false(condition, 50, END), "a read");
        let tag = call("ec2", "CreateTags", &[("ResourceId.1", "i-1")]);
        run.inputs.aws_calls = vec![AwsCall {
            is_write: true,
            caller: "ours".into(),
            at: at(153),
            ..tag
        }];
        assert!(!run.is_false(condition, 50, END), "of a controller under C");
    }

    #[test]
    fn prepared_is_false_beside_a_leader_that_acts_without_m() {
        let condition = ["Prepared", "True", "EvidenceLatched"];
        let leads = [
            old(Lease::K, "guarded", (0, 100)),
            old(Lease::K, "original", (100, 200)),
        ];
        let run = Run::new("Prepare", &leads);
        run.may_stay(condition, 50, 120);
        for (second, expected) in [(102, false), (103, true), (197, true), (198, false)] {
            assert_eq!(run.is_false(condition, second, second + 1), expected, "{second}");
        }
    }

    #[test]
    fn the_migration_is_complete_in_that_phase_and_while_ours_owns() {
        let condition = ["Completed", "True", "Completed"];
        let mut run = owned();
        assert!(run.is_false(condition, 150, 151), "Migrate");
        run.inputs.statements.push(spec("Complete", 150));
        run.may_be_written(condition, 148, 202);
        run.inputs.statements.push(spec("Migrate", 170));
        run.may_be_written(condition, 148, 172);
        run.may_stay(condition, 160, 190);
    }

    #[test]
    fn ready_is_the_owner_that_the_phase_requires() {
        let condition = ["Ready", "True", "Any"];
        let run = |phase, name, lease| Run::new(phase, &[old(lease, name, (100, 200)), ours((300, 400))]);
        run("InTree", "original", Lease::K).may_be_written(condition, 98, 202);
        run("InTree", "original", Lease::K).may_stay(condition, 150, 220);
        run("Prepare", "guarded", Lease::M).may_be_written(condition, 98, 202);
        assert!(
            run("Prepare", "original", Lease::K).is_false(condition, 150, 151),
            "not prepared"
        );
        for phase in ["Migrate", "Complete"] {
            run(phase, "guarded", Lease::M).may_be_written(condition, 298, 402);
            run(phase, "guarded", Lease::M).may_stay(condition, 350, 420);
        }
    }

    #[test]
    fn the_phase_in_tree_is_not_followed_while_ours_keeps_m() {
        let condition = ["PhaseFollowed", "True", "Any"];
        let mut run = owned();
        assert!(!run.is_false(condition, 0, END));
        run.inputs.statements.push(spec("InTree", 150));
        run.may_stay(condition, 50, 170);
        run.inputs.statements.push(spec("Prepare", 170));
        assert!(!run.is_false(condition, 0, END), "ours may hold M in Prepare");
        run.inputs.statements.pop();
        assert!(!run.is_false(["PhaseFollowed", "False", "Any"], 0, END));
    }

    #[test]
    fn a_condition_without_a_claim_is_false_and_one_without_a_record_is_not() {
        assert!(owned().is_false([CPM, "False", "Unheard"], 150, 151));
        assert!(owned().is_false([CPM, "False", "Migrated"], 150, 151));
        assert!(owned().is_false([CPM, "True", "InTreeLeft"], 150, 151));
        assert!(owned().is_false(["Unheard", "True", "Migrated"], 150, 151));
        assert!(!owned().is_false(["NodesMigrated", "True", "Migrated"], 0, END));
    }

    #[test]
    fn the_record_names_the_holders_the_phase_and_the_write() {
        let mut run = owned();
        run.tenures[1] = old(Lease::K, "original", (0, END));
        run.inputs.statements[0].generation = Some(3);
        run.inputs.aws_calls = vec![write(150, "ours")];
        let rules = Rules::new(Component::outrigger_manager());
        let records = Records {
            tenures: &run.tenures,
            inputs: &run.inputs,
            rules: &rules,
        };
        let holders = "K was held by original, which acts without M, M was held by ours, C was held by ours";
        let phase = "the phase was Migrate (generation 3)";
        assert_eq!(
            records.record(at(150)),
            format!("{holders}, {phase}, ours called CreateRoute")
        );
        let later = holders.replace("M was held by ours", "M was held by no process");
        assert_eq!(records.record(at(200)), format!("{later}, {phase}"));
    }
}
