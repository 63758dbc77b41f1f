//! Who may write: the two leases, the migration's evidence, gate and latch.

mod permit;

pub use permit::{Grantor, NotLeader, Permit};
