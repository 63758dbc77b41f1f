//! The states, events and explorer of the model.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use outrigger_leader::evidence::{
    Configuration, ControllerManager, ControllerManagers, Facts, LeaseFacts, OwnSettings, Reading,
};
use outrigger_leader::gate::{self, Inputs, LatchChange, LeaseAction, MigrationSpec};
use outrigger_leader::latch::{Basis, Latch, Stored, VERSION};
use outrigger_shared::component;
use outrigger_shared::leader_migration::Placement;
pub use outrigger_shared::migration::Phase;

/// Ticks until a lease expires.
const LEASE: u8 = 3;
/// Ticks until the permit of a paused manager ends, and until client-go's elector gives up a lease that it lost.
const DEADLINE: u8 = 2;
/// Ticks of [`gate::YIELD`].
const YIELD: u8 = 2;
/// Ticks of [`gate::UNREADABLE`].
const UNREADABLE: u8 = 3;
/// Events of the operator after a start.
const OPERATIONS: u8 = 3;

/// The form of a kube-controller-manager's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    Original,
    Guarded,
    External,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Running,
    Stopped,
}

/// A kube-controller-manager. K belongs to the first running one that acquires it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Old {
    form: Form,
    life: Life,
    /// It believes that it holds M: ticks since its last renewal.
    believes: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Process {
    Manager(u8),
    Old(u8),
}

/// The record of lease M, and ticks since its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Record {
    Free,
    Held(Process),
    /// Deleted while that process held it.
    Deleted(Process),
}

/// The content of the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Latched {
    phase: Phase,
    held_by: Option<u8>,
    basis: Basis,
    /// Changes of the spec that no manager observed; 2 stands for more.
    behind: u8,
    /// It is of the object that exists now.
    of_object: bool,
    superseded: bool,
    /// It names K's present holder, or its last one while it has none. Each process has another identity.
    names_main: bool,
}

/// When K's holder changed, after the leader acquired M.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MainChange {
    None,
    Readable,
    /// Since the object is not readable.
    Unreadable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    record: Record,
    age: u8,
    /// The holder of K, and ticks since it changed.
    main: Option<u8>,
    main_age: u8,
    old: [Old; 2],
    /// The manager that holds C; none while none runs.
    leader: Option<u8>,
    /// The leader holds M.
    holding: bool,
    /// The leader has read neither the object nor the command lines since it started.
    unread: bool,
    /// A write of the leader has no answer: it does not release M, which then expires.
    unanswered: bool,
    main_change: MainChange,
    offer_again: bool,
    latch: Option<Latched>,
    pub phase: Phase,
    /// The object can be read.
    pub readable: bool,
    /// The command lines can be read.
    pub visible: bool,
    operations: u8,
    faults: u8,
}

/// Rules to leave out, and the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Events of the operator and faults together.
    pub events: u8,
    pub faults: u8,
    pub exact_names: bool,
    pub deleted_is_free: bool,
    pub phase_is_evidence: bool,
    pub stale_latch: bool,
    pub no_alarm: bool,
    pub evidence_only: bool,
    pub in_tree_at_once: bool,
    /// The holder of K counts as the recorded one.
    pub offered_to_all: bool,
    /// While the object cannot be read, every new holder of K counts, at once.
    pub unreadable_at_once: bool,
    /// The evidence counts while it lasts, and is not recorded.
    pub no_latch: bool,
    /// A source that was not read yet counts as not readable.
    pub unread_is_unreadable: bool,
    /// M counts as offered when [`gate::YIELD`] is over since its holder ended, also before it expires.
    pub yield_before_expiry: bool,
    /// A manager that starts reads its sources later, and writes may have no answer. Rules to which neither matters are
    /// explored without.
    pub late: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            events: 4,
            faults: 2,
            exact_names: false,
            deleted_is_free: false,
            phase_is_evidence: false,
            stale_latch: false,
            no_alarm: false,
            evidence_only: false,
            in_tree_at_once: false,
            offered_to_all: false,
            unreadable_at_once: false,
            no_latch: false,
            unread_is_unreadable: false,
            yield_before_expiry: false,
            late: false,
        }
    }
}

