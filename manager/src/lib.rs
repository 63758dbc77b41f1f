//! The external cloud controller manager for AWS.

pub mod api_write;
pub mod args;
pub mod assembly;
pub mod aws_errors;
pub mod aws_write;
pub mod backoff;
pub mod cloud_config;
mod confirmation;
pub mod controllers;
pub mod events;
pub mod identity;
pub mod instances;
mod lease_name_check;
pub mod logs;
pub mod metrics;
pub mod node_cache;
pub mod node_patch;
pub mod node_write;
mod pod_range;
pub mod run;
pub mod serving;
mod suggest;
mod token_bucket;

/// Go's name of this machine's architecture, as user agents and build information of Kubernetes have it.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
