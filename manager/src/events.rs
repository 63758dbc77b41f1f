//! Events of the core API, as the controllers of Kubernetes write them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_leader::Permit;
pub use outrigger_shared::event::{About, EventType};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api_write::write_event;
use crate::node_cache::NodeView;

pub fn about_node(node: &NodeView) -> About {
    About {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.name().to_owned(),
        namespace: None,
        uid: node.uid().to_owned(),
    }
}

/// The cluster as a whole: the Namespace of Events about Nodes, for what concerns no single object.
pub fn about_cluster() -> About {
    About {
        api_version: "v1".into(),
        kind: "Namespace".into(),
        name: "default".into(),
        namespace: None,
        uid: String::new(),
    }
}

/// Maximum number of queued Events of one controller: enough for one Event per Node at a cold start of thousands of
/// Nodes. Further Events are dropped.
const WAITING: usize = 8192;

/// Pause after each Event: a flood of them must not take the API server from the writes that matter.
const PAUSE: Duration = Duration::from_millis(10);

/// Records the Events of one controller. They are written one after another by a task of their own, which ends when
/// the last clone is gone and all are written.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Pending>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Pending {
    permit: Permit,
    about: About,
    kind: EventType,
    reason: String,
    message: String,
    at: Timestamp,
}

impl Recorder {
    /// A recorder for the controller that Events name as their source. Must be called within a runtime.
    pub fn new(client: Client, component: &'static str) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(write_all(client, component, waiting, Arc::clone(&dropped)));
        Self { queue, dropped }
    }

    /// [Records](Self::record) a warning.
    pub fn warn(&self, permit: &Permit, about: &About, reason: &str, message: &str) {
        self.record(permit, about, EventType::Warning, reason, message);
    }

    /// Takes an Event to be written soon, if `permit` still holds by then. It never waits, and an Event that cannot be
    /// written is logged and otherwise forgotten: it must never keep a controller from its work. When too many wait,
    /// it is dropped and counted.
    pub fn record(&self, permit: &Permit, about: &About, kind: EventType, reason: &str, message: &str) {
        let pending = Pending {
            permit: permit.clone(),
            about: about.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.chars().take(1024).collect(),
            at: Timestamp::now(),
        };
        if self.queue.try_send(pending).is_err() && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                waiting = WAITING,
                reason,
                "dropping Events: they are emitted faster than they can be written"
            );
        }
    }
}

