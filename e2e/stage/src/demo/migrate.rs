//! From the in-tree provider to our manager, step by step.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::load::{Load, LoadTarget};
use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::{CLUSTER, Progress, Stage};
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::{Component, NEW_WORK_BEGINS, Report, Rules};

/// What is left when the migration is over: the stage still stands.
pub struct Outcome {
    /// Everything, still running.
    pub stage: Stage,
    /// The timeline.
    pub report: Report,
    _load: Load,
}

const ROLL: Duration = Duration::from_secs(90);
/// How long both sides are left alone under load after each change of hands, so that an idle owner would show.
const QUIET: Duration = Duration::from_secs(8);

/// Performs the migration in `run`.
///
/// # Errors
/// When a step does not come about; what is missing is in the message.
pub async fn migrate(run: &Path, progress: &Progress) -> Result<Outcome> {
    progress.step("The stage: two real control planes on this machine");

    let mut stage = Stage::build(run, 3, &[], progress).await?;
    old_world(&mut stage, progress).await?;

    let load = start_load(&stage).await?;
    let nodes_before = stage.node_identities().await?;
    stage.snapshot().await?;

    install(&mut stage, progress).await?;
    prepare(&stage, progress).await?;
    take_over(&stage, progress).await?;
    tokio::time::sleep(QUIET).await;
    stage.snapshot().await?;

    let nodes_after = stage.node_identities().await?;
    ensure!(
        nodes_before == nodes_after,
        "labels, addresses or provider IDs of old Nodes changed:\n{nodes_before:#?}\n{nodes_after:#?}"
    );

    let writes = stage.node_writes_by("outrigger-manager").await?;
    ensure!(
        writes.is_empty(),
        "our manager wrote to Nodes that needed nothing: {writes:?}"
    );
    progress
        .say("labels, addresses and provider IDs of the old Nodes are what they were, and ours wrote to none of them");

    let unchanged = unchanged(&stage).await?;
    new_work(&mut stage, progress).await?;
    complete(&stage, progress).await?;
    stage.snapshot().await?;
    load.stop();

    let report = outrigger_timeline::analyse(&stage.record().await?, &rules(&stage, unchanged));
    Ok(Outcome {
        stage,
        report,
        _load: load,
    })
}

/// Nodes with in-tree kubelets and two Services, held by the real in-tree controllers.
async fn old_world(stage: &mut Stage, progress: &Progress) -> Result<()> {
    progress.step("The old world: kube-controller-manager 1.26 with --cloud-provider=aws");
    for index in 0..2 {
        stage.join_in_tree(index).await?;
    }

    stage.deploy_old_manager(&[]).await?;
    stage
        .wait_rolled(
            OLD_MANAGER,
            "the old kube-controller-manager runs",
            ROLL,
            progress,
            |_| true,
        )
        .await?;

    stage
        .wait_holder(Lease::K, None, Duration::from_secs(60), progress)
        .await?;
    stage.create_load_balancer_service("web", 80).await?;
    stage.create_load_balancer_service("api", 443).await?;

    stage.wait_load_balancers(&["web", "api"], 2, progress).await
}

/// Changes a Service and a Node every 2 s, so that an idle owner shows.
///
/// # Errors
/// When no client can be made.
pub async fn start_load(stage: &Stage) -> Result<Load> {
    let cluster = kubelets::config(&stage.tenant.kubeconfig(&User::admin())?).await?;
    let node = stage.account.instances[0].private_dns_name.clone();
    let target = LoadTarget {
        namespace: "default".into(),
        service: "web".into(),
        node,
    };

    Ok(Load::start(&cluster, target, Duration::from_secs(2))?)
}

/// Webhook, resource, rights, and our manager beside the old one.
async fn install(stage: &mut Stage, progress: &Progress) -> Result<()> {
    progress.step("Install: webhook, CloudProviderMigration in phase InTree, our manager");
    stage.install_management(progress).await?;
    stage.install_tenant(progress).await?;
    stage.start_webhook().await?;
    stage.create_migration().await?;
    stage.mark("phase InTree");
    stage.install_manager(1).await?;
    stage
        .wait_rolled(NEW_MANAGER, "our manager runs", ROLL, progress, |_| true)
        .await?;
    stage
        .wait_holder(Lease::C, None, Duration::from_secs(30), progress)
        .await?;
    tokio::time::sleep(QUIET).await;
    ensure!(
        stage.holder(Lease::M).is_none(),
        "somebody took the migration lease in phase InTree"
    );
    progress.say("it initializes Nodes under its own lease, and leaves the migration lease alone, although it is free");

    Ok(())
}

