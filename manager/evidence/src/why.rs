//! Why this manager does not own the controllers: each reason with its code, a sentence about it, and the command that leads
//! on. Pure. The decision has no texts of its own.

use std::time::Duration;

use outrigger_shared::migration::Phase;

use crate::facts::WatchFailure;

/// One thing that is to be done, or to be waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// `CamelCase`, stable.
    pub code: &'static str,
    /// The observed fact.
    pub observation: String,
    /// The remedy; empty if the state ends by itself.
    pub fix: String,
}

impl Item {
    pub fn new(code: &'static str, observation: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            code,
            observation: observation.into(),
            fix: fix.into(),
        }
    }

    /// Both in one sentence.
    pub fn message(&self) -> String {
        match self.fix.as_str() {
            "" => self.observation.clone(),
            fix => format!("{}: {fix}", self.observation),
        }
    }
}

/// All of them in one sentence.
pub fn message_of(items: &[Item]) -> String {
    items.iter().map(Item::message).collect::<Vec<_>>().join("; ")
}

/// The names that commands and messages need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Of the `CloudProviderMigration`.
    pub migration: String,
    /// Of the leases.
    pub namespace: String,
    /// The kube-controller-manager's main lease.
    pub old_main_lease: String,
    pub migration_lease: String,
}

/// A source that was not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    Migration,
    ControllerManagers,
    MainLease,
    MigrationLease,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Migration => "the CloudProviderMigration",
            Self::ControllerManagers => "the list of kube-controller-managers",
            Self::MainLease => "the kube-controller-manager's main lease",
            Self::MigrationLease => "the migration lease",
        }
    }
}

/// The holder of K that is not proven to act only while it holds M.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproven {
    pub identity: String,
    pub reason: UnprovenReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnprovenReason {
    /// The object runs in-tree without leader migration.
    Unguarded(String),
    /// It is none of those that are listed. Contains the objects that are not believed, with the reasons.
    NotListed(Vec<String>),
    /// The object's command line cannot be read, and why.
    Unreadable(String, String),
    /// The object's leader migration configuration is not known, and why.
    Configuration(String, String),
    /// The object is of an old list: its place cannot be listed now.
    OldList(String),
    /// A place cannot be listed, or none was found.
    Places(Box<Missing>),
    /// The attestation does not count for it: it led before the phase began, and never held M.
    LedBefore,
}

impl Unproven {
    /// Whether its command line shows that it acts without M, or every command line can be read and none is its.
    pub fn is_known_to_be_wrong(&self) -> bool {
        matches!(
            self.reason,
            UnprovenReason::Unguarded(_) | UnprovenReason::NotListed(_) | UnprovenReason::LedBefore
        )
    }

    fn item(&self, phase: Option<Phase>) -> Item {
        let identity = &self.identity;
        let attest = attest(phase);
        let leads = format!("the kube-controller-manager {identity:?} holds its main lease");
        let (observation, fix) = match &self.reason {
            UnprovenReason::Unguarded(object) => (
                format!("{leads} and runs in-tree without leader migration ({object})"),
                format!("{}; if it must not run, stop or delete it", roll(phase)),
            ),
            UnprovenReason::NotListed(ignored) => (
                format!(
                    "the holder {identity:?} of the kube-controller-manager's main lease is none of the kube-controller-managers that can be read{}",
                    ignored_text(ignored)
                ),
                format!("if it is in-tree without leader migration, stop it; else correct spec.targets, {attest}"),
            ),
            UnprovenReason::Unreadable(object, reason) => (
                format!("{leads}, and the flags that {object} runs with are not known ({reason})"),
                format!("make them readable, {attest}"),
            ),
            UnprovenReason::Configuration(object, why) => (
                format!("{leads}, and {object}: {why}"),
                format!("remove --leader-migration-config, set spec.leaderMigration, {attest}"),
            ),
            UnprovenReason::OldList(object) => (
                format!("{leads}, and {object} cannot be read any more"),
                format!("correct the access, {attest}"),
            ),
            UnprovenReason::Places(missing) => {
                let missing = missing.item(phase);
                (format!("{leads}, and {}", missing.observation), missing.fix)
            }
            UnprovenReason::LedBefore => (
                format!(
                    "spec.attestation does not count for {identity:?}, which has held the kube-controller-manager's main lease since before this phase began, and never the migration lease"
                ),
                "restart that kube-controller-manager with the flags of the phase".to_owned(),
            ),
        };
        Item {
            code: match self.reason {
                UnprovenReason::Unguarded(_) => code::UNGUARDED,
                _ => code::LEADER_NOT_PROVEN,
            },
            observation,
            fix,
        }
    }
}

