//! A scripted EC2: the reads that node controllers make, answered as EC2 answers them, from what the cases say.
//!
//! moto serves elsewhere in this harness. Here it does not: an instance without a state, an interface without an
//! attachment, two instances of one name, a zone that is not listed or a host name that is empty cannot be had from it.

mod account;
mod answer;
mod instances;
mod network;
mod server;

pub use account::{Account, CLUSTER_ID, Fault, Instance, SUBNET_ID, VPC_ID};
pub use server::ScriptedEc2;
