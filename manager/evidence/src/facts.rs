//! The facts about the kube-controller-managers, and whether they prove that none of them acts on the shared controllers
//! without the migration lease. Pure.
//!
//! An old manager acts only while it holds lease K. So the question is about one process: the holder of K
//! ([`Facts::main_holder`]).

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::controller::Controller;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::{Attestation, Phase};
use serde::{Deserialize, Serialize};

use crate::why::{Missing, NodeIpamProblem, Taker, Unproven, UnprovenReason};

/// A value read from an API server, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// The first read has not ended. Nothing is decided on it.
    Pending,
    /// Read, complete and current.
    Known(T),
    /// Deleted, forbidden, or the API server does not answer.
    Unreadable(String),
}

impl<T> Reading<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Pending | Self::Unreadable(_) => None,
        }
    }
}

/// Why the watch of a lease fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchFailure {
    pub message: String,
    /// This process has no right to watch it.
    pub is_forbidden: bool,
}

/// The leader migration configuration of a kube-controller-manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Configuration {
    /// None on the command line: the built-in one, which is right up to 1.27.
    BuiltIn,
    /// The file that its Pod brings. It names the migration lease and lists every shared controller.
    OfMigration,
    /// Another file. Contains why it is not known to be right.
    Unproven(String),
}

/// How a kube-controller-manager elects its leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lock {
    /// By lease K.
    Main,
    /// By none, or by another object. Contains the flag that says so.
    Other(String),
}

/// One kube-controller-manager that can be read: a Pod, a mirror Pod, or the template of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerManager {
    /// `Pod namespace/name` or `Deployment namespace/name`.
    pub object: String,
    /// The host names that its process may have: its identity on a lease is `HOSTNAME_UUID`. Empty for a template.
    pub host_names: Vec<String>,
    /// The beginning of the host names of its Pods: set for a workload with Pods that are not listed.
    pub host_prefix: Option<String>,
    pub form: Form,
    pub lock: Lock,
    pub configuration: Configuration,
    pub routes: bool,
    /// Where it runs node IPAM; nowhere, too, where its leader migration configuration is not known.
    pub node_ipam: Placement,
    /// The shared controllers that `--controllers` turns off.
    pub disabled: Vec<Controller>,
    /// Whether its process runs, or may start without a further change.
    pub running: bool,
    /// Its form is unreadable until the cluster changes: a rollout is not complete, so Pods of an older template may still
    /// run, or its version does not start with these flags. No attestation stands in for that change.
    pub must_change: bool,
    /// It is of a list that began after the holder of K was first observed. An older one proves nothing about that holder.
    pub current: bool,
}

/// The meaning of a command line for the shared controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It runs none of them, whatever leases it holds.
    External,
    /// In-tree with leader migration and a known configuration: it runs them only while it holds M.
    Guarded,
    /// In-tree without leader migration: it runs them while it holds K.
    Unguarded,
    /// In-tree, and it elects no leader, or by another lock: it runs them without K.
    Unlocked,
    /// Not known: the command line or the leader migration configuration cannot be read.
    Unknown,
}

impl ControllerManager {
    pub fn kind(&self) -> Kind {
        let runs_none = || !Controller::SHARED.iter().any(|controller| self.runs(*controller));
        match &self.form {
            Form::External { .. } | Form::NoProvider { .. } => Kind::External,
            // A usual way to keep the in-tree volumes.
            Form::InTree { .. } if runs_none() => Kind::External,
            Form::InTree { .. } if self.lock != Lock::Main => Kind::Unlocked,
            Form::InTree {
                leader_migration: false,
            } => Kind::Unguarded,
            Form::InTree { leader_migration: true } => match self.configuration {
                Configuration::BuiltIn | Configuration::OfMigration => Kind::Guarded,
                Configuration::Unproven(_) => Kind::Unknown,
            },
            Form::Unreadable { .. } => Kind::Unknown,
        }
    }

    pub fn is_external(&self) -> bool {
        self.kind() == Kind::External
    }

    pub fn is_unguarded(&self) -> bool {
        self.kind() == Kind::Unguarded
    }

    /// It acts on the shared controllers only while it holds M, or not at all.
    pub fn is_safe(&self) -> bool {
        matches!(self.kind(), Kind::External | Kind::Guarded)
    }

    /// Its command line cannot be read, for example because a shell starts it, so the operator can attest its form.
    pub fn needs_attestation(&self) -> bool {
        matches!(self.form, Form::Unreadable { .. }) && !self.must_change
    }

    /// It competes for the migration lease and runs nothing under it.
    pub fn holds_for_nothing(&self) -> bool {
        let is_on = match self.form {
            Form::InTree { leader_migration }
            | Form::External { leader_migration }
            | Form::NoProvider { leader_migration } => leader_migration,
            Form::Unreadable { .. } => false,
        };
        is_on && self.is_external()
    }

    /// In-tree with leader migration, and its process runs.
    pub fn is_guarded_and_running(&self) -> bool {
        let is_in_tree = matches!(self.form, Form::InTree { leader_migration: true });
        self.running && is_in_tree && !self.is_external()
    }

    /// Whether an in-tree provider runs the controller with these flags.
    pub fn runs(&self, controller: Controller) -> bool {
        !self.disabled.contains(&controller) && (controller != Controller::Route || self.routes)
    }

    /// Whether a lease's holder identity is this process's.
    pub fn is_holder(&self, identity: &str) -> bool {
        let host = host_of(identity);
        let has_prefix = |prefix: &String| host.strip_prefix(prefix.as_str()).is_some_and(|rest| !rest.is_empty());
        self.host_names.iter().any(|name| same_host(name, host)) || self.host_prefix.as_ref().is_some_and(has_prefix)
    }
}

/// The host name in a holder identity of client-go, `HOSTNAME_UUID`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kube-controller-manager/app/controllermanager.go>).
pub fn host_of(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(host, _)| host)
}

/// A host name with and without its domain is one host.
pub fn same_host(left: &str, right: &str) -> bool {
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let one_is_short = !left.contains('.') || !right.contains('.');
    left.eq_ignore_ascii_case(right) || one_is_short && first_label(left) == first_label(right)
}

/// Every kube-controller-manager that can be read, and the places that cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControllerManagers {
    /// The first pass over all places has ended.
    pub read: bool,
    /// In the places that cannot be listed now: those of the last list. An old bad fact outweighs a new failure to read.
    pub seen: Vec<ControllerManager>,
    /// The places that cannot be listed, each with the reason.
    pub unreadable: Vec<String>,
    /// Objects that are not believed, each with the reason.
    pub ignored: Vec<String>,
    /// Every place was listed, or could not be, since the holder of K was first observed.
    pub current: bool,
}

impl ControllerManagers {
    /// Every place was listed, and there is at least one kube-controller-manager.
    pub fn are_all_known(&self) -> bool {
        self.read && self.unreadable.is_empty() && !self.seen.is_empty()
    }

    /// All are known, and each command line can be read.
    pub fn are_all_readable(&self) -> bool {
        self.are_all_known() && !self.seen.iter().any(ControllerManager::needs_attestation)
    }

    pub fn are_all_external(&self) -> bool {
        self.are_all_known() && self.seen.iter().all(ControllerManager::is_external)
    }

