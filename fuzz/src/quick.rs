//! Runs a target on stable Rust: corpus and seeds first, then random changes of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::{Target, all_seeds, mutate, repository};

/// The webhook's worker threads have stacks of this size.
const STACK: usize = 2 * 1024 * 1024;
const MAX_INPUT: usize = 128 * 1024;
/// Processor time for one input, in an unoptimised build. The slowest real objects take a hundredth of it.
const MAX_TIME: Duration = Duration::from_secs(2);

/// When to stop. Corpus and seeds run in any case.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Number of changed inputs.
    Inputs(u64),
    Time(Duration),
}

/// Runs corpus, seeds and changed inputs until `limit`; returns the number of inputs.
///
/// Each input is written to a file before it runs, so that it can be run again even if it overflows the stack or
/// never ends.
///
/// # Panics
/// When a check fails, or an input takes too long.
pub fn run(target: &'static Target, seed: u64, limit: Limit) -> u64 {
    on_small_stack(target, move || {
        let input_file = input_file(target);
        let _report = ReportFailure {
            target,
            seed,
            input_file: &input_file,
        };
        let execute = |input: &[u8]| {
            fs::write(&input_file, input).unwrap();
            execute(target, input);
        };
        let seeds = all_seeds(target);

        for input in &seeds {
            execute(input);
        }

        let (start, mut rng, mut inputs) = (Instant::now(), Rng::with_seed(seed), 0);
        while match limit {
            Limit::Inputs(most) => inputs < most,
            Limit::Time(most) => start.elapsed() < most,
        } {
            let mut input = rng.choice(&seeds).cloned().unwrap_or_default();
            for _ in 0..rng.u8(1..5) {
                let other = rng.choice(&seeds).map_or(&[][..], Vec::as_slice);
                input = mutate::mutate(&mut rng, &input, other, target.words);
            }

            input.truncate(MAX_INPUT);
            execute(&input);
            inputs += 1;
        }

        fs::remove_file(&input_file).unwrap();

        inputs + u64::try_from(seeds.len()).unwrap()
    })
}

/// Runs one input.
///
/// # Panics
/// When a check fails, or the input takes too long.
pub fn replay(target: &'static Target, input: Vec<u8>) {
    on_small_stack(target, move || execute(target, &input));
}

fn on_small_stack<T: Send + 'static>(target: &Target, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new()
        .name(target.name.to_owned())
        .stack_size(STACK);
    let thread = thread.spawn(work).unwrap();
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn execute(target: &Target, input: &[u8]) {
    let before = processor_time();
    (target.run)(input);
    let taken = processor_time().saturating_sub(before);
    assert!(
        taken <= MAX_TIME,
        "the input took {taken:?} of processor time, at most {MAX_TIME:?} are allowed"
    );
}

/// Of this thread, so that a busy machine makes no input slow. Zero where the kernel does not report it.
#[must_use]
pub fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Of this process, as several tests may run at once.
fn input_file(target: &Target) -> PathBuf {
    let folder = repository().join("target/fuzz/inputs");
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{}-{}", target.name, std::process::id()))
}

/// Prints how to repeat a failure, when a panic passes it.
struct ReportFailure<'a> {
    target: &'a Target,
    seed: u64,
    input_file: &'a Path,
}

impl Drop for ReportFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (name, file) = (self.target.name, self.input_file.display());
            eprintln!("failing input: {file} (seed {})", self.seed);
            eprintln!("run it again:  cargo run -p outrigger-fuzz -- replay {name} {file}");
        }
    }
}
