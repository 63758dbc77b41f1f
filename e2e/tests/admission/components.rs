//! The real binaries run with the flags that the API server has stored: no flag of ours is unknown to them, and those
//! that are left mean what the phase says.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, User, Version};
use outrigger_cluster_harness::process::{Launch, Process};
use serde_json::json;

use crate::bench::{Bench, SOON};
use crate::objects::{self, Workload, flag, line};
use crate::phases::Lines;

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
pub const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";
/// A component that does not know a flag, or refuses its value, has ended by then.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

pub async fn accept_their_flags(bench: &Bench, lines: &Lines) -> Result<()> {
    match bench.version {
        Version::V1_26 => {
            a_bad_flag_would_be_seen(bench).await?;
            controller_managers_start_in_both_forms(bench, lines).await?;
            an_api_server_starts(bench, &lines.external["kube-apiserver"], Version::V1_26).await
        }
        Version::V1_36 => {
            the_newest_manager_starts(bench).await?;
            the_newest_api_server_loses_what_it_refuses(bench).await
        }
    }
}

/// A stored command line is a program, behind a wrapper or left to the image, and its flags.
pub fn flags(line: &[String]) -> Vec<String> {
    let program = line
        .iter()
        .position(|text| text.rsplit('/').next() == Some("kube-controller-manager"));
    line[program.map_or(0, |index| index + 1)..].to_vec()
}

pub fn start(bench: &Bench, name: &str, flags: Vec<String>) -> Result<Process> {
    let program = bench.tools.path(bench.version.controller_manager())?;
    let launch = Launch::new(format!("kcm-{name}"), program)
        .arguments(flags)
        .environment("AWS_ACCESS_KEY_ID", "test")
        .environment("AWS_SECRET_ACCESS_KEY", "test")
        .environment("AWS_EC2_METADATA_DISABLED", "true");
    Ok(Process::start(&launch, &bench.run)?)
}

/// Each has read its flags and got as far as asking for leadership, and none has ended since.
pub async fn all_start(bench: &Bench, processes: &[Process]) -> Result<()> {
    tokio::time::sleep(LONG_ENOUGH).await;
    for process in processes {
        let what = format!("{} asks for leadership", process.name());
        bench
            .until(&what, async || {
                if let Some(exit) = process.exit() {
                    bail!("{} ended ({:?}): {}", process.name(), exit.status, process.log_tail());
                }
                let log = std::fs::read_to_string(process.log())?.to_lowercase();
                Ok(log.contains("attempting to acquire leader lease"))
            })
            .await?;
    }
    Ok(())
}

/// The check can fail: a flag that this version does not have ends the process in time.
async fn a_bad_flag_would_be_seen(bench: &Bench) -> Result<()> {
    let process = start(bench, "bad-flag", vec!["--enable-leader-migrations=true".to_owned()])?;
    tokio::time::timeout(SOON, process.ended())
        .await
        .context("an unknown flag went unnoticed")?;
    ensure!(process.log_tail().contains("unknown flag"), "{}", process.log_tail());
    Ok(())
}

pub async fn holder(bench: &Bench, lease: &str) -> Result<Option<String>> {
    let all = bench.read(LEASES).await?;
    let found = all["items"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|item| item["metadata"]["name"] == lease);
    Ok(found.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned)))
}

/// All at once: one leads, the others stand by, and each has read its flags. With the flags of Prepare the leader holds
/// the migration lease as well; with those of Migrate it leaves it alone.
async fn controller_managers_start_in_both_forms(bench: &Bench, lines: &Lines) -> Result<()> {
    let run = |lines: &std::collections::BTreeMap<String, Vec<String>>, form: &str| -> Result<Vec<Process>> {
        let managers = lines.iter().filter(|(name, _)| *name != "kube-apiserver");
        managers
            .map(|(name, line)| start(bench, &format!("{form}-{name}"), flags(line)))
            .collect()
    };
    let prepare = run(&lines.prepare, "prepare")?;
    all_start(bench, &prepare).await?;
    bench
        .until("one manager holds its own lease and the migration lease", async || {
            let (own, migration) = (
                holder(bench, "kube-controller-manager").await?,
                holder(bench, MIGRATION_LEASE).await?,
            );
            Ok(own.is_some() && own == migration)
        })
        .await?;
    drop(prepare);
    for lease in ["kube-controller-manager", MIGRATION_LEASE] {
        delete(bench, &format!("{LEASES}/{lease}")).await?;
    }
    let external = run(&lines.external, "external")?;
    all_start(bench, &external).await?;
    bench
        .until("an external manager leads", async || {
            Ok(holder(bench, "kube-controller-manager").await?.is_some())
        })
        .await?;
    ensure!(
        holder(bench, MIGRATION_LEASE).await?.is_none(),
        "an external manager competes for the migration lease"
    );
    drop(external);
    delete(bench, &format!("{LEASES}/kube-controller-manager")).await
}

