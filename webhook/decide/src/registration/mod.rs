//! The objects with which API servers call the webhook: configurations, rights, NetworkPolicy, by the profiles of the
//! migrations' targets. Pure.
//!
//! ```text
//! kinds         ──▶ rules ──┐
//! entries (table) ──────────┴─▶ render ─▶ configurations ─┐
//! access ─────────────────────────────────────────────────┴─▶ `outrigger webhook register`
//!                                  │
//!                                  └─▶ compare ─▶ what the registration in a cluster lacks
//! ```
//!
//! `manifests/`, the chart and the command are compared with these tables by `tests/registration.rs`.

use serde_json::Value;

mod access;
pub mod client;
mod compare;
mod conditions;
mod entries;
mod options;
mod render;
mod rules;

pub use self::access::{SECRET_TYPE, access, network_policy, self_signed};
pub use self::compare::{Difference, Field, Needs, differences, fix};
pub use self::conditions::match_conditions;
pub use self::entries::{Configuration, Entry, Namespaces, PodLabel, Resources, entries};
pub use self::options::{API_SERVERS, Certificates, FailurePolicy, NAME, Options};
pub use self::render::{TIMEOUT_SECONDS, Tenant, configurations, tenant, webhook};

/// Every object, in the order in which they are applied.
#[must_use]
pub fn objects(options: &Options) -> Vec<Value> {
    let mut all = access(options);
    if options.certificates == Certificates::SelfSigned {
        all.extend(self_signed(options));
    }
    all.push(network_policy(options));
    all.extend(configurations(options));
    all
}
