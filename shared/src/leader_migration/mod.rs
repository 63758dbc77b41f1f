//! Leader migration: which lease guards which controller while two processes share the work.
//!
//! The configuration is upstream's `LeaderMigrationConfiguration` (group `controllermanager.config.k8s.io`). Two things
//! differ here on purpose, and each makes the reading safer: controller names match in every spelling they ever had
//! ([`crate::controller`]), and a list that leaves out a controller which the old manager also runs counts as listing
//! it, because upstream's reading would start it under the main lease, beside the old one.

use std::io;

use serde::{Deserialize, Serialize};

use crate::controller::{Controller, Party};

mod decode;
pub mod file;
mod render;

pub use self::render::{File, TooOld};

/// The lease's name in upstream's built-in configuration.
pub const DEFAULT_LEADER_NAME: &str = "cloud-provider-extraction-migration";

/// The folder in a kube-controller-manager's container that holds nothing but [`FILE`].
pub const FOLDER: &str = "/etc/outrigger";

/// The file's name in [`FOLDER`].
pub const FILE_NAME: &str = "leader-migration.yaml";

/// Where the webhook puts a migration's own configuration in a kube-controller-manager's container.
pub const FILE: &str = "/etc/outrigger/leader-migration.yaml";

/// The component name that means both parties.
pub const ANY_COMPONENT: &str = "*";

/// Which lease is shared, and which controllers it guards. The lock is always a Lease: upstream's `endpoints` lock has
/// been gone since client-go 0.24.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderMigrationConfiguration {
    pub leader_name: String,
    /// The component that runs each controller. The last entry for a controller applies.
    #[serde(default)]
    pub controller_leaders: Vec<ControllerLeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerLeader {
    /// The controller, in any spelling.
    pub name: String,
    /// `kube-controller-manager`, `cloud-controller-manager`, or `*` for whoever holds the lease.
    pub component: String,
}

/// Where a controller runs in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Under the migration lease.
    Migrated,
    /// Under the process's own main lease.
    Main,
    NotHere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub config: LeaderMigrationConfiguration,
    pub warnings: Vec<Warning>,
}

impl Default for LeaderMigrationConfiguration {
    /// Upstream's built-in configuration: the three shared controllers, for whoever holds the lease.
    fn default() -> Self {
        let entry = |controller: Controller| ControllerLeader {
            name: controller.canonical_name().to_owned(),
            component: ANY_COMPONENT.to_owned(),
        };
        Self {
            leader_name: DEFAULT_LEADER_NAME.to_owned(),
            controller_leaders: Controller::SHARED.map(entry).to_vec(),
        }
    }
}

impl LeaderMigrationConfiguration {
    /// Reads a file's text: YAML or JSON, any of the three API versions, strictly (an unknown field or a key that is
    /// there twice is an error). Every fault is reported, not only the first. `source_name` is named in the error.
    ///
    /// # Errors
    /// When the text is not exactly one valid configuration.
    pub fn from_text(source_name: &str, text: &str) -> Result<Loaded, ConfigError> {
        let config = decode::decode(text).map_err(|problems| ConfigError::Invalid {
            source_name: source_name.to_owned(),
            problems,
        })?;
        let warnings = config.warnings();
        Ok(Loaded { config, warnings })
    }

    /// Where a party runs a controller with leader migration on.
    ///
    /// For the kube-controller-manager this is upstream's table, as that is what the process does. For the
    /// cloud-controller-manager it is upstream's table with three guards: the node controller never had an owner on the
    /// other side and always runs; a shared controller that the list leaves out counts as listed for whoever holds the
    /// lease; node IPAM, which the other side runs under its main lease whatever the list says, needs an entry.
    #[must_use]
    pub fn placement(&self, controller: Controller, party: Party) -> Placement {
        let listed = self
            .component_of(controller)
            .map(|component| placement_by_component(component, party));
        match party {
            Party::CloudControllerManager => match controller {
                Controller::Node => Placement::Main,
                Controller::Service | Controller::Route | Controller::NodeLifecycle => {
                    listed.unwrap_or(Placement::Migrated)
                }
                Controller::NodeIpam => listed.unwrap_or(Placement::NotHere),
                Controller::Tagging => listed.unwrap_or(Placement::Main),
            },
            Party::KubeControllerManager => match controller {
                Controller::Node | Controller::Tagging => Placement::NotHere,
                _ => listed.unwrap_or(Placement::Main),
            },
        }
    }

