//! An external kube-controller-manager leads, and our manager holds M.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::{Span, Timestamp};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::wait;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Cluster, FIRST, LIMIT, Mark, SECOND, SYSTEM, TEAM, THIEF, WORKER};
use super::report::Report;
use super::request::{self, C, K, LATCH, M, Pod};
use super::stand_in::{DURATION, Form};

/// Much longer than our manager needs to read an object that it watches, and longer than client-go's retry period.
const READ: Duration = Duration::from_millis(2500);
/// A reader may leave out a state that lasts for a shorter time.
const BETWEEN: Duration = Duration::from_millis(500);
/// Mirror Pods that are as large as the API server takes them, and what they may cost our manager: some pages of a list, and
/// not all of them.
const MANY: usize = 120;
const LARGE: usize = 1_200_000;
const COST: u64 = 64 << 20;
const KEPT: &str = "keeps M and its permit";

pub async fn attack_objects(cluster: &mut Cluster, report: &mut Report) {
    owned(cluster).await;
    ignored_pods(cluster, report).await;
    large_pods(cluster, report).await;
    standbys(cluster, report).await;
    spec(cluster, report).await;
    services(cluster, report).await;
    unlocked(cluster, report).await;
}

pub async fn attack_leases(cluster: &mut Cluster, report: &mut Report) {
    owned(cluster).await;
    edited_leases(cluster, report).await;
    stolen_leases(cluster, report).await;
}

/// Our manager has taken over.
async fn owned(cluster: &mut Cluster) {
    cluster.show_old_manager(FIRST, Form::External).await;
    cluster.start_old_manager(FIRST, Form::External);
    cluster.create_migration("Migrate").await;
    cluster.start_manager();
    cluster.owned("an external manager leads").await;
}

/// The fields that a Service controller writes into the status.
fn status_write(time: Timestamp) -> Value {
    json!({
        "manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "apiVersion": "v1",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    })
}

async fn services(cluster: &Cluster, report: &mut Report) {
    let mark = cluster.mark();
    let editor = &cluster.principals.team_editor;
    let services = format!("/api/v1/namespaces/{TEAM}/services");
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let created = request::post(editor, &services, &service).await;
    let mut service = created.granted().expect("created").body;

    let (now, hour) = (Timestamp::now(), Span::new().hours(1));
    for time in [
        now - hour,
        now,
        now + hour,
        "2099-01-01T00:00:00Z".parse().expect("a time"),
    ] {
        let forged = status_write(time);
        let fields = service["metadata"]["managedFields"].as_array_mut().expect("a list");
        fields.retain(|field| field["manager"] != forged["manager"]);
        fields.push(forged.clone());
        // The API server drops an update that changes times alone.
        service["metadata"]["labels"] = json!({"changed": time.as_second().to_string()});
        let stored = request::put(editor, &format!("{services}/web"), &service).await;
        service = stored.granted().expect("stored").body;
        let is_stored = |field: &Value| {
            let same = |key: &str| field[key] == forged[key];
            same("manager") && same("subresource") && same("time")
        };
        let fields = service["metadata"]["managedFields"].as_array().expect("a list");
        assert!(fields.iter().any(is_stored), "nothing is tested: {fields:?}");
        sleep(BETWEEN).await;
    }
    sleep(READ).await;
    report.unchanged(cluster, "managed-fields", &mark, KEPT);
}

fn without_election() -> Vec<&'static str> {
    let mut command = Form::InTree.command();
    command.push("--leader-elect=false");
    command
}

fn forged<'a>(name: &'a str, namespace: &'a str, command: Vec<&'a str>) -> Pod<'a> {
    Pod {
        name,
        namespace,
        node: Some(WORKER.name),
        host_name: None,
        is_mirror: false,
        command,
    }
}

