//! The service controller beside the incumbent's: what load balancers cost that are in place, and what new ones do.
//!
//! | question | file |
//! |---|---|
//! | who, with which flags | `contender.rs` |
//! | on which cluster, in which simulated account | `field.rs` |
//! | what is measured | `unchanged.rs`, `restart.rs`, `rush.rs` |
//! | in which order | `course.rs` |
//! | what comes out | `result.rs`, `report.rs` |

pub mod contender;
pub mod course;
pub mod field;
pub mod report;
pub mod restart;
pub mod result;
pub mod rush;
pub mod unchanged;