pub async fn delete(bench: &Bench, path: &str) -> Result<()> {
    outrigger_environment::review::send(&bench.admin, http::Method::DELETE, path, None)
        .await?
        .granted()?;
    Ok(())
}

/// Another API server on the same etcd, with what is left of the cloud's flags. Up to 1.28 it reads the cloud config
/// for as long as it is named, also as external, so the file has to stay where it is.
async fn an_api_server_starts(bench: &Bench, line: &[String], version: Version) -> Result<()> {
    let mounted = bench.run.join("cloud.conf").display().to_string();
    let flags = line.iter().filter(|text| text.starts_with("--cloud-"));
    let extra: Vec<String> = flags.map(|text| text.replace("/etc/cloud.conf", &mounted)).collect();
    ensure!(flag(&extra, "cloud-provider") == Some("external"), "{extra:?}");
    ensure!(flag(&extra, "cloud-config") == Some(&mounted), "{extra:?}");
    let mut options = ApiServerOptions::new("flags", version, "127.90.0.0/16");
    options.extra_arguments = extra;
    ApiServer::start(&bench.tools, &bench.run, &bench.etcd, &options).await?;
    Ok(())
}

/// Flags of older releases.
pub const LEFT_OVER: [&str; 4] = [
    "--cloud-provider=external",
    "--enable-leader-migration=true",
    "--external-cloud-volume-plugin=aws",
    "--cloud-config=/does/not/exist",
];

/// The flags that a kube-controller-manager 1.36 needs here, without a cloud provider.
pub fn newest_flags(bench: &Bench) -> Result<Vec<String>> {
    let kubeconfig = bench.server.kubeconfig(&User::admin())?.display().to_string();
    let certificates = bench.run.join("kcm-1.36");
    std::fs::create_dir_all(&certificates)?;
    Ok(vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--cert-dir={}", certificates.display()),
        format!(
            "--service-account-private-key-file={}",
            bench.server.service_account_key().display()
        ),
        "--secure-port=0".to_owned(),
        "--controllers=ttl-controller".to_owned(),
    ])
}

/// A kube-controller-manager 1.36 in phase Migrate: what older releases left on its command line goes.
async fn the_newest_manager_starts(bench: &Bench) -> Result<()> {
    bench.namespace("newest", &json!({})).await?;
    bench.migration("newest", json!({"phase": "Migrate"})).await?;
    let mut command = vec!["kube-controller-manager".to_owned()];
    command.extend(newest_flags(bench)?);
    command.extend(LEFT_OVER.map(str::to_owned));
    let mut workload = Workload::new("newest", "kube-controller-manager").running(command, Vec::new());
    workload.image = "registry.k8s.io/kube-controller-manager:v1.36.0".to_owned();
    let stored = bench
        .create(&objects::deployments("newest"), &workload.deployment())
        .await?
        .granted()?;
    let now = line(&stored.body);
    ensure!(flag(&now, "cloud-provider") == Some("external"), "{now:?}");
    for gone in [
        "enable-leader-migration",
        "external-cloud-volume-plugin",
        "cloud-config",
    ] {
        ensure!(flag(&now, gone).is_none(), "{now:?}");
    }
    let process = start(bench, "newest", flags(&now))?;
    all_start(bench, std::slice::from_ref(&process)).await?;
    bench
        .until("it leads", async || {
            Ok(holder(bench, "kube-controller-manager").await?.is_some())
        })
        .await
}

/// A kube-apiserver 1.36 that still names a provider does not start; the webhook takes that out.
async fn the_newest_api_server_loses_what_it_refuses(bench: &Bench) -> Result<()> {
    bench.set_prepared("newest", "True").await?;
    let mut workload = Workload::api_server("newest");
    workload.image = "registry.k8s.io/kube-apiserver:v1.36.0".to_owned();
    let stored = bench
        .create(&objects::deployments("newest"), &workload.deployment())
        .await?
        .granted()?;
    let now = line(&stored.body);
    ensure!(now == ["kube-apiserver", "--authorization-mode=Node,RBAC"], "{now:?}");
    // This bench's own API server runs without; with them it ends at once.
    let refused: Vec<String> = workload
        .command
        .iter()
        .filter(|text| text.starts_with("--cloud-"))
        .cloned()
        .collect();
    let program = bench.tools.path(bench.version.api_server())?;
    let process = Process::start(
        &Launch::new("apiserver-refused", program).arguments(refused),
        &bench.run,
    )?;
    tokio::time::timeout(SOON, process.ended())
        .await
        .context("the flags are accepted after all")?;
    ensure!(process.log_tail().contains("cloud-provider"), "{}", process.log_tail());
    Ok(())
}
