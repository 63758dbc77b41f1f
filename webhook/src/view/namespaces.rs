//! Labels of namespaces, for a target's `namespaceSelector`: a review has only the namespace's name.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use super::watch::Index;

/// Timeout for reading a namespace that is not in the index. Well below the timeout of the registration.
const ASK: Duration = Duration::from_millis(800);

pub type Labels = Arc<BTreeMap<String, String>>;

pub struct Namespaces {
    labels: RwLock<Option<HashMap<String, Labels>>>,
    api: Option<Api<PartialObjectMeta<Namespace>>>,
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces")
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

impl Namespaces {
    /// An empty index; `api` reads namespaces that it does not have yet.
    pub fn new(api: Option<Api<PartialObjectMeta<Namespace>>>) -> Arc<Self> {
        Arc::new(Self {
            labels: RwLock::new(None),
            api,
        })
    }

    pub fn listed(&self) -> bool {
        self.read().is_some()
    }

    /// The labels of a namespace; `None` when they cannot be known.
    ///
    /// An object may be created right after its namespace, before the watch has delivered it, so an unknown namespace
    /// is read.
    pub async fn labels(&self, name: &str) -> Option<Labels> {
        if let Some(labels) = self.cached(name) {
            return Some(labels);
        }
        match timeout(ASK, self.api.as_ref()?.get(name)).await {
            Ok(Ok(namespace)) => Some(labels(&namespace)),
            Ok(Err(error)) => {
                tracing::warn!(namespace = name, %error, "cannot read labels of namespace");
                None
            }
            Err(_) => {
                tracing::warn!(namespace = name, "timed out reading labels of namespace");
                None
            }
        }
    }

    pub fn all(&self) -> BTreeMap<String, Labels> {
        self.read()
            .iter()
            .flatten()
            .map(|(name, labels)| (name.clone(), Arc::clone(labels)))
            .collect()
    }

    pub fn cached(&self, name: &str) -> Option<Labels> {
        self.read().as_ref()?.get(name).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<HashMap<String, Labels>>> {
        self.labels.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Labels>)) {
        let mut labels = self.labels.write().unwrap_or_else(PoisonError::into_inner);
        change(labels.get_or_insert_default());
    }
}

impl Index<PartialObjectMeta<Namespace>> for Namespaces {
    fn replace(&self, objects: Vec<PartialObjectMeta<Namespace>>) {
        self.change(|map| {
            *map = objects
                .iter()
                .map(|object| (object.name_any(), labels(object)))
                .collect();
        });
    }

    fn apply(&self, object: PartialObjectMeta<Namespace>) {
        self.change(|map| drop(map.insert(object.name_any(), labels(&object))));
    }

    fn delete(&self, object: &PartialObjectMeta<Namespace>) {
        self.change(|map| drop(map.remove(&object.name_any())));
    }

    fn absent(&self) {
        // Every API server has namespaces; a 404 comes from a proxy in between, so keep the state.
    }
}

fn labels(namespace: &PartialObjectMeta<Namespace>) -> Labels {
    Arc::new(namespace.labels().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::ObjectMeta;
    use kube::core::metadata::PartialObjectMetaExt;

    fn namespace(name: &str, label: &str) -> PartialObjectMeta<Namespace> {
        let labels = BTreeMap::from([("cluster".to_owned(), label.to_owned())]);
        ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        }
        .into_response_partial()
    }

    #[tokio::test]
    async fn labels_follow_the_watch_and_are_unknown_otherwise() {
        let namespaces = Namespaces::new(None);
        assert!(!namespaces.listed());
        namespaces.replace(vec![namespace("a", "one"), namespace("b", "two")]);
        assert!(namespaces.listed());
        assert_eq!(namespaces.labels("a").await.unwrap()["cluster"], "one");
        namespaces.apply(namespace("a", "three"));
        namespaces.delete(&namespace("b", ""));
        assert_eq!(namespaces.labels("a").await.unwrap()["cluster"], "three");
        assert_eq!(namespaces.labels("b").await, None);
        namespaces.absent();
        assert!(namespaces.labels("a").await.is_some());
    }
}
