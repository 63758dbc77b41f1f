//! Our manager, started again when it ends, as a kubelet does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use outrigger_cluster_harness::process::{Launch, Process, peak_memory};
use outrigger_environment::Binaries;
use tokio::task::JoinHandle;

use super::cluster::CLUSTER;

/// Dropping it kills the process.
pub struct Manager {
    log: PathBuf,
    pid: Arc<AtomicI32>,
    restarts: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Manager {
    /// It calls no AWS: there is no Service with a load balancer.
    pub fn start(run: &Path, kubeconfig: &Path, flags: &[String]) -> Self {
        let config = run.join("cloud.conf");
        let text =
            format!("[Global]\nZone = us-east-1a\nVPC = vpc-1\nSubnetID = subnet-1\nKubernetesClusterID = {CLUSTER}\n");
        std::fs::write(&config, text).expect("written");

        let launch = Launch::new("outrigger-manager", Binaries::one("outrigger-manager").expect("built"))
            .arguments([
                "--cloud-provider=aws".to_owned(),
                format!("--cloud-config={}", config.display()),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--cluster-name={CLUSTER}"),
                "--configure-cloud-routes=false".to_owned(),
                "--controllers=service-lb-controller".to_owned(),
                "--secure-port=0".to_owned(),
                "--leader-elect-lease-duration=6s".to_owned(),
                "--leader-elect-renew-deadline=5s".to_owned(),
                "--leader-elect-retry-period=500ms".to_owned(),
            ])
            .arguments(flags.iter().cloned())
            .environment("AWS_ACCESS_KEY_ID", "none")
            .environment("AWS_SECRET_ACCESS_KEY", "none")
            .environment("AWS_REGION", "us-east-1")
            .environment("AWS_EC2_METADATA_DISABLED", "true")
            .environment("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
        let process = Process::start(&launch, run).expect("the manager starts");
        let log = process.log().to_owned();

        let (pid, restarts) = (Arc::new(AtomicI32::new(process.pid())), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&pid), Arc::clone(&restarts));
        let task = tokio::spawn(again(process, launch, run.to_owned(), counts));
        Self {
            log,
            pid,
            restarts,
            task,
        }
    }

    pub fn restarts(&self) -> usize {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The most memory that it has had since it started, in bytes.
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.pid.load(Ordering::Relaxed)).expect("it runs")
    }

    pub fn log_length(&self) -> u64 {
        self.log.metadata().map_or(0, |file| file.len())
    }

    pub fn log_since(&self, length: u64) -> String {
        let log = std::fs::read(&self.log).expect("its log");
        let from = usize::try_from(length).expect("a length");
        String::from_utf8_lossy(&log[from.min(log.len())..]).into_owned()
    }

    pub fn log_tail(&self) -> String {
        let log = self.log_since(0);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn again(
    mut process: Process,
    launch: Launch,
    run: PathBuf,
    (pid, restarts): (Arc<AtomicI32>, Arc<AtomicUsize>),
) {
    loop {
        process.ended().await;
        restarts.fetch_add(1, Ordering::Relaxed);
        process = Process::start(&launch, &run).expect("the manager starts again");
        pid.store(process.pid(), Ordering::Relaxed);
    }
}
