//! The scenarios and their bounds.

use std::time::Duration;

use outrigger_cluster_harness::tools::Tool;
use outrigger_timeline::{Bounds, Limits};

/// From the end of a process that does not release M until the next holder: the lease duration and a reaction.
const GAP: Duration = Duration::from_millis(15_500);

/// While the operator stops one side and starts the other.
const DOWNTIME: Duration = Duration::from_secs(75);
/// While no process of ours can read the latch.
const WAITING: Duration = Duration::from_secs(90);
/// From the end of a Pod to the start of the next one.
const START: Duration = Duration::from_secs(2);
/// Our release, the lead of an old manager for 45 s, the expiry of its lease, and at most 60 s until there is an owner again.
const OLD_LEADER: Duration = Duration::from_secs(135);
/// Until a process of ours has read what it needs to follow a latch that it cannot read.
const UNREADABLE: Duration = Duration::from_secs(40);
/// Until a process of ours owns although one API server does not answer.
const SILENT: Duration = Duration::from_secs(90);
/// Where no old manager can be read, our manager waits until a proven process holds K. After its expiry, client-go tries to
/// acquire a lease at intervals of at most 2.2 times 2 s.
const OLD_LEASE: Duration = Duration::from_millis(4_400);
/// While no API server answers, and until a process of ours has started again.
const OUTAGE: Duration = Duration::from_secs(120);

/// The scenarios by their numbers. Not every planned one exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    ThereAndBack = 1,
    SecondRun = 2,
    Paused = 3,
    StaticPods = 4,
    Unguarded = 5,
    Leases = 6,
    CutOff = 7,
    Configurations = 8,
    SlowApi = 9,
    RandomEnds = 10,
    Blind = 11,
    Downtime = 12,
    Uninstalled = 13,
    OldPaused = 14,
    Incumbent = 15,
    NewerLatch = 16,
    Unanswered = 17,
    Routes = 18,
    Scale = 19,
    LateWrite = 23,
    OldEnds = 24,
    BothRoutes = 25,
    HiddenLeader = 26,
    ForgedService = 27,
    WorkerMirrorPod = 28,
    UnguardedStandby = 29,
    DamagedLatch = 30,
    AlarmInRoll = 31,
    SilentApi = 32,
    StaleAttestation = 33,
    RestartingGuarded = 34,
}

impl Scenario {
    pub const ALL: [Self; 25] = [
        Self::ThereAndBack,
        Self::SecondRun,
        Self::Paused,
        Self::StaticPods,
        Self::Unguarded,
        Self::Leases,
        Self::CutOff,
        Self::RandomEnds,
        Self::Blind,
        Self::Downtime,
        Self::Uninstalled,
        Self::OldPaused,
        Self::Incumbent,
        Self::NewerLatch,
        Self::Unanswered,
        Self::Routes,
        Self::LateWrite,
        Self::OldEnds,
        Self::BothRoutes,
        Self::HiddenLeader,
        Self::ForgedService,
        Self::UnguardedStandby,
        Self::DamagedLatch,
        Self::AlarmInRoll,
        Self::StaleAttestation,
    ];

