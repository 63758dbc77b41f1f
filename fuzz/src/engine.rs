//! The loop: change a seed, run the target, keep what shows something new, stop at the first broken promise.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Target, features, shrink};

/// Longest input that mutation makes.
pub const MAX_INPUT: usize = 128 * 1024;

/// Most processor time that one input may take, in an unoptimised build. The slowest real objects take a hundredth of it.
pub const MAX_TIME: Duration = Duration::from_secs(2);

/// When to end.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Wall clock.
    pub time: Duration,
    /// Inputs.
    pub executions: u64,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input, made smaller where that was possible.
    pub input: Vec<u8>,
    /// Where and what.
    pub message: String,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inputs run, seeds included.
    pub executions: u64,
    /// Wall clock.
    pub elapsed: Duration,
    /// Seeds at the start.
    pub seeds: usize,
    /// Inputs that showed something new.
    pub kept: Vec<Vec<u8>>,
    /// Different features seen.
    pub features: usize,
    /// Most processor time of one input.
    pub slowest: Duration,
    /// The first failure; the run ends there.
    pub failure: Option<Failure>,
}

/// Runs a target. With `current`, each input is written to that file before it runs ([`current`] reads it), so that one that ends
/// the process is not lost.
///
/// # Panics
/// When `current` cannot be written.
pub fn run(
    target: &Target,
    seeds: Vec<Vec<u8>>,
    random: &mut Random,
    budget: Budget,
    current: Option<&File>,
) -> Report {
    let start = Instant::now();
    let mut corpus = seeds;
    let mut report = Report {
        seeds: corpus.len(),
        ..Report::default()
    };
    let mut known = HashSet::new();
    let mut next_seed = 0;
    while report.executions < budget.executions && start.elapsed() < budget.time {
        let is_seed = next_seed < corpus.len() && next_seed < report.seeds;
        let input = if is_seed {
            next_seed += 1;
            corpus[next_seed - 1].clone()
        } else {
            mutated(target, &corpus, random)
        };
        if let Some(file) = current {
            let length = u64::try_from(input.len()).unwrap_or_default();
            let written = file.write_all_at(&length.to_le_bytes(), 0);
            written
                .and_then(|()| file.write_all_at(&input, 8))
                .expect("the current input can be written");
        }
        let done = execute(target, &input);
        report.executions += 1;
        report.slowest = report.slowest.max(done.time);
        if let Some(message) = done.failure {
            report.failure = Some(shrink::shrink(target, Failure { input, message }));
            break;
        }
        let mut is_new = false;
        for feature in done.features {
            is_new |= known.insert(feature);
        }
        if is_new && !is_seed {
            report.kept.push(input.clone());
            corpus.push(input);
        }
    }
    report.features = known.len();
    report.elapsed = start.elapsed();
    report
}

/// The input in the file of the current input: its length in 8 bytes, then its bytes. What an earlier, longer one left is not its.
#[must_use]
pub fn current(file: &[u8]) -> Option<&[u8]> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

fn mutated(target: &Target, corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if corpus.is_empty() {
        return crate::mutate::bytes::mutate(random, &[], &[]);
    }
    // What was found last leads furthest.
    let recent = corpus.len().min(32);
    let seed = if random.one_in(3) {
        &corpus[corpus.len() - 1 - random.below(recent)]
    } else {
        random.pick(corpus)
    };
    let other = random.pick(corpus).clone();
    let mut input = seed.clone();
    for _ in 0..=random.below(4) {
        input = (target.mutate)(random, &input, &other);
    }
    input.truncate(MAX_INPUT);
    input
}

/// What one input did.
#[derive(Debug)]
pub struct Execution {
    /// What was seen.
    pub features: Vec<u64>,
    /// Processor time.
    pub time: Duration,
    /// The broken promise.
    pub failure: Option<String>,
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs one input and catches its panic.
pub fn execute(target: &Target, input: &[u8]) -> Execution {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if CATCHING.get() {
                PANIC.set(panic.to_string());
            } else {
                usual(panic);
            }
        }));
    });
    features::take();
    let before = processor_time();
    CATCHING.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    CATCHING.set(false);
    let time = processor_time().saturating_sub(before);
    let failure = match done {
        Err(_) => Some(PANIC.take()),
        Ok(()) if time > MAX_TIME => Some(format!(
            "too slow: {} ms of processor time, at most {} ms are allowed",
            time.as_millis(),
            MAX_TIME.as_millis()
        )),
        Ok(()) => None,
    };
    Execution {
        features: features::take(),
        time,
        failure,
    }
}

/// Of this thread, so that a busy machine makes no input slow. Zero where the system does not tell.
#[must_use]
pub fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}
