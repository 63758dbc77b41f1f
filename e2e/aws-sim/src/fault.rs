//! Faults that a test injects into chosen calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::query::is_write;

/// On which side of the simulated AWS a fault acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    BeforeForwarding,
    /// AWS has done the work, the caller has no answer yet.
    AfterForwarding,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Error { status: u16, code: String },
    Latency(Duration),
    Drop(When),
    Hold(When),
}

/// A rule: which calls, and what happens to them. Made with [`Fault::on`] and a kind, narrowed with the other methods.
#[derive(Debug, Clone)]
pub struct Fault {
    action: String,
    caller: Option<String>,
    first: usize,
    times: Option<usize>,
    pub(super) kind: Kind,
}

/// Stands for every action; no action of AWS is spelled like this.
const EVERYTHING: &str = "*";
const WRITES: &str = "* that writes";

/// A rule that does not say yet what happens.
#[derive(Debug, Clone)]
pub struct FaultOn(String);

impl Fault {
    /// A rule for every call of `action` (both generations of Elastic Load Balancing, where they share a name).
    pub fn on(action: impl Into<String>) -> FaultOn {
        FaultOn(action.into())
    }

    pub fn on_everything() -> FaultOn {
        FaultOn(EVERYTHING.to_owned())
    }

    pub fn on_writes() -> FaultOn {
        FaultOn(WRITES.to_owned())
    }

    #[must_use]
    pub fn by(mut self, caller: impl Into<String>) -> Self {
        self.caller = Some(caller.into());
        self
    }

    /// Only from the `n`-th matching call on, counted from 1.
    #[must_use]
    pub fn from(mut self, n: usize) -> Self {
        self.first = n;
        self
    }

    /// Only so often; without it, every time.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    fn matches(&self, caller: &str, action: &str) -> bool {
        let fits = match self.action.as_str() {
            EVERYTHING => true,
            WRITES => is_write(action),
            named => named == action,
        };
        fits && self.caller.as_deref().is_none_or(|name| name == caller)
    }

    /// Whether the `n`-th matching call is hit.
    fn hits(&self, n: usize) -> bool {
        n >= self.first && self.times.is_none_or(|times| n < self.first.saturating_add(times))
    }
}

impl FaultOn {
    /// AWS refuses the call with this status and error code, and does nothing.
    pub fn error(self, status: u16, code: impl Into<String>) -> Fault {
        self.kind(Kind::Error {
            status,
            code: code.into(),
        })
    }

    /// The call reaches AWS this much later.
    pub fn latency(self, delay: Duration) -> Fault {
        self.kind(Kind::Latency(delay))
    }

    /// The connection is closed without an answer.
    pub fn drop_connection(self, when: When) -> Fault {
        self.kind(Kind::Drop(when))
    }

    /// The call waits until the test lets it go on ([`FaultHandle::release`]) or ends it ([`FaultHandle::discard`]).
    pub fn hold(self, when: When) -> Fault {
        self.kind(Kind::Hold(when))
    }

    fn kind(self, kind: Kind) -> Fault {
        Fault {
            action: self.0,
            caller: None,
            first: 1,
            times: None,
            kind,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    Discarded,
}

/// A rule at work.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) fault: Fault,
    seen: AtomicUsize,
    hits: watch::Sender<usize>,
    gate: watch::Sender<Gate>,
}

impl Rule {
    /// Waits until the test opens the gate; `false` when it discards the call.
    pub(super) async fn wait(&self) -> bool {
        let mut gate = self.gate.subscribe();
        gate.wait_for(|gate| *gate != Gate::Closed)
            .await
            .is_ok_and(|gate| *gate == Gate::Open)
    }

    /// Tells the test that a call has got to where the fault acts.
    pub(super) fn reached(&self) {
        self.hits.send_modify(|hits| *hits += 1);
    }
}

/// A test's handle of its rule. Dropping it removes the rule and releases held calls.
#[derive(Debug)]
#[must_use = "dropping the handle takes the fault back"]
pub struct FaultHandle {
    rule: Arc<Rule>,
    rules: Arc<Rules>,
}

impl FaultHandle {
    pub fn hits(&self) -> usize {
        *self.rule.hits.borrow()
    }

    /// Waits until it has hit `n` calls (for a hold after forwarding: until AWS has done the work).
    /// `false` when that does not happen within `within`.
    pub async fn reached(&self, n: usize, within: Duration) -> bool {
        let mut hits = self.rule.hits.subscribe();
        tokio::time::timeout(within, hits.wait_for(|hits| *hits >= n))
            .await
            .is_ok_and(|seen| seen.is_ok())
    }