fn ignored_text(ignored: &[String]) -> String {
    match ignored {
        [] => String::new(),
        ignored => format!(" ({})", ignored.join("; ")),
    }
}

/// The attestation that is possible in the phase.
fn attest(phase: Option<Phase>) -> String {
    match phase {
        Some(Phase::Prepare) => {
            "or, when each one has leader migration on, attest that with spec.attestation.phase: Prepare".to_owned()
        }
        Some(Phase::Migrate | Phase::Complete) => {
            "or, when each one is external or has leader migration on, attest that with spec.attestation.phase: Migrate"
                .to_owned()
        }
        Some(Phase::InTree) | None => "or, in phase Prepare, attest it with spec.attestation".to_owned(),
    }
}

fn roll(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Migrate | Phase::Complete) => {
            "roll its workload in phase Migrate, so that the webhook sets --cloud-provider=external, or write that flag into the file of the static Pod"
        }
        _ => {
            "roll its workload in phase Prepare, so that the webhook adds --enable-leader-migration, or add the flag to the file of the static Pod"
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIpamProblem {
    Both,
    Neither,
}

/// A fact that is missing before this manager may own the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    MainLeaseUnwatched(WatchFailure),
    MigrationLeaseUnwatched(WatchFailure),
    /// No process renews K.
    MainLeaseIdle,
    /// No process renews M.
    MigrationLeaseIdle,
    TwoHolders {
        main: String,
        migration: String,
    },
    ShortDuration {
        shortest: Duration,
        deadline: Duration,
    },
    /// K or M has `spec.strategy` or `spec.preferredHolder`.
    Coordinated,
    Unguarded(String),
    /// In-tree, and it elects no leader by K. `flag` says so.
    Unlocked {
        object: String,
        flag: String,
    },
    /// External with leader migration.
    LeftOn(String),
    Unreadable {
        object: String,
        reason: String,
        may_be_attested: bool,
    },
    /// Places that cannot be listed.
    Places(Vec<String>),
    /// No kube-controller-manager was found. Contains the objects that are not believed.
    NoneFound(Vec<String>),
    Configuration {
        object: String,
        why: String,
    },
    /// Two objects with different ones.
    Configurations(String, String),
    Routes(String),
    NodeIpam(String, NodeIpamProblem),
    /// The kube-controller-managers are being listed, because of a new holder of K.
    Listing(Option<String>),
    /// It acquired K shortly before this manager started.
    NewLeader(String),
    Leader(Unproven),
}

