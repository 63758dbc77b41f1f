//! From the in-tree provider to our manager, step by step.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::load::{Load, LoadTarget};
use crate::operator::{NEW_MANAGER, OLD_MANAGER, has_flag};
use crate::{CLUSTER, Environment, Progress};
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::{Component, NEW_WORK_BEGINS, Report, Rules};

/// The environment after the migration, still running.
pub struct Outcome {
    pub environment: Environment,
    pub report: Report,
    _load: Load,
}

pub(crate) const LOAD: Duration = Duration::from_secs(2);
pub(crate) const ROLL: Duration = Duration::from_secs(90);
/// How long both sides run under load after each handover, so that an idle owner would show.
pub(crate) const QUIET: Duration = Duration::from_secs(8);

/// How long the steps of [`migrate`] take on two cores beside other work, in order.
const STEPS: [Duration; 8] = [
    Duration::from_secs(30),
    Duration::from_secs(10),
    Duration::from_secs(15),
    Duration::from_secs(25),
    Duration::from_secs(25),
    Duration::from_secs(5),
    Duration::from_secs(5),
    Duration::from_secs(15),
];

/// The machines of the account whose Nodes join, by their in-tree kubelets, in phase Migrate, and in place of the first.
const OLD: [usize; 2] = [0, 1];
const NEW: usize = 2;
const REPLACEMENTS: [usize; 2] = [3, 4];

/// Performs the migration in `run`.
///
/// # Errors
/// When a step does not come about; what is missing is in the message.
pub async fn migrate(run: &Path, progress: &Progress) -> Result<Outcome> {
    let progress = &progress.planned(&STEPS);
    progress.step("The environment: two real control planes on this machine");

    let mut environment = Environment::build(run, 5, &[], progress).await?;
    in_tree(&mut environment, progress).await?;

    let load = start_load(&environment).await?;
    let nodes_before = environment.node_identities().await?;
    environment.snapshot().await?;

    install(&mut environment, progress).await?;
    environment.next_step("Prepare", progress).await?;
    progress.step(PREPARE);
    let applying = environment.begin_phase("Prepare", progress).await?;
    prepared(&environment, progress).await?;
    applying.ends().await?;
    environment.next_step("Migrate", progress).await?;
    progress.step(MIGRATE);
    let applying = environment.begin_phase("Migrate", progress).await?;
    taken_over(&environment, progress).await?;
    applying.ends().await?;
    tokio::time::sleep(QUIET).await;
    environment.snapshot().await?;

    let nodes_after = environment.node_identities().await?;
    ensure!(
        nodes_before == nodes_after,
        "labels, addresses or provider IDs of old Nodes changed:\n{nodes_before:#?}\n{nodes_after:#?}"
    );

    let writes = environment.node_writes_by("outrigger-manager").await?;
    ensure!(
        writes.is_empty(),
        "our manager wrote to Nodes that needed nothing: {writes:?}"
    );
    progress
        .say("labels, addresses and provider IDs of the old Nodes are what they were, and ours wrote to none of them");

    let mut rules = Rules::new(Component::outrigger_manager());
    rules.unchanged = environment.load_balancers().await?.into_keys().collect();
    rules.changed = [environment.account.instances[NEW].id.clone()].into();
    new_work(&mut environment, progress).await?;
    environment.next_step("Complete", progress).await?;
    progress.step("Complete");
    let applying = environment.begin_phase("Complete", progress).await?;
    counted(&environment, progress).await?;
    environment.snapshot().await?;
    load.stop();

    let report = outrigger_timeline::analyse(&environment.record().await?, &rules);
    replace_old_nodes(&mut environment, progress).await?;
    applying.ends().await?;
    is_over(&environment, progress).await?;
    Ok(Outcome {
        environment,
        report,
        _load: load,
    })
}

/// Nodes with in-tree kubelets and two Services, held by the real in-tree controllers.
async fn in_tree(environment: &mut Environment, progress: &Progress) -> Result<()> {
    progress.step("Before the migration: kube-controller-manager 1.26 with --cloud-provider=aws");
    for index in OLD {
        environment.join_in_tree(index).await?;
    }

    environment.deploy_old_manager(&[]).await?;
    let what = "the old kube-controller-manager runs";
    environment
        .wait_rolled(OLD_MANAGER, what, ROLL, progress, |_| true)
        .await?;

    environment
        .wait_holder(Lease::K, None, Duration::from_secs(60), progress)
        .await?;
    environment.create_load_balancer_service("web", 80).await?;
    environment.create_load_balancer_service("api", 443).await?;

    environment.wait_load_balancers(&["web", "api"], 2, progress).await
}

