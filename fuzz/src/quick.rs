//! Runs a target on stable Rust: corpus and seeds first, then random changes of them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::{Target, all_seeds, repository};

/// The webhook's worker threads have stacks of this size.
const STACK: usize = 2 * 1024 * 1024;
const MAX_INPUT: usize = 128 * 1024;
/// Processor time for one input, in an unoptimised build. The slowest real objects take a hundredth of it.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Time until an input that never ends stops the process. A busy machine is slow, so it is far above `MAX_TIME`.
const MAX_WAIT: Duration = Duration::from_mins(1);

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
        let (begin, begun) = mpsc::channel();
        let (name, file) = (target.name, input_file.clone());
        std::thread::spawn(move || wait(&begun, MAX_WAIT, || stop_process(name, &file)));
        let execute = |input: &[u8]| {
            fs::write(&input_file, input).unwrap();
            begin.send(()).unwrap();
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
            execute(&changed(target, &seeds, &mut rng));
            inputs += 1;
        }

        fs::remove_file(&input_file).unwrap();

        inputs + u64::try_from(seeds.len()).unwrap()
    })
}

/// One of the seeds with some changes.
pub fn changed(target: &Target, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = rng.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..rng.u8(1..5) {
        let other = rng.choice(seeds).map_or(&[][..], Vec::as_slice);
        input = target.change(rng, &input, other);
    }

    input.truncate(MAX_INPUT);
    input
}

/// Calls `late` if an input begins and no other follows within `limit`. Returns when all inputs have run.
fn wait(begun: &Receiver<()>, limit: Duration, late: impl FnOnce()) {
    if begun.recv().is_err() {
        return;
    }

    loop {
        match begun.recv_timeout(limit) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => return late(),
        }
    }
}

/// An endless loop cannot be stopped in any other way.
fn stop_process(name: &str, file: &Path) {
    // Tests capture what the macros print, and this one does not end.
    let mut stderr = std::io::stderr();
    let how = how_to_repeat(name, file);
    let _ = writeln!(stderr, "the input runs for more than {MAX_WAIT:?}\n{how}");
    std::process::exit(1);
}

fn how_to_repeat(name: &str, file: &Path) -> String {
    let file = file.display();
    format!("failing input: {file}\nrun it again:  cargo run -p outrigger-fuzz -- replay {name} {file}")
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
pub fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// The file with the input that runs, of this process, as several tests may run at once.
///
/// # Panics
/// When its folder cannot be created.
pub fn input_file(target: &Target) -> PathBuf {
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
            let how = how_to_repeat(self.target.name, self.input_file);
            eprintln!("seed {}\n{how}", self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_never_ends_is_noticed() {
        let (begin, begun) = mpsc::channel();
        begin.send(()).unwrap();

        let mut late = false;
        wait(&begun, Duration::from_millis(20), || late = true);
        assert!(late);
    }

    #[test]
    fn the_end_of_all_inputs_is_not_late() {
        let (begin, begun) = mpsc::channel();
        begin.send(()).unwrap();
        drop(begin);
        wait(&begun, MAX_WAIT, || panic!("all inputs have run"));
    }
}
