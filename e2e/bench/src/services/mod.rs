//! The service controller beside the incumbent's: what load balancers cost that are in place, and what new ones do.
//!
//! | question | file |
//! |---|---|
//! | who, with which flags | `candidate.rs` |
//! | on which cluster, in which simulated account | `environment.rs` |
//! | what is measured | `unchanged.rs`, `restart.rs`, `burst.rs` |
//! | in which order | `scenarios.rs` |
//! | what comes out | `result.rs`, `report.rs` |

pub mod burst;
pub mod candidate;
pub mod environment;
pub mod report;
pub mod restart;
pub mod result;
pub mod scenarios;
pub mod unchanged;
