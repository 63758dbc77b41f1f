//! The queue against a naive list, its promises, and many keys with real threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tokio::time::Instant;

use super::{Class, Due, Queue, TURNS_PER_OLDEST};

const CLASSES: [Class; 6] = [
    Class::Asked,
    Class::Deregister,
    Class::Register,
    Class::Deletion,
    Class::Start,
    Class::Drift,
];
const SECOND: Duration = Duration::from_secs(1);

fn start<K: Ord + Clone>(queue: &mut Queue<K>, now: Instant) -> Option<(K, Class)> {
    queue.enlist_due(now);
    queue.start()
}

fn due(class: Class, at: Instant) -> Due {
    Due { class, at }
}

/// A list in which each operation looks at all entries.
#[derive(Debug, Default)]
struct List {
    workers: usize,
    waiting: Vec<(u8, Class, Instant)>,
    running: Vec<(u8, Class)>,
    /// Adds of running keys.
    again: Vec<(u8, Class, Instant)>,
    /// Begins of turns while background keys might begin one.
    begun: u32,
}

impl List {
    fn add(&mut self, key: u8, class: Class, at: Instant) {
        let is_running = self.running.iter().any(|(other, _)| *other == key);
        let list = if is_running { &mut self.again } else { &mut self.waiting };
        list.push((key, class, at));
        // Entries of one key are one: the earliest time, and the best class.
        let of_key: Vec<_> = list.iter().filter(|(other, ..)| *other == key).copied().collect();
        list.retain(|(other, ..)| *other != key);
        let class = of_key.iter().map(|(_, class, _)| *class).min().unwrap();
        let at = of_key.iter().map(|(.., at)| *at).min().unwrap();
        list.push((key, class, at));
    }

    fn start(&mut self, now: Instant) -> Option<(u8, Class)> {
        let in_background = self.running.iter().filter(|(_, class)| *class != Class::Asked).count();
        let is_left = |class: Class| class == Class::Asked || self.workers == 1 || in_background + 1 < self.workers;
        if self.running.len() == self.workers {
            return None;
        }

        let may_run = |entry: &&(u8, Class, Instant)| entry.2 <= now && is_left(entry.1);
        let candidates: Vec<_> = self.waiting.iter().filter(may_run).collect();
        let best = candidates.iter().min_by_key(|(key, class, at)| (*class, *at, *key))?;
        let oldest = candidates.iter().min_by_key(|(key, _, at)| (*at, *key))?;
        self.begun += u32::from(is_left(Class::Drift));
        let is_for_oldest = is_left(Class::Drift) && self.begun.is_multiple_of(TURNS_PER_OLDEST);
        let (key, class, _) = if is_for_oldest { **oldest } else { **best };
        self.waiting.retain(|(other, ..)| *other != key);
        self.running.push((key, class));
        Some((key, class))
    }

