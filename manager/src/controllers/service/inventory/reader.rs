//! Reading AWS on behalf of one Service.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use outrigger_aws::{Ec2, Elb, Elbv2, Error};

use super::account::{NodeInstances, TagReads, TargetGroupList, ZoneCache};
use super::shared::{Freshness, Shared};

/// AWS with the age limits of one observation.
pub struct Reader<'a> {
    aws: &'a Aws,
    freshness: Freshness,
    for_targets: bool,
    denied: Mutex<Option<Error>>,
}

impl<'a> Reader<'a> {
    /// Accepts answers that other Services were given up to [`MAX_AGE`](super::freshness::MAX_AGE) ago.
    pub fn cached(aws: &'a Aws) -> Self {
        Self::new(aws, true)
    }

    /// The same after a change of Nodes: attributes, which take one call for each load balancer and target group, are
    /// not read.
    pub fn for_targets(aws: &'a Aws) -> Self {
        Self {
            for_targets: true,
            ..Self::new(aws, true)
        }
    }

    /// Accepts only answers from now on.
    pub fn fresh(aws: &'a Aws) -> Self {
        Self::new(aws, false)
    }

    fn new(aws: &'a Aws, cached: bool) -> Self {
        Self {
            aws,
            freshness: Freshness::starting_now(cached),
            for_targets: false,
            denied: Mutex::default(),
        }
    }

    /// The age limits, and whether an older answer was used.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Whether it reads attributes.
    pub fn reads_attributes(&self) -> bool {
        !self.for_targets
    }

    /// The answer of a read that a plan can do without: `None` if AWS denies the action. The denial is kept for
    /// [`Reader::denied`].
    pub fn optional<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_denied_action() => {
                let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
                denied.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The first read that AWS denied and that the plan was made without.
    pub fn denied(&self) -> Option<Error> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Reader<'_> {
    type Target = Aws;

    fn deref(&self) -> &Aws {
        self.aws
    }
}

/// The clients of AWS, and what Services share of its answers.
pub struct Aws {
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
    /// All target groups, when they were last listed.
    pub target_groups: TargetGroupList,
    pub instances: NodeInstances,
    pub zones: ZoneCache,
    /// Whether tags of network load balancers are read to see whose they are: the UID of the cluster is known.
    pub reads_owners: bool,
    /// Whether tags of load balancers may be read.
    pub tag_reads: TagReads,
    /// Answers that serve several Services.
    pub shared: Shared,
}
