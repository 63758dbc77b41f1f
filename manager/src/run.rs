//! Wires the parts: configuration, HTTPS, caches, leadership, controllers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use outrigger_leader::{Guard, Mode, Observer, Permit, Reporter, Setup, Timing};
use outrigger_serving::Tasks;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::kubeconfig::Author;
use outrigger_shared::leader_migration::{self, LeaderMigrationConfiguration, Placement as Where};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::Options;
use crate::assembly::{self, Assembly};
use crate::events::{EventType, Recorder};
use crate::identity::{Cloud, Cluster};
use crate::lease_name_check;
use crate::logs::Verbosity;
use crate::metrics::Metrics;
use crate::serving::{self, Access, Authorities, Health, Surface};

/// A holder whose permit ran out longer ago than this is unhealthy, as upstream's health check has it.
const OVERDUE: Duration = Duration::from_secs(20);

/// The source of Events about leases, as in the incumbent.
const EVENT_COMPONENT: &str = "cloud-controller-manager";
const MIGRATION_EVENT_COMPONENT: &str = "outrigger-manager";

/// Runs until SIGTERM or SIGINT, then stops in order and releases its leases. `verbosity` is of the log that has been
/// started.
///
/// # Errors
/// Everything that ends the process otherwise: wrong settings, a lost lease, a controller that failed.
pub async fn run(options: Options, verbosity: Verbosity) -> Result<()> {
    let (tasks, mut ended) = Tasks::new();
    let _end_tasks = tasks.stop().clone().drop_guard();
    tokio::select! {
        result = lead(options, verbosity, tasks) => result,
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

async fn lead(options: Options, verbosity: Verbosity, tasks: Tasks) -> Result<()> {
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }

    let options = Arc::new(options);
    let shutdown = on_signals()?;
    let metrics = Metrics::new();
    let cloud = Cloud::connect(&options, metrics.aws_observer()).await?;
    let cluster = Cluster::of(&options, metrics.rest_client()).await?;
    let management = Cluster::of_migration(&options, &cluster).await?;
    let health = Health::default();
    let surface = Surface {
        health: health.clone(),
        metrics: metrics.clone(),
        configz: options.configz.clone(),
        verbosity: options.profiling.then_some(verbosity),
    };

    // Ready is a state, not the absence of checks: the port opens before the Nodes are watched.
    health.register_readiness("nodes", || Err("the process is starting".into()));
    serve(&options, &cluster, surface, &tasks).await?;

    let placement = Placement::of(&options)?;
    if let Some(name) = &options.migration.name {
        lease_name_check::check(management.client("migration")?, name, &placement.config).await?;
    }

    let cluster_id = cloud.cluster.id.clone();
    let assembly = Arc::new(Assembly::new(
        &options,
        cloud,
        &cluster,
        &management,
        metrics.clone(),
        health.clone(),
        &tasks,
    )?);

    health.register_readiness("nodes", assembly.nodes_ready());

    let ending = shutdown.clone();
    health.register_readiness("shutdown", move || match ending.is_cancelled() {
        true => Err("the process is ending".into()),
        false => Ok(()),
    });

    if !options.leader_election.leader_elect {
        tracing::warn!(
            "--leader-elect=false: nothing prevents a second manager from running the same controllers; run one replica only"
        );
        let all = assembly.start(placement.everything());
        return all(Permit::always(), shutdown)
            .await
            .map_err(|error| anyhow::anyhow!("{error}"));
    }

    let mode = mode(
        &options,
        &placement,
        cluster_id,
        (&cluster, &management),
        &assembly,
        &metrics,
    )?;
    let setup = setup(&options, &placement, &cluster, &assembly, mode, (metrics, &health))?;

    Box::pin(outrigger_leader::run(setup, shutdown))
        .await
        .context("leadership ended")
}

fn setup(
    options: &Options,
    placement: &Placement,
    cluster: &Cluster,
    assembly: &Arc<Assembly>,
    mode: Mode,
    (metrics, health): (Metrics, &Health),
) -> Result<Setup> {
    let events = Recorder::new(cluster.client("leader-election-events")?, EVENT_COMPONENT);
    let election = &options.leader_election;

    Ok(Setup {
        leases: cluster.client("leader-election")?,
        namespace: election.resource_namespace.clone(),
        main_lease: election.resource_name.clone(),
        identity: assembly::identity(),
        timing: Timing {
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
        },
        mode,
        start_main: assembly.start_main(placement.main.clone(), placement.migrated.clone()),
        start_migrated: assembly.start_migrated(placement.migrated.clone()),
        slow_path: {
            let metrics = metrics.clone();
            Arc::new(move |lease| metrics.count_slow_path(lease))
        },
        // Client-go's Events about leases. They are no work under a lease, so they need no permit.
        elections: Arc::new(move |lease, message| {
            events.record(&Permit::always(), lease, EventType::Normal, "LeaderElection", message);
        }),
        observer: observer(metrics, health),
    })
}

fn on_signals() -> Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, token) = (signal(kind).context("signal handler")?, shutdown.clone());
        tokio::spawn(async move {
            signals.recv().await;
            token.cancel();
        });
    }

    Ok(shutdown)
}

