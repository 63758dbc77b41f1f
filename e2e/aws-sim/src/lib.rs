//! A simulated AWS: moto as the state of the account, and in front of it a proxy that records every call, limits
//! rates as AWS does, evaluates an IAM policy, injects faults, and corrects moto where it is not AWS.
//!
//! ```text
//! controllers ──▶ Proxy ── limits ── IAM ── faults ── gaps ──▶ Moto
//!                   │                     └─ Fleet, if there is one: thousands of instances
//!                   └─ record: who called what, when, with which answer
//! ```
//!
//! Every process gets an access key of its own ([`Caller`]), by which the record tells callers apart. Signatures are
//! not checked, here or in moto.

pub mod bucket;
pub mod call;
mod error;
pub mod fault;
mod fleet;
mod gaps;
pub mod iam;
mod instance_metadata;
mod moto;
mod proxy;
pub mod query;
mod record;
mod seeded_account;
mod service;
mod serving;
pub mod xml;

pub use outrigger_cluster_harness::kubelets::Instance;

pub use call::{Answer, Call, Caller, Outcome};
pub use error::AwsError;
pub use fault::{Fault, FaultHandle, When};
pub use fleet::Fleet;
pub use instance_metadata::InstanceMetadata;
pub use moto::Moto;
pub use outrigger_aws_quotas::Quotas;
pub use proxy::Proxy;
pub use query::is_write;
pub use seeded_account::{SeededAccount, Subnet};
pub use service::{LOCAL_ZONE, REGION, Service};
