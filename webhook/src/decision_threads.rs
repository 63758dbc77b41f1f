//! Threads for decisions, apart from those that serve connections: probes, metrics and other answers never wait for a
//! decision.
//!
//! Reviews that wait for a thread are decided in turns: those of API servers first, then one of each caller in turn, so a
//! caller with many reviews delays only its own. Other callers than API servers get at most half of the threads.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::callers::{Caller, Rank};

type Work = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub struct DecisionThreads {
    queue: Arc<Mutex<Queue>>,
}

struct Queue {
    free: usize,
    /// Threads that other callers than API servers may still take.
    free_for_others: usize,
    waiting: BTreeMap<Turn, (IpAddr, Work)>,
    /// The round in which a review of a caller without others is decided: the next one after that of the last review that
    /// left the queue. Of API servers and of others.
    rounds: BTreeMap<Rank, u64>,
    callers: HashMap<IpAddr, Waiting>,
    next: u64,
}

/// The reviews of a caller that wait.
#[derive(Debug)]
struct Waiting {
    number: usize,
    /// Of the last one, also if it gave up.
    round: u64,
}

/// The smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    rank: Rank,
    round: u64,
    number: u64,
}

/// A place in the queue. Dropping it drops the work, unless it has begun.
struct Place {
    queue: Arc<Mutex<Queue>>,
    turn: Turn,
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = lock(&self.queue).remove(self.turn);
        // After the lock: the work may hold much memory.
        drop(removed);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("free", &self.free)
            .field("waiting", &self.waiting.keys())
            .field("callers", &self.callers)
            .finish_non_exhaustive()
    }
}

impl Queue {
    fn push(&mut self, caller: Caller, work: Work) -> Turn {
        let now = self.rounds.get(&caller.rank).copied().unwrap_or_default();
        let own = self.callers.entry(caller.address);
        let own = own
            .and_modify(|own| own.round = now.max(own.round + 1))
            .or_insert(Waiting { number: 0, round: now });
        own.number += 1;

        let turn = Turn {
            rank: caller.rank,
            round: own.round,
            number: self.next,
        };
        self.next += 1;
        self.waiting.insert(turn, (caller.address, work));

        turn
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

    /// The next work that waits, with a thread; none if no thread is free for it.
    fn pop(&mut self) -> Option<(Rank, Work)> {
        let turn = *self.waiting.first_key_value()?.0;
        if !self.take(turn.rank) {
            return None;
        }

        self.rounds.insert(turn.rank, turn.round + 1);
        Some((turn.rank, self.remove(turn)?))
    }

    fn remove(&mut self, turn: Turn) -> Option<Work> {
        let (address, work) = self.waiting.remove(&turn)?;
        if let Some(own) = self.callers.get_mut(&address) {
            own.number -= 1;
            if own.number == 0 {
                self.callers.remove(&address);
            }
        }
        Some(work)
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
                callers: HashMap::new(),
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
        let (sender, result) = oneshot::channel();
        let work = move || {
            // Its receiver may have given up.
            drop(sender.send(catch_unwind(AssertUnwindSafe(work))));
        };
        let _place = self.push(caller, Box::new(work));

        match result.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            // The process ends, and with it the caller.
            Err(_) => std::future::pending().await,
        }
    }

    fn push(&self, caller: Caller, work: Work) -> Place {
        let (turn, next) = {
            let mut queue = lock(&self.queue);
            (queue.push(caller, work), queue.pop())
        };
        if let Some(first) = next {
            let queue = Arc::clone(&self.queue);
            spawn_blocking(move || work_through(&queue, first));
        }

        Place {
            queue: Arc::clone(&self.queue),
            turn,
        }
    }
}

