//! Probes of manager and webhook by the kubelet, while idle connections fill their ports.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Config, ResourceExt};
use nix::sched::{CloneFlags, setns};
use outrigger_cluster_harness::wait::until;
use outrigger_e2e::test_nodes::SOON;
use tokio::time::{sleep, timeout};

use super::nodes::Machine;

/// To each port.
const CONNECTIONS: usize = 256;
/// Further connections, with TLS and an answered request.
const SESSIONS: usize = 16;
/// How often closed connections are opened again. Servers close them for new ones, or after some seconds, so the ports are
/// full between two times, too. With 200 ms the flood took the processors of a busy machine, and its API server restarted.
const EVERY: Duration = Duration::from_secs(1);
/// How often closed sessions are.
const SESSIONS_EVERY: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(5);

/// Holds the connections until each liveness probe succeeded more often than it may fail. No container restarts, and all
/// Pods stay ready.
pub async fn probes_succeed(client: &Client, machine: &Machine) -> Result<()> {
    let pods = pods(client).await?;
    let before = states(&pods);
    ensure!(before.len() == 3, "not manager and two webhooks: {before:?}");
    let goals = goals(&pods, &successes(client, machine).await?)?;
    let crowd = Crowd::gather(machine.network()?, ports(&pods)?);

    // Ends early when a container restarts or a Pod is not ready.
    let ended = async || -> Result<Option<BTreeMap<String, State>>> {
        sleep(Duration::from_secs(1)).await;
        let now = states(&self::pods(client).await?);
        if now != before {
            return Ok(Some(now));
        }
        let successes = successes(client, machine).await?;
        for (container, goal) in &goals {
            let count = successes.get(container).unwrap_or(&0);
            ensure!(count >= goal, "{container}: {count} of {goal} probes");
        }
        Ok(Some(now))
    };
    let after = until("probes under idle connections", SOON, ended).await?;

    for line in crowd.end()? {
        println!("{line}");
    }
    ensure!(
        after == before,
        "before: {before:#?}, under idle connections: {after:#?}"
    );
    Ok(())
}

/// The manager's port at the address that the kubelet probes, and both ports of a webhook, for which the kubelet has the
/// same source address as this crowd.
fn ports(pods: &[Pod]) -> Result<Vec<Port>> {
    let is_webhook = |pod: &&Pod| pod.name_any().starts_with("outrigger-webhook-");
    let webhook = pods.iter().find(is_webhook).context("no webhook")?;
    let address = webhook.status.as_ref().and_then(|status| status.pod_ip.as_ref());
    let address: IpAddr = address.context("no address of the webhook")?.parse()?;
    Ok(vec![
        Port::new((Ipv4Addr::LOCALHOST, 10258), true),
        Port::new((address, 8443), true),
        Port::new((address, 8081), false),
    ])
}

/// The Pods of the chart.
async fn pods(client: &Client) -> Result<Vec<Pod>> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?;
    let ours = |pod: &Pod| pod.name_any().starts_with("outrigger-");
    Ok(pods.items.into_iter().filter(ours).collect())
}

/// The restarts of a Pod's containers, and its readiness.
#[derive(Debug, PartialEq, Eq)]
struct State {
    restarts: i32,
    /// Since when it is ready, if it is.
    ready: Option<String>,
}

fn states(pods: &[Pod]) -> BTreeMap<String, State> {
    let state = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.into_iter().flatten();
        let mut conditions = status.conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True");
        let state = State {
            restarts: containers.map(|container| container.restart_count).sum(),
            ready: ready.map(|ready| format!("{:?}", ready.last_transition_time)),
        };
        (pod.name_any(), state)
    };
    pods.iter().map(state).collect()
}

/// How many liveness probes of each Pod have to succeed, beginning with those that did.
fn goals(pods: &[Pod], successes: &BTreeMap<String, i64>) -> Result<BTreeMap<String, i64>> {
    let goal = |pod: &Pod| {
        let name = pod.name_any();
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let probe = container.and_then(|container| container.liveness_probe.as_ref());
        let threshold = probe.and_then(|probe| probe.failure_threshold);
        let threshold = threshold.with_context(|| format!("{name} has no liveness probe"))?;
        let before = successes.get(&name).unwrap_or(&0);
        Ok((name, before + i64::from(threshold) + 1))
    };
    pods.iter().map(goal).collect()
}

