//! The refusals of AWS.

use super::quotas::Refusal;
use crate::{Error, Result};

pub(super) fn refuse<T>(action: &'static str, code: &str, why: impl Into<String>) -> Result<T> {
    Err(Error::answered(action, code, why))
}

/// A value that the load balancing APIs never accept.
pub(super) fn invalid<T>(action: &'static str, why: impl Into<String>) -> Result<T> {
    refuse(action, "ValidationError", why)
}

/// Values that the load balancing APIs do not accept together.
pub(super) fn unfit<T>(action: &'static str, why: impl Into<String>) -> Result<T> {
    refuse(action, "InvalidConfigurationRequest", why)
}

/// The answer of an action that a quota allows or refuses.
pub(super) fn within(action: &'static str, quota: Result<(), Refusal>) -> Result<()> {
    quota.or_else(|Refusal { code, message }| refuse(action, code, message))
}
