//! The simulated AWS of a whole run: moto behind the proxy that counts, and fleets where moto is too slow.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::result::AwsCalls;
use outrigger_aws_sim::{Caller, Fleet, Instance, Moto, Proxy, SeededAccount};
use outrigger_cluster_harness::tools::Tools;

/// The cluster's ID in AWS's tags.
pub const CLUSTER: &str = "bench";
/// The most instances that moto describes in seconds. More are in a [`Fleet`].
pub const MOTO_INSTANCES: usize = 1000;

/// The simulated account.
pub struct Cloud {
    pub proxy: Proxy,
    /// The cloud config file of every candidate.
    pub config: PathBuf,
    account: SeededAccount,
    moto: Moto,
}

/// The instances of one cluster.
#[derive(Debug, Clone)]
pub struct Machines {
    /// One for each Node.
    pub instances: Vec<Instance>,
    /// None for those of moto.
    pub fleet: Option<Arc<Fleet>>,
}

impl Cloud {
    /// Starts moto and the proxy, without instances. `more` are further lines in section `[Global]` of the cloud
    /// config.
    pub async fn start(tools: &Tools, run: &Path, more: &str) -> Result<Self> {
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

    /// One more instance of moto.
    pub async fn machine(&mut self) -> Result<Machines> {
        let known = self.account.instances.len();
        let mut machines = self.machines(known + 1).await?;
        machines.instances.drain(..known);
        Ok(machines)
    }

    /// Instances, of moto up to [`MOTO_INSTANCES`].
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

    /// Instances in a fleet, which the proxy describes.
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

    /// The calls of the caller with this name.
    pub fn calls(&self, mark: u64, name: &str) -> AwsCalls {
        let calls = self.proxy.calls_since(mark);
        AwsCalls::of_calls(calls.iter().filter(|call| call.caller == name))
    }
}
