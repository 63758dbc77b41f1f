//! InTree, Prepare, Migrate and back: what a phase permits, when it acts, and that nothing of the original is lost.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::cluster::{TenantControllerManager, User};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::objects::{self, Workload, flag, has_undo, is_on, line};

const MIGRATION: &str = "walk";
/// Ways to ask for the phase; each must do.
const ANNOTATION: &str = "annotation";

/// The stored command line of each Deployment in each phase.
pub struct Lines {
    /// By name of the Deployment.
    pub prepare: BTreeMap<String, Vec<String>>,
    /// By name of the Deployment.
    pub external: BTreeMap<String, Vec<String>>,
}

/// The old manager's own flags, for this API server, so that the real binary can run with what is left of them.
pub fn original(bench: &Bench) -> Result<Vec<String>> {
    let home = bench.run.join("kcm");
    std::fs::create_dir_all(&home)?;
    let cloud_config = bench.run.join("cloud.conf");
    // Nothing listens there: the provider starts without a call, and no call must leave this machine.
    std::fs::write(
        &cloud_config,
        "[Global]\nZone = us-west-2a\nVPC = vpc-1\nSubnetID = subnet-1\nKubernetesClusterID = walk\n\
         [ServiceOverride \"1\"]\nService = ec2\nRegion = us-west-2\nURL = http://127.0.0.1:9\nSigningRegion = us-west-2\n",
    )?;
    let mut flags = TenantControllerManager {
        kubeconfig: bench.server.kubeconfig(&User::admin())?,
        cloud_config,
        cluster_name: MIGRATION.to_owned(),
        service_account_key: bench.server.service_account_key(),
        certificate_folder: home,
        port: 0,
        leader_migration: false,
    }
    .arguments();
    // One controller of each kind: the cloud's, and one that leaves this bench's objects alone.
    flags.extend(["--controllers=service,ttl".to_owned(), "--v=2".to_owned()]);
    Ok(flags)
}

/// The shapes that provisioners write.
fn workloads(flags: &[String]) -> Vec<Workload> {
    let program = |path: &str| vec![path.to_owned()];
    let two_tokens = flags.iter().flat_map(|flag| match flag.split_once('=') {
        // A boolean takes no value of its own token.
        Some((_, "true" | "false")) | None => vec![flag.clone()],
        Some((name, value)) => vec![name.to_owned(), value.to_owned()],
    });
    let (first, second) = flags.split_at(flags.len() / 2);
    let wrapper = [
        "/go-runner",
        "--log-file=/var/log/kcm.log",
        "--also-stdout=true",
        "/usr/local/bin/kube-controller-manager",
    ];
    let shapes = [
        (
            "in-command",
            [program("kube-controller-manager"), flags.to_vec()].concat(),
            Vec::new(),
        ),
        (
            "two-tokens",
            program("/usr/local/bin/kube-controller-manager"),
            two_tokens.collect(),
        ),
        (
            "in-both",
            [program("kube-controller-manager"), first.to_vec()].concat(),
            second.to_vec(),
        ),
        (
            "behind-a-wrapper",
            program(wrapper[0]),
            [wrapper[1..].iter().map(|&t| t.to_owned()).collect(), flags.to_vec()].concat(),
        ),
        ("entry-point-of-the-image", Vec::new(), flags.to_vec()),
    ];
    shapes
        .into_iter()
        .map(|(name, command, args)| Workload::new(MIGRATION, name).running(command, args))
        .collect()
}

/// Kubermatic's form: http-prober waits for an endpoint and then becomes the program that an argument names as JSON.
fn in_json(flags: &[String]) -> Vec<String> {
    let inner = json!({"command": "/usr/local/bin/kube-controller-manager", "args": flags});
    let before = [
        "-endpoint",
        "https://127.0.0.1:1/healthz",
        "-retries",
        "100",
        objects::WRAPPED,
    ]
    .map(str::to_owned);
    before.into_iter().chain([inner.to_string()]).collect()
}

/// Asks for the phase: by annotation, or as `kubectl rollout restart` does.
async fn ask(bench: &Bench, path: &str, how: &str, phase: &str) -> Result<outrigger_environment::review::Answer> {
    let annotations = |key: &str| json!({"metadata": {"annotations": {key: format!("{MIGRATION}/{phase}")}}});
    let patch = match how {
        ANNOTATION => annotations(objects::APPLY),
        _ => json!({"spec": {"template": annotations("kubectl.kubernetes.io/restartedAt")}}),
    };
    bench.merge(path, &patch).await
}

