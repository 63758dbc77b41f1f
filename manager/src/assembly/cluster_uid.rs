//! Reads the UID of namespace `kube-system`, which identifies the cluster even if another one has the same cluster ID.
//! It stays the same as long as the cluster's data exists.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

const NAMESPACE: &str = "kube-system";
/// The controller waits for this read, so it is short: new resources can do without the tag.
const TRIES: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(3);
const BACKOFF: Duration = Duration::from_secs(1);

/// The UID; `None` if it cannot be read, which is logged.
pub(super) async fn read(client: &Client) -> Option<String> {
    let mut error = String::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(BACKOFF).await;
        }

        let namespaces = Api::<Namespace>::all(client.clone());
        match tokio::time::timeout(TIMEOUT, namespaces.get_metadata(NAMESPACE)).await {
            Ok(Ok(namespace)) => return namespace.metadata.uid,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                error = status.message.clone();
                break;
            }
            Ok(Err(failed)) => error = failed.to_string(),
            Err(_) => error = format!("no answer within {} s", TIMEOUT.as_secs()),
        }
    }

    tracing::warn!(
        error,
        "cannot read the UID of namespace kube-system: new AWS resources get no tag outrigger.dev/cluster-uid, and the sweep \
         keeps resources that have one; grant get on this namespace and restart"
    );
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Reads from an API server that gives these answers, the last one for good; with the number of requests.
    async fn read_from(answers: Vec<(u16, Value)>) -> (Option<String>, u32) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/kube-system");
            let nth = usize::try_from(count.fetch_add(1, Ordering::SeqCst)).unwrap();
            let (code, body) = answers[nth.min(answers.len() - 1)].clone();
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            async move { Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        let uid = read(&Client::new(server, "default")).await;
        (uid, asked.load(Ordering::SeqCst))
    }

    fn status(code: u16) -> (u16, Value) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "x", "code": code,
        });
        (code, body)
    }

    #[tokio::test(start_paused = true)]
    async fn the_uid_is_read_and_a_failure_does_not_keep_the_controller_waiting() {
        let namespace = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "kube-system", "uid": "u-1"},
        });
        let found = (200, namespace);
        assert_eq!(read_from(vec![found.clone()]).await, (Some("u-1".into()), 1));
        assert_eq!(read_from(vec![status(503), found]).await, (Some("u-1".into()), 2));
        assert_eq!(read_from(vec![status(403)]).await, (None, 1), "it may not");
        assert_eq!(read_from(vec![status(503)]).await, (None, TRIES));
    }
}
