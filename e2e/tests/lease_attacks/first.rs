//! An in-tree manager leads on a control-plane Node, and no Pod shows it. Forged evidence does not prove it, and does not delay the takeover once an
//! external one leads.

use std::time::Duration;

use outrigger_cluster_harness::leases::Lease;
use serde_json::json;
use tokio::time::sleep;

use super::cluster::{Cluster, FIRST, Mark, SECOND, SYSTEM, TEAM, THIEF, WORKER, run};
use super::report::Report;
use super::request::{self, C, K, LATCH, MIGRATIONS, Pod};
use super::stand_in::{DURATION, Form};

/// Much longer than our manager needs to read an object that it watches.
const READ: Duration = Duration::from_secs(2);

pub async fn attack(cluster: &mut Cluster, report: &mut Report) {
    let hidden = cluster.start_old_manager(FIRST, Form::InTree);
    cluster
        .held("an in-tree manager leads", Lease::K, |holder| holder.is_some())
        .await;
    cluster.show_old_manager(SECOND, Form::External).await;
    phases(cluster, report).await;

    cluster.start_manager();
    let mark = cluster.mark();
    cluster
        .says("is none of the kube-controller-managers that can be read", &mark)
        .await;
    attested(cluster, report, &mark).await;
    forged_pods(cluster, report).await;
    edited_lease(cluster, report).await;

    beside_its_own_pod(cluster, report).await;
    forged_latch(cluster, report).await;

    cluster.kill_old_manager(hidden);
    takeover(cluster, report).await;
}

/// To Migrate, one step at a time. The attestation of Prepare stays in the object.
async fn phases(cluster: &Cluster, report: &mut Report) {
    let attestation = |phase: &str| json!({"phase": phase, "attestation": {"phase": phase}});
    cluster.create_migration("InTree").await;
    let answer = cluster.change_migration(attestation("Prepare")).await;
    report.refused("attestation-in-the-same-write", &answer, 422);
    cluster
        .change_migration(json!({"phase": "Prepare"}))
        .await
        .granted()
        .expect("granted");
    let answer = cluster.change_migration(attestation("Migrate")).await;
    report.refused("attestation-in-the-same-write", &answer, 422);
    let answer = cluster.change_migration(json!({"phase": "Complete"})).await;
    report.refused("attestation-in-the-same-write", &answer, 422);

    let path = format!("{MIGRATIONS}/{}", super::cluster::MIGRATION);
    request::delete(&cluster.admin, &path).await.granted().expect("deleted");
    let object = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
        "metadata": {"name": super::cluster::MIGRATION},
        "spec": {"clusterID": super::cluster::CLUSTER, "phase": "Migrate", "attestation": {"phase": "Migrate"}},
    });
    let created = request::post(&cluster.principals.operator, MIGRATIONS, &object).await;
    created.granted().expect("created");
}

/// The attestation was there before our manager observed the phase.
async fn attested(cluster: &Cluster, report: &mut Report, mark: &Mark) {
    let left_over = "spec.attestation";
    cluster.says(left_over, mark).await;
    sleep(READ).await;
    report.unchanged(cluster, "attestation-at-creation", mark, "a warning: it does not count");

    // It leaves the phase and enters it again with the old value.
    let mark = cluster.mark();
    for spec in [
        json!({"phase": "Prepare", "attestation": {"phase": "Migrate"}}),
        json!({"attestation": null}),
        json!({"attestation": {"phase": "Migrate"}}),
    ] {
        cluster.change_migration(spec).await.granted().expect("granted");
        sleep(READ / 4).await;
    }
    let answer = cluster.change_migration(json!({"phase": "Migrate"})).await;
    report.refused("attestation-left-over", &answer, 422);
    let without = json!({"phase": "Migrate", "attestation": null});
    cluster.change_migration(without).await.granted().expect("granted");
    cluster
        .says("is none of the kube-controller-managers that can be read", &mark)
        .await;
    sleep(READ).await;
    report.unchanged(cluster, "attestation-left-over", &mark, "nothing");
}