pub async fn through_the_phases_and_back(bench: &Bench) -> Result<Lines> {
    bench.namespace(MIGRATION, &json!({})).await?;
    bench.migration(MIGRATION, json!({})).await?;
    let workloads = workloads(&original(bench)?);
    let mut before = BTreeMap::new();
    for workload in workloads.iter().chain([&Workload::api_server(MIGRATION)]) {
        let stored = bench
            .create(&objects::deployments(MIGRATION), &workload.deployment())
            .await?
            .granted()?;
        ensure!(stored.warnings.is_empty(), "{}: {:?}", workload.name, stored.warnings);
        ensure!(line(&stored.body) == workload.line(), "{}", stored.body);
        before.insert(workload.name.clone(), stored.body);
    }
    bench.change(MIGRATION, json!({"phase": "Prepare"})).await?;
    kubermatics_own_is_refused(bench).await.context("Kubermatic's")?;
    metadata_alone_changes_nothing(bench, &workloads[0]).await?;
    let prepare = to_prepare(bench, &workloads).await.context("Prepare")?;
    bench.set_prepared(MIGRATION, "False").await?;
    bench.change(MIGRATION, json!({"phase": "Migrate"})).await?;
    too_early(bench, &workloads, &prepare)
        .await
        .context("Migrate before Prepared")?;
    bench.set_prepared(MIGRATION, "True").await?;
    let external = to_external(bench, &workloads).await.context("Migrate")?;
    bench.change(MIGRATION, json!({"phase": "Prepare"})).await?;
    for workload in &workloads {
        let stored = ask(bench, &workload.path(), ANNOTATION, "back-to-prepare").await?.body;
        ensure!(
            line(&stored) == prepare[&workload.name],
            "{}: {:?}",
            workload.name,
            line(&stored)
        );
    }
    bench.change(MIGRATION, json!({"phase": "InTree"})).await?;
    for (name, before) in &before {
        let path = format!("{}/{name}", objects::deployments(MIGRATION));
        let mut stored = ask(bench, &path, ANNOTATION, "back-to-in-tree").await?.body;
        if let Some(annotations) = stored["spec"]["template"]["metadata"]["annotations"].as_object_mut() {
            annotations.remove("kubectl.kubernetes.io/restartedAt"); // ours, from asking
        }
        ensure!(
            stored["spec"] == before["spec"],
            "{name}: {}\n{}",
            stored["spec"],
            before["spec"]
        );
    }
    Ok(Lines { prepare, external })
}

/// Kubermatic's seed-controller-manager waits for the objects that it writes, so a changed one stops its reconcile.
async fn kubermatics_own_is_refused(bench: &Bench) -> Result<()> {
    let program = vec!["/http-prober-bin/http-prober".to_owned()];
    let workload = Workload::new(MIGRATION, "in-json").running(program, in_json(&original(bench)?));
    let path = objects::deployments(MIGRATION);
    let stored = bench.create(&path, &workload.deployment()).await?.granted()?;
    ensure!(line(&stored.body) == workload.line(), "{}", stored.body);
    let is_named = |text: &String| text.contains("Kubermatic writes this object");
    ensure!(stored.warnings.iter().any(is_named), "{:?}", stored.warnings);
    Ok(())
}

/// Labels, annotations that are not ours, and the same object again: nobody asked for a rollout.
async fn metadata_alone_changes_nothing(bench: &Bench, workload: &Workload) -> Result<()> {
    let path = workload.path();
    let before = bench.read(&path).await?["spec"].clone();
    let metadata = json!({"metadata": {"labels": {"touched": "yes"}, "annotations": {"touched": "yes"}}});
    let touched = bench.merge(&path, &metadata).await?;
    ensure!(touched.warnings.is_empty(), "{:?}", touched.warnings);
    let again = outrigger_environment::review::send(
        &bench.admin,
        http::Method::PUT,
        &path,
        Some(("application/json", &touched.body)),
    );
    let again = again.await?.granted()?;
    bench
        .merge(&format!("{path}/status"), &json!({"status": {"observedGeneration": 1}}))
        .await?;
    for stored in [&touched.body, &again.body, &bench.read(&path).await?] {
        ensure!(stored["spec"] == before, "{stored}");
    }
    let decision = bench
        .noted("workloads", "deployments", MIGRATION, &workload.name, "decision")
        .await?;
    ensure!(decision.as_deref() == Some("unchanged"), "{decision:?}");
    Ok(())
}

