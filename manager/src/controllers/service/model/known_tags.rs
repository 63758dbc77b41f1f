//! Tags of a load balancer, which the role may be unable to read.
//!
//! Unknown tags are not absent ones: they are not repaired, and never prove that a resource is managed.

use outrigger_aws::Tags;

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
    /// `None`: AWS denied the read.
    pub fn of(read: Option<Tags>) -> Self {
        match read {
            Some(tags) => Self::Read(tags),
            None => Self::Unknown { set: Tags::new() },
        }
    }

    /// Adds the tags that this process has set, if the others are unknown.
    pub fn or_set(self, by_this_process: &Tags) -> Self {
        match self {
            Self::Read(tags) => Self::Read(tags),
            Self::Unknown { .. } => Self::Unknown {
                set: by_this_process.clone(),
            },
        }
    }
}
