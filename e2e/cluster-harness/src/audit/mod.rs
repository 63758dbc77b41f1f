//! Reads the audit log that an API server writes: one JSON event a line, at level Metadata.
//!
//! The file grows while it is read. A line without its end is kept until the rest is there; a line that is no event is
//! an error with its number, since a write that is not read would be a write that nobody counts.

mod event;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncSeekExt};

pub use self::event::{AuditEvent, ObjectRef, ResponseStatus, User, writes_by};

/// Why the audit log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("audit log {path}: {source}; check --audit-log-path and the file's permissions")]
    Read { path: PathBuf, source: io::Error },
    #[error("audit log {path}, line {line}: no audit event ({source}); is --audit-log-format=json set?")]
    Parse {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        source: serde_json::Error,
    },
    /// The file became shorter: it was rotated or replaced, and events may be lost.
    #[error(
        "audit log {path} shrank from {read} to {length} bytes; rotation is not supported: set --audit-log-maxsize=0"
    )]
    Shrank { path: PathBuf, read: u64, length: u64 },
}

/// A reader of one growing audit log. Clones share what was read.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    state: Arc<tokio::sync::Mutex<Position>>,
    events: Arc<Mutex<Vec<AuditEvent>>>,
}

#[derive(Debug, Default)]
struct Position {
    bytes: u64,
    lines: Lines,
}

impl AuditLog {
    /// A reader of the log at `path`. The file need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            state: Arc::default(),
            events: Arc::default(),
        }
    }

    /// Reads what was appended since the last call, and returns all events read so far, in the order of the file.
    ///
    /// # Errors
    /// When the file cannot be read, shrank, or holds a line that is no audit event. A file that is not there yet
    /// holds no events.
    pub async fn events(&self) -> Result<Vec<AuditEvent>, AuditError> {
        let mut position = self.state.lock().await;
        let appended = self.read_from(position.bytes).await?;
        position.bytes += appended.len() as u64;

        let new = position.lines.push(&appended);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match new {
            Ok(new) => events.extend(new),
            Err((line, source)) => {
                // From the start again, so that the next call meets the same line and fails as well.
                *position = Position::default();
                events.clear();
                return Err(AuditError::Parse {
                    path: self.path.clone(),
                    line,
                    source,
                });
            }
        }

        Ok(events.clone())
    }

    async fn read_from(&self, read: u64) -> Result<Vec<u8>, AuditError> {
        let failed = |source| AuditError::Read {
            path: self.path.clone(),
            source,
        };
        let mut file = match tokio::fs::File::open(&self.path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && read == 0 => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().await.map_err(failed)?.len();
        if length < read {
            return Err(AuditError::Shrank {
                path: self.path.clone(),
                read,
                length,
            });
        }

        file.seek(io::SeekFrom::Start(read)).await.map_err(failed)?;

        let mut appended = Vec::new();
        file.read_to_end(&mut appended).await.map_err(failed)?;

        Ok(appended)
    }
}

/// Cuts bytes into lines and keeps the last one until it is complete.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
    complete: u64,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<AuditEvent>, (u64, serde_json::Error)> {
        self.partial.extend_from_slice(bytes);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };

        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        let mut events = Vec::new();

        for line in complete.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            self.complete += 1;
            events.push(serde_json::from_slice(line).map_err(|source| (self.complete, source))?);
        }

        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(id: &str) -> String {
        format!(
            r#"{{"auditID":"{id}","stage":"ResponseComplete","verb":"create","userAgent":"x/1 y","requestReceivedTimestamp":"2026-11-20T10:00:00Z","stageTimestamp":"2026-11-20T10:00:00Z"}}"#
        )
    }

    fn ids(events: &[AuditEvent]) -> Vec<&str> {
        events.iter().map(|event| event.audit_id.as_str()).collect()
    }

    #[tokio::test]
    async fn a_line_without_its_end_is_kept_until_the_rest_is_there() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("audit.json");
        let log = AuditLog::new(&path);
        assert!(
            log.events().await?.is_empty(),
            "a file that is not there yet holds no events"
        );

        let mut file = std::fs::File::create(&path)?;
        let second = line("b");
        let (head, tail) = second.split_at(40);
        write!(file, "{}\n{head}", line("a"))?;
        assert_eq!(ids(&log.events().await?), ["a"]);
        writeln!(file, "{tail}")?;
        assert_eq!(ids(&log.events().await?), ["a", "b"]);
        assert_eq!(ids(&log.events().await?), ["a", "b"], "nothing is read twice");
        Ok(())
    }

    #[tokio::test]
    async fn a_line_that_is_no_event_is_an_error_with_its_number() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("audit.json");
        std::fs::write(&path, format!("{}\nnot json\n", line("a")))?;
        let log = AuditLog::new(&path);
        for _ in 0..2 {
            let error = log
                .events()
                .await
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                error.contains("line 2") && error.contains("--audit-log-format=json"),
                "{error}"
            );
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("audit.json");
        std::fs::write(&path, format!("{}\n{}\n", line("a"), line("b")))?;
        let log = AuditLog::new(&path);
        log.events().await?;
        std::fs::write(&path, format!("{}\n", line("c")))?;
        assert!(matches!(log.events().await, Err(AuditError::Shrank { .. })));
        Ok(())
    }
}
