//! Threads for decisions, apart from those that serve connections: probes, metrics and other answers never wait for a
//! decision.
//!
//! Reviews that wait for a thread are decided in turns: those of API servers first, then one of each caller in turn, so a
//! caller with many reviews delays only its own. Other callers than API servers get at most half of the threads.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::callers::{Caller, Rank};

#[derive(Debug)]
pub struct DecisionThreads {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Threads that other callers than API servers may still take.
    free_for_others: usize,
    waiting: BTreeMap<Turn, (IpAddr, oneshot::Sender<Thread>)>,
    /// The rounds of the last reviews that left the queue, of API servers and of others.
    rounds: BTreeMap<Rank, u64>,
    /// The last round in which each caller waits.
    last: HashMap<IpAddr, u64>,
    next: u64,
}

/// The smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: Rank,
    round: u64,
    number: u64,
}

/// A thread, until it is dropped; then the next one in the queue gets it.
#[derive(Debug)]
struct Thread {
    queue: Arc<Mutex<Queue>>,
    rank: Rank,
}

impl Drop for Thread {
    fn drop(&mut self) {
        let next = {
            let mut queue = lock(&self.queue);
            queue.put_back(self.rank);
            queue.pop()
        };
        if let Some((rank, next)) = next {
            let queue = Arc::clone(&self.queue);
            // A caller that has gone drops the thread, and so passes it on.
            let _gone = next.send(Self { queue, rank });
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn push(&mut self, caller: Caller) -> oneshot::Receiver<Thread> {
        let now = self.rounds.get(&caller.rank).copied().unwrap_or_default();
        let last = self.last.get(&caller.address);
        let round = last.map_or(now, |last| now.max(last + 1));
        self.last.insert(caller.address, round);

        let turn = Turn {
            rank: caller.rank,
            round,
            number: self.next,
        };
        self.next += 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(turn, (caller.address, sender));

        receiver
    }

    /// Takes a thread; false if none is free for such a caller.
    fn take(&mut self, rank: Rank) -> bool {
        let is_free = self.free > 0 && (rank == Rank::ApiServer || self.free_for_others > 0);
        if is_free {
            self.free -= 1;
            self.free_for_others -= usize::from(rank == Rank::Other);
        }
        is_free
    }

    fn put_back(&mut self, rank: Rank) {
        self.free += 1;
        self.free_for_others += usize::from(rank == Rank::Other);
    }

    /// The next that waits, with a thread; none if no thread is free for it.
    fn pop(&mut self) -> Option<(Rank, oneshot::Sender<Thread>)> {
        let rank = self.waiting.first_key_value()?.0.rank;
        if !self.take(rank) {
            return None;
        }

        let (turn, (address, next)) = self.waiting.pop_first()?;
        self.rounds.insert(rank, turn.round);
        if self.last.get(&address) == Some(&turn.round) {
            self.last.remove(&address);
        }

        Some((rank, next))
    }
}

impl DecisionThreads {
    /// At most `number` decisions run at the same time.
    #[must_use]
    pub fn new(number: usize) -> Self {
        Self {
            queue: Arc::new(Mutex::new(Queue {
                free: number,
                free_for_others: number.div_ceil(2),
                waiting: BTreeMap::new(),
                rounds: BTreeMap::new(),
                last: HashMap::new(),
                next: 0,
            })),
        }
    }

    /// As many as the machine has processors: a decision never waits for anything but a processor.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Runs `work` for a caller on a thread of its own as soon as one is free. Dropping the future before that drops the
    /// work.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T: Send + 'static>(&self, caller: Caller, work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = self.thread(caller).await;
        let running = spawn_blocking(move || {
            let result = work();
            drop(thread);
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

    async fn thread(&self, caller: Caller) -> Thread {
        let waiting = {
            let mut queue = lock(&self.queue);
            if queue.take(caller.rank) {
                let queue = Arc::clone(&self.queue);
                return Thread {
                    queue,
                    rank: caller.rank,
                };
            }
            queue.push(caller)
        };

        match waiting.await {
            Ok(thread) => thread,
            // The queue keeps what waits, so it is never dropped before.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn caller(number: u8) -> Caller {
        ranked(Rank::Other, number)
    }

    fn ranked(rank: Rank, number: u8) -> Caller {
        Caller {
            rank,
            address: IpAddr::from([192, 0, 2, number]),
        }
    }

    #[tokio::test]
    async fn api_servers_come_first_and_others_in_turn() {
        let threads = Arc::new(DecisionThreads::new(1));
        let first = threads.thread(caller(1)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let callers = [
            (caller(1), "a"),
            (caller(1), "b"),
            (caller(1), "c"),
            (caller(2), "d"),
            (ranked(Rank::ApiServer, 3), "e"),
            (caller(2), "f"),
            (ranked(Rank::ApiServer, 3), "g"),
        ];
        let mut tasks = Vec::new();
        for (caller, name) in callers {
            let (threads, order) = (Arc::clone(&threads), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                threads.run(caller, move || order.lock().unwrap().push(name)).await;
            }));
            tokio::task::yield_now().await;
        }
        // One that gives up while it waits passes its turn on.
        tasks[1].abort();
        tokio::task::yield_now().await;

        drop(first);
        for task in tasks {
            let _aborted = task.await;
        }
        assert_eq!(*order.lock().unwrap(), ["e", "g", "a", "d", "f", "c"]);
        let queue = lock(&threads.queue);
        assert!(queue.free == 1 && queue.last.is_empty(), "{queue:?}");
    }

    #[tokio::test]
    async fn half_of_the_threads_is_for_api_servers() {
        let threads = DecisionThreads::new(4);
        let others = [threads.thread(caller(1)).await, threads.thread(caller(2)).await];
        let mut third = std::pin::pin!(threads.thread(caller(3)));
        assert!(futures::poll!(&mut third).is_pending());
        let api_servers = [
            threads.thread(ranked(Rank::ApiServer, 9)).await,
            threads.thread(ranked(Rank::ApiServer, 9)).await,
        ];

        drop(api_servers);
        assert!(futures::poll!(&mut third).is_pending(), "two others still have threads");
        drop(others);
        third.await;
    }

    /// With one thread for connections, a decision that does not end must not stop the others.
    #[tokio::test]
    async fn a_decision_does_not_use_the_threads_of_connections() {
        let threads = Arc::new(DecisionThreads::new(1));
        let (end, ended) = mpsc::channel::<()>();
        let own = Arc::clone(&threads);
        // The wait ends also if the decision blocks the thread of this test.
        let wait = std::time::Duration::from_secs(10);
        let first = tokio::spawn(async move { own.run(caller(1), move || ended.recv_timeout(wait).is_ok()).await });
        let own = Arc::clone(&threads);
        let second = tokio::spawn(async move { own.run(caller(1), || 2).await });
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
        let panicked = tokio::spawn(async move { own.run(caller(1), || panic!("no")).await });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(threads.run(caller(1), || 1).await, 1);
    }
}
