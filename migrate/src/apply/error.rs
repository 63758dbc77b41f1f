//! Why `outrigger plan`, `outrigger apply` and `outrigger rollback` fail.

use outrigger_shared::migration::Phase;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--to={to}: the migration is in {phase} already; outrigger rollback --dry-run shows the steps back")]
    Behind { to: Phase, phase: Phase },
    #[error("--to={to}: the migration is in {phase}; outrigger apply goes forward")]
    Ahead { to: Phase, phase: Phase },
    #[error("--to={to}: the migration is in {phase}, and goes back one phase at a time")]
    TooFar { to: Phase, phase: Phase },
    #[error("the migration is in InTree, the first phase; docs/operations/finish.md removes Outrigger")]
    NothingBefore,
    #[error("{what}: its steps are in {page}, and this command does not know them")]
    NotPlanned { what: &'static str, page: &'static str },
    #[error("the API server refused to set {what}: {reason}")]
    Refused { what: String, reason: String },
    #[error("no answer to {what}: {reason}")]
    Unanswered { what: String, reason: String },
    #[error(
        "the cluster cannot be read for {seconds} s: {reason}; run the command again, it goes on where the cluster is"
    )]
    Unreachable { seconds: u64, reason: String },
}

impl Error {
    /// Whether the cluster says no, with exit code 2.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NotPlanned { .. })
    }
}
