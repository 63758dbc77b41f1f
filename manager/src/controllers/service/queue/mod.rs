//! When Services are reconciled, and their state between reconciliations.

pub mod creation_queue;
pub(super) mod creation_slot;
pub(super) mod node_changes;
pub(super) mod node_sync;
pub(super) mod reason;
pub(super) mod resync;
pub mod service_state;
pub(super) mod spec_fingerprint;
pub(super) mod worker_pool;
