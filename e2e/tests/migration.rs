//! Whole migrations on real components, and the proof that the proof can fail.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::demo::{self, Outcome};
use outrigger_environment::load::Load;
use outrigger_environment::operator::{NEW_MANAGER, OLD_MANAGER};
use outrigger_environment::{CLUSTER, Environment, Progress};
use outrigger_shared::controller::Party;
use outrigger_shared::migration::{CloudProviderMigration, HistoryEntry, Phase, condition};
use outrigger_timeline::{Component, Controller, Limits, Report, Rules};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const ROLL: Duration = Duration::from_secs(120);
/// Longer than any limit, so that a gap that is too long is measured.
const TAKEN: Duration = Duration::from_secs(60);
/// From the start of a new process, a debug build on a busy machine, to its first read of the leases.
const START: Duration = Duration::from_secs(1);
/// Both managers are seen to work within this, at the latest.
const SEEN: Duration = Duration::from_secs(60);

/// The machine does other work at the same time. `make prove` checks the limits themselves.
fn limits() -> Limits {
    Limits::default().beside_other_work()
}

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
    let mut outcome = demo::migrate(run.path(), &Progress::loud())
        .await
        .expect("the migration comes about");
    outcome.report = outcome.report.within(limits());
    judge(&outcome.report);
    assert_lifecycle_and_service_were_seen(&outcome.report);
    the_status_shows_the_whole_migration(&outcome.environment).await;
    the_tool_finds_no_error(&outcome.environment).await;
    the_tool_measures_what_the_record_shows(&outcome).await;
    a_killed_manager_takes_the_migration_lease_again(&outcome).await;
    a_standby_takes_over_from_a_killed_leader(&outcome).await;
    the_history_goes_on_after_a_restart(&outcome.environment).await;
    a_node_whose_instance_is_terminated_goes(&outcome).await;
    outcome.environment.end(Duration::from_secs(10)).await;
}

fn assert_lifecycle_and_service_were_seen(report: &Report) {
    for controller in [Controller::Service, Controller::NodeLifecycle] {
        let owners = report
            .controller(controller)
            .map_or(0, |timeline| timeline.intervals.len());
        assert_eq!(owners, 3, "{controller}: the old manager twice, then ours");
    }
}

/// The history, the Events and the metrics, without any record of the test's own.
async fn the_status_shows_the_whole_migration(environment: &Environment) {
    let object = environment.migrations().get(CLUSTER).await.expect("the migration");
    let status = object.status.expect("a status");
    let history = &status.history;
    let mut phases: Vec<Phase> = history.iter().map(|entry| entry.phase).collect();
    phases.dedup();
    assert_eq!(phases, Phase::ALL, "{history:#?}");
    let mut owners: Vec<Party> = history.iter().filter_map(|entry| entry.owner).collect();
    owners.dedup();
    assert_eq!(
        owners,
        [Party::KubeControllerManager, Party::CloudControllerManager],
        "{history:#?}"
    );
    assert!(history.is_sorted_by_key(|entry| entry.time.0), "{history:#?}");
    assert!(history.iter().all(|entry| !entry.alarm), "{history:#?}");
    let last = history.last().expect("an entry");
    assert_eq!(last.holder, environment.holder(Lease::M), "{history:#?}");

    let applied = status.conditions.iter().find(|c| c.type_ == condition::OBJECTS_APPLIED);
    let message = &applied.expect("the webhook's condition").message;
    assert!(message.contains("the form of Complete"), "{message}");

    let mut expected = ["PhaseFollowed"; 4].to_vec();
    expected.extend(["EvidenceLatched", "MigrationLeaseAcquired"]);
    let events = migration_events(environment).await;
    let mut reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    reasons.sort_unstable();
    expected.sort_unstable();
    assert_eq!(reasons, expected, "{events:#?}");

    let metrics = manager_metrics(environment).await;
    for series in [
        "outrigger_migration_info{name=\"prod\",phase=\"Complete\"} 1",
        "outrigger_migration_condition{name=\"prod\",type=\"ControlPlaneMigrated\",status=\"True\"} 1",
        "outrigger_controller_owner{controller=\"service-lb-controller\",owner=\"cloud-controller-manager\"} 1",
        "outrigger_migration_unreadable{name=\"prod\",source=\"kube-controller-managers\"} 0",
        "outrigger_migration_alarm{name=\"prod\"} 0",
    ] {
        assert!(
            metrics.lines().any(|line| line == series),
            "{series} is missing in\n{metrics}"
        );
    }
}

