//! The processes that run and ran.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::process::{self, Process};

use super::span::{Exit, ProcessSpan};

/// The log of spans, and the handles of what still runs.
#[derive(Debug, Default)]
pub(super) struct Processes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    spans: Vec<ProcessSpan>,
    running: BTreeMap<String, Arc<Process>>,
}

impl Processes {
    pub(super) fn started(&self, span: ProcessSpan, process: &Arc<Process>) {
        let mut table = self.lock();
        table.running.insert(span.process.clone(), Arc::clone(process));
        table.spans.push(span);
    }

    pub(super) fn ended(&self, process: &str, ended: &process::Exit) -> Exit {
        let exit = Exit::of(ended);
        let mut table = self.lock();
        table.running.remove(process);

        let open = table
            .spans
            .iter_mut()
            .rev()
            .find(|span| span.process == process && span.ended.is_none());

        if let Some(span) = open {
            (span.ended, span.exit) = (Some(ended.at), Some(exit));
        }

        exit
    }

    /// Every span so far. A process that ended is shown as ended even before its Pod's task has noticed.
    pub(super) fn spans(&self) -> Vec<ProcessSpan> {
        let table = self.lock();
        let mut spans = table.spans.clone();
        for span in spans.iter_mut().filter(|span| span.ended.is_none()) {
            if let Some(exit) = table.running.get(&span.process).and_then(|process| process.exit()) {
                (span.ended, span.exit) = (Some(exit.at), Some(Exit::of(&exit)));
            }
        }

        spans
    }

    pub(super) fn running(&self, pod: &str) -> Vec<Arc<Process>> {
        let table = self.lock();
        let of_pod = table
            .spans
            .iter()
            .filter(|span| span.pod == pod && span.ended.is_none());
        of_pod
            .filter_map(|span| table.running.get(&span.process).cloned())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exit {
    /// -1 is no status that a process can give.
    const UNKNOWN: Self = Self::Code(-1);

    /// How the operating system tells it.
    fn of(exit: &process::Exit) -> Self {
        exit.status.map_or(Self::UNKNOWN, Self::from)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::UNKNOWN,
        }
    }
}
