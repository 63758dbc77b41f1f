//! Dry runs of the controllers that run under the migration lease, while the old manager owns them: the same settings,
//! the same plans, and no write.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use outrigger_aws::Clients;
use outrigger_aws::limit::{Limited, Priority, Share};
use outrigger_leader::{ControllerError, DryRun, Permit, Start};
use outrigger_shared::controller::Controller;
use outrigger_shared::event::whole_seconds;
use outrigger_shared::migration::{Adoption, AdoptionChange, MAX_ADOPTION_CHANGES, MAX_ADOPTION_TEXT, Phase};
use tokio::sync::{OnceCell, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::{Assembly, cluster_uid};
use crate::controllers::service::CONFIRMATION_OF_DRY_RUNS as CONFIRMATION;
use crate::controllers::{node_lifecycle, route, service};

/// Between two dry runs that find no change.
const PERIOD: Duration = Duration::from_secs(600);
/// Between two dry runs where one has found a change, or has failed. It is longer where a dry run takes longer, up to
/// [`PERIOD`].
const REPEAT: Duration = Duration::from_secs(60);
/// With [`PART`] of AWS's limits, one load balancer takes up to 5 s, and more with several ports.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The part of AWS's limits for reads of load balancers and routes, within the part of the manager. The old manager uses the
/// same limits.
const PART: f64 = 0.1;

/// The clients of AWS with a limit for dry runs.
pub(super) fn limited(clients: &Clients) -> Clients {
    let part = Share::fixed(PART).unwrap_or_default();
    Clients {
        ec2: Arc::new(Limited::new(Arc::clone(&clients.ec2), part)),
        elb: Arc::new(Limited::elb(Arc::clone(&clients.elb), part)),
        elbv2: Arc::new(Limited::elbv2(Arc::clone(&clients.elbv2), part)),
    }
}

/// A dry run of all controllers.
#[derive(Debug, Default)]
struct Found {
    services: usize,
    nodes: usize,
    changes: BTreeSet<AdoptionChange>,
}

impl Found {
    /// A part that cannot be compared does not hide the others.
    fn take<E>(&mut self, what: &str, changes: Result<Vec<AdoptionChange>, E>)
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match changes {
            Ok(changes) => self.changes.extend(changes),
            Err(error) => {
                let reason = service::without_request_details(&format!("{:#}", anyhow::Error::from(error)));
                tracing::warn!(what, reason, "a part of a dry run failed");
                self.changes.insert(AdoptionChange {
                    object: what.to_owned(),
                    action: "they cannot be compared".to_owned(),
                    reason,
                });
            }
        }
    }

    fn adoption(&self, began: Timestamp) -> Adoption {
        let short = |text: &str| text.chars().take(MAX_ADOPTION_TEXT).collect();
        let first = self.changes.iter().take(MAX_ADOPTION_CHANGES);
        let first = first.map(|change| AdoptionChange {
            object: short(&change.object),
            action: short(&change.action),
            reason: short(&change.reason),
        });

        Adoption {
            time: Time(whole_seconds(began)),
            services: number(self.services),
            nodes: number(self.nodes),
            changes: number(self.changes.len()),
            first: first.collect(),
        }
    }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("it took longer than {} h", LONGEST.as_secs() / 3600)]
    TooLong,
    #[error("its task ended")]
    Task(#[from] JoinError),
}

/// The changes that are found twice: one that is seen once may be on its way.
async fn lasting<E, F>(look: impl Fn() -> F) -> Result<Vec<AdoptionChange>, E>
where
    F: Future<Output = Result<Vec<AdoptionChange>, E>>,
{
    let first = look().await?;
    if first.is_empty() {
        return Ok(first);
    }

    sleep(CONFIRMATION).await;
    let again: BTreeSet<AdoptionChange> = look().await?.into_iter().collect();
    Ok(first.into_iter().filter(|change| again.contains(change)).collect())
}

impl Assembly {
    /// As [`Assembly::start`], for the main lease: beside its controllers, the `migrated` ones are run dry.
    pub fn start_main(self: &Arc<Self>, main: Vec<Controller>, migrated: Vec<Controller>) -> Start {
        let assembly = Arc::clone(self);
        Box::new(move |permit, stop| {
            let running = Arc::clone(&assembly).run(main.clone(), permit, stop);
            let (assembly, migrated) = (Arc::clone(&assembly), migrated.clone());
            Box::pin(async move {
                tokio::select! {
                    ended = running => ended,
                    never = assembly.dry_runs(&migrated) => match never {},
                }
            })
        })
    }

    /// As [`Assembly::start`], for the migration lease. Meanwhile nothing is run dry.
    pub fn start_migrated(self: &Arc<Self>, controllers: Vec<Controller>) -> Start {
        let assembly = Arc::clone(self);
        Box::new(move |permit, stop| {
            let assembly = Arc::clone(&assembly);
            let running = Arc::clone(&assembly).run(controllers.clone(), permit, stop);
            Box::pin(async move {
                let _runs = Runs::begin(&assembly.runs);
                running.await as Result<(), ControllerError>
            })
        })
    }

    async fn dry_runs(self: &Arc<Self>, controllers: &[Controller]) -> Infallible {
        loop {
            self.until_owned(true).await;
            let ended = self.until_owned(false);
            tokio::select! {
                () = ended => {}
                never = self.dry_run_again(controllers) => match never {},
            }
            self.dry_run.send_replace(DryRun::Pending);
        }
    }