async fn forged_pods(cluster: &Cluster, report: &mut Report) {
    let principals = &cluster.principals;
    let forged = |name, namespace, node| Pod {
        name,
        namespace,
        node: Some(node),
        host_name: Some(FIRST.label()),
        is_mirror: false,
        command: Form::External.command(),
    };

    let mark = cluster.mark();
    let pod = forged("kube-controller-manager", TEAM, WORKER.name);
    let created = request::post(&principals.team_editor, &request::pods(TEAM), &pod.object(None)).await;
    created.granted().expect("created");
    cluster.wake(&Cluster::shown(SECOND)).await;
    sleep(READ).await;
    report.unchanged(cluster, "pod-in-other-namespace", &mark, "nothing");

    let mark = cluster.mark();
    let mut pod = forged("kube-controller-manager-a", SYSTEM, WORKER.name);
    pod.is_mirror = true;
    cluster
        .mirror(&principals.worker_kubelet, &pod, WORKER.address)
        .await
        .granted()
        .expect("created");
    cluster.says(&pod.named(), &mark).await;
    sleep(READ).await;
    report.unchanged(cluster, "mirror-with-host-name", &mark, "ignored; the message names it");

    request::delete(&principals.worker_kubelet, &pod.path())
        .await
        .granted()
        .expect("deleted");
    let mark = cluster.mark();
    (pod.name, pod.host_name) = ("kube-controller-manager-b", None);
    cluster
        .mirror(&principals.worker_kubelet, &pod, FIRST.address)
        .await
        .granted()
        .expect("created");
    cluster.says(&pod.named(), &mark).await;
    sleep(READ).await;
    report.unchanged(cluster, "host-ip-of-mirror", &mark, "ignored; the message names it");

    let mark = cluster.mark();
    pod.is_mirror = false;
    pod.name = "kube-controller-manager-c";
    let created = request::post(&principals.system_editor, &request::pods(SYSTEM), &pod.object(None)).await;
    created.granted().expect("created");
    run(&principals.worker_kubelet, &pod, FIRST.address).await;
    sleep(READ).await;
    report.unchanged(cluster, "host-ip-of-pod", &mark, "the address is not read");
}

/// Each kube-controller-manager that can be read is external: only the holder of K is a reason to wait.
async fn edited_lease(cluster: &Cluster, report: &mut Report) {
    let editor = &cluster.principals.system_editor;
    let mark = cluster.mark();
    let renewed = renewal(cluster).await;
    request::patch(editor, &request::lease(K), &request::release(false))
        .await
        .granted()
        .expect("written");
    cluster
        .held("the in-tree manager has K again", Lease::K, |holder| {
            holder == Some(&renewed)
        })
        .await;
    sleep(READ).await;
    report.unchanged(cluster, "k-emptied-hidden", &mark, "the former holder counts");

    let mark = cluster.mark();
    renewal(cluster).await;
    request::delete(editor, &request::lease(K))
        .await
        .granted()
        .expect("deleted");
    sleep(READ).await;
    cluster
        .held("an in-tree manager has K again", Lease::K, |holder| holder.is_some())
        .await;
    sleep(READ).await;
    report.unchanged(cluster, "k-deleted-hidden", &mark, "the former holder counts");
}

/// The Pod of the leader is in-tree, and the one that a user created with its host name is external.
async fn beside_its_own_pod(cluster: &Cluster, report: &mut Report) {
    let mark = cluster.mark();
    let forged = Pod {
        name: "kube-controller-manager-0",
        namespace: SYSTEM,
        node: Some(WORKER.name),
        host_name: Some(FIRST.label()),
        is_mirror: false,
        command: Form::External.command(),
    };
    cluster.show_old_manager(FIRST, Form::InTree).await;
    let pods = request::pods(SYSTEM);
    let created = request::post(&cluster.principals.system_editor, &pods, &forged.object(None)).await;
    created.granted().expect("created");
    cluster.says("runs in-tree without leader migration", &mark).await;
    sleep(READ).await;
    report.unchanged(cluster, "pod-beside-the-leaders", &mark, "the leader's own Pod counts");
}