    /// Problems that Kubernetes accepts without a message.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let components = [Party::KubeControllerManager, Party::CloudControllerManager].map(Party::as_str);
        let mut warnings = Vec::new();
        for (index, entry) in self.controller_leaders.iter().enumerate() {
            if Controller::parse(&entry.name).is_none() {
                warnings.push(Warning::UnknownController {
                    index,
                    name: entry.name.clone(),
                });
            }
            if entry.component != ANY_COMPONENT && !components.contains(&entry.component.as_str()) {
                warnings.push(Warning::UnknownComponent {
                    index,
                    component: entry.component.clone(),
                });
            }
        }

        let omitted = Controller::SHARED
            .into_iter()
            .filter(|shared| self.component_of(*shared).is_none());
        warnings.extend(omitted.map(|controller| Warning::Omitted { controller }));

        warnings
    }

    /// The component of the last entry that names the controller in any spelling.
    fn component_of(&self, controller: Controller) -> Option<&str> {
        self.controller_leaders
            .iter()
            .rev()
            .find(|entry| Controller::parse(&entry.name) == Some(controller))
            .map(|entry| entry.component.as_str())
    }
}

fn placement_by_component(component: &str, party: Party) -> Placement {
    match component == ANY_COMPONENT || component == party.as_str() {
        true => Placement::Migrated,
        false => Placement::NotHere,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read leader migration configuration from {path:?}; correct --leader-migration-config")]
    Unreadable { path: String, source: io::Error },
    #[error("failed to parse leader migration configuration {source_name:?}:{}", lines(.problems))]
    Invalid {
        /// Where the text is from.
        source_name: String,
        /// Every fault, in the order of the text; never empty.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    /// The faults; empty when the file could not even be read.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Invalid { problems, .. } => problems,
        }
    }
}

/// One line each: faults hold commas and semicolons of their own.
fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Neither YAML nor JSON, or a key that is there twice.
    #[error("not valid YAML or JSON: {message}{hint}")]
    Syntax {
        /// The decoder's words, with the position.
        message: String,
        /// The likely cause, if one is known; empty otherwise.
        hint: &'static str,
    },
    #[error("the text is empty; it needs apiVersion, kind, leaderName and controllerLeaders")]
    Empty,
    #[error("unexpected kind {kind:?}; expected LeaderMigrationConfiguration")]
    Kind {
        /// The value; empty if there is none.
        kind: String,
    },
    /// An API version that never existed.
    #[error("unknown apiVersion {version:?}; use controllermanager.config.k8s.io/v1, v1beta1 or v1alpha1")]
    ApiVersion {
        /// The value; empty if there is none.
        version: String,
    },
    #[error("unknown field {field}; remove it or correct its spelling")]
    UnknownField { field: String },
    #[error("{field} is {found}, expected {expected}")]
    Type {
        field: String,
        expected: &'static str,
        found: &'static str,
    },
    #[error("{field}: required value is missing or empty; {fix}")]
    Required { field: String, fix: &'static str },
    /// A lock that would not exclude anybody.
    #[error("resourceLock: invalid value {value:?}; the only lock is \"leases\" (endpoints locks are gone since 1.24)")]
    ResourceLock { value: String },
    /// A field that `v1` dropped.
    #[error(
        "resourceLock is not a field of controllermanager.config.k8s.io/v1; remove it, the lock is always \"leases\""
    )]
    ResourceLockInV1,
}

/// A valid setting that has another effect than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// An entry that matches nothing.
    #[error("controllerLeaders[{index}].name {name:?} is not a controller and has no effect; correct it")]
    UnknownController { index: usize, name: String },
    /// A component that is neither party, so neither of them runs the controller.
    #[error(
        "controllerLeaders[{index}].component {component:?} is neither manager, so neither runs the controller; \
         use kube-controller-manager, cloud-controller-manager or \"*\""
    )]
    UnknownComponent { index: usize, component: String },
    #[error(
        "controllerLeaders does not list {controller}; it is treated as listed with component \"*\", so that it \
         cannot run in two managers at once"
    )]
    Omitted { controller: Controller },
}
