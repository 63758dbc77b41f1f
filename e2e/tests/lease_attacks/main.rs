//! Each field that decides who owns the controllers is attacked by each principal that can write it, with its real
//! credentials, on a real API server with the authorizer and the admission plugin of Nodes. See docs/threat-model.md.
//!
//! Our manager is the real one. The kube-controller-managers are stand-ins that acquire, renew and lose real leases as
//! client-go does. In each attack no kube-controller-manager acts while our manager holds M, and our manager keeps M, or
//! acquires it, where it would have without the attacker; the table of attacks says where that differs.
//!
//! | test | file |
//! |---|---|
//! | the table of attacks | `attacks.rs` |
//! | requests that the API server refuses | `refused.rs` |
//! | before the first takeover | `first.rs` |
//! | while a guarded kube-controller-manager holds M, and after the takeover | `guarded.rs`, `owned.rs` |
//! | the control plane of a tenant | `hosted.rs` |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod attacks;
mod cluster;
mod first;
mod guarded;
mod hosted;
mod manager;
mod owned;
mod refused;
mod report;
mod request;
mod stand_in;
mod table;

use outrigger_cluster_harness::cluster::Version;

use attacks::Stage;
use cluster::Cluster;
use report::Report;

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_1_26_refuses_what_a_principal_may_not_write() {
    refused::on(Version::V1_26, "127.110.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_1_36_refuses_what_a_principal_may_not_write() {
    refused::on(Version::V1_36, "127.111.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_evidence_causes_no_first_takeover_and_delays_none() {
    let mut cluster = Cluster::start(Version::V1_26, "127.112.0.0/16").await;
    let mut report = Report::new(Stage::First);
    first::attack(&mut cluster, &mut report).await;
    report.complete();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_edited_is_acquired_only_after_its_former_holder() {
    let mut cluster = Cluster::start(Version::V1_26, "127.113.0.0/16").await;
    let mut report = Report::new(Stage::Guarded);
    guarded::attack(&mut cluster, &mut report).await;
    report.complete();
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_objects_do_not_end_the_ownership() {
    let mut cluster = Cluster::start(Version::V1_26, "127.114.0.0/16").await;
    let mut report = Report::new(Stage::Objects);
    owned::attack_objects(&mut cluster, &mut report).await;
    report.complete();
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_leases_do_not_end_the_ownership_for_longer_than_their_records_last() {
    let mut cluster = Cluster::start(Version::V1_26, "127.117.0.0/16").await;
    let mut report = Report::new(Stage::Leases);
    owned::attack_leases(&mut cluster, &mut report).await;
    report.complete();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reaches_its_own_leases_only() {
    let mut report = Report::new(Stage::Hosted);
    hosted::attack(&mut report).await;
    report.complete();
}
