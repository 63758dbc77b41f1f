//! The status: the owner of each controller, and the missing steps. It is written by server-side apply with one field
//! manager per writer, so unknown fields stay unchanged.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use serde::{Deserialize, Serialize};

use super::Phase;
use crate::{controller::Party, event::whole_seconds};

pub mod condition {
    /// The state that the phase requests is reached (kstatus, `kubectl wait --for=condition=Ready`).
    pub const READY: &str = "Ready";
    /// It is not reached, and the manager goes on by itself (kstatus: InProgress).
    pub const RECONCILING: &str = "Reconciling";
    /// It is not reached, and a person has to act (kstatus: Failed).
    pub const STALLED: &str = "Stalled";
    /// The manager follows `spec.phase`.
    pub const PHASE_FOLLOWED: &str = "PhaseFollowed";
    /// A manager has observed and recorded the evidence: leader migration, every kube-controller-manager external, or an
    /// attestation.
    pub const PREPARED: &str = "Prepared";
    /// A manager of Outrigger holds the migration lease, and every kube-controller-manager is external, by its command
    /// line or by attestation.
    pub const CONTROL_PLANE_MIGRATED: &str = "ControlPlaneMigrated";
    /// Every Node's kubelet is known to be external.
    pub const NODES_MIGRATED: &str = "NodesMigrated";
    /// Phase Complete, and the two above.
    pub const COMPLETED: &str = "Completed";
    /// The API server is at 1.26 or below, the last release with the in-tree AWS provider.
    pub const ROLLBACK_POSSIBLE: &str = "RollbackPossible";
    /// In phases InTree and Prepare: the manager would change nothing at AWS if it took over now.
    pub const ADOPTION_CLEAN: &str = "AdoptionClean";

    /// The spec has no contradiction that the API server's schema cannot exclude.
    pub const SPEC_VALID: &str = "SpecValid";

    /// Every stored object that `targets` selects has the form of the phase. Written by the webhook's background check.
    pub const OBJECTS_APPLIED: &str = "ObjectsApplied";

    /// API servers call the webhook for every object that `targets` selects. Written by the webhook's comparison of its
    /// registration.
    pub const WEBHOOK_REGISTERED: &str = "WebhookRegistered";

    /// Every type that the webhook writes.
    pub const OF_WEBHOOK: [&str; 2] = [OBJECTS_APPLIED, WEBHOOK_REGISTERED];

    /// Every type that the manager writes.
    pub const ALL: [&str; 11] = [
        READY,
        RECONCILING,
        STALLED,
        SPEC_VALID,
        PHASE_FOLLOWED,
        PREPARED,
        CONTROL_PLANE_MIGRATED,
        NODES_MIGRATED,
        COMPLETED,
        ROLLBACK_POSSIBLE,
        ADOPTION_CLEAN,
    ];
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudProviderMigrationStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The phase that the manager follows: `spec.phase`, unless the condition `PhaseFollowed` is False.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_by: Option<Observer>,
    /// See [`condition`]. Each message names the missing step and how to take it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The facts that prevent the condition `Ready`, at most [`MAX_MISSING`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingFact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<ControllerStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// In phases InTree and Prepare, once a dry run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<Adoption>,
    /// The last changes of ownership, at most [`MAX_HISTORY`], oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
}

impl CloudProviderMigrationStatus {
    /// Whether the condition is there with value `True`.
    #[must_use]
    pub fn is_true(&self, type_: &str) -> bool {
        self.conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    }

    /// A condition to be written now. A message that is too long is cut. Its transition time changes only with its `status`.
    #[must_use]
    pub fn condition(
        &self,
        type_: &str,
        status: &str,
        (reason, message): (&str, String),
        generation: Option<i64>,
        now: Timestamp,
    ) -> Condition {
        let same = |old: &&Condition| old.type_ == type_ && old.status == status;
        let before = self.conditions.iter().find(same);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.chars().take(MAX_MESSAGE).collect(),
            last_transition_time: before
                .map_or_else(|| Time(whole_seconds(now)), |old| old.last_transition_time.clone()),
            observed_generation: generation,
        }
    }
}

/// The process that wrote the status, and when it last did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observer {
    /// Its identity on the manager's main lease.
    pub identity: String,
    /// By its own clock. It writes at least once a minute.
    pub time: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingFact {
    /// `CamelCase`, stable.
    pub code: String,
    pub observation: String,
    /// The effect on the manager.
    pub consequence: String,
    /// The remedy; absent if the state ends by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// The controller's canonical name.
    pub name: String,
    /// The process that runs it; `None` during a handover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Party>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Most characters of a condition's message that the schema accepts. A longer one would make the API server refuse the
/// whole status.
pub const MAX_MESSAGE: usize = 32_768;

/// Most entries of [`CloudProviderMigrationStatus::missing`].
pub const MAX_MISSING: usize = 32;

/// Most characters of a text of [`MissingFact`] that the schema accepts.
pub const MAX_MISSING_TEXT: usize = 1_024;

/// Most entries of [`CloudProviderMigrationStatus::history`].
pub const MAX_HISTORY: usize = 64;

/// The ownership of the controllers that both managers have, from one moment until the next entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// When the holder of the manager's main lease observed the change.
    pub time: MicroTime,
    pub phase: Phase,
    /// The identity that held the migration lease; `None` for a free lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The process that ran the controllers; `None` during a handover, and while the owner is not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Party>,
    /// The manager released the migration lease, because a process that may act without it leads the
    /// kube-controller-managers, or acts without a lease.
    #[serde(default)]
    pub alarm: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    #[serde(default)]
    pub total: u32,
    /// Nodes that still have the uninitialized taint.
    #[serde(default)]
    pub uninitialized: u32,
    /// Nodes whose kubelet is known to be external.
    #[serde(default)]
    pub migrated: u32,
}

/// The result of a dry run: what the manager would do if it took over from the old manager now. A change counts if it is
/// found again after 30 s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// When the dry run began, by the clock of the manager.
    pub time: Time,
    /// Services of type `LoadBalancer` whose load balancers the manager will own.
    pub services: u32,
    /// Nodes whose instances were looked up.
    pub nodes: u32,
    /// All changes.
    pub changes: u32,
    /// The first of them, at most [`MAX_ADOPTION_CHANGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<AdoptionChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionChange {
    /// Kind and name, such as `Service default/web`.
    pub object: String,
    /// An action of AWS's API, or the effect on the object.
    pub action: String,
    pub reason: String,
}

/// Most entries of [`Adoption::first`].
pub const MAX_ADOPTION_CHANGES: usize = 20;

/// Most characters of a text of [`AdoptionChange`] that the schema accepts.
pub const MAX_ADOPTION_TEXT: usize = 1_024;
