//! **The table of the kinds with AWS tags, their formats, and whether the cluster's tag may be added.**
//!
//! Public, because the renderer of admission policies needs the same facts: [`tag_rows`].

use super::{ack, cluster_api, crossplane, machines, others, row::TagRow};

pub(super) const FAMILIES: [&[TagRow]; 5] = [
    machines::ROWS,
    cluster_api::ROWS,
    ack::ROWS,
    crossplane::ROWS,
    others::ROWS,
];

pub fn tag_rows() -> impl Iterator<Item = &'static TagRow> {
    FAMILIES.iter().copied().flatten()
}