/// The parts of a decision that the model follows.
struct Answer {
    why: Option<&'static str>,
    competes: bool,
    latch: LatchChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Tick,
    /// A kube-controller-manager acquires K.
    AcquireMain(u8),
    /// A process acquires M.
    Acquire(Process),
    /// The holder of a deleted lease writes it again.
    Recreate,
    /// A manager acquires C.
    Lead(u8),
    /// The manager that started has read each source.
    Read,
    /// The backoff of the last offer is over.
    Backoff,
    // Of the operator.
    SetPhase(Phase),
    Roll(u8, Form),
    Recreated(Phase),
    // Faults.
    Crash,
    StopOld(u8),
    StartOld(u8),
    DeleteLease,
    DeleteLatch,
    HideObject(bool),
    HideCommandLines(bool),
    Unanswered,
}

impl Event {
    /// It happens without an operator and without a fault.
    pub fn is_progress(self) -> bool {
        matches!(
            self,
            Self::Tick
                | Self::AcquireMain(_)
                | Self::Acquire(_)
                | Self::Recreate
                | Self::Lead(_)
                | Self::Read
                | Self::Backoff
        )
    }
}

impl State {
    /// Every phase after the operator has done what belongs to it.
    fn starts() -> [Self; 4] {
        let held = Some(0);
        [
            Self::settled(Phase::InTree, Form::Original, None),
            Self::settled(Phase::Prepare, Form::Guarded, None),
            Self::settled(Phase::Migrate, Form::External, held),
            Self::settled(Phase::Complete, Form::External, held),
        ]
    }

    fn settled(phase: Phase, form: Form, held_by: Option<u8>) -> Self {
        let old = Old {
            form,
            life: Life::Running,
            believes: None,
        };
        Self {
            record: Record::Free,
            age: LEASE,
            main: Some(0),
            main_age: YIELD,
            old: [old; 2],
            leader: Some(0),
            holding: false,
            unread: false,
            unanswered: false,
            main_change: MainChange::None,
            offer_again: false,
            latch: held_by.is_some().then_some(Latched {
                phase,
                held_by,
                basis: Basis::LeaderMigration,
                behind: 0,
                of_object: true,
                superseded: false,
                names_main: true,
            }),
            phase,
            readable: true,
            visible: true,
            operations: 0,
            faults: 0,
        }
    }

    pub fn running_forms(&self) -> Vec<Form> {
        let running = self.old.iter().filter(|old| old.life == Life::Running);
        running.map(|old| old.form).collect()
    }

    /// Every command line can be read, and is external.
    pub fn all_seen_external(&self) -> bool {
        let forms = self.running_forms();
        self.visible && !forms.is_empty() && forms.iter().all(|form| *form == Form::External)
    }

    /// Nobody else than our manager would own the controllers.
    pub fn only_the_manager_owns(&self) -> bool {
        self.readable && self.manager_acts() && self.all_seen_external()
    }

    fn manager_acts(&self) -> bool {
        self.leader.is_some() && self.holding
    }

    fn old_acts(&self, index: u8, rules: Rules) -> bool {
        let old = self.old[usize::from(index)];
        let leads = self.main == Some(index);
        let by_main = old.form == Form::Original || rules.exact_names && old.form == Form::Guarded;
        old.life == Life::Running && (by_main && leads || old.form == Form::Guarded && old.believes.is_some())
    }

    fn owners(&self, rules: Rules) -> usize {
        let old = (0..2).filter(|index| self.old_acts(*index, rules)).count();
        old + usize::from(self.manager_acts())
    }

    pub fn has_two_owners(&self, rules: &Rules) -> bool {
        self.manager_acts() && self.owners(*rules) > 1
    }

    pub fn has_one_owner(&self) -> bool {
        self.owners(Rules::default()) == 1
    }

    pub fn old_manager_owns_by_lease(&self) -> bool {
        self.old.iter().any(|old| old.believes.is_some())
    }

    /// The holder of K has leader migration on and was not offered M, in a step back, or while the object cannot be read.
    pub fn is_offer_due(&self) -> bool {
        let is_guarded = |index: u8| self.old[usize::from(index)].form == Form::Guarded;
        let is_recorded = self.latch.is_some_and(|latch| latch.names_main);
        let may_be_a_step_back = match self.readable {
            true => self.phase == Phase::Prepare,
            false => !is_recorded,
        };
        may_be_a_step_back && self.main.is_some_and(is_guarded) && !self.was_offered()
    }

