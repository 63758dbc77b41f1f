//! Tags.

use std::collections::BTreeMap;

/// Tags of one resource, by key. AWS allows 50 of them and compares keys and values case-sensitively.
pub type Tags = BTreeMap<String, String>;