impl Missing {
    /// It ends by itself, within one lease duration and one request.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Listing(_) | Self::NewLeader(_))
    }

    /// The fact and its remedy. `phase`: the one that is followed.
    pub fn item(&self, phase: Option<Phase>) -> Item {
        let attest = attest(phase);
        match self {
            Self::MainLeaseUnwatched(failure) => unwatched(Source::MainLease, failure),
            Self::MigrationLeaseUnwatched(failure) => unwatched(Source::MigrationLease, failure),
            Self::MainLeaseIdle => Item::new(
                "MainLeaseIdle",
                "the kube-controller-manager's main lease is not being renewed",
                "check that a kube-controller-manager runs, and that spec.kubeControllerManagerLease names its lease",
            ),
            Self::MigrationLeaseIdle => Item::new(
                "MigrationLeaseIdle",
                "no process renews the migration lease",
                "start the leading kube-controller-manager with --enable-leader-migration, and grant user system:kube-controller-manager get, update and create on that lease (Role outrigger:kube-controller-manager:migration-lease)",
            ),
            Self::TwoHolders { main, migration } => two_holders(main, migration),
            Self::ShortDuration { shortest, deadline } => short_duration(*shortest, *deadline),
            Self::Coordinated => coordinated(),
            Self::Unguarded(object) => Item::new(
                code::UNGUARDED,
                format!("{object} runs in-tree without leader migration"),
                format!("{}; if it must not run, stop or delete it", roll(phase)),
            ),
            Self::Unlocked { object, flag } => unlocked(object, flag),
            Self::LeftOn(object) => Item::new(
                code::LEFT_ON,
                format!(
                    "{object} has --enable-leader-migration, but no in-tree provider, so it would hold the migration lease and run no cloud controller"
                ),
                "remove the flag",
            ),
            Self::Unreadable {
                object,
                reason,
                may_be_attested,
            } => unreadable(object, reason, may_be_attested.then_some(&attest)),
            Self::Places(problems) => Item::new(
                "PlacesUnreadable",
                format!(
                    "not every kube-controller-manager can be read ({})",
                    problems.join("; ")
                ),
                format!("correct the targets or the access, {attest}"),
            ),
            Self::NoneFound(ignored) => none_found(ignored, &attest),
            Self::Configuration { object, why } => Item::new(
                "ConfigurationUnknown",
                format!("{object}: {why}"),
                format!("remove --leader-migration-config, set spec.leaderMigration, {attest}"),
            ),
            Self::Configurations(first, other) => Item::new(
                "ConfigurationsDiffer",
                format!("{first} and {other} have different leader migration configurations"),
                "give all the same",
            ),
            Self::Routes(object) => Item::new(
                "RoutesOwnerMissing",
                format!("{object} runs the route controller, and this manager does not"),
                "remove --configure-cloud-routes=false here, or set it there first",
            ),
            Self::NodeIpam(object, problem) => node_ipam(object, *problem),
            Self::Listing(identity) => listing(identity.as_deref()),
            Self::NewLeader(identity) => new_leader(identity),
            Self::Leader(unproven) => unproven.item(phase),
        }
    }

    pub fn code(&self) -> &'static str {
        self.item(None).code
    }

    pub fn message(&self, phase: Option<Phase>) -> String {
        self.item(phase).message()
    }
}

fn node_ipam(object: &str, problem: NodeIpamProblem) -> Item {
    let (observation, fix) = match problem {
        NodeIpamProblem::Neither => (
            format!(
                "{object} runs node IPAM under the migration lease, and this manager does not run it, so no process would allocate Pod CIDRs after the migration"
            ),
            "add node-ipam-controller to --controllers and set --allocate-node-cidrs here, or remove node IPAM from the leader migration configuration of both",
        ),
        NodeIpamProblem::Both => (
            format!(
                "{object} runs node IPAM (--allocate-node-cidrs=true, and --controllers does not contain -nodeipam), and so does this manager (--allocate-node-cidrs, and --controllers names node-ipam-controller)"
            ),
            "add -nodeipam to --controllers there, or remove node-ipam-controller here; only a leader migration configuration of both that names node IPAM lets one process run it at a time",
        ),
    };
    Item::new(code::NODE_IPAM, observation, fix)
}

fn unlocked(object: &str, flag: &str) -> Item {
    Item::new(
        code::UNLOCKED,
        format!(
            "{object} runs in-tree and does not elect its leader by the lease that spec.kubeControllerManagerLease names ({flag}), so it acts without that lease"
        ),
        "remove the flag or correct spec.kubeControllerManagerLease, or stop it",
    )
}

