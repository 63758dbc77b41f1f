//! The reasons of the conditions `Ready`, `ControlPlaneMigrated`, `PhaseFollowed`, `Reconciling` and `Stalled`, for the page
//! about the status.

use crate::why::code;

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Reason {
    /// See [`code`].
    pub code: &'static str,
    pub meaning: &'static str,
    pub ends: Ends,
}

/// The end of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The state of the phase is reached.
    Reached(&'static str),
    /// The manager, or the end of a lease.
    Itself,
    /// A person, and how.
    Person(&'static str),
}

const fn reason(code: &'static str, meaning: &'static str, ends: Ends) -> Reason {
    Reason { code, meaning, ends }
}

pub const REASONS: [Reason; 31] = [
    reason(
        code::OLD_MANAGER_OWNS,
        "phase InTree or Prepare: the kube-controller-manager owns the controllers",
        Ends::Reached("in InTree: set the phase Prepare. In Prepare it is a reason of `ControlPlaneMigrated` only"),
    ),
    reason(
        code::EVIDENCE_LATCHED,
        "phase Prepare: the same, and the evidence is recorded",
        Ends::Reached("set the phase Migrate"),
    ),
    reason(
        code::MIGRATED,
        "phase Migrate: the manager holds the migration lease, and every kube-controller-manager is external",
        Ends::Reached("set the phase Complete"),
    ),
    reason(
        code::COMPLETED,
        "phase Complete: the same, and all kubelets are external",
        Ends::Reached("none"),
    ),
    reason(
        code::FOLLOWED,
        "reason of `PhaseFollowed`: the manager follows `spec.phase`",
        Ends::Reached("none"),
    ),
    reason(
        code::NOT_READ_YET,
        "the manager has just started, and has not read all of its sources",
        Ends::Itself,
    ),
    reason(
        code::STORING_EVIDENCE,
        "the evidence is complete and is being recorded",
        Ends::Itself,
    ),
    reason(
        code::ACQUIRING,
        "the manager is acquiring the migration lease",
        Ends::Itself,
    ),
    reason(
        code::LISTING,
        "the kube-controller-manager's main lease has a new holder. The manager writes nothing until it knows whether that process is proven",
        Ends::Itself,
    ),
    reason(
        code::NEW_LEADER,
        "the kube-controller-manager acquired its main lease shortly before the manager started. The manager waits until the process before it has ended, at most 15 s",
        Ends::Itself,
    ),
    reason(
        code::EVIDENCE_MISSING,
        "the manager may not take over, because evidence is missing",
        Ends::Person("follow `status.missing`"),
    ),
    reason(
        code::HELD_BY_OTHER,
        "another process holds the migration lease, or held it a moment ago",
        Ends::Person("roll or stop that process. A lease expires 15 s after its last renewal"),
    ),
    reason(
        code::LEASE_IN_USE,
        "the same, and the evidence is not recorded yet",
        Ends::Person("roll or stop that process. A lease expires 15 s after its last renewal"),
    ),
    reason(
        code::STEPPING_BACK,
        "phase Prepare: the manager owns the controllers until a kube-controller-manager with leader migration leads, and then offers it the migration lease",
        Ends::Person("roll the kube-controller-managers in phase Prepare"),
    ),
    reason(
        code::NO_OWNER,
        "no process owns the controllers: the phase is InTree or Prepare, and every kube-controller-manager is external",
        Ends::Person("roll the kube-controller-managers, or set the phase forward to Migrate, one step at a time"),
    ),
    reason(
        code::UNGUARDED,
        "the leading kube-controller-manager runs in-tree without leader migration",
        Ends::Person("roll it with the flags of the phase, or stop it"),
    ),
    reason(
        code::UNLOCKED,
        "an in-tree kube-controller-manager elects no leader, or elects it by another lease, so it acts without the main lease",
        Ends::Person("remove the flag that the message names, correct `spec.kubeControllerManagerLease`, or stop it"),
    ),
    reason(
        code::LEADER_NOT_PROVEN,
        "the leading kube-controller-manager is none of the listed ones, or its command line or configuration is not known",
        Ends::Person(
            "stop it, if it is in-tree without leader migration. Otherwise correct `spec.targets` or the access rights, or set `spec.attestation`",
        ),
    ),
    reason(
        code::MAIN_LEASE_NOT_HELD,
        "no process holds the kube-controller-manager's main lease, and a process that is not proven may acquire it. The manager keeps the migration lease and writes nothing",
        Ends::Person("start a kube-controller-manager with the flags of the phase"),
    ),
    reason(
        code::IN_TREE_LEFT,
        "the manager owns the controllers, and a kube-controller-manager is still in-tree",
        Ends::Person("roll it in Migrate"),
    ),
    reason(
        code::HELD_FOR_NOTHING,
        "an external kube-controller-manager holds the migration lease",
        Ends::Person("remove `--enable-leader-migration` from it"),
    ),
    reason(
        code::LEFT_ON,
        "an external kube-controller-manager has leader migration, so it can acquire the migration lease",
        Ends::Person("remove `--enable-leader-migration` from it"),
    ),
    reason(
        code::NODE_IPAM,
        "node IPAM runs in both managers, or would run in neither",
        Ends::Person("change the flags that the message names"),
    ),
    reason(
        code::UNDECIDED,
        "the command line of a kube-controller-manager that is listed cannot be read",
        Ends::Person("make it readable, or set `spec.attestation`"),
    ),
    reason(
        code::NOT_READABLE,
        "not every kube-controller-manager can be read",
        Ends::Person("correct `spec.targets` or the access rights, or set `spec.attestation`"),
    ),
    reason(
        code::LEASE_REQUEST_FAILED,
        "the API server refuses requests for the migration lease",
        Ends::Person("grant the right that the message names"),
    ),
    reason(
        code::KUBELETS_LEFT,
        "phase Complete: some Nodes are not known to have an external kubelet",
        Ends::Person("replace them, or restart their kubelets and annotate the Nodes, as the message says"),
    ),
    reason(
        code::IN_TREE_NOT_FOLLOWED,
        "phase InTree is not followed: the manager owns the controllers, and every kube-controller-manager is external",
        Ends::Person("set the phase Prepare, and roll the kube-controller-managers"),
    ),
    reason(
        code::SPEC_NOT_FOLLOWED,
        "the spec names other leases than the manager has",
        Ends::Person("correct the field that the message names"),
    ),
    reason(
        code::MIGRATION_UNREADABLE,
        "reason of `ControlPlaneMigrated`: the spec is not followed, and no evidence is recorded",
        Ends::Person("follow the message of `PhaseFollowed`"),
    ),
    reason(
        code::NOT_LED,
        "nobody observes the cluster: no process holds the manager's main lease, or its holder does not write this status. Another replica writes this reason",
        Ends::Person("follow the message"),
    ),
];
