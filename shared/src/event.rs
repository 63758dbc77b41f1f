//! Events of the core API, as the controllers of Kubernetes write them.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

/// Most characters of a message that API servers take.
const MAX_MESSAGE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something that is meant to happen.
    Normal,
    /// A problem that a user should look into.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// For example `v1`.
    pub api_version: String,
    /// For example `Node`.
    pub kind: String,
    pub name: String,
    pub namespace: Option<String>,
    pub uid: String,
}

impl About {
    /// The namespace in which the Event lives: that of its object, `default` for cluster-scoped ones.
    #[must_use]
    pub fn event_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// An Event about the object. `name` is that of the Event itself, `component` its source; messages longer than API
    /// servers take are cut.
    #[must_use]
    pub fn event(
        &self,
        name: String,
        component: &str,
        kind: EventType,
        (reason, message): (&str, &str),
        at: Timestamp,
    ) -> Event {
        let time = Time(whole_seconds(at));
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(self.event_namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(self.api_version.clone()),
                kind: Some(self.kind.clone()),
                name: Some(self.name.clone()),
                namespace: self.namespace.clone(),
                uid: Some(self.uid.clone()),
                ..ObjectReference::default()
            },
            reason: Some(reason.to_owned()),
            message: Some(message.chars().take(MAX_MESSAGE).collect()),
            type_: Some(format!("{kind:?}")),
            source: Some(EventSource {
                component: Some(component.to_owned()),
                host: None,
            }),
            reporting_component: Some(component.to_owned()),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            count: Some(1),
            ..Event::default()
        }
    }
}

/// The API keeps these times in whole seconds.
#[must_use]
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_of_a_cluster_scoped_object_lives_in_the_default_namespace() {
        let about = About {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "n".into(),
            namespace: None,
            uid: "u".into(),
        };
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let event = about.event("n.1".into(), "me", EventType::Warning, ("Why", &"x".repeat(2000)), at);
        let event = serde_json::to_value(event).unwrap();
        assert_eq!(event["metadata"], json!({"name": "n.1", "namespace": "default"}));
        assert_eq!(
            event["involvedObject"],
            json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"})
        );
        assert_eq!(event["message"].as_str().unwrap().len(), MAX_MESSAGE);
        assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)));
        assert_eq!(event["firstTimestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(event["source"]["component"], event["reportingComponent"]);
    }
}