fn new_leader(identity: &str) -> Item {
    Item::new(
        code::NEW_LEADER,
        format!(
            "{identity:?} acquired the kube-controller-manager's main lease shortly before this manager started: waiting until a process that held it before has ended, at most one lease duration"
        ),
        "",
    )
}

fn unwatched(source: Source, failure: &WatchFailure) -> Item {
    let (code, remedy) = match source {
        Source::MainLease => (
            "MainLeaseUnwatched",
            "let this manager list and watch the lease that spec.kubeControllerManagerLease names (Role outrigger-manager:old-manager-lease)",
        ),
        _ => (
            "MigrationLeaseUnwatched",
            "let this manager get, list, watch and update it (Role outrigger-manager:migration-lease)",
        ),
    };
    let fix = match failure.is_forbidden {
        true => remedy,
        false => "wait; this manager tries again",
    };
    Item::new(
        code,
        format!("{} cannot be watched ({})", source.name(), failure.message),
        fix,
    )
}

fn two_holders(main: &str, migration: &str) -> Item {
    Item::new(
        "TwoHolders",
        format!(
            "the kube-controller-manager's main lease is held by {main:?} and the migration lease by {migration:?}, so one process does not hold both"
        ),
        "wait if a rollout is in progress, else stop the process that holds the migration lease",
    )
}

fn short_duration(shortest: Duration, deadline: Duration) -> Item {
    Item::new(
        "ShortLeaseDuration",
        format!(
            "the kube-controller-manager's lease duration is {shortest:?}, not longer than this manager's renew deadline of {deadline:?}"
        ),
        "raise its --leader-elect-lease-duration (default 15s), or lower this manager's --leader-elect-renew-deadline",
    )
}

fn coordinated() -> Item {
    Item::new(
        "CoordinatedLease",
        "a lease has spec.strategy or spec.preferredHolder, so API servers decide who holds it (coordinated leader election), and its record is no proof",
        "turn the feature gate CoordinatedLeaderElection off in the kube-controller-managers and kube-apiservers, and delete that lease",
    )
}

fn unreadable(object: &str, reason: &str, attest: Option<&String>) -> Item {
    Item::new(
        "CommandLineUnreadable",
        format!("the flags that {object} runs with are not known ({reason})"),
        attest.map_or_else(
            || "wait for the end of the rollout, or correct its flags".to_owned(),
            |attest| format!("make them readable, {attest}"),
        ),
    )
}

fn none_found(ignored: &[String], attest: &str) -> Item {
    Item::new(
        "NoneFound",
        format!(
            "no kube-controller-manager was found by a target of profile HostedControlPlane or, without one, in kube-system by the label component=kube-controller-manager or k8s-app=kube-controller-manager{}",
            ignored_text(ignored)
        ),
        format!("correct the targets or the access, {attest}"),
    )
}

fn listing(identity: Option<&str>) -> Item {
    let holder = identity.map_or_else(|| "another process".to_owned(), |identity| format!("{identity:?}"));
    Item::new(
        code::LISTING,
        format!("the kube-controller-managers are being listed, because {holder} holds their main lease"),
        "",
    )
}

pub fn items(all: &[Missing], phase: Option<Phase>) -> Vec<Item> {
    all.iter().map(|missing| missing.item(phase)).collect()
}

/// A process that may acquire K and act without M.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taker {
    MainLeaseUnwatched,
    /// Not every one is known.
    Unknown(Box<Missing>),
    /// The object is in-tree without leader migration, or cannot be read.
    Listed(String),
}

impl Taker {
    fn observation(&self, phase: Option<Phase>) -> String {
        match self {
            Self::MainLeaseUnwatched => "that lease cannot be watched".to_owned(),
            Self::Unknown(missing) => missing.item(phase).observation,
            Self::Listed(object) => {
                format!("{object} may acquire it and is not known to be external or to have leader migration on")
            }
        }
    }
}

