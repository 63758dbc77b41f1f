//! State of the clusters: migrations, labels of namespaces, leases of managers.
//!
//! Each index is filled by one task from a watch. A review reads it and never waits for a watch.

mod freshness;
mod migrations;
mod namespaces;
mod watch;

pub use freshness::{Clusters, Freshness};
pub use migrations::{EMPTY_SNAPSHOT, MigrationSnapshot, Migrations};
pub use namespaces::{Labels, Namespaces};
pub use watch::{Index, WatchTask};
pub(crate) use watch::{Latest, only};
