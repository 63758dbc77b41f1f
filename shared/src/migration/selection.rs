//! Which objects a target selects. One rule for the webhook, which changes them, and the manager, which reads them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use super::Target;
use crate::annotations::NAMESPACE_NAME_LABEL;

pub type Labels = BTreeMap<String, String>;

/// The namespace of a cluster's own control plane.
pub const KUBE_SYSTEM: &str = "kube-system";

/// Namespaces that only a target that names them reaches, besides the webhook's own.
pub const PROTECTED: [&str; 2] = [KUBE_SYSTEM, "kube-node-lease"];

/// The fields of an object that selectors match.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The namespace's labels; `None` if they are unknown.
    pub namespace_labels: Option<&'a Labels>,
    pub labels: &'a Labels,
    /// The webhook's namespace. Like kube-system, it is never selected.
    pub own_namespace: Option<&'a str>,
}

/// Whether a target selects an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    No,
    Yes,
    /// It depends on labels of the namespace that are not known.
    Unknown,
}

impl Target {
    #[must_use]
    pub fn selects(&self, candidate: &Candidate<'_>) -> Selected {
        let needs_selector = self.profile.needs_selector();
        if needs_selector && self.namespace_selector.is_none() && self.object_selector.is_none() {
            return Selected::No;
        }

        let object = self.object_selector.as_ref();
        if object.is_some_and(|selector| !matches(selector, candidate.labels, needs_selector)) {
            return Selected::No;
        }

        match candidate.namespace {
            // A namespaceSelector says nothing about a cluster-scoped object, so for such a profile it chooses none.
            None if needs_selector && object.is_none() => Selected::No,
            None => Selected::Yes,
            Some(namespace) => self.selects_namespace(namespace, candidate.namespace_labels, candidate.own_namespace),
        }
    }

    /// Whether the target is about a control plane in a management cluster, so that the Nodes of the API server that
    /// holds it are not the migrated cluster's. A target that names kube-system alone is about the cluster's own
    /// workloads.
    #[must_use]
    pub fn hosts_a_control_plane(&self) -> bool {
        let selector = self.namespace_selector.as_ref();
        let is_own = selector.is_some_and(|selector| {
            let label = selector
                .match_labels
                .iter()
                .flatten()
                .any(|(key, name)| key == NAMESPACE_NAME_LABEL && name == KUBE_SYSTEM);
            let expression = selector.match_expressions.iter().flatten().any(|expression| {
                expression.key == NAMESPACE_NAME_LABEL
                    && expression.operator == "In"
                    && expression.values.as_deref() == Some(&[KUBE_SYSTEM.to_owned()])
            });

            label || expression
        });

        self.profile.in_management_cluster() && !is_own
    }

    /// Whether no object at all is selected: a profile that needs selectors has none, or an empty one.
    #[must_use]
    pub fn selects_nothing(&self) -> bool {
        let selectors = [&self.namespace_selector, &self.object_selector];
        let none = selectors.iter().all(|selector| selector.is_none());
        self.profile.needs_selector() && (none || selectors.into_iter().flatten().any(is_empty))
    }

    /// Whether this target selects anything in the namespace, as far as its `namespaceSelector` goes.
    #[must_use]
    pub fn selects_namespace(&self, namespace: &str, labels: Option<&Labels>, own_namespace: Option<&str>) -> Selected {
        let needs_selector = self.profile.needs_selector();
        let is_protected = PROTECTED.contains(&namespace) || own_namespace == Some(namespace);
        let Some(selector) = &self.namespace_selector else {
            let nothing = is_protected || needs_selector && self.object_selector.is_none();
            return if nothing { Selected::No } else { Selected::Yes };
        };
        if is_protected && !names_namespace(selector, namespace) {
            return Selected::No;
        }

        match labels {
            Some(labels) if matches(selector, labels, needs_selector) => Selected::Yes,
            Some(_) => Selected::No,
            None if needs_selector && is_empty(selector) => Selected::No,
            None => by_name(selector, namespace),
        }
    }
}

/// Whether a selector matches a namespace of which only the name is known. API servers set it as a label, which nobody
/// can change: <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name>.
fn by_name(selector: &LabelSelector, namespace: &str) -> Selected {
    let is_name = |key: &str| key == NAMESPACE_NAME_LABEL;
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    let others = labels.clone().any(|(key, _)| !is_name(key)) || expressions.clone().any(|one| !is_name(&one.key));
    let of_name = LabelSelector {
        match_labels: Some(
            labels
                .filter(|(key, _)| is_name(key))
                .map(|(key, name)| (key.clone(), name.clone()))
                .collect(),
        ),
        match_expressions: Some(expressions.filter(|one| is_name(&one.key)).cloned().collect()),
    };
    let known = Labels::from([(NAMESPACE_NAME_LABEL.to_owned(), namespace.to_owned())]);

    match (matches(&of_name, &known, false), others) {
        (false, _) => Selected::No,
        (true, false) => Selected::Yes,
        (true, true) => Selected::Unknown,
    }
}

/// As Kubernetes matches label selectors, but that an empty one matches nothing where the profile says so, and an
/// invalid one never matches.
fn matches(selector: &LabelSelector, labels: &Labels, empty_matches_nothing: bool) -> bool {
    if is_empty(selector) {
        return !empty_matches_nothing;
    }
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

pub(super) fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a selector asks for a namespace by its very name.
fn names_namespace(selector: &LabelSelector, namespace: &str) -> bool {
    let by_label = selector
        .match_labels
        .as_ref()
        .and_then(|labels| labels.get(NAMESPACE_NAME_LABEL));
    let by_expression = selector.match_expressions.iter().flatten().any(|expression| {
        expression.key == NAMESPACE_NAME_LABEL
            && expression.operator == "In"
            && expression.values.iter().flatten().any(|value| value == namespace)
    });

    by_label.is_some_and(|name| name == namespace) || by_expression
}