    /// Lets held calls go on, and those that come later pass.
    pub fn release(&self) {
        self.rule.gate.send_replace(Gate::Open);
    }

    /// Ends held calls: their connections are closed, and those not yet forwarded never are.
    pub fn discard(&self) {
        self.rule.gate.send_replace(Gate::Discarded);
    }
}

impl Drop for FaultHandle {
    fn drop(&mut self) {
        self.rules.list().retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        self.rule.gate.send_if_modified(|gate| {
            let closed = *gate == Gate::Closed;
            if closed {
                *gate = Gate::Open;
            }
            closed
        });
    }
}

/// All rules, in the order they were added.
#[derive(Debug, Default)]
pub(super) struct Rules(Mutex<Vec<Arc<Rule>>>);

impl Rules {
    pub(super) fn add(self: &Arc<Self>, fault: Fault) -> FaultHandle {
        let (hits, gate) = (watch::Sender::new(0), watch::Sender::new(Gate::Closed));
        let rule = Arc::new(Rule {
            fault,
            seen: AtomicUsize::new(0),
            hits,
            gate,
        });

        self.list().push(Arc::clone(&rule));
        FaultHandle {
            rule,
            rules: Arc::clone(self),
        }
    }

    /// The rules that hit this call; counts it for all that match.
    pub(super) fn hitting(&self, caller: &str, action: &str) -> Vec<Arc<Rule>> {
        let rules = self.list();
        let matching = rules.iter().filter(|rule| rule.fault.matches(caller, action));
        matching
            .filter(|rule| rule.fault.hits(rule.seen.fetch_add(1, Ordering::Relaxed) + 1))
            .map(Arc::clone)
            .collect()
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Rule>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Fault, Rules, When};

    #[test]
    fn a_rule_hits_the_calls_it_names_and_no_others() {
        let rules = Arc::new(Rules::default());
        let _fault = rules.add(
            Fault::on("CreateTags")
                .error(503, "Unavailable")
                .by("manager")
                .from(2)
                .times(2),
        );
        let hits = |caller, action| !rules.hitting(caller, action).is_empty();
        assert!(!hits("manager", "CreateTags"), "the first passes");
        assert!(
            !hits("other", "CreateTags") && !hits("manager", "DeleteTags"),
            "neither counts"
        );
        assert!(hits("manager", "CreateTags") && hits("manager", "CreateTags"));
        assert!(!hits("manager", "CreateTags"), "the fourth passes");
    }

    #[test]
    fn a_rule_for_everything_hits_every_action() {
        let rules = Arc::new(Rules::default());
        let _fault = rules.add(Fault::on_everything().error(503, "RequestLimitExceeded").by("manager"));
        assert!(!rules.hitting("manager", "DescribeInstances").is_empty());
        assert!(!rules.hitting("manager", "CreateTags").is_empty());
        assert!(rules.hitting("other", "CreateTags").is_empty());
    }

    #[test]
    fn a_rule_for_writes_counts_no_reads() {
        let rules = Arc::new(Rules::default());
        let _fault = rules.add(Fault::on_writes().error(503, "Unavailable").from(2).times(1));
        let hits = |action| !rules.hitting("manager", action).is_empty();
        assert!(!hits("CreateTags") && !hits("DescribeTags"), "the first write passes");
        assert!(hits("DeleteTags") && !hits("DeleteTags"));
    }

    #[tokio::test]
    async fn dropping_the_handle_takes_the_rule_back_and_lets_held_calls_go() {
        let rules = Arc::new(Rules::default());
        let fault = rules.add(Fault::on("CreateTags").hold(When::BeforeForwarding));
        let held = rules.hitting("any", "CreateTags").pop().expect("hit");
        drop(fault);
        assert!(held.wait().await);
        assert!(rules.hitting("any", "CreateTags").is_empty());
    }

    #[tokio::test]
    async fn a_discarded_call_does_not_go_on() {
        let rules = Arc::new(Rules::default());
        let fault = rules.add(Fault::on("CreateTags").hold(When::BeforeForwarding));
        let held = rules.hitting("any", "CreateTags").pop().expect("hit");
        held.reached();
        assert!(fault.reached(1, Duration::ZERO).await);
        fault.discard();
        assert!(!held.wait().await);
    }
}
