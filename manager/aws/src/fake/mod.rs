//! AWS in memory: state, a log of calls, injected faults. For tests of the controllers.
//!
//! It answers as AWS does where the controllers depend on it: duplicate names and rules are refused, a security
//! group in use cannot be deleted, creating a load balancer twice with the same settings gives the same one.
//!
//! Calls are named by AWS's actions, in the log as for faults and hooks. Where both APIs of load balancers have an action
//! of the same name, that of network load balancers ends in `/v2`: `CreateLoadBalancer` and `CreateLoadBalancer/v2`.

mod buckets;
#[cfg(test)]
mod conformance;
mod ec2;
mod elb;
mod elb_validation;
mod elbv2;
mod instances;
mod lag;
mod network;
mod refusals;
mod routes;
mod target_groups;
pub mod traffic;
mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use outrigger_aws_quotas as quotas;

pub use network::{FakeListener, FakeNetworkLoadBalancer, FakeTargetGroup, Network};
pub use world::{FakeLoadBalancer, World};

use crate::limit::Priority;
use crate::{Error, Page, Result, Token};
use refusals::refuse;

/// One call as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The AWS action, ending in `/v2` where the name alone could mean either API of load balancers.
    pub action: &'static str,
    /// The subject of the call: names, IDs, ports.
    pub about: String,
    /// Whether it changes anything at AWS.
    pub write: bool,
    /// The priority of the task.
    pub priority: Priority,
}

