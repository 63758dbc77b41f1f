//! The simulated AWS of a whole run: moto behind the proxy that counts, and fleets where moto is too slow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::result::AwsCalls;
use outrigger_aws_sim::{Answer, Caller, Fleet, Instance, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::tools::Tools;

/// The cluster's ID in AWS's tags.
pub const CLUSTER: &str = "bench";
/// So many instances moto still describes in seconds; more come from a [`Fleet`].
pub const MOTO_INSTANCES: usize = 1000;

/// The simulated account.
pub struct Cloud {
    /// What controllers call.
    pub proxy: Proxy,
    /// The cloud config file of every candidate.
    pub config: PathBuf,
    account: SeededAccount,
    moto: Moto,
}

/// Where the instances of one cluster are.
#[derive(Debug, Clone)]
pub struct Machines {
    /// The instances, one for each Node.
    pub instances: Vec<Instance>,
    /// The fleet that they are in; none for moto's own.
    pub fleet: Option<Arc<Fleet>>,
}

impl Cloud {
    /// Starts moto and the proxy, without instances.
    ///
    /// # Errors
    /// When one does not start, or a file cannot be written.
    pub async fn start(tools: &Tools, run: &Path) -> Result<Self> {
        Self::start_with(tools, run, "").await
    }

    /// The same with more lines in section `[Global]` of the cloud config.
    ///
    /// # Errors
    /// As [`Cloud::start`].
    pub async fn start_with(tools: &Tools, run: &Path, more: &str) -> Result<Self> {
        let moto = Moto::start(tools, run).await?;
        let account = SeededAccount::seed(&moto, CLUSTER, 0).await?;
        let proxy = Proxy::start(&moto, &[], None).await?;
        let config = run.join("cloud.conf");
        let text = format!(
            "[Global]\nZone = {}\nVPC = {}\nSubnetID = {}\nRouteTableID = {}\nKubernetesClusterID = {CLUSTER}\n{more}",
            account.subnets[0].zone, account.vpc_id, account.subnets[0].id, account.route_table_id
        );
        std::fs::write(&config, text).with_context(|| config.display().to_string())?;

        Ok(Self {
            proxy,
            config,
            account,
            moto,
        })
    }

    /// So many instances, from moto where it can carry them; what the proxy answers is set accordingly.
    ///
    /// # Errors
    /// When moto refuses.
    pub async fn machines(&mut self, count: usize) -> Result<Machines> {
        if count <= MOTO_INSTANCES {
            let missing = count.saturating_sub(self.account.instances.len());
            self.account.add_instances(&self.moto, missing).await?;
            self.proxy.set_fleet(None);
            let instances = self.account.instances.get(..count).unwrap_or_default().to_vec();
            return Ok(Machines { instances, fleet: None });
        }
        self.fleet(count)
    }

    /// So many instances, all from a fleet.
    ///
    /// # Errors
    /// When there are more than a number can tell.
    pub fn fleet(&self, count: usize) -> Result<Machines> {
        let fleet = Arc::new(Fleet::new(&self.account, u32::try_from(count)?));
        self.proxy.set_fleet(Some(Arc::clone(&fleet)));
        Ok(Machines {
            instances: fleet.instances(),
            fleet: Some(fleet),
        })
    }

    /// A new access key for a process.
    pub fn caller(&self, name: &str) -> Caller {
        let caller = Caller::new(name);
        self.proxy.add_caller(&caller);
        caller
    }

    /// What the caller of this name has asked since `mark`.
    #[must_use]
    pub fn calls(&self, mark: u64, name: &str) -> AwsCalls {
        let mut by_action = BTreeMap::new();
        let mut throttled = 0;
        for call in self.proxy.calls_since(mark).iter().filter(|call| call.caller == name) {
            *by_action.entry(call.action.clone()).or_default() += 1;
            let refused = |outcome: &outrigger_aws_sim::Outcome| outcome.answer == Answer::Throttle;
            throttled += usize::from(call.outcome.as_ref().is_some_and(refused));
        }

        AwsCalls { by_action, throttled }
    }
}
