//! One look at AWS on behalf of one Service.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outrigger_aws::{Error as AwsError, Kind};

use super::super::error::Error;
use super::super::plan::Plan;
use super::Aws;
use super::moment::Moment;

/// How long an answer that was given to one Service serves others.
pub const MAX_AGE: Duration = Duration::from_secs(60);

/// A look. It notes whether it was told anything that is older than itself.
pub struct Look<'a> {
    aws: &'a Aws,
    began: Moment,
    quick: bool,
    for_targets: bool,
    older_shared: AtomicBool,
    older_balancer: AtomicBool,
    denied: Mutex<Option<AwsError>>,
}

impl<'a> Look<'a> {
    /// A look that takes what others were told up to [`MAX_AGE`] ago.
    #[must_use]
    pub fn quick(aws: &'a Aws) -> Self {
        Self::new(aws, true)
    }

    /// The same for the sake of targets, after Nodes have changed: attributes, which are read of each load balancer and of
    /// each target group alone, are left to the next look of another kind.
    #[must_use]
    pub fn for_targets(aws: &'a Aws) -> Self {
        Self {
            for_targets: true,
            ..Self::new(aws, true)
        }
    }

    /// A look that takes only what is told from now on.
    #[must_use]
    pub fn fresh(aws: &'a Aws) -> Self {
        Self::new(aws, false)
    }

    fn new(aws: &'a Aws, quick: bool) -> Self {
        Self {
            aws,
            began: Moment::now(),
            quick,
            for_targets: false,
            older_shared: AtomicBool::new(false),
            older_balancer: AtomicBool::new(false),
            denied: Mutex::default(),
        }
    }

    /// Whether it takes what others were told.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Whether it reads attributes.
    #[must_use]
    pub fn reads_attributes(&self) -> bool {
        !self.for_targets
    }

    /// The answer of a read that a plan can do without: `None` if AWS denies the action. The denial is kept for
    /// [`Look::denied`].
    ///
    /// # Errors
    /// When the read failed for any other reason.
    pub fn optional<T>(&self, answer: Result<T, AwsError>) -> Result<Option<T>, AwsError> {
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
    #[must_use]
    pub fn denied(&self) -> Option<AwsError> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether what came of this look may be acted upon, or a fresh one has to come first.
    ///
    /// Nothing is written and nothing is called wrong for what is older than the look, with one exception: targets may
    /// change on the word of a description of the load balancer from the last minute, since adding one that is there or
    /// taking away one that is not changes nothing, and subnets and groups have no say in who is a target.
    #[must_use]
    pub fn suffices(&self, outcome: &Result<&Plan, &Error>) -> bool {
        let balancer = self.older_balancer.load(Ordering::Relaxed);
        let older = balancer || self.older_shared.load(Ordering::Relaxed);
        match outcome {
            Ok(plan) if plan.refused.is_some() => !older && !self.for_targets,
            Ok(plan) if plan.steps.is_empty() => true,
            Ok(plan) if plan.changes_targets_only() => !balancer,
            // What else is to be done may concern what a look for targets has not read.
            Ok(_) => !older && !self.for_targets,
            Err(_) if !older => true,
            Err(Error::World(_)) => false,
            Err(Error::Aws(error)) => error.kind() != Kind::NotFound,
            Err(_) => true,
        }
    }

    /// Notes that the load balancer was described by something that may be much older than the look.
    pub fn was_told_older(&self) {
        self.older_balancer.store(true, Ordering::Relaxed);
    }

    /// Whether an answer of that moment serves as what is shared.
    pub(super) fn takes_shared(&self, answered: Moment) -> bool {
        self.takes(answered, MAX_AGE, &self.older_shared)
    }

    /// Whether a description of that moment, made ahead, serves as the load balancer's.
    pub(super) fn takes_ahead(&self, described: Moment, max_age: Duration) -> bool {
        self.takes_shared(described) || self.takes(described, max_age, &self.older_balancer)
    }

    fn takes(&self, answered: Moment, max_age: Duration, older: &AtomicBool) -> bool {
        if answered.is_after(self.began) {
            return true;
        }
        let serves = self.quick && answered.age(self.began) < max_age;
        if serves {
            older.store(true, Ordering::Relaxed);
        }
        serves
    }
}

impl Deref for Look<'_> {
    type Target = Aws;

    fn deref(&self) -> &Aws {
        self.aws
    }
}
