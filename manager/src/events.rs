//! Events of the core API, as the controllers of Kubernetes write them.

use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_leader::{NotLeader, Permit};
use serde_json::json;

use crate::api_write::write;
use crate::node_cache::NodeView;

/// The weight of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Something that is meant to happen.
    Normal,
    /// Something that needs a look.
    Warning,
}

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// For example `v1`.
    pub api_version: String,
    /// For example `Node`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; `None` for cluster-scoped objects, whose Events go to `default`.
    pub namespace: Option<String>,
    /// UID.
    pub uid: String,
}

impl About {
    /// A Node.
    #[must_use]
    pub fn node(node: &NodeView) -> Self {
        Self {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.name().to_owned(),
            namespace: None,
            uid: node.uid().to_owned(),
        }
    }
}

/// Writes the Events of one controller.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    component: &'static str,
}

impl Recorder {
    /// A recorder for the controller that Events name as their source.
    #[must_use]
    pub fn new(client: Client, component: &'static str) -> Self {
        Self { client, component }
    }

    /// Writes one Event. An Event that cannot be written is logged and otherwise forgotten: it must never keep a
    /// controller from its work. Nothing is written without `permit`.
    pub async fn record(&self, permit: &Permit, about: &About, kind: EventType, reason: &str, message: &str) {
        let now = jiff::Timestamp::now();
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let result = match serde_json::from_value::<Event>(self.event(about, kind, reason, message, now)) {
            Ok(event) => {
                let api = Api::<Event>::namespaced(self.client.clone(), namespace);
                match write(permit, api.create(&PostParams::default(), &event)).await {
                    Err(NotLeader) => return,
                    Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = result {
            tracing::warn!(%error, reason, kind = about.kind, name = about.name, "an Event could not be written");
        }
    }

    fn event(
        &self,
        about: &About,
        kind: EventType,
        reason: &str,
        message: &str,
        now: jiff::Timestamp,
    ) -> serde_json::Value {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let seconds = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        json!({
            "metadata": {"name": format!("{}.{:x}", about.name, now.as_nanosecond()), "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version, "kind": about.kind, "name": about.name,
                "namespace": about.namespace, "uid": about.uid,
            },
            "reason": reason,
            "message": message.chars().take(1024).collect::<String>(),
            "type": match kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1,
        })
    }
}
