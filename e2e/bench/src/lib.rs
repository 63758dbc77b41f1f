//! The benchmarks: our programs beside what users would have instead, in one run on one machine.
//!
//! The manager's are in `manager/`, those of its service controller in `services/`; of the webhook's:
//!
//! | question | file |
//! |---|---|
//! | what is sent | `objects.rs`, `review.rs` |
//! | is the answer right, and do both servers make the same object | `answer.rs` |
//! | how is it sent | `client.rs`, `load.rs` |
//! | how is a server started, and what does it use | `server.rs`, `placement.rs`, `usage.rs` |
//! | what does a server say of itself | `histogram.rs` |
//! | in which order, and how often | `webhook.rs` |
//! | what comes out, and is an aim met | `results.rs`, `report.rs` |

pub mod answer;
pub mod client;
pub mod environment;
pub mod histogram;
pub mod load;
pub mod manager;
mod objects;
pub mod percentile;
pub mod placement;
pub mod report;
pub mod results;
pub mod review;
pub mod server;
pub mod services;
pub mod usage;
pub mod webhook;
