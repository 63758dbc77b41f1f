//! All writes of the controller. Each checks the permit first.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use outrigger_leader::NotLeader;
use outrigger_shared::taints;
use serde_json::Value;
use tokio::time::Instant;

use super::Deps;
use super::plan::History;
use super::plan::{Action, Opened, Reason};
use crate::api_write::write;
use crate::args::value::go_duration;
use crate::events::{EventType, about_cluster, about_node};
use crate::node_cache::NodeView;
use crate::node_patch;
use crate::node_write::{self, Part, WriteError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node lifecycle controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}

/// Applies one action. A failed write is logged and planned again in the next pass.
pub(super) async fn apply(
    deps: &Deps,
    action: &Action,
    history: &mut History,
    announced: &mut BTreeSet<String>,
) -> Result<(), Error> {
    let (node, result) = match action {
        Action::Delete(node, reason) => (node, delete(deps, node, *reason, history, announced).await),
        Action::AddShutdownTaint(node) => (
            node,
            patch(deps, node, node_patch::add_taint(node, taints::SHUTDOWN, "NoSchedule")).await,
        ),
        Action::RemoveShutdownTaint(node) => (
            node,
            patch(deps, node, node_patch::remove_taints(node, taints::SHUTDOWN)).await,
        ),
    };
    match result {
        Ok(()) | Err(WriteError::Gone) => Ok(()),
        Err(WriteError::NotLeader(lost)) => Err(lost.into()),
        Err(error) => {
            tracing::warn!(
                node = node.name(),
                error = &error as &dyn std::error::Error,
                "failed to write the Node; retrying"
            );
            Ok(())
        }
    }
}

async fn patch(deps: &Deps, node: &NodeView, operations: Vec<Value>) -> Result<(), WriteError> {
    tracing::info!(node = node.name(), "changing the shutdown taint");
    let operations: Vec<Value> = std::iter::once(node_patch::test_uid(node)).chain(operations).collect();
    node_write::patch(&deps.client, &deps.permit, node.name(), Part::Node, &operations)
        .await
        .map(|_| ())
}

/// The Event comes before the deletion, once for each Node; the deletion holds for this very Node only.
async fn delete(
    deps: &Deps,
    node: &NodeView,
    reason: Reason,
    history: &mut History,
    announced: &mut BTreeSet<String>,
) -> Result<(), WriteError> {
    let about = about_node(node);
    tracing::info!(node = node.name(), reason = reason.as_str(), "deleting the Node");
    deps.permit.check()?;
    if announced.insert(node.uid().to_owned()) {
        let message = format!(
            "Deleting node {} because it does not exist in the cloud provider",
            node.name()
        );
        deps.events
            .record(&deps.permit, &about, EventType::Normal, "DeletingNode", &message);
    }

    let this_very_node = Preconditions {
        uid: Some(node.uid().to_owned()),
        resource_version: None,
    };
    let parameters = DeleteParams {
        preconditions: Some(this_very_node),
        ..DeleteParams::default()
    };
    let nodes = Api::<Node>::all(deps.client.clone());
    let deleted = write(&deps.permit, nodes.delete(node.name(), &parameters)).await?;

    match deleted.map_err(WriteError::from) {
        Ok(_) => {
            history.deleted(reason, Instant::now());
            Ok(())
        }
        Err(WriteError::Gone) => Ok(()),
        Err(error) => {
            let message = format!("Node {} could not be deleted: {error}", node.name());
            deps.events.warn(&deps.permit, &about, "DeletingNodeFailed", &message);
            Err(error)
        }
    }
}

/// Reports that the breaker opened: in the log and by an Event. The Event is about the Namespace of Events about Nodes,
/// since it concerns no single Node.
pub(super) fn report_breaker(deps: &Deps, opened: Opened, all: usize) {
    let (Opened { deferred, limit }, breaker) = (opened, &deps.breaker);
    let message = format!(
        "EC2 does not list the instances of {deferred} of {all} Nodes. These Nodes are not deleted for {}, then at most \
         {limit} in each {}. Check the AWS permissions, the region and the cluster ID of the cloud controller manager",
        go_duration(breaker.hold),
        go_duration(breaker.window)
    );

    tracing::error!(deferred, all, limit, "{message}");
    deps.events
        .warn(&deps.permit, &about_cluster(), "TooManyNodesGone", &message);
}
