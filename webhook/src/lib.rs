//! The mutating admission webhook.

pub mod decide;
