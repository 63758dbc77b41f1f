//! A Node as the watch returns it.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;
use serde::{Deserialize, Deserializer};

use super::view::NodeView;

/// A Node with as much of the usual metadata as a watch needs: its version.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    meta: ObjectMeta,
    node: NodeView,
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = NodeView::deserialize(deserializer)?;
        let meta = ObjectMeta {
            name: Some(node.metadata.name.to_string()),
            resource_version: Some(node.metadata.resource_version.to_string()),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, node })
    }
}

impl Resource for Watched {
    type DynamicType = ();
    type Scope = <Node as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The event without what only the watch needed.
pub(super) fn unwrapped(event: Event<Watched>) -> Event<NodeView> {
    match event {
        Event::Apply(watched) => Event::Apply(watched.node),
        Event::Delete(watched) => Event::Delete(watched.node),
        Event::Init => Event::Init,
        Event::InitApply(watched) => Event::InitApply(watched.node),
        Event::InitDone => Event::InitDone,
    }
}