/// Changes a Service and a Node every 2 s, so that an idle owner shows.
///
/// # Errors
/// When no client can be made.
pub async fn start_load(environment: &Environment) -> Result<Load> {
    start_load_on(environment, "web", LOAD).await
}

/// As [`start_load`], on a Service of another name.
pub(crate) async fn start_load_on(environment: &Environment, service: &str, every: Duration) -> Result<Load> {
    let cluster = kubelets::config(&environment.tenant.kubeconfig(&User::admin())?).await?;
    let node = environment.account.instances[0].private_dns_name.clone();
    let target = LoadTarget {
        namespace: "default".into(),
        service: service.into(),
        node,
    };

    Ok(Load::start(&cluster, target, every)?)
}

/// Webhook, resource, rights, and our manager beside the old one.
pub(crate) async fn install(environment: &mut Environment, progress: &Progress) -> Result<()> {
    progress.step("Install: webhook, CloudProviderMigration in phase InTree, our manager");
    environment.install_management(progress).await?;
    environment.install_tenant(progress).await?;
    environment.start_webhook().await?;
    environment.create_migration().await?;
    environment.mark("phase InTree");
    environment.install_manager(1).await?;
    environment
        .wait_rolled(NEW_MANAGER, "our manager runs", ROLL, progress, |_| true)
        .await?;
    environment
        .wait_holder(Lease::C, None, Duration::from_secs(30), progress)
        .await?;
    tokio::time::sleep(QUIET).await;
    ensure!(
        environment.holder(Lease::M).is_none(),
        "somebody took the migration lease in phase InTree"
    );
    progress.say("it initializes Nodes under its own lease, and leaves the migration lease alone, although it is free");

    Ok(())
}

const PREPARE: &str = "Prepare: the old manager is rolled with --enable-leader-migration";
const MIGRATE: &str = "Migrate: the old manager is rolled with --cloud-provider=external, ours takes over";

/// Phase Prepare, with the work of a person.
pub(crate) async fn prepare(environment: &Environment, progress: &Progress) -> Result<()> {
    progress.step(PREPARE);
    environment.set_phase("Prepare").await?;
    prepared(environment, progress).await
}

/// The old manager gets leader migration, through the webhook.
async fn prepared(environment: &Environment, progress: &Progress) -> Result<()> {
    let stored = environment.apply_phase("Prepare").await?;
    let last = stored.get(8..).unwrap_or_default().join(" ");
    progress.say(&format!("the API server stored: ... {last}"));

    let guarded = has_flag("--enable-leader-migration");
    let what = "the old manager runs with leader migration";
    environment
        .wait_rolled(OLD_MANAGER, what, ROLL, progress, guarded)
        .await?;

    let holder = environment
        .wait_holder(Lease::M, None, Duration::from_secs(60), progress)
        .await?;
    progress.say(&format!("the old manager holds K and M as {holder}"));
    environment
        .wait_condition("Ready", Duration::from_secs(60), progress)
        .await?;
    tokio::time::sleep(QUIET).await;

    Ok(())
}

/// Phase Migrate, with the work of a person.
pub(crate) async fn take_over(environment: &Environment, progress: &Progress) -> Result<()> {
    progress.step(MIGRATE);
    environment.set_phase("Migrate").await?;
    taken_over(environment, progress).await
}

/// The old manager becomes external; ours takes the migration lease once it has run out.
async fn taken_over(environment: &Environment, progress: &Progress) -> Result<()> {
    let before = environment.holder(Lease::M);
    environment.apply_phase("Migrate").await?;
    environment.wait_handed_over(before.as_deref(), ROLL, progress).await?;

    environment
        .wait_condition("Ready", Duration::from_secs(60), progress)
        .await
}

