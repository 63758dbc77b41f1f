//! The demonstration: one real migration from beginning to end, shown as it happens, and judged by the timeline.

pub(crate) mod incumbent;
pub(crate) mod migrate;

pub use incumbent::incumbent;
pub use migrate::{Outcome, migrate, start_load};
