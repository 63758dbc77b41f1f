//! Watches the metadata of Services for writes of a kube-controller-manager.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::service_write::ServiceWrite;

#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The Services were listed once, or cannot be listed.
    pub read: bool,
    /// The newest write, and when this process first observed it.
    pub newest: Option<(ServiceWrite, Instant)>,
}

/// Follows the newest write of any Service's status by a kube-controller-manager. A later write of another process can
/// remove its entry, so each event counts, not only the last state.
pub fn follow(cluster: Client, stop: CancellationToken) -> watch::Receiver<Observed> {
    let (tx, rx) = watch::channel(Observed::default());
    let services: Api<PartialObjectMeta<Service>> = Api::all(cluster);
    let mut events = watcher(services, watcher::Config::default()).default_backoff().boxed();

    tokio::spawn(async move {
        let mut failing = false;
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(Event::Apply(service) | Event::InitApply(service)) => {
                    let write = ServiceWrite::of(&service.metadata);
                    tx.send_if_modified(|observed| note(&mut observed.newest, write, Instant::now()));
                }
                Ok(Event::InitDone) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the watch of Services recovered");
                    }
                    tx.send_if_modified(|observed| !std::mem::replace(&mut observed.read, true));
                }
                Ok(Event::Init | Event::Delete(_)) => {}
                Err(error) => {
                    tx.send_if_modified(|observed| !std::mem::replace(&mut observed.read, true));
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot watch Services; status writes by an unreadable kube-controller-manager are not detected");
                    }
                }
            }
        }
    });

    rx
}

/// A source without writes, until `stop`.
pub fn none(stop: CancellationToken) -> watch::Receiver<Observed> {
    let (tx, rx) = watch::channel(Observed {
        read: true,
        newest: None,
    });
    tokio::spawn(async move {
        stop.cancelled().await;
        drop(tx);
    });

    rx
}

fn note(newest: &mut Option<(ServiceWrite, Instant)>, write: Option<ServiceWrite>, now: Instant) -> bool {
    let Some(write) = write.filter(|write| newest.as_ref().is_none_or(|(old, _)| old.time < write.time)) else {
        return false;
    };
    *newest = Some((write, now));
    true
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn only_a_newer_write_is_noted() {
        let write = |second| {
            Some(ServiceWrite {
                service: "shop/web".into(),
                time: Timestamp::from_second(second).unwrap(),
            })
        };
        let (mut newest, now) = (None, Instant::now());
        assert!(!note(&mut newest, None, now));
        assert!(note(&mut newest, write(5), now));
        assert!(!note(&mut newest, write(5), now));
        assert!(!note(&mut newest, write(4), now));
        assert!(note(&mut newest, write(6), now));
        assert_eq!(newest.unwrap().0.time.as_second(), 6);
    }
}
