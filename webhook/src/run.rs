//! Starts the watches, tasks and servers, and stops them in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::client::ClientBuilder;
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use outrigger_api_client::AnswerLimit;
use outrigger_certs::{Clients, Reloader, tls};
use outrigger_decide::registration;
use outrigger_serving::{Drained, Server, TaskEnded, Tasks};
use outrigger_shared::kubeconfig::{self, Author};
use outrigger_shared::migration::CloudProviderMigration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::admit::Reviewer;
use crate::args::Args;
use crate::callers::ApiServers;
use crate::health::{self, Health};
use crate::metrics::{Metrics, Port, WatchedType};
use crate::registration_check::{RegistrationCheck, Report};
use crate::routes;
use crate::self_signed::{Controller, Options};
use crate::stored_objects::Check;
use crate::view::{Clusters, Freshness, Migrations, Namespaces, WatchTask, only};

/// Time to reach an API server; the answer to a list may take longer.
const CONNECT: Duration = Duration::from_secs(5);

/// Runs the webhook until SIGTERM or SIGINT, and then until its last request is answered.
///
/// # Errors
/// When it cannot start: a bad certificate, a bad kubeconfig, a port in use. When a task ended before the signal.
pub async fn run(args: Args) -> Result<()> {
    let metrics = Metrics::new();
    let loaded = loaded_certificates(&args)?;
    let clusters = ClusterClients::of(&args).await?;
    let controller = self_signed(&args, &clusters)?;
    let certificates = controller.as_ref().map(Controller::certificates).or(loaded);
    let certificates = certificates.context("neither --cert-dir nor --self-signed-secret")?;
    let callers = client_certificates(&args)?;
    let tls = tls::server_config(outrigger_certs::provider(), Arc::clone(&certificates) as _, &callers)
        .context("cannot set up TLS")?;
    let listener = bind(args.bind_address)?;
    let health_listener = bind(args.health_bind_address)?;

    let (tasks, mut ended) = Tasks::new();
    // Two tokens: `stopping` makes /readyz fail, `stop` ends every task later.
    let (stopping, stop) = (CancellationToken::new(), tasks.stop().clone());
    let reviewer = watch(&args, &clusters, &metrics, &tasks);
    let api_servers = ApiServers::new(args.limits.api_server_sources.clone());
    watch_api_servers(&clusters.management, &api_servers, &metrics).spawn(&tasks);
    if controller.is_none() {
        let reload = Arc::clone(&certificates).run(args.cert_reload_interval, stop.clone());
        tasks.spawn("certificate", reload);
    }
    if let tls::Callers::Checked(clients) = callers {
        tasks.spawn("client CAs", clients.run(args.cert_reload_interval, stop.clone()));
    }

    let registration = Arc::<Report>::default();
    if args.check_registration {
        let client = clusters.management.clone();
        registration_check(&args, client, &reviewer, &certificates, &registration).spawn(&tasks);
    }

    let health = Arc::new(Health {
        reviewer: Arc::clone(&reviewer),
        certificates,
        obstacle: controller.as_ref().map(Controller::obstacle).unwrap_or_default(),
        registration,
        stopping: stopping.clone(),
    });
    let health_server = health_server(&health, &metrics);
    let health_listener = health_listener.into_std().context("cannot serve probes")?;
    tasks.spawn("health server", serve_apart(health_server, health_listener, stop));

    let admission = Server {
        tls: Some(Arc::new(tls)),
        router: routes::router(reviewer, api_servers, args.limits.requests()),
        limits: args.limits.connections(),
        observer: metrics.of_port(Port::Admission),
    };
    let accepting = CancellationToken::new();
    let (drained, is_drained) = oneshot::channel();
    let serving = admission.serve(listener, accepting.clone());
    tasks.spawn("admission server", async {
        // The receiver waits in this function, which may have ended.
        let _ = drained.send(serving.await);
    });
    tracing::info!(address = %args.bind_address, health = %args.health_bind_address, "serving");
    if let Some(controller) = controller {
        let is_ready = move || health.unready(Timestamp::now()).is_empty();
        controller.spawn(is_ready, &metrics, &tasks);
    }

    let failed = signal_or_failure(&mut ended).await?;
    stopping.cancel();
    tracing::info!(delay = ?args.limits.shutdown_delay, "shutting down; serving until endpoints are updated");
    tokio::time::sleep(args.limits.shutdown_delay).await;
    accepting.cancel();

    let is_clean = is_drained.await == Ok(Drained::Clean);
    // The health server ends open probes and scrapes by its own drain time.
    tasks.end().await;
    tracing::info!(clean = is_clean, "stopped");

    failed.map_or(Ok(()), |failed| Err(failed.into()))
}