    fn finish(&mut self, key: u8, next: Option<(Class, Instant)>) {
        self.running.retain(|(other, _)| *other != key);
        let again: Vec<_> = self.again.iter().filter(|(other, ..)| *other == key).copied().collect();
        self.again.retain(|(other, ..)| *other != key);
        let next = next.map(|(class, at)| (key, class, at));
        for (key, class, at) in again.into_iter().chain(next) {
            self.add(key, class, at);
        }
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Add(u8, Class, u64),
    Start,
    /// Ends one of the turns; it is due again after some seconds.
    Finish(prop::sample::Index, Option<(Class, u64)>),
    Wait(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let class = || select(&CLASSES[..]);
    let delay = || prop_oneof![3 => Just(0), 1 => 1..90_u64];
    let operation = prop_oneof![
        4 => (0..8_u8, class(), delay()).prop_map(|(key, class, delay)| Operation::Add(key, class, delay)),
        4 => Just(Operation::Start),
        3 => (any::<prop::sample::Index>(), prop::option::of((class(), delay())))
            .prop_map(|(at, next)| Operation::Finish(at, next)),
        2 => (0..60_u64).prop_map(Operation::Wait),
    ];
    prop::collection::vec(operation, 1..120)
}

/// Adds and begins of turns, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Added(u8),
    Began(u8),
}

/// Each add is followed by the begin of a turn.
fn unanswered(history: &[Happened]) -> Vec<u8> {
    let mut open = BTreeSet::new();
    for happened in history {
        match happened {
            Happened::Added(key) => _ = open.insert(*key),
            Happened::Began(key) => _ = open.remove(key),
        }
    }
    open.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_is_as_a_list_that_is_searched_each_time(workers in 1..5_usize, operations in operations()) {
        let (mut queue, mut list) = (Queue::new(workers), List { workers, ..List::default() });
        let mut now = Instant::now();
        let mut history = Vec::new();

        for operation in operations {
            match operation {
                Operation::Add(key, class, delay) => {
                    let at = now + SECOND * u32::try_from(delay).unwrap();
                    queue.add(key, due(class, at), now);
                    list.add(key, class, at);
                    history.push(Happened::Added(key));
                }
                Operation::Start => {
                    let started = start(&mut queue, now);
                    prop_assert_eq!(started, list.start(now));
                    history.extend(started.map(|(key, _)| Happened::Began(key)));
                }
                Operation::Finish(at, next) if !list.running.is_empty() => {
                    let (key, _) = list.running[at.index(list.running.len())];
                    let next = next.map(|(class, delay)| (class, now + SECOND * u32::try_from(delay).unwrap()));
                    queue.finish(&key, next.map(|(class, at)| due(class, at)), now);
                    list.finish(key, next);
                }
                Operation::Finish(..) => {}
                Operation::Wait(seconds) => now += SECOND * u32::try_from(seconds).unwrap(),
            }

            let keys: BTreeSet<u8> = list.running.iter().map(|(key, _)| *key).collect();
            prop_assert_eq!(keys.len(), list.running.len(), "two turns of one key");
            prop_assert!(keys.len() <= workers);
            prop_assert_eq!(queue.len(), list.running.len() + list.waiting.len());
        }

        // All keys get their turn, and nothing stays.
        while queue.len() > 0 {
            for (key, _) in std::mem::take(&mut list.running) {
                queue.finish(&key, None, now);
            }
            if let Some((key, class)) = start(&mut queue, now) {
                list.running.push((key, class));
                history.push(Happened::Began(key));
            } else if list.running.is_empty() && queue.len() > 0 {
                now = queue.next_due().expect("a key that is due has a worker");
            }
        }
        prop_assert_eq!(unanswered(&history), Vec::<u8>::new());
    }
}

#[test]
fn an_add_during_a_turn_makes_the_key_due_at_its_end() {
    let (mut queue, now) = (Queue::new(7), Instant::now());
    queue.add("a", due(Class::Drift, now), now);
    assert_eq!(start(&mut queue, now), Some(("a", Class::Drift)));
    queue.add("a", due(Class::Asked, now), now);
    assert_eq!(start(&mut queue, now), None, "one turn at a time");

    // Its next turn would be later without the add.
    queue.finish(&"a", Some(due(Class::Drift, now + 1800 * SECOND)), now + SECOND);
    assert_eq!(start(&mut queue, now + SECOND), Some(("a", Class::Asked)));
    queue.finish(&"a", None, now + SECOND);
    assert_eq!(queue.len(), 0);
}

/// All keys of one class, and after them those of the next.
#[test]
fn better_classes_go_first_and_the_first_of_a_class() {
    let (mut queue, now) = (Queue::new(7), Instant::now());
    for (key, class) in CLASSES.iter().take(3).enumerate().rev() {
        queue.add(2 * key, due(*class, now), now);
        queue.add(2 * key + 1, due(*class, now + SECOND), now);
    }
    queue.enlist_due(now + SECOND);
    assert_eq!(queue.due().copied().collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
    let order: Vec<usize> = (0..6)
        .filter_map(|_| {
            let (key, _) = queue.start()?;
            assert_eq!(queue.running().collect::<Vec<_>>(), [&key]);
            queue.finish(&key, None, now + SECOND);
            Some(key)
        })
        .collect();
    assert_eq!(order, (0..6).collect::<Vec<_>>());
}

/// 2,000 keys of a start wait when a target leaves. Keys that have waited for long do not go before it.
#[test]
fn a_target_that_leaves_goes_before_all_keys_of_a_start() {
    let (mut queue, now) = (Queue::new(1), Instant::now());
    for key in 0..2000 {
        queue.add(key, due(Class::Start, now), now);
    }
    let later = now + 600 * SECOND;
    queue.add(5000, due(Class::Deregister, later), later);
    let (key, _) = start(&mut queue, later).unwrap();
    assert_eq!(key, 5000);
}

#[test]
fn one_worker_is_left_to_keys_that_a_user_waits_for() {
    let (mut queue, now) = (Queue::new(3), Instant::now());
    for key in 0..5 {
        queue.add(key, due(Class::Deregister, now), now);
    }
    assert!(start(&mut queue, now).is_some() && start(&mut queue, now).is_some());
    let much_later = now + 3600 * SECOND;
    assert_eq!(start(&mut queue, much_later), None, "also not after a long wait");
    queue.add(9, due(Class::Asked, much_later), much_later);
    assert_eq!(start(&mut queue, much_later), Some((9, Class::Asked)));

    let mut single = Queue::new(1);
    single.add(1, due(Class::Drift, now), now);
    assert!(start(&mut single, now).is_some(), "a single worker does everything");
}

/// One worker, and a new key that a user waits for before each turn.
#[test]
fn one_turn_in_eight_goes_to_the_key_that_is_due_longest() {
    let (mut queue, begin) = (Queue::new(1), Instant::now());
    queue.add(0, due(Class::Drift, begin), begin);
    queue.add(1, due(Class::Drift, begin + SECOND), begin);
    let mut turns = Vec::new();
    for second in 2..40_u32 {
        let now = begin + SECOND * second;
        queue.add(second, due(Class::Asked, now), now);
        let (key, _) = start(&mut queue, now).unwrap();
        queue.finish(&key, None, now);
        turns.push(key);
    }
    let begun = |key: u32| turns.iter().position(|other| *other == key).unwrap() + 1;
    assert_eq!((begun(0), begun(1)), (8, 16));
}

/// A key that waits for its time is not in the way, and one that is due before is not forgotten.
#[test]
fn the_earliest_time_and_the_best_class_of_a_key_count() {
    let (mut queue, now) = (Queue::new(7), Instant::now());
    queue.add("a", due(Class::Drift, now + 1800 * SECOND), now);
    assert_eq!(
        (start(&mut queue, now), queue.next_due()),
        (None, Some(now + 1800 * SECOND))
    );
    queue.add("a", due(Class::Register, now + 5 * SECOND), now);
    queue.add("a", due(Class::Drift, now + 60 * SECOND), now);
    assert_eq!(
        (start(&mut queue, now), queue.next_due()),
        (None, Some(now + 5 * SECOND))
    );
    assert_eq!(start(&mut queue, now + 5 * SECOND), Some(("a", Class::Register)));
    assert_eq!(queue.next_due(), None);
}

/// 2,000 keys, seven workers, and two threads that add keys meanwhile.
#[test]
fn no_add_is_lost_and_no_key_has_two_turns_with_many_threads() {
    const KEYS: usize = 2000;
    const ROUNDS: usize = 10;

    struct Key {
        /// Adds so far, and the number of those at the begin of the last turn.
        added: AtomicUsize,
        seen: AtomicUsize,
        has_turn: AtomicBool,
    }
    let new = |_| Key {
        added: AtomicUsize::new(0),
        seen: AtomicUsize::new(0),
        has_turn: AtomicBool::new(false),
    };
    let keys: Vec<Key> = (0..KEYS).map(new).collect();
    let (queue, changed) = (Mutex::new(Queue::new(7)), Condvar::new());
    let (adding, turns) = (AtomicUsize::new(2), AtomicUsize::new(0));

    let add = |offset: usize| {
        for round in 0..ROUNDS {
            for at in 0..KEYS {
                let key = (at * 7919 + offset) % KEYS;
                let class = CLASSES[(at + round) % CLASSES.len()];
                let now = Instant::now();
                let mut queue = queue.lock().unwrap();
                keys[key].added.fetch_add(1, Ordering::SeqCst);
                queue.add(key, due(class, now), now);
                changed.notify_one();
            }
        }
        adding.fetch_sub(1, Ordering::SeqCst);
        changed.notify_all();
    };
    let work = || {
        loop {
            let mut waiting = queue.lock().unwrap();
            let (key, _) = loop {
                if let Some(started) = start(&mut waiting, Instant::now()) {
                    break started;
                }
                if adding.load(Ordering::SeqCst) == 0 && waiting.len() == 0 {
                    changed.notify_all();
                    return;
                }
                waiting = changed.wait_timeout(waiting, Duration::from_millis(10)).unwrap().0;
            };
            drop(waiting);

            assert!(!keys[key].has_turn.swap(true, Ordering::SeqCst), "two turns of {key}");
            let added = keys[key].added.load(Ordering::SeqCst);
            keys[key].seen.store(added, Ordering::SeqCst);
            turns.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            assert!(keys[key].has_turn.swap(false, Ordering::SeqCst));

            queue.lock().unwrap().finish(&key, None, Instant::now());
            changed.notify_one();
        }
    };
    thread::scope(|scope| {
        for offset in [0, 1] {
            scope.spawn(move || add(offset));
        }
        for _ in 0..7 {
            scope.spawn(work);
        }
    });

    let unseen: BTreeMap<usize, usize> = keys
        .iter()
        .enumerate()
        .filter(|(_, key)| key.seen.load(Ordering::SeqCst) != key.added.load(Ordering::SeqCst))
        .map(|(at, key)| (at, key.added.load(Ordering::SeqCst)))
        .collect();
    assert_eq!(unseen, BTreeMap::new());
    assert!(turns.load(Ordering::SeqCst) >= KEYS);
}