/// Why this manager does not compete for M, or does not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    NotReadYet(Source),
    MigrationUnreadable,
    /// The phase leaves the controllers to the old manager, and it owns them.
    OldManagerOwns(Phase),
    /// The phase leaves them to the old manager, and it is not known to own them.
    NotOwned(Phase, Vec<Missing>),
    /// The same, and every one is external.
    NoOwner(Phase),
    EvidenceMissing(Phase, Vec<Missing>),
    StoringEvidence,
    /// In a step back M is released, for that long, so that the old manager can acquire it.
    Offering(Duration),
    /// M is held by a process that is no manager of Outrigger: the holder, and the external kube-controller-manager that holds it for
    /// nothing.
    LeaseInUse {
        holder: Option<String>,
        for_nothing: Option<String>,
        failure: Option<WatchFailure>,
    },
    /// K has a new holder, and the kube-controller-managers are being listed.
    Listing(String),
    /// The holder of K acquired it shortly before this manager started.
    NewLeader(String),
    Leader(Option<Phase>, Unproven),
    /// No process holds K, and one may acquire it that acts without M.
    MainLeaseNotHeld(Option<Phase>, Taker),
    Unlocked(String, String),
}

impl Why {
    /// `CamelCase`, for conditions; stable.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReadYet(_) => code::NOT_READ_YET,
            Self::MigrationUnreadable => code::MIGRATION_UNREADABLE,
            Self::OldManagerOwns(_) => code::OLD_MANAGER_OWNS,
            Self::NoOwner(_) => code::NO_OWNER,
            Self::NotOwned(..) | Self::EvidenceMissing(..) => code::EVIDENCE_MISSING,
            Self::StoringEvidence => code::STORING_EVIDENCE,
            Self::Offering(_) => code::STEPPING_BACK,
            Self::LeaseInUse { .. } => code::LEASE_IN_USE,
            Self::Listing(_) => code::LISTING,
            Self::NewLeader(_) => code::NEW_LEADER,
            Self::Leader(_, unproven) => match unproven.reason {
                UnprovenReason::Unguarded(_) => code::UNGUARDED,
                _ => code::LEADER_NOT_PROVEN,
            },
            Self::MainLeaseNotHeld(..) => code::MAIN_LEASE_NOT_HELD,
            Self::Unlocked(..) => code::UNLOCKED,
        }
    }

    /// It ends by itself, within one lease duration and one request.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NotReadYet(_) | Self::StoringEvidence | Self::Offering(_) | Self::Listing(_) | Self::NewLeader(_) => {
                true
            }
            Self::EvidenceMissing(_, missing) | Self::NotOwned(_, missing) => missing.iter().all(Missing::is_passing),
            Self::LeaseInUse { holder, failure, .. } => holder.is_none() && failure.is_none(),
            _ => false,
        }
    }

    /// The state, and what ends it: one entry for each missing fact.
    pub fn items(&self) -> Vec<Item> {
        let item = |observation: String, fix: &str| vec![Item::new(self.code(), observation, fix)];
        match self {
            Self::NotReadYet(source) => item(
                format!("{} has not been read yet", source.name()),
                "if this lasts, the manager's log names the failed request",
            ),
            Self::MigrationUnreadable => item(
                "the CloudProviderMigration cannot be read and no evidence is recorded".to_owned(),
                "make it readable, or correct --migration",
            ),
            Self::OldManagerOwns(phase) => item(
                format!("phase {phase}: the kube-controller-manager owns the controllers"),
                match phase {
                    Phase::InTree => "set spec.phase to Prepare to begin the migration",
                    _ => "set spec.phase to Migrate when the condition Prepared is True",
                },
            ),
            Self::NoOwner(phase) => item(
                format!(
                    "phase {phase}: a kube-controller-manager has to own the controllers, but every one is external, so no process owns them"
                ),
                "roll the kube-controller-managers, so that they become in-tree again, or set spec.phase forward to Migrate, one step at a time",
            ),
            Self::NotOwned(phase, missing) | Self::EvidenceMissing(phase, missing) => items(missing, Some(*phase)),
            Self::StoringEvidence => item(
                "the evidence is complete: storing it on the main lease first".to_owned(),
                "",
            ),
            Self::Offering(time) => item(
                format!("the migration lease is offered to the kube-controller-managers for {time:?}"),
                "roll one of them in phase Prepare; else this manager acquires the lease again",
            ),
            Self::LeaseInUse {
                holder,
                for_nothing,
                failure,
            } => vec![lease_in_use(
                holder.as_deref(),
                for_nothing.as_deref(),
                failure.as_ref(),
            )],
            Self::Listing(identity) => item(
                format!(
                    "{identity:?} holds the kube-controller-manager's main lease now: listing the kube-controller-managers; this manager writes nothing until it is known that that process acts only while it holds the migration lease"
                ),
                "",
            ),
            Self::NewLeader(identity) => vec![new_leader(identity)],
            Self::Leader(phase, unproven) => vec![unproven.item(*phase)],
            Self::MainLeaseNotHeld(phase, taker) => item(
                format!(
                    "no process holds the kube-controller-manager's main lease, and {}: this manager writes nothing until a kube-controller-manager holds that lease that acts only while it holds the migration lease",
                    taker.observation(*phase)
                ),
                "start one with the flags of the phase",
            ),
            Self::Unlocked(object, flag) => vec![unlocked(object, flag)],
        }
    }

    /// A sentence about the state and about what ends it.
    pub fn message(&self) -> String {
        let message = message_of(&self.items());
        match self {
            Self::NotOwned(phase, _) => {
                format!("phase {phase}: no kube-controller-manager is known to own the controllers: {message}")
            }
            _ => message,
        }
    }

    /// A kubectl line that shows the state or ends it.
    pub fn command(&self, names: &Names) -> Option<String> {
        let Names {
            migration,
            namespace,
            old_main_lease,
            migration_lease,
        } = names;
        Some(match self {
            Self::OldManagerOwns(Phase::InTree) => {
                format!("kubectl patch cpm {migration} --type=merge -p '{{\"spec\":{{\"phase\":\"Prepare\"}}}}'")
            }
            Self::NoOwner(_) => {
                format!("kubectl patch cpm {migration} --type=merge -p '{{\"spec\":{{\"phase\":\"Migrate\"}}}}'")
            }
            Self::LeaseInUse { .. } => format!("kubectl get lease -n {namespace} {migration_lease} -o yaml"),
            Self::Leader(..) | Self::MainLeaseNotHeld(..) | Self::Listing(_) => {
                format!("kubectl get lease -n {namespace} {old_main_lease} -o yaml")
            }
            _ => return None,
        })
    }
}

