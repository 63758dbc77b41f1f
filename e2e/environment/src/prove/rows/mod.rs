//! The events of each scenario.

mod attestation;
mod configurations;
mod damaged_latch;
mod directions;
mod downtime;
mod forged;
mod in_flight;
mod incumbent;
mod leases;
mod old_leader;
mod processes;
mod restarting;
mod routes;
mod scale;
mod silent_api;
mod slow_api;
mod standby;
mod static_pods;

use anyhow::Result;

use super::cluster::Cluster;
use super::scenario::Scenario;

pub(super) async fn run(scenario: Scenario, cluster: &mut Cluster) -> Result<()> {
    match scenario {
        Scenario::ThereAndBack => directions::there_and_back(cluster).await,
        Scenario::SecondRun => directions::second_run(cluster).await,
        Scenario::Paused => in_flight::paused(cluster).await,
        Scenario::StaticPods => static_pods::run(cluster).await,
        Scenario::Unguarded => standby::unguarded_leads(cluster).await,
        Scenario::Leases => leases::meddled(cluster).await,
        Scenario::RandomEnds => processes::random_ends(cluster).await,
        Scenario::Blind => directions::blind(cluster).await,
        Scenario::Uninstalled => directions::uninstalled(cluster).await,
        Scenario::OldPaused => processes::old_paused(cluster).await,
        Scenario::Unanswered => in_flight::unanswered(cluster).await,
        Scenario::Configurations => configurations::run(cluster).await,
        Scenario::Downtime => downtime::run(cluster).await,
        Scenario::Incumbent => incumbent::run(cluster).await,
        Scenario::NewerLatch => leases::newer_latch(cluster).await,
        Scenario::Routes => routes::of_old_manager(cluster).await,
        Scenario::Scale => scale::run(cluster).await,
        Scenario::OldEnds => processes::old_ends(cluster).await,
        Scenario::BothRoutes => routes::of_both(cluster).await,
        Scenario::LateWrite => in_flight::late_write(cluster).await,
        Scenario::CutOff => in_flight::cut_off(cluster).await,
        Scenario::SlowApi => slow_api::run(cluster).await,
        Scenario::HiddenLeader => old_leader::hidden(cluster).await,
        Scenario::ForgedService => forged::service(cluster).await,
        Scenario::WorkerMirrorPod => forged::mirror_pods(cluster).await,
        Scenario::UnguardedStandby => standby::unguarded(cluster).await,
        Scenario::DamagedLatch => damaged_latch::run(cluster).await,
        Scenario::AlarmInRoll => standby::alarm_in_roll(cluster).await,
        Scenario::SilentApi => silent_api::run(cluster).await,
        Scenario::StaleAttestation => attestation::stale(cluster).await,
        Scenario::RestartingGuarded => restarting::run(cluster).await,
    }
}
