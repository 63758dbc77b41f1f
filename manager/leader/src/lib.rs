//! Leader election with two leases, guarded by the evidence, gate and latch of a migration.
//!
//! ```text
//!             watches of K, M, CloudProviderMigration, kube-controller-managers     (readers, lease)
//!                                        │
//!                     steward ── gate::decide (pure) ──▶ latch on lease C, gate open or closed, status
//!                                        │
//!   lease C ─ Tenure ─ main controllers  └─▶ lease M ─ Tenure ─ migrated controllers
//! ```
//!
//! | question | module |
//! |---|---|
//! | which facts there are, and what to do about them | the crate `outrigger-evidence` |
//! | who holds a lease, and until when | [`lease`], [`elector`], [`observation`], [`permit`](Permit) |
//! | who applies the decision | [`steward`] |
//! | in which order things start and stop | [`run`], [`tenure`] |

pub mod elector;
mod field_manager;
pub mod lease;
mod not_leader;
mod object_watch;
pub mod observation;
mod permit;
pub mod readers;
pub mod run;
pub mod status;
pub mod steward;
mod suspend_clock;
pub mod tenure;

pub use elector::{SlowPath, Timing};
pub use field_manager::FIELD_MANAGER;
pub use not_leader::NotLeader;
pub use permit::{ANSWER, Fence, Grantor, Permit};
pub use run::{Elections, Guard, Mode, Observer, Setup, run};
pub use status::{CountNodes, DryRun, Notice, Reporter, Snapshot};
pub use tenure::{ControllerError, Ended, Start};
