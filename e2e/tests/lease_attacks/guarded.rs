//! A kube-controller-manager with leader migration holds K and M, and our manager competes for M.

use std::time::Duration;

use outrigger_cluster_harness::leases::Lease;
use serde_json::json;
use tokio::time::sleep;

use super::cluster::{Cluster, FIRST, THIEF};
use super::first::renewal_of;
use super::report::Report;
use super::request::{self, M};
use super::stand_in::Form;

/// Longer than our manager needs to acquire a lease that is free, and than client-go's retry period.
const FREE: Duration = Duration::from_secs(4);

pub async fn attack(cluster: &mut Cluster, report: &mut Report) {
    cluster.show_old_manager(FIRST, Form::Guarded).await;
    cluster.start_old_manager(FIRST, Form::Guarded);
    cluster.create_migration("Prepare").await;
    cluster.start_manager();
    let mark = cluster.mark();
    cluster.says("\"Prepared\"", &mark).await;
    prepared(cluster).await;
    cluster
        .change_migration(json!({"phase": "Migrate"}))
        .await
        .granted()
        .expect("granted");
    cluster.says("may compete for the migration lease", &mark).await;

    let editor = cluster.principals.system_editor.clone();
    let lease = request::lease(M);
    for (name, change) in [
        ("m-deleted-guarded", None),
        ("m-emptied-guarded", Some(request::release(false))),
        ("m-release-forged-guarded", Some(request::release(true))),
        ("m-shortened-guarded", Some(json!({}))),
    ] {
        let holder = renewal_of(cluster, Lease::M).await;
        let mark = cluster.mark();
        let change = match name {
            "m-shortened-guarded" => Some(request::record(&holder, 1)),
            _ => change,
        };
        let answer = match &change {
            None => request::delete(&editor, &lease).await,
            Some(change) => request::patch(&editor, &lease, change).await,
        };
        answer.granted().expect("written");
        sleep(FREE).await;
        report.unchanged(
            cluster,
            name,
            &mark,
            "it waits until the former holder's record would have expired",
        );
    }

    let holder = renewal_of(cluster, Lease::M).await;
    let mark = cluster.mark();
    let stolen = request::record(THIEF, 1);
    request::patch(&editor, &lease, &stolen)
        .await
        .granted()
        .expect("written");
    cluster.owned(&format!("{holder} lost M")).await;
    sleep(FREE).await;
    report.answered(
        cluster,
        "m-stolen-guarded",
        &mark,
        "it acquires M when the former holder's record would have expired",
    );
}

async fn prepared(cluster: &Cluster) {
    let is_prepared = async || {
        let migration = cluster.migration().await;
        let conditions = migration["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Prepared" && condition["status"] == "True")
    };
    let waited = outrigger_cluster_harness::wait::until("Prepared", super::cluster::LIMIT, is_prepared).await;
    waited.unwrap_or_else(|error| panic!("{error}\n{}", cluster.manager().log_tail()));
}