fn health_server(health: &Arc<Health>, metrics: &Arc<Metrics>) -> Server {
    Server {
        tls: None,
        router: health::router(Arc::clone(health)),
        limits: health::limits(),
        observer: metrics.of_port(Port::Health),
    }
}

/// Serves on a thread and a runtime of its own: probes and metrics wait for no other work of the process.
async fn serve_apart(server: Server, listener: std::net::TcpListener, stop: CancellationToken) {
    let serving = spawn_blocking(move || -> Result<Drained> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            Ok(server.serve(listener, stop).await)
        })
    });
    if let Err(error) = serving.await.context("a panic").flatten() {
        tracing::error!("cannot serve probes and metrics: {error:#}");
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener> {
    outrigger_serving::listen(address, false)
        .with_context(|| format!("cannot listen on {address}; is the port in use?"))
}

fn client_certificates(args: &Args) -> Result<tls::Callers> {
    let Some(file) = &args.client_ca_file else {
        return Ok(tls::Callers::Any);
    };
    let clients = Clients::load(file.clone(), args.client_names.clone(), outrigger_certs::provider())
        .context("cannot check client certificates with --client-ca-file")?;
    Ok(tls::Callers::Checked(Arc::new(clients)))
}

/// The management cluster, and the clusters of `--cluster-kubeconfig`.
struct ClusterClients {
    management: Client,
    named: Vec<(String, Client)>,
}

impl ClusterClients {
    async fn of(args: &Args) -> Result<Self> {
        let management = client(args.kubeconfig.as_deref(), Author::Operator)
            .await
            .context("cannot use the management cluster")?;
        let mut named = Vec::new();
        for (name, file) in &args.cluster_kubeconfigs {
            let client = client(Some(file), Author::Tenant)
                .await
                .with_context(|| format!("cannot use the cluster {name:?}"))?;
            named.push((name.clone(), client));
        }

        Ok(Self { management, named })
    }
}

fn loaded_certificates(args: &Args) -> Result<Option<Arc<Reloader>>> {
    let Some(directory) = &args.cert_dir else {
        return Ok(None);
    };
    let certificates = Reloader::load(args.source(directory), outrigger_certs::provider(), Timestamp::now())
        .context("cannot serve with the certificate in --cert-dir")?;
    Ok(Some(Arc::new(certificates)))
}

/// Prepares the task that serves and renews the certificate of `--self-signed-secret`.
fn self_signed(args: &Args, clusters: &ClusterClients) -> Result<Option<Controller>> {
    let flags = &args.self_signed;
    let Some(secret) = flags.self_signed_secret.clone() else {
        return Ok(None);
    };
    let options = Options {
        client: clusters.management.clone(),
        namespace: args.own_namespace.clone(),
        secret,
        settings: args.settings().map_err(anyhow::Error::msg)?,
    };
    let mut controller = Controller::new(options);
    let named = clusters.named.iter().map(|(name, client)| (name.as_str(), client));
    for (name, client) in [("management", &clusters.management)].into_iter().chain(named) {
        let (mutating, validating) = (
            &flags.mutating_webhook_configurations,
            &flags.validating_webhook_configurations,
        );
        controller.add_registrations(name, client, mutating, validating);
    }

    Ok(Some(controller))
}

fn registration_check(
    args: &Args,
    client: Client,
    reviewer: &Arc<Reviewer>,
    certificates: &Arc<Reloader>,
    report: &Arc<Report>,
) -> RegistrationCheck {
    RegistrationCheck {
        client,
        reviewer: Arc::clone(reviewer),
        certificates: Arc::clone(certificates),
        server_names: args.server_names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        options: registration::Options {
            namespace: args.own_namespace.clone(),
            control_plane_policy: args.control_plane_failure_policy,
            ..registration::Options::new(&[])
        },
        report: Arc::clone(report),
    }
}

/// Starts every watch; returns the indexes that the watches fill.
fn watch(args: &Args, clients: &ClusterClients, metrics: &Arc<Metrics>, tasks: &Tasks) -> Arc<Reviewer> {
    let client = clients.management.clone();
    let migrations = Migrations::new(Arc::clone(metrics));
    let namespaces = Namespaces::new(Some(Api::all(client.clone())));
    let kind = ApiResource::erase::<CloudProviderMigration>(&());
    let watch_migrations = WatchTask {
        api: Api::<DynamicObject>::all_with(client.clone(), &kind),
        config: watcher::Config::default(),
        most: usize::MAX,
        index: Arc::clone(&migrations),
        watched: WatchedType::Migrations,
        cluster: "management".to_owned(),
        metrics: Arc::clone(metrics),
    };

    let watch_namespaces = WatchTask {
        api: Api::all(client.clone()),
        config: watcher::Config::default(),
        most: usize::MAX,
        index: Arc::clone(&namespaces),
        watched: WatchedType::Namespaces,
        cluster: "management".to_owned(),
        metrics: Arc::clone(metrics),
    };

    watch_migrations.spawn(tasks);
    watch_namespaces.spawn(tasks);

    let mut clusters = Clusters::default();
    let lease = |client, index: &Arc<Freshness>, name: &str| watch_lease(args, client, index, name, metrics);
    lease(client.clone(), &clusters.own, "management").spawn(tasks);
    for (name, client) in &clients.named {
        let freshness = Arc::<Freshness>::default();
        lease(client.clone(), &freshness, name).spawn(tasks);
        clusters.named.insert(name.clone(), freshness);
    }

    let reviewer = Arc::new(Reviewer {
        migrations,
        namespaces,
        clusters,
        own_namespace: args.own_namespace.clone(),
        metrics: Arc::clone(metrics),
    });
    if !args.check_interval.is_zero() {
        let check = Check {
            client,
            reviewer: Arc::clone(&reviewer),
            every: args.check_interval,
        };
        tasks.spawn("stored objects", check.run(tasks.stop().clone()));
    }

    reviewer
}

/// Watches the addresses of the API servers of the management cluster.
fn watch_api_servers(
    management: &Client,
    index: &Arc<ApiServers>,
    metrics: &Arc<Metrics>,
) -> WatchTask<EndpointSlice, ApiServers> {
    let (namespace, name) = registration::API_SERVERS;
    WatchTask {
        api: Api::namespaced(management.clone(), namespace),
        config: only(name),
        most: 1,
        index: Arc::clone(index),
        watched: WatchedType::ApiServers,
        cluster: "management".to_owned(),
        metrics: Arc::clone(metrics),
    }
}

fn watch_lease(
    args: &Args,
    client: Client,
    index: &Arc<Freshness>,
    cluster: &str,
    metrics: &Arc<Metrics>,
) -> WatchTask<Lease, Freshness> {
    WatchTask {
        api: Api::namespaced(client, &args.leader_elect_resource_namespace),
        config: only(&args.leader_elect_resource_name),
        most: 1,
        index: Arc::clone(index),
        watched: WatchedType::Lease,
        cluster: cluster.to_owned(),
        metrics: Arc::clone(metrics),
    }
}

/// Bytes of an answer of a tenant's API server: more than a Lease or a registration has. Parsed, hostile JSON takes up to
/// 160 times as much for a moment: 20 MiB.
const OF_TENANTS: usize = 128 << 10;

async fn client(kubeconfig: Option<&Path>, author: Author) -> Result<Client> {
    let mut config = match kubeconfig {
        None => Config::incluster().context("no --kubeconfig, and this is not a Pod with a service account")?,
        Some(file) => kubeconfig::config(file, author)
            .await
            .with_context(|| format!("kubeconfig {}", file.display()))?,
    };

    config.connect_timeout = Some(CONNECT);

    let agent = http::HeaderValue::from_static(concat!("outrigger-webhook/", env!("CARGO_PKG_VERSION")));
    config.headers.push((http::header::USER_AGENT, agent));

    let builder = ClientBuilder::try_from(config).context("cannot set up the client")?;
    let limit = match author {
        Author::Operator => AnswerLimit::of_users(),
        Author::Tenant => AnswerLimit::new(OF_TENANTS, OF_TENANTS),
    };
    Ok(builder.with_layer(&limit).build())
}

/// Waits for a signal, or for the first task that ends before.
async fn signal_or_failure(ended: &mut UnboundedReceiver<TaskEnded>) -> Result<Option<TaskEnded>> {
    let failed = tokio::select! {
        signal = wait_for_signal() => return signal.map(|()| None),
        failed = ended.recv() => failed,
    };
    if let Some(failed) = &failed {
        tracing::error!("{failed}");
    }
    Ok(failed)
}

async fn wait_for_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
