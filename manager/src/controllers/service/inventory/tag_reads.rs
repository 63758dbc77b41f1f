//! Tags of load balancers and target groups, where the role may lack `elasticloadbalancing:DescribeTags`.
//!
//! Roles for aws-cloud-controller-manager v1.37.0 usually lack it, since v1.37.0 never reads these tags. A denial makes
//! the tags unknown.

use outrigger_aws::{Error, Kind};

use super::denial::Denial;

/// Whether reads of tags were denied, and whether that was reported.
#[derive(Debug, Default)]
pub struct TagReads {
    /// The first denial.
    pub denial: Denial,
}

impl TagReads {
    /// The tags that a read returned; `None` if AWS denied the read.
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
