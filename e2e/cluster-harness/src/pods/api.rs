//! The three writes of a kubelet and its scheduler: bind, post status, confirm deletion.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Error};
use serde_json::{Value, json};

/// Between two tries of a write that failed.
const RETRY: Duration = Duration::from_millis(300);

/// True when the object is not there any more, or another of the same name is: nothing is left to do for it.
fn is_over(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404 || status.code == 409)
}

/// Binds a Pod to the node. Tries until it is done or somebody else did it.
pub(super) async fn bind(api: &Api<Pod>, pod: &Pod, node: &str) {
    let Some(name) = pod.metadata.name.as_deref() else {
        return;
    };

    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let parameters = PostParams::default();
    let write = || api.create_subresource::<_, Status>("binding", name, &parameters, &binding);
    until_done("bind", name, write).await;
}

/// Posts a status once; false when it must be tried again.
pub(super) async fn post_status(api: &Api<Pod>, pod: &Pod, patch: &Value) -> bool {
    let Some(name) = pod.metadata.name.as_deref() else {
        return true;
    };
    match api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => true,
        Err(error) if is_over(&error) => true,
        Err(error) => {
            tracing::warn!(%error, pod = name, "the Pod's status was not written; it is tried again");
            false
        }
    }
}

/// Tells the API server that nothing of the Pod runs any more, so that it may forget this very Pod.
pub(super) async fn confirm_deletion(api: &Api<Pod>, pod: &Pod) {
    let Some(name) = pod.metadata.name.as_deref() else {
        return;
    };

    let preconditions = Preconditions {
        uid: pod.metadata.uid.clone(),
        resource_version: None,
    };
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };

    until_done("confirm the deletion of", name, || api.delete(name, &parameters)).await;
}

async fn until_done<T, W: Future<Output = Result<T, Error>>>(verb: &str, pod: &str, write: impl Fn() -> W) {
    loop {
        match write().await {
            Ok(_) => return,
            Err(error) if is_over(&error) => return,
            Err(error) => tracing::warn!(%error, pod, "could not {verb} the Pod; it is tried again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
