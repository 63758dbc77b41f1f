//! The one question to the API server: all Nodes, as they are now and not as a cache has them.

use http::Request;
use serde::Deserialize;

use crate::node_cache::NodeView;

const PAGE: u32 = 500;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<NodeView>>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default)]
    r#continue: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the API server did not list the Nodes: {0}")]
    Kubernetes(#[from] kube::Error),
    #[error("cannot form a URL from the API server's continue token: {0}")]
    Token(#[from] http::Error),
}

/// Every Node, from a consistent read: no resource version is given, so the server asks etcd, and all pages show the
/// same moment. One page that fails fails the list.
pub(super) async fn all_nodes(client: &kube::Client) -> Result<Vec<NodeView>, ListError> {
    let mut nodes = Vec::new();
    let mut token = String::new();
    loop {
        let uri = match token.as_str() {
            "" => format!("/api/v1/nodes?limit={PAGE}"),
            token => format!("/api/v1/nodes?limit={PAGE}&continue={}", escaped(token)),
        };
        let page: List = client.request(Request::get(uri).body(Vec::new())?).await?;
        nodes.extend(page.items.unwrap_or_default());
        match page.metadata.r#continue.filter(|token| !token.is_empty()) {
            Some(next) => token = next,
            None => return Ok(nodes),
        }
    }
}

/// Tokens are base64 for URLs, which may end in `=`; anything else is escaped, too.
fn escaped(token: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let escape = |byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    token.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_fit_into_a_query() {
        assert_eq!(escaped("aZ-_9=="), "aZ-_9%3D%3D");
        assert_eq!(escaped("a&b+c/"), "a%26b%2Bc%2F");
    }
}
