//! `docs/operations/emergency.md`: its command turns the webhook off while no replica runs, and an upgrade turns it on
//! again.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::page::{Page, commands};
use outrigger_environment::manifests;
use outrigger_environment::review::{self, Answer};
use serde_json::json;

use super::install::Installer;
use super::self_signed::{Cluster, LIMIT};

const TENANT: &str = "tenant";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/outrigger-system/deployments/outrigger-webhook";

/// The page's first command.
fn command() -> Result<String> {
    let page = Page::read("docs/operations/emergency.md")?;
    let block = page.fenced("console").next().context("the page has no command")?;
    let [command] = &commands(&block.text)?[..] else {
        bail!("not one command: {}", block.text)
    };
    ensure!(
        command.starts_with("kubectl delete mutatingwebhookconfigurations,"),
        "{command}"
    );
    Ok(command.clone())
}

pub async fn off_and_on(helm: &Installer<'_>, cluster: &Cluster) -> Result<()> {
    let chosen = json!({"profiles": ["Nodes", "HostedControlPlane"], "validation": true});
    helm.upgrade(&cluster.values(&chosen)).await?;
    let entries = cluster.bundles().await?.len();
    cluster.works(entries).await?;
    let label = json!({"outrigger.dev/control-plane": "true"});
    let tenant = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT, "labels": label}});
    manifests::apply(&cluster.admin, &[tenant]).await?;
    pod_is_granted(cluster).await.context("with the webhook")?;

    // Without a replica, no Pod of a kube-controller-manager is admitted.
    run_replicas(cluster, 0).await?;
    let is_refused = async || -> Result<bool> { Ok(create_pod(cluster).await?.message().contains("calling webhook")) };
    until("a Pod that is refused", LIMIT, is_refused).await?;
    let present = registrations(cluster).await?;
    ensure!(present.len() >= 2, "only {present:?}");

    run(&command()?, cluster).await?;
    pod_is_granted(cluster).await.context("after the command")?;
    let left = registrations(cluster).await?;
    ensure!(left.is_empty(), "left: {left:?}");

    // A new replica does not create them again.
    run_replicas(cluster, 1).await?;
    cluster.is_available().await?;
    let created = registrations(cluster).await?;
    ensure!(created.is_empty(), "created again: {created:?}");

    helm.upgrade(&cluster.values(&chosen)).await?;
    cluster.works(entries).await.context("turned on again").map(drop)
}

async fn registrations(cluster: &Cluster) -> Result<Vec<String>> {
    let all = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.admin.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.admin.clone());
    let mutating = mutating.list(&all).await?.items.into_iter().map(|one| one.name_any());
    let validating = validating.list(&all).await?.items.into_iter().map(|one| one.name_any());
    Ok(mutating.chain(validating).collect())
}

async fn pod_is_granted(cluster: &Cluster) -> Result<()> {
    let mut last = String::new();
    let is_granted = until("a Pod that is admitted", LIMIT, async || -> Result<bool> {
        let answer = create_pod(cluster).await?;
        answer.message().clone_into(&mut last);
        Ok(answer.is_granted())
    });
    let result = is_granted.await;
    result.with_context(|| last)
}

/// A Pod as the workload of a hosted kube-controller-manager creates it. It is not stored.
async fn create_pod(cluster: &Cluster) -> Result<Answer> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kube-controller-manager", "labels": {"app": "kube-controller-manager"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.13"}],
        },
    });
    let collection = format!("/api/v1/namespaces/{TENANT}/pods");
    review::create(&cluster.admin, &collection, "?dryRun=All", &pod).await
}

async fn run_replicas(cluster: &Cluster, count: u8) -> Result<()> {
    let patch = json!({"spec": {"replicas": count}});
    review::merge(&cluster.admin, DEPLOYMENT, &patch)
        .await?
        .granted()
        .map(drop)
}

/// Runs a line as it is written, where kubectl works.
async fn run(line: &str, cluster: &Cluster) -> Result<()> {
    let tools = Tools::load(&[Tool::Kubectl]).await?;
    let folder = tools.path(Tool::Kubectl)?.parent().context("kubectl in no folder")?;
    let output = tokio::process::Command::new("bash")
        .args(["-c", line])
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdin(Stdio::null())
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {errors}");
    println!("{line}\n{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