/// In both clusters. The tenant's control plane is checked where it runs.
async fn the_tool_finds_no_error(environment: &Environment) {
    let [management, tenant] = environment.checks().await.expect("no error");
    println!("{management}{tenant}");
    let of_tenant = management.lines().find(|line| line.starts_with("tenant prod"));
    assert!(of_tenant.is_some_and(|line| line.ends_with("√ 8 ok")), "{management}");
    assert!(tenant.contains("3 workers"), "{tenant}");
    let status = environment.status().await.expect("the status");
    assert!(status.contains("the migration is complete"), "{status}");
}

/// The tool has only the status. The record has each call and each process.
async fn the_tool_measures_what_the_record_shows(outcome: &Outcome) {
    let json = outcome.environment.verify(&["-o", "json"]).await.expect("evidence");
    let evidence: Value = serde_json::from_str(&json).expect("JSON");
    println!("{evidence:#}");
    let figures = &evidence["figures"];
    assert_eq!(
        (&figures[0]["name"], &figures[0]["answer"]),
        (&json!("one owner"), &json!("proven"))
    );

    let hand_overs = evidence["handOvers"].as_array().expect("hand-overs");
    let [switch] = hand_overs.as_slice() else {
        panic!("{hand_overs:?}");
    };
    assert_eq!(
        (&switch["phase"], &switch["to"]),
        (&json!("Migrate"), &json!("cloud-controller-manager"))
    );
    let (seen, recorded) = (switch["milliseconds"].as_u64(), outcome.report.figures().gap_ms);
    let difference = seen.expect("a time").abs_diff(recorded.expect("a gap"));
    assert!(difference < 2_000, "the tool: {seen:?} ms, the record: {recorded:?} ms");
    let answer = if seen <= Some(20_000) { "proven" } else { "refuted" };
    assert_eq!(
        figures[1]["answer"], answer,
        "the machine does other work at the same time"
    );
}

async fn migration_events(environment: &Environment) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(environment.management_admin.clone(), "default");
    let all = ListParams::default().fields("involvedObject.kind=CloudProviderMigration");
    events.list(&all).await.expect("Events").items
}

async fn manager_metrics(environment: &Environment) -> String {
    let pod = manager_pod(environment).await;
    let argv = environment.runner.argv(&pod).concat();
    let port = argv.iter().find_map(|argument| argument.strip_prefix("--secure-port="));
    let url = format!("https://127.0.0.1:{}", port.expect("a port"));
    let mut config = kube::Config::new(url.parse().expect("a URL"));
    config.accept_invalid_certs = true; // the manager has signed its own
    let client = kube::Client::try_from(config).expect("a client");
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    client.request_text(request).await.expect("metrics")
}

async fn the_history_goes_on_after_a_restart(environment: &Environment) {
    let history = Progress::loud()
        .wait("the history has the new holder", ROLL, async || {
            let status = environment.migrations().get(CLUSTER).await?.status.unwrap_or_default();
            let holder = environment.holder(Lease::M);
            let newest = status.history.last().and_then(|entry| entry.holder.clone());
            Ok(if newest == holder {
                Ok(status.history)
            } else {
                Err(format!("{newest:?} instead of {holder:?}"))
            })
        })
        .await
        .expect("the history");

    let mut phases: Vec<Phase> = history.iter().map(|entry| entry.phase).collect();
    phases.dedup();
    assert_eq!(phases, Phase::ALL, "{history:#?}");
    let repeated = history.windows(2).find(|pair| {
        let of = |entry: &HistoryEntry| (entry.phase, entry.holder.clone(), entry.owner, entry.alarm);
        of(&pair[0]) == of(&pair[1])
    });
    assert!(repeated.is_none(), "{history:#?}");
    let events = migration_events(environment).await;
    let of_phases = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("PhaseFollowed"));
    assert_eq!(of_phases.count(), 4, "a restart repeats none: {events:#?}");
}

