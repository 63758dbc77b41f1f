//! What exists at AWS for a Service. No IO.

pub mod classic;
pub mod known_tags;
pub mod network;
