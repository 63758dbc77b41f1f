//! The compared servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, sleep};

use super::answer::{Reference, References};
use super::client::{self, Connections};
use super::environment::Environment;
use super::histogram::Histogram;
use super::placement::Placement;
use super::review::{Object, Reviews, uid};
use super::usage::Usage;
use outrigger_cluster_harness::loopback::LoopbackClient;
use outrigger_cluster_harness::process::{Launch, Process, free_port};

/// Between two requests for `/readyz`: the resolution of the start-up time. That of [`Process::ready`] is coarser.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
const READY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// Our webhook.
    Outrigger,
    /// The same work with controller-runtime.
    Go,
}

impl Candidate {
    /// In the order of each round.
    pub const ALL: [Self; 2] = [Self::Outrigger, Self::Go];

    const fn name(self) -> &'static str {
        match self {
            Self::Outrigger => "outrigger-webhook",
            Self::Go => "webhook-go",
        }
    }

    const fn histogram(self) -> &'static str {
        match self {
            Self::Outrigger => "outrigger_webhook_review_duration_seconds",
            Self::Go => "webhook_go_review_duration_seconds",
        }
    }

    fn arguments(self, environment: &Environment) -> Vec<String> {
        let certificates = format!("--cert-dir={}", environment.certificates.display());
        let own = match self {
            Self::Outrigger => vec![
                format!("--kubeconfig={}", environment.cluster.kubeconfig.display()),
                // The load generator stands for an API server.
                "--api-server-source=127.0.0.0/8".to_owned(),
            ],
            Self::Go => vec![format!("--migrations={}", environment.migrations.display())],
        };
        [vec![certificates], own].concat()
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    candidate: Candidate,
    process: Process,
    /// For reviews.
    pub address: SocketAddr,
    health: SocketAddr,
    /// From its start to the first 200 of `/readyz`.
    pub ready_after: Duration,
}

impl Server {
    /// Starts a server, on its own processor if there is a placement, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, ends, or is not ready within a minute.
    pub async fn start(
        candidate: Candidate,
        program: PathBuf,
        environment: &Environment,
        placement: Option<&Placement>,
    ) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let health = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let launch = Launch::new(candidate.name(), program)
            .arguments([
                format!("--bind-address={address}"),
                format!("--health-bind-address={health}"),
            ])
            .arguments(candidate.arguments(environment))
            // As in the Deployment; the Go program does not use this allocator.
            .environment("MALLOC_ARENA_MAX", "2");
        let begin = Instant::now();
        let start = || Process::start(&launch, &environment.cluster.folder);
        let process = match placement {
            Some(placement) => placement.on_servers_processor(start)?,
            None => start(),
        }?;
        let mut server = Self {
            candidate,
            process,
            address,
            health,
            ready_after: Duration::ZERO,
        };
        let mut reason = "nothing".to_owned();

        while begin.elapsed() < READY {
            match server.ask("readyz").await {
                Ok(_) => {
                    server.ready_after = begin.elapsed();
                    return Ok(server);
                }
                Err(error) => reason = format!("{error:#}"),
            }

            server.process.ensure_running()?;
            sleep(PROBE_INTERVAL).await;
        }

        let (name, seconds, log) = (candidate.name(), READY.as_secs(), server.process.log_tail());
        bail!("{name} is not ready after {seconds} s ({reason}):\n{log}")
    }

    async fn ask(&self, path: &str) -> Result<String> {
        let request = Request::get(format!("http://{}/{path}", self.health)).body(Full::<Bytes>::default())?;
        let response = LoopbackClient::default().send(request).await?;
        let (status, body) = (response.status(), String::from_utf8_lossy(response.body()).into_owned());
        ensure!(status == StatusCode::OK, "/{path} answers {status}: {body}");
        Ok(body)
    }

    /// The latencies that the server has measured.
    pub async fn histogram(&self) -> Result<Histogram> {
        Histogram::parse(&self.ask("metrics").await?, self.candidate.histogram())
    }

    /// # Errors
    /// When it has ended.
    pub fn usage(&self) -> Result<Usage> {
        self.process.ensure_running()?;
        Usage::of(self.process.pid())
    }

    /// Requests one review of each object and checks the whole answer.
    ///
    /// # Errors
    /// When an answer is wrong.
    pub async fn references(&self, environment: &Environment, reviews: &Reviews) -> Result<References> {
        let connections = Connections::open(self.address, &environment.authority, 1).await?;
        let (mut references, name) = (Vec::new(), self.candidate.name());
        for object in Object::ALL {
            let uid = uid(0);
            let (status, body) = client::post(&mut connections.sender(0)?, reviews.of(object).body(&uid)).await?;
            let text = String::from_utf8_lossy(&body);
            ensure!(status == StatusCode::OK, "{name} answers {status}: {text}");

            let reference = Reference::new(reviews, object, &uid, &body);
            references.push((object, reference.context(name)?));
        }

        Ok(References::new(references))
    }

    /// Kills it, without its drain for API servers.
    pub async fn stop(self) -> Result<()> {
        self.process.kill_now().await?;
        Ok(())
    }
}