#[derive(Default)]
struct Inner {
    world: World,
    calls: Vec<Call>,
    faults: BTreeMap<&'static str, VecDeque<Option<Error>>>,
    permanent: BTreeMap<&'static str, Error>,
    writes_left: Option<usize>,
    dead: bool,
    hook: Option<(&'static str, Hook)>,
    witnesses: Vec<Witness>,
    buckets: Option<buckets::Buckets>,
    page_size: Option<usize>,
    denied: BTreeSet<String>,
    lag: Option<lag::Lag>,
}

type Hook = Box<dyn FnOnce() + Send>;

type Witness = Box<dyn FnMut(&World, &World) + Send>;

/// AWS in memory. Implements [`crate::Ec2`], [`crate::Elb`] and [`crate::Elbv2`].
#[derive(Default)]
pub struct FakeAws {
    inner: Mutex<Inner>,
}

impl FakeAws {
    #[must_use]
    pub fn new(world: World) -> Self {
        Self {
            inner: Mutex::new(Inner {
                world,
                ..Inner::default()
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn world(&self) -> World {
        self.inner().world.clone()
    }

    /// Changes the state as another AWS client would.
    pub fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.inner().world);
    }

    /// All calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// The writes so far as `Action about`, in order.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let calls = self.calls().into_iter().filter(|call| call.write);
        calls.map(|call| format!("{} {}", call.action, call.about)).collect()
    }

    pub fn forget_calls(&self) {
        self.inner().calls.clear();
    }

    /// The next call of `action` fails with `error` and has no effect.
    pub fn fail_next(&self, action: &'static str, error: Error) {
        self.plan_next(action, Some(error));
    }

    /// Drops the planned faults of [`FakeAws::fail_next`] that no call has met.
    pub fn forget_faults(&self) {
        self.inner().faults.clear();
    }

    /// The next call of `action` for which nothing is planned yet fails with the error, or gets through.
    pub fn plan_next(&self, action: &'static str, fault: Option<Error>) {
        self.inner().faults.entry(action).or_default().push_back(fault);
    }

    /// Every call of `action` fails with `error` and has no effect, until [`FakeAws::allow`].
    pub fn fail_always(&self, action: &'static str, error: Error) {
        self.inner().permanent.insert(action, error);
    }

    /// Ends [`FakeAws::fail_always`].
    pub fn allow(&self, action: &str) {
        self.inner().permanent.remove(action);
    }

    /// The write number `count` from now takes effect, but its answer is lost, and from then on no call gets
    /// through: what AWS sees of a caller that is killed in the middle. See [`FakeAws::revive`].
    pub fn die_at_write(&self, count: usize) {
        self.inner().writes_left = Some(count);
    }

    /// Does something else in the middle of the next write of `action`, after its effect.
    pub fn on_write(&self, action: &'static str, hook: impl FnOnce() + Send + 'static) {
        self.inner().hook = Some((action, Box::new(hook)));
    }

    /// Shows `witness` the state before and after each write that takes effect, beside earlier witnesses.
    pub fn witness(&self, witness: impl FnMut(&World, &World) + Send + 'static) {
        self.inner().witnesses.push(Box::new(witness));
    }

    /// Lets calls through again.
    pub fn revive(&self) {
        let mut inner = self.inner();
        inner.dead = false;
        inner.writes_left = None;
    }

    /// From now on calls are throttled as AWS throttles an account's.
    pub fn throttle_like_aws(&self) {
        self.throttle_beside(0.0);
    }

    /// The same in an account in which another tenant takes this part of each bucket's refill all the time.
    pub fn throttle_beside(&self, taken: f64) {
        self.inner().buckets = Some(buckets::Buckets::beside(taken));
    }

    /// From now on lists come in pages of so many items; otherwise in one.
    pub fn page_size(&self, items: usize) {
        self.inner().page_size = Some(items);
    }

    /// Reads the page of a list that begins at `token`, the number of items before it.
    fn list<T>(
        &self,
        action: &'static str,
        about: String,
        token: Token,
        answer: impl FnOnce(&mut World) -> Result<Vec<T>>,
    ) -> Result<Page<T>> {
        let list = self.read(action, about, answer)?;
        let begin = token.and_then(|token| token.parse().ok()).unwrap_or(0);
        let end = self.inner().page_size.map_or(list.len(), |size| begin + size);
        let next = (end < list.len()).then(|| end.to_string());
        Ok(Page::new(list.into_iter().take(end).skip(begin), next))
    }

    /// No policy allows this IAM action (`ec2:CreateTags`) from now on. The message does not name it: AWS names it only
    /// where the caller may know it.
    pub fn deny(&self, action: &str) {
        let action = action.split_once(':').map_or(action, |(_, action)| action);
        self.inner().denied.insert(action.to_owned());
    }

    /// A read. AWS may move on by it: what takes time there takes a number of reads here.
    fn read<T>(&self, action: &'static str, about: String, answer: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut inner = self.inner();
        inner.admit(action, about, false)?;
        answer(&mut inner.world)
    }

    fn write<T>(&self, action: &'static str, about: String, effect: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut inner = self.inner();
        inner.admit(action, about, true)?;

        let Inner { world, lag, .. } = &mut *inner;
        if let Some(lag) = lag {
            lag.keep(&world.security_groups);
        }
        let before = (!inner.witnesses.is_empty()).then(|| inner.world.clone());
        let answer = effect(&mut inner.world);
        inner.testify(before.filter(|_| answer.is_ok()));
        if let Some((_, hook)) = inner.hook.take_if(|(of, _)| *of == action) {
            hook();
        }

        if let Some(left) = inner.writes_left.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                inner.dead = true;
                return Err(Error::unanswered(action, "the caller died"));
            }
        }

        answer
    }
}

impl Inner {
    /// An action of the same name is one permission in both APIs of load balancers.
    fn allowed(&self, action: &'static str) -> Result<()> {
        let name = action.strip_suffix("/v2").unwrap_or(action);
        if !self.denied.contains(name) {
            return Ok(());
        }
        let message = "You are not authorized to perform this operation.";
        refuse(name, "UnauthorizedOperation", message)
    }

    fn testify(&mut self, before: Option<World>) {
        let Some(before) = before else {
            return;
        };
        for witness in &mut self.witnesses {
            witness(&before, &self.world);
        }
    }

    fn admit(&mut self, action: &'static str, about: String, write: bool) -> Result<()> {
        if self.dead {
            return Err(Error::unanswered(action, "the caller is dead"));
        }

        let admitted = match &mut self.buckets {
            Some(buckets) => buckets.admit(action, &about),
            None => self.allowed(action),
        };
        self.calls.push(Call {
            action,
            about,
            write,
            priority: Priority::current(),
        });
        admitted?;
        if let Some(error) = self.permanent.get(action) {
            return Err(error.clone());
        }

        match self.faults.get_mut(action).and_then(VecDeque::pop_front).flatten() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
