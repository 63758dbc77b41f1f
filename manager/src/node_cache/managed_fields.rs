//! The writers of a Node's fields. `metadata.managedFields` is as large as the rest of the Node, so only one bit of it
//! is kept.

use std::borrow::Cow;

use outrigger_leader::status::FIELD_MANAGER;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The fields that one manager wrote with one operation.
#[derive(Deserialize)]
struct Entry<'a> {
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

/// Whether this program wrote `spec.providerID`.
pub(super) fn provider_id_by_us<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
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
            while let Some(Entry { manager, fields }) = entries.next_element()? {
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
    use serde_json::{Value, json};

    use super::super::NodeView;

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
