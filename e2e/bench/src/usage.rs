//! Linux's counts of a process's memory and processor time.

use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of processor times in /proc (<https://man7.org/linux/man-pages/man7/time.7.html>, USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// Memory and processor time of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, in KiB.
    pub resident: u64,
    /// The maximum of resident memory since its start, in KiB.
    pub peak: u64,
    /// The part of [`Usage::resident`] that are pages of files, mostly of the program. The kernel can reclaim them.
    pub file: u64,
    /// Processor time since its start, user and system.
    pub processor: Duration,
}

impl Usage {
    /// Reads it from /proc.
    ///
    /// # Errors
    /// When the process is gone, or this is not Linux.
    pub fn of(pid: i32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let (status, stat) = (read("status")?, read("stat")?);
        Self::parse(&status, &stat).with_context(|| format!("/proc/{pid}/status and stat are not as Linux writes them"))
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        let kibibytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix(" kB")?.parse().ok()
        };
        // The second field, the program's name in parentheses, may hold spaces; after it come the third and following.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = |field: usize| fields.split_whitespace().nth(field - 3)?.parse::<u32>().ok();

        Some(Self {
            resident: kibibytes("VmRSS:")?,
            peak: kibibytes("VmHWM:")?,
            file: kibibytes("RssFile:")?,
            processor: TICK * ticks(14)?.checked_add(ticks(15)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Usage;

    #[test]
    fn memory_and_time_are_found_whatever_the_programs_name() {
        let status = "Name:\ta b) c\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\nRssFile:\t    5120 kB\n";
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 3 0 1 2 3";
        let usage = Usage::parse(status, stat).expect("usage");
        assert_eq!((usage.resident, usage.peak, usage.file), (10240, 20480, 5120));
        assert_eq!(usage.processor, Duration::from_millis(1750));
        assert_eq!(Usage::parse("", stat), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        let usage = Usage::of(own).expect("Linux");
        assert!(usage.peak >= usage.resident && usage.resident > 0, "{usage:?}");
    }
}
