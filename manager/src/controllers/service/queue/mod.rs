//! When Services are reconciled, and their state between reconciliations.

pub mod creation_queue;
pub(super) mod node_changes;
pub mod service_state;
pub(super) mod worker_pool;
