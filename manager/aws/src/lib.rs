//! The only crate that knows the AWS SDKs.
//!
//! ```text
//! controllers ──▶ traits Ec2, Elb, Elbv2 (own plain types) ──▶ adapters ──▶ AWS SDKs
//!                        ▲                                 │
//!                 fake::FakeAws                     error table (Kind)
//! ```
//!
//! - [`Ec2`], [`Elb`], [`Elbv2`]: the calls that the controllers need;
//! - [`Error`], [`Kind`]: classification of failed calls, from one table of AWS's error codes;
//! - [`imds`]: the own instance's metadata from the instance metadata service;
//! - [`connect`]: region, credentials, endpoints, proxies and time-outs, then the clients;
//! - [`tcp`]: connections that deliver no byte after the lease under which it was written;
//! - [`CallObserver`]: receives the result of each call, for metrics;
//! - [`fake`] (feature `fake`): AWS in memory, with a log of calls and injected faults, for tests.
//!
//! Each field of a response of AWS may be absent: the types allow it, and no code panics on it.

mod by_name;
mod call_observer;
mod connect;
pub mod ec2;
pub mod elb;
pub mod elbv2;
mod endpoint;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod http_client;
pub mod imds;
mod keys_file;
pub mod limit;
mod page;
mod proxy;
mod retry;
mod sdk;
mod settings;
#[cfg(test)]
mod stub;
mod tags;
pub mod tcp;

pub use call_observer::{Call, CallObserver, Ending, Unobserved};
pub use connect::{Clients, connect};
pub use ec2::{Ec2, Filter, Instance, InstanceId, InstanceState};
pub use elb::{Elb, LoadBalancer};
pub use elbv2::Elbv2;
pub use error::{Error, Kind, Result};
pub use keys_file::{KeysFile, KeysFileError};
pub use page::{Page, Token};
pub use proxy::Proxies;
pub use settings::{EndpointOverride, Settings, SettingsError};
pub use tags::Tags;
