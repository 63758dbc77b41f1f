//! Requests whose whole answer counts: status, warnings and body. The typed client keeps only the body.

use anyhow::{Context, Result};
use http::{Method, Request, header};
use kube::Client;
use kube::api::DynamicObject;
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use serde_json::Value;

use super::manifests::{OPERATOR, resource_of};

/// The media type of server-side apply; JSON is YAML.
pub const APPLY: &str = "application/apply-patch+yaml";
/// The media type of a JSON merge patch.
pub const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// An answer of the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The texts of its `Warning` headers, which kubectl shows.
    pub warnings: Vec<String>,
    /// The object, or a `Status` with a message.
    pub body: Value,
}

impl Answer {
    pub fn is_granted(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The message of a `Status`; empty when the answer is an object.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The object of a granted request.
    ///
    /// # Errors
    /// When it was not granted; the API server's message is passed on.
    pub fn granted(self) -> Result<Self> {
        anyhow::ensure!(self.is_granted(), "{}: {}", self.code, self.message());
        Ok(self)
    }
}

/// Sends one request; `path` is a path with its query, and a body is of the media type that stands with it.
///
/// # Errors
/// When there is no answer, or one that is no JSON. An HTTP status is no error here.
pub async fn send(client: &Client, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Answer> {
    let what = format!("{method} {path}");
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, JSON);
    let content = match body {
        None => Vec::new(),
        Some((media_type, content)) => {
            request = request.header(header::CONTENT_TYPE, media_type);
            serde_json::to_vec(content)?
        }
    };
    let request = request.body(Body::from(content))?;
    let response = client.send(request).await.with_context(|| what.clone())?;
    let (head, body) = response.into_parts();
    let bytes = body.collect_bytes().await.with_context(|| what.clone())?;
    let headers = head.headers.get_all(header::WARNING);

    Ok(Answer {
        code: head.status.as_u16(),
        warnings: headers.iter().flat_map(|value| texts(value.as_bytes())).collect(),
        body: serde_json::from_slice(&bytes).with_context(|| format!("{what}: the answer is no JSON"))?,
    })
}

/// Creates an object of a collection; `query` begins with `?` or is empty.
///
/// # Errors
/// As [`send`].
pub async fn create(client: &Client, collection: &str, query: &str, object: &Value) -> Result<Answer> {
    let path = format!("{collection}{query}");
    send(client, Method::POST, &path, Some((JSON, object))).await
}

/// # Errors
/// As [`send`].
pub async fn merge(client: &Client, path: &str, patch: &Value) -> Result<Answer> {
    send(client, Method::PATCH, path, Some((MERGE, patch))).await
}

/// Writes an object by server-side apply, with strict validation: what the API server does not know is refused.
///
/// # Errors
/// As [`send`], and when the API server serves no such kind.
pub async fn apply_strictly(client: &Client, object: &Value, dry_run: bool) -> Result<Answer> {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let query = format!("?fieldManager={OPERATOR}&force=true&fieldValidation=Strict{dry_run}");
    let path = format!("{}{query}", path_of(client, object).await?);
    send(client, Method::PATCH, &path, Some((APPLY, object))).await
}

/// The path of an object, by the API server's own list of kinds.
///
/// # Errors
/// When the object has no type or name, or the API server serves no such kind.
pub async fn path_of(client: &Client, object: &Value) -> Result<String> {
    let types = serde_json::from_value(object.clone()).context("an object without apiVersion and kind")?;
    let (resource, scope) = resource_of(client, &GroupVersionKind::try_from(&types)?).await?;
    let name = object["metadata"]["name"].as_str().context("an object without name")?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let namespace = (scope == Scope::Namespaced).then_some(namespace);
    let collection = <DynamicObject as kube::Resource>::url_path(&resource, namespace);
    Ok(format!("{collection}/{name}"))
}

/// The quoted texts of one `Warning` header: `299 - "text"`, more of them after commas.
fn texts(header: &[u8]) -> Vec<String> {
    let header = String::from_utf8_lossy(header);
    let (mut texts, mut current, mut escaped) = (Vec::new(), None::<String>, false);
    for character in header.chars() {
        match (&mut current, character) {
            (None, '"') => current = Some(String::new()),
            (None, _) => {}
            (Some(_), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(_), '"') if !escaped => texts.extend(current.take()),
            (Some(text), other) => text.push(other),
        }
        escaped = false;
    }

    texts
}

#[cfg(test)]
mod tests {
    use super::texts;

    #[test]
    fn warnings_are_read_with_their_quotes_and_commas() {
        let header = br#"299 - "set \"a\", or b \\ c", 299 kube-apiserver "second""#;
        assert_eq!(texts(header), [r#"set "a", or b \ c"#, "second"]);
        assert!(texts(b"299 - nothing quoted").is_empty());
        assert!(texts(br#"299 - "no end"#).is_empty());
    }
}
