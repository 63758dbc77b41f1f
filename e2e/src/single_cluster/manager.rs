//! One process of a manager.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use outrigger_aws_sim::{Caller, Proxy, SeededAccount};
use outrigger_cluster_harness::cluster::{ApiServer, User};
use outrigger_cluster_harness::process::{Exit, Launch, Process, peak_memory};
use outrigger_cluster_harness::wait::{self, Answer};
use outrigger_environment::Binaries;

use super::CLUSTER;

/// The program of a manager, its configuration and its log.
pub(super) struct Files<'a> {
    pub program: PathBuf,
    pub run: &'a Path,
    pub kubeconfig: &'a Path,
    pub cloud_config: &'a Path,
}

/// A manager that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Manager {
    /// As AWS knows it.
    pub caller: Caller,
    process: Process,
}

impl Manager {
    pub(super) fn start(name: &str, flags: &[&str], files: &Files<'_>, proxy: &Proxy) -> Result<Self> {
        let caller = Caller::new(name);
        proxy.add_caller(&caller);

        let launch = launch(&caller, CLUSTER, files, proxy)
            .arguments(["--configure-cloud-routes=false".to_owned()])
            .arguments(flags.iter().copied());
        Ok(Self {
            process: Process::start(&launch, files.run)?,
            caller,
        })
    }

    /// Its name in the run, and in the record of AWS calls.
    pub fn name(&self) -> &str {
        &self.caller.name
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When it had ended by itself before.
    pub async fn kill(&self) -> Result<()> {
        self.alive()?;
        let exit = self.process.kill_now().await?;
        let killed = exit.status.is_some_and(|status| status.code().is_none());
        ensure!(killed, "{} had ended before: {exit:?}", self.name());
        Ok(())
    }

    /// Ends it (SIGTERM), and kills it when it has not ended within `grace`.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub async fn stop(&self, grace: Duration) -> Result<Exit> {
        Ok(self.process.stop(grace).await?)
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// When it has ended by itself; the end of its log tells why.
    pub fn alive(&self) -> Result<()> {
        let ended = self.process.exit().is_some();
        ensure!(!ended, "{} ended by itself:\n{}", self.name(), self.log_tail());
        Ok(())
    }

    /// Waits until a probe has a value.
    ///
    /// # Errors
    /// When it ends, or there is none within `limit`; with the end of its log.
    pub async fn until<A: Answer>(
        &self,
        what: &str,
        limit: Duration,
        probe: impl AsyncFnMut() -> A,
    ) -> Result<A::Value> {
        let held = tokio::select! {
            held = wait::until(what, limit, probe) => held,
            exit = self.process.ended() => bail!("{}: {exit:?} before {what}:\n{}", self.name(), self.log_tail()),
        };
        held.with_context(|| format!("the log of {} ends with:\n{}", self.name(), self.log_tail()))
    }

    /// Its log so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> Result<String> {
        let log = self.process.log();
        std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))
    }

    /// The most memory that it has had, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_memory(&self) -> Result<u64> {
        peak_memory(self.process.pid()).context("it has ended")
    }

    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// Starts our manager for the cluster of an account. `flags` come after those that say where the cluster and AWS are.
///
/// # Errors
/// When its binary is not built, or a file cannot be written.
pub fn start_manager(
    run: &Path,
    api: &ApiServer,
    account: &SeededAccount,
    proxy: &Proxy,
    flags: &[&str],
) -> Result<Process> {
    let cloud_config = run.join("cloud.conf");
    std::fs::write(&cloud_config, account.cloud_config(proxy.url())).context("writing the cloud config")?;

    let caller = Caller::new("outrigger-manager");
    proxy.add_caller(&caller);

    let files = Files {
        program: Binaries::one("outrigger-manager")?,
        run,
        kubeconfig: &api.kubeconfig(&User::admin())?,
        cloud_config: &cloud_config,
    };
    let launch = launch(&caller, &account.cluster_id, &files, proxy).arguments(flags.iter().copied());
    Ok(Process::start(&launch, run)?)
}

fn launch(caller: &Caller, cluster: &str, files: &Files<'_>, proxy: &Proxy) -> Launch {
    let mut launch = Launch::new(&caller.name, &files.program).arguments([
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", files.cloud_config.display()),
        format!("--kubeconfig={}", files.kubeconfig.display()),
        format!("--cluster-name={cluster}"),
        "--secure-port=0".to_owned(),
    ]);

    for (variable, value) in caller.environment(proxy.url()) {
        launch = launch.environment(variable, value);
    }

    launch
}