    /// Why nothing is known about all of them; none if it is.
    pub fn unknown(&self) -> Option<Missing> {
        if !self.unreadable.is_empty() {
            return Some(Missing::Places(self.unreadable.clone()));
        }
        self.seen.is_empty().then(|| Missing::NoneFound(self.ignored.clone()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseFacts {
    pub read: bool,
    /// The holder, if this process saw it renew the lease in time.
    pub live_holder: Option<String>,
    /// The holder, until its record expires. A record that was found at the start may be a dead process's. A lease that was
    /// deleted or emptied keeps its last holder until then.
    pub holder: Option<String>,
    /// Holders before that lost the lease before their record expired: the lease was deleted or edited. Each may act until
    /// then (client-go ends only when it could not renew for its renew deadline).
    pub former_holders: Vec<String>,
    /// The holder was found at the start and had the lease for less than its duration, so the one before is not known.
    pub is_new: bool,
    /// The holder that the record names, alive or not.
    pub named_holder: Option<String>,
    pub duration: Option<Duration>,
    /// This process saw the lease free, or its record unchanged, for a full lease duration.
    pub idle: bool,
    /// Its record is not all that decides who holds it.
    pub is_coordinated: bool,
    pub failure: Option<WatchFailure>,
}

impl LeaseFacts {
    /// The failure to watch it, if nothing is known about its holder for that reason.
    pub fn unwatched(&self) -> Option<&WatchFailure> {
        self.failure.as_ref().filter(|_| self.live_holder.is_none())
    }
}

/// This manager's settings that the other side's must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSettings {
    pub routes: bool,
    pub node_ipam: Placement,
    /// This manager's renew deadline: until then it may write after its last renewal.
    pub renew_deadline: Duration,
}

/// Whether the attestation is made in this phase. Migrate and Complete have one.
pub fn is_attested_for(attestation: &Attestation, phase: Phase) -> bool {
    match attestation.phase {
        Phase::InTree | Phase::Prepare => attestation.phase == phase,
        Phase::Migrate | Phase::Complete => phase >= Phase::Migrate,
    }
}

fn names(attestation: &Attestation, identity: &str) -> bool {
    let is_named = |holder: &String| holder == identity || same_host(holder, host_of(identity));
    attestation.holders.is_empty() || attestation.holders.iter().any(is_named)
}

fn basis(attestation: &Attestation) -> Basis {
    match attestation.phase {
        Phase::InTree | Phase::Prepare => Basis::AttestedInPrepare,
        Phase::Migrate | Phase::Complete => Basis::AttestedInMigrate,
    }
}

/// How it is known that a process acts on the shared controllers only while it holds M, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Basis {
    /// Its Pod was listed while it held K, and is external.
    External,
    /// Its Pod was listed while it held K, and has leader migration.
    Guarded,
    /// It has held M, which only a process with leader migration acquires.
    MigrationLease,
    AttestedInPrepare,
    AttestedInMigrate,
}

impl Basis {
    /// An attestation that the operator has removed in its own phase counts no longer.
    fn is_withdrawn(self, phase: Phase) -> bool {
        match self {
            Self::External | Self::Guarded | Self::MigrationLease => false,
            Self::AttestedInPrepare => phase == Phase::Prepare,
            Self::AttestedInMigrate => phase >= Phase::Migrate,
        }
    }
}

/// A process that was proven. Its flags do not change while it lives, and each process has an identity of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proven {
    pub identity: String,
    pub by: Basis,
}

impl Proven {
    /// The most that are remembered: the holder of K, and some that have held M.
    const MOST: usize = 4;

    /// Puts `new` first. One that is not proven by an attestation alone is not replaced by one that is.
    pub fn remember(all: &mut Vec<Self>, new: &Self) {
        let is_better = |old: &Self| old.identity == new.identity && (old.by == new.by || !old.by.is_attested());
        if all.iter().any(is_better) {
            return;
        }

        all.retain(|old| old.identity != new.identity);
        all.insert(0, new.clone());
        all.truncate(Self::MOST);
    }

    /// The processes that count as proven in `phase`; `None` while the object cannot be read.
    pub fn counting(all: &[Self], phase: Option<Phase>) -> Vec<Self> {
        let counts = |proven: &&Self| phase.is_none_or(|phase| !proven.by.is_withdrawn(phase));
        all.iter().filter(counts).cloned().collect()
    }
}

impl Basis {
    pub fn is_attested(self) -> bool {
        matches!(self, Self::AttestedInPrepare | Self::AttestedInMigrate)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub controller_managers: ControllerManagers,
    /// The old manager's main lease.
    pub main: LeaseFacts,
    /// The migration lease.
    pub migration: LeaseFacts,
    /// Processes that were proven before, by this process or its predecessors.
    pub proven: Vec<Proven>,
    /// The operator's word, as far as it counts now.
    pub attestation: Option<Attestation>,
    /// The holder of K when the phase began, unless it had held M. No attestation of this phase is about it: it was started
    /// with the flags of an earlier phase.
    pub led_before: Option<String>,
    pub own: OwnSettings,
}

/// The holder of K, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MainHolder {
    /// K was not read yet.
    NotRead,
    /// No process holds K.
    None,
    /// The kube-controller-managers were not listed yet since this process acquired K.
    Listing(String),
    /// This process acquired K shortly before ours started. The one before is not known, and may act until its renew
    /// deadline.
    New(String),
    Proven(Proven),
    Unproven(Unproven),
}

impl Facts {
    /// Judges the holder of K. A process that was proven stays proven. For another process, the listed Pods on its host
    /// decide, and then the operator's word.
    pub fn main_holder(&self) -> MainHolder {
        if !self.main.read {
            return MainHolder::NotRead;
        }
        for former in &self.main.former_holders {
            let judged = self.judged(former.clone());
            if !matches!(judged, MainHolder::Proven(_)) {
                return judged;
            }
        }

        match self.main.holder.clone() {
            None => MainHolder::None,
            Some(identity) => match self.judged(identity) {
                MainHolder::Proven(proven) if self.main.is_new && !self.was_proven(&proven.identity) => {
                    MainHolder::New(proven.identity)
                }
                judged => judged,
            },
        }
    }

    /// A predecessor observed how this process acquired K, and found it proven.
    fn was_proven(&self, identity: &str) -> bool {
        self.proven.iter().any(|proven| proven.identity == identity)
    }

    fn judged(&self, identity: String) -> MainHolder {
        let all = &self.controller_managers;
        let matching: Vec<&ControllerManager> = all.seen.iter().filter(|seen| seen.is_holder(&identity)).collect();
        let of_file = matching.iter().find_map(|seen| match &seen.configuration {
            Configuration::Unproven(why) if seen.kind() == Kind::Unknown => Some((seen, why)),
            _ => None,
        });
        let known = self.proven.iter().find(|proven| proven.identity == identity);
        if let (Some(known), None) = (known.filter(|known| !known.by.is_attested()), of_file) {
            return MainHolder::Proven(known.clone());
        }

        let proven = |by| {
            let identity = identity.clone();
            MainHolder::Proven(Proven { identity, by })
        };
        if self.migration.named_holder.as_ref() == Some(&identity) && of_file.is_none() {
            return proven(Basis::MigrationLease);
        }
        let is_proven = |seen: &&ControllerManager| seen.current && seen.is_safe();
        if !matching.is_empty() && matching.iter().all(is_proven) {
            let is_external = matching.iter().all(|seen| seen.is_external());
            return proven(if is_external { Basis::External } else { Basis::Guarded });
        }

        let unproven = |reason| {
            MainHolder::Unproven(Unproven {
                identity: identity.clone(),
                reason,
            })
        };
        let is_bad = |seen: &&&ControllerManager| matches!(seen.kind(), Kind::Unguarded | Kind::Unlocked);
        if let Some(bad) = matching.iter().find(|seen| seen.current).filter(is_bad) {
            return unproven(UnprovenReason::Unguarded(bad.object.clone()));
        }
        if !all.current {
            return MainHolder::Listing(identity);
        }
        if let Some(bad) = matching.iter().find(is_bad) {
            return unproven(UnprovenReason::Unguarded(bad.object.clone()));
        }

        let led_before = self.led_before.as_ref() == Some(&identity);
        if let (Some(known), None) = (known, of_file) {
            return MainHolder::Proven(known.clone());
        }
        if let Some(attestation) = self
            .attestation
            .as_ref()
            .filter(|attestation| names(attestation, &identity))
            && !led_before
            && !matching.iter().any(|seen| seen.must_change)
        {
            return proven(basis(attestation));
        }

        unproven(match (of_file, matching.first()) {
            _ if led_before && self.attestation.is_some() => UnprovenReason::LedBefore,
            (Some((seen, why)), _) => UnprovenReason::Configuration(seen.object.clone(), why.clone()),
            (None, Some(seen)) => match &seen.form {
                Form::Unreadable { reason } => UnprovenReason::Unreadable(seen.object.clone(), reason.clone()),
                _ => UnprovenReason::OldList(seen.object.clone()),
            },
            (None, None) => match all.unknown() {
                Some(missing) => UnprovenReason::Places(Box::new(missing)),
                None => UnprovenReason::NotListed(all.ignored.clone()),
            },
        })
    }