/// The kubelet's count of the liveness probes of each Pod that succeeded:
/// <https://kubernetes.io/docs/reference/instrumentation/metrics/>
async fn successes(client: &Client, machine: &Machine) -> Result<BTreeMap<String, i64>> {
    let path = format!("/api/v1/nodes/{}/proxy/metrics/probes", machine.node);
    let text = client.request_text(Request::get(path).body(Vec::new())?).await?;
    let of_line = |line: &str| {
        let (labels, count) = line.strip_prefix("prober_probe_total{")?.split_once("} ")?;
        let labels: BTreeMap<_, _> = labels.split(',').filter_map(|label| label.split_once('=')).collect();
        let is = |label: &str, value: &str| labels.get(label).is_some_and(|text| text.trim_matches('"') == value);
        let is_success = is("probe_type", "Liveness") && is("result", "successful");
        let pod = labels.get("pod")?.trim_matches('"').to_owned();
        is_success.then_some((pod, count.parse().ok()?))
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// Idle connections. Dropping it closes them.
struct Crowd {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<String>>>>,
}

impl Crowd {
    /// Opens them in `network`.
    fn gather(network: File, ports: Vec<Port>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self {
            stop,
            thread: Some(spawn(move || hold(&network, ports, &stopped))),
        }
    }

    /// Closes them, and returns a line for each port.
    fn end(mut self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it has ended")?;
        let Ok(result) = thread.join() else {
            bail!("the thread with the connections panicked")
        };
        result
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hold(network: &File, mut ports: Vec<Port>, stopped: &AtomicBool) -> Result<Vec<String>> {
    setns(network, CloneFlags::CLONE_NEWNET).context("the network of the machine")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        while !stopped.load(Ordering::Relaxed) {
            for port in &mut ports {
                port.fill().await?;
            }
            sleep(EVERY).await;
        }
        ports.iter().map(Port::summary).collect()
    })
}

/// A port and the connections to it.
struct Port {
    address: SocketAddr,
    has_tls: bool,
    open: Vec<TcpStream>,
    sessions: Vec<Client>,
    renewed: Option<Instant>,
    opened: usize,
    answers: usize,
}

impl Port {
    fn new(address: impl Into<SocketAddr>, has_tls: bool) -> Self {
        Self {
            address: address.into(),
            has_tls,
            open: Vec::new(),
            sessions: Vec::new(),
            renewed: None,
            opened: 0,
            answers: 0,
        }
    }

    /// Opens what is missing. Servers close idle connections and replace them by new ones.
    async fn fill(&mut self) -> Result<()> {
        if self.has_tls && self.renewed.is_none_or(|renewed| renewed.elapsed() > SESSIONS_EVERY) {
            self.renew_sessions().await?;
            self.renewed = Some(Instant::now());
        }

        self.open.retain(is_open);
        while self.open.len() < CONNECTIONS {
            let Ok(stream) = TcpStream::connect_timeout(&self.address, CONNECT) else {
                return Ok(());
            };
            stream.set_nonblocking(true)?;
            self.open.push(stream);
            self.opened += 1;
        }
        Ok(())
    }

    /// Each session has a connection, which is kept after the answer.
    async fn renew_sessions(&mut self) -> Result<()> {
        while self.sessions.len() < SESSIONS {
            let mut config = Config::new(format!("https://{}", self.address).parse()?);
            config.accept_invalid_certs = true;
            self.sessions.push(Client::try_from(config)?);
        }
        for session in &self.sessions {
            let request = Request::get("/healthz").body(Body::empty())?;
            let answered = async { session.send(request).await?.into_body().collect_bytes().await };
            self.answers += usize::from(matches!(timeout(CONNECT, answered).await, Ok(Ok(_))));
        }
        Ok(())
    }

    fn summary(&self) -> Result<String> {
        let Self {
            address,
            opened,
            answers,
            ..
        } = self;
        ensure!(*opened >= CONNECTIONS, "{address}: only {opened} connections");
        ensure!(
            !self.has_tls || *answers >= SESSIONS,
            "{address}: only {answers} answers"
        );
        let open = self.open.iter().filter(|stream| is_open(stream)).count();
        Ok(format!(
            "{address}: {opened} idle connections opened, {open} of them open now, {answers} answers by TLS"
        ))
    }
}

/// Whether the server has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