    /// These run only by their number.
    pub const BY_NUMBER: [Self; 6] = [
        Self::Configurations,
        Self::SlowApi,
        Self::Scale,
        Self::WorkerMirrorPod,
        Self::SilentApi,
        Self::RestartingGuarded,
    ];

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn of_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain(Self::BY_NUMBER);
        all.find(|scenario| scenario.number() == number)
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::ThereAndBack => "Prepare, Migrate, back to Prepare, Migrate, Complete",
            Self::SecondRun => "back to InTree after Complete, and a second migration",
            Self::Paused => {
                "SIGSTOP of our leader for 60 s, in Prepare, and with an AWS write in flight in Migrate and in Complete"
            }
            Self::StaticPods => "three static Pods, rolled one by one, one of them 60 s late",
            Self::Unguarded => {
                "an in-tree manager without leader migration waits for 60 s, leads when the external one has ended, and \
                 ends, in Migrate and in Complete"
            }
            Self::Leases => "leases deleted and emptied by hand, in Prepare and in Migrate",
            Self::RandomEnds => "our leader ends at random moments, also in the middle of steps in both directions",
            Self::Blind => "the migration object is deleted and created again in Migrate, and deleted in a step back",
            Self::Uninstalled => "the manager is uninstalled before the steps back, and installed again in InTree",
            Self::OldPaused => "SIGSTOP of the old manager for 60 s while it holds the migration lease in Migrate",
            Self::Unanswered => "a step back while an AWS write has no answer, so that the lease is left to expire",
            Self::Configurations => {
                "an external manager with leader migration, a partial list, names of 1.28, two leases"
            }
            Self::Downtime => "downtime, a start at Complete and an attested phase; our leader ends after each phase",
            Self::Incumbent => {
                "from our manager to aws-cloud-controller-manager v1.37 and back, in Migrate and in Complete"
            }
            Self::NewerLatch => "a rolling update with a newer field in the latch, and with a newer format",
            Self::Routes => "the old manager alone runs the route controller; node IPAM in the list",
            Self::Scale => {
                "many Services and Nodes with AWS's request limits: to our manager, and on to \
                 aws-cloud-controller-manager v1.37"
            }
            Self::OldEnds => "the old manager ends at random moments, also in the middle of steps in both directions",
            Self::BothRoutes => "Migrate, back to Prepare, and Migrate, where both sides run the route controller",
            Self::LateWrite => "AWS carries out a write of the old manager 8 s after the end of its process",
            Self::CutOff => {
                "our leader is cut off from both APIs, from AWS and from all for 60 s, with an AWS write in flight"
            }
            Self::SlowApi => "the API servers are slow for 2 min, one is killed for 60 s, etcd is stopped for 30 s",
            Self::HiddenLeader => {
                "an in-tree manager that no Pod shows becomes the leader for 45 s, in Migrate and in Complete, while the \
                 port of a Service changes every 2 s"
            }
            Self::ForgedService => {
                "a user with ClusterRole `edit` in one namespace forges a write of the old manager in `managedFields`, of \
                 now and of 2099"
            }
            Self::WorkerMirrorPod => {
                "the kubelet of a worker forges mirror Pods of the old manager: one in-tree, and an external one that has \
                 the address of a hidden in-tree leader"
            }
            Self::UnguardedStandby => {
                "an in-tree manager without leader migration waits for 60 s beside a live external leader, in Migrate and \
                 in Complete, and then leads"
            }
            Self::DamagedLatch => "the latch is edited to garbage, and our leader ends, in Migrate and in Complete",
            Self::AlarmInRoll => {
                "an in-tree manager without leader migration appears for 15 s in Migrate, and the latch is removed, before \
                 the last guarded one is rolled"
            }
            Self::SilentApi => {
                "the management API accepts connections and answers no request: a manager starts, and another one runs"
            }
            Self::StaleAttestation => {
                "back to InTree, and on to Prepare and Migrate, with an old attestation; no old manager can be read"
            }
            Self::RestartingGuarded => {
                "a step back to an old manager that has no right to the migration lease and restarts every 24 s"
            }
        }
    }

    /// The limits of the gaps. [`Self::other_bound`] has the reasons.
    pub(super) fn limits(self) -> Limits {
        let mut limits = Limits::default();
        match self {
            Self::Downtime => limits.old_to_new += DOWNTIME,
            Self::NewerLatch => limits.new_to_new_killed += WAITING,
            Self::Incumbent => limits.old_to_new += START,
            Self::SlowApi => limits.new_to_new_killed += OUTAGE,
            Self::DamagedLatch | Self::AlarmInRoll => limits.new_to_new_killed = UNREADABLE,
            Self::SilentApi => limits.new_to_new_killed = SILENT,
            Self::StaleAttestation => limits.old_to_new += OLD_LEASE,
            _ => {}
        }
        limits
    }

    /// A bound that the other scenarios do not have, and its reason.
    pub(super) fn other_bound(self) -> Option<&'static str> {
        Some(match self {
            Self::Downtime => "90.5 s from the old manager to ours. The operator stops the old manager first.",
            Self::NewerLatch => "105.5 s after SIGKILL. No process can read the latch until the operator removes it.",
            Self::Incumbent => {
                "17.5 s from aws-cloud-controller-manager to ours. It does not release its leases, and our process \
                 observes them from its own start on."
            }
            Self::Scale => {
                "our manager has read every load balancer, and added the Node that joined to it, in the time that its \
                 part of AWS's rate allows: at most four reads for each classic and nine for each network load balancer, \
                 at a quarter of 10 each second for each API (`--aws-api-budget-share`), and 60 s more for the simulated \
                 AWS, which carries out one call at a time. For 150 Services that is 281.6 s, for 300 503.2 s. \
                 aws-cloud-controller-manager takes the whole rate, and has no bound here."
            }
            Self::SlowApi => "135.5 s from ours to ours. No API server answers meanwhile.",
            Self::DamagedLatch | Self::AlarmInRoll => {
                "40 s after SIGKILL. The next process gathers the evidence again."
            }
            Self::SilentApi => "90 s after SIGKILL. The next process waits for answers of the management API in vain.",
            Self::StaleAttestation => {
                "19.9 s from the old manager to ours. No old manager can be read, so ours waits until a proven one has \
                 acquired its main lease, which has to expire before."
            }
            _ => return None,
        })
    }

    /// Whether the API server limits each kubelet to its own Node and Pods.
    pub(super) fn needs_node_restriction(self) -> bool {
        self == Self::WorkerMirrorPod
    }

    /// The tools that it needs beside those of each environment.
    pub(super) fn tools(self) -> &'static [Tool] {
        match self {
            Self::Incumbent | Self::Scale => &[Tool::AwsCloudControllerManager],
            _ => &[],
        }
    }

    /// The bounds of this scenario. A scenario that takes the owner away on purpose allows the time of this.
    pub(super) fn bounds(self) -> Bounds {
        let (hand_overs, ownerless) = match self {
            Self::StaticPods | Self::Leases | Self::OldPaused | Self::Routes | Self::LateWrite => (1, GAP),
            Self::Scale => (2, GAP),
            Self::ThereAndBack | Self::SecondRun | Self::Paused | Self::Blind | Self::BothRoutes => (3, GAP),
            Self::Configurations | Self::CutOff => (4, GAP),
            // An end in the middle of an offer adds its gap to the offer.
            Self::RandomEnds => (10, Duration::from_secs(45)),
            // An old manager that ends in a step back leaves its leases to expire, and M is offered again after that.
            Self::OldEnds => (5, Duration::from_secs(60)),
            // Nobody of ours is there: the old manager is rolled, and waits for the lease of its predecessor.
            Self::Uninstalled => (3, Duration::from_secs(60)),
            // The lease expires, and is offered for 10 s.
            Self::Unanswered => (2, Duration::from_secs(30)),
            Self::Downtime => (10, GAP + DOWNTIME),
            Self::Incumbent => (5, GAP + START),
            Self::NewerLatch => (3, WAITING),
            Self::SlowApi => (3, OUTAGE),
            Self::Unguarded | Self::HiddenLeader | Self::WorkerMirrorPod | Self::UnguardedStandby => (1, OLD_LEADER),
            Self::ForgedService => (1, GAP),
            Self::DamagedLatch => (3, UNREADABLE),
            // Our release after at most 12 s, 15 s, and at most 30 s until there is an owner again.
            Self::AlarmInRoll => (2, Duration::from_secs(60)),
            Self::SilentApi => (2, SILENT),
            Self::StaleAttestation => (4, GAP + OLD_LEASE),
            // Each restart of the old manager may add an offer.
            Self::RestartingGuarded => (2, Duration::from_secs(60)),
        };
        Bounds {
            hand_overs,
            ownerless,
            // The scale's own bound depends on its size.
            observed: None,
            // These two hold a write of ours in AWS for longer than a lease on purpose.
            late_effects: matches!(self, Self::Paused | Self::CutOff),
            overrun: match self {
                Self::Unguarded
                | Self::HiddenLeader
                | Self::WorkerMirrorPod
                | Self::UnguardedStandby
                | Self::StaleAttestation => Some(Duration::ZERO),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_finds_its_scenario_and_other_limits_have_a_reason() {
        for scenario in Scenario::ALL.into_iter().chain(Scenario::BY_NUMBER) {
            assert_eq!(Scenario::of_number(scenario.number()), Some(scenario));
            let is_other = scenario.limits() != Limits::default() || scenario == Scenario::Scale;
            assert_eq!(is_other, scenario.other_bound().is_some(), "{scenario:?}");
        }
    }
}
