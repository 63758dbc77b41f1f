//! etcd on loopback, without waiting for disks: a test's data need not survive the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::loopback::expect_ok;
use crate::process::{Launch, Process, free_port};
use crate::tools::{Tool, Tools};

use super::error::ClusterError;
use super::start::{create_folder, with_free_ports, with_processor_limit};

/// Collects garbage when the heap has grown to five times its size, instead of twice: memory for processor time
/// (<https://go.dev/doc/gc-guide#GOGC>).
const GARBAGE_COLLECTION: &str = "400";

/// A running etcd with one member. One can serve several API servers, each under its own key prefix.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    launch: Launch,
    home: PathBuf,
    url: String,
}

impl Etcd {
    /// Starts etcd with its data and log in `run`/etcd. Ready in about a second.
    ///
    /// # Errors
    /// When it does not start or is not healthy within 60 s.
    pub async fn start(tools: &Tools, run: &Path) -> Result<Self, ClusterError> {
        let home = run.join("etcd");
        create_folder(&home)?;
        let program = tools.path(Tool::Etcd)?;
        with_free_ports(|| Self::start_once(program, &home)).await
    }

    async fn start_once(program: &Path, home: &Path) -> Result<Self, ClusterError> {
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let launch = Launch::new("etcd", program).arguments([
            "--name=only".to_owned(),
            format!("--data-dir={}", home.join("data").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=only={peer}"),
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
        ]);
        let launch = with_processor_limit(launch.environment("GOGC", GARBAGE_COLLECTION));

        let process = Process::start(&launch, home)?;
        let etcd = Self {
            process,
            launch,
            home: home.to_owned(),
            url,
        };

        etcd.wait_healthy().await?;

        Ok(etcd)
    }

    async fn wait_healthy(&self) -> Result<(), ClusterError> {
        let health = format!("{}/health", self.url);
        self.process
            .ready("healthy answer", Duration::from_secs(60), || expect_ok(&health))
            .await?;
        Ok(())
    }

    /// Starts it again at the same address with the same data, after a stop or a kill.
    ///
    /// # Errors
    /// When it is not healthy within 60 s.
    pub async fn start_again(&mut self) -> Result<(), ClusterError> {
        self.process = Process::start(&self.launch, &self.home)?;
        self.wait_healthy().await
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn process(&self) -> &Process {
        &self.process
    }
}
