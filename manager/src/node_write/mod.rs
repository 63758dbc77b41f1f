//! How every write to a Node is sent: as a patch, never as a whole object.
//!
//! Servers may be older or newer than the types that this program was built with, so writing back a typed Node
//! would drop the fields that those types do not know.

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::Client;
use outrigger_leader::Permit;
use serde_json::Value;

use crate::api_write::write;
use crate::node_cache::NodeView;

mod error;

pub use error::WriteError;

/// The part of a Node that a patch goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Metadata and spec.
    Node,
    Status,
}

/// Sends a JSON patch of a Node, if `permit` still allows it, and returns the Node as it is then.
pub async fn patch(
    client: &Client,
    permit: &Permit,
    name: &str,
    part: Part,
    operations: &[Value],
) -> Result<NodeView, WriteError> {
    let kind = "application/json-patch+json";
    send(client, permit, name, part, kind, &Value::from(operations)).await
}

/// Sends a strategic merge patch of a Node's status, which finds a condition by its type wherever it stands in the
/// list. With `metadata.uid` in it, it holds for this very Node only.
pub async fn merge_status(client: &Client, permit: &Permit, name: &str, patch: &Value) -> Result<NodeView, WriteError> {
    let kind = "application/strategic-merge-patch+json";
    send(client, permit, name, Part::Status, kind, patch).await
}

async fn send(
    client: &Client,
    permit: &Permit,
    name: &str,
    part: Part,
    kind: &'static str,
    patch: &Value,
) -> Result<NodeView, WriteError> {
    let subresource = if part == Part::Status { "/status" } else { "" };
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/nodes/{name}{subresource}"))
        .header(CONTENT_TYPE, kind)
        .body(patch.to_string().into_bytes())
        .map_err(WriteError::Name)?;

    Ok(write(permit, client.request::<NodeView>(request)).await??)
}