    /// A process that may acquire K and act without M: while there is one, this manager does not write when it cannot be
    /// sure of the holder of K.
    pub fn possible_taker(&self) -> Option<Taker> {
        let all = &self.controller_managers;
        if self.main.failure.is_some() {
            return Some(Taker::MainLeaseUnwatched);
        }
        if self.main.is_coordinated {
            return Some(Taker::Unknown(Box::new(Missing::Coordinated)));
        }
        // Where a leader was listed before, the next one is listed, too.
        let was_listed = |proven: &Proven| matches!(proven.by, Basis::External | Basis::Guarded);
        match all.unknown() {
            Some(Missing::NoneFound(_)) if self.proven.iter().any(was_listed) => return None,
            Some(missing) => return Some(Taker::Unknown(Box::new(missing))),
            None => {}
        }

        let unsafe_one = all.seen.iter().find(|seen| !seen.is_safe());
        unsafe_one.map(|seen| Taker::Listed(seen.object.clone()))
    }

    /// An in-tree kube-controller-manager that acts without K.
    pub fn unlocked(&self) -> Option<(&ControllerManager, &str)> {
        let mut all = self.controller_managers.seen.iter();
        all.find_map(|seen| match &seen.lock {
            Lock::Other(flag) if seen.running && seen.kind() == Kind::Unlocked => Some((seen, flag.as_str())),
            _ => None,
        })
    }

    /// The holder of K does not acquire M: it is external.
    pub fn is_led_by_external(&self) -> bool {
        let is_external = |by| matches!(by, Basis::External | Basis::AttestedInMigrate);
        matches!(self.main_holder(), MainHolder::Proven(proven) if is_external(proven.by))
    }

    /// The object of the holder of K, if it can be read and is external.
    pub fn external_leader(&self) -> Option<&ControllerManager> {
        let holder = self.main.holder.as_ref()?;
        let mut all = self.controller_managers.seen.iter();
        all.find(|seen| seen.is_holder(holder) && seen.is_external())
            .filter(|_| self.is_led_by_external())
    }

