//! The scenarios of a run, in their order.

use anyhow::{Context, Result};
use futures::future::join_all;

use super::environment::{Environment, Kind};
use super::measure::{self, Burst, Join, Restart, Results, Unchanged, WITHOUT_NODE_RULES};
use crate::manager::candidate::Candidate;
use crate::manager::scenarios::Bench;

/// The scenarios of a run, and their sizes.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Whether reconciliations of unchanged load balancers are measured.
    pub unchanged: bool,
    /// Services with a classic load balancer at the restart. Without any Service there is no restart.
    pub classic: usize,
    /// Services with a network load balancer at the restart.
    pub network: usize,
    /// New Services, with AWS's limits; 0 leaves them out.
    pub new: usize,
    pub kinds: Vec<Kind>,
    pub candidates: Vec<Candidate>,
}

impl Extent {
    /// Everything that `docs/benchmarks.md` shows.
    pub fn usual() -> Self {
        Self {
            unchanged: true,
            classic: 250,
            network: 250,
            new: 30,
            kinds: vec![Kind::Classic, Kind::Network],
            candidates: Candidate::ALL.to_vec(),
        }
    }

    /// So many Services at the restart, half of them with a network load balancer.
    pub fn with_services(self, count: usize) -> Self {
        let with_network = self.kinds.contains(&Kind::Network);
        let network = if with_network { count / 2 } else { 0 };
        Self {
            classic: count - network,
            network,
            ..self
        }
    }
}

impl Bench<'_> {
    /// Runs all scenarios of `extent`. The error of one is in the results, and the others run.
    pub async fn services(&self, extent: &Extent) -> Results {
        let mut results = Results::default();
        let failures = &mut results.failures;
        if extent.unchanged {
            (self.progress)("unchanged load balancers, all candidates at the same time: only calls are counted");
            let one = |candidate: &Candidate| self.unchanged(*candidate, &extent.kinds);
            for measured in join_all(extent.candidates.iter().map(one)).await {
                let kept = self.keep(measured, failures);
                results.unchanged.extend(kept.into_iter().flatten());
            }
        }

        if extent.classic + extent.network > 0 {
            let restarts = self.restarts(extent, &mut results.restarts, &mut results.joins).await;
            self.keep(restarts, failures);
        }

        if extent.new > 0 {
            let new = extent.new;
            (self.progress)(&format!(
                "{new} new Services, all candidates at the same time: AWS's limits take long"
            ));
            let one = |candidate: &Candidate| self.burst(*candidate, new);
            for measured in join_all(extent.candidates.iter().map(one)).await {
                results.bursts.extend(self.keep(measured, failures));
            }
        }

        results
    }

    async fn unchanged(&self, candidate: Candidate, kinds: &[Kind]) -> Result<Vec<Unchanged>> {
        let measured = async {
            let environment = self.environment("").await?;
            measure::unchanged(&environment, &self.programs, candidate, kinds).await
        };
        let name = candidate.name();
        measured
            .await
            .with_context(|| format!("unchanged load balancers, {name}"))
    }

    async fn restarts(&self, extent: &Extent, restarts: &mut Vec<Restart>, joins: &mut Vec<Join>) -> Result<()> {
        let (classic, network) = (extent.classic, extent.network);
        let title = format!("{classic} classic and {network} network load balancers");
        (self.progress)(&format!("creating {title}"));

        let mut environment = self.environment(WITHOUT_NODE_RULES).await?;
        let prepared = measure::prepare(&environment, &self.programs, classic, network).await;
        prepared.with_context(|| title.clone())?;
        for candidate in &extent.candidates {
            (self.progress)(&format!(
                "a start beside them, and a Node that joins, {}",
                candidate.name()
            ));
            let measured = measure::restart(&mut environment, &self.programs, *candidate, (classic, network)).await;
            let (restart, join) = measured.with_context(|| format!("{title}: {}", candidate.name()))?;
            let (started, joined) = (restart.last.as_secs_f64(), join.last.as_secs_f64());
            (self.progress)(&format!("  {started:.1} s, and {joined:.1} s"));
            restarts.push(restart);
            joins.push(join);
        }

        Ok(())
    }

    async fn burst(&self, candidate: Candidate, services: usize) -> Result<Burst> {
        let measured = async {
            let environment = self.environment("").await?;
            measure::burst(&environment, &self.programs, candidate, services).await
        };
        let name = candidate.name();
        measured
            .await
            .with_context(|| format!("{services} new Services, {name}"))
    }

    async fn environment(&self, config: &str) -> Result<Environment> {
        Environment::build(self.tools, &self.new_folder()?, self.range, config).await
    }
}
