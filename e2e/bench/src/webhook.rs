//! The webhook beside its Go counterpart: both in one run, alternating.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::answer::{Depth, References};
use super::client::Connections;
use super::environment::Environment;
use super::load::{Workload, pace, saturate};
use super::placement::Placement;
use super::results::{Load, Measure, Samples};
use super::review::{Reviews, Stream};
use super::server::{Candidate, Server};
use super::table::mebibytes;

/// Requests in flight of the loads that saturate.
pub const IN_FLIGHT: [usize; 3] = [1, 100, 1000];
/// Requests a second of the paced load.
pub const RATE: u32 = 1000;
/// Load before each measurement, not counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// The amount of load.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// In each round each server is started and measured.
    pub rounds: usize,
    /// Time of each load that saturates.
    pub saturated: Duration,
    /// Time of the paced load.
    pub paced: Duration,
}

pub struct Comparison {
    pub programs: [(Candidate, PathBuf); 2],
    pub environment: Environment,
    pub placement: Placement,
    pub reviews: Reviews,
}

impl Comparison {
    /// Checks that the patches of both servers lead to the same objects, and measures the servers alternately.
    ///
    /// # Errors
    /// When a server fails, or the two disagree on an object. Failed requests are no error here, see
    /// [`Samples::failures`].
    pub async fn run(&self, extent: Extent, progress: impl Fn(&str)) -> Result<Samples> {
        let mut samples = Samples::default();
        progress("comparing the patches of both servers");
        self.agree().await?;
        for (candidate, program) in &self.programs {
            let file = std::fs::metadata(program).with_context(|| program.display().to_string())?;
            samples.add(*candidate, Measure::Program, mebibytes(file.len() / 1024));
        }

        for round in 1..=extent.rounds {
            for (candidate, program) in &self.programs {
                progress(&format!("round {round} of {}: {candidate:?}", extent.rounds));
                self.paced(&mut samples, *candidate, program, extent.paced).await?;
                let time = extent.saturated;
                self.saturated(&mut samples, *candidate, program, time).await?;
            }
        }

        Ok(samples)
    }

    async fn agree(&self) -> Result<()> {
        let mut all = Vec::new();
        for (candidate, program) in &self.programs {
            let server = self.start(*candidate, program).await?;
            all.push(server.references(&self.environment, &self.reviews).await?);
            server.stop().await?;
        }

        let [ours, theirs] = &all[..] else { return Ok(()) };
        ours.same_as(theirs)
    }

    async fn start(&self, candidate: Candidate, program: &Path) -> Result<Server> {
        let placement = Some(&self.placement).filter(|placement| placement.others > 0);
        Server::start(candidate, program.to_owned(), &self.environment, placement).await
    }

    async fn fresh(&self, samples: &mut Samples, candidate: Candidate, program: &Path) -> Result<(Server, References)> {
        let server = self.start(candidate, program).await?;
        samples.add(candidate, Measure::Start, server.ready_after.as_secs_f64() * 1e3);
        samples.add(candidate, Measure::Idle, mebibytes(server.usage()?.resident));
        let references = server.references(&self.environment, &self.reviews).await?;
        Ok((server, references))
    }

    async fn paced(&self, samples: &mut Samples, candidate: Candidate, program: &Path, time: Duration) -> Result<()> {
        let (server, references) = self.fresh(samples, candidate, program).await?;
        let connections = Connections::open(server.address, &self.environment.authority, 1).await?;
        let workload = || Workload::new(self.reviews.clone(), Stream::Mixed, references.clone(), Depth::Quick);
        pace(&connections, workload(), RATE, WARM_UP).await?;

        let (histogram, usage) = (server.histogram().await?, server.usage()?);
        let tally = pace(&connections, workload(), RATE, time).await?;
        let (histogram, later) = (server.histogram().await?.since(&histogram)?, server.usage()?);
        let load = Load::Paced;
        samples.client(candidate, load, &tally);
        let used = later.processor.saturating_sub(usage.processor);
        samples.processor(candidate, load, used, tally.answered);

        let mut server_side = |measure, value: Option<f64>| {
            if let Some(value) = value {
                samples.add(candidate, measure, value * 1e3);
            }
        };

        server_side(Measure::ServerMean(load), histogram.mean());
        server_side(Measure::Server(load, 500), histogram.quantile(0.5));
        server_side(Measure::Server(load, 990), histogram.quantile(0.99));
        samples.add(candidate, Measure::PeakPaced, mebibytes(later.peak));

        server.stop().await
    }

    async fn saturated(
        &self,
        samples: &mut Samples,
        candidate: Candidate,
        program: &Path,
        time: Duration,
    ) -> Result<()> {
        let (server, references) = self.fresh(samples, candidate, program).await?;
        for stream in Stream::ALL {
            for in_flight in IN_FLIGHT {
                let connections = Connections::open(server.address, &self.environment.authority, in_flight).await?;
                let workload = || Workload::new(self.reviews.clone(), stream, references.clone(), Depth::Quick);
                saturate(&connections, workload(), in_flight, WARM_UP).await?;

                let before = server.usage()?;
                let tally = saturate(&connections, workload(), in_flight, time).await?;
                let used = server.usage()?.processor.saturating_sub(before.processor);
                let load = Load::InFlight(stream, in_flight);
                samples.client(candidate, load, &tally);
                samples.processor(candidate, load, used, tally.answered);
            }
        }

        samples.add(candidate, Measure::PeakSaturated, mebibytes(server.usage()?.peak));
        server.stop().await
    }
}
