//! Tags of load balancers and target groups, where the role may lack `elasticloadbalancing:DescribeTags`.
//!
//! Roles for aws-cloud-controller-manager v1.37.0 usually lack it, since v1.37.0 never reads these tags. A denial makes the
//! tags unknown, which is not the same as absent: unknown tags are not repaired, and never prove that a resource is managed.

use outrigger_aws::{Error, Kind, Tags};

use super::denial::Denial;

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

/// Whether reads of tags were denied, and whether that was reported.
#[derive(Debug, Default)]
pub struct TagReads {
    /// The first denial.
    pub denial: Denial,
}

impl TagReads {
    /// The tags that a read returned; `None` if AWS denied the read.
    ///
    /// # Errors
    /// When the read failed for any other reason.
    pub fn allowed<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Ok(tags) => Ok(Some(tags)),
            Err(error) if error.kind() == Kind::AccessDenied => {
                if self.denial.note(&error) {
                    tracing::warn!(%error, "cannot read tags of load balancers and target groups; continuing without them");
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