async fn to_prepare(bench: &Bench, workloads: &[Workload]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut lines = BTreeMap::new();
    for (index, workload) in workloads.iter().enumerate() {
        let how = if index % 2 == 0 { ANNOTATION } else { "restart" };
        let stored = ask(bench, &workload.path(), how, "prepare").await?;
        let now = line(&stored.body);
        ensure!(is_on(&now, "enable-leader-migration"), "{}: {now:?}", workload.name);
        ensure!(
            flag(&now, "cloud-provider") == Some("aws"),
            "{}: {now:?}",
            workload.name
        );
        ensure!(now.len() == workload.line().len() + 1, "{}: {now:?}", workload.name);
        ensure!(has_undo(&stored.body) && stored.warnings.is_empty(), "{stored:?}");
        // A second look sees nothing to do: no second rollout.
        let again = ask(bench, &workload.path(), ANNOTATION, "prepare-again").await?.body;
        ensure!(again["spec"] == stored.body["spec"], "{}: {again}", workload.name);
        lines.insert(workload.name.clone(), now);
    }
    let api_server = ask(bench, &Workload::api_server(MIGRATION).path(), ANNOTATION, "prepare")
        .await?
        .body;
    ensure!(
        line(&api_server) == Workload::api_server(MIGRATION).command,
        "{api_server}"
    );
    it_is_noted(bench, "Prepare", "--enable-leader-migration=true").await?;
    Ok(lines)
}

/// The audit log says what was changed and why.
async fn it_is_noted(bench: &Bench, phase: &str, reason: &str) -> Result<()> {
    let name = "noted";
    let new = Workload::new(MIGRATION, name).deployment();
    bench.create(&objects::deployments(MIGRATION), &new).await?.granted()?;
    for (key, wanted) in [("decision", "changed"), ("migration", MIGRATION), ("phase", phase)] {
        let noted = bench.noted("workloads", "deployments", MIGRATION, name, key).await?;
        ensure!(noted.as_deref() == Some(wanted), "{key}: {noted:?}");
    }
    let reasons = bench
        .noted("workloads", "deployments", MIGRATION, name, "reasons")
        .await?;
    ensure!(
        reasons.as_ref().is_some_and(|text| text.contains(reason)),
        "{reasons:?}"
    );
    let event = bench.last_write("deployments", MIGRATION, name).await?;
    ensure!(
        event.was_mutated_by("workloads.outrigger.dev"),
        "{:?}",
        event.annotations
    );
    Ok(())
}

async fn too_early(bench: &Bench, workloads: &[Workload], prepare: &BTreeMap<String, Vec<String>>) -> Result<()> {
    for workload in workloads {
        let stored = ask(bench, &workload.path(), ANNOTATION, "migrate-early").await?;
        ensure!(
            line(&stored.body) == prepare[&workload.name],
            "{}: {:?}",
            workload.name,
            line(&stored.body)
        );
        let warned = stored
            .warnings
            .iter()
            .any(|text| text.contains("not Prepared yet") && text.contains(MIGRATION));
        ensure!(warned, "{}: {:?}", workload.name, stored.warnings);
    }
    Ok(())
}

async fn to_external(bench: &Bench, workloads: &[Workload]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut lines = BTreeMap::new();
    for (index, workload) in workloads.iter().enumerate() {
        let how = if index % 2 == 0 { "restart" } else { ANNOTATION };
        let stored = ask(bench, &workload.path(), how, "migrate").await?;
        let now = line(&stored.body);
        ensure!(stored.warnings.is_empty(), "{:?}", stored.warnings);
        ensure!(
            flag(&now, "cloud-provider") == Some("external"),
            "{}: {now:?}",
            workload.name
        );
        for gone in ["enable-leader-migration", "cloud-config"] {
            ensure!(flag(&now, gone).is_none(), "{}: {now:?}", workload.name);
        }
        ensure!(
            sidecar(&stored.body) == json!(["--cloud-provider=aws"]),
            "{}",
            stored.body
        );
        lines.insert(workload.name.clone(), now);
    }
    let path = Workload::api_server(MIGRATION).path();
    let api_server = line(&ask(bench, &path, ANNOTATION, "migrate").await?.body);
    ensure!(
        flag(&api_server, "cloud-provider") == Some("external"),
        "{api_server:?}"
    );
    lines.insert("kube-apiserver".to_owned(), api_server);
    Ok(lines)
}

fn sidecar(deployment: &Value) -> Value {
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone()
}

/// A Deployment that is made after the operator went too far too soon.
pub async fn a_hasty_phase_gives_only_the_flags_of_prepare(bench: &Bench) -> Result<()> {
    bench.namespace("hasty", &json!({})).await?;
    bench.migration("hasty", json!({"phase": "Migrate"})).await?;
    let workload = Workload::new("hasty", "kube-controller-manager");
    let stored = bench
        .create(&objects::deployments("hasty"), &workload.deployment())
        .await?
        .granted()?;
    let now = line(&stored.body);
    ensure!(
        flag(&now, "cloud-provider") == Some("aws") && is_on(&now, "enable-leader-migration"),
        "{now:?}"
    );
    ensure!(
        stored.warnings.iter().any(|text| text.contains("not Prepared yet")),
        "{:?}",
        stored.warnings
    );
    Ok(())
}
