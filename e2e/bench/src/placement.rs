//! Processor affinity: the server has one processor for itself, everything else shares the others.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread.
const SELF: Pid = Pid::from_raw(0);

/// A split of the processors that this process may use.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    all: CpuSet,
    server: CpuSet,
    rest: CpuSet,
    /// Processors for everything else; 0 on a machine with one, which all share.
    pub others: usize,
}

impl Placement {
    /// Reserves the last processor for servers, and moves this thread and all that it starts to the others.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn split() -> Result<Self> {
        let all = sched_getaffinity(SELF).context("reading the affinity")?;
        let numbers: Vec<usize> = (0..CpuSet::count())
            .filter(|number| all.is_set(*number) == Ok(true))
            .collect();
        let last = *numbers.last().context("there is no processor")?;
        let mut server = CpuSet::new();
        server.set(last)?;

        let mut rest = all;
        if numbers.len() > 1 {
            rest.unset(last)?;
        }

        sched_setaffinity(SELF, &rest).context("setting the affinity")?;

        Ok(Self {
            all,
            server,
            rest,
            others: numbers.len() - 1,
        })
    }

    /// The same, with servers on all processors.
    pub const fn shared(self) -> Self {
        Self {
            server: self.all,
            ..self
        }
    }

    /// Calls `start` on the server's processor. A process that it starts stays there with all its threads, and sizes
    /// its thread pool for it.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn on_servers_processor<T>(&self, start: impl FnOnce() -> T) -> Result<T> {
        sched_setaffinity(SELF, &self.server).context("setting the affinity")?;
        let started = start();
        sched_setaffinity(SELF, &self.rest).context("setting the affinity")?;
        Ok(started)
    }
}