/// The latch says that the leader is external, and that our manager has held M.
async fn forged_latch(cluster: &Cluster, report: &mut Report) {
    let mark = cluster.mark();
    let latch = json!({
        "version": 1, "uid": cluster.migration().await["metadata"]["uid"], "phase": "Migrate", "heldBy": THIEF,
        "proven": [{"identity": cluster.holder(Lease::K), "by": "External"}],
    });
    let mut stolen = request::record(THIEF, 1);
    stolen["metadata"] = json!({"annotations": {LATCH: latch.to_string()}});
    let editor = &cluster.principals.system_editor;
    request::patch(editor, &request::lease(C), &stolen)
        .await
        .granted()
        .expect("written");

    cluster
        .held("C is stolen", Lease::C, |holder| holder == Some(THIEF))
        .await;
    let is_ours = |holder: Option<&str>| holder.is_some_and(Cluster::is_ours);
    cluster.held("another process of ours leads", Lease::C, is_ours).await;
    cluster.says("runs in-tree without leader migration", &mark).await;
    sleep(READ).await;
    // The migration is new, and so is its evidence.
    let owner = cluster.holder(Lease::M);
    let path = format!("{MIGRATIONS}/{}", super::cluster::MIGRATION);
    request::delete(&cluster.admin, &path).await.granted().expect("deleted");
    cluster.create_migration("Migrate").await;

    let did = "does not acquire M: a command line that can be read counts more";
    report.answered(cluster, "latch-forged", &mark, did);
    assert_eq!(owner, None, "{}", cluster.manager().log_since(mark.log));
}

/// Waits for the next renewal of K, so that its holder does not renew it for the retry period.
pub async fn renewal(cluster: &Cluster) -> String {
    renewal_of(cluster, Lease::K).await
}

pub async fn renewal_of(cluster: &Cluster, lease: Lease) -> String {
    let before = cluster.leases.latest(lease).and_then(|change| change.renewed);
    let renewed = cluster
        .leases
        .wait_until(lease, DURATION, |change| {
            change.renewed > before && change.holder.is_some()
        })
        .await;
    renewed.and_then(|change| change.holder).expect("it is renewed")
}

/// An external manager leads, and every forged object but those that may block it is still there.
async fn takeover(cluster: &mut Cluster, report: &mut Report) {
    let principals = [
        cluster.principals.system_editor.clone(),
        cluster.principals.first_kubelet.clone(),
    ];
    let [editor, kubelet] = &principals;
    let mark = cluster.mark();
    let in_tree = Pod {
        name: "kube-controller-manager-d",
        namespace: SYSTEM,
        node: Some(WORKER.name),
        host_name: None,
        is_mirror: false,
        command: Form::InTree.command(),
    };
    request::post(editor, &request::pods(SYSTEM), &in_tree.object(None))
        .await
        .granted()
        .expect("created");

    request::delete(&cluster.principals.first_kubelet, &Cluster::shown(FIRST))
        .await
        .granted()
        .expect("deleted");
    cluster.start_old_manager(SECOND, Form::External);
    cluster
        .held("an external manager leads", Lease::K, |holder| {
            holder.is_some_and(|holder| holder.starts_with(SECOND.name))
        })
        .await;
    cluster.says(&in_tree.named(), &mark).await;
    sleep(READ).await;
    report.unchanged(cluster, "pod-in-tree", &mark, "no takeover; the message names it");

    let mark = cluster.mark();
    request::delete(editor, &in_tree.path())
        .await
        .granted()
        .expect("deleted");
    let of_first = Pod {
        name: "kube-controller-manager-e",
        node: Some(FIRST.name),
        is_mirror: true,
        ..in_tree
    };
    cluster
        .mirror(kubelet, &of_first, FIRST.address)
        .await
        .granted()
        .expect("created");
    cluster.says(&of_first.named(), &mark).await;
    let owned = cluster.holder(Lease::M);
    assert!(owned.is_none(), "{owned:?}");
    report.answered(cluster, "mirror-in-tree", &mark, "no takeover; the message names it");
    request::delete(kubelet, &of_first.path())
        .await
        .granted()
        .expect("deleted");

    cluster
        .owned("an external manager leads, and forged objects are still there")
        .await;
    assert!(cluster.overlap(&mark).is_none(), "{:?}", cluster.overlap(&mark));
}