fn lease_in_use(holder: Option<&str>, for_nothing: Option<&str>, failure: Option<&WatchFailure>) -> Item {
    let name = holder.unwrap_or_default();
    let (observation, fix) = match (for_nothing, holder, failure) {
        (Some(object), ..) => (
            format!("the migration lease is held by {name:?}, and {object} runs no cloud controller"),
            "remove its --enable-leader-migration",
        ),
        (None, Some(_), _) => (
            format!("the migration lease is held by {name:?}"),
            "stop that process, or wait until it releases it; if it has ended, this manager acquires the lease when its record expires",
        ),
        (None, None, Some(failure)) => return Missing::MigrationLeaseUnwatched(failure.clone()).item(None),
        (None, None, None) => (
            "waiting until the migration lease has been idle for its full duration".to_owned(),
            "",
        ),
    };
    Item::new(code::LEASE_IN_USE, observation, fix)
}

/// A fact that the operator should know, and that changes nothing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Why the object cannot be read.
    MigrationUnreadable(String),
    InTreeNotFollowed,
    /// The object runs in-tree without leader migration, and does not hold K.
    UnguardedStandby(String),
    /// An object that is not believed, with the reason.
    Ignored(String),
    /// The attestation was there before the phase began.
    AttestationLeftOver,
}

