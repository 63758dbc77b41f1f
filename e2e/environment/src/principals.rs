//! Principals of the tenant that are not trusted, with real credentials of their own.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::User;
use serde_json::json;

use super::{Environment, Progress, manifests};

/// The namespace of the user that may edit one namespace.
pub(crate) const TEAM: &str = "team-a";
const EDITOR: &str = "editor";
const USER_AGENT: &str = "e2e-principal";

impl Environment {
    /// A ServiceAccount with ClusterRole `edit` in namespace [`TEAM`] and no other right, known by a token of
    /// TokenRequest.
    pub(crate) async fn namespace_editor(&self) -> Result<Client> {
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": EDITOR, "namespace": TEAM}}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": EDITOR, "namespace": TEAM},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", "name": EDITOR, "namespace": TEAM}],
            }),
        ];
        manifests::apply(&self.tenant_admin, &objects).await?;

        let accounts: Api<ServiceAccount> = Api::namespaced(self.tenant_admin.clone(), TEAM);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_token_request(EDITOR, &PostParams::default(), &request)
            .await?;
        let token = issued.status.context("a TokenRequest without status")?.token;
        let client = self.tenant.client_with_token(&token, USER_AGENT).await?;
        may_write_services(&client).await?;
        Ok(client)
    }

    /// A client with the credentials of a kubelet: the certificate of user `system:node:NAME` in group `system:nodes`.
    pub(crate) async fn kubelet_of(&self, node: &str) -> Result<Client> {
        let user = User::new(format!("system:node:{node}")).in_group("system:nodes");
        Ok(self.tenant.client(&user, USER_AGENT).await?)
    }
}

/// The controller of aggregated roles has filled `edit`, and the authorizer has seen the binding.
async fn may_write_services(client: &Client) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), TEAM);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let service = plain_service("probe")?;
    Progress::quiet()
        .wait("the user may create Services", Duration::from_secs(30), async || {
            let created = services.create(&dry, &service).await;
            Ok(created.map(drop).map_err(|error| error.to_string()))
        })
        .await
}

fn plain_service(name: &str) -> Result<Service> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"type": "ClusterIP", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
    });
    Ok(serde_json::from_value(service)?)
}

/// Creates a Service without a load balancer.
pub(crate) async fn create_plain_service(client: &Client, name: &str) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), TEAM);
    services.create(&PostParams::default(), &plain_service(name)?).await?;
    Ok(())
}

/// Replaces a Service by itself with an entry of `managedFields`, as the Service controller of a kube-controller-manager
/// leaves it, of this time. Returns whether the API server stored the entry.
pub(crate) async fn forge_status_write(client: &Client, name: &str, time: Timestamp) -> Result<bool> {
    let services: Api<Service> = Api::namespaced(client.clone(), TEAM);
    let entry = json!({
        "manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "apiVersion": "v1",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    });
    let mut service = services.get(name).await?;
    let fields = service.metadata.managed_fields.get_or_insert_default();
    fields.retain(|field| field.manager.as_deref() != Some("kube-controller-manager"));
    fields.push(serde_json::from_value(entry)?);
    let stored = services.replace(name, &PostParams::default(), &service).await?;

    let mut fields = stored.metadata.managed_fields.into_iter().flatten();
    Ok(fields.any(|field| {
        field.manager.as_deref() == Some("kube-controller-manager") && field.subresource.as_deref() == Some("status")
    }))
}

/// The mirror Pods of kube-system, as this client may write them.
pub(crate) fn mirror_pods(client: Client) -> Api<Pod> {
    Api::namespaced(client, "kube-system")
}