    /// This process holds M, and K has a new holder as the steward counts it.
    fn has_new_main_holder(&self, rules: &Rules) -> bool {
        let counts = match self.main_change {
            MainChange::None => false,
            MainChange::Readable => self.readable || rules.unreadable_at_once,
            MainChange::Unreadable => self.main_age >= UNREADABLE || rules.unreadable_at_once,
        };
        self.holding && counts
    }

    /// The leader released M although no operator did anything. Right only where neither the object nor the command lines
    /// show whether one did, and K has a new holder since then.
    pub fn released_without_operator(&self, next: &Self) -> bool {
        let released = self.holding && !next.holding && next.leader == self.leader && next.record == Record::Free;
        let may_be_a_step_back = !next.readable
            && !next.visible
            && self.main_change == MainChange::Unreadable
            && next.main_age >= UNREADABLE;
        released && next.operations == 0 && !may_be_a_step_back
    }

    /// The leader released M in a step back, although the holder of K can be read and is external. In InTree it does not
    /// own the controllers any more.
    pub fn released_in_vain(&self, next: &Self) -> bool {
        let released = self.holding && !next.holding && next.leader == self.leader && next.record == Record::Free;
        let is_external = |index: u8| {
            let old = self.old[usize::from(index)];
            old.form == Form::External && old.life == Life::Running
        };
        let has_original = || next.running_forms().contains(&Form::Original);
        released
            && next.visible
            && next.main.is_some_and(is_external)
            && next.main == self.main
            && next.phase != Phase::InTree
            && !has_original()
    }

    /// M has been free, and K's holder the same, for [`gate::YIELD`].
    fn was_offered(&self) -> bool {
        self.free_for() >= YIELD && self.main_age >= YIELD
    }

    /// The same, as the leader counts it.
    fn has_yielded(&self, rules: &Rules) -> bool {
        let ended = rules.yield_before_expiry && self.is_left_to_expire();
        self.is_free(rules) && self.was_offered() || ended && self.age >= YIELD && self.main_age >= YIELD
    }

    /// The leader held M and did not release it.
    fn is_left_to_expire(&self) -> bool {
        self.leader.is_some() && !self.holding && self.record == Record::Held(self.own())
    }

    /// Ticks since M may be acquired by any process that waits for it.
    fn free_for(&self) -> u8 {
        match self.record {
            Record::Free => self.age,
            _ => self.age.saturating_sub(LEASE),
        }
    }