async fn ignored_pods(cluster: &Cluster, report: &mut Report) {
    let principals = &cluster.principals;
    let mark = cluster.mark();
    let in_team = forged("kube-controller-manager", TEAM, without_election());
    let created = request::post(&principals.team_editor, &request::pods(TEAM), &in_team.object(None)).await;
    created.granted().expect("created");
    cluster.wake(&Cluster::shown(FIRST)).await;
    sleep(READ).await;
    report.unchanged(cluster, "pod-in-other-namespace-later", &mark, KEPT);

    let mark = cluster.mark();
    let mut mirror = forged("kube-controller-manager-a", SYSTEM, without_election());
    mirror.is_mirror = true;
    let created = cluster.mirror(&principals.worker_kubelet, &mirror, FIRST.address).await;
    created.granted().expect("created");
    cluster.says(&mirror.named(), &mark).await;
    report.unchanged(
        cluster,
        "mirror-without-election",
        &mark,
        "keeps M and its permit; a warning names it",
    );
}

/// A worker's kubelet creates Pods that our manager lists, as it looks for kube-controller-managers.
async fn large_pods(cluster: &Cluster, report: &mut Report) {
    let (mark, before) = (cluster.mark(), cluster.manager().peak_memory());
    let argument = format!("--profiling={}", "x".repeat(LARGE));
    let names: Vec<String> = (0..MANY)
        .map(|number| format!("kube-controller-manager-l{number}"))
        .collect();
    let pod = |name| {
        let mut pod = forged(name, SYSTEM, without_election());
        pod.is_mirror = true;
        pod.command.push(&argument);
        pod
    };
    stream::iter(&names)
        .map(|name| async move {
            let kubelet = &cluster.principals.worker_kubelet;
            let created = cluster.mirror(kubelet, &pod(name), FIRST.address).await;
            created.granted().expect("created");
        })
        .buffer_unordered(4)
        .collect::<()>()
        .await;
    cluster.wake(&Cluster::shown(FIRST)).await;
    sleep(READ).await;

    let cost = cluster.manager().peak_memory().saturating_sub(before);
    println!("{MANY} Pods of {LARGE} bytes cost our manager {} KiB", cost >> 10);
    assert!(cost < COST, "{cost} bytes");
    report.unchanged(cluster, "mirror-pods-of-megabytes", &mark, KEPT);
    for name in &names {
        let deleted = request::delete(&cluster.principals.system_editor, &pod(name).path()).await;
        deleted.granted().expect("deleted");
    }
}

/// In-tree Pods that do not lead. They are deleted afterwards: beside them our manager does not write while nobody leads.
async fn standbys(cluster: &Cluster, report: &mut Report) {
    let principals = &cluster.principals;
    let warned = "keeps M and its permit; a warning names it";
    let mark = cluster.mark();
    let pod = forged("kube-controller-manager-b", SYSTEM, Form::InTree.command());
    let created = request::post(&principals.system_editor, &request::pods(SYSTEM), &pod.object(None)).await;
    created.granted().expect("created");
    cluster.says(&pod.named(), &mark).await;
    report.unchanged(cluster, "pod-in-tree-later", &mark, warned);
    request::delete(&principals.system_editor, &pod.path())
        .await
        .granted()
        .expect("deleted");

    let mark = cluster.mark();
    let mut mirror = forged("kube-controller-manager-c", SYSTEM, Form::InTree.command());
    (mirror.is_mirror, mirror.node) = (true, Some(SECOND.name));
    let created = cluster
        .mirror(&principals.second_kubelet, &mirror, SECOND.address)
        .await;
    created.granted().expect("created");
    cluster.says(&mirror.named(), &mark).await;
    report.unchanged(cluster, "mirror-in-tree-later", &mark, warned);
    request::delete(&principals.second_kubelet, &mirror.path())
        .await
        .granted()
        .expect("deleted");
}

async fn spec(cluster: &Cluster, report: &mut Report) {
    let mark = cluster.mark();
    let answer = cluster.change_migration(json!({"phase": "InTree"})).await;
    report.refused("in-tree-while-owned", &answer, 422);
    cluster
        .change_migration(json!({"phase": "Prepare"}))
        .await
        .granted()
        .expect("granted");
    let owner = async || {
        let controllers = cluster.migration().await["status"]["controllers"].clone();
        controllers
            .to_string()
            .contains("\"owner\":\"cloud-controller-manager\"")
    };
    wait::until("the status names the owner", LIMIT, owner)
        .await
        .expect("in time");
    let answer = cluster.change_migration(json!({"phase": "InTree"})).await;
    report.refused("in-tree-while-owned", &answer, 422);
    sleep(READ).await;
    cluster
        .change_migration(json!({"phase": "Migrate"}))
        .await
        .granted()
        .expect("granted");
    report.unchanged(cluster, "in-tree-while-owned", &mark, KEPT);
}

