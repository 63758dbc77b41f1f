//! The states, events and explorer of the model.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use outrigger_evidence::facts::{
    Basis, Configuration, ControllerManager, ControllerManagers, Facts, LeaseFacts, Lock, MainHolder, OwnSettings,
    Proven, Reading,
};
use outrigger_evidence::gate::{self, Inputs, LatchChange, LeaseAction, MigrationSpec};
use outrigger_evidence::latch::{Latch, Stored, VERSION};
use outrigger_evidence::why::Why;
use outrigger_shared::component;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::Attestation;
pub use outrigger_shared::migration::Phase;

/// Ticks until a lease expires.
const LEASE: u8 = 3;
/// Ticks until the permit of a paused manager or the fence ends, and until client-go's elector gives up a lease that it
/// lost.
const DEADLINE: u8 = 2;
/// Ticks of [`gate::YIELD`].
const YIELD: u8 = 2;
/// Events of the operator after a start.
const OPERATIONS: u8 = 3;
/// The most kube-controller-managers.
const OLDS: usize = 3;

/// The form of a kube-controller-manager's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    Original,
    Guarded,
    External,
}

/// A kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Old {
    form: Form,
    running: bool,
    /// It believes that it holds K, and M: ticks since its last renewal.
    leads: Option<u8>,
    owns: Option<u8>,
    /// How the leader of ours knows that this process needs M.
    proven: Option<Basis>,
}

/// The process of a holder of K.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Id {
    /// The one that runs now.
    Present(u8),
    /// A former one on the host, which has ended, and how it was proven.
    Ended(u8, Option<Basis>),
}

impl Id {
    fn index(self) -> u8 {
        match self {
            Self::Present(index) | Self::Ended(index, _) => index,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Process {
    Manager(u8),
    Old(u8),
    /// An old manager that has ended.
    Ended(u8),
}

/// The record of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Record<T> {
    Free,
    Held(T),
    /// Deleted while that process held it.
    Deleted(T),
}

impl<T: Copy> Record<T> {
    fn last(self) -> Option<T> {
        match self {
            Self::Free => None,
            Self::Held(holder) | Self::Deleted(holder) => Some(holder),
        }
    }
}

/// The content of the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Latched {
    phase: Phase,
    held_by: Option<u8>,
    /// It is of the object that exists now.
    of_object: bool,
    superseded: bool,
    led_before: Option<u8>,
    seen_unattested: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// M, and ticks since its last change.
    record: Record<Process>,
    age: u8,
    /// K, ticks since its last renewal, and since its holder changed.
    main: Record<Id>,
    main_age: u8,
    main_since: u8,
    /// The holders that lost K before their record expired, and ticks since their last renewal.
    former: [Option<(Id, u8)>; 2],
    /// The leader started after that.
    is_new: bool,
    /// The leader has not seen yet that K has another holder.
    unseen: Option<Id>,
    /// The kube-controller-managers were listed since the leader saw the holder of K.
    listed: bool,
    old: [Old; OLDS],
    /// The manager that holds C; none while none runs.
    leader: Option<u8>,
    /// The leader holds M.
    holding: bool,
    /// The leader has read neither the object nor the command lines since it started.
    unread: bool,
    /// A write of the leader has no answer: it does not release M, which then expires.
    unanswered: bool,
    /// The hosts that were offered M in this step back, as bits, and whether the last backoff is over.
    offers: u8,
    offer_again: bool,
    latch: Option<Latched>,
    pub phase: Phase,
    /// The phase of the attestation that the object has.
    attested: Option<Phase>,
    seen_unattested: bool,
    led_before: Option<u8>,
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
    /// How many kube-controller-managers there are.
    pub olds: u8,
    /// The last one is shown by no Pod.
    pub hidden: bool,
    /// A manager that starts reads its sources later, and writes may have no answer. Rules to which neither matters are
    /// explored without.
    pub late: bool,
    /// The leader sees a new holder of K later.
    pub lag: bool,
    pub exact_names: bool,
    pub deleted_is_free: bool,
    pub phase_is_evidence: bool,
    /// Any holder of K counts as proven.
    pub any_leader: bool,
    /// The permit ends with M alone.
    pub no_fence: bool,
    /// A holder of K that lost it early counts as ended.
    pub no_former: bool,
    pub in_tree_at_once: bool,
    /// The evidence counts while it lasts, and is not recorded.
    pub no_latch: bool,
    /// M counts as offered when [`gate::YIELD`] is over since its holder ended, also before it expires.
    pub yield_before_expiry: bool,
    /// An attestation of an earlier run counts.
    pub left_over_counts: bool,
    /// An attestation counts for a holder that led before the phase.
    pub led_before_counts: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            events: 3,
            faults: 2,
            olds: 2,
            hidden: false,
            late: false,
            lag: false,
            exact_names: false,
            deleted_is_free: false,
            phase_is_evidence: false,
            any_leader: false,
            no_fence: false,
            no_former: false,
            in_tree_at_once: false,
            no_latch: false,
            yield_before_expiry: false,
            left_over_counts: false,
            led_before_counts: false,
        }
    }
}