    /// Why nobody owns the controllers, as the condition says.
    pub fn waiting(&self, rules: &Rules) -> &'static str {
        let led = Self {
            leader: self.leader.or(Some(0)),
            unread: false,
            ..*self
        };
        led.react(rules).decide(rules).why.unwrap_or("Competing")
    }

    /// M may be acquired by a process that waits for its expiry.
    fn is_free(&self, rules: &Rules) -> bool {
        match self.record {
            Record::Free => true,
            Record::Held(_) => self.age >= LEASE,
            Record::Deleted(_) => self.age >= LEASE || rules.deleted_is_free,
        }
    }

    fn spec(&self, rules: &Rules, attested: bool) -> Reading<MigrationSpec> {
        match self.readable && !self.unread {
            true => Reading::Known(MigrationSpec {
                uid: "u".into(),
                generation: 10,
                phase: self.phase,
                attested_phase: attested.then_some(self.phase),
            }),
            false if self.unread && !rules.unread_is_unreadable => Reading::Pending,
            false => Reading::Unreadable("gone".into()),
        }
    }

    fn inputs(&self, rules: &Rules) -> Inputs {
        let identity = |process| match process {
            Process::Manager(index) => format!("manager-{index}_a"),
            Process::Old(index) => format!("old-{index}_a"),
        };
        let live = match self.record {
            Record::Held(process) if self.age < LEASE => Some(identity(process)),
            _ => None,
        };
        let stale = rules.stale_latch;
        let lease = |live_holder: Option<String>, idle| LeaseFacts {
            read: true,
            duration: live_holder.as_ref().map(|_| Duration::from_secs(15)),
            named_holder: live_holder.clone(),
            live_holder,
            idle,
            failure: None,
        };
        let attested = !self.visible && self.all_have_the_form();
        let main = LeaseFacts {
            named_holder: self.main_holder(),
            ..lease(
                self.main.map(|index| identity(Process::Old(index))),
                self.main.is_none(),
            )
        };
        let names_main = |latch: Latched| latch.names_main || rules.offered_to_all;

        Inputs {
            spec: self.spec(rules, attested),
            latch: self.latch.filter(|_| !rules.no_latch).map_or(Stored::Absent, |latch| {
                Stored::Latch(Latch {
                    version: VERSION,
                    uid: if latch.of_object { "u" } else { "v" }.into(),
                    generation: 10 - i64::from(if stale { 0 } else { latch.behind }),
                    phase: latch.phase,
                    basis: latch.basis,
                    held_by: latch.held_by.map(|index| identity(Process::Manager(index))),
                    held_since: None,
                    main_holder: self.main_holder().filter(|_| names_main(latch)),
                    superseded: latch.superseded,
                    other: BTreeMap::new(),
                })
            }),
            identity: identity(Process::Manager(self.leader.unwrap_or_default())),
            holding: self.holding,
            acquired: None,
            service_write: None,
            services_read: true,
            main_holder_changed: self.has_new_main_holder(rules),
            offer_again: self.holding && self.offer_again,
            yielded: self.has_yielded(rules),
            facts: Facts {
                controller_managers: self.command_lines(rules),
                main,
                migration: lease(live, self.is_free(rules)),
                attested_phase: (self.readable && !self.unread && attested).then_some(self.phase),
                own: OwnSettings {
                    routes: true,
                    node_ipam: Placement::NotHere,
                    renew_deadline: Duration::from_secs(10),
                },
            },
        }
    }

    /// The holder that K names. A process that ended stays in the record until another acquires the lease.
    fn main_holder(&self) -> Option<String> {
        let is_recorded = self.latch.is_some_and(|latch| latch.names_main);
        match self.main {
            Some(index) => Some(format!("old-{index}_a")),
            None => is_recorded.then(|| "gone_a".to_owned()),
        }
    }

    /// The operator attests the phase only where it is true.
    fn all_have_the_form(&self) -> bool {
        let form = match self.phase {
            Phase::InTree => Form::Original,
            Phase::Prepare => Form::Guarded,
            Phase::Migrate | Phase::Complete => Form::External,
        };
        self.old.iter().all(|old| old.form == form)
    }

    fn command_lines(&self, rules: &Rules) -> ControllerManagers {
        let line = |(index, old): (usize, &Old)| ControllerManager {
            object: format!("Pod kube-system/old-{index}"),
            host_names: vec![format!("old-{index}")],
            form: match old.form {
                Form::Original if rules.no_alarm && self.holding => component::Form::External {
                    leader_migration: false,
                },
                Form::Original => component::Form::InTree {
                    leader_migration: false,
                },
                Form::Guarded => component::Form::InTree { leader_migration: true },
                Form::External => component::Form::External {
                    leader_migration: false,
                },
            },
            configuration: Configuration::BuiltIn,
            routes: false,
            node_ipam: Placement::NotHere,
            disabled: Vec::new(),
            running: true,
            must_change: false,
        };
        let running = self.old.iter().enumerate().filter(|(_, old)| old.life == Life::Running);

        if self.unread && !rules.unread_is_unreadable {
            return ControllerManagers::default();
        }
        let visible = self.visible && !self.unread;

        ControllerManagers {
            read: true,
            seen: if visible {
                running.map(line).collect()
            } else {
                Vec::new()
            },
            unreadable: if visible { Vec::new() } else { vec!["forbidden".into()] },
        }
    }

    /// The state without what the decision does not depend on.
    fn as_seen(&self, rules: &Rules) -> Self {
        let age = match (self.is_free(rules), self.free_for() >= YIELD) {
            _ if rules.yield_before_expiry => self.age,
            (false, _) => 0,
            (true, false) if matches!(self.record, Record::Free) => 0,
            (true, false) => LEASE,
            (true, true) => LEASE + YIELD,
        };
        let believes = None;
        Self {
            age,
            main_age: match self.main_age {
                0..YIELD => 0,
                YIELD.. => self.main_age,
            },
            old: self.old.map(|old| Old { believes, ..old }),
            unanswered: false,
            operations: 0,
            faults: 0,
            ..*self
        }
    }

    /// The reason of the action, whether it is to compete, and the change of the latch.
    fn decide(&self, rules: &Rules) -> Rc<Answer> {
        // A decision is asked for several times for each event: those of the last rules are kept.
        thread_local!(static KNOWN: RefCell<(Rules, HashMap<State, Rc<Answer>>)> = RefCell::default());
        let seen = self.as_seen(rules);
        KNOWN.with_borrow_mut(|(of, known)| {
            if of != rules {
                (*of, *known) = (*rules, HashMap::new());
            }
            let answer = known.entry(seen).or_insert_with(|| Rc::new(self.decide_now(rules)));
            Rc::clone(answer)
        })
    }

    fn decide_now(&self, rules: &Rules) -> Answer {
        if rules.in_tree_at_once && self.readable && self.phase == Phase::InTree {
            return Answer {
                why: Some("OldManagerOwns"),
                competes: false,
                latch: LatchChange::Remove,
            };
        }

        let decision = gate::decide(&self.inputs(rules));
        Answer {
            why: decision.action.why().map(|why| why.reason),
            competes: decision.action == LeaseAction::Compete,
            latch: decision.latch,
        }
    }

    /// Whether the leader may compete for M, after the latch is stored.
    fn competes(&self, rules: &Rules) -> bool {
        if rules.phase_is_evidence && self.readable && self.phase >= Phase::Migrate {
            return true;
        }
        let answer = self.decide(rules);
        answer.competes || rules.no_latch && answer.why == Some(gate::reason::STORING_EVIDENCE)
    }

    /// The leader's immediate actions: store the latch, and release M.
    fn react(mut self, rules: &Rules) -> Self {
        for _ in 0..4 {
            let before = self;
            if self.leader.is_none() {
                return self;
            }
            if self.holding && self.record != Record::Held(self.own()) && !matches!(self.record, Record::Deleted(_)) {
                // Another process has acquired it: the permit is revoked and the process ends.
                return self.ended();
            }

            self.store(&self.decide(rules).latch, rules);
            if self.holding && !self.competes(rules) {
                (self.holding, self.main_change, self.offer_again) = (false, MainChange::None, false);
                self.age = 0;
                if !std::mem::take(&mut self.unanswered) {
                    self.record = Record::Free;
                }
            }
            if self == before {
                break;
            }
        }

        self
    }

    /// The process of the leader has ended.
    fn ended(self) -> Self {
        Self {
            leader: None,
            holding: false,
            unread: false,
            unanswered: false,
            ..self
        }
    }

    fn own(&self) -> Process {
        Process::Manager(self.leader.unwrap_or_default())
    }

    fn store(&mut self, change: &LatchChange, rules: &Rules) {
        match change {
            LatchChange::Keep => {}
            LatchChange::Remove => self.latch = None,
            LatchChange::Store(latch) if rules.evidence_only && latch.basis == Basis::External => {}
            LatchChange::Store(latch) => {
                let index = |text: &str| u8::from(text.starts_with("manager-1"));
                let main = self.main_holder();
                self.latch = Some(Latched {
                    phase: latch.phase,
                    held_by: latch.held_by.as_deref().map(index),
                    basis: latch.basis,
                    behind: match latch.superseded {
                        true => self.latch.map_or(0, |latch| latch.behind),
                        false => 0,
                    },
                    of_object: latch.uid == "u",
                    superseded: latch.superseded,
                    names_main: main.is_some() && latch.main_holder == main,
                });
            }
        }
    }

    /// Every event that is possible now, with the state after it.
    fn next(&self, rules: &Rules) -> Vec<(Event, Self)> {
        let mut events = vec![Event::Tick, Event::Recreate, Event::Backoff, Event::Read];
        for index in 0..2 {
            events.extend([
                Event::AcquireMain(index),
                Event::Acquire(Process::Old(index)),
                Event::Acquire(Process::Manager(index)),
                Event::Lead(index),
                Event::StopOld(index),
                Event::StartOld(index),
            ]);
            let forms = [Form::Original, Form::Guarded, Form::External];
            events.extend(forms.map(|form| Event::Roll(index, form)));
        }
        let phases = [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete];
        events.extend(phases.map(Event::SetPhase));
        events.extend(phases.map(Event::Recreated));
        events.extend([Event::Crash, Event::DeleteLease, Event::DeleteLatch, Event::Unanswered]);
        events.extend([true, false].map(Event::HideObject));
        events.extend([true, false].map(Event::HideCommandLines));

        let possible = events
            .into_iter()
            .filter_map(|event| Some((event, self.after(event, rules)?)));
        let reacted = possible.map(|(event, state)| (event, state.react(rules)));
        reacted.filter(|(_, state)| state != self).collect()
    }

    /// The state after the event; none if it is not possible.
    fn after(&self, event: Event, rules: &Rules) -> Option<Self> {
        let mut next = *self;
        match event {
            Event::SetPhase(_) | Event::Roll(..) | Event::Recreated(_) => next.operate(event, rules)?,
            event if event.is_progress() => next.progress(event, rules)?,
            _ => next.fail(event, rules)?,
        }

        Some(next)
    }

    /// An event that needs neither an operator nor a fault.
    fn progress(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::Tick => self.tick(),
            Event::AcquireMain(index) => {
                let candidate = self.old[usize::from(index)];
                (self.main.is_none() && candidate.life == Life::Running).then_some(())?;
                (self.main, self.main_age) = (Some(index), 0);
                self.main_change = match (self.holding, self.readable) {
                    (false, _) => MainChange::None,
                    (true, true) => MainChange::Readable,
                    (true, false) => MainChange::Unreadable,
                };
                if let Some(latch) = &mut self.latch {
                    latch.names_main = false;
                }
            }
            Event::Acquire(Process::Old(index)) => {
                let candidate = self.old[usize::from(index)];
                let competes = candidate.form == Form::Guarded && candidate.life == Life::Running;
                // client-go creates a lease that it does not find.
                let is_free = self.is_free(rules) || matches!(self.record, Record::Deleted(_));
                (competes && self.main == Some(index) && candidate.believes.is_none() && is_free).then_some(())?;
                self.old[usize::from(index)].believes = Some(0);
                (self.record, self.age) = (Record::Held(Process::Old(index)), 0);
            }
            Event::Acquire(process @ Process::Manager(index)) => {
                let is_free = self.is_free(rules) || rules.yield_before_expiry && self.is_left_to_expire();
                let may = self.leader == Some(index) && !self.holding && is_free;
                (may && self.competes(rules)).then_some(())?;
                (self.holding, self.main_change, self.offer_again) = (true, MainChange::None, false);
                (self.record, self.age) = (Record::Held(process), 0);
            }
            Event::Recreate => {
                let Record::Deleted(process) = self.record else {
                    return None;
                };
                let lives = match process {
                    Process::Manager(index) => self.leader == Some(index) && self.holding,
                    Process::Old(index) => self.old[usize::from(index)].believes.is_some(),
                };
                lives.then_some(())?;
                (self.record, self.age) = (Record::Held(process), 0);
            }
            Event::Lead(index) => {
                self.leader.is_none().then_some(())?;
                (self.leader, self.holding, self.unread) = (Some(index), false, rules.late);
            }
            Event::Read => {
                self.unread.then_some(())?;
                self.unread = false;
            }
            Event::Backoff => {
                (self.holding && self.phase == Phase::Prepare).then_some(())?;
                self.offer_again = true;
            }
            _ => return None,
        }

        Some(())
    }

    /// An event of the operator.
    fn operate(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::SetPhase(phase) => {
                (self.phase != phase && self.phase.may_become(phase)).then_some(())?;
                self.phase = phase;
                self.object_changed(rules.events)?;
            }
            Event::Roll(index, form) => self.roll(index, form, rules.events)?,
            Event::Recreated(phase) => {
                // An operator with command lines that nobody can read creates it at the phase that they are for.
                self.phase = phase;
                (self.visible || self.all_have_the_form()).then_some(())?;
                if let Some(latch) = &mut self.latch {
                    latch.of_object = false;
                }
                self.object_changed(rules.events)?;
            }
            _ => return None,
        }

        Some(())
    }

    fn fail(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::Crash => {
                self.leader?;
                *self = self.ended();
                self.fault(rules)?;
            }
            Event::Unanswered => {
                (rules.late && self.holding && !self.unanswered).then_some(())?;
                self.unanswered = true;
                self.fault(rules)?;
            }
            Event::StopOld(index) | Event::StartOld(index) => {
                let life = match event {
                    Event::StopOld(_) => Life::Stopped,
                    _ => Life::Running,
                };
                let old = &mut self.old[usize::from(index)];
                (old.life != life).then_some(())?;
                (old.life, old.believes) = (life, None);
                self.fault(rules)?;
            }
            Event::DeleteLease => {
                let Record::Held(process) = self.record else {
                    return None;
                };
                self.record = Record::Deleted(process);
                self.fault(rules)?;
            }
            Event::DeleteLatch => {
                self.latch.take()?;
                self.fault(rules)?;
            }
            Event::HideObject(hide) => {
                (self.readable == hide).then_some(())?;
                self.readable = !hide;
                if self.main_change == MainChange::Unreadable {
                    self.main_change = MainChange::Readable;
                }
                self.main_age = self.main_age.min(YIELD);
                self.fault(rules)?;
            }
            Event::HideCommandLines(hide) => {
                // A manager without the form of the phase is not hidden: nobody would attest it.
                (self.visible == hide && (!hide || self.all_have_the_form())).then_some(())?;
                self.visible = !hide;
                self.fault(rules)?;
            }
            _ => return None,
        }

        Some(())
    }

    fn operation(&mut self, events: u8) -> Option<()> {
        self.operations += 1;
        (self.operations <= OPERATIONS && self.operations + self.faults <= events).then_some(())
    }

    fn fault(&mut self, rules: &Rules) -> Option<()> {
        self.faults += 1;
        (self.faults <= rules.faults && self.operations + self.faults <= rules.events).then_some(())
    }

    fn object_changed(&mut self, events: u8) -> Option<()> {
        if let Some(latch) = &mut self.latch {
            latch.behind = (latch.behind + 1).min(2);
        }
        self.operation(events)
    }

    /// The operator replaces a command line and restarts the process. Where nobody can read it, and outside of what the
    /// phase is for, only a careful operator is safe: Migrate's form while Prepared, the original one in InTree.
    fn roll(&mut self, index: u8, form: Form, events: u8) -> Option<()> {
        let old = &mut self.old[usize::from(index)];
        (old.form != form).then_some(())?;
        let is_phases = match form {
            Form::Original => self.phase == Phase::InTree,
            Form::Guarded => self.phase == Phase::Prepare,
            Form::External => self.phase >= Phase::Migrate,
        };
        (self.visible || is_phases).then_some(())?;
        (old.form, old.believes) = (form, None);
        if self.main == Some(index) {
            (self.main, self.main_age) = (None, 0);
        }
        self.operation(events)
    }

    fn tick(&mut self) {
        let holder_renews = match self.record {
            Record::Held(Process::Manager(index)) => self.leader == Some(index) && self.holding,
            Record::Held(Process::Old(index)) => self.old[usize::from(index)].believes.is_some(),
            Record::Free | Record::Deleted(_) => false,
        };
        self.age = if holder_renews {
            0
        } else {
            (self.age + 1).min(LEASE + YIELD)
        };
        let longest = match self.main_change {
            MainChange::Unreadable => UNREADABLE,
            MainChange::None | MainChange::Readable => YIELD,
        };
        self.main_age = (self.main_age + 1).min(longest);

        for index in 0..2_u8 {
            let record = self.record;
            let old = &mut self.old[usize::from(index)];
            if old.life == Life::Stopped && self.main == Some(index) {
                (self.main, self.main_age) = (None, 0);
            }
            // It finds another record, or none, and tries until its deadline.
            old.believes = match old.believes {
                Some(_) if record == Record::Held(Process::Old(index)) => Some(0),
                Some(age) if age < DEADLINE => Some(age + 1),
                _ => None,
            };
        }
    }
}

