//! Records every change of the leases K, C and M.
//!
//! One watch per lease feeds one log. Each entry carries the wall clock (to lie on one line with AWS calls and audit
//! events) and the time since the recorder's start (which never runs backwards). A watch that has to list again may
//! miss states in between; holders and acquire times survive that, since a lease keeps them for its whole duration.

mod record;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::record::{Lease, LeaseChange};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    pub lease: Lease,
    /// Its namespace, `kube-system` unless `--leader-elect-resource-namespace` says otherwise.
    pub namespace: String,
    pub name: String,
}

impl LeaseName {
    /// Kubernetes' own names for the three leases, in `kube-system`.
    pub fn defaults() -> Vec<Self> {
        [
            (Lease::K, "kube-controller-manager"),
            (Lease::C, "cloud-controller-manager"),
            (Lease::M, "cloud-provider-extraction-migration"),
        ]
        .map(|(lease, name)| Self {
            lease,
            namespace: "kube-system".into(),
            name: name.into(),
        })
        .into()
    }
}

/// A running recorder. Dropping it ends the watches.
#[derive(Debug)]
pub struct Recorder {
    log: Arc<Log>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Log {
    started: Instant,
    changes: Mutex<Vec<LeaseChange>>,
    length: watch::Sender<usize>,
}

impl Log {
    fn push(&self, change: LeaseChange) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(change);
        self.length.send_replace(changes.len());
    }
}

impl Recorder {
    /// Starts to watch `leases` with `client`. Leases that do not exist yet are recorded from their creation on.
    pub fn start(client: &Client, leases: Vec<LeaseName>) -> Self {
        let log = Arc::new(Log {
            started: Instant::now(),
            changes: Mutex::new(Vec::new()),
            length: watch::channel(0).0,
        });
        let tasks = leases
            .into_iter()
            .map(|name| {
                let api = Api::<LeaseObject>::namespaced(client.clone(), &name.namespace);
                tokio::spawn(record(api, name, Arc::clone(&log)))
            })
            .collect();

        Self { log, tasks }
    }

    /// Everything recorded so far, in the order in which it was seen.
    pub fn changes(&self) -> Vec<LeaseChange> {
        self.log.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The present state of one lease, if it was ever seen.
    pub fn latest(&self, lease: Lease) -> Option<LeaseChange> {
        self.changes().into_iter().rev().find(|change| change.lease == lease)
    }

    /// Waits until the newest state of `lease` satisfies `wanted`, and returns it; `None` after `limit`.
    pub async fn wait_until(
        &self,
        lease: Lease,
        limit: Duration,
        wanted: impl Fn(&LeaseChange) -> bool,
    ) -> Option<LeaseChange> {
        let mut length = self.log.length.subscribe();
        let wait = async {
            loop {
                length.mark_unchanged();
                if let Some(change) = self.latest(lease).filter(&wanted) {
                    return Some(change);
                }
                if length.changed().await.is_err() {
                    return None;
                }
            }
        };

        tokio::time::timeout(limit, wait).await.unwrap_or(None)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn record(api: Api<LeaseObject>, name: LeaseName, log: Arc<Log>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
    let mut last_version: Option<String> = None;
    let mut listed = false;
    let mut stream = std::pin::pin!(watcher(api, config));

    loop {
        let event = match stream.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(lease = %name.name, %error, "the watch of the lease failed and is set up again");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };

        let (now, since) = (Timestamp::now(), log.started.elapsed());
        match event {
            watcher::Event::Init => listed = false,
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                listed = true;
                // A new list repeats the state that the watch has already told.
                if object.metadata.resource_version != last_version {
                    last_version.clone_from(&object.metadata.resource_version);
                    log.push(LeaseChange::observed(name.lease, &object, now, since));
                }
            }
            watcher::Event::InitDone if !listed && last_version.is_some() => {
                last_version = None;
                log.push(LeaseChange::deleted(name.lease, now, since));
            }
            watcher::Event::InitDone => {}
            watcher::Event::Delete(_) => {
                last_version = None;
                log.push(LeaseChange::deleted(name.lease, now, since));
            }
        }
    }
}
