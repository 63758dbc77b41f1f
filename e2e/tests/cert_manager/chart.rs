//! Real Helm installs the chart.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::process::free_port;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use serde_json::json;

use crate::cluster::{Cluster, IMAGE, LIMIT, NAMESPACE};

/// The chart's lifetimes, and those of the test: the certificate is renewed after two thirds as well. The authority lives
/// for some lifetimes of the certificate, so it is renewed some renewals of the certificate before it expires.
const LIFETIMES: [(&str, &str, &str); 3] = [
    ("duration", "43800h", "200s"),
    ("duration", "2160h", "75s"),
    ("renewBefore", "720h", "25s"),
];

/// Returns as soon as cert-manager has issued the certificate and cainjector has set `caBundle`.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let tools = Tools::load(&[Tool::Helm]).await?;
    let (run, kubeconfig) = (cluster.run.as_path(), cluster.kubeconfig.display().to_string());
    let (values, renderer) = (values(cluster)?, post_renderer(cluster)?);
    let mut command = tokio::process::Command::new(tools.path(Tool::Helm)?);
    command.args(["install", "outrigger", "../charts/outrigger", "--create-namespace"]);
    command.args(["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig]);
    command.args(["--values", &values, "--post-renderer", &renderer]);
    for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(home, run.join(home));
    }

    let output = command.stdin(Stdio::null()).output().await.context("running helm")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm install: {errors}");

    lifetimes_are_those_of_the_test(cluster).await?;
    wait::until("every entry has the authority's certificate", LIMIT, async || {
        cluster.check_programs()?;
        let data = cluster.secret_data(crate::SECRET).await?;
        cluster.each_bundle_has(&data["ca.crt"]).await
    })
    .await?;
    Ok(())
}

/// The flags for a process that is in no container. API servers verify a certificate when they connect, so connections
/// are short; and they close idle ones themselves, after 90 s, so that none ends while a request is sent.
fn values(cluster: &Cluster) -> Result<String> {
    let flags = [
        format!("--kubeconfig={}", cluster.webhook_kubeconfig.display()),
        "--shutdown-delay=0s".to_owned(),
        "--cert-reload-interval=1s".to_owned(),
        "--max-connection-age=1s".to_owned(),
        "--header-timeout=120s".to_owned(),
        "--idle-timeout=120s".to_owned(),
    ];
    let values = json!({
        "image": {"repository": IMAGE},
        "profiles": ["Nodes", "HostedControlPlane"],
        "certificates": {"source": "certManager"},
        "webhook": {"replicas": 1, "extraArgs": flags},
    });
    written(&cluster.run.join("values.json"), &values.to_string())
}

/// Addresses and ports of this machine, which has no Pod network; no token and no Secret in a volume, but the folder in
/// which the test plays the kubelet; and short lifetimes.
fn post_renderer(cluster: &Cluster) -> Result<String> {
    let (address, port, health) = (cluster.address, free_port()?, free_port()?);
    let certificates = cluster.certificates.display();
    let mut edits = vec![
        format!("s/0\\.0\\.0\\.0:8443/{address}:{port}/"),
        format!("s/0\\.0\\.0\\.0:8081/127.0.0.1:{health}/"),
        format!("s/containerPort: 8443/containerPort: {port}/"),
        format!("s/containerPort: 8081/containerPort: {health}/"),
        format!("s/port: 443$/port: {port}/"),
        format!("s/^  ports:$/  clusterIP: {address}\\n  ports:/"),
        "s/^      automountServiceAccountToken: true$/      automountServiceAccountToken: false/".to_owned(),
        format!("s#/etc/outrigger/certs#{certificates}#"),
        "s/^          secret:$/          hostPath:/".to_owned(),
        format!("s#^            secretName: outrigger-webhook-tls$#            path: {certificates}#"),
        "/^            defaultMode: 288$/d".to_owned(),
    ];
    edits.extend(LIFETIMES.map(|(field, charts, tests)| format!("s/^  {field}: {charts}$/  {field}: {tests}/")));
    let edits: String = edits.iter().map(|edit| format!(" -e '{edit}'")).collect();

    let path = cluster.run.join("post-renderer");
    let path_text = written(&path, &format!("#!/bin/sh\nexec sed{edits}\n"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path_text)
}

fn written(path: &Path, text: &str) -> Result<String> {
    std::fs::write(path, text)?;
    Ok(path.display().to_string())
}

/// A lifetime that the chart does not have any more would not be replaced.
async fn lifetimes_are_those_of_the_test(cluster: &Cluster) -> Result<()> {
    let authority = cluster.certificate("outrigger-ca").await?;
    let serving = cluster.certificate("outrigger-webhook").await?;
    let (of_authority, of_serving) = (&authority["spec"], &serving["spec"]);
    let found = [
        &of_authority["duration"],
        &of_serving["duration"],
        &of_serving["renewBefore"],
    ];
    for (found, (field, charts, tests)) in found.into_iter().zip(LIFETIMES) {
        ensure!(
            *found == tests,
            "{field} is {found}: the chart had {charts} when LIFETIMES was written"
        );
    }
    Ok(())
}