    /// Waits until the old manager owns the controllers by the phase and by what runs here, or until it does not.
    async fn until_owned(&self, owned: bool) {
        let (mut phase, mut runs) = (self.phase.clone(), self.runs.subscribe());
        loop {
            let is_before = phase.borrow_and_update().is_some_and(|phase| phase < Phase::Migrate);
            let is_owned = is_before && !*runs.borrow_and_update();
            if is_owned == owned {
                return;
            }
            tokio::select! {
                Ok(()) = phase.changed() => {}
                Ok(()) = runs.changed() => {}
                else => std::future::pending().await,
            }
        }
    }

    async fn dry_run_again(self: &Arc<Self>, controllers: &[Controller]) -> Infallible {
        self.nodes.ready().await;
        let uid = Arc::new(OnceCell::new());
        loop {
            let (began, clock) = (Timestamp::now(), Instant::now());
            let found = self.dry_run_in_a_task(controllers.to_vec(), Arc::clone(&uid)).await;
            let is_clean = found.as_ref().is_ok_and(|found| found.changes.is_empty());
            self.dry_run.send_replace(match found {
                Ok(found) => DryRun::Ended(found.adoption(began)),
                Err(error) => {
                    let error = service::without_request_details(&format!("{:#}", anyhow::Error::from(error)));
                    tracing::warn!(error, "a dry run failed");
                    DryRun::Failed(error)
                }
            });

            let repeat = clock.elapsed().clamp(REPEAT, PERIOD);
            sleep(if is_clean { PERIOD } else { repeat }).await;
        }
    }

    /// A panic in it must not end the controllers that run.
    async fn dry_run_in_a_task(
        self: &Arc<Self>,
        controllers: Vec<Controller>,
        uid: Arc<OnceCell<String>>,
    ) -> Result<Found, Error> {
        // Dropping the set ends the task.
        let mut task = JoinSet::new();
        let assembly = Arc::clone(self);
        task.spawn(Priority::DryRun.run(async move { assembly.dry_run_once(&controllers, &uid).await }));
        match timeout(LONGEST, task.join_next()).await {
            Ok(Some(ended)) => Ok(ended?),
            Ok(None) | Err(_) => Err(Error::TooLong),
        }
    }

    async fn dry_run_once(&self, controllers: &[Controller], uid: &OnceCell<String>) -> Found {
        let mut found = Found::default();
        if controllers.contains(&Controller::NodeLifecycle) {
            found.nodes = self.nodes.snapshot().len();
            let look = || node_lifecycle::dry_run(&self.nodes, &self.instances);
            found.take("the Nodes", lasting(look).await);
        }

        let (_, void) = Permit::pair();
        if controllers.contains(&Controller::Route)
            && let Some(deps) = self.route(void)
        {
            let deps = route::Deps {
                ec2: Arc::clone(&self.limited.ec2),
                ..deps
            };
            found.take("the routes", lasting(|| route::dry_run(&deps)).await);
        }

        if controllers.contains(&Controller::Service) {
            let mut deps = self.service(&self.limited);
            deps.settings.cluster_uid = match uid.get() {
                Some(uid) => Some(uid.clone()),
                // A failed read is repeated with the next dry run.
                None => cluster_uid::read(&self.cluster_client)
                    .await
                    .inspect(|read| _ = uid.set(read.clone())),
            };
            let of_services = Box::pin(service::dry_run(deps)).await;
            found.services = of_services.as_ref().map_or(0, |found| found.services);
            found.take("the Services", of_services.map(|found| found.changes));
        }

        found
    }
}

/// The controllers of the migration lease run until it is dropped.
struct Runs<'a>(&'a watch::Sender<bool>);

impl<'a> Runs<'a> {
    fn begin(runs: &'a watch::Sender<bool>) -> Self {
        runs.send_replace(true);
        Self(runs)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn change(name: &str) -> AdoptionChange {
        AdoptionChange {
            object: format!("Service {name}"),
            action: "CreateListener".to_owned(),
            reason: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_counts_when_it_is_found_twice() {
        let lasting_of = async |looks: &[&[&str]]| {
            let looks = RefCell::new(looks.iter());
            let look = || async {
                let names = looks.borrow_mut().next().expect("no further look");
                Ok::<_, Infallible>(names.iter().map(|name| change(name)).collect())
            };
            let began = Instant::now();
            let found = lasting(look).await.unwrap();
            (found, began.elapsed())
        };
        assert_eq!(lasting_of(&[&[]]).await, (vec![], Duration::ZERO));
        assert_eq!(lasting_of(&[&["a"], &[]]).await, (vec![], CONFIRMATION));
        let both: &[&[&str]] = &[&["a", "b"], &["b", "c"]];
        assert_eq!(lasting_of(both).await, (vec![change("b")], CONFIRMATION));
    }

    #[test]
    fn the_status_names_the_first_changes_and_counts_all() {
        let long = "x".repeat(2 * MAX_ADOPTION_TEXT);
        let found = Found {
            services: 7,
            nodes: 3,
            changes: (0..25).map(|number| change(&format!("{number}{long}"))).collect(),
        };
        let adoption = found.adoption(Timestamp::UNIX_EPOCH);
        assert_eq!((adoption.services, adoption.nodes, adoption.changes), (7, 3, 25));
        assert_eq!(adoption.first.len(), MAX_ADOPTION_CHANGES);
        assert_eq!(adoption.first[0].object.len(), MAX_ADOPTION_TEXT);
    }
}
