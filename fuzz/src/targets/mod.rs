//! One module for each target.

pub mod admission;
pub mod cloud_config;
pub mod command_line;
pub mod leader_migration;
pub mod pem;
pub mod short_text;
pub mod yaml_text;
