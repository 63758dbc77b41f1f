//! Which processors run what: the server has one for itself, everything else shares the others.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// This thread, to the scheduler.
const SELF: Pid = Pid::from_raw(0);

/// A split of the processors that this process may use.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    server: CpuSet,
    rest: CpuSet,
    /// How many the server does not have.
    pub others: usize,
}

impl Placement {
    /// Gives the last processor to servers and moves this thread, and so what it starts from now on, to the others. On a
    /// machine with one processor all share it, which [`Placement::others`] then tells.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn split() -> Result<Self> {
        let all = sched_getaffinity(SELF).context("which processors there are")?;
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

        sched_setaffinity(SELF, &rest).context("leaving the server's processor")?;

        Ok(Self {
            server,
            rest,
            others: numbers.len() - 1,
        })
    }

    /// Calls `start` on the server's processor: a process that it starts stays there, with all its threads, and sizes its
    /// thread pool for one processor.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn on_servers_processor<T>(&self, start: impl FnOnce() -> T) -> Result<T> {
        sched_setaffinity(SELF, &self.server).context("going to the server's processor")?;
        let started = start();
        sched_setaffinity(SELF, &self.rest).context("leaving the server's processor")?;
        Ok(started)
    }
}
