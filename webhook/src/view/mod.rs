//! What the webhook knows of its clusters: migrations, labels of namespaces, whether a manager is at work.
//!
//! Each part is a plain index that one task feeds from a watch. A review reads it and never waits for a watch.

mod freshness;
mod migrations;
mod namespaces;
mod watch;

pub use freshness::{Clusters, Freshness};
pub use migrations::{EMPTY_SNAPSHOT, MigrationSnapshot, Migrations};
pub use namespaces::{Labels, Namespaces};
pub use watch::{Index, WatchTask};
