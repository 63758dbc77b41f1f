//! Whole migrations on real components, and the proof that the proof can fail.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

use std::time::Duration;

use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_stage::demo::{self, Outcome};
use outrigger_stage::load::Load;
use outrigger_stage::operator::{NEW_MANAGER, OLD_MANAGER};
use outrigger_stage::{Progress, Stage};
use outrigger_timeline::{Component, Controller, Report, Rules};

const ROLL: Duration = Duration::from_secs(120);
/// After a kill both leases run out together, 15 s after the last renewal that was seen; the rest is a busy machine. Were M
/// watched only once C is held, it would take 30 s.
const KILLED: Duration = Duration::from_secs(22);

fn judge(report: &Report) {
    println!("{}", report.table());
    assert!(report.verdict().passed(), "{:#?}", report.verdict().reasons);
}

/// It keeps the logs of a run that failed.
fn run_folder() -> RunFolder {
    RunFolder::new("outrigger-migration-").expect("a folder for the run")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_loses_nothing_and_survives_the_death_of_its_manager() {
    let run = run_folder();
    let outcome = demo::migrate(run.path(), &Progress::loud())
        .await
        .expect("the migration comes about");
    judge(&outcome.report);
    assert_lifecycle_and_service_were_seen(&outcome.report);
    a_killed_manager_takes_the_migration_lease_again(&outcome).await;
    a_standby_takes_over_from_a_killed_leader(&outcome).await;
    a_node_whose_instance_is_terminated_goes(&outcome).await;
    outcome.stage.end(Duration::from_secs(10)).await;
}

fn assert_lifecycle_and_service_were_seen(report: &Report) {
    for controller in [Controller::Service, Controller::NodeLifecycle] {
        let owners = report
            .controller(controller)
            .map_or(0, |timeline| timeline.intervals.len());
        assert_eq!(owners, 3, "{controller}: the old manager twice, then ours");
    }
}

/// The latch: after the old manager went external nothing can be observed that proves anything, and yet the lease is
/// taken again.
async fn a_killed_manager_takes_the_migration_lease_again(outcome: &Outcome) {
    let stage = &outcome.stage;
    let (before, writes) = (stage.holder(Lease::M), stage.proxy.mark());
    let pod = manager_pod(stage).await;
    stage.runner.kill(&pod).await.expect("killed");
    let progress = Progress::loud();
    let after = stage
        .wait_holder(Lease::M, before.as_deref(), KILLED, &progress)
        .await
        .expect("M is taken again");
    assert_eq!(
        stage.holder(Lease::C).as_deref(),
        Some(after.as_str()),
        "one identity holds both leases"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_no_aws_writes(stage, writes);
}

async fn a_standby_takes_over_from_a_killed_leader(outcome: &Outcome) {
    let stage = &outcome.stage;
    let progress = Progress::loud();
    stage.install_manager(2).await.expect("two replicas");
    progress
        .wait("two managers run", ROLL, async || {
            let running = stage
                .runner
                .spans()
                .iter()
                .filter(|span| span.component == NEW_MANAGER && span.ended.is_none())
                .count();
            Ok(if running == 2 {
                Ok(())
            } else {
                Err(format!("{running} run"))
            })
        })
        .await
        .expect("two managers");
    let before = stage
        .wait_holder(Lease::M, None, Duration::from_secs(60), &progress)
        .await
        .expect("one holds M");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = stage.holder(Lease::M).unwrap_or(before);
    let writes = stage.proxy.mark();
    let leader = leading_pod(stage, &before).await;
    stage.runner.kill(&leader).await.expect("killed");
    stage
        .wait_holder(Lease::M, Some(&before), KILLED, &progress)
        .await
        .expect("the other takes M");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_no_aws_writes(stage, writes);
}

/// The node lifecycle controller, which moved with the lease.
async fn a_node_whose_instance_is_terminated_goes(outcome: &Outcome) {
    let stage = &outcome.stage;
    let instance = &stage.account.instances[2];
    let name = instance.private_dns_name.clone();
    stage
        .account
        .terminate(&stage.moto, &[&instance.id])
        .await
        .expect("terminated");
    stage
        .kubelets
        .iter()
        .filter(|kubelet| kubelet.name() == name)
        .for_each(Kubelet::stop);
    stage.report_not_ready(&name).await.expect("NotReady");
    Progress::loud()
        .wait(
            "the Node of the terminated instance is gone",
            Duration::from_secs(60),
            async || {
                Ok(if stage.node(&name).await?.is_none() {
                    Ok(())
                } else {
                    Err("it is still there".to_owned())
                })
            },
        )
        .await
        .expect("gone");
    assert_eq!(
        stage.node_identities().await.expect("Nodes").len(),
        2,
        "the others stay"
    );
}

fn assert_no_aws_writes(stage: &Stage, since: u64) {
    let writes: Vec<_> = stage
        .proxy
        .calls_since(since)
        .into_iter()
        .filter(|call| call.is_write())
        .collect();
    assert!(writes.is_empty(), "a change of leaders wrote to AWS: {writes:#?}");
}

async fn manager_pod(stage: &Stage) -> String {
    stage
        .wait_rolled(NEW_MANAGER, "our manager runs", ROLL, &Progress::quiet(), |_| true)
        .await
        .expect("one Pod")
}

/// The Pod whose process wrote the identity into its log.
async fn leading_pod(stage: &Stage, identity: &str) -> String {
    let running = stage
        .runner
        .spans()
        .into_iter()
        .filter(|span| span.component == NEW_MANAGER && span.ended.is_none());
    for span in running {
        let log = tokio::fs::read_to_string(stage.run.join("pods").join(format!("{}.log", span.process))).await;
        if log.expect("the log of a running process").contains(identity) {
            return span.pod;
        }
    }
    panic!("no running manager is {identity}")
}

/// Two Nodes and one Service, held by an old manager without leader migration, under load.
async fn small_old_world(run: &RunFolder, progress: &Progress) -> (Stage, Load) {
    let mut stage = Stage::build(run.path(), 2, &[], progress).await.expect("the stage");
    for index in 0..2 {
        stage.join_in_tree(index).await.expect("a Node");
    }
    stage.deploy_old_manager(&[]).await.expect("the old manager");
    stage
        .wait_rolled(OLD_MANAGER, "the old manager runs", ROLL, progress, |_| true)
        .await
        .expect("rolled");
    stage.create_load_balancer_service("web", 80).await.expect("a Service");
    stage
        .wait_load_balancers(&["web"], 2, progress)
        .await
        .expect("a load balancer");
    let load = demo::start_load(&stage).await.expect("load");
    stage.snapshot().await.expect("a snapshot");
    (stage, load)
}

/// What must never happen, done on purpose: our manager without `--migration`, beside an old manager without leader
/// migration. If this were green, the proof would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_guards_the_timeline_goes_red() {
    let run = run_folder();
    let progress = Progress::loud();
    let (stage, load) = small_old_world(&run, &progress).await;
    stage.install_tenant(&progress).await.expect("rights");

    let careless: Vec<String> = stage
        .manager_arguments()
        .expect("arguments")
        .into_iter()
        .filter(|argument| !argument.starts_with("--migration"))
        .chain(["--secure-port=0".to_owned()])
        .collect();
    stage.create_manager_account().await.expect("an account");
    stage
        .replace_manager("outrigger-manager:dev", careless)
        .await
        .expect("our manager, careless");
    stage
        .wait_holder(Lease::C, None, Duration::from_secs(60), &progress)
        .await
        .expect("it leads");
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage.snapshot().await.expect("a snapshot");
    load.stop();

    let report = outrigger_timeline::analyse(
        &stage.record().await.expect("the record"),
        &Rules::new(Component::outrigger_manager()),
    );
    println!("{}", report.table());
    let overlap = report
        .controller(Controller::Service)
        .map(outrigger_timeline::ControllerTimeline::overlap)
        .unwrap_or_default();
    assert!(
        overlap > Duration::from_secs(2),
        "both reconciled the same Service, and the timeline must show it: {overlap:?}"
    );
    assert!(!report.verdict().passed());
    stage.end(Duration::from_secs(10)).await;
}

/// The order that a guide could get wrong: our manager is there before the old one has leader migration. The demo has it
/// in that order, too; here the operator jumps straight to Migrate, and the evidence holds the manager back.
#[tokio::test(flavor = "multi_thread")]
async fn a_hasty_operator_cannot_make_two_owners() {
    let run = run_folder();
    let progress = Progress::loud();
    let (mut stage, load) = small_old_world(&run, &progress).await;
    stage.install_management(&progress).await.expect("installed");
    stage.install_tenant(&progress).await.expect("installed");
    stage.start_webhook().await.expect("the webhook");
    stage.create_migration().await.expect("the migration");
    stage.install_manager(1).await.expect("our manager");
    stage
        .wait_holder(Lease::C, None, Duration::from_secs(60), &progress)
        .await
        .expect("it leads");

    // Two flips within a second, and not one Pod rolled.
    stage.set_phase("Prepare").await.expect("Prepare");
    stage.set_phase("Migrate").await.expect("Migrate");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(
        stage.holder(Lease::M),
        None,
        "nobody has leader migration, so nobody may hold M"
    );
    let stored = stage.apply_phase("Migrate").await.expect("applied");
    assert!(
        stored.iter().any(|flag| flag.starts_with("--enable-leader-migration")),
        "the Prepare row comes first: {stored:?}"
    );
    assert!(stored.iter().any(|flag| flag == "--cloud-provider=aws"), "{stored:?}");

    // The same roll-out again, now that the evidence is there, completes the move.
    stage
        .wait_condition("Prepared", ROLL, &progress)
        .await
        .expect("prepared");
    let before = stage.holder(Lease::M);
    stage.apply_phase("Migrate-again").await.expect("applied again");
    let external = |argv: &[String]| argv.iter().any(|flag| flag == "--cloud-provider=external");
    stage
        .wait_rolled(OLD_MANAGER, "the old manager is external", ROLL, &progress, external)
        .await
        .expect("rolled");
    stage
        .wait_holder(Lease::M, before.as_deref(), Duration::from_secs(60), &progress)
        .await
        .expect("ours takes M");
    tokio::time::sleep(Duration::from_secs(8)).await;
    stage.snapshot().await.expect("a snapshot");
    load.stop();
    let mut rules = Rules::new(Component::outrigger_manager());
    rules.unchanged = stage
        .load_balancers()
        .await
        .expect("load balancers")
        .into_keys()
        .collect();
    judge(&outrigger_timeline::analyse(
        &stage.record().await.expect("the record"),
        &rules,
    ));
    stage.end(Duration::from_secs(10)).await;
}

/// What an operator gets today: with the incumbent's default configuration both managers reconcile the same Service, and
/// with a file that names its own controllers they do not.
#[tokio::test(flavor = "multi_thread")]
async fn the_incumbent_overlaps_with_its_default_configuration_and_not_with_its_own_names() {
    for (own_names, overlaps) in [(false, true), (true, false)] {
        let run = run_folder();
        let report = demo::incumbent(run.path(), own_names, &Progress::loud())
            .await
            .expect("both managers run");
        println!("{}", report.table());
        let overlap = report
            .controller(Controller::Service)
            .map(outrigger_timeline::ControllerTimeline::overlap);
        let overlap = overlap.unwrap_or_default();
        assert_eq!(
            overlap > Duration::from_secs(2),
            overlaps,
            "own names: {own_names}, overlap {overlap:?}"
        );
    }
}
