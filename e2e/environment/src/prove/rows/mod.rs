//! The events of each scenario.

mod blind;
mod both_routes;
mod configurations;
mod cut_off;
mod downtime;
mod incumbent;
mod late_write;
mod leases;
mod newer_latch;
mod old_ends;
mod old_paused;
mod paused;
mod random_ends;
mod routes;
mod scale;
mod second_run;
mod slow_api;
mod static_pods;
mod there_and_back;
mod unanswered;
mod unguarded;
mod uninstalled;

use anyhow::Result;

use super::cluster::Cluster;
use super::scenario::Scenario;

pub(super) async fn run(scenario: Scenario, cluster: &mut Cluster) -> Result<()> {
    match scenario {
        Scenario::ThereAndBack => there_and_back::run(cluster).await,
        Scenario::SecondRun => second_run::run(cluster).await,
        Scenario::Paused => paused::run(cluster).await,
        Scenario::StaticPods => static_pods::run(cluster).await,
        Scenario::Unguarded => unguarded::run(cluster).await,
        Scenario::Leases => leases::run(cluster).await,
        Scenario::RandomEnds => random_ends::run(cluster).await,
        Scenario::Blind => blind::run(cluster).await,
        Scenario::Uninstalled => uninstalled::run(cluster).await,
        Scenario::OldPaused => old_paused::run(cluster).await,
        Scenario::Unanswered => unanswered::run(cluster).await,
        Scenario::Configurations => configurations::run(cluster).await,
        Scenario::Downtime => downtime::run(cluster).await,
        Scenario::Incumbent => incumbent::run(cluster).await,
        Scenario::NewerLatch => newer_latch::run(cluster).await,
        Scenario::Routes => routes::run(cluster).await,
        Scenario::Scale => scale::run(cluster).await,
        Scenario::OldEnds => old_ends::run(cluster).await,
        Scenario::BothRoutes => both_routes::run(cluster).await,
        Scenario::LateWrite => late_write::run(cluster).await,
        Scenario::CutOff => cut_off::run(cluster).await,
        Scenario::SlowApi => slow_api::run(cluster).await,
    }
}
