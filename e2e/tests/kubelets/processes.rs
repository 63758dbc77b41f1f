//! When the managers of the machines ran, as the host sees their processes. Kubernetes gives these times in whole seconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_machines::Fleet;

pub const OLD: &str = "kube-controller-manager";
pub const NEW: &str = "outrigger-manager";
/// An end is seen this much later at most, if the recorder runs.
const INTERVAL: Duration = Duration::from_millis(100);
/// A unit of times in `/proc/PID/stat`, in milliseconds: <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
const TICK: i64 = 10;

/// A running recorder. Dropping it stops it.
pub struct Processes {
    spans: Arc<Mutex<Vec<ProcessSpan>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Processes {
    pub fn start(fleet: &Fleet) -> Self {
        let machines = fleet.machines().iter();
        let machines = machines.map(|machine| (machine.cgroup().to_owned(), machine.name().to_owned()));
        Self::of(machines.collect())
    }

    /// The machines by their cgroups, with the names of their Nodes.
    pub fn of(machines: Vec<(String, String)>) -> Self {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (Arc::clone(&spans), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                observe(&machines, &mut seen.lock().unwrap_or_else(PoisonError::into_inner));
                sleep(INTERVAL);
            }
        });
        Self {
            spans,
            stop,
            thread: Some(thread),
        }
    }

    pub fn spans(&self) -> Vec<ProcessSpan> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn observe(machines: &[(String, String)], spans: &mut Vec<ProcessSpan>) {
    let now = Timestamp::now();
    for span in spans.iter_mut().filter(|span| span.ended.is_none()) {
        if !runs(span.pid, span.started) {
            span.ended = Some(now);
        }
    }

    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let is_known = spans.iter().any(|span| span.pid == pid && span.ended.is_none());
        if let (false, Some(span)) = (is_known, span(pid, machines, spans)) {
            spans.push(span);
        }
    }
}

fn span(pid: u32, machines: &[(String, String)], spans: &[ProcessSpan]) -> Option<ProcessSpan> {
    let argv = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let argv: Vec<String> = argv
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let program = Path::new(argv.first()?).to_owned();
    let component = program.file_name()?.to_str()?;
    let component = [OLD, NEW].into_iter().find(|name| *name == component)?;
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let (_, node) = machines
        .iter()
        .find(|(cgroup, _)| cgroups.contains(&format!("/{cgroup}/")))?;

    let pod = format!("{component}-{node}");
    let count = spans.iter().filter(|span| span.pod == pod).count();
    Some(ProcessSpan {
        process: format!("{pod}#{}", count + 1),
        component: component.to_owned(),
        namespace: "kube-system".to_owned(),
        pod,
        uid: String::new(),
        pid,
        program,
        argv,
        started: started(pid)?,
        ended: None,
        exit: None,
    })
}

/// A process ID may be used again.
fn runs(pid: u32, since: Timestamp) -> bool {
    started(pid).is_some_and(|started| started.duration_since(since).abs() < SignedDuration::from_secs(1))
}

/// The start of a process that has not ended.
fn started(pid: u32) -> Option<Timestamp> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses, and may contain blanks. The state follows, and the start is field 22.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    let start: i64 = fields.get(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let age = SignedDuration::try_from_secs_f64(uptime).ok()? - SignedDuration::from_millis(start * TICK);
    Timestamp::now().checked_sub(age).ok()
}

/// The name of the process of a component and a Node at a moment.
pub fn at<'a>(spans: &'a [ProcessSpan], pod: &str, at: Timestamp) -> Option<&'a str> {
    let of_pod = spans.iter().filter(|span| span.pod == pod && span.started <= at);
    let latest = of_pod.max_by_key(|span| span.started)?;
    Some(&latest.process)
}

/// The process of each holder identity `NODE_UUID`: the main lease that it held tells its component.
pub fn holders(changes: &[LeaseChange], spans: &[ProcessSpan]) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for change in changes {
        let component = match change.lease {
            Lease::K => OLD,
            Lease::C => NEW,
            Lease::M => continue,
        };
        let Some(identity) = &change.holder else { continue };
        if found.contains_key(identity) {
            continue;
        }
        let (node, _) = identity.rsplit_once('_').context("an identity without a UUID")?;
        let when = change.acquired.unwrap_or(change.at).min(change.at);
        let process = at(spans, &format!("{component}-{node}"), when);
        // The holder of a lease may have ended before the first observation.
        if let Some(process) = process {
            found.insert(identity.clone(), process.to_owned());
        }
    }
    Ok(found)
}