async fn write_all(
    client: Client,
    component: &'static str,
    mut waiting: mpsc::Receiver<Pending>,
    dropped: Arc<AtomicU64>,
) {
    let mut told = 0;
    while let Some(pending) = waiting.recv().await {
        write_one(&client, component, &pending).await;
        let dropped = dropped.load(Ordering::Relaxed);
        if waiting.is_empty() && dropped > told {
            tracing::warn!(component, dropped = dropped - told, "dropped Events");
            told = dropped;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn write_one(client: &Client, component: &'static str, pending: &Pending) {
    let about = &pending.about;
    let event = event(component, pending);
    let api = Api::<Event>::namespaced(client.clone(), about.event_namespace());
    let Ok(result) = write_event(&pending.permit, api.create(&PostParams::default(), &event)).await else {
        return; // Another leads now.
    };

    if let Err(error) = result {
        let (reason, kind, name) = (&pending.reason, &about.kind, &about.name);
        tracing::warn!(%error, %reason, %kind, %name, "an Event could not be written");
    }
}

/// Most characters of an object's name in the name of its Event. That one has at most 253
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>), of which the dot and
/// the time take 17.
const NAME_LENGTH: usize = 253 - 17;

fn event(component: &str, pending: &Pending) -> Event {
    let Pending { about, kind, at, .. } = pending;
    let start: String = about.name.chars().take(NAME_LENGTH).collect();
    // Before a dot stands a letter or a digit.
    let start = start.trim_end_matches(['.', '-']);
    let name = format!("{start}.{:x}", at.as_nanosecond());
    about.event(name, component, *kind, (&pending.reason, &pending.message), *at)
}

/// An Event that still holds is repeated after this time: the API server keeps Events for an hour.
const REPEAT: Duration = Duration::from_secs(1800);

/// Deduplicates Events, so that a failure that lasts emits few of them: the last message about each object, by UID or
/// another key.
#[derive(Debug, Default)]
pub struct EventDedup {
    by_key: HashMap<String, (String, Instant)>,
}

impl EventDedup {
    /// Whether to emit this message now.
    pub fn is_new(&mut self, key: &str, message: &str, now: Instant) -> bool {
        if let Some((said, at)) = self.by_key.get(key)
            && said == message
            && now.duration_since(*at) < REPEAT
        {
            return false;
        }

        self.by_key.insert(key.to_owned(), (message.to_owned(), now));
        true
    }

    /// The object has recovered.
    pub fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// Forgets objects that are gone.
    pub fn retain(&mut self, present: &HashSet<&str>) {
        self.by_key.retain(|key, _| present.contains(key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    impl Recorder {
        fn dropped(&self) -> u64 {
            self.dropped.load(Ordering::Relaxed)
        }
    }

    fn about() -> About {
        About {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "n".into(),
            namespace: None,
            uid: "u".into(),
        }
    }

    #[test]
    fn the_name_of_an_event_is_valid_also_for_the_longest_name() {
        let of = |name: String| {
            let about = About { name, ..about() };
            let pending = Pending {
                permit: Permit::always(),
                about,
                kind: EventType::Normal,
                reason: "R".into(),
                message: "m".into(),
                at: "2026-01-02T03:04:05Z".parse().unwrap(),
            };
            event("test", &pending)
        };
        let name = |name: &str| of(name.to_owned()).metadata.name.unwrap();
        assert_eq!(name("n"), "n.1886caf21c963200");
        let longest = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        assert_eq!(name(&longest), format!("{}.1886caf21c963200", "a".repeat(235)));
        assert_eq!(name(&"a".repeat(253)).len(), 253);
        assert_eq!(of(longest.clone()).involved_object.name, Some(longest));
    }

    /// A server that notes the time of each Event, and when it answers.
    fn server(times: Arc<Mutex<Vec<tokio::time::Instant>>>, answers: bool) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            times.lock().unwrap().push(tokio::time::Instant::now());
            async move {
                if !answers {
                    std::future::pending::<()>().await;
                }
                let body = json!({"metadata": {}, "involvedObject": {}}).to_string();
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_holds_up_nobody_and_what_is_too_much_is_counted() {
        let times = Arc::default();
        let recorder = Recorder::new(server(Arc::clone(&times), false), "test");
        let before = tokio::time::Instant::now();
        for _ in 0..WAITING + 10 {
            recorder.record(&Permit::always(), &about(), EventType::Normal, "Synced", "m");
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(recorder.dropped(), 10);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(times.lock().unwrap().len(), 1, "one at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_paced_and_all_are_written_when_the_recorder_is_gone() {
        let times = Arc::default();
        let recorder = Recorder::new(server(Arc::clone(&times), true), "test");
        for _ in 0..3 {
            recorder.record(&Permit::always(), &about(), EventType::Warning, "R", "m");
        }
        drop(recorder);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let times = times.lock().unwrap();
        assert_eq!(times.len(), 3);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_to_write_is_asked_when_an_event_is_sent() {
        let times = Arc::default();
        let (_grantor, permit) = Permit::pair();
        let recorder = Recorder::new(server(Arc::clone(&times), true), "test");
        recorder.record(&permit, &about(), EventType::Normal, "R", "m");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(times.lock().unwrap().is_empty());
    }
}

#[cfg(test)]
mod tests_of_deduplication {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_message_comes_again_only_after_a_while_and_another_one_at_once() {
        let (mut said, now) = (EventDedup::default(), Instant::now());
        assert!(said.is_new("u", "full", now));
        assert!(!said.is_new("u", "full", now + REPEAT / 2));
        assert!(said.is_new("u", "denied", now + REPEAT / 2));
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
        said.forget("u");
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
        said.retain(&HashSet::new());
        assert!(said.is_new("u", "denied", now + REPEAT * 2));
    }
}
