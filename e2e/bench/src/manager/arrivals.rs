//! The times at which a watch of the harness observes Nodes as initialized or deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use futures::{StreamExt, pin_mut};
use kube::Client;
use kube::core::WatchEvent;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cluster::get;
use super::node::{Seen, SeenMetadata};

/// The awaited state of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Initialized,
    Deleted,
}

/// Restarts of the watch before an error. The API server ends the watch of a slow reader.
const BREAKS: usize = 20;

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Arrivals {
    shared: Arc<Shared>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    wanted: Wanted,
    times: Mutex<BTreeMap<String, Instant>>,
    /// The reason of the watch's last end.
    reason: Mutex<String>,
}

impl Arrivals {
    /// Watches all Nodes from now on.
    pub async fn watch(client: &Client, wanted: Wanted) -> Result<Self> {
        #[derive(Debug, Clone, serde::Deserialize)]
        struct List {
            metadata: SeenMetadata,
        }

        let list: List = client.request(get("/api/v1/nodes?limit=1")?).await?;
        let (sender, count) = watch::channel(0);
        let shared = Arc::new(Shared {
            wanted,
            times: Mutex::default(),
            reason: Mutex::default(),
        });
        let (client, own) = (client.clone(), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let mut version = list.metadata.resource_version;
            for _ in 0..=BREAKS {
                let ended = own.follow(&client, &mut version, &sender).await;
                *lock(&own.reason) = ended.map_or_else(|error| format!("{error:#}"), |()| "it ended".to_owned());
            }
        });

        Ok(Self { shared, count, task })
    }

    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until so many have arrived; `false` when `deadline` comes first.
    ///
    /// # Errors
    /// When the watch has ended.
    pub async fn reach(&mut self, wanted: usize, deadline: Instant) -> Result<bool> {
        match tokio::time::timeout_at(deadline, self.count.wait_for(|count| *count >= wanted)).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(_)) => bail!("the watch of Nodes broke: {}", lock(&self.shared.reason)),
            Err(_) => Ok(false),
        }
    }

    /// The times of the first and the last arrival.
    pub fn span(&self) -> Option<(Instant, Instant)> {
        let times = lock(&self.shared.times);
        Some((*times.values().min()?, *times.values().max()?))
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Records the events of a watch until it ends. `version` is updated to that of the last event.
    async fn follow(&self, client: &Client, version: &mut String, count: &watch::Sender<usize>) -> Result<()> {
        let path =
            format!("/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={version}");
        let events = client.request_events::<Seen>(get(&path)?).await?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let (node, deleted) = match event? {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => (node, false),
                WatchEvent::Deleted(node) => (node, true),
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("{}", status.message),
            };

            *version = node.metadata.resource_version.clone();

            let arrived = match self.wanted {
                Wanted::Initialized => !deleted && node.is_initialized(),
                Wanted::Deleted => deleted,
            };
            if arrived {
                let mut times = lock(&self.times);
                times.entry(node.metadata.name).or_insert_with(Instant::now);
                count.send_replace(times.len());
            }
        }

        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
