//! The scenarios of a run, in their order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::candidate::{Candidate, Programs};
use super::cloud::{Cloud, MOTO_INSTANCES, Machines};
use super::cluster::Cluster;
use super::result::{Results, Steady, Subject, Work};
use super::{cold, node, steady};
use outrigger_cluster_harness::tools::Tools;

/// The most Nodes of a cold start of the incumbent with its defaults: 5,000 take 18 minutes.
const PATIENT: usize = 2000;
/// From so many Nodes on only Outrigger is measured, for its growth.
const ALONE: usize = 8000;

/// The scenarios of a run, and their sizes.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Nodes of the cold starts, ascending.
    pub sizes: Vec<usize>,
    /// Whether the incumbent with its defaults starts with thousands of Nodes too.
    pub full: bool,
    /// Nodes in steady state, and how long; none leaves it out.
    pub steady: Option<(usize, steady::Options)>,
    /// Nodes of the cold starts with AWS's limits.
    pub limited: Vec<usize>,
    pub candidates: Vec<Candidate>,
}

impl Extent {
    /// Everything that `docs/benchmarks.md` shows.
    pub fn usual() -> Self {
        let steady = steady::Options {
            quiet: Duration::from_secs(5),
            window: Duration::from_secs(120),
            leaving: 500,
        };
        Self {
            sizes: vec![200, 1000, 5000, 10_000],
            full: false,
            steady: Some((5000, steady)),
            limited: vec![1000, 5000],
            candidates: Candidate::ALL.to_vec(),
        }
    }

    /// Takes a few minutes.
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

/// The environment of all scenarios.
pub struct Bench<'a> {
    pub tools: &'a Tools,
    pub folder: &'a Path,
    /// The range of the clusters' Services, in 127/8.
    pub range: &'a str,
    pub programs: Programs,
    /// Prints a line of progress.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl Bench<'_> {
    /// Runs all scenarios of `extent`. The error of one is in the results, and the others run.
    ///
    /// # Errors
    /// When the simulated AWS does not start.
    pub async fn manager(&self, extent: &Extent) -> Result<Results> {
        let mut results = Results::default();
        let mut cloud = Cloud::start(self.tools, self.folder, "").await?;
        for nodes in &extent.sizes {
            self.cold(extent, &mut cloud, *nodes, false, &mut results).await?;
        }

        for nodes in &extent.limited {
            self.cold(extent, &mut cloud, *nodes, true, &mut results).await?;
        }

        if let Some((nodes, options)) = extent.steady {
            for candidate in &extent.candidates {
                let title = format!("steady state, {nodes} Nodes, {}", candidate.name());
                (self.progress)(&title);
                let measured = self.steady(&cloud, *candidate, nodes, options).await.context(title);
                let (steady, left) = self.keep(measured, &mut results.failures).unzip();
                results.steady.extend(steady);
                results.leaving.extend(left);
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
            results.moto_describe = Some(cold::describe(cloud, &machines.instances).await?);
        }

        let mut managers = Candidate::ALL.to_vec();
        managers.retain(|candidate| extent.takes_part(*candidate, nodes, limited));
        let baseline = (!limited).then_some(Subject::Baseline);
        for by in baseline.into_iter().chain(managers.into_iter().map(Subject::Manager)) {
            let limits = if limited { ", AWS's limits" } else { "" };
            let title = format!("cold start, {nodes} Nodes{limits}, {}", by.name());
            (self.progress)(&title);
            let measured = self.one_cold(cloud, &machines, by, limited).await.context(title);
            if let Some(work) = self.keep(measured, &mut results.failures) {
                let seconds = work.last.as_secs_f64();
                (self.progress)(&format!("  {} of {nodes} in {seconds:.2} s", work.done));
                results.cold.push(work);
            }
        }

        Ok(())
    }

    pub(crate) async fn one_cold(
        &self,
        cloud: &Cloud,
        machines: &Machines,
        by: Subject,
        limited: bool,
    ) -> Result<Work> {
        let cluster = self.cluster().await?;
        cluster.create(machines.instances.iter().map(node::tainted)).await?;
        match by {
            Subject::Baseline => cold::baseline(&cluster, cloud, machines).await,
            Subject::Manager(candidate) => {
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
    ) -> Result<(Steady, Work)> {
        // Nodes leave this fleet, so no other scenario uses it.
        let machines = cloud.fleet(nodes)?;
        let cluster = self.cluster().await?;
        cluster.create(machines.instances.iter().map(node::initialized)).await?;
        steady::measure(&cluster, cloud, &machines, &self.programs, candidate, options).await
    }

    async fn cluster(&self) -> Result<Cluster> {
        Cluster::build(self.tools, &self.new_folder()?, self.range).await
    }

    pub(crate) fn new_folder(&self) -> Result<PathBuf> {
        let folder = tempfile::Builder::new().prefix("scenario-").tempdir_in(self.folder)?;
        Ok(folder.keep())
    }

    /// The result of a scenario; an error goes to `failures`.
    pub(crate) fn keep<T>(&self, measured: Result<T>, failures: &mut Vec<String>) -> Option<T> {
        let error = match measured {
            Ok(measured) => return Some(measured),
            Err(error) => format!("{error:#}"),
        };
        (self.progress)(&format!("  {error}"));
        failures.push(error);
        None
    }
}
