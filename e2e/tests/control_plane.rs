//! Real API servers of both minors on one etcd, and the management cluster's controller manager.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use outrigger_cluster_harness::cluster::{
    ApiServer, ApiServerOptions, Etcd, ManagementControllerManager, User, Version,
};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

async fn start(tools: &Tools, run: &Path, etcd: &Etcd, name: &str, version: Version, range: &str) -> ApiServer {
    let options = ApiServerOptions::new(name, version, range);
    ApiServer::start(tools, run, etcd, &options).await.expect("API server")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("a ConfigMap")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_minors_share_an_etcd_and_say_which_they_are() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126, Tool::ApiServer136])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let (old, new) = tokio::join!(
        start(&tools, run.path(), &etcd, "old", Version::V1_26, "127.96.0.0/16"),
        start(&tools, run.path(), &etcd, "new", Version::V1_36, "127.97.0.0/16"),
    );
    for (server, minor) in [(&old, "v1.26."), (&new, "v1.36.")] {
        let client = server
            .client(&User::admin(), "control-plane-test/1")
            .await
            .expect("client");
        let version = client.apiserver_version().await.expect("answers").git_version;
        assert!(version.starts_with(minor), "{version}");
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        maps.create(&PostParams::default(), &config_map(server.name()))
            .await
            .expect("created");
        let names = maps.list(&ListParams::default()).await.expect("listed");
        let names: Vec<_> = names.items.into_iter().filter_map(|map| map.metadata.name).collect();
        assert!(
            names.contains(&server.name().to_owned()) && names.len() <= 2,
            "each sees its own: {names:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_who_their_certificates_say_and_a_killed_server_comes_back_with_its_data() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let mut server = start(&tools, run.path(), &etcd, "tenant", Version::V1_26, "127.96.0.0/16").await;
    let admin = server
        .client(&User::admin(), "control-plane-test/1")
        .await
        .expect("client");
    let nobody = server
        .client(&User::new("nobody"), "control-plane-test/2")
        .await
        .expect("client");
    let maps: Api<ConfigMap> = Api::namespaced(admin, "default");
    maps.create(&PostParams::default(), &config_map("kept"))
        .await
        .expect("created");
    let refused = Api::<ConfigMap>::namespaced(nobody, "default")
        .create(&PostParams::default(), &config_map("no"))
        .await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "{refused:?}"
    );

    let events = std::fs::read_to_string(server.audit_log()).expect("audit log");
    let mut events = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let created = events
        .find(|event| event["objectRef"]["name"] == "kept")
        .expect("recorded before it was answered");
    assert_eq!(
        (&created["user"]["username"], &created["userAgent"]),
        (&json!("admin"), &json!("control-plane-test/1"))
    );

    server.process().kill_now().await.expect("killed");
    server.start_again().await.expect("comes back");
    assert!(
        maps.get_opt("kept")
            .await
            .expect("same address, same certificates")
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_management_clusters_controller_manager_turns_a_deployment_into_a_pod() {
    let tools = Tools::load(&[Tool::Etcd, Tool::ApiServer126, Tool::ControllerManager126])
        .await
        .expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
    let server = start(&tools, run.path(), &etcd, "management", Version::V1_26, "127.98.0.0/16").await;
    let manager = ManagementControllerManager {
        kubeconfig: server.kubeconfig(&User::admin()).expect("kubeconfig"),
        service_account_key: server.service_account_key(),
        certificate_folder: run.path().join("kcm"),
        port: free_port().expect("port"),
    };
    let program = tools.path(server.version().controller_manager()).expect("binary");
    let launch = Launch::new("kube-controller-manager", program).arguments(manager.arguments());
    let manager = Process::start(&launch, run.path()).expect("starts");
    let client = server
        .client(&User::admin(), "control-plane-test/1")
        .await
        .expect("client");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
    }});
    let deployment = serde_json::from_value(deployment).expect("a Deployment");
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .expect("created");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let probe = || async {
        match pods.list(&ListParams::default().labels("app=web")).await {
            Ok(list) if !list.items.is_empty() => Ok(()),
            Ok(_) => Err("no Pod yet".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    manager
        .ready("Pod of the Deployment", SOON, probe)
        .await
        .expect("a Pod");
    manager.stop(Duration::from_secs(20)).await.expect("stops");
}