/// The parts of a decision that the model follows.
struct Answer {
    why: Option<&'static str>,
    competes: bool,
    pauses: bool,
    latch: LatchChange,
    proven: Option<Basis>,
    has_taker: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Tick,
    /// A kube-controller-manager acquires K.
    AcquireMain(u8),
    /// A process acquires M.
    Acquire(Process),
    /// The holder of a deleted lease writes it again: of M, and of K.
    Recreate,
    RecreateMain,
    /// The leader sees the holder of K.
    See,
    /// The leader has listed the kube-controller-managers.
    List,
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
    Attest(bool),
    // Faults.
    Crash,
    StopOld(u8),
    StartOld(u8),
    DeleteLease,
    DeleteMain,
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
                | Self::RecreateMain
                | Self::See
                | Self::List
                | Self::Lead(_)
                | Self::Read
                | Self::Backoff
        )
    }
}

impl State {
    /// Every phase after the operator has done what belongs to it.
    fn starts(rules: &Rules) -> Vec<Self> {
        let held = Some(0);
        let mut starts = vec![
            Self::settled(Phase::InTree, Form::Original, None, rules),
            Self::settled(Phase::Prepare, Form::Guarded, None, rules),
            Self::settled(Phase::Migrate, Form::External, held, rules),
            Self::settled(Phase::Complete, Form::External, held, rules),
        ];
        // Nobody rolled them, nobody can read them, and an attestation of an earlier run is left over.
        starts.push(Self {
            attested: Some(Phase::Migrate),
            visible: false,
            ..Self::settled(Phase::Prepare, Form::Original, None, rules)
        });
        // One that no Pod shows has its original flags in every phase.
        if rules.hidden {
            let last = usize::from(rules.olds) - 1;
            starts
                .iter_mut()
                .for_each(|start| start.old[last].form = Form::Original);
        }
        starts
    }

    fn settled(phase: Phase, form: Form, held_by: Option<u8>, rules: &Rules) -> Self {
        let old = |index: usize| Old {
            form,
            running: index < usize::from(rules.olds),
            leads: (index == 0).then_some(0),
            owns: None,
            proven: None,
        };
        Self {
            record: Record::Free,
            age: LEASE,
            main: Record::Held(Id::Present(0)),
            main_age: 0,
            main_since: YIELD,
            former: [None; 2],
            is_new: false,
            unseen: None,
            listed: true,
            old: std::array::from_fn(old),
            leader: Some(0),
            holding: false,
            unread: false,
            unanswered: false,
            offers: 0,
            offer_again: false,
            latch: held_by.is_some().then_some(Latched {
                phase,
                held_by,
                of_object: true,
                superseded: false,
                led_before: None,
                seen_unattested: true,
            }),
            phase,
            attested: None,
            seen_unattested: true,
            led_before: None,
            readable: true,
            visible: true,
            operations: 0,
            faults: 0,
        }
    }

    fn old(&self, index: u8) -> &Old {
        &self.old[usize::from(index)]
    }

    pub fn running_forms(&self) -> Vec<Form> {
        let running = self.old.iter().filter(|old| old.running);
        running.map(|old| old.form).collect()
    }

    /// Every command line can be read, and is external.
    pub fn all_seen_external(&self) -> bool {
        let forms = self.running_forms();
        self.visible && !forms.is_empty() && forms.iter().all(|form| *form == Form::External)
    }

    /// Nobody else than our manager would own the controllers.
    pub fn only_the_manager_owns(&self, rules: &Rules) -> bool {
        self.readable && self.manager_acts(rules) && self.all_seen_external()
    }

    /// The leader may write: it holds M, the decision permits it, and the fence has not ended.
    pub fn manager_acts(&self, rules: &Rules) -> bool {
        if self.leader.is_none() || !self.holding {
            return false;
        }
        let answer = self.decide(rules);
        let is_fenced = answer.has_taker && self.main_age >= DEADLINE && !rules.no_fence;
        !answer.pauses && !is_fenced
    }

    fn old_acts(&self, index: u8, rules: &Rules) -> bool {
        let old = self.old(index);
        let by_main = old.form == Form::Original || rules.exact_names && old.form == Form::Guarded;
        old.running && (by_main && old.leads.is_some() || old.form == Form::Guarded && old.owns.is_some())
    }

    fn other_owners(&self, rules: &Rules) -> usize {
        (0..rules.olds).filter(|index| self.old_acts(*index, rules)).count()
    }

    pub fn has_two_owners(&self, rules: &Rules) -> bool {
        self.manager_acts(rules) && self.other_owners(rules) > 0
    }

