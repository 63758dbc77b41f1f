//! Tags of a load balancer, which the role may not be allowed to read.
//!
//! Unknown tags are not the same as absent ones: they are not repaired, and never prove that a resource is managed.

use outrigger_aws::Tags;

/// The tags of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownTags {
    /// AWS returned them.
    Read(Tags),
    /// AWS denied reading them.
    Unknown {
        /// Tags of the Service's annotation that this process has set.
        set: Tags,
    },
}

impl Default for KnownTags {
    fn default() -> Self {
        Self::Read(Tags::new())
    }
}

impl KnownTags {
    /// The answer to a read: `None` is a denied one.
    #[must_use]
    pub fn of(read: Option<Tags>) -> Self {
        match read {
            Some(tags) => Self::Read(tags),
            None => Self::Unknown { set: Tags::new() },
        }
    }

    /// Adds what this process has set, if nothing else is known.
    #[must_use]
    pub fn or_set(self, by_this_process: &Tags) -> Self {
        match self {
            Self::Read(tags) => Self::Read(tags),
            Self::Unknown { .. } => Self::Unknown {
                set: by_this_process.clone(),
            },
        }
    }
}
