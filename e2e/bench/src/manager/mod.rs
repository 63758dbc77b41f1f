//! Our manager beside the incumbent: the same flags, kube-apiserver, etcd and simulated AWS, one after the other, each on
//! a fresh cluster.
//!
//! | question | file |
//! |---|---|
//! | who, with which flags | `contender.rs` |
//! | what does AWS know, and what was it asked | `cloud.rs` |
//! | on which cluster; is each Node right in the end | `ground.rs`, `node.rs` |
//! | when was a Node done | `arrivals.rs` |
//! | what was the API server asked | `requests.rs` |
//! | what is measured | `floor.rs`, `cold.rs`, `steady.rs` |
//! | in which order | `course.rs` |
//! | what comes out, and is an aim met | `result.rs`, `report.rs` |

pub mod arrivals;
pub mod cloud;
pub mod cold;
pub mod contender;
pub mod course;
pub mod floor;
pub mod ground;
pub mod node;
pub mod report;
pub mod requests;
pub mod result;
pub mod steady;