/// Does this work, and then what waits. A thread takes its next work itself: under load no decision waits until another
/// thread has been woken.
fn work_through(queue: &Mutex<Queue>, first: (Rank, Work)) {
    let mut next = Some(first);
    while let Some((rank, work)) = next {
        work();
        let mut queue = lock(queue);
        queue.put_back(rank);
        next = queue.pop();
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

    /// Takes a thread for this caller until the sender is dropped. Returns when the work has begun.
    async fn occupy(threads: &DecisionThreads, caller: Caller) -> (mpsc::Sender<()>, Place) {
        let ((end, ended), (begin, begun)) = (mpsc::channel::<()>(), oneshot::channel());
        let work = move || {
            begin.send(()).unwrap();
            let _ended = ended.recv();
        };
        let place = threads.push(caller, Box::new(work));
        begun.await.unwrap();
        (end, place)
    }

    #[tokio::test]
    async fn api_servers_come_first_and_others_in_turn() {
        let threads = Arc::new(DecisionThreads::new(1));
        let first = occupy(&threads, caller(1)).await;
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
        assert_eq!(lock(&threads.queue).waiting.len(), 6, "its work is dropped at once");

        drop(first);
        for task in tasks {
            let _aborted = task.await;
        }
        assert_eq!(*order.lock().unwrap(), ["e", "g", "a", "d", "f", "c"]);
        assert!(lock(&threads.queue).callers.is_empty());
    }

    /// The order in which a queue with one thread decides reviews. `next`: a review that is added after each of these.
    fn order(queue: &mut Queue, mut next: impl FnMut(&mut Queue, usize)) -> Vec<IpAddr> {
        let mut order = Vec::new();
        while let Some(turn) = queue.waiting.first_key_value().map(|(turn, _)| *turn) {
            order.push(queue.waiting[&turn].0);
            let (rank, _) = queue.pop().unwrap();
            next(queue, order.len());
            queue.put_back(rank);
        }
        order
    }

    #[test]
    fn a_caller_with_one_review_at_a_time_does_not_come_before_one_with_many() {
        let threads = DecisionThreads::new(1);
        let mut queue = lock(&threads.queue);
        let (many, single) = (caller(1), caller(2));
        for _ in 0..20 {
            queue.push(many, Box::new(|| ()));
        }
        queue.push(single, Box::new(|| ()));
        let order = order(&mut queue, |queue, number| {
            if number < 30 {
                queue.push(single, Box::new(|| ()));
            }
        });
        let of_many = order[..20].iter().filter(|address| **address == many.address).count();
        assert_eq!(of_many, 10, "each second one: {order:?}");
    }

    #[test]
    fn a_caller_that_gives_up_reviews_gets_no_earlier_turns() {
        let threads = DecisionThreads::new(1);
        let mut queue = lock(&threads.queue);
        let (flood, honest) = (caller(1), caller(2));
        for _ in 0..20 {
            queue.push(flood, Box::new(|| ()));
            let given_up = queue.push(flood, Box::new(|| ()));
            queue.remove(given_up);
        }
        queue.push(honest, Box::new(|| ()));
        let order = order(&mut queue, |_, _| {});
        assert_eq!(order[1], honest.address, "{order:?}");
    }

    /// Whether work of this caller begins within a while.
    async fn begins(threads: &DecisionThreads, caller: Caller) -> bool {
        let while_ = std::time::Duration::from_millis(200);
        tokio::time::timeout(while_, threads.run(caller, || ())).await.is_ok()
    }

    #[tokio::test]
    async fn half_of_the_threads_is_for_api_servers() {
        let threads = DecisionThreads::new(4);
        let others = [occupy(&threads, caller(1)).await, occupy(&threads, caller(2)).await];
        assert!(!begins(&threads, caller(3)).await);
        let api_servers = [
            occupy(&threads, ranked(Rank::ApiServer, 9)).await,
            occupy(&threads, ranked(Rank::ApiServer, 9)).await,
        ];
        assert!(!begins(&threads, ranked(Rank::ApiServer, 9)).await, "all are taken");

        drop(api_servers);
        assert!(!begins(&threads, caller(3)).await, "two others still have threads");
        drop(others);
        assert!(begins(&threads, caller(3)).await);
    }

    #[tokio::test]
    async fn each_thread_is_free_again_when_nothing_waits() {
        let threads = Arc::new(DecisionThreads::new(3));
        let all = (0..200_u8).map(|number| {
            let threads = Arc::clone(&threads);
            let rank = if number % 3 == 0 { Rank::ApiServer } else { Rank::Other };
            tokio::spawn(async move { threads.run(ranked(rank, number % 7), move || number).await })
        });
        for (number, done) in futures::future::join_all(all).await.into_iter().enumerate() {
            assert_eq!(usize::from(done.unwrap()), number);
        }
        // The last thread gives itself back after its answer.
        while lock(&threads.queue).free < 3 {
            tokio::task::yield_now().await;
        }
        let queue = lock(&threads.queue);
        assert!(queue.free_for_others == 2 && queue.waiting.is_empty() && queue.callers.is_empty());
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
