//! Threads for decisions, apart from those that serve connections: probes, metrics and other answers never wait for a
//! decision.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

#[derive(Debug)]
pub struct DecisionThreads {
    free: Arc<Semaphore>,
}

impl DecisionThreads {
    /// At most `number` decisions run at the same time.
    #[must_use]
    pub fn new(number: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(number)),
        }
    }

    /// As many as the machine has processors: a decision never waits for anything but a processor.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Runs `work` on a thread of its own as soon as one is free. Dropping the future before that drops the work.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let running = spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });

        match running.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process ends, and with it the caller.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// With one thread for connections, a decision that does not end must not stop the others.
    #[tokio::test]
    async fn a_decision_does_not_use_the_threads_of_connections() {
        let threads = Arc::new(DecisionThreads::new(1));
        let (end, ended) = mpsc::channel::<()>();
        let own = Arc::clone(&threads);
        // The wait ends also if the decision blocks the thread of this test.
        let wait = std::time::Duration::from_secs(10);
        let first = tokio::spawn(async move { own.run(move || ended.recv_timeout(wait).is_ok()).await });
        let own = Arc::clone(&threads);
        let second = tokio::spawn(async move { own.run(|| 2).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!first.is_finished() && !second.is_finished());
        end.send(()).unwrap();
        assert!(first.await.unwrap());
        assert_eq!(second.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_panic_is_the_callers_and_frees_the_thread() {
        let threads = Arc::new(DecisionThreads::new(1));
        let own = Arc::clone(&threads);
        let panicked = tokio::spawn(async move { own.run(|| panic!("no")).await });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(threads.run(|| 1).await, 1);
    }
}
