//! An in-tree manager without leader migration becomes the leader while our manager owns the controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use outrigger_aws_sim::Call;
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::leases::Lease;
use outrigger_timeline::{NEW_WORK_BEGINS, Side, Statement};

use super::Cluster;
use crate::demo::migrate::LOAD;
use crate::load::{self, PortChanges};
use crate::operator::NEW_MANAGER;

/// The Service whose port changes.
const BUSY: &str = "busy";
const STANDBY: Duration = Duration::from_secs(5);
const LED: Duration = Duration::from_secs(45);
/// Until the status is written, once K has the other holder.
const WRITTEN: SignedDuration = SignedDuration::from_secs(5);
/// From the acquisition of K by a listed external manager until ours owns again.
const OWNER_AGAIN: Duration = Duration::from_secs(60);

/// The lead of an old manager that may act under K alone.
pub(super) struct Lead {
    /// Where it happens, for messages.
    pub(super) what: String,
    /// The name of its process.
    pub(super) process: String,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// Scenario 26: no Pod shows the leader.
pub(super) async fn hidden(cluster: &mut Cluster) -> Result<()> {
    cluster.migrated().await?;
    let _ports = busy(cluster, 2).await?;
    hidden_leads(cluster, "Migrate", "hidden-one").await?;
    cluster.complete().await?;
    hidden_leads(cluster, "Complete", "hidden-two").await
}

/// A Service whose port changes every 2 s: each owner of the Service controller writes to AWS for it.
pub(super) async fn busy(cluster: &Cluster, targets: usize) -> Result<PortChanges> {
    let environment = &cluster.environment;
    environment.mark(NEW_WORK_BEGINS);
    environment.create_load_balancer_service(BUSY, 8080).await?;
    environment
        .wait_load_balancers(&[BUSY], targets, &cluster.progress)
        .await?;
    let admin = kubelets::config(&environment.tenant.kubeconfig(&User::admin())?).await?;
    let client = kubelets::client_with(&admin, vec![(http::header::USER_AGENT, load::USER_AGENT.into())])?;
    Ok(PortChanges::start(client, BUSY, LOAD))
}

async fn hidden_leads(cluster: &mut Cluster, phase: &str, host: &str) -> Result<()> {
    cluster.progress.step(&format!(
        "{phase}: an in-tree manager that no Pod shows becomes the leader"
    ));
    let environment = &cluster.environment;
    let flags = environment.old_manager_flags()?;
    let process = environment.start_hidden_manager(host, &flags)?;
    let (before, from) = takes_k(cluster, &process).await?;

    environment.mark(&format!("{phase}: {process} leads"));
    tokio::time::sleep(LED).await;
    still_free(cluster, phase);
    let until = cluster.environment.kill_hidden_manager(host).await?;
    let what = phase.to_owned();
    judge(
        cluster,
        &Lead {
            what,
            process,
            from,
            until,
        },
    );
    owner_again(cluster, phase, &before).await
}

/// The leader stands still, so that another manager acquires K. Returns the identity of the new holder, and when it
/// acquired K. The last holder ends when it is continued, since it lost its lease, and starts again.
pub(super) async fn takes_k(cluster: &Cluster, process: &str) -> Result<(String, Timestamp)> {
    let environment = &cluster.environment;
    tokio::time::sleep(STANDBY).await;
    let before = environment.holder(Lease::K).context("nobody holds K")?;
    let pod = cluster.process(&before)?.pod;
    environment.pause(&pod).await?;
    let holder = cluster.wait_holder(Lease::K, Some(&before)).await?;
    environment.resume(&pod)?;

    is_next(cluster, process, holder)
}

/// As [`takes_k`], where the last holder, `before`, has ended.
pub(super) async fn acquires_k(cluster: &Cluster, process: &str, before: &str) -> Result<(String, Timestamp)> {
    let holder = cluster.wait_holder(Lease::K, Some(before)).await?;
    is_next(cluster, process, holder)
}

fn is_next(cluster: &Cluster, process: &str, holder: String) -> Result<(String, Timestamp)> {
    let next = cluster.process(&holder)?.process;
    ensure!(next == process, "{next} acquired K instead of {process}");
    Ok((holder, cluster.acquired(Lease::K)))
}

/// No process of ours may hold M at the end of the lead. Beside a write without an answer ours leaves it to expire.
pub(super) fn still_free(cluster: &mut Cluster, what: &str) {
    let latest = cluster.environment.leases.latest(Lease::M);
    let held = latest.filter(|change| change.expires().is_none_or(|expires| Timestamp::now() < expires));
    let holder = held.and_then(|change| change.holder);
    let ours = holder.as_ref().is_some_and(|holder| cluster.is_ours(holder));
    let text = format!("{what}: M is not ours while the in-tree manager leads, now {holder:?}");
    cluster.expect(!ours, &text);
}

/// The AWS writes of ours and the status while an old manager leads.
pub(super) fn judge(cluster: &mut Cluster, lead: &Lead) {
    writes(cluster, lead);
    statements(cluster, lead);
}

/// A write of ours may not begin after the first AWS call of the leader.
fn writes(cluster: &mut Cluster, lead: &Lead) {
    let what = &lead.what;
    let calls = cluster.environment.proxy.calls();
    let by_leader = |call: &&Call| call.caller == lead.process && call.at >= lead.from && !call.preflight;
    let Some(first) = calls.iter().filter(by_leader).map(|call| call.at).min() else {
        cluster.expect(false, &format!("{what}: the in-tree leader calls AWS"));
        return;
    };

    let spans = cluster.environment.runner.spans();
    let is_ours = |caller: &str| {
        let mut spans = spans.iter();
        spans.any(|span| span.component == NEW_MANAGER && span.process == caller)
    };
    let later = calls
        .iter()
        .filter(|call| call.is_write() && first <= call.at && call.at <= lead.until && is_ours(&call.caller));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for call in later {
        *counts.entry(&call.action).or_default() += 1;
    }

    let seconds = first.duration_since(lead.from).as_secs_f64();
    let note = format!("{what}: the first AWS call of the in-tree leader begins {seconds:.1} s after it acquired K");
    cluster.progress.say(&note);
    cluster.notes.push(note);
    released(cluster, lead);
    let text =
        format!("{what}: no AWS write of ours begins after the first AWS call of the in-tree leader: {counts:?}");
    cluster.expect(counts.is_empty(), &text);
}

/// Says when M was released.
fn released(cluster: &mut Cluster, lead: &Lead) {
    let changes = cluster.environment.leases.changes().into_iter();
    let mut of_m =
        changes.filter(|change| change.lease == Lease::M && lead.from <= change.at && change.at <= lead.until);
    if let Some(free) = of_m.find(|change| change.holder.is_none()) {
        let seconds = free.at.duration_since(lead.from).as_secs_f64();
        let note = format!(
            "{}: M is released {seconds:.1} s after the in-tree leader acquired K",
            lead.what
        );
        cluster.progress.say(&note);
        cluster.notes.push(note);
    }
}

fn statements(cluster: &mut Cluster, lead: &Lead) {
    let said = cluster.environment.statuses.statements();
    let ends = said.iter().skip(1).map(|next| next.at).chain([Timestamp::MAX]);
    let in_force = said
        .iter()
        .zip(ends)
        .filter(|(said, end)| said.at <= lead.until && lead.from + WRITTEN < *end)
        .map(|(said, _)| said);
    let wrong: Vec<String> = in_force.filter_map(false_statement).collect();
    let text = format!(
        "{}: the status claims no owner of ours while the in-tree manager leads: {:?}",
        lead.what,
        wrong.first()
    );
    cluster.expect(wrong.is_empty(), &text);
}

/// A claim of a status that is false while a manager leads that may act under K alone.
fn false_statement(said: &Statement) -> Option<String> {
    let migrated = |kind: &str, status: &str| kind == "ControlPlaneMigrated" && status == "True";
    let mut conditions = said.conditions.iter();
    match conditions.find(|condition| migrated(&condition.kind, &condition.status)) {
        Some(condition) => Some(format!("ControlPlaneMigrated=True: {}", condition.message)),
        None if said.owner == Some(Side::New) => Some("owner cloud-controller-manager".to_owned()),
        None => None,
    }
}

/// After the end of the leader a listed external manager leads, and ours owns again, without an operator.
pub(super) async fn owner_again(cluster: &mut Cluster, what: &str, leader: &str) -> Result<()> {
    cluster.wait_holder(Lease::K, Some(leader)).await?;
    let leads = cluster.acquired(Lease::K);
    cluster.environment.mark(&format!("{what}: an external manager leads"));
    let holder = cluster.wait_holder(Lease::M, None).await?;
    let ours = cluster.is_ours(&holder);
    cluster.expect(ours, &format!("{what}: ours holds M again, now {holder}"));
    let text = format!("{what}: an owner again after an external manager leads");
    cluster.measured(&text, leads, cluster.acquired(Lease::M), OWNER_AGAIN);
    cluster.wait_condition("ControlPlaneMigrated").await?;
    cluster.settle().await
}

#[cfg(test)]
mod tests {
    use outrigger_timeline::Condition;

    use super::*;

    #[test]
    fn a_status_that_names_ours_or_says_migrated_is_false() {
        let said = |owner, status: &str| Statement {
            owner,
            conditions: vec![Condition {
                kind: "ControlPlaneMigrated".into(),
                status: status.into(),
                reason: String::new(),
                message: String::new(),
            }],
            ..Statement::default()
        };
        assert!(false_statement(&said(None, "Unknown")).is_none());
        assert!(false_statement(&said(Some(Side::Old), "False")).is_none());
        assert!(false_statement(&said(Some(Side::New), "False")).is_some());
        assert!(false_statement(&said(None, "True")).is_some());
    }
}