async fn serve(options: &Options, cluster: &Cluster, surface: Surface, tasks: &Tasks) -> Result<()> {
    let Some(listening) = serving::bind(&options.serving).await? else {
        return Ok(());
    };

    tracing::info!(address = %listening.address()?, "serving HTTPS");

    let authentication = &options.authentication;
    let of_file = async |path: &Option<PathBuf>, flag| {
        let path = path.as_deref();
        cluster.or_of_file(path, flag, Author::Operator).await
    };
    let tokens = of_file(&authentication.token_kubeconfig, "--authentication-kubeconfig").await?;
    let accesses = of_file(&authentication.access_kubeconfig, "--authorization-kubeconfig").await?;
    let authorities = Authorities::load(authentication)?;
    let follower = tokens.client("authentication")?;
    let stop = tasks.stop().clone();
    tasks.spawn("client CAs", authorities.clone().follow(follower, stop.clone()));

    let reviewer = accesses.client("access-review")?;
    let access = Access::new(authentication.clone(), authorities, Some(reviewer))
        .with_token_reviewer(tokens.client("token-review")?);
    let metrics = surface.metrics.clone();
    let router = serving::router(surface, Arc::new(access));
    tasks.spawn("HTTPS", async move { listening.run(router, &metrics, stop).await });

    Ok(())
}

/// Which controllers run under which lease.
#[derive(Debug, Clone)]
struct Placement {
    config: LeaderMigrationConfiguration,
    main: Vec<Controller>,
    migrated: Vec<Controller>,
}

impl Placement {
    fn of(options: &Options) -> Result<Self> {
        let config = configuration(options)?;
        if options.leader_migration_effective() {
            lease_name_check::own_names(&config.leader_name, &options.leader_election.resource_name)?;
        }
        let mut placement = Self {
            config,
            main: Vec::new(),
            migrated: Vec::new(),
        };

        for controller in Controller::ALL
            .into_iter()
            .filter(|controller| options.general.controllers.enabled(*controller))
        {
            let place = if options.leader_migration_effective() {
                placement.config.placement(controller, Party::CloudControllerManager)
            } else {
                Where::Main
            };

            let lease = match place {
                Where::Main => {
                    placement.main.push(controller);
                    &options.leader_election.resource_name
                }
                Where::Migrated => {
                    placement.migrated.push(controller);
                    &placement.config.leader_name
                }
                Where::NotHere => {
                    tracing::info!(%controller, "the leader migration configuration gives this controller to another component");
                    continue;
                }
            };
            tracing::info!(%controller, lease, "runs under this lease");
        }

        Ok(placement)
    }

    fn node_ipam(&self, options: &Options) -> Where {
        let runs =
            |controllers: &[Controller]| options.allocates_node_cidrs() && controllers.contains(&Controller::NodeIpam);
        match () {
            () if runs(&self.main) => Where::Main,
            () if runs(&self.migrated) => Where::Migrated,
            () => Where::NotHere,
        }
    }

    fn everything(&self) -> Vec<Controller> {
        self.main.iter().chain(&self.migrated).copied().collect()
    }
}

fn configuration(options: &Options) -> Result<LeaderMigrationConfiguration> {
    let Some(path) = &options.migration.leader_migration_config else {
        return Ok(LeaderMigrationConfiguration::default());
    };
    if !options.leader_migration_effective() {
        tracing::warn!("--leader-migration-config has no effect without --enable-leader-migration and leader election");
        return Ok(LeaderMigrationConfiguration::default());
    }

    let loaded = leader_migration::file::read(path)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }

    Ok(loaded.config)
}

fn mode(
    options: &Options,
    placement: &Placement,
    cluster_id: String,
    (cluster, management): (&Cluster, &Cluster),
    assembly: &Assembly,
    metrics: &Metrics,
) -> Result<Mode> {
    if let Some(migration) = options.migration.name.clone() {
        if !options.leader_migration_effective() {
            bail!(
                "--migration needs leader election and leader migration: remove --leader-elect=false and --enable-leader-migration=false"
            );
        }
        let metrics = metrics.clone();
        let events = Recorder::new(management.client("migration-events")?, MIGRATION_EVENT_COMPONENT);
        return Ok(Mode::Guarded(Box::new(Guard {
            lease: placement.config.leader_name.clone(),
            migration,
            cluster_id,
            management: management.client("migration")?,
            cluster: cluster.client("migration")?,
            nodes: assembly.node_counts(),
            dry_run: assembly.dry_run(),
            controllers: with_work(options, &placement.migrated),
            node_ipam: placement.node_ipam(options),
            reporter: Reporter {
                metrics: Arc::new(move |snapshot| metrics.migration.set(snapshot)),
                events: Arc::new(move |permit, about, notice| {
                    events.record(permit, about, notice.kind, notice.reason, &notice.message);
                }),
            },
        })));
    }
    if options.leader_migration_effective() {
        tracing::warn!(
            "leader migration runs without --migration: nothing prevents a kube-controller-manager without leader migration from running the same controllers; set --migration to the name of a CloudProviderMigration"
        );
        return Ok(Mode::Upstream {
            lease: placement.config.leader_name.clone(),
        });
    }

    Ok(Mode::Single)
}

/// The controllers that have work: the route controller needs a flag besides.
fn with_work(options: &Options, controllers: &[Controller]) -> Vec<Controller> {
    let has_work =
        |controller: &&Controller| **controller != Controller::Route || options.routes.configure_cloud_routes;
    controllers.iter().filter(has_work).copied().collect()
}

/// Keeps the metric and the health check of each lease.
fn observer(metrics: Metrics, health: &Health) -> Observer {
    type Held = Arc<Mutex<Vec<(String, Permit)>>>;

    let held: Held = Arc::default();
    let watched = Arc::clone(&held);
    health.register("leaderElection", move || {
        let held = watched.lock().unwrap_or_else(PoisonError::into_inner);
        match held.iter().find(|(_, permit)| permit.overdue() > OVERDUE) {
            Some((lease, _)) => Err(format!("lease {lease} is held and has not been renewed")),
            None => Ok(()),
        }
    });

    Arc::new(move |lease, permit| {
        metrics.set_leader(lease, permit.is_some());
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(name, _)| name != lease);
        held.extend(permit.map(|permit| (lease.to_owned(), permit)));
    })
}
