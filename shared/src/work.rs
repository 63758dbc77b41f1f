//! Bounds the work of one decision.
//!
//! Work is counted in steps and not measured, so that the same input has the same result on every machine. Code whose
//! work depends on untrusted input takes its steps before it begins. A budget is active on a thread while
//! [`WorkBudget::run`] runs there: parsers and rules far below need no parameter for it, and none can forget to pass it on.
//! Without an active budget work is not limited.
//!
//! A budget that is exceeded once stays exceeded, so code that ignores the error cannot go on with the next part.

use std::cell::Cell;

/// Nanoseconds of one step, about, in a release build.
pub const STEP_NANOSECONDS: u64 = 10;

/// The work is more than the budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it needs more work than one decision may take")]
pub struct WorkExceeded;

/// Steps for one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkBudget {
    limit: u64,
    left: u64,
    is_exceeded: bool,
}

thread_local! {
    static ACTIVE: Cell<Option<WorkBudget>> = const { Cell::new(None) };
    /// Counts the calls of [`WorkBudget::run`].
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

/// Makes the previous budget active again, also after a panic.
struct Previous(Option<WorkBudget>);

impl Drop for Previous {
    fn drop(&mut self) {
        ACTIVE.set(self.0);
    }
}

impl WorkBudget {
    #[must_use]
    pub const fn new(steps: u64) -> Self {
        Self {
            limit: steps,
            left: steps,
            is_exceeded: false,
        }
    }

    /// Runs `work` with this budget active on this thread.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> T {
        RUNS.set(RUNS.get().wrapping_add(1));
        let previous = Previous(ACTIVE.replace(Some(*self)));
        let result = work();
        *self = ACTIVE.get().unwrap_or(*self);
        drop(previous);
        result
    }

    #[must_use]
    pub const fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Steps taken so far.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.limit - self.left
    }

    fn take(&mut self, steps: u64) -> Result<(), WorkExceeded> {
        match self.left.checked_sub(steps) {
            Some(left) if !self.is_exceeded => {
                self.left = left;
                Ok(())
            }
            _ => {
                self.is_exceeded = true;
                Err(WorkExceeded)
            }
        }
    }
}

/// Takes steps from the active budget.
///
/// # Errors
/// [`WorkExceeded`] if fewer steps are left, and for every call after that.
pub fn take(steps: usize) -> Result<(), WorkExceeded> {
    let Some(mut budget) = ACTIVE.get() else {
        return Ok(());
    };

    let result = budget.take(steps as u64);
    ACTIVE.set(Some(budget));
    result
}

/// Whether the active budget is exceeded.
#[must_use]
pub fn is_exceeded() -> bool {
    ACTIVE.get().is_some_and(|budget| budget.is_exceeded)
}

/// A number of the active budget's run on this thread: results of the same run may be used again.
pub(crate) fn active_run() -> Option<u64> {
    ACTIVE.get().map(|_| RUNS.get())
}

/// Runs `work` within the active budget, or within a new one of so many steps. Returns whether it was exceeded.
pub fn within<T>(steps: u64, work: impl FnOnce() -> T) -> (T, bool) {
    if ACTIVE.get().is_some() {
        let result = work();
        return (result, is_exceeded());
    }

    let mut budget = WorkBudget::new(steps);
    let result = budget.run(work);
    (result, budget.is_exceeded())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_a_budget_is_not_limited() {
        assert_eq!(take(usize::MAX), Ok(()));
        assert!(!is_exceeded());
    }

    #[test]
    fn a_budget_that_was_exceeded_stays_exceeded() {
        let mut budget = WorkBudget::new(10);
        budget.run(|| {
            assert_eq!(take(6), Ok(()));
            assert_eq!(take(5), Err(WorkExceeded));
            assert_eq!(take(1), Err(WorkExceeded), "the rest is smaller than what is left");
        });
        assert!(budget.is_exceeded());
        assert_eq!(budget.used(), 6);
    }

    #[test]
    fn a_decision_in_two_parts_has_one_budget() {
        let mut budget = WorkBudget::new(10);
        budget.run(|| take(6)).unwrap();
        assert_eq!(take(100), Ok(()), "not active in between");
        assert_eq!(budget.run(|| take(6)), Err(WorkExceeded));
    }

    #[test]
    fn the_previous_budget_is_active_again_after_a_panic() {
        let mut outer = WorkBudget::new(10);
        outer.run(|| {
            let panicked = std::panic::catch_unwind(|| WorkBudget::new(1).run(|| panic!("no")));
            assert!(panicked.is_err());
            assert_eq!(take(10), Ok(()));
            assert!(within(1, || take(1)).1, "the active budget counts, not a new one");
        });
        assert_eq!(ACTIVE.get(), None);
    }
}
