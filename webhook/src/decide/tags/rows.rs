//! **The table: where which kind holds AWS tags, in which shape, and whether the cluster's tag may be added there.**
//!
//! A renderer of admission policies needs the same facts, so the rows are public: [`tag_rows`].

use super::{ack, cluster_api, crossplane, machines, others, row::TagRow};

/// Each family's rows.
pub(super) const FAMILIES: [&[TagRow]; 5] = [
    machines::ROWS,
    cluster_api::ROWS,
    ack::ROWS,
    crossplane::ROWS,
    others::ROWS,
];

/// Every row.
pub fn tag_rows() -> impl Iterator<Item = &'static TagRow> {
    FAMILIES.iter().copied().flatten()
}