/// A living holder writes its lease again.
async fn edited_leases(cluster: &Cluster, report: &mut Report) {
    let editor = &cluster.principals.system_editor;
    for (name, lease, change) in [
        ("m-deleted", M, None),
        ("release-forged", M, Some(request::release as fn(bool) -> Value)),
        ("c-deleted", C, None),
        ("k-deleted", K, None),
        ("k-emptied", K, Some(|_| request::release(false))),
    ] {
        let mark = cluster.mark();
        let path = request::lease(lease);
        let answer = match change {
            None => request::delete(editor, &path).await,
            Some(change) => request::patch(editor, &path, &change(true)).await,
        };
        answer.granted().expect("written");
        sleep(READ).await;
        report.unchanged(cluster, name, &mark, KEPT);
    }

    let mark = cluster.mark();
    for text in ["{\"phase\":\"Migr", r#"{"version":1}"#, r#"{"version":9}"#] {
        let damaged = json!({"metadata": {"annotations": {LATCH: text}}});
        request::patch(editor, &request::lease(C), &damaged)
            .await
            .granted()
            .expect("written");
        let restored = async || latch(cluster).await.contains("heldBy");
        wait::until("the latch is restored", LIMIT, restored)
            .await
            .expect("in time");
    }
    report.unchanged(
        cluster,
        "latch-damaged",
        &mark,
        "keeps M and its permit; the latch is restored",
    );
}

async fn latch(cluster: &Cluster) -> String {
    let lease = request::get(&cluster.admin, &request::lease(C)).await.body;
    let latch = lease["metadata"]["annotations"][LATCH].as_str().unwrap_or_default();
    latch.to_owned()
}

async fn unlocked(cluster: &Cluster, report: &mut Report) {
    let editor = &cluster.principals.system_editor;
    let mark = cluster.mark();
    let pod = forged("kube-controller-manager-d", SYSTEM, without_election());
    let created = request::post(editor, &request::pods(SYSTEM), &pod.object(None)).await;
    created.granted().expect("created");
    cluster.says("ALARM", &mark).await;
    cluster.says(&pod.named(), &mark).await;
    cluster.held("M is released", Lease::M, |holder| holder.is_none()).await;
    request::delete(editor, &pod.path()).await.granted().expect("deleted");
    cluster.owned("the Pod is gone").await;
    report.answered(
        cluster,
        "pod-without-election",
        &mark,
        "an alarm that names it, until it is gone",
    );
}

/// The present holder has lost its lease, and ends.
async fn stolen_leases(cluster: &Cluster, report: &mut Report) {
    for (name, lease, text) in [
        ("k-stolen", K, "ALARM"),
        ("m-stolen", M, "another holder has the lease"),
        // On a busy machine the end of what runs under M is noticed first.
        ("c-stolen", C, "leadership ended"),
    ] {
        let mark = cluster.mark();
        let stolen = request::record(THIEF, DURATION.as_secs());
        let editor = &cluster.principals.system_editor;
        request::patch(editor, &request::lease(lease), &stolen)
            .await
            .granted()
            .expect("written");
        cluster.says(text, &mark).await;
        if lease != C {
            cluster.says(THIEF, &mark).await;
        }
        let did = again(cluster, &mark).await;
        report.answered(cluster, name, &mark, &did);
    }
}

/// Nobody does anything: K, C and M have their holders again.
async fn again(cluster: &Cluster, mark: &Mark) -> String {
    let is_held = |holder: Option<&str>| holder.is_some_and(|holder| holder != THIEF);
    for lease in [Lease::K, Lease::C] {
        cluster.held("the lease has a holder again", lease, is_held).await;
    }
    let without = async || {
        let changes = cluster.changes_since(Lease::M, mark);
        changes.iter().any(|change| change.holder != mark.owner)
    };
    wait::until("M was lost", LIMIT, without).await.expect("in time");
    cluster.owned("the forged record has expired").await;
    let took = Timestamp::now().duration_since(mark.at);
    format!("releases M or ends, and has it again after {:.0} s", took.as_secs_f64())
}
