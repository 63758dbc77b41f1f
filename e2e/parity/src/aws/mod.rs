//! A scripted EC2 with the reads of the node controllers. Its answers are in EC2's format, from the resources of the
//! cases.
//!
//! moto cannot simulate some cases: an instance without a state, an interface without an attachment, two instances of
//! one name, a zone that is not listed, an empty host name.

mod account;
mod answer;
mod instances;
mod server;

pub use account::{Account, CLUSTER_ID, Fault, Instance, SUBNET_ID, VPC_ID};
pub use server::ScriptedEc2;
