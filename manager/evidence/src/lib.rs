//! Which process may act on the controllers that both managers have. Pure: no clock, no network, no runtime.
//!
//! ```text
//!   facts about K, M and the kube-controller-managers ─┐
//!   spec of the CloudProviderMigration ────────────────┼─▶ gate::decide ──▶ what to do with lease M, the next latch, why
//!   latch of lease C ──────────────────────────────────┘
//! ```
//!
//! | question | module |
//! |---|---|
//! | which kube-controller-manager does an object run, and how | [`controller_manager`] |
//! | is the holder of K proven | [`facts`] |
//! | may this process take or keep lease M, or must it release it | [`gate`] |
//! | who runs the controllers now | [`owner`] |
//! | what survives a restart | [`latch`] |
//! | what a Lease object contains | [`record`] |
//! | why a process does not own the controllers, and what to do | [`why`] |
//!
//! `docs/adr/0001-one-owner.md` has the rule and its reasons.

pub mod controller_manager;
pub mod facts;
pub mod gate;
pub mod latch;
pub mod owner;
pub mod reasons;
pub mod record;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod why;
