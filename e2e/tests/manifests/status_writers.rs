//! The component that lets only manager and webhook write the status of a migration, on the newest API server: 1.26 has no such
//! policies.

use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, discovery};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::manifests;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);
const MANAGER: &str = "system:serviceaccount:kube-system:outrigger-manager";
/// A user who may create service accounts in a namespace chooses their names.
const NAMESAKE: &str = "system:serviceaccount:guest:outrigger-manager";

async fn write_status(client: &Client, admin: &Client, reason: &str) -> Result<(), kube::Error> {
    let kind = GroupVersionKind::gvk("outrigger.dev", "v1alpha1", "CloudProviderMigration");
    // Discovery is not among the manager's rights.
    let (resource, _) = discovery::pinned_kind(admin, &kind).await?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let status = json!({"status": {"conditions": [{
        "type": "Prepared", "status": "True", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let params = PatchParams::default();
    api.patch_status("prod", &params, &Patch::Merge(status)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_manager_and_webhook_write_the_status_of_a_migration() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer136, Tool::Kustomize])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let options = ApiServerOptions::new("status", Version::V1_36, "127.90.0.0/16");
    let server = ApiServer::start(&tools, run.path(), &etcd, &options)
        .await
        .expect("API server");
    let admin = server.client(&User::admin(), "manifests-test/1").await.expect("client");
    let account = User::new(MANAGER).in_group("system:serviceaccounts");
    let manager = server.client(&account, "manifests-test/2").await.expect("client");
    let namesake = User::new(NAMESAKE).in_group("system:masters");
    let namesake = server.client(&namesake, "manifests-test/3").await.expect("client");
    let mut objects = manifests::with_component(&tools, run.path(), "base", "status-writers")
        .await
        .expect("kustomize accepts it");
    objects.push(json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "prod"},
        "spec": {"clusterID": "prod", "ownership": "owned", "phase": "InTree", "targets": [{"profile": "Nodes"}]},
    }));
    let is_policy = |object: &Value| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
    };
    let (policy, rest): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_policy);
    manifests::apply(&admin, &rest).await.expect("applied");
    write_status(&admin, &admin, "Forged")
        .await
        .expect("without the component an administrator may");

    manifests::apply(&admin, &policy).await.expect("applied");

    // The API server takes a moment to put a new policy into force.
    let refused = async || write_status(&admin, &admin, "Forged").await.err();
    let refusal = wait::until("no write by an administrator", LIMIT, refused).await;
    let refusal = refusal.expect("in time").to_string();
    assert!(
        refusal.contains("only outrigger-manager and outrigger-webhook"),
        "{refusal}"
    );
    write_status(&manager, &admin, "Latched")
        .await
        .expect("the manager still writes");
    write_status(&namesake, &admin, "Forged")
        .await
        .expect_err("an account of another namespace");
}
