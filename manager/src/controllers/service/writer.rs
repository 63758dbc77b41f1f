//! Writes to the API server.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use outrigger_leader::Permit;
use serde_json::Value;

use super::error::Error;
use crate::api_write::write;
use crate::events::{About, EventType, Recorder};

/// The source component of Events.
const COMPONENT: &str = "service-controller";

/// The result of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The Service exists and is patched.
    There,
    /// The Service is gone.
    Gone,
}

/// The writes to a Service; a trait for tests.
#[async_trait]
pub trait Writer: Send + Sync {
    /// Sends a strategic merge patch to the subresource `status`.
    /// `operation` is for the error message.
    async fn patch(&self, service: &Service, operation: &'static str, patch: Value) -> Result<Found, Error>;

    async fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str);
}

pub struct ApiWriter {
    client: Client,
    recorder: Recorder,
    permit: Permit,
}

impl ApiWriter {
    /// Writes while `permit` is valid.
    pub fn new(client: Client, permit: Permit) -> Self {
        Self {
            recorder: Recorder::new(client.clone(), COMPONENT),
            client,
            permit,
        }
    }
}

#[async_trait]
impl Writer for ApiWriter {
    async fn patch(&self, service: &Service, operation: &'static str, patch: Value) -> Result<Found, Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let api = Api::<Service>::namespaced(self.client.clone(), namespace);
        tracing::info!(namespace, name, operation, "writing to the API server");

        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        match write(&self.permit, api.patch_status(name, &parameters, &patch)).await? {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::Gone),
            result => result.map(|_| Found::There).map_err(Error::kubernetes(operation)),
        }
    }

    async fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str) {
        let metadata = &service.metadata;
        let about = About {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
        };

        self.recorder.record(&self.permit, &about, kind, reason, message);
    }
}
