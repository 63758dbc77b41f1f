//! The validating path on real API servers of the oldest and the newest minor, registered by the project's own
//! component: what it refuses, what it lets pass, and that everything passes while the webhook is away.

#![allow(clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Client;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::loopback::expect_ok;
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::review::{self, Answer};
use outrigger_environment::{Binaries, manifests};
use serde_json::{Value, json};

const MIGRATIONS: &str = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
const INSTANCES: &str = "/apis/ec2.services.k8s.aws/v1alpha1/namespaces/infra/instances";
const SOON: Duration = Duration::from_secs(60);
const FOREIGN: &str = "kubernetes.io/cluster/test";

#[tokio::test(flavor = "multi_thread")]
async fn forged_tags_are_refused_on_kubernetes_1_26_and_pass_without_the_webhook() {
    if let Err(error) = on(Version::V1_26, "127.104.0.0/16", "127.104.0.10").await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_tags_are_refused_on_kubernetes_1_36_and_pass_without_the_webhook() {
    if let Err(error) = on(Version::V1_36, "127.105.0.0/16", "127.105.0.10").await {
        panic!("{error:#}");
    }
}

async fn on(version: Version, range: &str, address: &str) -> Result<()> {
    let tools = Tools::load(&[Tool::Etcd, Tool::Kustomize, version.api_server()]).await?;
    let folder = tempfile::tempdir()?;
    let run = folder.path();
    let etcd = Etcd::start(&tools, run).await?;
    let server = ApiServer::start(&tools, run, &etcd, &ApiServerOptions::new("cluster", version, range)).await?;
    let admin = server.client(&User::admin(), "validation-test/1").await?;
    let (port, health) = (free_port()?, free_port()?);
    let certificates = run.join("webhook-certs");
    let authority = manifests::issue_webhook_certificate(&certificates, address)?;
    install(&tools, run, &admin, &authority, address, port).await?;
    let user = User::new("system:serviceaccount:outrigger-system:outrigger-webhook").in_group("system:serviceaccounts");
    let launch = Launch::new("outrigger-webhook", Binaries::one("outrigger-webhook")?).arguments([
        format!("--bind-address={address}:{port}"),
        format!("--health-bind-address=127.0.0.1:{health}"),
        format!("--cert-dir={}", certificates.display()),
        "--server-name=outrigger-webhook.outrigger-system.svc".to_owned(),
        format!("--kubeconfig={}", server.kubeconfig(&user)?.display()),
    ]);
    let webhook = Process::start(&launch, run)?;
    let ready = format!("http://127.0.0.1:{health}/readyz");
    webhook.ready("be ready", SOON, || expect_ok(&ready)).await?;

    tags_are_refused_or_pass(&admin).await?;
    a_migration_does_not_go_back_too_early(&admin).await?;
    println!("{version:?}: refused what is to be refused");

    webhook.kill_now().await?;
    create(&admin, &instance("while-away", FOREIGN)).await?.granted()?;
    println!("{version:?}: everything passes while the webhook is away");
    Ok(())
}

/// The base with its validating component, and a definition of our own with the group and kind of ACK's instances.
async fn install(tools: &Tools, run: &Path, admin: &Client, authority: &str, address: &str, port: u16) -> Result<()> {
    let overlay = run.join("kustomize/validation");
    std::fs::create_dir_all(&overlay)?;
    let up = "../".repeat(overlay.canonicalize()?.components().count() - 1);
    let component = manifests::folder().join("components/validation").canonicalize()?;
    let component = format!("components:\n- {up}{}\n", component.strip_prefix("/")?.display());
    let mut objects = manifests::render(tools, run, "validation", "base", &component).await?;
    let runs = ["Deployment", "DaemonSet", "PodDisruptionBudget"];
    objects.retain(|object| !object["kind"].as_str().is_some_and(|kind| runs.contains(&kind)));
    // The mutating path has tests of its own; without it no warning of its hides one of ours.
    objects.retain(|object| object["kind"] != "MutatingWebhookConfiguration");
    ensure!(
        objects
            .iter()
            .any(|object| object["kind"] == "ValidatingWebhookConfiguration"),
        "the component registers the path"
    );
    manifests::register_webhook(&mut objects, authority, address, port);
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    objects.push(
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "instances.ec2.services.k8s.aws",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": "ec2.services.k8s.aws", "scope": "Namespaced",
            "names": {"plural": "instances", "singular": "instance", "kind": "Instance", "listKind": "InstanceList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}]}}),
    );
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}}));
    manifests::apply(admin, &objects).await
}

fn instance(name: &str, key: &str) -> Value {
    json!({"apiVersion": "ec2.services.k8s.aws/v1alpha1", "kind": "Instance",
        "metadata": {"name": name, "namespace": "infra", "labels": {"cluster": "prod"}},
        "spec": {"tags": [{"key": key, "value": "owned"}]}})
}

async fn create(admin: &Client, object: &Value) -> Result<Answer> {
    review::create(admin, INSTANCES, "", object).await
}

/// Waits until the webhook, and the API server's view of the registration, have caught up.
async fn until_refused(admin: &Client, refused: bool) -> Result<()> {
    let probe = instance("probe", FOREIGN);
    let seen = async || {
        let answer = review::create(admin, INSTANCES, "?dryRun=All", &probe).await?;
        anyhow::Ok((answer.code == 403) == refused)
    };
    Ok(wait::until("the webhook sees the migration", SOON, seen).await?)
}