/// The reachable states, and how each is reached.
pub struct Explored {
    pub rules: Rules,
    pub states: Vec<State>,
    edges: Vec<Vec<(Event, usize)>>,
    parents: Vec<Option<(Event, usize)>>,
}

/// Every reachable state.
pub fn explore(rules: Rules) -> Explored {
    explore_until(rules, |_, _| false)
}

/// Breadth first, so that the path to a state is a shortest one. Ends at the first state that `is`.
pub fn explore_until(rules: Rules, is: impl Fn(&State, &Rules) -> bool) -> Explored {
    let states = State::starts().map(|state| state.react(&rules)).to_vec();
    let mut known: HashMap<State, usize> = states.iter().copied().zip(0..).collect();
    let mut queue: VecDeque<usize> = (0..states.len()).collect();
    let mut explored = Explored {
        rules,
        edges: Vec::new(),
        parents: vec![None; states.len()],
        states,
    };

    while let Some(index) = queue.pop_front() {
        let mut edges = Vec::new();
        if is(&explored.states[index], &rules) {
            break;
        }
        for (event, next) in explored.states[index].next(&rules) {
            let number = *known.entry(next).or_insert_with(|| {
                explored.states.push(next);
                explored.parents.push(Some((event, index)));
                queue.push_back(explored.states.len() - 1);
                explored.states.len() - 1
            });
            edges.push((event, number));
        }
        explored.edges.push(edges);
    }

    explored
}

