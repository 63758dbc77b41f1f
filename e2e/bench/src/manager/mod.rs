//! Our manager beside the incumbent: the same flags, kube-apiserver, etcd and simulated AWS, one after the other, each on
//! a fresh cluster.
//!
//! | question | file |
//! |---|---|
//! | who, with which flags | `candidate.rs` |
//! | what does AWS know, and what was it asked | `cloud.rs` |
//! | on which cluster; is each Node right in the end | `cluster.rs`, `node.rs` |
//! | when was a Node done | `arrivals.rs` |
//! | what was the API server asked | `requests.rs` |
//! | what is measured | `baseline.rs`, `cold.rs`, `steady.rs` |
//! | in which order | `scenarios.rs` |
//! | what comes out, and is an aim met | `result.rs`, `report.rs` |

pub mod arrivals;
pub mod baseline;
pub mod candidate;
pub mod cloud;
pub mod cluster;
pub mod cold;
pub mod node;
pub mod report;
pub mod requests;
pub mod result;
pub mod scenarios;
pub mod steady;
