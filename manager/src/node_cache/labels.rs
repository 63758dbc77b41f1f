//! Labels and annotations, small.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use outrigger_shared::annotations::KUBELET;
use outrigger_shared::node_args;

use super::text::{Text, Texts};

/// The annotation in which the kubelet passes on its `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The annotations that are kept. Others are long and change often, and are not used here. Of the arguments of RKE2 and K3s
/// only the kubelet's provider is kept.
const KEPT_ANNOTATIONS: [&str; 4] = [
    PROVIDED_NODE_IP,
    KUBELET,
    node_args::ANNOTATIONS[0],
    node_args::ANNOTATIONS[1],
];

/// Texts by key, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Text, Text)]>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| value.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn share(&mut self, texts: &mut Texts) {
        for (key, value) in &mut self.0 {
            texts.share(key);
            texts.share(value);
        }
    }

    fn sorted(mut pairs: Vec<(Text, Text)>) -> Self {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        Self(pairs.into_boxed_slice())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = deserializer.deserialize_option(Pairs { keeps: |_| true })?;
        Ok(Self::sorted(pairs))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(Labels);

impl Annotations {
    /// The kubelet's cloud provider, if an argument of RKE2 or K3s sets it.
    pub fn kubelet_provider(&self) -> Option<&str> {
        let known = node_args::ANNOTATIONS.iter().find_map(|key| self.get(key));
        known.filter(|provider| !provider.is_empty())
    }

    /// The value of one of the annotations that are kept.
    pub fn get(&self, key: &str) -> Option<&str> {
        debug_assert!(KEPT_ANNOTATIONS.contains(&key), "{key} is not kept");
        self.0.get(key)
    }

    pub(super) fn share(&mut self, texts: &mut Texts) {
        for (key, _) in &mut self.0.0 {
            texts.share(key);
        }
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pairs = deserializer.deserialize_option(Pairs {
            keeps: |key| KEPT_ANNOTATIONS.contains(&key),
        })?;
        for (key, value) in &mut pairs {
            if node_args::ANNOTATIONS.contains(&key.as_str()) {
                *value = node_args::kubelet_provider(value.as_str()).unwrap_or_default().into();
            }
        }
        Ok(Self(Labels::sorted(pairs)))
    }
}

struct Pairs {
    keeps: fn(&str) -> bool,
}

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(Text, Text)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key::<Text>()? {
            if (self.keeps)(&key) {
                pairs.push((key, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }

        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_found_by_key_in_any_order_and_null_is_none() {
        let labels: Labels = serde_json::from_value(json!({"b": "2", "a": "1", "c": ""})).unwrap();
        assert_eq!(
            (labels.get("a"), labels.get("b"), labels.get("c"), labels.get("d")),
            (Some("1"), Some("2"), Some(""), None)
        );
        let none: Labels = serde_json::from_value(json!(null)).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn only_annotations_that_are_read_are_kept() {
        let text = format!(r#"{{"volumes.kubernetes.io/x": "true", "{PROVIDED_NODE_IP}": "10.0.0.1"}}"#);
        let annotations: Annotations = serde_json::from_str(&text).unwrap();
        assert_eq!(annotations.get(PROVIDED_NODE_IP), Some("10.0.0.1"));
        assert_eq!(annotations.0.0.len(), 1);
        assert_eq!(annotations.kubelet_provider(), None);
    }

    #[test]
    fn of_the_arguments_of_rke2_the_provider_of_the_kubelet_is_kept() {
        let arguments = json!([
            "server",
            "--token",
            "********",
            "--kubelet-arg",
            "cloud-provider=external"
        ])
        .to_string();
        let annotations: Annotations = serde_json::from_value(json!({"rke2.io/node-args": arguments})).unwrap();
        assert_eq!(annotations.get("rke2.io/node-args"), Some("external"));
        assert_eq!(annotations.kubelet_provider(), Some("external"));
        let annotations: Annotations = serde_json::from_value(json!({"k3s.io/node-args": "[\"server\"]"})).unwrap();
        assert_eq!(annotations.kubelet_provider(), None);
    }
}
