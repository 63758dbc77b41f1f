//! The real webhook on real API servers of the oldest and the newest minor, registered by the project's own manifests
//! through its Service.
//!
//! | what | file |
//! |---|---|
//! | nothing happens to what is nobody's business | `untouched.rs` |
//! | a control plane goes through the phases and back | `phases.rs` |
//! | the real components accept the flags that are left | `components.rs` |
//! | so do those that a provisioner makes of its object | `provisioned.rs` |
//! | a leader migration configuration of the migration's own | `own_configuration.rs` |
//! | Pods, as the backstop | `pods.rs` |
//! | new Nodes | `nodes.rs` |
//! | texts that Go's JSON encoder escapes | `escapes.rs` |
//! | the webhook is away | `outage.rs` |
//! | an owner of Cluster API's objects writes its original meanwhile | `cluster_api.rs` |
//! | everything restarts while the webhook is away | `healing.rs` |
//! | what was missed shows | `missed.rs` |
//! | a registration that somebody has changed shows | `registration.rs` |
//! | real objects of other systems | `corpus.rs` |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod bench;
mod cluster_api;
mod components;
mod corpus;
mod definitions;
mod escapes;
mod healing;
mod missed;
mod nodes;
mod objects;
mod outage;
mod own_configuration;
mod phases;
mod pods;
mod provisioned;
#[path = "../../../shared/tests/published/mod.rs"]
mod published;
mod registration;
mod untouched;

use std::time::Instant;

use anyhow::{Context, Result};
use outrigger_cluster_harness::cluster::Version;

use bench::Bench;

/// One bench for all, as its start is what costs time. Every step has a namespace and a migration of its own.
async fn everything_on(version: Version, range: &str, address: &str) -> Result<()> {
    let start = Instant::now();
    let step = |name: &'static str| println!("{version:?} {:6.1?}: {name}", start.elapsed());
    let run = tempfile::tempdir()?;
    let mut bench = Bench::build(run.path(), version, range, address).await?;
    step("without a migration nothing changes");
    untouched::without_a_migration_nothing_changes(&bench)
        .await
        .context("no migration")?;
    bench.begin().await?;
    step("a changed registration shows");
    registration::a_changed_registration_is_reported_until_it_is_repaired(&bench)
        .await
        .context("registration")?;
    step("what is nobody's business stays as it is");
    untouched::protected_namespaces_stay_as_they_are(&bench)
        .await
        .context("protected namespaces")?;
    untouched::audit_mode_says_what_it_would_do(&bench)
        .await
        .context("mode Audit")?;
    step("through the phases and back");
    let lines = phases::through_the_phases_and_back(&bench).await.context("phases")?;
    phases::a_hasty_phase_gives_only_the_flags_of_prepare(&bench)
        .await
        .context("a hasty phase")?;
    step("the real components accept what is left");
    components::accept_their_flags(&bench, &lines)
        .await
        .context("real components")?;
    step("the components of provisioners accept what is left");
    provisioned::components_start_with_what_their_objects_say(&bench)
        .await
        .context("components of provisioners")?;
    if version == Version::V1_26 {
        step("a leader migration configuration of its own");
        own_configuration::the_old_manager_takes_the_lease_that_it_names(&bench)
            .await
            .context("spec.leaderMigration")?;
    }
    step("Pods");
    pods::the_backstop_gives_the_phases_flags(&bench)
        .await
        .context("Pods")?;
    step("Nodes");
    nodes::new_nodes_are_tainted_only_while_a_manager_is_at_work(&bench)
        .await
        .context("Nodes")?;
    step("texts that Go escapes");
    escapes::of_go_are_no_obstacle(&bench).await.context("escapes")?;
    step("the webhook is away");
    outage::an_outage_stops_only_what_must_not_start(&mut bench)
        .await
        .context("an outage")?;
    step("everything restarts");
    healing::a_cluster_comes_back_without_the_webhook_and_heals_with_it(&mut bench)
        .await
        .context("everything restarts")?;
    step("what was missed shows");
    missed::what_was_missed_shows_until_it_is_written_again(&mut bench)
        .await
        .context("what was missed")?;
    step("real objects");
    corpus::every_real_object_goes_through_every_phase(&bench)
        .await
        .context("real objects")?;
    step("done");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_does_what_the_phase_says_on_kubernetes_1_26() {
    if let Err(error) = everything_on(Version::V1_26, "127.91.0.0/16", "127.91.0.10").await {
        panic!("{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_does_what_the_phase_says_on_kubernetes_1_36() {
    if let Err(error) = everything_on(Version::V1_36, "127.92.0.0/16", "127.92.0.10").await {
        panic!("{error:#}");
    }
}