async fn tags_are_refused_or_pass(admin: &Client) -> Result<()> {
    // Without a migration nobody is refused.
    create(admin, &instance("old", FOREIGN)).await?.granted()?;
    let target = json!({"profile": "AwsResources", "objectSelector": {"matchLabels": {"cluster": "prod"}}});
    let migration = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": "prod"}, "spec": {"clusterID": "prod", "phase": "InTree", "targets": [target]}});
    review::create(admin, MIGRATIONS, "", &migration).await?.granted()?;
    until_refused(admin, true).await?;

    let refused = create(admin, &instance("forged", FOREIGN)).await?;
    let message = refused.message();
    ensure!(refused.code == 403, "{refused:?}");
    ensure!(
        message.contains("validate-aws-controllers.outrigger.dev")
            && message.contains(FOREIGN)
            && message.contains("prod"),
        "the message says who refuses what: {message}"
    );
    create(admin, &instance("own", "kubernetes.io/cluster/prod"))
        .await?
        .granted()?;

    // An object that was invalid before stays writable, also by its owner's finalizers, but may not get worse.
    let path = format!("{INSTANCES}/old");
    let touch = json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["outrigger.dev/test"]}});
    review::merge(admin, &path, &touch).await?.granted()?;
    let worse = json!({"spec": {"tags": [{"key": FOREIGN, "value": "owned"}, {"key": "CSIVolumeName", "value": "x"}]}});
    let worse = review::merge(admin, &path, &worse).await?;
    ensure!(
        worse.code == 403 && worse.message().contains("CSIVolumeName"),
        "{worse:?}"
    );
    ensure!(!worse.message().contains(FOREIGN), "that one was there: {worse:?}");
    review::merge(admin, &path, &json!({"spec": {"tags": []}}))
        .await?
        .granted()?;
    let again = review::merge(
        admin,
        &path,
        &json!({"spec": {"tags": [{"key": FOREIGN, "value": "owned"}]}}),
    )
    .await?;
    ensure!(again.code == 403, "{again:?}");

    // An audit warns.
    let audit = json!({"spec": {"mode": "Audit"}});
    review::merge(admin, &format!("{MIGRATIONS}/prod"), &audit)
        .await?
        .granted()?;
    until_refused(admin, false).await?;
    let warned = create(admin, &instance("audited", FOREIGN)).await?.granted()?;
    ensure!(
        warned.warnings.iter().any(|text| text.contains(FOREIGN)),
        "{:?}",
        warned.warnings
    );
    review::merge(
        admin,
        &format!("{MIGRATIONS}/prod"),
        &json!({"spec": {"mode": "Enforce"}}),
    )
    .await?
    .granted()?;
    until_refused(admin, true).await
}

/// The schema refuses InTree while a manager owns the controllers. The webhook refuses it while a running manager offers
/// the migration lease.
async fn a_migration_does_not_go_back_too_early(admin: &Client) -> Result<()> {
    let path = format!("{MIGRATIONS}/prod");
    let phase = |phase: &str| json!({"spec": {"phase": phase}});
    review::merge(admin, &path, &phase("Prepare")).await?.granted()?;
    report(admin, Some("cloud-controller-manager"), "InTreeLeft").await?;
    let refused = review::merge(admin, &path, &phase("InTree")).await?;
    ensure!(
        refused.code == 422 && refused.message().contains("owns the controllers"),
        "{refused:?}"
    );

    report(admin, None, "SteppingBack").await?;
    review::merge(admin, &path, &phase("InTree")).await?.granted()?;
    // The same while the manager renews its lease.
    review::merge(admin, &path, &phase("Prepare")).await?.granted()?;
    renew_main_lease(admin).await?;
    until_refused_in_tree(admin).await?;
    let refused = review::merge(admin, &path, &phase("InTree")).await?;
    ensure!(
        refused.code == 403 && refused.message().contains("is offered to the old manager"),
        "{refused:?}"
    );
    report(admin, Some("kube-controller-manager"), "OldManagerOwns").await?;
    review::merge(admin, &path, &phase("InTree")).await?.granted()?;
    Ok(())
}

/// Writes the lease twice, so that the webhook observes a renewal. It expires after the test.
async fn renew_main_lease(admin: &Client) -> Result<()> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager?fieldManager=test&force=true";
    for second in 1..=2 {
        let spec = json!({"holderIdentity": "manager", "leaseDurationSeconds": 3600,
            "renewTime": format!("2026-01-01T00:00:0{second}.000000Z")});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}, "spec": spec});
        review::send(admin, http::Method::PATCH, path, Some((review::APPLY, &lease)))
            .await?
            .granted()?;
    }
    Ok(())
}

/// Waits until the webhook has observed the lease. A dry run changes no phase.
async fn until_refused_in_tree(admin: &Client) -> Result<()> {
    let path = format!("{MIGRATIONS}/prod?dryRun=All");
    let refused = async || {
        let answer = review::merge(admin, &path, &json!({"spec": {"phase": "InTree"}})).await?;
        anyhow::Ok(answer.code == 403)
    };
    Ok(wait::until("the webhook sees the lease", SOON, refused).await?)
}

/// Writes the owner of the service controller, and the reason of `ControlPlaneMigrated`, as the manager does.
async fn report(admin: &Client, owner: Option<&str>, reason: &str) -> Result<()> {
    let mut row = json!({"name": "service-lb-controller", "lease": "cloud-provider-extraction-migration"});
    if let Some(owner) = owner {
        row["owner"] = json!(owner);
    }
    let condition = json!({"type": "ControlPlaneMigrated", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let body = json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": "prod"}, "status": {"controllers": [row], "conditions": [condition]}});
    let path = format!("{MIGRATIONS}/prod/status?fieldManager=outrigger-manager&force=true");
    review::send(admin, http::Method::PATCH, &path, Some((review::APPLY, &body)))
        .await?
        .granted()?;
    Ok(())
}