/// The latch: once the old manager is external, no evidence can be observed any more, and M is still taken again.
async fn a_killed_manager_takes_the_migration_lease_again(outcome: &Outcome) {
    let environment = &outcome.environment;
    let (before, main) = (environment.holder(Lease::M), environment.holder(Lease::C));
    let writes = environment.proxy.mark();
    let pod = manager_pod(environment).await;
    environment.runner.kill(&pod).await.expect("killed");
    let after = next_holder(environment, Lease::M, before.as_deref()).await;

    // A new process observes both leases from its start on, and waits for both at the same time.
    let started = managers(environment).last().expect("a manager").started;
    assert_gap(environment, "restart", started + START);
    // Either of them can be acquired first.
    let main = next_holder(environment, Lease::C, main.as_deref()).await;
    assert_eq!(main, after, "one identity holds both leases");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_no_aws_writes(environment, writes);
}

async fn a_standby_takes_over_from_a_killed_leader(outcome: &Outcome) {
    let environment = &outcome.environment;
    environment.install_manager(2).await.expect("two replicas");
    Progress::loud()
        .wait("two managers run", ROLL, async || {
            let running = managers(environment).iter().filter(|span| span.ended.is_none()).count();
            Ok(if running == 2 {
                Ok(())
            } else {
                Err(format!("{running} run"))
            })
        })
        .await
        .expect("two managers");
    let before = next_holder(environment, Lease::M, None).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = environment.holder(Lease::M).unwrap_or(before);
    let writes = environment.proxy.mark();
    let leader = leading_pod(environment, &before).await;
    environment.runner.kill(&leader).await.expect("killed");
    next_holder(environment, Lease::M, Some(&before)).await;

    let ended = managers(environment).iter().filter_map(|span| span.ended).max();
    assert_gap(environment, "standby", ended.expect("the leader ended"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_no_aws_writes(environment, writes);
}

/// Every process of our manager up to now.
fn managers(environment: &Environment) -> Vec<ProcessSpan> {
    let mut spans = environment.runner.spans();
    spans.retain(|span| span.component == NEW_MANAGER);
    spans.sort_by_key(|span| span.started);
    spans
}

async fn next_holder(environment: &Environment, lease: Lease, before: Option<&str>) -> String {
    let taken = environment.wait_holder(lease, before, TAKEN, &Progress::loud()).await;
    taken.expect("a new holder")
}

/// Without a release M is taken as soon as it has run out. Both times are recorded by the processes themselves, so that
/// this test's own delay does not count.
fn assert_gap(environment: &Environment, what: &str, from: Timestamp) {
    let acquired = environment.leases.latest(Lease::M).and_then(|change| change.acquired);
    let gap = from.duration_until(acquired.expect("an acquireTime")).unsigned_abs();
    let limit = limits().new_to_new_killed;
    println!("{what}: M is taken after {gap:.3?}");
    assert!(gap <= limit, "{what}: M is taken after {gap:?}, the limit is {limit:?}");
}

/// The node lifecycle controller, which moved with the lease.
async fn a_node_whose_instance_is_terminated_goes(outcome: &Outcome) {
    let environment = &outcome.environment;
    let name = environment.account.instances[2].private_dns_name.clone();
    environment.terminate(2).await.expect("terminated");
    Progress::loud()
        .wait(
            "the Node of the terminated instance is gone",
            Duration::from_secs(60),
            async || {
                Ok(if environment.node(&name).await?.is_none() {
                    Ok(())
                } else {
                    Err("it is still there".to_owned())
                })
            },
        )
        .await
        .expect("gone");
    assert_eq!(
        environment.node_identities().await.expect("Nodes").len(),
        2,
        "the others stay"
    );
}

fn assert_no_aws_writes(environment: &Environment, since: u64) {
    let writes: Vec<_> = environment
        .proxy
        .calls_since(since)
        .into_iter()
        .filter(|call| call.is_write())
        .collect();
    assert!(writes.is_empty(), "a change of leaders wrote to AWS: {writes:#?}");
}

async fn manager_pod(environment: &Environment) -> String {
    environment
        .wait_rolled(NEW_MANAGER, "our manager runs", ROLL, &Progress::quiet(), |_| true)
        .await
        .expect("one Pod")
}

/// The Pod whose process wrote the identity into its log.
async fn leading_pod(environment: &Environment, identity: &str) -> String {
    for span in managers(environment).into_iter().filter(|span| span.ended.is_none()) {
        let log = tokio::fs::read_to_string(environment.run.join("pods").join(format!("{}.log", span.process))).await;
        if log.expect("the log of a running process").contains(identity) {
            return span.pod;
        }
    }
    panic!("no running manager is {identity}")
}

/// Two Nodes and one Service, held by an old manager without leader migration, under load.
async fn small_environment(run: &RunFolder, progress: &Progress) -> (Environment, Load) {
    let mut environment = Environment::build(run.path(), 2, &[], progress)
        .await
        .expect("the environment");
    for index in 0..2 {
        environment.join_in_tree(index).await.expect("a Node");
    }
    environment.deploy_old_manager(&[]).await.expect("the old manager");
    environment
        .wait_rolled(OLD_MANAGER, "the old manager runs", ROLL, progress, |_| true)
        .await
        .expect("rolled");
    environment
        .create_load_balancer_service("web", 80)
        .await
        .expect("a Service");
    environment
        .wait_load_balancers(&["web"], 2, progress)
        .await
        .expect("a load balancer");
    let load = demo::start_load(&environment).await.expect("load");
    environment.snapshot().await.expect("a snapshot");
    (environment, load)
}

/// The failure that must never happen, on purpose: our manager without `--migration`, beside an old manager without
/// leader migration. If this were green, the proof would prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_guards_the_timeline_goes_red() {
    let run = run_folder();
    let progress = Progress::loud();
    let (environment, load) = small_environment(&run, &progress).await;
    environment.install_tenant(&progress).await.expect("rights");

    let careless: Vec<String> = environment
        .manager_arguments()
        .expect("arguments")
        .into_iter()
        .filter(|argument| !argument.starts_with("--migration"))
        .chain(["--secure-port=0".to_owned()])
        .collect();
    environment.create_manager_account().await.expect("an account");
    environment
        .replace_manager("outrigger-manager:dev", careless)
        .await
        .expect("our manager, careless");
    environment
        .wait_holder(Lease::C, None, Duration::from_secs(60), &progress)
        .await
        .expect("it leads");
    let report = async || {
        let record = environment.record().await.expect("the record");
        outrigger_timeline::analyse(&record, &Rules::new(Component::outrigger_manager()))
    };
    let overlaps = async || {
        let overlap = overlap(&report().await);
        Ok(if overlap > Duration::from_secs(2) {
            Ok(())
        } else {
            Err(format!("an overlap of {overlap:?}"))
        })
    };
    progress
        .wait(
            "both reconcile the same Service, and the timeline shows it",
            SEEN,
            overlaps,
        )
        .await
        .expect("an overlap");
    environment.snapshot().await.expect("a snapshot");
    load.stop();
    let report = report().await;
    println!("{}", report.table());
    assert!(!report.verdict().passed());
    environment.end(Duration::from_secs(10)).await;
}

/// The order that a guide could get wrong: our manager is there before the old one has leader migration. The demo has
/// it in that order, too; here the operator jumps straight to Migrate, and the evidence holds the manager back.
#[tokio::test(flavor = "multi_thread")]
async fn a_hasty_operator_cannot_make_two_owners() {
    let run = run_folder();
    let progress = Progress::loud();
    let (mut environment, load) = small_environment(&run, &progress).await;
    environment.install_management(&progress).await.expect("installed");
    environment.install_tenant(&progress).await.expect("installed");
    environment.start_webhook().await.expect("the webhook");
    environment.create_migration().await.expect("the migration");
    environment.install_manager(1).await.expect("our manager");
    environment
        .wait_holder(Lease::C, None, Duration::from_secs(60), &progress)
        .await
        .expect("it leads");

    two_phases_at_once(&environment, &progress).await;
    assert_eq!(
        environment.holder(Lease::M),
        None,
        "nobody has leader migration, so nobody may hold M"
    );
    let stored = environment.apply_phase("Migrate").await.expect("applied");
    assert!(
        stored.iter().any(|flag| flag.starts_with("--enable-leader-migration")),
        "the Prepare row comes first: {stored:?}"
    );
    assert!(stored.iter().any(|flag| flag == "--cloud-provider=aws"), "{stored:?}");

    // The same roll-out again, now that the evidence is there, completes the move.
    environment
        .wait_condition("Prepared", ROLL, &progress)
        .await
        .expect("prepared");
    let before = environment.holder(Lease::M);
    environment.apply_phase("Migrate-again").await.expect("applied again");
    let external = |argv: &[String]| argv.iter().any(|flag| flag == "--cloud-provider=external");
    environment
        .wait_rolled(OLD_MANAGER, "the old manager is external", ROLL, &progress, external)
        .await
        .expect("rolled");
    // It may take M before: a manager with leader migration that has not acquired M yet acts on nothing.
    if !before.as_deref().is_some_and(|holder| holder.starts_with(NEW_MANAGER)) {
        environment
            .wait_holder(Lease::M, before.as_deref(), Duration::from_secs(60), &progress)
            .await
            .expect("ours takes M");
    }
    environment
        .wait_condition("Ready", SEEN, &progress)
        .await
        .expect("Migrate");
    assert_eq!(
        kstatus(&environment.migrations().get(CLUSTER).await.expect("the object")).await,
        "Current"
    );
    tokio::time::sleep(Duration::from_secs(8)).await;
    environment.snapshot().await.expect("a snapshot");
    load.stop();
    let mut rules = Rules::new(Component::outrigger_manager());
    rules.limits = limits();
    rules.unchanged = environment
        .load_balancers()
        .await
        .expect("load balancers")
        .into_keys()
        .collect();
    judge(&outrigger_timeline::analyse(
        &environment.record().await.expect("the record"),
        &rules,
    ));
    environment.end(Duration::from_secs(10)).await;
}

/// Two changes of the phase within a second, and not one Pod rolled: Flux' library says that a person has to act.
async fn two_phases_at_once(environment: &Environment, progress: &Progress) {
    environment
        .wait_condition("Ready", SEEN, progress)
        .await
        .expect("InTree");
    assert_eq!(
        kstatus(&environment.migrations().get(CLUSTER).await.expect("the object")).await,
        "Current"
    );

    environment.set_phase("Prepare").await.expect("Prepare");
    let patch = Patch::Merge(json!({"spec": {"phase": "Migrate"}}));
    let patched = environment
        .migrations()
        .patch(CLUSTER, &PatchParams::default(), &patch)
        .await;
    assert_eq!(kstatus(&patched.expect("Migrate")).await, "InProgress");
    environment
        .wait_condition("Stalled", SEEN, progress)
        .await
        .expect("a person has to roll it");
    let stalled = environment.migrations().get(CLUSTER).await.expect("the object");
    assert_eq!(kstatus(&stalled).await, "Failed");
    let status = stalled.status.unwrap_or_default();
    assert!(
        status.missing.iter().all(|fact| !fact.fix.is_empty()),
        "{:?}",
        status.missing
    );
    assert_eq!(status.missing[0].code, "UnguardedControllerManager");
}

/// The status that Flux' library gives the object.
async fn kstatus(object: &CloudProviderMigration) -> String {
    let tools = Tools::load(&[Tool::Kstatus]).await.expect("kstatus");
    let mut process = tokio::process::Command::new(tools.path(Tool::Kstatus).expect("its path"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("kstatus starts");
    let mut input = process.stdin.take().expect("its input");
    let text = serde_json::to_vec(&[object]).expect("JSON");
    input.write_all(&text).await.expect("written");
    drop(input);

    let output = process.wait_with_output().await.expect("its output");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("kstatus: {text}");
    text.split('\t').next().unwrap_or_default().to_owned()
}

/// How long both sides owned the Service controller.
fn overlap(report: &Report) -> Duration {
    let timeline = report.controller(Controller::Service);
    timeline
        .map(outrigger_timeline::ControllerTimeline::overlap)
        .unwrap_or_default()
}

/// The situation without Outrigger: with the incumbent's default configuration both managers reconcile the same
/// Service, and with a file that names its own controllers they do not.
#[tokio::test(flavor = "multi_thread")]
async fn the_incumbent_overlaps_with_its_default_configuration_and_not_with_its_own_names() {
    for (own_names, overlaps) in [(false, true), (true, false)] {
        let run = run_folder();
        let report = demo::incumbent(run.path(), own_names, &Progress::loud())
            .await
            .expect("both managers run");
        println!("{}", report.table());
        let overlap = overlap(&report);
        assert_eq!(
            overlap > Duration::from_secs(2),
            overlaps,
            "own names: {own_names}, overlap {overlap:?}"
        );
    }
}