impl Warning {
    pub fn item(&self, phase: Option<Phase>) -> Item {
        match self {
            Self::MigrationUnreadable(why) => Item::new(
                code::MIGRATION_UNREADABLE,
                format!(
                    "the CloudProviderMigration cannot be read ({why}), so the phase of the recorded evidence is followed"
                ),
                "make it readable",
            ),
            Self::InTreeNotFollowed => Item::new(
                code::IN_TREE_NOT_FOLLOWED,
                "phase InTree is not followed, because this manager owns the controllers and every kube-controller-manager is external; Prepare is followed instead",
                "set spec.phase to Prepare, roll the kube-controller-managers, and set InTree when one of them holds the migration lease",
            ),
            Self::UnguardedStandby(object) => Item::new(
                code::UNGUARDED,
                format!(
                    "{object} runs in-tree without leader migration; it does not lead, and this manager stops writing if it does"
                ),
                format!("{}; if it must not run, stop or delete it", roll(phase)),
            ),
            Self::Ignored(why) => Item::new(code::IGNORED, why.clone(), ""),
            Self::AttestationLeftOver => Item::new(
                code::ATTESTATION_LEFT_OVER,
                "spec.attestation does not count: it was there when this phase was first observed, so it may be of an earlier run",
                "remove it, and set it again when every kube-controller-manager has the flags of the phase",
            ),
        }
    }

    pub fn message(&self, phase: Option<Phase>) -> String {
        self.item(phase).message()
    }
}

/// The reasons of the conditions `Ready` and `ControlPlaneMigrated`.
pub mod code {
    pub const NOT_READ_YET: &str = "NotReadYet";
    pub const OLD_MANAGER_OWNS: &str = "OldManagerOwns";
    pub const NO_OWNER: &str = "NoOwner";
    pub const EVIDENCE_MISSING: &str = "EvidenceMissing";
    pub const STORING_EVIDENCE: &str = "StoringEvidence";
    pub const STEPPING_BACK: &str = "SteppingBack";
    pub const UNGUARDED: &str = "UnguardedControllerManager";
    pub const LEADER_NOT_PROVEN: &str = "LeaderNotProven";
    pub const LISTING: &str = "Listing";
    pub const NEW_LEADER: &str = "NewLeader";
    pub const MAIN_LEASE_NOT_HELD: &str = "MainLeaseNotHeld";
    pub const UNLOCKED: &str = "UnlockedControllerManager";
    pub const MIGRATION_UNREADABLE: &str = "MigrationUnreadable";
    pub const LEASE_IN_USE: &str = "LeaseInUse";
    pub const NODE_IPAM: &str = "NodeIpamConflict";
    pub const ACQUIRING: &str = "Acquiring";
    pub const HELD_BY_OTHER: &str = "LeaseHeldByOther";
    pub const HELD_FOR_NOTHING: &str = "HeldForNothing";
    pub const LEASE_REQUEST_FAILED: &str = "LeaseRequestFailed";
    pub const LEFT_ON: &str = "LeaderMigrationLeftOn";
    pub const IN_TREE_LEFT: &str = "InTreeLeft";
    pub const UNDECIDED: &str = "Undecided";
    pub const NOT_READABLE: &str = "NotReadable";
    pub const MIGRATED: &str = "Migrated";
    pub const EVIDENCE_LATCHED: &str = "EvidenceLatched";
    pub const COMPLETED: &str = "Completed";
    pub const NOT_YET: &str = "NotYet";
    pub const KUBELETS_LEFT: &str = "KubeletsLeft";
    pub const FOLLOWED: &str = "Followed";
    pub const IN_TREE_NOT_FOLLOWED: &str = "InTreeNotFollowed";
    pub const SPEC_NOT_FOLLOWED: &str = "SpecNotFollowed";
    pub const NOT_LED: &str = "NotLed";
    pub const IGNORED: &str = "MirrorPodIgnored";
    pub const ATTESTATION_LEFT_OVER: &str = "AttestationLeftOver";
}