/// Work that only begins now: a Node that joins, and a Service.
async fn new_work(environment: &mut Environment, progress: &Progress) -> Result<()> {
    progress.step("New work: a Node joins, a Service is created");
    environment.mark(NEW_WORK_BEGINS);
    environment.join_external(NEW).await?;

    let environment = &*environment;
    initialized(environment, NEW, progress).await?;
    let name = &environment.account.instances[NEW].private_dns_name;
    ensure!(
        environment.node_was_tainted(name).await?,
        "Node {name} did not join with the uninitialized taint: the webhook did not act"
    );
    progress.say("it joined with the taint from the webhook");
    environment.create_load_balancer_service("new", 8080).await?;
    environment.wait_load_balancers(&SERVICES, 3, progress).await
}

const SERVICES: [&str; 3] = ["web", "api", "new"];

/// Waits until the Node of a machine has its provider ID and no taint.
async fn initialized(environment: &Environment, index: usize, progress: &Progress) -> Result<()> {
    let instance = &environment.account.instances[index];
    let (name, provider_id) = (&instance.private_dns_name, instance.provider_id());
    let initialized = async || {
        let node = environment.node(name).await?.unwrap_or_default();
        let tainted = node["spec"]["taints"].to_string().contains("uninitialized");
        let found = &node["spec"]["providerID"];
        let ready = !tainted && *found == provider_id.as_str();
        Ok(if ready {
            Ok(())
        } else {
            Err(format!("providerID {found}, tainted: {tainted}"))
        })
    };
    let what = format!("Node {name} joined with the taint, and is initialized");
    progress.wait(&what, Duration::from_secs(60), initialized).await
}

async fn counted(environment: &Environment, progress: &Progress) -> Result<()> {
    let counted = async || {
        let object = environment.migrations().get(CLUSTER).await?;
        let (generation, status) = (object.metadata.generation, object.status.unwrap_or_default());
        let counts = status.nodes.unwrap_or_default();
        let older = status.conditions.iter().find(|c| c.observed_generation != generation);
        let done = counts.total == 3 && counts.migrated == 1 && older.is_none();
        let older = older.map(|condition| &condition.type_);
        Ok(if done {
            Ok(())
        } else {
            Err(format!("{counts:?}, older: {older:?}"))
        })
    };
    let what = "the status is about Complete, and counts three Nodes, one of them external";
    progress.wait(what, Duration::from_secs(40), counted).await
}

/// The Nodes with in-tree kubelets go with their machines, and new ones join.
async fn replace_old_nodes(environment: &mut Environment, progress: &Progress) -> Result<()> {
    progress.step("Replace the Nodes with in-tree kubelets");
    for index in REPLACEMENTS {
        environment.join_external(index).await?;
        initialized(environment, index, progress).await?;
    }

    let environment = &*environment;
    for index in OLD {
        environment.terminate(index).await?;
    }
    let gone = async || {
        let left = environment.node_identities().await?.len();
        Ok(if left == 3 {
            Ok(())
        } else {
            Err(format!("{left} Nodes"))
        })
    };
    let what = "the Nodes of the terminated machines are gone: the node lifecycle controller deleted them";
    progress.wait(what, Duration::from_secs(60), gone).await?;

    environment.wait_load_balancers(&SERVICES, 3, progress).await
}

/// Every condition is as at the end of a migration.
async fn is_over(environment: &Environment, progress: &Progress) -> Result<()> {
    for condition in ["Completed", "Ready", "SpecValid", "NodesMigrated"] {
        environment
            .wait_condition(condition, Duration::from_secs(90), progress)
            .await?;
    }
    let status = environment.migrations().get(CLUSTER).await?.status.unwrap_or_default();
    for row in &status.controllers {
        let owner = row.owner.map(|owner| owner.to_string()).unwrap_or_default();
        let lease = row.lease.as_deref().unwrap_or_default();
        progress.say(&format!("{:32} {owner:26} {lease}", row.name));
    }

    for one in status.conditions {
        progress.say(&format!("{:22} {:6} {}", one.type_, one.status, one.message));
    }

    progress.line(&format!(
        "\n$ outrigger status {CLUSTER}\n{}",
        environment.status().await?
    ));
    progress.line(&format!(
        "\n$ outrigger verify {CLUSTER}\n{}",
        environment.verify(&[]).await?
    ));

    Ok(())
}
