//! Requests that the API server refuses, and for each principal a request that it grants: a refusal is of the request, not of the
//! credentials.

use kube::Client;
use outrigger_cluster_harness::cluster::Version;
use serde_json::json;

use super::attacks::Stage;
use super::cluster::{Cluster, FIRST, Principals, SECOND, SYSTEM, TEAM, WORKER};
use super::report::Report;
use super::request::{self, C, K, LEASES, M, MIGRATIONS, NODES, Pod, ROLE};
use super::stand_in::Form;

const FORBIDDEN: u16 = 403;

pub async fn on(version: Version, range: &str) {
    let cluster = Cluster::start(version, range).await;
    let mut report = Report::new(Stage::Refused);
    cluster.create_migration("Prepare").await;
    for name in [K, C, M] {
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        request::post(&cluster.admin, LEASES, &object)
            .await
            .granted()
            .expect("created");
    }

    leases(&cluster.principals, &mut report).await;
    pods(&cluster, &mut report).await;
    labels(&cluster.principals, &mut report).await;
    others(&cluster.principals, &mut report).await;
    report.complete();
}

async fn leases(principals: &Principals, report: &mut Report) {
    for (attack, client) in [
        ("kubelets-write-leases", &principals.worker_kubelet),
        ("control-plane-kubelet-writes-leases", &principals.first_kubelet),
        ("team-writes-leases", &principals.team_editor),
        ("operator-writes-leases", &principals.operator),
    ] {
        let forged = request::record("thief", 3600);
        for name in [K, C, M] {
            let path = request::lease(name);
            report.refused(attack, &request::patch(client, &path, &forged).await, FORBIDDEN);
            report.refused(attack, &request::delete(client, &path).await, FORBIDDEN);
        }
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}});
        report.refused(attack, &request::post(client, LEASES, &object).await, FORBIDDEN);
    }

    // A user that edits kube-system may write them, from 1.24 on.
    let annotation = json!({"metadata": {"annotations": {"a": "b"}}});
    report.granted(&request::patch(&principals.system_editor, &request::lease(K), &annotation).await);
}

async fn pods(cluster: &Cluster, report: &mut Report) {
    let principals = &cluster.principals;
    let pod = |name, node| Pod {
        name,
        namespace: SYSTEM,
        node: Some(node),
        host_name: None,
        is_mirror: true,
        command: Form::External.command(),
    };
    let own = pod("own", WORKER.name);
    report.granted(&cluster.mirror(&principals.worker_kubelet, &own, WORKER.address).await);
    let of_first = pod("first", FIRST.name);
    let forged = pod("first-forged", FIRST.name);
    let answer = cluster.mirror(&principals.worker_kubelet, &forged, FIRST.address).await;
    report.refused("mirror-of-other-node", &answer, FORBIDDEN);
    report.granted(
        &cluster
            .mirror(&principals.first_kubelet, &of_first, FIRST.address)
            .await,
    );
    let answer = cluster
        .mirror(&principals.first_kubelet, &pod("second", SECOND.name), SECOND.address)
        .await;
    report.refused("mirror-of-other-control-plane", &answer, FORBIDDEN);

    let status = json!({"status": {"hostIP": WORKER.address}});
    let path = format!("{}/status", of_first.path());
    let answer = request::patch(&principals.worker_kubelet, &path, &status).await;
    report.refused("host-ip-of-other-pod", &answer, FORBIDDEN);

    let mut in_team = pod("kube-controller-manager", WORKER.name);
    (in_team.namespace, in_team.is_mirror) = (TEAM, false);
    report.granted(&request::post(&principals.team_editor, &request::pods(TEAM), &in_team.object(None)).await);
    in_team.namespace = SYSTEM;
    let answer = request::post(&principals.team_editor, &request::pods(SYSTEM), &in_team.object(None)).await;
    report.refused("team-creates-pods", &answer, FORBIDDEN);
}

async fn labels(principals: &Principals, report: &mut Report) {
    let path = |name: &str| format!("{NODES}/{name}");
    let kubelet = &principals.worker_kubelet;
    let allowed = json!({"metadata": {"labels": {"node.kubernetes.io/control-plane": ""}}});
    report.granted(&request::patch(kubelet, &path(WORKER.name), &allowed).await);

    let label = json!({"metadata": {"labels": {ROLE: ""}}});
    let answer = request::patch(kubelet, &path(WORKER.name), &label).await;
    report.refused("role-label", &answer, FORBIDDEN);
    let answer = request::patch(kubelet, &path(SECOND.name), &label).await;
    report.refused("role-label-of-other-node", &answer, FORBIDDEN);
    for editor in [&principals.system_editor, &principals.team_editor] {
        let answer = request::patch(editor, &path(WORKER.name), &label).await;
        report.refused("role-label-by-editors", &answer, FORBIDDEN);
    }

    create_again(kubelet, report).await;
}

/// A kubelet may not delete its Node with NodeRestriction. It creates it where another one deleted it, or as the first.
async fn create_again(kubelet: &Client, report: &mut Report) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": WORKER.name, "labels": {ROLE: ""}}});
    let answer = request::post(kubelet, NODES, &node).await;
    report.refused("role-label-at-creation", &answer, FORBIDDEN);
}

async fn others(principals: &Principals, report: &mut Report) {
    let path = format!("{MIGRATIONS}/{}", super::cluster::MIGRATION);
    let attested = json!({"spec": {"attestation": {"phase": "Prepare"}}});
    for client in [
        &principals.system_editor,
        &principals.team_editor,
        &principals.worker_kubelet,
        &principals.first_kubelet,
    ] {
        let answer = request::patch(client, &path, &attested).await;
        report.refused("spec-by-others", &answer, FORBIDDEN);
    }
    report.granted(&request::patch(&principals.operator, &path, &attested).await);
    let status = json!({"status": {"conditions": []}});
    let answer = request::patch(&principals.operator, &format!("{path}/status"), &status).await;
    report.refused("status-by-operator", &answer, FORBIDDEN);

    let services = format!("/api/v1/namespaces/{TEAM}/services");
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    report.granted(&request::post(&principals.team_editor, &services, &service).await);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "forged"}]}}});
    let answer = request::patch(&principals.team_editor, &format!("{services}/web/status"), &status).await;
    report.refused("service-status", &answer, FORBIDDEN);
}
