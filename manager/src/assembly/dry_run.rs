//! Dry runs of the controllers that run under the migration lease, while the old manager owns them: the same settings,
//! the same plans, and no write.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use outrigger_aws::limit::{Limited, Priority, Share};
use outrigger_aws::{Clients, Error as AwsError};
use outrigger_leader::{ControllerError, DryRun, Permit, Start};
use outrigger_shared::controller::Controller;
use outrigger_shared::event::whole_seconds;
use outrigger_shared::migration::{Adoption, AdoptionChange, MAX_ADOPTION_CHANGES, MAX_ADOPTION_TEXT, Phase};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Assembly, cluster_uid};
use crate::controllers::{node_lifecycle, route, service};

/// Between two dry runs that find no change.
const PERIOD: Duration = Duration::from_secs(600);
/// Between two dry runs where one has found a change, or has failed.
const REPEAT: Duration = Duration::from_secs(30);
/// With [`PART`] of AWS's limits, one load balancer takes up to 5 s, and more with several ports.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The part of AWS's limits for reads, within the part of the manager. The old manager uses the same limits.
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
    changes: Vec<AdoptionChange>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Service(#[from] service::Error),
    #[error(transparent)]
    Route(#[from] route::ObserveError),
    #[error(transparent)]
    Node(#[from] AwsError),
    #[error("it took longer than {} h", LONGEST.as_secs() / 3600)]
    TooLong,
}

/// The results of the dry runs since the old manager owns the controllers.
#[derive(Debug, Default)]
struct Results {
    /// The changes of the last one.
    last: Vec<AdoptionChange>,
}

impl Results {
    /// What to say after a dry run, and when to make the next one. A change counts if the dry run before has found it, too:
    /// one that is seen once may be on its way. `None`: nothing new is known.
    fn take(&mut self, found: Found, now: Timestamp) -> (Option<DryRun>, Duration) {
        let before = std::mem::replace(&mut self.last, found.changes);
        let lasting: Vec<&AdoptionChange> = self.last.iter().filter(|change| before.contains(change)).collect();
        if lasting.is_empty() && !self.last.is_empty() {
            return (None, REPEAT);
        }

        let short = |text: &str| text.chars().take(MAX_ADOPTION_TEXT).collect();
        let first = lasting.iter().take(MAX_ADOPTION_CHANGES).map(|change| AdoptionChange {
            object: short(&change.object),
            action: short(&change.action),
            reason: short(&change.reason),
        });
        let adoption = Adoption {
            time: Time(whole_seconds(now)),
            services: number(found.services),
            nodes: number(found.nodes),
            changes: number(lasting.len()),
            first: first.collect(),
        };
        let next = if lasting.is_empty() { PERIOD } else { REPEAT };

        (Some(DryRun::Ended(adoption)), next)
    }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
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

    async fn dry_runs(&self, controllers: &[Controller]) -> Infallible {
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

    async fn dry_run_again(&self, controllers: &[Controller]) -> Infallible {
        let mut results = Results::default();
        self.nodes.ready().await;
        loop {
            let found = timeout(LONGEST, Priority::DryRun.run(self.dry_run_once(controllers))).await;
            let (result, next) = match found.unwrap_or(Err(Error::TooLong)) {
                Ok(found) => results.take(found, Timestamp::now()),
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(error, "a dry run failed; the next one is in {} s", REPEAT.as_secs());
                    (Some(DryRun::Failed(error)), REPEAT)
                }
            };
            if let Some(result) = result {
                self.dry_run.send_replace(result);
            }
            sleep(next).await;
        }
    }

    async fn dry_run_once(&self, controllers: &[Controller]) -> Result<Found, Error> {
        let mut found = Found::default();
        if controllers.contains(&Controller::NodeLifecycle) {
            let of_nodes = node_lifecycle::dry_run(&self.nodes, &self.instances).await?;
            found.nodes = of_nodes.nodes;
            found.changes.extend(of_nodes.changes);
        }

        let (_, void) = Permit::pair();
        if controllers.contains(&Controller::Route)
            && let Some(deps) = self.route(void)
        {
            let ec2 = Arc::clone(&self.limited.ec2);
            found
                .changes
                .extend(route::dry_run(&route::Deps { ec2, ..deps }).await?);
        }

        if controllers.contains(&Controller::Service) {
            let mut deps = self.service(&self.limited);
            deps.settings.cluster_uid = cluster_uid::read(&self.cluster_client).await;
            let of_services = Box::pin(service::dry_run(deps)).await?;
            found.services = of_services.services;
            found.changes.extend(of_services.changes);
        }

        Ok(found)
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
    use super::*;

    fn found(names: &[&str]) -> Found {
        let change = |name: &&str| AdoptionChange {
            object: format!("Service {name}"),
            action: "CreateListener".to_owned(),
            reason: String::new(),
        };
        Found {
            services: 7,
            nodes: 3,
            changes: names.iter().map(change).collect(),
        }
    }

    fn take(results: &mut Results, names: &[&str]) -> (Option<Vec<String>>, Duration) {
        let (result, next) = results.take(found(names), Timestamp::UNIX_EPOCH);
        let objects = result.map(|result| match result {
            DryRun::Ended(adoption) => {
                assert_eq!((adoption.services, adoption.nodes), (7, 3));
                assert_eq!(adoption.changes as usize, adoption.first.len());
                adoption.first.into_iter().map(|change| change.object).collect()
            }
            other => panic!("{other:?}"),
        });
        (objects, next)
    }

    #[test]
    fn a_change_counts_when_two_dry_runs_in_a_row_find_it() {
        let mut results = Results::default();
        let says = |objects: &[&str]| Some(objects.iter().map(|name| format!("Service {name}")).collect());
        assert_eq!(take(&mut results, &["a"]), (None, REPEAT), "seen once");
        assert_eq!(take(&mut results, &["b"]), (None, REPEAT), "another one");
        assert_eq!(take(&mut results, &["a", "b"]), (says(&["b"]), REPEAT));
        assert_eq!(take(&mut results, &[]), (says(&[]), PERIOD));
        assert_eq!(take(&mut results, &["a"]), (None, REPEAT));
    }

    #[test]
    fn the_status_names_the_first_changes_and_counts_all() {
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut results = Results::default();
        results.take(found(&names), Timestamp::UNIX_EPOCH);
        let (result, _) = results.take(found(&names), Timestamp::UNIX_EPOCH);
        let Some(DryRun::Ended(adoption)) = result else {
            panic!("{result:?}");
        };
        assert_eq!((adoption.changes, adoption.first.len()), (25, MAX_ADOPTION_CHANGES));
    }
}
