//! Waits for a state of a cluster, and prints meanwhile which.

use std::io::{IsTerminal, Write};
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
}

impl Progress {
    /// Progress on stdout.
    #[must_use]
    pub fn loud() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            start: Instant::now(),
            loud: true,
            colour,
            name: String::new(),
        }
    }

    #[must_use]
    pub fn quiet() -> Self {
        Self {
            start: Instant::now(),
            loud: false,
            colour: false,
            name: String::new(),
        }
    }

    /// The same progress with a name in front of each line.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self {
            name: format!("{name}: "),
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
        self.line(&format!("\n{on}== {}{text}{off}", self.name));
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
