//! Waits for a state of a cluster, and prints meanwhile which.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Where progress goes: lines with the time since the start, or nowhere.
#[derive(Debug, Clone)]
pub struct Progress {
    start: Instant,
    loud: bool,
    colour: bool,
    /// In front of each line, where several run at the same time.
    name: String,
    plan: Option<Plan>,
}

/// How long each step of a run takes, in order.
#[derive(Debug, Clone)]
struct Plan {
    expected: &'static [Duration],
    begun: Arc<AtomicUsize>,
}

impl Plan {
    /// The place of the step that begins now. A step that is not planned has none.
    fn next(&self) -> Option<String> {
        let place = self.begun.fetch_add(1, Ordering::Relaxed);
        let expected = about(*self.expected.get(place)?);
        Some(format!("step {} of {}, {expected}: ", place + 1, self.expected.len()))
    }
}

/// A length of time as a person says it: in seconds below a minute, else in minutes.
fn about(expected: Duration) -> String {
    match expected.as_secs() {
        seconds @ 0..60 => format!("about {seconds} s"),
        seconds => format!("about {} min", (seconds + 30) / 60),
    }
}

impl Progress {
    /// Progress on stdout.
    pub fn loud() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            loud: true,
            colour,
            ..Self::quiet()
        }
    }

    pub fn quiet() -> Self {
        Self {
            start: Instant::now(),
            loud: false,
            colour: false,
            name: String::new(),
            plan: None,
        }
    }

    /// The same progress with a name in front of each line.
    pub fn named(&self, name: &str) -> Self {
        Self {
            name: format!("{name}: "),
            ..self.clone()
        }
    }

    /// The same progress for a run of steps that take these times. Each step is numbered.
    pub fn planned(&self, expected: &'static [Duration]) -> Self {
        let total = about(expected.iter().sum());
        self.line(&format!("{} steps, {total}", expected.len()));
        let begun = Arc::new(AtomicUsize::new(0));
        Self {
            plan: Some(Plan { expected, begun }),
            ..self.clone()
        }
    }

    /// A heading: a step of the migration begins.
    pub fn step(&self, text: &str) {
        let (on, off) = if self.colour {
            ("\x1b[1;36m", "\x1b[0m")
        } else {
            ("", "")
        };
        let place = self.plan.as_ref().and_then(Plan::next).unwrap_or_default();
        self.line(&format!("\n{on}== {}{place}{text}{off}", self.name));
    }

    pub fn say(&self, text: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        self.line(&format!("[{seconds:6.1} s] {}{text}", self.name));
    }

    /// Text as it is.
    pub fn line(&self, text: &str) {
        if self.loud {
            // A closed stdout must not end a migration half-way.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
    }

    /// Waits until `probe` gives a value. It says what it still misses, which is shown every few seconds.
    ///
    /// # Errors
    /// When it does not within `limit`, or `probe` fails.
    pub async fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        mut probe: impl AsyncFnMut() -> Result<std::result::Result<T, String>>,
    ) -> Result<T> {
        let start = Instant::now();
        let mut shown = Instant::now();
        loop {
            let missing = match probe().await? {
                Ok(value) => {
                    self.say(&format!("{what} ({:.1} s)", start.elapsed().as_secs_f64()));
                    return Ok(value);
                }
                Err(missing) => missing,
            };
            if start.elapsed() >= limit {
                bail!("not within {} s: {what}; still missing: {missing}", limit.as_secs());
            }

            if shown.elapsed() >= Duration::from_secs(4) {
                self.say(&format!("   ... waiting: {what}: {missing}"));
                shown = Instant::now();
            }

            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_step_has_its_number_and_its_time() {
        const EXPECTED: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(70)];
        let plan = Plan {
            expected: &EXPECTED,
            begun: Arc::new(AtomicUsize::new(0)),
        };
        // A clone is the same run.
        assert_eq!(plan.clone().next().as_deref(), Some("step 1 of 2, about 8 s: "));
        assert_eq!(plan.next().as_deref(), Some("step 2 of 2, about 1 min: "));
        assert_eq!(plan.next(), None);
    }
}
