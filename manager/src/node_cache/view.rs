//! The part of a Node that the controllers read. Servers may be older or newer than the full type, and a full Node
//! carries tens of images; so only these fields are decoded, and nothing is ever written back as a whole.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A Node.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct NodeView {
    /// Its metadata, without managed fields.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: Spec,
    /// Its status.
    #[serde(default)]
    pub status: Status,
}

/// The part of a Node's spec that is read.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct Spec {
    /// `spec.providerID`.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// `spec.taints`.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`: at most one range of each family, the node's primary family first. Every API server since 1.16
    /// fills it from `spec.podCIDR` where only that one is set.
    #[serde(rename = "podCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<String>,
}

/// The part of a Node's status that is read.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct Status {
    /// `status.addresses`, in order.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// `status.conditions`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect.
    #[serde(default)]
    pub effect: String,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Condition {
    /// Type, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word, such as `NoRouteCreated`; empty where nobody said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// An address of a Node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Address {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// The address.
    pub address: String,
}

/// A type of address. Text that this version does not know is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum AddressType {
    /// `Hostname`.
    Hostname,
    /// `InternalIP`.
    InternalIp,
    /// `ExternalIP`.
    ExternalIp,
    /// `InternalDNS`.
    InternalDns,
    /// `ExternalDNS`.
    ExternalDns,
    /// Any other.
    Other(String),
}

impl From<String> for AddressType {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Hostname" => Self::Hostname,
            "InternalIP" => Self::InternalIp,
            "ExternalIP" => Self::ExternalIp,
            "InternalDNS" => Self::InternalDns,
            "ExternalDNS" => Self::ExternalDns,
            _ => Self::Other(text),
        }
    }
}

impl From<AddressType> for String {
    fn from(kind: AddressType) -> Self {
        match kind {
            AddressType::Hostname => "Hostname".into(),
            AddressType::InternalIp => "InternalIP".into(),
            AddressType::ExternalIp => "ExternalIP".into(),
            AddressType::InternalDns => "InternalDNS".into(),
            AddressType::ExternalDns => "ExternalDNS".into(),
            AddressType::Other(text) => text,
        }
    }
}

impl NodeView {
    /// `metadata.name`; never empty on an object of the API server.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `spec.providerID`; an empty one counts as none.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether a taint of this key is there, whatever its value and effect.
    #[must_use]
    pub fn has_taint(&self, key: &str) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == key)
    }

    /// Whether condition `Ready` is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

impl k8s_openapi::Resource for NodeView {
    const API_VERSION: &'static str = <Node as k8s_openapi::Resource>::API_VERSION;
    const GROUP: &'static str = <Node as k8s_openapi::Resource>::GROUP;
    const KIND: &'static str = <Node as k8s_openapi::Resource>::KIND;
    const VERSION: &'static str = <Node as k8s_openapi::Resource>::VERSION;
    const URL_PATH_SEGMENT: &'static str = <Node as k8s_openapi::Resource>::URL_PATH_SEGMENT;
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::Metadata for NodeView {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Drops what nobody reads before the object is kept.
pub(super) fn prune(node: &mut NodeView) {
    node.metadata.managed_fields = None;
}

/// A type's name in a message.
impl std::fmt::Display for AddressType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: Cow<'_, str> = String::from(self.clone()).into();
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_pods_and_reasons_of_conditions_are_read() {
        let node: NodeView = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n"},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/80"]},
            "status": {"conditions": [
                {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated", "message": "m"},
                {"type": "Ready", "status": "True"},
            ]},
        }))
        .unwrap();
        assert_eq!(node.spec.pod_cidrs, ["10.0.0.0/24", "fd00::/80"]);
        let reasons: Vec<&str> = node.status.conditions.iter().map(|c| c.reason.as_str()).collect();
        assert_eq!(reasons, ["NoRouteCreated", ""]);
    }
}
