//! The Node condition `NetworkUnavailable`.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::Deps;
use crate::node_cache::NodeView;
use crate::node_write::{self, WriteError};

const TYPE: &str = "NetworkUnavailable";

/// The patch that sets the condition; `None` when status and reason are right already. It applies to the Node of this
/// UID only.
pub(super) fn patch(node: &NodeView, routed: bool, now: Timestamp) -> Option<Value> {
    // As in k8s.io/cloud-provider's route controller.
    let (status, reason, message) = if routed {
        ("False", "RouteCreated", "RouteController created a route")
    } else {
        ("True", "NoRouteCreated", "RouteController failed to create a route")
    };
    let present = node.status.conditions.iter().find(|condition| condition.kind == TYPE);
    if present.is_some_and(|present| present.status == status && present.reason == reason) {
        return None;
    }

    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut condition = json!({
        "type": TYPE, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": seconds,
    });
    if present.is_none_or(|present| present.status != status) {
        condition["lastTransitionTime"] = seconds.into();
    }

    Some(json!({"metadata": {"uid": node.uid()}, "status": {"conditions": [condition]}}))
}

/// Writes the condition if it differs, and returns whether it was written. Another Node of the same name needs no write.
pub(super) async fn set(deps: &Deps, node: &NodeView, routed: bool) -> Result<bool, WriteError> {
    let Some(patch) = patch(node, routed, Timestamp::now()) else {
        return Ok(false);
    };
    match node_write::merge_status(&deps.client, &deps.permit, node.name(), &patch).await {
        Ok(_) => Ok(true),
        Err(WriteError::Gone | WriteError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn condition(node: &NodeView, routed: bool) -> Option<Value> {
        patch(node, routed, Timestamp::from_second(7).unwrap()).map(|patch| patch["status"]["conditions"][0].clone())
    }

    #[test]
    fn a_condition_that_says_so_already_is_not_written() {
        let created = json!([{"type": TYPE, "status": "False", "reason": "RouteCreated"}]);
        assert_eq!(condition(&node(&created), true), None);
        let failed = json!([{"type": TYPE, "status": "True", "reason": "NoRouteCreated"}]);
        assert_eq!(condition(&node(&failed), false), None);
        assert_eq!(condition(&node(&failed), true).unwrap()["status"], "False");
        assert_eq!(condition(&node(&json!([])), false).unwrap()["reason"], "NoRouteCreated");
    }

    #[test]
    fn another_writers_reason_is_replaced_and_the_time_of_transition_stays() {
        let other = node(&json!([{"type": TYPE, "status": "False", "reason": "FlannelIsUp"}]));
        let written = condition(&other, true).unwrap();
        assert_eq!(written["reason"], "RouteCreated");
        assert_eq!(written.get("lastTransitionTime"), None);
        let turned = condition(&other, false).unwrap();
        assert_eq!(turned["lastTransitionTime"], "1970-01-01T00:00:07Z");
    }

    #[test]
    fn the_patch_holds_for_this_very_node() {
        assert_eq!(
            patch(&node(&json!([])), true, Timestamp::UNIX_EPOCH).unwrap()["metadata"]["uid"],
            "u"
        );
    }
}
