//! Errors of a leader migration configuration, each with its field, its value and the solution.

use std::{fmt, io, path::Path};

use crate::controller::Controller;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is missing or not readable.
    #[error("cannot read leader migration configuration from {path:?}; correct --leader-migration-config")]
    Unreadable { path: String, source: io::Error },
    /// The text has faults.
    #[error("failed to parse leader migration configuration {source_name:?}:{}", lines(.problems))]
    Invalid {
        /// Where the text is from.
        source_name: String,
        /// Every fault, in the order of the text; never empty.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    pub(super) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable {
            path: path.display().to_string(),
            source,
        }
    }

    pub(super) fn invalid(source_name: &str, problems: Vec<Problem>) -> Self {
        Self::Invalid {
            source_name: source_name.to_owned(),
            problems,
        }
    }

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
    /// Nothing in it.
    #[error("the text is empty; it needs apiVersion, kind, leaderName and controllerLeaders")]
    Empty,
    /// A document of another kind.
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
    /// A field that the type does not have.
    #[error("unknown field {field}; remove it or correct its spelling")]
    UnknownField { field: String },
    /// A value of another type.
    #[error("{field} is {found}, expected {expected}")]
    Type {
        field: String,
        expected: &'static str,
        found: &'static str,
    },
    /// A missing or empty value.
    #[error("{field}: required value is missing or empty; {fix}")]
    Required { field: String, fix: &'static str },
    /// A lock that would not exclude anybody.
    #[error("resourceLock: invalid value {value:?}; the only lock is \"leases\" (endpoints locks are gone since 1.24)")]
    ResourceLock { value: String },
    /// A field that `v1` dropped.
    #[error("resourceLock is no field of controllermanager.config.k8s.io/v1; remove it, the lock is always \"leases\"")]
    ResourceLockInV1,
}

/// A valid setting that has another effect than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// An entry that matches nothing.
    UnknownController {
        /// Position in `controllerLeaders`.
        index: usize,
        name: String,
    },
    /// A component that is neither party, so neither of them runs the controller.
    UnknownComponent {
        /// Position in `controllerLeaders`.
        index: usize,
        /// The component.
        component: String,
    },
    /// A shared controller without an entry.
    Omitted { controller: Controller },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownController { index, name } => {
                write!(
                    formatter,
                    "controllerLeaders[{index}].name {name:?} is no controller and has no effect; correct it"
                )
            }
            Self::UnknownComponent { index, component } => write!(
                formatter,
                "controllerLeaders[{index}].component {component:?} is neither manager, so neither runs the controller; \
                 use kube-controller-manager, cloud-controller-manager or \"*\""
            ),
            Self::Omitted { controller } => write!(
                formatter,
                "controllerLeaders does not list {controller}; it is treated as listed with component \"*\", so that it \
                 cannot run in two managers at once"
            ),
        }
    }
}
