//! Records every version of one object, with the time at which it was seen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use jiff::Timestamp;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use tokio::task::JoinHandle;

/// A running recorder. Dropping it ends the watch.
#[derive(Debug)]
pub struct VersionRecorder {
    seen: Arc<Mutex<Vec<(Timestamp, DynamicObject)>>>,
    task: JoinHandle<()>,
}

impl VersionRecorder {
    /// Starts to watch the object, which need not exist yet, nor its definition.
    pub fn start(api: Api<DynamicObject>, name: &str) -> Self {
        let seen = Arc::new(Mutex::default());
        let task = tokio::spawn(record(api, name.to_owned(), Arc::clone(&seen)));
        Self { seen, task }
    }

    /// Every version until now, in order. A deletion is no version.
    pub fn versions(&self) -> Vec<(Timestamp, DynamicObject)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for VersionRecorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn record(api: Api<DynamicObject>, name: String, seen: Arc<Mutex<Vec<(Timestamp, DynamicObject)>>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut stream = std::pin::pin!(watcher(api, config));
    let mut last = None;
    loop {
        match stream.try_next().await {
            Ok(Some(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                // A new list repeats the version that the watch has seen.
                if object.metadata.resource_version != last {
                    last.clone_from(&object.metadata.resource_version);
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.push((Timestamp::now(), object));
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            // The definition is not there yet, or the API server is away.
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}
