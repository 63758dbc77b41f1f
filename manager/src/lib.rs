//! The external cloud controller manager for AWS.

mod agreement;
pub mod api_write;
pub mod args;
pub mod assembly;
pub mod aws_words;
pub mod aws_write;
pub mod backoff;
pub mod cloud_config;
pub mod controllers;
pub mod events;
pub mod identity;
pub mod instances;
pub mod logs;
pub mod metrics;
pub mod node_cache;
pub mod node_patch;
pub mod run;
pub mod said;
pub mod serving;
mod suggest;
