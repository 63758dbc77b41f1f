//! `outrigger-fuzz run` is what `make fuzz` runs; `outrigger-fuzz replay TARGET FILE...` runs kept inputs again.

#![allow(clippy::expect_used, reason = "a fuzzer ends where it cannot go on")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use outrigger_fuzz::engine::{self, Budget, Report};
use outrigger_fuzz::random::Random;
use outrigger_fuzz::{TARGETS, Target, files, targets};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs targets one after another, each in a process of its own.
    Run {
        /// All of them together.
        #[arg(long, default_value_t = 4.0)]
        minutes: f64,
        /// Repeats a run; any number.
        #[arg(long)]
        seed: Option<u64>,
        /// Where failing inputs are written.
        #[arg(long, default_value = "target/fuzz")]
        out: PathBuf,
        /// Their names; all where none is given.
        names: Vec<String>,
    },
    /// Runs one target in this process.
    #[command(hide = true)]
    One {
        name: String,
        seconds: f64,
        seed: u64,
        out: PathBuf,
    },
    /// Runs inputs again, without catching what they break.
    Replay {
        /// The target.
        name: String,
        /// The inputs.
        files: Vec<PathBuf>,
    },
}

/// A worker thread of the webhook has no more.
const STACK: usize = 2 * 1024 * 1024;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        What::Run {
            minutes,
            seed,
            out,
            names,
        } => run(minutes, seed, &out, &names),
        What::One {
            name,
            seconds,
            seed,
            out,
        } => on_small_stack(move || one(&name, seconds, seed, &out)),
        What::Replay { name, files } => on_small_stack(move || replay(&name, &files)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("outrigger-fuzz: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn on_small_stack(work: impl FnOnce() -> Result<bool> + Send + 'static) -> Result<bool> {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work)?;
    thread
        .join()
        .unwrap_or_else(|_| bail!("the input broke a promise; see above"))
}

fn find(name: &str) -> Result<&'static Target> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    targets::find(name).with_context(|| format!("no target is called {name:?}; there are {}", names()))
}

fn run(minutes: f64, seed: Option<u64>, out: &Path, names: &[String]) -> Result<bool> {
    let chosen: Vec<&Target> = if names.is_empty() {
        TARGETS.iter().collect()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    let seed = seed.unwrap_or_else(any_seed);
    say(&format!("seed {seed}"));
    let weights: u32 = chosen.iter().map(|target| target.weight).sum();
    let mut good = true;
    for target in chosen {
        let seconds = minutes * 60.0 * f64::from(target.weight) / f64::from(weights);
        good &= child(target, seconds, seed, out)?;
    }
    Ok(good)
}

/// How long a target may go on after its time, for seeds and for making a failing input smaller. One that does not end by then is
/// in an input that takes for ever.
const GRACE: Duration = Duration::from_mins(3);

/// A stack that overflows ends the process; then the input that did it is in the file of the current input.
fn child(target: &Target, seconds: f64, seed: u64, out: &Path) -> Result<bool> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["one", target.name, &seconds.to_string(), &seed.to_string()])
        .arg(out)
        .spawn()?;
    let end = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if Instant::now() > end {
            process.kill()?;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !matches!(status.code(), Some(0 | 1)) {
        let file = std::fs::read(current(out, target)).context("cannot read the input that ended the process")?;
        let input = engine::current(&file).context("the process ended before its first input")?;
        failed(target, out, input, &format!("the process ended: {status}"))?;
    }
    Ok(status.success())
}

fn current(out: &Path, target: &Target) -> PathBuf {
    out.join(format!("{}.current", target.name))
}

fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % 1_000_000
}

fn one(name: &str, seconds: f64, seed: u64, out: &Path) -> Result<bool> {
    let target = find(name)?;
    std::fs::create_dir_all(out)?;
    let budget = Budget {
        time: Duration::from_secs_f64(seconds),
        executions: u64::MAX,
    };
    let file = File::create(current(out, target))?;
    let report = engine::run(
        target,
        files::seeds(target),
        &mut Random::new(seed),
        budget,
        Some(&file),
    );
    say(&line(target, &report));
    match &report.failure {
        Some(failure) => failed(target, out, &failure.input, &failure.message).map(|()| false),
        None => Ok(true),
    }
}

fn line(target: &Target, report: &Report) -> String {
    let seconds = report.elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = report.executions as f64 / seconds.max(0.001);
    format!(
        "{:<17} {:>9} inputs in {seconds:>6.1} s = {rate:>7.0}/s, {} seeds, {} kept, {} behaviours, slowest {} ms",
        target.name,
        report.executions,
        report.seeds,
        report.kept.len(),
        report.features,
        report.slowest.as_millis()
    )
}

fn failed(target: &Target, out: &Path, input: &[u8], message: &str) -> Result<()> {
    let path = files::write_failure(out, target, input)?;
    say(&format!("FAILED {}: {message}", target.name));
    say(&format!("  input:  {} ({} bytes)", path.display(), input.len()));
    say(&format!(
        "  replay: cargo run -p outrigger-fuzz -- replay {} {}",
        target.name,
        path.display()
    ));
    Ok(())
}

fn replay(name: &str, files: &[PathBuf]) -> Result<bool> {
    let target = find(name)?;
    for file in files {
        let input = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        say(&format!("{}: {} bytes", file.display(), input.len()));
        let done = engine::execute(target, &input);
        if let Some(message) = done.failure {
            say(&message);
            return Ok(false);
        }
        say(&format!("  keeps its promises, {} ms", done.time.as_millis()));
    }
    Ok(true)
}
