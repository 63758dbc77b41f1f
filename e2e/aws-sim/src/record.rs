//! The record of all calls.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};

use super::call::{Call, Outcome};

/// Finished calls that a slow subscriber may lag behind before it misses some.
const SUBSCRIBER_BACKLOG: usize = 65_536;

/// All calls of a run in order of arrival, those under way included.
#[derive(Debug)]
pub(super) struct CallRecord {
    calls: Mutex<Vec<Call>>,
    file: Option<Mutex<File>>,
    pub(super) changed: watch::Sender<()>,
    pub(super) finished: broadcast::Sender<Call>,
}

impl CallRecord {
    pub(super) fn new(file: Option<File>) -> Self {
        Self {
            calls: Mutex::default(),
            file: file.map(Mutex::new),
            changed: watch::Sender::new(()),
            finished: broadcast::Sender::new(SUBSCRIBER_BACKLOG),
        }
    }

    /// Enters a call; its place is its number.
    pub(super) fn begin(&self, make: impl FnOnce(u64) -> Call) -> Call {
        let mut calls = self.calls();
        let call = make(calls.len() as u64);
        calls.push(call.clone());
        drop(calls);
        self.changed.send_replace(());
        call
    }

    pub(super) fn end(&self, mut call: Call, outcome: Outcome) {
        call.outcome = Some(outcome);

        let mut calls = self.calls();
        if let Some(entry) = usize::try_from(call.seq).ok().and_then(|index| calls.get_mut(index)) {
            entry.clone_from(&call);
        }

        drop(calls);
        self.append(&call);
        self.changed.send_replace(());

        let _ = self.finished.send(call); // nobody subscribed
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One JSON line in the run's folder, for whoever looks at a failed run.
    fn append(&self, call: &Call) {
        let Some(file) = &self.file else { return };
        let line = serde_json::to_string(call).map_err(std::io::Error::from);
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = line.and_then(|line| writeln!(file, "{line}")) {
            tracing::warn!(%error, seq = call.seq, "a call is missing from the record's file");
        }
    }
}
