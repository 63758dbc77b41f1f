//! `process_*` and `kubernetes_build_info`: this process, as Linux tells it under `/proc/self`.

use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::catalog::Catalog;

/// Keys of the auxiliary vector, by which the kernel tells a process about the machine.
const PAGE_SIZE: u64 = 6;
const CLOCK_TICKS: u64 = 17;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    major: &'static str,
    minor: &'static str,
    git_version: String,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

#[derive(Debug, Clone)]
pub(super) struct Process {
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    virtual_size: Gauge,
    open: Gauge,
    limit: Gauge<f64, AtomicU64>,
    start: Gauge<f64, AtomicU64>,
    build: Family<BuildLabels, Gauge>,
}

impl Process {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        let process = Self {
            cpu: catalog.single("process_cpu_seconds", "User and system CPU time"),
            resident: catalog.single("process_resident_memory_bytes", "Resident memory"),
            virtual_size: catalog.single("process_virtual_memory_bytes", "Virtual memory"),
            open: catalog.single("process_open_fds", "Open file descriptors"),
            limit: catalog.single("process_max_fds", "Maximum number of open file descriptors"),
            start: catalog.single(
                "process_start_time_seconds",
                "Start time of the process, in seconds since 1970",
            ),
            build: catalog.labelled(
                "kubernetes_build_info",
                &[
                    "major",
                    "minor",
                    "git_version",
                    "git_commit",
                    "git_tree_state",
                    "build_date",
                    "go_version",
                    "compiler",
                    "platform",
                ],
                "Always 1; the version of this program in the labels, which are Kubernetes' own",
            ),
        };
        process.build.get_or_create(&build()).set(1);

        process
    }

    /// Reads the metrics of the process. A metric that cannot be read keeps its value: `/proc` exists on Linux only.
    pub(super) fn refresh(&self) {
        let auxiliary = fs::read("/proc/self/auxv").unwrap_or_default();
        let (Some(page), Some(ticks)) = (
            auxiliary_value(&auxiliary, PAGE_SIZE),
            auxiliary_value(&auxiliary, CLOCK_TICKS),
        ) else {
            return;
        };

        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some(stat) = Stat::parse(&stat) {
            let cpu = seconds(stat.cpu_ticks, ticks);
            // A counter is only added to; another reader may have been here in between.
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.virtual_size.set(whole(stat.virtual_bytes));
            self.resident.set(whole(stat.resident_pages.saturating_mul(page)));

            let boot = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time);
            if let Some(boot) = boot {
                self.start.set(boot + seconds(stat.start_ticks, ticks));
            }
        }

        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open.set(i64::try_from(open.count()).unwrap_or(i64::MAX));
        }

        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        if let Some(limit) = open_files_limit(&limits) {
            self.limit.set(limit);
        }
    }
}

fn build() -> BuildLabels {
    BuildLabels {
        major: env!("CARGO_PKG_VERSION_MAJOR"),
        minor: env!("CARGO_PKG_VERSION_MINOR"),
        git_version: format!("v{}", env!("CARGO_PKG_VERSION")),
        git_commit: "",
        git_tree_state: "",
        build_date: "",
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{}", std::env::consts::OS, crate::go_architecture()),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses, which may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The manual counts from 1; the state, field 3, is the first after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();

        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Pairs of machine words, key and value.
fn auxiliary_value(vector: &[u8], wanted: u64) -> Option<u64> {
    const WORD: usize = size_of::<usize>();

    let word = |bytes: &[u8]| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes.get(..WORD)?);
        u64::try_from(usize::from_ne_bytes(word)).ok()
    };

    vector
        .chunks_exact(2 * WORD)
        .find(|pair| word(pair) == Some(wanted))
        .and_then(|pair| word(&pair[WORD..]))
}

fn boot_time(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// The soft limit; `unlimited` is infinity.
fn open_files_limit(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "ticks of centuries still fit")]
fn seconds(ticks: u64, per_second: u64) -> f64 {
    ticks as f64 / per_second.max(1) as f64
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 10 0 0 0 250 50 0 0 20 0 5 0 900 4096000 250 0";
        let stat = Stat::parse(text);
        let wanted = Stat {
            cpu_ticks: 300,
            start_ticks: 900,
            virtual_bytes: 4_096_000,
            resident_pages: 250,
        };
        assert_eq!(stat, Some(wanted));
        assert_eq!(Stat::parse("7 (a"), None);
    }

    #[test]
    fn limits_and_boot_time_are_found() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(open_files_limit(limits), Some(1024.0));
        assert_eq!(
            open_files_limit("Max open files unlimited unlimited files"),
            Some(f64::INFINITY)
        );
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_files_and_a_start() {
        let process = Process::registered(&mut Catalog::default());
        process.refresh();
        assert!(process.resident.get() > 1_000_000, "{}", process.resident.get());
        assert!(process.virtual_size.get() >= process.resident.get());
        assert!(process.open.get() >= 3 && process.limit.get() >= 3.0);
        let age = jiff::Timestamp::now().as_second() as f64 - process.start.get();
        assert!((-2.0..3600.0 * 24.0).contains(&age), "{age}");
    }
}
