//! How long this machine was suspended. The clock of [`Instant`] stands still meanwhile, and a lease does not.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The total time in suspension. A value that can be replaced in tests.
#[derive(Clone)]
pub struct SuspendClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SuspendClock {
    #[cfg(test)]
    pub fn of(total: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(total))
    }

    pub fn total(&self) -> Duration {
        (self.0)()
    }
}

impl Default for SuspendClock {
    fn default() -> Self {
        Self(Arc::new(total))
    }
}

impl fmt::Debug for SuspendClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SuspendClock").field(&self.total()).finish()
    }
}

static START: LazyLock<(Instant, Option<Duration>)> = LazyLock::new(|| (Instant::now(), uptime()));

/// The time in suspension since the first call, in whole seconds; zero where it cannot be read. The file has hundredths of
/// a second, and both clocks are read one after the other, so the difference without any suspension is some milliseconds.
pub fn total() -> Duration {
    let (start, start_uptime) = *START;
    between(start_uptime, uptime(), start.elapsed())
}

/// The time in suspension between two times of the machine, in which the clock of [`Instant`] ran for `running`.
fn between(before: Option<Duration>, now: Option<Duration>, running: Duration) -> Duration {
    let (Some(before), Some(now)) = (before, now) else {
        return Duration::ZERO;
    };
    let suspended = now.saturating_sub(before).saturating_sub(running);
    Duration::from_secs(suspended.as_secs())
}

/// The time since the start of the machine, by `CLOCK_BOOTTIME`, which also counts suspension
/// (<https://github.com/torvalds/linux/blob/v6.6/fs/proc/uptime.c>). The file has it without unsafe code.
fn uptime() -> Option<Duration> {
    parse(&std::fs::read_to_string("/proc/uptime").ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_the_file_counts() {
        assert_eq!(
            parse("350735.47 234388.90\n"),
            Some(Duration::from_secs_f64(350_735.47))
        );
        for broken in ["", "up", "-1 2"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn the_time_in_which_only_the_machines_clock_ran_is_suspension() {
        let time = |seconds| Some(Duration::from_secs_f64(seconds));
        let running = Duration::from_secs(5);
        for (before, now, seconds) in [
            (time(10.0), time(75.99), 60),
            (time(10.0), time(15.99), 0),
            (time(10.0), time(12.0), 0),
            (time(10.0), None, 0),
            (None, time(75.0), 0),
        ] {
            let expected = Duration::from_secs(seconds);
            assert_eq!(between(before, now, running), expected, "{before:?} {now:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_running_machine_is_not_suspended() {
        assert!(uptime().is_some_and(|uptime| uptime > Duration::ZERO));
        for _ in 0..1_000 {
            assert_eq!(total(), Duration::ZERO);
        }
    }
}
