//! Which scenarios, in which order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::candidate::{Contender, Programs};
use super::cloud::{Cloud, MOTO_INSTANCES, Machines};
use super::cluster::Ground;
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
    pub steady: Option<(usize, steady::Course)>,
    /// Nodes of the cold starts with AWS's limits.
    pub limited: Vec<usize>,
    /// Who takes part.
    pub contenders: Vec<Contender>,
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
                steady::Course {
                    quiet: Duration::from_secs(5),
                    window: Duration::from_secs(120),
                    leaving: 500,
                },
            )),
            limited: vec![1000, 5000],
            contenders: Contender::ALL.to_vec(),
        }
    }

    /// A few minutes, to see whether something has become slow.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes: vec![200, 1000],
            steady: None,
            limited: Vec::new(),
            contenders: vec![Contender::Outrigger, Contender::Tuned],
            ..Self::usual()
        }
    }

    fn takes_part(&self, contender: Contender, nodes: usize, limited: bool) -> bool {
        let able = match contender {
            Contender::Outrigger => true,
            // One worker is too slow to meet AWS's limits.
            Contender::Incumbent => nodes < ALONE && !limited && (self.full || nodes <= PATIENT),
            Contender::Tuned => nodes < ALONE && (self.full || !limited || nodes <= PATIENT),
        };
        able && self.contenders.contains(&contender)
    }
}

/// One run.
pub struct Bench<'a, P: Fn(&str)> {
    /// Where the real components are.
    pub tools: &'a Tools,
    /// The folder of the run: logs.
    pub folder: &'a Path,
    /// The range of the clusters' Services, in 127/8.
    pub range: &'a str,
    /// Who competes.
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
        if let Some((nodes, course)) = extent.steady {
            for contender in &extent.contenders {
                let measured = self.steady(&cloud, *contender, nodes, course).await;
                match measured.with_context(|| format!("steady state, {nodes} Nodes, {}", contender.name())) {
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
        let managers = Contender::ALL
            .into_iter()
            .filter(|who| extent.takes_part(*who, nodes, limited));
        let everyone = (!limited)
            .then_some(Who::Floor)
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
        let ground = self.ground().await?;
        ground.create(machines.instances.iter().map(node::tainted)).await?;
        match who {
            Who::Floor => baseline::measure(&ground, cloud, machines).await,
            Who::Manager(contender) => {
                cold::measure(&ground, cloud, machines, &self.programs, contender, limited).await
            }
        }
    }

    async fn steady(
        &self,
        cloud: &Cloud,
        contender: Contender,
        nodes: usize,
        course: steady::Course,
    ) -> Result<(super::result::Steady, Work)> {
        (self.progress)(&format!("steady state, {nodes} Nodes, {}", contender.name()));
        // A fleet of its own: Nodes leave it.
        let machines = cloud.fleet(nodes)?;
        let ground = self.ground().await?;
        ground.create(machines.instances.iter().map(node::initialized)).await?;
        steady::measure(&ground, cloud, &machines, &self.programs, contender, course).await
    }

    /// A fresh cluster in a folder of its own.
    async fn ground(&self) -> Result<Ground> {
        let folder: PathBuf = tempfile::Builder::new()
            .prefix("cluster-")
            .tempdir_in(self.folder)?
            .keep();
        Ground::build(self.tools, &folder, self.range).await
    }
}
