//! Which scenarios, in which order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::candidate::{Candidate, Programs};
use super::cloud::{Cloud, MOTO_INSTANCES, Machines};
use super::cluster::Cluster;
use super::result::{Results, Who, Work};
use super::{baseline, cold, node, steady};
use outrigger_cluster_harness::tools::Tools;

/// From so many Nodes on the incumbent with its defaults is left out of cold starts: 18 minutes for 5,000.
const PATIENT: usize = 2000;
/// From so many on ours is alone: what is asked there is whether it grows in step.
const ALONE: usize = 8000;

/// What is wanted of a run.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Nodes of the cold starts, ascending.
    pub sizes: Vec<usize>,
    /// Whether the incumbent with its defaults starts with thousands of Nodes, too.
    pub full: bool,
    /// Nodes in steady state, and how long; none to leave it out.
    pub steady: Option<(usize, steady::Options)>,
    /// Nodes of the cold starts with AWS's limits.
    pub limited: Vec<usize>,
    /// Who takes part.
    pub candidates: Vec<Candidate>,
}

impl Extent {
    /// Everything that `docs/benchmarks.md` shows.
    #[must_use]
    pub fn usual() -> Self {
        Self {
            sizes: vec![200, 1000, 5000, 10_000],
            full: false,
            steady: Some((
                5000,
                steady::Options {
                    quiet: Duration::from_secs(5),
                    window: Duration::from_secs(120),
                    leaving: 500,
                },
            )),
            limited: vec![1000, 5000],
            candidates: Candidate::ALL.to_vec(),
        }
    }

    /// A few minutes, to see whether something has become slow.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes: vec![200, 1000],
            steady: None,
            limited: Vec::new(),
            candidates: vec![Candidate::Outrigger, Candidate::Tuned],
            ..Self::usual()
        }
    }

    fn takes_part(&self, candidate: Candidate, nodes: usize, limited: bool) -> bool {
        let able = match candidate {
            Candidate::Outrigger => true,
            // One worker is too slow to meet AWS's limits.
            Candidate::Incumbent => nodes < ALONE && !limited && (self.full || nodes <= PATIENT),
            Candidate::Tuned => nodes < ALONE && (self.full || !limited || nodes <= PATIENT),
        };
        able && self.candidates.contains(&candidate)
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
    ///
    /// # Errors
    /// When the simulated AWS does not start.
    pub async fn run(&self, extent: &Extent) -> Result<Results> {
        let mut results = Results::default();
        let mut cloud = Cloud::start(self.tools, self.folder).await?;
        for nodes in &extent.sizes {
            self.cold(extent, &mut cloud, *nodes, false, &mut results).await?;
        }

        for nodes in &extent.limited {
            self.cold(extent, &mut cloud, *nodes, true, &mut results).await?;
        }

        if let Some((nodes, options)) = extent.steady {
            for candidate in &extent.candidates {
                let measured = self.steady(&cloud, *candidate, nodes, options).await;
                match measured.with_context(|| format!("steady state, {nodes} Nodes, {}", candidate.name())) {
                    Ok((steady, left)) => {
                        results.steady.push(steady);
                        results.leaving.push(left);
                    }
                    Err(error) => results.failures.push(format!("{error:#}")),
                }
            }
        }

        Ok(results)
    }

    async fn cold(
        &self,
        extent: &Extent,
        cloud: &mut Cloud,
        nodes: usize,
        limited: bool,
        results: &mut Results,
    ) -> Result<()> {
        let machines = cloud.machines(nodes).await?;
        if nodes == MOTO_INSTANCES && results.moto_describe.is_none() {
            results.moto_describe = Some(baseline::describe(cloud, &machines.instances).await?);
        }

        let managers = Candidate::ALL
            .into_iter()
            .filter(|who| extent.takes_part(*who, nodes, limited));
        let everyone = (!limited)
            .then_some(Who::Baseline)
            .into_iter()
            .chain(managers.map(Who::Manager));
        for who in everyone {
            let limits = if limited { ", AWS's limits" } else { "" };
            let title = format!("cold start, {nodes} Nodes{limits}, {}", who.name());
            (self.progress)(&title);
            match self.one_cold(cloud, &machines, who, limited).await.context(title) {
                Ok(work) => {
                    (self.progress)(&format!(
                        "  {} of {nodes} in {:.2} s",
                        work.done,
                        work.last.as_secs_f64()
                    ));
                    results.cold.push(work);
                }
                Err(error) => {
                    (self.progress)(&format!("  {error:#}"));
                    results.failures.push(format!("{error:#}"));
                }
            }
        }

        Ok(())
    }

    async fn one_cold(&self, cloud: &Cloud, machines: &Machines, who: Who, limited: bool) -> Result<Work> {
        let cluster = self.cluster().await?;
        cluster.create(machines.instances.iter().map(node::tainted)).await?;
        match who {
            Who::Baseline => baseline::measure(&cluster, cloud, machines).await,
            Who::Manager(candidate) => {
                cold::measure(&cluster, cloud, machines, &self.programs, candidate, limited).await
            }
        }
    }

    async fn steady(
        &self,
        cloud: &Cloud,
        candidate: Candidate,
        nodes: usize,
        options: steady::Options,
    ) -> Result<(super::result::Steady, Work)> {
        (self.progress)(&format!("steady state, {nodes} Nodes, {}", candidate.name()));
        // A fleet of its own: Nodes leave it.
        let machines = cloud.fleet(nodes)?;
        let cluster = self.cluster().await?;
        cluster.create(machines.instances.iter().map(node::initialized)).await?;
        steady::measure(&cluster, cloud, &machines, &self.programs, candidate, options).await
    }

    /// A fresh cluster in a folder of its own.
    async fn cluster(&self) -> Result<Cluster> {
        let folder: PathBuf = tempfile::Builder::new()
            .prefix("cluster-")
            .tempdir_in(self.folder)?
            .keep();
        Cluster::build(self.tools, &folder, self.range).await
    }
}
