//! Why `outrigger plan`, `outrigger apply` and `outrigger rollback` fail.

use outrigger_shared::migration::Phase;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--to={to}: the migration is in {phase} already; outrigger rollback goes back")]
    Behind { to: Phase, phase: Phase },
    #[error("--to={to}: the migration is in {phase}; outrigger apply goes forward")]
    Ahead { to: Phase, phase: Phase },
    #[error("the migration is in InTree: there is nothing to go back to; docs/operations/finish.md removes Outrigger")]
    NothingBefore,
    #[error("the API server refused {what}: {reason}")]
    Refused { what: String, reason: String },
    #[error("no answer to {what}: {reason}; run the command again, it goes on where the cluster is")]
    Unanswered { what: String, reason: String },
    #[error("the cluster cannot be read for {seconds} s: {reason}")]
    Unreachable { seconds: u64, reason: String },
}