impl Explored {
    pub fn transitions(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    pub fn find(&self, is: impl Fn(&State, &Rules) -> bool) -> Option<usize> {
        self.states.iter().position(|state| is(state, &self.rules))
    }

    /// For each state, whether one that `is` can be reached by events that `may` happen.
    pub fn reaching(&self, is: impl Fn(&State) -> bool, may: impl Fn(Event) -> bool) -> Vec<bool> {
        let mut sources = vec![Vec::new(); self.states.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            for (_, to) in edges.iter().filter(|(event, _)| may(*event)) {
                sources[*to].push(from);
            }
        }

        let mut reached: Vec<bool> = self.states.iter().map(is).collect();
        let mut queue: VecDeque<usize> = (0..reached.len()).filter(|index| reached[*index]).collect();
        while let Some(to) = queue.pop_front() {
            for from in &sources[to] {
                if !std::mem::replace(&mut reached[*from], true) {
                    queue.push_back(*from);
                }
            }
        }

        reached
    }

    /// A change of the phase by which nobody owns the controllers any more, which our manager alone owned.
    pub fn phase_without_owner(&self) -> Option<usize> {
        let reached = self.reaching(State::has_one_owner, Event::is_progress);
        let owned = self.states.iter().zip(&self.edges);
        let changes = owned
            .filter(|(state, _)| state.only_the_manager_owns())
            .flat_map(|(_, edges)| edges);
        let lost = |(event, to): &&(Event, usize)| matches!(event, Event::SetPhase(_)) && !reached[*to];
        changes.copied().find(|change| lost(&change)).map(|(_, to)| to)
    }

    /// A crash of our manager by which nobody owns the controllers any more, which it owned.
    pub fn crash_without_owner(&self) -> Option<usize> {
        let reached = self.reaching(State::has_one_owner, Event::is_progress);
        let owned = self.states.iter().zip(&self.edges);
        let next = owned
            .filter(|(state, _)| state.manager_acts())
            .flat_map(|(_, edges)| edges);
        let lost = |(event, to): &&(Event, usize)| *event == Event::Crash && !reached[*to];
        next.copied().find(|edge| lost(&edge)).map(|(_, to)| to)
    }

    /// The state after an edge that `is`.
    pub fn find_edge(&self, is: impl Fn(&State, &State) -> bool) -> Option<usize> {
        let edges = self.states.iter().zip(&self.edges);
        let mut next = edges.flat_map(|(state, edges)| edges.iter().map(move |(_, to)| (state, *to)));
        next.find(|(state, to)| is(state, &self.states[*to])).map(|(_, to)| to)
    }

    /// A manager acquires M before it was offered to the old manager that waits for it.
    pub fn acquired_without_offer(&self) -> Option<usize> {
        let edges = self.states.iter().zip(&self.edges);
        let due = edges
            .filter(|(state, _)| state.is_offer_due())
            .flat_map(|(_, edges)| edges);
        let acquired = |(event, _): &&(Event, usize)| matches!(event, Event::Acquire(Process::Manager(_)));
        due.copied().find(|edge| acquired(&edge)).map(|(_, to)| to)
    }

    pub fn path_to(&self, mut index: usize) -> String {
        let mut lines = vec![format!("{:#?}", self.states[index])];
        while let Some((event, parent)) = self.parents[index] {
            lines.push(format!("{event:?}"));
            index = parent;
        }
        lines.reverse();
        lines.join("\n")
    }

    pub fn path_to_state(&self, state: &State) -> String {
        let index = self.states.iter().position(|other| other == state);
        index.map_or_else(String::new, |index| self.path_to(index))
    }
}
