//! `matchConditions` (CEL) that keep objects away that no decision changes, warns about or denies. API servers evaluate
//! them since 1.28; older ones refuse or drop the field.
//!
//! | entry | decision that ignores the others |
//! |---|---|
//! | nodes | `decide/node.rs`: a Node with a provider ID or with the taint |
//! | workloads, Pods | `decide/pod_spec.rs`, `decide/tags/ebs.rs`: containers without the name of a component |
//! | Pods | `decide/workload.rs`: mirror Pods |
//! | Services | `decide/tags`: Services without the annotation with tags |
//! | kubeadm's ConfigMaps | `decide/kubeadm_config.rs`: ConfigMaps with other names |
//!
//! No entry needs a condition for subresources (`status`, `scale`), Leases, updates of Nodes and the webhook's own writes:
//! its rules do not contain them. A condition that fails to evaluate skips an entry with Ignore, so each one checks with
//! `has` whatever may be absent. `e2e/tests/golden_api` runs the golden cases through them on a real API server.

use outrigger_shared::component::{self, Component, POD_LABELS};
use outrigger_shared::{annotations, taints, version::KubernetesVersion};
use serde_json::{Value, json};

use super::entries::Entry;
use crate::tags::{EBS_DRIVER, SERVICE_TAGS};

/// The first version whose API servers evaluate them by default:
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>
pub const SINCE: KubernetesVersion = KubernetesVersion::v1(28);

/// The conditions of an entry, as names and expressions. All must be true.
pub fn conditions(entry: &Entry) -> Vec<(&'static str, String)> {
    let has = |resource: &str| entry.rules.iter().any(|rule| rule.resources.contains(&resource));
    if has("nodes") {
        vec![("not-initialized", not_initialized())]
    } else if has("deployments") {
        let words = [&component::WORDS[..], &[EBS_DRIVER]].concat();
        vec![(
            "names-a-component",
            names_one_of("object.spec.template.spec.containers", &words),
        )]
    } else if has("pods") {
        of_pods(entry)
    } else if has("services") {
        vec![("services-with-tags", services_with_tags())]
    } else if has("configmaps") {
        vec![("of-kubeadm", of_kubeadm())]
    } else {
        Vec::new()
    }
}

/// API servers send a Pod for one entry only: that of its first label, or in a namespace of control planes the one for Pods
/// without a label of the old manager.
fn of_pods(entry: &Entry) -> Vec<(&'static str, String)> {
    let mut all = vec![("no-mirror-pod", without_annotation(annotations::MIRROR_POD))];
    match &entry.pod_label {
        Some(label) => {
            let earlier: Vec<&str> = POD_LABELS.into_iter().take_while(|key| *key != label.key).collect();
            if !earlier.is_empty() {
                all.push(("no-earlier-label", without_labels(&earlier, &label.values)));
            }
        }
        None => {
            let manager = Component::KubeControllerManager.names();
            all.push(("no-manager-label", without_labels(&POD_LABELS, &manager)));
        }
    }

    // Only what is certain: a Pod that passes an entry that blocks starts without a review.
    if !entry.blocks {
        let containers = "object.spec.containers";
        all.push(("names-a-component", names_one_of(containers, &component::WORDS)));
    }

    all
}

fn without_labels(keys: &[&str], values: &[&str]) -> String {
    let (keys, values) = (json!(keys), json!(values));
    format!(
        "!has(object.metadata.labels) || \
         !{keys}.exists(key, key in object.metadata.labels && object.metadata.labels[key] in {values})"
    )
}

/// The conditions as in the field `matchConditions`.
#[must_use]
pub fn match_conditions(entry: &Entry) -> Vec<Value> {
    let all = conditions(entry).into_iter();
    all.map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect()
}

/// A JSON text is a CEL text.
fn text(value: &str) -> String {
    json!(value).to_string()
}

fn not_initialized() -> String {
    let taint = text(taints::UNINITIALIZED);
    format!(
        "!has(object.spec) || \
         (!has(object.spec.providerID) || object.spec.providerID == \"\") && \
         (!has(object.spec.taints) || !object.spec.taints.exists(taint, taint.key == {taint}))"
    )
}

fn without_annotation(key: &str) -> String {
    format!("!({})", with_annotation(key))
}

fn with_annotation(key: &str) -> String {
    format!(
        "has(object.metadata.annotations) && {} in object.metadata.annotations",
        text(key)
    )
}

/// A container has one of the words in its name, image, command line, or in a variable that its command line may contain.
fn names_one_of(containers: &str, words: &[&str]) -> String {
    format!(
        "{containers}.exists(c, {words}.exists(word, \
         c.name.contains(word) \
         || has(c.image) && c.image.contains(word) \
         || has(c.command) && c.command.exists(token, token.contains(word)) \
         || has(c.args) && c.args.exists(token, token.contains(word)) \
         || has(c.env) && c.env.exists(variable, has(variable.value) && variable.value.contains(word))))",
        words = json!(words)
    )
}

fn services_with_tags() -> String {
    format!(
        "request.resource.group != \"\" || request.resource.resource != \"services\" || {}",
        with_annotation(SERVICE_TAGS)
    )
}

/// Up to 1.23 the name of the kubelet's ConfigMap ends in the version.
fn of_kubeadm() -> String {
    "object.metadata.name == \"kubeadm-config\" || object.metadata.name.startsWith(\"kubelet-config\")".to_owned()
}
