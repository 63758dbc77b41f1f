//! Bounds the memory of parsed requests, for each and for all together.
//!
//! Parsed JSON is larger than its text: `{"a":0}` is 7 bytes of text and about 700 bytes of memory. A limit on bodies
//! does not bound memory, so the parser takes memory from this budget before it allocates.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use outrigger_decide::json::{Memory, MemoryExceeded};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes taken from the shared memory at a time.
const STEP: usize = 64 * 1024;

/// Memory for one request's objects.
#[derive(Debug)]
pub struct MemoryBudget {
    /// Left of the share of this request.
    left: Cell<usize>,
    /// Taken from the shared memory, but not used yet.
    spare: Cell<usize>,
    shared: Option<Arc<Semaphore>>,
    held: RefCell<Option<OwnedSemaphorePermit>>,
    shared_exhausted: Cell<bool>,
}

impl MemoryBudget {
    /// A budget of `most` bytes, taken from `shared`: one permit is one byte.
    pub fn new(shared: &Arc<Semaphore>, most: usize) -> Self {
        Self {
            shared: Some(Arc::clone(shared)),
            ..Self::unshared(most)
        }
    }

    /// A budget of `most` bytes of its own.
    #[must_use]
    pub fn unshared(most: usize) -> Self {
        Self {
            left: Cell::new(most),
            spare: Cell::new(0),
            shared: None,
            held: RefCell::new(None),
            shared_exhausted: Cell::new(false),
        }
    }

    fn fetch(&self, shared: &Arc<Semaphore>, bytes: usize) -> Result<(), MemoryExceeded> {
        let fetched = u32::try_from(bytes)
            .ok()
            .and_then(|permits| Arc::clone(shared).try_acquire_many_owned(permits).ok());
        let Some(fetched) = fetched else {
            self.shared_exhausted.set(true);
            return Err(MemoryExceeded);
        };

        match &mut *self.held.borrow_mut() {
            Some(held) => held.merge(fetched),
            none => *none = Some(fetched),
        }

        self.spare.set(self.spare.get() + bytes);

        Ok(())
    }

    /// Whether other requests hold the requested memory.
    pub fn is_shared_memory_exhausted(&self) -> bool {
        self.shared_exhausted.get()
    }

    /// Returns the permit that holds the used memory until it is dropped.
    pub fn close(self) -> Option<OwnedSemaphorePermit> {
        let mut held = self.held.into_inner()?;
        drop(held.split(self.spare.get()));
        Some(held)
    }
}

impl Memory for MemoryBudget {
    /// Fails when the share of this request or the shared memory is used up; see
    /// [`MemoryBudget::is_shared_memory_exhausted`].
    fn take(&self, bytes: usize) -> Result<(), MemoryExceeded> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(MemoryExceeded)?);
        let Some(shared) = &self.shared else { return Ok(()) };
        if self.spare.get() < bytes {
            self.fetch(shared, (bytes - self.spare.get()).max(STEP))?;
        }
        self.spare.set(self.spare.get() - bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_its_share_and_no_more() {
        let budget = MemoryBudget::unshared(1000);
        assert_eq!(budget.take(600), Ok(()));
        assert_eq!(budget.take(401), Err(MemoryExceeded));
        assert_eq!(budget.take(400), Ok(()));
        assert!(!budget.is_shared_memory_exhausted());
    }

    #[test]
    fn what_others_hold_cannot_be_had_until_they_are_done() {
        let shared = Arc::new(Semaphore::new(3 * STEP));
        let (first, second) = (
            MemoryBudget::new(&shared, 100 * STEP),
            MemoryBudget::new(&shared, 100 * STEP),
        );
        assert_eq!(first.take(STEP + 1), Ok(()));
        assert_eq!(second.take(3 * STEP), Err(MemoryExceeded));
        assert!(second.is_shared_memory_exhausted() && !first.is_shared_memory_exhausted());
        let held = first.close();
        assert_eq!(shared.available_permits(), 2 * STEP - 1, "only the used memory is held");
        drop((held, second));
        assert_eq!(shared.available_permits(), 3 * STEP);
    }
}