/// The old manager gets leader migration, through the webhook.
async fn prepare(stage: &Stage, progress: &Progress) -> Result<()> {
    progress.step("Prepare: the old manager is rolled with --enable-leader-migration");
    stage.set_phase("Prepare").await?;

    let stored = stage.apply_phase("Prepare").await?;
    progress.say(&format!(
        "the API server stored: ... {}",
        stored.iter().skip(8).cloned().collect::<Vec<_>>().join(" ")
    ));

    let guarded = |argv: &[String]| argv.iter().any(|flag| flag.starts_with("--enable-leader-migration"));
    stage
        .wait_rolled(
            OLD_MANAGER,
            "the old manager runs with leader migration",
            ROLL,
            progress,
            guarded,
        )
        .await?;

    let holder = stage
        .wait_holder(Lease::M, None, Duration::from_secs(60), progress)
        .await?;
    progress.say(&format!("the old manager holds K and M as {holder}"));
    stage
        .wait_condition("Prepared", Duration::from_secs(60), progress)
        .await?;
    tokio::time::sleep(QUIET).await;

    Ok(())
}

/// The old manager becomes external; ours takes the migration lease once it has run out.
async fn take_over(stage: &Stage, progress: &Progress) -> Result<()> {
    progress.step("Migrate: the old manager is rolled with --cloud-provider=external, ours takes over");

    let before = stage.holder(Lease::M);
    stage.set_phase("Migrate").await?;
    stage.apply_phase("Migrate").await?;
    stage.wait_handed_over(before.as_deref(), ROLL, progress).await?;

    stage
        .wait_condition("ControlPlaneMigrated", Duration::from_secs(60), progress)
        .await
}

/// Names of what our manager has no reason to write to.
async fn unchanged(stage: &Stage) -> Result<Vec<String>> {
    Ok(stage.load_balancers().await?.into_keys().collect())
}

/// Work that only begins now: a Node that joins, and a Service.
async fn new_work(stage: &mut Stage, progress: &Progress) -> Result<()> {
    progress.step("New work: a Node joins, a Service is created");
    stage.mark(NEW_WORK_BEGINS);
    stage.join_external(2).await?;

    let name = stage.account.instances[2].private_dns_name.clone();
    let provider_id = stage.account.instances[2].provider_id();
    let seen = &*stage;

    progress
        .wait(
            "the new Node joined with the taint, and is initialized",
            Duration::from_secs(60),
            async || {
                let node = seen.node(&name).await?.unwrap_or_default();
                let tainted = node["spec"]["taints"].to_string().contains("uninitialized");
                let ready = !tainted && node["spec"]["providerID"] == provider_id.as_str();

                Ok(if ready {
                    Ok(())
                } else {
                    Err(format!("providerID {}, tainted: {tainted}", node["spec"]["providerID"]))
                })
            },
        )
        .await?;

    let tainted = seen.node_was_tainted(&name).await?;
    ensure!(
        tainted,
        "Node {name} did not join with the uninitialized taint: the webhook did not act"
    );
    progress.say("it joined with the taint from the webhook");
    stage.create_load_balancer_service("new", 8080).await?;

    stage.wait_load_balancers(&["web", "api", "new"], 3, progress).await
}

async fn complete(stage: &Stage, progress: &Progress) -> Result<()> {
    progress.step("Complete");
    stage.set_phase("Complete").await?;

    let api = stage.migrations();
    let status = progress
        .wait(
            "the status counts three Nodes, one of them external",
            Duration::from_secs(40),
            async || {
                let status = api.get(CLUSTER).await?.status.unwrap_or_default();
                let counts = status.nodes.unwrap_or_default();
                let done = counts.total == 3 && counts.migrated == 1;
                Ok(if done { Ok(status) } else { Err(format!("{counts:?}")) })
            },
        )
        .await?;

    for row in &status.controllers {
        let (owner, lease) = (row.owner.map(|owner| owner.to_string()), row.lease.as_deref());
        progress.say(&format!(
            "{:32} {:26} {}",
            row.name,
            owner.unwrap_or_default(),
            lease.unwrap_or_default()
        ));
    }

    for condition in status.conditions {
        progress.say(&format!(
            "{:22} {:6} {}",
            condition.type_, condition.status, condition.message
        ));
    }

    Ok(())
}

fn rules(stage: &Stage, unchanged: Vec<String>) -> Rules {
    let mut rules = Rules::new(Component::outrigger_manager());
    rules.unchanged = unchanged.into_iter().collect();
    rules.changed = [stage.account.instances[2].id.clone()].into();
    rules
}