    pub fn has_one_owner(&self, rules: &Rules) -> bool {
        self.other_owners(rules) + usize::from(self.manager_acts(rules)) == 1
    }

    pub fn old_manager_owns_by_lease(&self) -> bool {
        self.old.iter().any(|old| old.owns.is_some())
    }

    /// The process that holds K runs, and its form.
    fn main_form(&self) -> Option<Form> {
        match self.main {
            Record::Held(Id::Present(index)) => Some(self.old(index).form),
            _ => None,
        }
    }

    /// The holder of K runs, and the leader knows no other one.
    fn is_main_settled(&self) -> bool {
        let runs = matches!(self.main, Record::Held(Id::Present(index)) if self.old(index).leads.is_some());
        runs && self.unseen.is_none() && self.former == [None; 2]
    }

    /// In a step back the holder of K has leader migration on and was not offered M.
    pub fn is_offer_due(&self) -> bool {
        let is_guarded = self.main_form() == Some(Form::Guarded);
        self.readable && self.phase == Phase::Prepare && is_guarded && !self.was_offered()
    }

    /// The leader released M, although the holder of K can be read and is external. In InTree it does not own the
    /// controllers any more.
    pub fn released_in_vain(&self, next: &Self) -> bool {
        let released = self.holding && !next.holding && next.leader == self.leader;
        let is_alone = next.main_form() == Some(Form::External) && next.main == self.main && next.former == [None; 2];
        released && self.visible && next.visible && is_alone && next.phase != Phase::InTree && next.listed
    }

    /// M has been free, and K's holder the same, for [`gate::YIELD`].
    fn was_offered(&self) -> bool {
        // A new candidate waits for the expiry of a record that was not released.
        let observes = match self.record {
            Record::Free => 0,
            Record::Held(_) | Record::Deleted(_) => LEASE,
        };
        self.free_for() >= YIELD && self.main_since >= YIELD + observes
    }

