//! The part of a Node that the controllers read. Servers may be older or newer than the full type, and a full Node
//! carries tens of images; so only these fields are decoded, and nothing is ever written back as a whole.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use outrigger_leader::FIELD_MANAGER;
use outrigger_shared::provider_id::{self, ProviderId};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::labels::{Annotations, Labels};
use super::text::{Text, Texts};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct NodeView {
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    pub spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
    /// The Node with a stronger claim on the instance that both provider IDs name. Set by the cache.
    #[serde(skip)]
    pub same_instance_as: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// `metadata.name`; never empty on an object of the API server.
    #[serde(default)]
    pub name: Text,
    #[serde(default)]
    pub uid: Text,
    #[serde(default)]
    pub resource_version: Text,
    #[serde(default)]
    pub creation_timestamp: Option<Time>,
    #[serde(default)]
    pub deletion_timestamp: Option<Time>,
    #[serde(default)]
    pub labels: Labels,
    /// Those of `metadata.annotations` that are read.
    #[serde(default)]
    pub annotations: Annotations,
    /// Whether this program wrote the provider ID, as `metadata.managedFields` tell.
    #[serde(rename = "managedFields", default, deserialize_with = "provider_id_by_us")]
    pub provider_id_is_ours: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Spec {
    #[serde(rename = "providerID", default)]
    pub provider_id: Option<Text>,
    #[serde(default, deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`: at most one range of each family, the node's primary family first. Every API server since 1.16
    /// fills it from `spec.podCIDR` where only that one is set.
    #[serde(rename = "podCIDRs", default, deserialize_with = "or_default")]
    pub pod_cidrs: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Status {
    #[serde(default, deserialize_with = "or_default")]
    pub addresses: Vec<Address>,
    #[serde(default, deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// Reads `null` as an absent field.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Taint {
    pub key: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Text>,
    #[serde(default)]
    pub effect: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// A word such as `NoRouteCreated`; may be empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Address {
    #[serde(rename = "type")]
    pub kind: AddressType,
    pub address: Text,
}

/// A type of address. Text that this version does not know is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum AddressType {
    Hostname,
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
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
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// `spec.providerID`; an empty one counts as none.
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The instance that the provider ID names.
    pub fn named_instance(&self) -> Option<provider_id::InstanceId> {
        let parsed = ProviderId::parse(self.provider_id()?).ok()?;
        parsed.instance().cloned()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key)
    }

    /// The value of one of the annotations that are kept.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key)
    }

    /// Whether a taint of this key is there, whatever its value and effect.
    pub fn has_taint(&self, key: &str) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == key)
    }

    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

impl NodeView {
    /// Whether two versions of a Node say the same in everything that is read here.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.metadata, &other.metadata);
        self.spec == other.spec
            && self.same_instance_as == other.same_instance_as
            && self.status == other.status
            && mine.labels == theirs.labels
            && mine.annotations == theirs.annotations
            && (&mine.uid, &mine.creation_timestamp, &mine.deletion_timestamp)
                == (&theirs.uid, &theirs.creation_timestamp, &theirs.deletion_timestamp)
    }

    /// Makes it small: equal texts are shared with the other Nodes, and no list holds room to grow.
    pub(super) fn compact(&mut self, texts: &mut Texts) {
        self.metadata.labels.share(texts);
        self.metadata.annotations.share(texts);
        for taint in &mut self.spec.taints {
            texts.share(&mut taint.key);
            texts.share(&mut taint.effect);
            taint.value.iter_mut().for_each(|value| texts.share(value));
        }

        for condition in &mut self.status.conditions {
            texts.share(&mut condition.kind);
            texts.share(&mut condition.status);
            texts.share(&mut condition.reason);
        }

        // A Node's name is often its host name, its DNS name and a label, too.
        texts.share(&mut self.metadata.name);
        for address in &mut self.status.addresses {
            if address.address == self.metadata.name {
                address.address = self.metadata.name.clone();
            }
        }

        self.spec.taints.shrink_to_fit();
        self.spec.pod_cidrs.shrink_to_fit();
        self.status.addresses.shrink_to_fit();
        self.status.conditions.shrink_to_fit();
    }
}

impl std::fmt::Display for AddressType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from(self.clone()))
    }
}

/// The fields that one manager wrote with one operation. `metadata.managedFields` is as large as the rest of the Node, so
/// only one bit of it is kept.
#[derive(Deserialize)]
struct ManagedFields<'a> {
    #[serde(default, borrow)]
    manager: Option<Cow<'a, str>>,
    #[serde(rename = "fieldsV1", default)]
    fields: Option<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "f:spec", default)]
    spec: Option<SpecFields>,
}

#[derive(Deserialize)]
struct SpecFields {
    #[serde(rename = "f:providerID", default)]
    provider_id: Option<IgnoredAny>,
}

fn provider_id_by_us<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = bool;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of managed fields")
        }

        fn visit_unit<E>(self) -> Result<bool, E> {
            Ok(false)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
            let mut found = false;
            while let Some(ManagedFields { manager, fields }) = entries.next_element()? {
                let spec = fields.and_then(|fields| fields.spec);
                let is_it = spec.is_some_and(|spec| spec.provider_id.is_some());
                found |= is_it && manager.is_some_and(|manager| manager == FIELD_MANAGER);
            }
            Ok(found)
        }
    }

    deserializer.deserialize_any(Entries)
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
        let reasons: Vec<&str> = node
            .status
            .conditions
            .iter()
            .map(|condition| &*condition.reason)
            .collect();
        assert_eq!(reasons, ["NoRouteCreated", ""]);
    }
}

#[cfg(test)]
mod tests_of_managed_fields {
    use serde_json::{Value, json};

    use super::NodeView;

    fn is_ours(managed: &Value) -> bool {
        let node = json!({"metadata": {"name": "n", "managedFields": managed}});
        // As it comes from the API server: as text.
        let node: NodeView = serde_json::from_str(&node.to_string()).unwrap();
        node.metadata.provider_id_is_ours
    }

    fn entry(manager: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn only_our_own_provider_id_counts() {
        let id = json!({"f:spec": {"f:providerID": {}, "f:taints": {}}});
        let other = json!({"f:metadata": {"f:labels": {".": {}}}, "f:spec": {"f:taints": {}}});
        let ours = "outrigger-manager";
        assert!(is_ours(&json!([
            entry("kubelet", &other),
            entry(ours, &other),
            entry(ours, &id)
        ])));
        assert!(!is_ours(&json!([entry("kubelet", &id), entry(ours, &other)])));
        assert!(!is_ours(
            &json!([{"operation": "Update"}, {"manager": "a\u{301}", "fieldsV1": {}}])
        ));
        assert!(!is_ours(&json!([])));
        assert!(!is_ours(&Value::Null));
        assert!(
            !serde_json::from_str::<NodeView>("{}")
                .unwrap()
                .metadata
                .provider_id_is_ours
        );
    }
}
