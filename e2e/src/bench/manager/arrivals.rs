//! When each Node was initialized, or went, as a watch of the harness sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, pin_mut};
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::node::Seen;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The Node is initialized.
    Initialized,
    /// The Node is gone.
    Gone,
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Arrivals {
    times: Arc<Mutex<BTreeMap<String, Instant>>>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Arrivals {
    /// Watches all Nodes from now on.
    ///
    /// # Errors
    /// When the API server does not let it.
    pub async fn watch(client: &Client, wanted: Wanted) -> Result<Self> {
        #[derive(Debug, Clone, serde::Deserialize)]
        struct List {
            metadata: super::node::SeenMetadata,
        }
        let list: List = client.request(get("/api/v1/nodes?limit=1")?).await?;
        let path = format!(
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={}",
            list.metadata.resource_version
        );
        let events = client.request_events::<Seen>(get(&path)?).await?;
        let (sender, count) = watch::channel(0);
        let times = Arc::<Mutex<BTreeMap<String, Instant>>>::default();
        let shared = Arc::clone(&times);
        let task = tokio::spawn(async move {
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let name = match event {
                    Ok(WatchEvent::Added(node) | WatchEvent::Modified(node))
                        if wanted == Wanted::Initialized && node.is_initialized() =>
                    {
                        node.metadata.name
                    }
                    Ok(WatchEvent::Deleted(node)) if wanted == Wanted::Gone => node.metadata.name,
                    Ok(WatchEvent::Error(status)) => {
                        tracing::error!(?status, "the harness's watch failed");
                        return;
                    }
                    Err(error) => {
                        tracing::error!(%error, "the harness's watch broke");
                        return;
                    }
                    Ok(_) => continue,
                };
                let mut times = lock(&shared);
                times.entry(name).or_insert_with(Instant::now);
                sender.send_replace(times.len());
            }
        });
        Ok(Self { times, count, task })
    }

    /// How many have arrived.
    #[must_use]
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
            Ok(Err(_)) => bail!("the watch of Nodes ended early"),
            Err(_) => Ok(false),
        }
    }

    /// The times of the first and the last arrival.
    #[must_use]
    pub fn span(&self) -> Option<(Instant, Instant)> {
        let times = lock(&self.times);
        Some((*times.values().min()?, *times.values().max()?))
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(times: &Mutex<BTreeMap<String, Instant>>) -> MutexGuard<'_, BTreeMap<String, Instant>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GET of the API server.
///
/// # Errors
/// When the path is none.
pub fn get(path: &str) -> Result<Request<Vec<u8>>> {
    Request::get(path).body(Vec::new()).with_context(|| path.to_owned())
}