    /// The same, as the leader counts it.
    fn has_yielded(&self, rules: &Rules) -> bool {
        let ended = rules.yield_before_expiry && self.is_left_to_expire();
        self.is_free(rules) && self.was_offered() || ended && self.age >= YIELD && self.main_since >= YIELD
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
            listed: true,
            unseen: None,
            ..*self
        };
        let mut lasting = led.react(rules);
        for _ in 0..LEASE + YIELD {
            lasting.tick(rules);
            lasting = lasting.react(rules);
        }
        lasting.decide(rules).why.unwrap_or("Competing")
    }

    /// M may be acquired by a process that waits for its expiry.
    fn is_free(&self, rules: &Rules) -> bool {
        match self.record {
            Record::Free => true,
            Record::Held(_) => self.age >= LEASE,
            Record::Deleted(_) => self.age >= LEASE || rules.deleted_is_free,
        }
    }

    fn counts(&self, rules: &Rules) -> Option<Attestation> {
        let latched = self
            .latch
            .is_some_and(|latch| latch.of_object && latch.seen_unattested && run(latch.phase) == run(self.phase));
        let was_made = self.seen_unattested || latched || rules.left_over_counts;
        let of_run = self.attested.filter(|attested| run(*attested) == run(self.phase));
        of_run
            .filter(|_| was_made && self.readable && !self.unread)
            .map(attestation)
    }

    fn spec(&self) -> Reading<MigrationSpec> {
        match self.readable && !self.unread {
            true => Reading::Known(MigrationSpec {
                uid: "u".into(),
                generation: 10,
                phase: self.phase,
                attestation: self.attested.map(attestation),
                seen_unattested: self.seen_unattested,
            }),
            false if self.unread => Reading::Pending,
            false => Reading::Unreadable("gone".into()),
        }
    }

    /// The holder of K that the leader knows.
    fn seen_main(&self) -> Record<Id> {
        self.unseen.map_or(self.main, Record::Held)
    }

    fn inputs(&self, rules: &Rules) -> Inputs {
        let lease = |live_holder: Option<String>, idle| LeaseFacts {
            read: true,
            duration: live_holder.as_ref().map(|_| Duration::from_secs(15)),
            holder: live_holder.clone(),
            former_holders: Vec::new(),
            named_holder: live_holder.clone(),
            live_holder,
            idle,
            is_new: false,
            is_coordinated: false,
            failure: None,
        };
        let is_live = self.main_age < LEASE;
        let main = self.seen_main();
        let named = match main {
            Record::Held(id) => Some(identity_of(id)),
            Record::Free | Record::Deleted(_) => None,
        };
        let former = self.former.iter().flatten().filter(|_| !rules.no_former);
        let former: Vec<String> = former.map(|(id, _)| identity_of(*id)).collect();
        let main = LeaseFacts {
            live_holder: named.clone().filter(|_| is_live),
            holder: main.last().map(identity_of).filter(|_| is_live),
            is_new: self.is_new && !former.is_empty(),
            former_holders: if self.is_new { Vec::new() } else { former },
            named_holder: named,
            ..lease(None, !is_live)
        };
        let migration = match self.record {
            Record::Held(process) if self.age < LEASE => Some(identity(process)),
            _ => None,
        };
        let phase = (self.readable && !self.unread).then_some(self.phase);

        Inputs {
            spec: self.spec(),
            latch: self.latch.filter(|_| !rules.no_latch).map_or(Stored::Absent, |latch| {
                Stored::Latch(Latch {
                    version: VERSION,
                    uid: if latch.of_object { "u" } else { "v" }.into(),
                    phase: latch.phase,
                    held_by: latch.held_by.map(|index| identity(Process::Manager(index))),
                    proven: self.proven(),
                    led_before: latch.led_before.map(|index| identity_of(Id::Present(index))),
                    seen_unattested: latch.seen_unattested,
                    superseded: latch.superseded,
                    other: BTreeMap::new(),
                })
            }),
            identity: identity(Process::Manager(self.leader.unwrap_or_default())),
            holding: self.holding,
            offer_due: self.holding && (!self.was_offered_to_host() || self.offer_again),
            yielded: self.has_yielded(rules),
            facts: Facts {
                controller_managers: self.command_lines(rules),
                main,
                migration: lease(migration, self.is_free(rules)),
                proven: Proven::counting(&self.proven(), phase),
                attestation: self.counts(rules),
                led_before: self
                    .led_before
                    .filter(|_| !rules.led_before_counts)
                    .map(|index| identity_of(Id::Present(index))),
                own: OwnSettings {
                    routes: true,
                    node_ipam: Placement::NotHere,
                    renew_deadline: Duration::from_secs(10),
                },
            },
        }
    }

    fn was_offered_to_host(&self) -> bool {
        let index = self.main.last().map(Id::index);
        index.is_some_and(|index| self.offers & (1 << index) != 0)
    }

    /// The proven processes that may hold K.
    fn proven(&self) -> Vec<Proven> {
        let former = self.former.iter().flatten().map(|(id, _)| *id);
        let ended = self.main.last().into_iter().chain(self.unseen).chain(former);
        let ended = ended.filter_map(|id| match id {
            Id::Ended(_, by) => Some((identity_of(id), by?)),
            Id::Present(_) => None,
        });
        let present = (0..3).filter_map(|index| Some((identity_of(Id::Present(index)), self.old(index).proven?)));
        let mut all: Vec<Proven> = Vec::new();
        for (identity, by) in present.chain(ended) {
            if !all.iter().any(|proven| proven.identity == identity) {
                all.push(Proven { identity, by });
            }
        }
        all
    }

    /// Each of them needs M, or runs nothing.
    fn all_are_safe(&self) -> bool {
        self.running_forms().iter().all(|form| *form != Form::Original)
    }

    fn command_lines(&self, rules: &Rules) -> ControllerManagers {
        let is_hidden = |index: usize| rules.hidden && index + 1 == usize::from(rules.olds);
        let current = self.listed;
        let line = |(index, old): (usize, &Old)| ControllerManager {
            object: format!("Pod kube-system/old-{index}"),
            host_names: vec![format!("old-{index}")],
            host_prefix: None,
            form: match old.form {
                Form::Original if rules.any_leader && self.holding => component::Form::External {
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
            lock: Lock::Main,
            configuration: Configuration::BuiltIn,
            routes: false,
            node_ipam: Placement::NotHere,
            disabled: Vec::new(),
            running: true,
            must_change: false,
            current,
        };
        let all = self.old.iter().enumerate();
        let running = all.filter(|(index, old)| old.running && !is_hidden(*index));

        if self.unread {
            return ControllerManagers::default();
        }
        let visible = self.visible;

        ControllerManagers {
            read: true,
            seen: if visible {
                running.map(line).collect()
            } else {
                Vec::new()
            },
            unreadable: if visible { Vec::new() } else { vec!["forbidden".into()] },
            ignored: Vec::new(),
            current,
        }
    }

    /// The state without what the decision does not depend on.
    fn as_seen(&self, rules: &Rules) -> Self {
        Self {
            // The decision depends on the age of M only so far.
            age: u8::from(self.is_free(rules)) + 2 * u8::from(self.has_yielded(rules)),
            main_age: u8::from(self.main_age >= LEASE),
            main_since: 0,
            old: self.old.map(|old| Old {
                leads: None,
                owns: None,
                ..old
            }),
            former: self.former.map(|former| former.map(|(id, _)| (id, 0))),
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
        let inputs = self.inputs(rules);
        let proven = match inputs.facts.main_holder() {
            MainHolder::Proven(proven) => Some(proven.by),
            _ => None,
        };
        let has_taker = inputs.facts.possible_taker().is_some();
        let is_early = rules.in_tree_at_once && self.readable && self.phase == Phase::InTree;
        if is_early {
            return Answer {
                why: Some("OldManagerOwns"),
                competes: false,
                pauses: false,
                latch: LatchChange::Remove,
                proven,
                has_taker,
            };
        }

        let decision = gate::decide(&inputs);
        let is_taken_for_safe = rules.no_fence && matches!(decision.action.why(), Some(Why::MainLeaseNotHeld(..)));
        Answer {
            why: decision.action.why().map(Why::code),
            competes: decision.action == LeaseAction::Compete || is_taken_for_safe,
            pauses: matches!(decision.action, LeaseAction::Pause(_)) && !is_taken_for_safe,
            latch: decision.latch,
            proven,
            has_taker,
        }
    }

    /// Whether the leader may compete for M, after the latch is stored.
    fn competes(&self, rules: &Rules) -> bool {
        if rules.phase_is_evidence && self.readable && self.phase >= Phase::Migrate {
            return true;
        }
        let answer = self.decide(rules);
        answer.competes || rules.no_latch && answer.why == Some(outrigger_evidence::why::code::STORING_EVIDENCE)
    }

    /// The leader's immediate actions: remember what is proven, store the latch, and release M.
    fn react(mut self, rules: &Rules) -> Self {
        for _ in 0..5 {
            let before = self;
            if self.leader.is_none() {
                return self;
            }
            if self.holding && self.record != Record::Held(self.own()) && !matches!(self.record, Record::Deleted(_)) {
                // Another process has acquired it: the permit is revoked and the process ends.
                return self.ended();
            }

            let answer = self.decide(rules);
            self.remember(answer.proven);
            self.store(&answer.latch, rules);
            if self.holding && !self.competes(rules) && !answer.pauses {
                if answer.why == Some(outrigger_evidence::why::code::STEPPING_BACK) {
                    self.offers |= self.main.last().map_or(0, |id| 1 << id.index());
                }
                (self.holding, self.offer_again, self.age) = (false, false, 0);
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

    fn remember(&mut self, by: Option<Basis>) {
        let (Some(by), Record::Held(id)) = (by, self.seen_main()) else {
            return;
        };
        let is_better = |old: Option<Basis>| old.is_some_and(|old| old == by || !old.is_attested());
        match (&mut self.main, self.unseen, id) {
            (_, _, Id::Present(index)) => {
                let known = &mut self.old[usize::from(index)].proven;
                *known = known.filter(|_| is_better(*known)).or(Some(by));
            }
            (Record::Held(Id::Ended(_, known)), None, Id::Ended(..)) => {
                *known = known.filter(|_| is_better(*known)).or(Some(by));
            }
            _ => {}
        }
    }

    /// The process of the leader has ended. Without a latch nothing of its memory is left.
    fn ended(self) -> Self {
        let mut next = Self {
            main_age: match self.unseen {
                Some(_) => 0,
                None => self.main_age,
            },
            leader: None,
            holding: false,
            unread: false,
            unanswered: false,
            unseen: None,
            listed: false,
            offers: 0,
            offer_again: false,
            ..self
        };
        match self.latch {
            Some(latch) => next.led_before = latch.led_before.filter(|_| run(latch.phase) == run(self.phase)),
            None => {
                next.led_before = None;
                next.old.iter_mut().for_each(|old| old.proven = None);
                if let Record::Held(Id::Ended(_, by)) | Record::Deleted(Id::Ended(_, by)) = &mut next.main {
                    *by = None;
                }
            }
        }
        // The next one reads the object as it is.
        next.seen_unattested = self.attested.is_none_or(|attested| run(attested) != run(self.phase));
        next
    }

    fn own(&self) -> Process {
        Process::Manager(self.leader.unwrap_or_default())
    }

    fn store(&mut self, change: &LatchChange, _rules: &Rules) {
        match change {
            LatchChange::Keep => {}
            LatchChange::Remove => self.latch = None,
            LatchChange::Store(latch) => {
                let index = |text: &str| u8::from(text.starts_with("manager-1"));
                self.latch = Some(Latched {
                    phase: latch.phase,
                    held_by: latch.held_by.as_deref().map(index),
                    of_object: latch.uid == "u",
                    superseded: latch.superseded,
                    led_before: self.led_before.filter(|_| latch.led_before.is_some()),
                    seen_unattested: latch.seen_unattested,
                });
            }
        }
    }

    /// Every event that is possible now, with the state after it.
    fn next(&self, rules: &Rules) -> Vec<(Event, Self)> {
        let mut events = vec![
            Event::Tick,
            Event::Recreate,
            Event::RecreateMain,
            Event::See,
            Event::List,
            Event::Backoff,
            Event::Read,
        ];
        for index in 0..rules.olds {
            events.extend([
                Event::AcquireMain(index),
                Event::Acquire(Process::Old(index)),
                Event::StopOld(index),
                Event::StartOld(index),
            ]);
            let forms = [Form::Original, Form::Guarded, Form::External];
            events.extend(forms.map(|form| Event::Roll(index, form)));
        }
        for index in 0..2 {
            events.extend([Event::Acquire(Process::Manager(index)), Event::Lead(index)]);
        }
        let phases = [Phase::InTree, Phase::Prepare, Phase::Migrate, Phase::Complete];
        events.extend(phases.map(Event::SetPhase));
        events.extend(phases.map(Event::Recreated));
        events.extend([Event::Crash, Event::DeleteLease, Event::DeleteMain, Event::DeleteLatch]);
        events.extend([Event::Unanswered]);
        for hide in [true, false] {
            events.extend([
                Event::HideObject(hide),
                Event::HideCommandLines(hide),
                Event::Attest(hide),
            ]);
        }

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
            Event::SetPhase(_) | Event::Roll(..) | Event::Recreated(_) | Event::Attest(_) => {
                next.operate(event, rules)?
            }
            event if event.is_progress() => next.progress(event, rules)?,
            _ => next.fail(event, rules)?,
        }

        Some(next)
    }

    /// An event that needs neither an operator nor a fault.
    fn progress(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::Tick => self.tick(rules),
            Event::AcquireMain(index) => self.acquire_main(index, rules)?,
            Event::RecreateMain => {
                let Record::Deleted(id @ Id::Present(index)) = self.main else {
                    return None;
                };
                self.old(index).leads?;
                (self.main, self.main_age) = (Record::Held(id), 0);
            }
            Event::See => {
                self.unseen.take()?;
                (self.listed, self.main_age) = (false, 0);
            }
            Event::List => {
                (!self.listed && self.unseen.is_none() && self.leader.is_some()).then_some(())?;
                self.listed = true;
            }
            Event::Acquire(Process::Old(index)) => {
                let candidate = *self.old(index);
                let competes = candidate.form == Form::Guarded && candidate.running && candidate.leads.is_some();
                // client-go creates a lease that it does not find.
                let is_free = self.is_free(rules) || matches!(self.record, Record::Deleted(_));
                let leads = self.main == Record::Held(Id::Present(index));
                (competes && leads && candidate.owns.is_none() && is_free).then_some(())?;
                self.old[usize::from(index)].owns = Some(0);
                (self.record, self.age) = (Record::Held(Process::Old(index)), 0);
                // The leader sees both leases.
                self.old[usize::from(index)].proven = self.leader.map(|_| Basis::MigrationLease);
            }
            Event::Acquire(process @ Process::Manager(index)) => {
                let is_free = self.is_free(rules) || rules.yield_before_expiry && self.is_left_to_expire();
                let may = self.leader == Some(index) && !self.holding && is_free;
                (may && self.competes(rules)).then_some(())?;
                (self.holding, self.offer_again) = (true, false);
                (self.record, self.age) = (Record::Held(process), 0);
            }
            Event::Recreate => {
                let Record::Deleted(process) = self.record else {
                    return None;
                };
                let lives = match process {
                    Process::Manager(index) => self.leader == Some(index) && self.holding,
                    Process::Old(index) => self.old(index).owns.is_some(),
                    Process::Ended(_) => false,
                };
                lives.then_some(())?;
                (self.record, self.age) = (Record::Held(process), 0);
            }
            Event::Lead(index) => {
                self.leader.is_none().then_some(())?;
                (self.leader, self.holding, self.unread, self.listed) = (Some(index), false, rules.late, !rules.late);
                self.is_new = self.former != [None; 2];
            }
            Event::Read => {
                self.unread.then_some(())?;
                (self.unread, self.listed) = (false, true);
            }
            Event::Backoff => {
                (self.holding && self.phase == Phase::Prepare && !self.offer_again).then_some(())?;
                self.offer_again = true;
            }
            _ => return None,
        }

        Some(())
    }

    fn acquire_main(&mut self, index: u8, rules: &Rules) -> Option<()> {
        let candidate = *self.old(index);
        let is_free = match self.main {
            Record::Free | Record::Deleted(_) => true,
            // A holder that the leader has not seen renews it, too.
            Record::Held(_) => self.main_age >= LEASE && self.unseen.is_none(),
        };
        (is_free && candidate.running && candidate.leads.is_none()).then_some(())?;
        self.old[usize::from(index)].leads = Some(0);
        if let Record::Deleted(id) = self.main
            && self.main_age < LEASE
        {
            let [newest, _] = self.former;
            (self.former, self.is_new) = ([Some((id, self.main_age)), newest], false);
        }
        self.unseen = match rules.lag && self.leader.is_some() {
            true => self.unseen.or(self.main.last()),
            false => None,
        };
        // With a lag the age of the record that the leader sees goes on.
        if !rules.lag {
            self.main_age = 0;
        }
        (self.main, self.main_since, self.listed) = (Record::Held(Id::Present(index)), 0, self.leader.is_none());
        if self.unseen.is_none() {
            self.main_age = 0;
        }
        Some(())
    }

    /// An event of the operator.
    fn operate(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::SetPhase(phase) => {
                (self.phase != phase && self.phase.may_become(phase)).then_some(())?;
                self.enter(phase);
            }
            Event::Roll(index, form) => self.roll(index, form)?,
            Event::Recreated(phase) => {
                // An operator with command lines that nobody can read creates it at the phase that they are for.
                (self.visible || self.all_have_the_form_of(phase)).then_some(())?;
                self.attested = None;
                self.enter(phase);
                self.seen_unattested = true;
                if let Some(latch) = &mut self.latch {
                    latch.of_object = false;
                }
            }
            Event::Attest(true) => {
                let is_new = self.attested.is_none_or(|attested| run(attested) != run(self.phase));
                (is_new && self.phase >= Phase::Prepare && !self.visible).then_some(())?;
                // Right; or wrong about a process that the leader saw lead before the phase.
                let is_led_before = |index: u8| self.main == Record::Held(Id::Present(index));
                let others_are_safe = |led: u8| {
                    let mut others = (0..rules.olds).filter(|index| *index != led && self.old(*index).running);
                    others.all(|index| self.old(index).form != Form::Original)
                };
                let is_known = self.leader.is_some() && self.readable;
                let led = self
                    .led_before
                    .filter(|led| is_led_before(*led) && is_known && others_are_safe(*led));
                (self.all_are_safe() || led.is_some()).then_some(())?;
                self.attested = Some(run(self.phase));
            }
            Event::Attest(false) => {
                self.attested.take()?;
                self.seen_unattested = true;
            }
            _ => return None,
        }

        self.operations += 1;
        (self.operations <= OPERATIONS && self.operations + self.faults <= rules.events).then_some(())
    }

    fn enter(&mut self, phase: Phase) {
        let is_other_run = run(self.phase) != run(phase);
        if is_other_run {
            self.seen_unattested = self.attested.is_none_or(|attested| run(attested) != run(phase));
            self.offers = 0;
            self.led_before = match self.main {
                Record::Held(Id::Present(index)) if self.leader.is_some() && self.readable => {
                    Some(index).filter(|_| self.old(index).proven.is_none())
                }
                _ => None,
            };
        }
        self.phase = phase;
    }

    fn fail(&mut self, event: Event, rules: &Rules) -> Option<()> {
        match event {
            Event::Crash => {
                self.leader?;
                *self = self.ended();
            }
            Event::Unanswered => {
                (rules.late && self.holding && !self.unanswered).then_some(())?;
                self.unanswered = true;
            }
            Event::StopOld(index) => {
                self.old(index).running.then_some(())?;
                self.end_old(index);
                self.old[usize::from(index)].running = false;
            }
            Event::StartOld(index) => {
                (!self.old(index).running).then_some(())?;
                self.old[usize::from(index)].running = true;
            }
            Event::DeleteLease => {
                let Record::Held(process) = self.record else {
                    return None;
                };
                self.record = Record::Deleted(process);
            }
            Event::DeleteMain => {
                // A lease that is deleted can be acquired before it expires: that is seen in time.
                let (Record::Held(id), false) = (self.main, rules.lag) else {
                    return None;
                };
                (self.main_age < LEASE).then_some(())?;
                self.main = Record::Deleted(id);
            }
            Event::DeleteLatch => {
                self.latch.take()?;
            }
            Event::HideObject(hide) => {
                (self.readable == hide).then_some(())?;
                self.readable = !hide;
            }
            Event::HideCommandLines(hide) => {
                (self.visible == hide).then_some(())?;
                self.visible = !hide;
            }
            _ => return None,
        }

        self.faults += 1;
        (self.faults <= rules.faults && self.operations + self.faults <= rules.events).then_some(())
    }

    fn all_have_the_form_of(&self, phase: Phase) -> bool {
        let form = match phase {
            Phase::InTree => Form::Original,
            Phase::Prepare => Form::Guarded,
            Phase::Migrate | Phase::Complete => Form::External,
        };
        self.running_forms().iter().all(|of| *of == form)
    }

    /// The process ends. A lease that it holds names it until the record expires.
    fn end_old(&mut self, index: u8) {
        let proven = self.old[usize::from(index)].proven.take();
        let end = |id: &mut Id| {
            if *id == Id::Present(index) {
                *id = Id::Ended(index, proven);
            }
        };
        if let Record::Held(id) | Record::Deleted(id) = &mut self.main {
            end(id);
        }
        self.unseen.iter_mut().for_each(end);
        self.former.iter_mut().flatten().for_each(|(id, _)| end(id));
        if let Record::Held(process) | Record::Deleted(process) = &mut self.record
            && *process == Process::Old(index)
        {
            *process = Process::Ended(index);
        }
        let old = &mut self.old[usize::from(index)];
        (old.leads, old.owns) = (None, None);
        self.led_before = self.led_before.filter(|led| *led != index);
        if let Some(latch) = &mut self.latch {
            latch.led_before = latch.led_before.filter(|led| *led != index);
        }
    }

    /// The operator replaces a command line and restarts the process. Where nobody can read it, and outside of what the
    /// phase is for, only a careful operator is safe: Migrate's form while Prepared, the original one in InTree.
    fn roll(&mut self, index: u8, form: Form) -> Option<()> {
        let old = self.old(index);
        (old.form != form && old.running).then_some(())?;
        let is_phases = match form {
            Form::Original => self.phase == Phase::InTree,
            Form::Guarded => self.phase == Phase::Prepare,
            Form::External => self.phase >= Phase::Migrate,
        };
        (self.visible || is_phases).then_some(())?;
        self.end_old(index);
        self.old[usize::from(index)].form = form;
        Some(())
    }

    fn tick(&mut self, rules: &Rules) {
        let holder_renews = match self.record {
            Record::Held(Process::Manager(index)) => self.leader == Some(index) && self.holding,
            Record::Held(Process::Old(index)) => self.old(index).owns.is_some(),
            Record::Held(Process::Ended(_)) | Record::Free | Record::Deleted(_) => false,
        };
        self.age = if holder_renews {
            0
        } else {
            (self.age + 1).min(LEASE + YIELD)
        };

        let main_renews = match self.main {
            Record::Held(Id::Present(index)) => self.old(index).leads.is_some() && self.unseen.is_none(),
            _ => false,
        };
        self.main_age = if main_renews { 0 } else { (self.main_age + 1).min(LEASE) };
        let longest = match self.record {
            Record::Free => YIELD,
            _ => LEASE + YIELD,
        };
        self.main_since = (self.main_since + 1).min(longest);
        let older = |former: Option<(Id, u8)>| former.map(|(id, age)| (id, age + 1)).filter(|(_, age)| *age < LEASE);
        self.former = self.former.map(older);
        self.is_new &= self.former != [None; 2];

        for index in 0..rules.olds {
            let (main, record) = (self.main, self.record);
            let old = &mut self.old[usize::from(index)];
            let renewed =
                |believes: Option<u8>, is_holder: bool| believes.map(|age| if is_holder { 0 } else { age + 1 });
            old.leads = renewed(old.leads, main == Record::Held(Id::Present(index)));
            old.owns = renewed(old.owns, record == Record::Held(Process::Old(index)));
            // It finds another record, or none, and tries until its deadline: then it ends and is started again.
            if old.leads > Some(DEADLINE) || old.owns > Some(DEADLINE) {
                self.end_old(index);
            }
        }
    }
}

/// Migrate and Complete are one run.
fn run(phase: Phase) -> Phase {
    phase.min(Phase::Migrate)
}

fn attestation(phase: Phase) -> Attestation {
    Attestation {
        phase,
        holders: Vec::new(),
    }
}

fn identity(process: Process) -> String {
    match process {
        Process::Manager(index) => format!("manager-{index}_a"),
        Process::Old(index) => identity_of(Id::Present(index)),
        // It is not known which of the ended processes of the host K names.
        Process::Ended(index) => format!("old-{index}_before"),
    }
}

fn identity_of(id: Id) -> String {
    match id {
        Id::Present(index) => format!("old-{index}_present"),
        Id::Ended(index, _) => format!("old-{index}_ended"),
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
    let states: Vec<State> = State::starts(&rules)
        .into_iter()
        .map(|state| state.react(&rules))
        .collect();
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

    /// For each state, whether the controllers get one owner without the operator and without a fault.
    pub fn reaching_an_owner(&self) -> Vec<bool> {
        self.reaching(|state| state.has_one_owner(&self.rules), Event::is_progress)
    }

    /// A change of the phase by which nobody owns the controllers any more, which our manager alone owned.
    pub fn phase_without_owner(&self) -> Option<usize> {
        let reached = self.reaching_an_owner();
        let owned = self.states.iter().zip(&self.edges);
        let changes = owned
            .filter(|(state, _)| state.only_the_manager_owns(&self.rules))
            .flat_map(|(_, edges)| edges);
        let lost = |(event, to): &&(Event, usize)| matches!(event, Event::SetPhase(_)) && !reached[*to];
        changes.copied().find(|change| lost(&change)).map(|(_, to)| to)
    }

    /// A crash of our manager by which nobody owns the controllers any more, which it owned beside a holder of K that goes
    /// on.
    pub fn crash_without_owner(&self) -> Option<usize> {
        let reached = self.reaching_an_owner();
        let owned = self.states.iter().zip(&self.edges);
        let next = owned
            .filter(|(state, _)| state.manager_acts(&self.rules) && state.is_main_settled())
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
