//! Which scenarios, in which order.

use std::path::Path;

use anyhow::{Context, Result};
use futures::future::join_all;

use super::environment::{Environment, Kind};
use super::result::Results;
use super::{burst, restart, unchanged};
use crate::manager::candidate::{Candidate, Programs};
use outrigger_cluster_harness::tools::Tools;

/// What is wanted of a run.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Whether looks without effect are measured.
    pub unchanged: bool,
    /// Services with a classic load balancer at the restart; 0 leaves it out.
    pub classic: usize,
    /// Services with a network load balancer at the restart.
    pub network: usize,
    /// New Services at AWS's rates; 0 leaves them out.
    pub new: usize,
    /// The kinds of load balancers that take part.
    pub kinds: Vec<Kind>,
    /// Who takes part.
    pub candidates: Vec<Candidate>,
}

impl Extent {
    /// Everything that `docs/benchmarks.md` shows.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            unchanged: true,
            classic: 400,
            network: 100,
            new: 30,
            kinds: vec![Kind::Classic, Kind::Network],
            candidates: Candidate::ALL.to_vec(),
        }
    }

    /// So many Services at the restart, one in five with a network load balancer.
    #[must_use]
    pub fn with_services(self, count: usize) -> Self {
        let network = if self.kinds.contains(&Kind::Network) {
            count / 5
        } else {
            0
        };
        Self {
            classic: count - network,
            network,
            ..self
        }
    }
}

pub struct Bench<'a, P: Fn(&str)> {
    /// Where the real components are.
    pub tools: &'a Tools,
    /// The folder of the run: logs.
    pub folder: &'a Path,
    /// The range of the clusters' Services, in 127/8.
    pub range: &'a str,
    /// The candidates.
    pub programs: Programs,
    /// Says what happens.
    pub progress: P,
}

impl<P: Fn(&str)> Bench<'_, P> {
    /// Measures everything that is wanted. A scenario that fails is told in the results, and the others go on.
    pub async fn run(&self, extent: &Extent) -> Results {
        let mut results = Results::default();
        if extent.unchanged {
            (self.progress)("looks without effect, all at the same time: only calls are counted");
            let one = |who: &Candidate| self.unchanged(*who, &extent.kinds);
            for looks in join_all(extent.candidates.iter().map(one)).await {
                self.take(looks, &mut results.failures, |looks| results.unchanged.extend(looks));
            }
        }

        if extent.classic + extent.network > 0 {
            let title = format!(
                "{} classic and {} network load balancers",
                extent.classic, extent.network
            );
            let restarts = self.restarts(extent, &mut results).await.context(title);
            self.take(restarts, &mut results.failures, |()| {});
        }

        if extent.new > 0 {
            (self.progress)(&format!(
                "{} new Services, all at the same time: AWS's rates are what takes long",
                extent.new
            ));

            let one = |who: &Candidate| self.burst(*who, extent.new);
            for burst in join_all(extent.candidates.iter().map(one)).await {
                self.take(burst, &mut results.failures, |burst| results.bursts.push(burst));
            }
        }

        results
    }

    fn take<T>(&self, measured: Result<T>, failures: &mut Vec<String>, keep: impl FnOnce(T)) {
        match measured {
            Ok(measured) => keep(measured),
            Err(error) => {
                (self.progress)(&format!("  {error:#}"));
                failures.push(format!("{error:#}"));
            }
        }
    }

    async fn unchanged(&self, candidate: Candidate, kinds: &[Kind]) -> Result<Vec<super::result::Unchanged>> {
        let title = || format!("looks without effect, {}", candidate.name());
        let environment = self.environment("").await.with_context(title)?;
        unchanged::measure(&environment, &self.programs, candidate, kinds)
            .await
            .with_context(title)
    }

    async fn restarts(&self, extent: &Extent, results: &mut Results) -> Result<()> {
        let (classic, network) = (extent.classic, extent.network);
        (self.progress)(&format!(
            "making {classic} classic and {network} network load balancers"
        ));

        let environment = self.environment(restart::CONFIG).await?;
        restart::prepare(&environment, &self.programs, classic, network).await?;
        for candidate in &extent.candidates {
            (self.progress)(&format!("a start beside them, {}", candidate.name()));
            let measured = restart::measure(&environment, &self.programs, *candidate, classic, network).await;
            let measured = measured.with_context(|| format!("a start, {}", candidate.name()))?;
            (self.progress)(&format!("  {:.1} s", measured.last.as_secs_f64()));
            results.restarts.push(measured);
        }

        Ok(())
    }

    async fn burst(&self, candidate: Candidate, services: usize) -> Result<super::result::Burst> {
        let title = || format!("{services} new Services, {}", candidate.name());
        let environment = self.environment("").await.with_context(title)?;
        burst::measure(&environment, &self.programs, candidate, services)
            .await
            .with_context(title)
    }

    /// Everything fresh, in a folder of its own.
    async fn environment(&self, config: &str) -> Result<Environment> {
        let folder = tempfile::Builder::new()
            .prefix("services-")
            .tempdir_in(self.folder)?
            .keep();
        Environment::build(self.tools, &folder, self.range, config).await
    }
}