    /// The external kube-controller-manager that holds K and M and runs nothing under M.
    pub fn held_for_nothing(&self) -> Option<&ControllerManager> {
        let holder = self.migration.live_holder.as_ref()?;
        let all = self.controller_managers.seen.iter();
        let mut left_on = all.clone().filter(|seen| seen.holds_for_nothing());
        if Some(holder) != self.main.live_holder.as_ref() || all.clone().any(ControllerManager::is_guarded_and_running)
        {
            return left_on.find(|seen| seen.is_holder(holder));
        }
        left_on.next()
    }
}

/// The evidence that is missing in `phase` before this manager may own the controllers. Empty when it is complete.
///
/// In Prepare, K and M also have one holder: only then is it known that the old manager can acquire M.
#[must_use]
pub fn missing(facts: &Facts, phase: Phase) -> Vec<Missing> {
    let mut missing = Vec::new();
    match phase {
        Phase::InTree | Phase::Prepare => missing.extend(leases(facts)),
        Phase::Migrate | Phase::Complete => missing.extend(unwatched(facts)),
    }

    missing.extend(coordinated(facts));
    missing.extend(durations(facts));
    missing.extend(command_lines(facts));
    missing.extend(routes(facts));
    missing.extend(node_ipam_problem(facts));
    if facts.attestation.is_none() {
        missing.extend(unproven_configurations(facts));
    }
    missing.extend(leader(facts));

    missing
}

/// The facts that contradict evidence that was complete, before M is acquired for the first time.
#[must_use]
pub fn contradictions(facts: &Facts) -> Vec<Missing> {
    let unguarded = facts.controller_managers.seen.iter().filter(|seen| seen.is_unguarded());
    let mut found: Vec<Missing> = unguarded.map(|seen| Missing::Unguarded(seen.object.clone())).collect();
    if facts.attestation.is_none() {
        found.extend(unproven_configurations(facts));
    }

    found
}

fn unwatched(facts: &Facts) -> Option<Missing> {
    let main = facts.main.unwatched().cloned().map(Missing::MainLeaseUnwatched);
    main.or_else(|| {
        facts
            .migration
            .unwatched()
            .cloned()
            .map(Missing::MigrationLeaseUnwatched)
    })
}

/// Why it is not known that one process holds K and M.
pub fn leases(facts: &Facts) -> Option<Missing> {
    if let Some(unwatched) = unwatched(facts) {
        return Some(unwatched);
    }

    match (&facts.main.live_holder, &facts.migration.live_holder) {
        (Some(main), Some(migration)) if main == migration => None,
        (None, _) => Some(Missing::MainLeaseIdle),
        (Some(_), None) => Some(Missing::MigrationLeaseIdle),
        (Some(main), Some(migration)) => Some(Missing::TwoHolders {
            main: main.clone(),
            migration: migration.clone(),
        }),
    }
}

/// An API server may give such a lease to another process before its record expires.
fn coordinated(facts: &Facts) -> Option<Missing> {
    let leases = [&facts.main, &facts.migration];
    leases
        .iter()
        .any(|lease| lease.is_coordinated)
        .then_some(Missing::Coordinated)
}

/// A shorter lease of an old manager would let another one acquire K, or M, while this manager may still write.
fn durations(facts: &Facts) -> Option<Missing> {
    let deadline = facts.own.renew_deadline;
    let leases = [&facts.main, &facts.migration];
    let shortest = leases.into_iter().filter_map(|lease| lease.duration).min()?;
    (shortest <= deadline).then_some(Missing::ShortDuration { shortest, deadline })
}

fn command_lines(facts: &Facts) -> Vec<Missing> {
    let all = &facts.controller_managers;
    let is_attested = facts.attestation.is_some();
    let judged = all
        .seen
        .iter()
        .filter(|seen| !(is_attested && seen.needs_attestation()));
    let mut problems: Vec<Missing> = judged.filter_map(problem).collect();
    if !is_attested {
        problems.extend(all.unknown());
    }

    problems
}

fn problem(seen: &ControllerManager) -> Option<Missing> {
    let object = seen.object.clone();
    if seen.holds_for_nothing() {
        return Some(Missing::LeftOn(object));
    }
    match (seen.kind(), &seen.form, &seen.lock) {
        (Kind::External | Kind::Guarded, ..) => None,
        (Kind::Unlocked, _, Lock::Other(flag)) => Some(Missing::Unlocked {
            object,
            flag: flag.clone(),
        }),
        (Kind::Unguarded | Kind::Unlocked, ..) => Some(Missing::Unguarded(object)),
        (Kind::Unknown, Form::Unreadable { reason }, _) => Some(Missing::Unreadable {
            object,
            reason: reason.clone(),
            may_be_attested: seen.needs_attestation(),
        }),
        // Its configuration is judged apart.
        (Kind::Unknown, ..) => None,
    }
}

/// The route controller changes its owner with the migration lease.
fn routes(facts: &Facts) -> Option<Missing> {
    let runs = |seen: &&ControllerManager| matches!(seen.form, Form::InTree { .. }) && seen.runs(Controller::Route);
    let old = facts.controller_managers.seen.iter().find(runs)?;
    (!facts.own.routes).then(|| Missing::Routes(old.object.clone()))
}

/// Why both sides allocate Pod CIDRs, or none will after the migration: two allocators in one cluster would give one Pod
/// CIDR to two Nodes.
pub fn node_ipam_problem(facts: &Facts) -> Option<Missing> {
    let mut all = facts.controller_managers.seen.iter();
    all.find_map(|seen| {
        let problem = node_ipam_conflict(seen.node_ipam, facts.own.node_ipam)?;
        Some(Missing::NodeIpam(seen.object.clone(), problem))
    })
}

fn node_ipam_conflict(theirs: Placement, own: Placement) -> Option<NodeIpamProblem> {
    use Placement::{Main, Migrated, NotHere};
    match (theirs, own) {
        (NotHere, _) | (Main, NotHere) | (Migrated, Migrated) => None,
        (Migrated, NotHere) => Some(NodeIpamProblem::Neither),
        (Main | Migrated, Main | Migrated) => Some(NodeIpamProblem::Both),
    }
}

/// The leader migration configurations that are not known to be right, or differ.
fn unproven_configurations(facts: &Facts) -> Vec<Missing> {
    let in_tree = || {
        let all = facts.controller_managers.seen.iter();
        all.filter(|seen| matches!(seen.form, Form::InTree { .. }) && !seen.is_external())
    };
    let unproven = |seen: &ControllerManager| match &seen.configuration {
        Configuration::Unproven(why) => Some(Missing::Configuration {
            object: seen.object.clone(),
            why: why.clone(),
        }),
        Configuration::BuiltIn | Configuration::OfMigration => None,
    };
    let mut missing: Vec<Missing> = in_tree().filter_map(unproven).collect();

    if let Some(first) = in_tree().next()
        && let Some(other) = in_tree().find(|seen| seen.configuration != first.configuration)
    {
        missing.push(Missing::Configurations(first.object.clone(), other.object.clone()));
    }

    missing
}

/// Why it is not known that the holder of K is proven.
fn leader(facts: &Facts) -> Option<Missing> {
    match facts.main_holder() {
        MainHolder::Proven(_) => None,
        MainHolder::NotRead => Some(Missing::Listing(None)),
        MainHolder::Listing(identity) => Some(Missing::Listing(Some(identity))),
        MainHolder::New(identity) => Some(Missing::NewLeader(identity)),
        MainHolder::Unproven(unproven) => Some(Missing::Leader(unproven)),
        // In Prepare, `leases` says so.
        MainHolder::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::*;

    type Change = fn(&mut Facts);

    fn unreadable_form() -> Form {
        Form::Unreadable {
            reason: "a shell script".into(),
        }
    }

    fn on_host(host: &str, form: Form) -> ControllerManager {
        ControllerManager {
            object: format!("Pod tenant/{host}"),
            host_names: vec![host.into()],
            ..kcm(form)
        }
    }

    fn with_file() -> ControllerManager {
        ControllerManager {
            configuration: Configuration::Unproven("it names its own file /x".into()),
            ..kcm(GUARDED)
        }
    }

    fn attested(phase: Phase, holders: &[&str]) -> Option<Attestation> {
        Some(Attestation {
            phase,
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
        })
    }

    fn process(identity: &str, by: Basis) -> Proven {
        Proven {
            identity: identity.into(),
            by,
        }
    }

    /// K is held by a process on host `kcm-0` that no other fact is about, and M is free.
    fn led(all: Vec<ControllerManager>) -> Facts {
        Facts {
            controller_managers: seen(all),
            migration: LeaseFacts {
                read: true,
                idle: true,
                ..LeaseFacts::default()
            },
            ..complete()
        }
    }

    fn basis_of(facts: &Facts) -> Option<Basis> {
        match facts.main_holder() {
            MainHolder::Proven(proven) => {
                assert_eq!(proven.identity, "kcm-0_a");
                Some(proven.by)
            }
            _ => None,
        }
    }

    fn reason_of(facts: &Facts) -> UnprovenReason {
        match facts.main_holder() {
            MainHolder::Unproven(unproven) => {
                assert_eq!(unproven.identity, "kcm-0_a");
                unproven.reason
            }
            other => panic!("{other:?}"),
        }
    }

    fn kcm_0() -> String {
        "Pod tenant/kcm-0".into()
    }

    #[test]
    fn the_form_the_flags_and_the_lock_decide_what_a_process_may_do() {
        let all_off = Controller::SHARED.to_vec();
        let other_lock = || Lock::Other("--leader-elect=false".into());
        let changed = |form, change: &dyn Fn(&mut ControllerManager)| {
            let mut seen = kcm(form);
            change(&mut seen);
            seen.kind()
        };
        let none = |_: &mut ControllerManager| {};
        let left_on = Form::External { leader_migration: true };
        assert_eq!(changed(EXTERNAL, &none), Kind::External);
        assert_eq!(changed(left_on, &none), Kind::External);
        assert_eq!(changed(GUARDED, &none), Kind::Guarded);
        assert_eq!(changed(UNGUARDED, &none), Kind::Unguarded);
        assert_eq!(changed(unreadable_form(), &none), Kind::Unknown);

        // In-tree, and each shared controller is off.
        for form in [UNGUARDED, GUARDED] {
            let off = |seen: &mut ControllerManager| seen.disabled.clone_from(&all_off);
            assert_eq!(changed(form.clone(), &off), Kind::External);
            let two_off = |seen: &mut ControllerManager| seen.disabled = all_off[..2].to_vec();
            assert_ne!(changed(form, &two_off), Kind::External);
        }
        let off_without_route = |seen: &mut ControllerManager| {
            seen.disabled = vec![Controller::Service, Controller::NodeLifecycle];
        };
        assert_eq!(changed(UNGUARDED, &off_without_route), Kind::External);
        let with_routes = |seen: &mut ControllerManager| {
            off_without_route(seen);
            seen.routes = true;
        };
        assert_eq!(changed(UNGUARDED, &with_routes), Kind::Unguarded);

        for form in [UNGUARDED, GUARDED] {
            let unlocked = |seen: &mut ControllerManager| seen.lock = other_lock();
            assert_eq!(changed(form, &unlocked), Kind::Unlocked);
        }
        for (form, kind) in [(EXTERNAL, Kind::External), (unreadable_form(), Kind::Unknown)] {
            let unlocked = |seen: &mut ControllerManager| seen.lock = other_lock();
            assert_eq!(changed(form, &unlocked), kind);
        }
        assert_eq!(with_file().kind(), Kind::Unknown);
        let of_migration = |seen: &mut ControllerManager| seen.configuration = Configuration::OfMigration;
        assert_eq!(changed(GUARDED, &of_migration), Kind::Guarded);
    }

    #[test]
    fn a_lease_that_was_not_read_and_a_lease_without_a_holder_differ() {
        let mut facts = complete();
        facts.main.read = false;
        assert_eq!(facts.main_holder(), MainHolder::NotRead);

        let mut facts = complete();
        (facts.main.holder, facts.main.live_holder) = (None, None);
        assert_eq!(facts.main_holder(), MainHolder::None);
    }

    #[test]
    fn a_current_safe_pod_on_the_holders_host_proves_it() {
        let off = ControllerManager {
            disabled: Controller::SHARED.to_vec(),
            ..kcm(UNGUARDED)
        };
        for (pod, basis) in [
            (kcm(GUARDED), Basis::Guarded),
            (kcm(EXTERNAL), Basis::External),
            (off, Basis::External),
        ] {
            assert_eq!(basis_of(&led(vec![pod])), Some(basis));
        }

        // A record that was found at the start, or a lease that was deleted, has a holder until it expires.
        let mut facts = led(vec![kcm(GUARDED)]);
        facts.main.live_holder = None;
        assert_eq!(basis_of(&facts), Some(Basis::Guarded));
        facts.main.named_holder = None;
        assert_eq!(basis_of(&facts), Some(Basis::Guarded));

        // The lists of other places do not matter.
        facts.controller_managers.current = false;
        assert_eq!(basis_of(&facts), Some(Basis::Guarded));
    }

    #[test]
    fn each_pod_on_the_holders_host_has_to_be_safe() {
        let second = |form| ControllerManager {
            object: "Pod tenant/second".into(),
            ..kcm(form)
        };
        let both = |first, other| led(vec![kcm(first), second(other)]);
        assert_eq!(basis_of(&both(GUARDED, EXTERNAL)), Some(Basis::Guarded));
        assert_eq!(basis_of(&both(EXTERNAL, EXTERNAL)), Some(Basis::External));
        let unguarded = UnprovenReason::Unguarded("Pod tenant/second".into());
        assert_eq!(reason_of(&both(EXTERNAL, UNGUARDED)), unguarded);
        assert_eq!(basis_of(&both(GUARDED, unreadable_form())), None);

        let elsewhere = led(vec![kcm(EXTERNAL), on_host("kcm-1", UNGUARDED)]);
        assert_eq!(basis_of(&elsewhere), Some(Basis::External));
    }

    #[test]
    fn a_process_that_was_proven_stays_proven() {
        let by = |by, all| Facts {
            proven: vec![process("kcm-1_x", Basis::Guarded), process("kcm-0_a", by)],
            ..led(all)
        };
        for basis in [Basis::External, Basis::Guarded, Basis::MigrationLease] {
            // Its Pod was replaced by one with other flags, or was deleted.
            for all in [vec![kcm(UNGUARDED)], vec![on_host("kcm-1", GUARDED)], Vec::new()] {
                assert_eq!(basis_of(&by(basis, all)), Some(basis));
            }
        }
        let mut of_other = by(Basis::Guarded, vec![kcm(UNGUARDED)]);
        of_other.proven.pop();
        assert_eq!(basis_of(&of_other), None, "a proof is of one identity");

        // A Pod that can be read outweighs a proof by attestation.
        let attested = |all| by(Basis::AttestedInMigrate, all);
        assert_eq!(
            basis_of(&attested(vec![kcm(unreadable_form())])),
            Some(Basis::AttestedInMigrate)
        );
        assert_eq!(
            reason_of(&attested(vec![kcm(UNGUARDED)])),
            UnprovenReason::Unguarded(kcm_0())
        );
        assert_eq!(basis_of(&attested(vec![kcm(GUARDED)])), Some(Basis::Guarded));
    }

    #[test]
    fn the_holder_of_the_migration_lease_is_proven_by_its_identity() {
        let mut facts = led(vec![on_host("kcm-1", GUARDED)]);
        facts.migration.named_holder = Some("kcm-0_a".into());
        assert_eq!(basis_of(&facts), Some(Basis::MigrationLease));

        // A Pod on the host is judged only where nothing is known about this process.
        facts.controller_managers.seen.push(kcm(UNGUARDED));
        assert_eq!(basis_of(&facts), Some(Basis::MigrationLease));

        facts.migration.named_holder = Some("kcm-0_b".into());
        assert_eq!(basis_of(&facts), None, "another process of the same host");
    }

    #[test]
    fn an_unproven_configuration_outweighs_each_proof_by_identity() {
        let mut facts = led(vec![with_file()]);
        facts.migration.named_holder = Some("kcm-0_a".into());
        facts.proven = vec![process("kcm-0_a", Basis::MigrationLease)];
        let expected = UnprovenReason::Configuration(kcm_0(), "it names its own file /x".into());
        assert_eq!(reason_of(&facts), expected);

        facts.attestation = attested(Phase::Prepare, &[]);
        assert_eq!(basis_of(&facts), Some(Basis::AttestedInPrepare));
    }

    #[test]
    fn each_reason_for_which_a_holder_is_not_proven_is_named() {
        let reason = |all, change: Change| {
            let mut facts = led(all);
            change(&mut facts);
            reason_of(&facts)
        };
        let nothing: Change = |_| {};
        let unlocked = ControllerManager {
            lock: Lock::Other("--leader-elect=false".into()),
            ..kcm(GUARDED)
        };
        for bad in [kcm(UNGUARDED), unlocked] {
            assert_eq!(reason(vec![bad], nothing), UnprovenReason::Unguarded(kcm_0()));
        }
        let unread = UnprovenReason::Unreadable(kcm_0(), "a shell script".into());
        assert_eq!(reason(vec![kcm(unreadable_form())], nothing), unread);

        let ignored: Change = |facts| facts.controller_managers.ignored = vec!["Pod x: mirror".into()];
        assert_eq!(
            reason(vec![on_host("kcm-1", GUARDED)], ignored),
            UnprovenReason::NotListed(vec!["Pod x: mirror".into()])
        );
        let none_found = Missing::NoneFound(vec!["Pod x: mirror".into()]);
        assert_eq!(
            reason(Vec::new(), ignored),
            UnprovenReason::Places(Box::new(none_found))
        );

        let forbidden: Change = |facts| facts.controller_managers.unreadable = unreadable().unreadable;
        let places = UnprovenReason::Places(Box::new(Missing::Places(unreadable().unreadable)));
        assert_eq!(reason(vec![on_host("kcm-1", GUARDED)], forbidden), places);
        let old: Change = |facts| {
            facts.controller_managers.unreadable = unreadable().unreadable;
            facts.controller_managers.seen[0].current = false;
        };
        assert_eq!(reason(vec![kcm(GUARDED)], old), UnprovenReason::OldList(kcm_0()));

        let led_before: Change = |facts| {
            facts.attestation = attested(Phase::Migrate, &[]);
            facts.led_before = Some("kcm-0_a".into());
        };
        assert_eq!(reason(Vec::new(), led_before), UnprovenReason::LedBefore);
    }

    #[test]
    fn nothing_is_decided_while_a_list_is_older_than_the_holder() {
        let listing = |all: Vec<ControllerManager>, change: Change| {
            let mut facts = led(all);
            facts.controller_managers.current = false;
            facts
                .controller_managers
                .seen
                .iter_mut()
                .for_each(|seen| seen.current = false);
            change(&mut facts);
            facts
        };
        let is_listing = |facts: &Facts| facts.main_holder() == MainHolder::Listing("kcm-0_a".into());
        let nothing: Change = |_| {};
        // An old Pod of that host proves nothing: it may be of the process before.
        for form in [GUARDED, EXTERNAL, UNGUARDED, unreadable_form()] {
            assert!(is_listing(&listing(vec![kcm(form)], nothing)));
        }
        assert!(is_listing(&listing(Vec::new(), nothing)));
        assert!(is_listing(&listing(Vec::new(), |facts| {
            facts.attestation = attested(Phase::Migrate, &[]);
        })));

        // A current Pod of one place decides before the others are listed.
        let current = listing(vec![kcm(UNGUARDED)], |facts| {
            facts.controller_managers.seen[0].current = true
        });
        assert_eq!(reason_of(&current), UnprovenReason::Unguarded(kcm_0()));
        let proven = listing(Vec::new(), |facts| {
            facts.proven = vec![process("kcm-0_a", Basis::Guarded)]
        });
        assert_eq!(basis_of(&proven), Some(Basis::Guarded));
    }

    #[test]
    fn a_bad_pod_of_an_old_list_still_counts_once_all_lists_have_ended() {
        let mut facts = led(vec![kcm(UNGUARDED)]);
        facts.controller_managers.seen[0].current = false;
        facts.controller_managers.unreadable = unreadable().unreadable;
        assert_eq!(reason_of(&facts), UnprovenReason::Unguarded(kcm_0()));
        facts.attestation = attested(Phase::Migrate, &[]);
        assert_eq!(reason_of(&facts), UnprovenReason::Unguarded(kcm_0()));

        facts.controller_managers.seen[0].form = GUARDED;
        assert_eq!(basis_of(&facts), Some(Basis::AttestedInMigrate), "a good one does not");
        facts.attestation = None;
        assert_eq!(reason_of(&facts), UnprovenReason::OldList(kcm_0()));
    }

    #[test]
    fn an_attestation_stands_in_for_what_cannot_be_read_and_for_nothing_else() {
        let with = |all, phase| Facts {
            attestation: attested(phase, &[]),
            ..led(all)
        };
        for all in [
            vec![kcm(unreadable_form())],
            vec![on_host("kcm-1", GUARDED)],
            Vec::new(),
        ] {
            assert_eq!(
                basis_of(&with(all.clone(), Phase::Prepare)),
                Some(Basis::AttestedInPrepare)
            );
            assert_eq!(basis_of(&with(all, Phase::Migrate)), Some(Basis::AttestedInMigrate));
        }
        let unguarded = with(vec![kcm(UNGUARDED)], Phase::Migrate);
        assert_eq!(reason_of(&unguarded), UnprovenReason::Unguarded(kcm_0()));
        let rolling_out = ControllerManager {
            must_change: true,
            ..kcm(unreadable_form())
        };
        let rolling_out = with(vec![rolling_out], Phase::Migrate);
        let expected = UnprovenReason::Unreadable(kcm_0(), "a shell script".into());
        assert_eq!(reason_of(&rolling_out), expected);
    }

    #[test]
    fn an_attestation_names_holders_by_identity_or_by_host() {
        for (holders, counts) in [
            (&[][..], true),
            (&["kcm-0_a"], true),
            (&["kcm-0"], true),
            (&["KCM-0.ec2.internal"], true),
            (&["other", "kcm-0"], true),
            (&["kcm-0_b"], false),
            (&["kcm-1"], false),
        ] {
            let facts = Facts {
                attestation: attested(Phase::Migrate, holders),
                ..led(Vec::new())
            };
            assert_eq!(basis_of(&facts).is_some(), counts, "{holders:?}");
        }
    }

    #[test]
    fn an_attestation_is_not_about_a_process_that_led_before_the_phase() {
        let before = |holder: &str| Facts {
            attestation: attested(Phase::Migrate, &["kcm-0_a"]),
            led_before: Some(holder.into()),
            ..led(Vec::new())
        };
        assert_eq!(reason_of(&before("kcm-0_a")), UnprovenReason::LedBefore);
        assert_eq!(basis_of(&before("kcm-0_b")), Some(Basis::AttestedInMigrate));

        let mut listed = before("kcm-0_a");
        listed.controller_managers.seen = vec![kcm(EXTERNAL)];
        assert_eq!(basis_of(&listed), Some(Basis::External), "its command line counts");
    }

    #[test]
    fn each_holder_that_lost_the_lease_before_it_expired_is_judged() {
        let mut facts = led(vec![kcm(UNGUARDED), on_host("kcm-1", GUARDED)]);
        (facts.main.holder, facts.main.live_holder) = (Some("kcm-1_b".into()), Some("kcm-1_b".into()));
        assert!(matches!(facts.main_holder(), MainHolder::Proven(_)));

        facts.main.former_holders = vec!["kcm-1_a".into(), "kcm-0_a".into()];
        assert_eq!(reason_of(&facts), UnprovenReason::Unguarded(kcm_0()));
        facts.main.holder = None;
        assert_eq!(
            reason_of(&facts),
            UnprovenReason::Unguarded(kcm_0()),
            "nobody has acquired it yet"
        );

        facts.main.holder = Some("kcm-1_b".into());
        facts.controller_managers.seen[0].form = EXTERNAL;
        assert_eq!(
            facts.main_holder(),
            MainHolder::Proven(process("kcm-1_b", Basis::Guarded)),
            "both are proven"
        );
    }

    #[test]
    fn a_proven_holder_that_was_found_and_is_new_is_not_proven_yet() {
        let mut facts = led(vec![kcm(GUARDED)]);
        facts.main.is_new = true;
        assert_eq!(facts.main_holder(), MainHolder::New("kcm-0_a".into()));
        assert_eq!(codes(&facts, Phase::Migrate), ["NewLeader"]);

        facts.proven = vec![Proven {
            identity: "kcm-0_a".into(),
            by: Basis::External,
        }];
        assert!(
            matches!(facts.main_holder(), MainHolder::Proven(_)),
            "a predecessor saw it acquire the lease"
        );
        facts.proven.clear();

        facts.controller_managers = seen(vec![kcm(UNGUARDED)]);
        assert_eq!(
            reason_of(&facts),
            UnprovenReason::Unguarded(kcm_0()),
            "the worse fact counts"
        );
    }

    #[test]
    fn a_process_that_may_lead_and_act_without_the_migration_lease_is_a_possible_taker() {
        let taker = |all, change: Change| {
            let mut facts = led(all);
            change(&mut facts);
            facts.possible_taker()
        };
        let nothing: Change = |_| {};
        assert_eq!(taker(vec![kcm(EXTERNAL), on_host("kcm-1", GUARDED)], nothing), None);
        let unlocked = ControllerManager {
            lock: Lock::Other("--leader-elect=false".into()),
            ..kcm(GUARDED)
        };
        for unsafe_one in [kcm(UNGUARDED), kcm(unreadable_form()), with_file(), unlocked] {
            let all = vec![on_host("kcm-1", EXTERNAL), unsafe_one];
            assert_eq!(taker(all, nothing), Some(Taker::Listed(kcm_0())));
        }

        let unknown = |missing| Some(Taker::Unknown(Box::new(missing)));
        assert_eq!(taker(Vec::new(), nothing), unknown(Missing::NoneFound(Vec::new())));
        let forbidden: Change = |facts| facts.controller_managers.unreadable = unreadable().unreadable;
        assert_eq!(
            taker(vec![kcm(EXTERNAL)], forbidden),
            unknown(Missing::Places(unreadable().unreadable))
        );
        let coordinated: Change = |facts| facts.main.is_coordinated = true;
        assert_eq!(taker(vec![kcm(EXTERNAL)], coordinated), unknown(Missing::Coordinated));
        let unwatched: Change = |facts| facts.main.failure = Some(broken());
        assert_eq!(taker(vec![kcm(EXTERNAL)], unwatched), Some(Taker::MainLeaseUnwatched));
    }

    #[test]
    fn a_running_process_without_the_lock_is_found_and_an_external_one_is_none() {
        let unlocked = |form, running| {
            let seen = ControllerManager {
                lock: Lock::Other("--leader-elect=false".into()),
                running,
                ..kcm(form)
            };
            let facts = led(vec![on_host("kcm-1", GUARDED), seen]);
            facts
                .unlocked()
                .map(|(seen, flag)| (seen.object.clone(), flag.to_owned()))
        };
        let found = Some((kcm_0(), "--leader-elect=false".to_owned()));
        assert_eq!(unlocked(UNGUARDED, true), found);
        assert_eq!(unlocked(GUARDED, true), found);
        assert_eq!(unlocked(UNGUARDED, false), None, "no Pod of it runs");
        assert_eq!(unlocked(EXTERNAL, true), None);
    }

    #[test]
    fn the_leader_is_external_by_a_proof_of_that() {
        let mut facts = led(vec![kcm(EXTERNAL)]);
        assert!(facts.is_led_by_external());
        assert_eq!(facts.external_leader(), facts.controller_managers.seen.first());
        facts.controller_managers.seen[0].form = GUARDED;
        assert!(!facts.is_led_by_external() && facts.external_leader().is_none());

        let by = |by| Facts {
            proven: vec![process("kcm-0_a", by)],
            ..led(Vec::new())
        };
        for (basis, is_external) in [
            (Basis::External, true),
            (Basis::AttestedInMigrate, true),
            (Basis::Guarded, false),
            (Basis::MigrationLease, false),
            (Basis::AttestedInPrepare, false),
        ] {
            assert_eq!(by(basis).is_led_by_external(), is_external, "{basis:?}");
            assert!(by(basis).external_leader().is_none(), "it cannot be read");
        }
    }

    #[test]
    fn the_newest_proofs_are_remembered_and_an_attestation_replaces_no_better_one() {
        let mut all = Vec::new();
        for identity in ["a", "b", "c", "d", "e"] {
            Proven::remember(&mut all, &process(identity, Basis::Guarded));
        }
        let identities = |all: &[Proven]| all.iter().map(|proven| proven.identity.clone()).collect::<Vec<_>>();
        assert_eq!(
            identities(&all),
            ["e", "d", "c", "b"],
            "the newest first, and at most four"
        );

        let before = all.clone();
        for by in [Basis::Guarded, Basis::AttestedInPrepare, Basis::AttestedInMigrate] {
            Proven::remember(&mut all, &process("c", by));
            assert_eq!(all, before, "{by:?}");
        }

        let mut attested = vec![process("a", Basis::Guarded), process("b", Basis::AttestedInPrepare)];
        Proven::remember(&mut attested, &process("b", Basis::MigrationLease));
        assert_eq!(
            attested,
            [process("b", Basis::MigrationLease), process("a", Basis::Guarded)],
            "a better proof of the same process"
        );
    }

    #[test]
    fn an_attestation_that_was_withdrawn_in_its_own_phase_proves_nothing_any_more() {
        let all = [
            process("a", Basis::External),
            process("b", Basis::MigrationLease),
            process("c", Basis::AttestedInPrepare),
            process("d", Basis::AttestedInMigrate),
        ];
        let counting = |phase| {
            let counting = Proven::counting(&all, phase);
            counting
                .iter()
                .map(|proven| proven.identity.clone())
                .collect::<String>()
        };
        assert_eq!(counting(None), "abcd");
        assert_eq!(counting(Some(Phase::InTree)), "abcd");
        assert_eq!(counting(Some(Phase::Prepare)), "abd");
        assert_eq!(counting(Some(Phase::Migrate)), "abc");
        assert_eq!(counting(Some(Phase::Complete)), "abc");
    }

    #[test]
    fn an_attestation_is_for_its_phase_and_migrate_and_complete_have_one() {
        let is_for = |made, phase| is_attested_for(&attested(made, &[]).unwrap(), phase);
        use Phase::{Complete, InTree, Migrate, Prepare};
        for (made, phases) in [(Prepare, &[Prepare][..]), (Migrate, &[Migrate, Complete])] {
            for phase in [InTree, Prepare, Migrate, Complete] {
                assert_eq!(is_for(made, phase), phases.contains(&phase), "{made} in {phase}");
            }
        }
    }

    #[test]
    fn all_are_known_when_each_place_was_listed_and_one_has_some() {
        let known = seen(vec![kcm(GUARDED)]);
        assert!(known.are_all_known());
        let unread = ControllerManagers {
            read: false,
            ..known.clone()
        };
        let forbidden = ControllerManagers {
            seen: known.seen,
            ..unreadable()
        };
        for unknown in [unread, forbidden, seen(Vec::new())] {
            assert!(!unknown.are_all_known(), "{unknown:?}");
        }
    }

    fn codes(facts: &Facts, phase: Phase) -> Vec<&'static str> {
        missing(facts, phase).iter().map(Missing::code).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn one_holder_of_both_leases_and_a_guarded_command_line_are_complete() {
        for phase in [Phase::Prepare, Phase::Migrate, Phase::Complete] {
            assert_eq!(codes(&complete(), phase), NONE);
        }
    }

    #[test]
    fn each_missing_piece_is_named() {
        let cases: [(&str, &str, Change); 11] = [
            ("MigrationLeaseIdle", "no process renews the migration lease", |f| {
                f.migration.live_holder = None
            }),
            ("TwoHolders", "does not hold both", |f| f.migration = held("b")),
            ("CommandLineUnreadable", "are not known", |f| {
                f.controller_managers.seen.push(on_host("kcm-1", unreadable_form()));
            }),
            ("LeaderMigrationLeftOn", "remove the flag", |f| {
                let left_on = Form::External { leader_migration: true };
                f.controller_managers.seen.push(on_host("kcm-1", left_on));
            }),
            ("UnguardedControllerManager", "without leader migration", |f| {
                f.controller_managers.seen.push(on_host("kcm-1", UNGUARDED));
            }),
            ("UnlockedControllerManager", "(--leader-elect=false)", |f| {
                f.controller_managers.seen.push(ControllerManager {
                    lock: Lock::Other("--leader-elect=false".into()),
                    ..on_host("kcm-1", GUARDED)
                });
            }),
            ("ShortLeaseDuration", "raise its --leader-elect-lease-duration", |f| {
                f.main.duration = Some(Duration::from_secs(10));
            }),
            ("RoutesOwnerMissing", "runs the route controller", |f| {
                f.controller_managers.seen[0].routes = true
            }),
            ("PlacesUnreadable", "Namespace other: forbidden", |f| {
                f.controller_managers
                    .unreadable
                    .push("Namespace other: forbidden".into());
            }),
            ("CoordinatedLease", "CoordinatedLeaderElection", |f| {
                f.main.is_coordinated = true
            }),
            ("CoordinatedLease", "CoordinatedLeaderElection", |f| {
                f.migration.is_coordinated = true
            }),
        ];
        for (code, text, change) in cases {
            let mut facts = complete();
            change(&mut facts);
            let missing = missing(&facts, Phase::Prepare);
            assert_eq!(missing.len(), 1, "{code}: {missing:?}");
            assert_eq!(missing[0].code(), code);
            let message = missing[0].message(Some(Phase::Prepare));
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn one_holder_of_both_leases_is_evidence_for_prepare_alone() {
        let changes: [(&str, Change); 3] = [
            ("MigrationLeaseIdle", |f| f.migration.live_holder = None),
            ("TwoHolders", |f| f.migration = held("b")),
            ("MainLeaseIdle", |f| (f.main.live_holder, f.main.holder) = (None, None)),
        ];
        for (code, change) in changes {
            let mut facts = complete();
            change(&mut facts);
            assert_eq!(codes(&facts, Phase::Prepare), [code]);
            assert_eq!(codes(&facts, Phase::Migrate), NONE, "{code}");
        }
    }

    #[test]
    fn the_holder_of_the_main_lease_has_to_be_proven_in_each_phase() {
        let cases: [(&str, Change); 3] = [
            ("LeaderNotProven", |f| f.main = held("hidden_a")),
            ("Listing", |f| {
                f.main = held("hidden_a");
                f.controller_managers.current = false;
            }),
            ("Listing", |f| f.main.read = false),
        ];
        for (code, change) in cases {
            for phase in [Phase::Prepare, Phase::Migrate] {
                let mut facts = complete();
                change(&mut facts);
                facts.migration = facts.main.clone();
                facts.migration.named_holder = None;
                assert_eq!(codes(&facts, phase), [code], "{phase}");
            }
        }
    }

    #[test]
    fn a_lease_that_this_manager_may_not_watch_is_no_fault_of_the_kube_controller_manager() {
        let unwatched: [(Change, &str, &str); 2] = [
            (
                |f| f.main = refused(),
                "MainLeaseUnwatched",
                "(Role outrigger-manager:old-manager-lease)",
            ),
            (
                |f| f.migration = refused(),
                "MigrationLeaseUnwatched",
                "(Role outrigger-manager:migration-lease)",
            ),
        ];
        for (change, code, role) in unwatched {
            for phase in [Phase::Prepare, Phase::Migrate] {
                let mut facts = complete();
                change(&mut facts);
                assert_eq!(codes(&facts, phase), [code]);
                let message = missing(&facts, phase)[0].message(Some(phase));
                assert!(message.contains("cannot be watched (leases is forbidden)"), "{message}");
                assert!(message.contains(role), "{message}");
            }
        }

        let mut facts = complete();
        facts.main.failure = Some(broken());
        assert_eq!(codes(&facts, Phase::Prepare), NONE, "its last renewal counts");
        facts.main.live_holder = None;
        let message = missing(&facts, Phase::Prepare)[0].message(Some(Phase::Prepare));
        assert!(message.ends_with("wait; this manager tries again"), "{message}");
    }

    #[test]
    fn routes_that_both_sides_run_or_that_are_turned_off_are_no_problem() {
        let mut facts = complete();
        facts.controller_managers.seen[0].routes = true;
        facts.own.routes = true;
        assert_eq!(codes(&facts, Phase::Prepare), NONE);

        facts.own.routes = false;
        assert_eq!(codes(&facts, Phase::Prepare), ["RoutesOwnerMissing"]);
        facts.controller_managers.seen[0].disabled = vec![Controller::Route];
        assert_eq!(codes(&facts, Phase::Prepare), NONE);
    }

    #[test]
    fn what_kubernetes_does_not_show_may_be_attested() {
        let cases: [(&[&str], Change); 5] = [
            (&["ConfigurationUnknown", "LeaderNotProven"], |f| {
                f.controller_managers = seen(vec![with_file()]);
            }),
            (&["ConfigurationsDiffer"], |f| {
                f.controller_managers.seen.push(ControllerManager {
                    configuration: Configuration::OfMigration,
                    ..on_host("kcm-1", GUARDED)
                });
            }),
            (&["CommandLineUnreadable"], |f| {
                f.controller_managers.seen.push(on_host("kcm-1", unreadable_form()));
            }),
            (&["LeaderNotProven"], |f| {
                (f.main, f.migration) = (held("other_a"), held("other_a"));
                f.migration.named_holder = None;
            }),
            (&["PlacesUnreadable", "LeaderNotProven"], |f| {
                f.controller_managers = unreadable();
                f.migration.named_holder = None;
            }),
        ];
        for (expected, change) in cases {
            let mut facts = complete();
            change(&mut facts);
            assert_eq!(codes(&facts, Phase::Prepare), expected);
            facts.attestation = attested(Phase::Prepare, &[]);
            assert_eq!(codes(&facts, Phase::Prepare), NONE, "{expected:?}");
        }
    }

    #[test]
    fn an_attestation_of_some_holders_is_no_proof_of_another_one() {
        let mut facts = complete();
        facts.controller_managers = unreadable();
        facts.migration.named_holder = None;
        facts.attestation = attested(Phase::Prepare, &["kcm-1"]);
        assert_eq!(codes(&facts, Phase::Prepare), ["LeaderNotProven"]);
    }

    #[test]
    fn a_rollout_is_not_attested() {
        let mut facts = complete();
        facts.controller_managers.seen.push(on_host("kcm-1", unreadable_form()));
        let message = |facts: &Facts| missing(facts, Phase::Prepare)[0].message(Some(Phase::Prepare));
        assert!(
            message(&facts).contains("spec.attestation.phase: Prepare"),
            "{}",
            message(&facts)
        );

        facts.controller_managers.seen[1].must_change = true;
        facts.attestation = attested(Phase::Prepare, &[]);
        assert_eq!(codes(&facts, Phase::Prepare), ["CommandLineUnreadable"]);
        assert!(!message(&facts).contains("attestation"), "{}", message(&facts));
    }

    #[test]
    fn an_unguarded_one_among_many_blocks_whatever_is_attested() {
        let mut facts = complete();
        facts.controller_managers.seen.push(on_host("kcm-1", UNGUARDED));
        facts.attestation = attested(Phase::Prepare, &[]);
        for phase in [Phase::Prepare, Phase::Migrate] {
            assert_eq!(codes(&facts, phase), ["UnguardedControllerManager"]);
        }
    }

    #[test]
    fn a_controller_manager_that_runs_none_of_the_shared_controllers_blocks_nothing() {
        let mut facts = complete();
        facts.controller_managers.seen.push(ControllerManager {
            disabled: Controller::SHARED.to_vec(),
            configuration: Configuration::Unproven("it names its own file /x".into()),
            ..on_host("kcm-1", UNGUARDED)
        });
        assert_eq!(codes(&facts, Phase::Prepare), NONE);
        assert!(contradictions(&facts).is_empty());
    }

    #[test]
    fn complete_evidence_is_contradicted_by_an_unguarded_one_and_by_an_unknown_configuration() {
        let contradicting = |change: Change| {
            let mut facts = complete();
            change(&mut facts);
            contradictions(&facts).iter().map(Missing::code).collect::<Vec<_>>()
        };
        assert_eq!(contradicting(|_| {}), NONE);
        assert_eq!(
            contradicting(|f| f.controller_managers.seen.push(kcm(UNGUARDED))),
            ["UnguardedControllerManager"]
        );
        let of_file: Change = |f| f.controller_managers = seen(vec![with_file()]);
        assert_eq!(contradicting(of_file), ["ConfigurationUnknown"]);
        let attested: Change = |f| {
            f.controller_managers = seen(vec![with_file(), kcm(UNGUARDED)]);
            f.attestation = attested(Phase::Prepare, &[]);
        };
        assert_eq!(contradicting(attested), ["UnguardedControllerManager"]);
        let unreadable: Change = |f| {
            f.controller_managers = unreadable();
            f.migration.live_holder = None;
        };
        assert_eq!(contradicting(unreadable), NONE, "it was complete once");
    }

    #[test]
    fn a_holder_is_matched_by_its_host_name_with_or_without_domain() {
        let mut static_pod = kcm(GUARDED);
        static_pod.host_names = vec!["ip-10-0-0-1.ec2.internal".into()];
        for (identity, same) in [
            ("ip-10-0-0-1.ec2.internal_6f", true),
            ("ip-10-0-0-1_6f", true),
            ("ip-10-0-0-11_6f", false),
            ("ip-10-0-0-1.other_6f", false),
        ] {
            assert_eq!(static_pod.is_holder(identity), same, "{identity}");
        }
    }

    #[test]
    fn a_template_whose_pods_are_not_listed_matches_them_by_their_prefix() {
        let template = ControllerManager {
            host_names: Vec::new(),
            host_prefix: Some("kcm-".into()),
            ..kcm(GUARDED)
        };
        for (identity, same) in [
            ("kcm-0_a", true),
            ("kcm-5d9c-x7_a", true),
            ("kcm-_a", false),
            ("other-0_a", false),
        ] {
            assert_eq!(template.is_holder(identity), same, "{identity}");
        }
        assert!(
            !kcm(GUARDED).is_holder("kcm-00_a"),
            "without a prefix the name is the whole one"
        );
    }

    #[test]
    fn exactly_one_side_allocates() {
        use Placement::{Main, Migrated, NotHere};
        let cases = [
            (NotHere, NotHere, ""),
            (NotHere, Main, ""),
            (NotHere, Migrated, ""),
            (Main, NotHere, ""),
            (Migrated, Migrated, ""),
            (Main, Main, "and so does this manager"),
            (Main, Migrated, "and so does this manager"),
            (Migrated, Main, "and so does this manager"),
            (Migrated, NotHere, "no process would allocate"),
        ];
        for (theirs, own, text) in cases {
            let mut facts = complete();
            facts.controller_managers.seen[0].node_ipam = theirs;
            facts.own.node_ipam = own;
            let missing = missing(&facts, Phase::Prepare);
            assert_eq!(missing.len(), usize::from(!text.is_empty()), "{theirs:?} {own:?}");
            for problem in missing {
                let message = problem.message(Some(Phase::Prepare));
                assert!(message.contains(text) && message.contains(&kcm_0()), "{message}");
            }
        }
    }

    #[test]
    fn one_allocator_among_several_is_found_in_each_form_and_is_not_attested() {
        for form in [GUARDED, EXTERNAL] {
            let mut facts = complete();
            let second = ControllerManager {
                node_ipam: Placement::Main,
                ..on_host("kcm-1", form)
            };
            facts.controller_managers.seen.push(second);
            facts.own.node_ipam = Placement::Main;
            facts.attestation = attested(Phase::Prepare, &[]);
            assert_eq!(codes(&facts, Phase::Prepare), ["NodeIpamConflict"]);
        }
    }
}
