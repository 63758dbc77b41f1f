//! All writes of the controller. Each checks the permit first.

use k8s_openapi::jiff::Timestamp;

use super::deps::Deps;
use super::error::Waiting;
use super::plan::Plan;
use crate::aws_errors;
use crate::events::{EventType, about_node};
use crate::node_cache::NodeView;
use crate::node_write::{self, Part, WriteError};

/// Initializes a Node: first its addresses, then all other fields together with the removal of the taint.
///
/// # Errors
/// [`WriteError`]; a partly initialized Node is planned again from its new state.
pub(super) async fn initialize(deps: &Deps, node: &NodeView, plan: &Plan) -> Result<(), WriteError> {
    tracing::info!(node = node.name(), changes = %plan.notes.join("; "), "initializing the Node");
    if !plan.status.is_empty() {
        node_write::patch(&deps.client, &deps.permit, node.name(), Part::Status, &plan.status).await?;
    }

    node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &plan.node).await?;

    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    if let Some(created) = created {
        deps.metrics.nodes.taint_removal_delay.observe(seconds_since(created));
    }

    let (about, message) = (about_node(node), "Node synced successfully");
    deps.events
        .record(&deps.permit, &about, EventType::Normal, "Synced", message);

    if let Some(created) = created {
        deps.metrics.nodes.initial_sync_delay.observe(seconds_since(created));
    }

    Ok(())
}

fn seconds_since(created: Timestamp) -> f64 {
    Timestamp::now().duration_since(created).as_secs_f64().max(0.0)
}

/// Writes a Node's addresses or repairs its labels.
pub(super) async fn patch(
    deps: &Deps,
    node: &NodeView,
    part: Part,
    operations: &[serde_json::Value],
) -> Result<(), WriteError> {
    node_write::patch(&deps.client, &deps.permit, node.name(), part, operations)
        .await
        .map(|_| ())
}

pub(super) fn report_waiting(deps: &Deps, node: &NodeView, waiting: &Waiting) {
    let message = format!(
        "The Node is not initialized yet, reason {}: {}",
        waiting.reason(),
        chain(waiting)
    );
    deps.events
        .warn(&deps.permit, &about_node(node), "NotInitialized", &message);
}

/// Reports on the Node that a label is missing because the role does not allow a call.
pub(super) fn report_denied(deps: &Deps, node: &NodeView, label: &str, error: &outrigger_aws::Error) {
    let message = format!("The Node has no label {label}: {}", aws_errors::denied_ec2(error));
    tracing::warn!(
        node = node.name(),
        operation = error.operation(),
        "call denied; the Node has no label {label}"
    );

    deps.events
        .warn(&deps.permit, &about_node(node), "LabelUnavailable", &message);
}

/// Reports on a Node that its provider ID does not count.
pub(super) fn report_refused(deps: &Deps, node: &NodeView, reason: &str) {
    let message = format!("{reason}. Until then this Node becomes no target of a load balancer, and gets no route");
    tracing::warn!(node = node.name(), "{message}");

    deps.events
        .warn(&deps.permit, &about_node(node), "ProviderIDRefused", &message);
}

pub(super) fn report_stopped(deps: &Deps, node: &NodeView) {
    let message = "The addresses of this Node differ from those of its instance. Another writer has restored them \
                   twice, for example an in-tree kubelet: make it external, or stop that writer. This manager does not \
                   write them until the instance's addresses change or all kubelets are external";
    tracing::warn!(node = node.name(), "{message}");
    deps.events
        .warn(&deps.permit, &about_node(node), "AddressesContested", message);
}

pub(super) fn report_incomplete(deps: &Deps, node: &NodeView, notes: &[String]) {
    let message = format!(
        "This Node lacks {}. This manager has added them twice, and another writer has removed them: stop that writer. They \
         are not added again until all kubelets are external",
        notes.join("; ")
    );

    tracing::warn!(node = node.name(), "{message}");

    deps.events
        .warn(&deps.permit, &about_node(node), "LabelsContested", &message);
}

/// An error with its causes on one line, each text once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }

    text
}
