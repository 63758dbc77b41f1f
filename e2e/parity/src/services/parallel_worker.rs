//! Runs cases in parallel workers. Each worker has an API server, a moto, one controller manager at a time, and one
//! case at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use outrigger_aws_quotas::Quotas;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::case::{self, Action, Aws, Case, Nodes, Step};
use super::cluster::{Cluster, Events, Subject as Service};
use super::environment::{self, Environment};
use super::manager::{self, CLUSTER_NAME};
use super::names::Names;
use super::outcome::{Account, Event, Outcome, ServiceState};
use super::{account, compare, writes};
use crate::Subject;
use outrigger_aws_sim::Call;
use outrigger_aws_sim::iam::roles::Role;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::{Tool, Tools};

/// Parallel workers, at most.
const WORKERS: usize = 3;
/// So few cases take less time than the start of another worker.
const CASES: usize = 30;
/// The same for cases without an action, each of which has a manager of its own.
const CASES_WITHOUT_AN_ACTION: usize = 10;
/// The time of a manager's start, in cases.
const START: usize = 3;
/// Between two observations.
const INTERVAL: Duration = Duration::from_millis(60);
/// A step is over after this time without a change.
const QUIET: Duration = Duration::from_millis(350);
/// A step of the incumbent without calls and Events is over after this time.
const IDLE: Duration = Duration::from_secs(2);
/// The incumbent retries a deletion after 5 s.
const BACKOFF: Duration = Duration::from_secs(6);
/// No step of the incumbent takes longer.
const MOST: Duration = Duration::from_secs(30);
/// The waits for our manager to become equal, which ends a step at once. A busy machine does not run it for seconds.
const PATIENT: Patience = Patience {
    most: Duration::from_secs(60),
    settled: Duration::from_secs(10),
    confirmed: Duration::from_secs(20),
};
/// Where a permission may be missing, so that some steps do not end equal.
const IMPATIENT: Patience = Patience {
    most: Duration::from_secs(20),
    settled: Duration::from_secs(4),
    confirmed: Duration::from_secs(12),
};
/// Our manager reconciles Nodes at most once a second.
const AFTER_NODES: Duration = Duration::from_millis(1300);
/// The wait for an Event that v1.37 has. Our manager does not repeat an Event about the same failure.
const NO_EVENT: Duration = Duration::from_millis(2500);
const FIRST_SERVICE: Duration = Duration::from_secs(60);
/// The Events that end a step.
const ENDS: [&str; 6] = [
    "EnsuredLoadBalancer",
    "SyncLoadBalancerFailed",
    "UpdatedLoadBalancer",
    "UpdateLoadBalancerFailed",
    "DeletedLoadBalancer",
    "DeleteLoadBalancerFailed",
];

#[derive(Debug, Default)]
pub struct Ran {
    /// By the case's name.
    pub outcomes: BTreeMap<String, Vec<Outcome>>,
    /// The errors of the other cases. Most are refusals of the API server.
    pub failed: Vec<String>,
}

impl Ran {
    /// The outcomes of all cases.
    ///
    /// # Errors
    /// Those of cases that were not run to their end.
    pub fn all(self) -> Result<BTreeMap<String, Vec<Outcome>>> {
        if self.failed.is_empty() {
            return Ok(self.outcomes);
        }
        bail!("{}", self.failed.join("\n"));
    }
}

/// Runs all cases.
///
/// # Errors
/// When a part of the harness fails.
pub async fn run(subject: Subject, cases: &[Case], folder: &Path) -> Result<Ran> {
    run_all(subject, &Permissions::All, cases, folder).await
}

/// As [`run`], with the permissions of a role. A step is over when AWS and the Service are as recorded, independent of
/// Events and calls.
///
/// # Errors
/// As [`run`].
pub async fn run_as(subject: Subject, role: &Role, cases: &[Case], folder: &Path) -> Result<Ran> {
    run_all(subject, &Permissions::Role(role.clone()), cases, folder).await
}

/// Runs each case with a role without an action that the first Service of a manager may need. No Service is created
/// before a case.
///
/// # Errors
/// As [`run`].
pub async fn run_without_an_action(subject: Subject, cases: &[(Role, Case)], folder: &Path) -> Result<Vec<Ran>> {
    let groups = cases.iter().map(|(role, case)| Group {
        permissions: Permissions::Lacking(role.clone()),
        cases: vec![case.clone()],
    });
    let groups: Vec<Group> = groups.collect();
    let count = count_workers(cases.len(), CASES_WITHOUT_AN_ACTION);
    let workers = groups.chunks(cases.len().div_ceil(count).max(1)).map(<[Group]>::to_vec);
    run_workers(subject, false, &workers.collect::<Vec<_>>(), folder).await
}

fn count_workers(cases: usize, of_one: usize) -> usize {
    cases.div_ceil(of_one).clamp(1, WORKERS)
}

async fn run_all(subject: Subject, permissions: &Permissions, cases: &[Case], folder: &Path) -> Result<Ran> {
    let group = |cases| Group {
        permissions: permissions.clone(),
        cases,
    };
    let workers = workers(cases).into_iter();
    let workers: Vec<Vec<Group>> = workers.map(|worker| worker.into_iter().map(group).collect()).collect();
    let mut all = Ran::default();

    for ran in run_workers(subject, permissions.legacy_tags(), &workers, folder).await? {
        all.outcomes.extend(ran.outcomes);
        all.failed.extend(ran.failed);
    }

    Ok(all)
}

/// Runs the groups of each worker one after the other.
async fn run_workers(subject: Subject, legacy_tags: bool, workers: &[Vec<Group>], folder: &Path) -> Result<Vec<Ran>> {
    let mut wanted = subject.tools();
    wanted.push(Tool::MotoPython);
    let tools = Tools::load(&wanted).await?;
    let etcd = Etcd::start(&tools, folder).await?;

    let workers = workers.iter().enumerate().map(|(number, groups)| {
        let (tools, etcd) = (&tools, &etcd);
        async move {
            let mut worker = Worker::start(subject, legacy_tags, tools, etcd, folder, number).await?;
            let mut all = Vec::new();
            for (index, group) in groups.iter().enumerate() {
                worker.permissions = group.permissions.clone();
                all.push(worker.group(index, &group.cases).await?);
            }
            anyhow::Ok(all)
        }
    });

    Ok(try_join_all(workers).await?.into_iter().flatten().collect())
}

/// Cases by worker and by run of a manager, about as many in each worker.
fn workers(cases: &[Case]) -> Vec<Vec<Vec<Case>>> {
    let groups = case::groups(cases);
    let count = count_workers(cases.len(), CASES);
    let share = (cases.len() + START * (groups.len() + count)).div_ceil(count);
    let mut workers: Vec<Vec<Vec<Case>>> = vec![Vec::new()];
    let mut load = 0;

    for group in groups {
        let mut rest = &group[..];
        while !rest.is_empty() {
            if load + START >= share && workers.len() < count {
                workers.push(Vec::new());
                load = 0;
            }

            let room = if workers.len() < count {
                share.saturating_sub(load + START)
            } else {
                rest.len()
            };
            let (now, later) = rest.split_at(room.clamp(1, rest.len()));
            load += START + now.len();
            if let Some(worker) = workers.last_mut() {
                worker.push(now.to_vec());
            }

            rest = later;
        }
    }

    workers
}

/// How long a worker waits for equality.
struct Patience {
    most: Duration,
    /// After an Event that ends a step.
    settled: Duration,
    /// If many targets may be removed: our manager observes a mass loss twice, 5 s apart.
    confirmed: Duration,
}

/// Cases of one cloud config for one run of a manager.
#[derive(Clone)]
struct Group {
    permissions: Permissions,
    cases: Vec<Case>,
}

/// The permissions of a manager.
#[derive(Clone)]
enum Permissions {
    All,
    /// Enough for a Service, which is created and deleted before the cases.
    Role(Role),
    /// Perhaps too little for a Service, so none is created before the cases.
    Lacking(Role),
}

impl Permissions {
    fn role(&self) -> Option<&Role> {
        match self {
            Self::All => None,
            Self::Role(role) | Self::Lacking(role) => Some(role),
        }
    }

    fn legacy_tags(&self) -> bool {
        self.role().is_some_and(|role| role.legacy_tags)
    }

    fn patience(&self) -> &'static Patience {
        match self {
            Self::All => &PATIENT,
            Self::Role(_) | Self::Lacking(_) => &IMPATIENT,
        }
    }
}

/// An API server and a moto on which managers run one after the other.
struct Worker<'a> {
    subject: Subject,
    permissions: Permissions,
    tools: &'a Tools,
    environment: Environment,
    cluster: Cluster,
    folder: PathBuf,
    kubeconfig: PathBuf,
    _api: ApiServer,
}

struct Progress<'a> {
    case: &'a Case,
    service: Service,
    neighbour: Option<Service>,
    names: Names,
    /// The AWS resources before the Service.
    before: Account,
    events: Events,
    outcomes: Vec<Outcome>,
}

impl<'a> Worker<'a> {
    async fn start(
        subject: Subject,
        legacy_tags: bool,
        tools: &'a Tools,
        etcd: &Etcd,
        folder: &Path,
        number: usize,
    ) -> Result<Self> {
        let name = format!("parity-services-{number}");
        let options = ApiServerOptions::new(&name, Version::V1_36, format!("127.{}.0.0/16", 110 + number));
        let api = ApiServer::start(tools, folder, etcd, &options).await?;
        let folder = api.home().to_owned();
        let environment = Environment::start(tools, &folder, legacy_tags).await?;
        let cluster = Cluster::start(api.client(&User::admin(), "parity").await?, &environment).await?;

        Ok(Self {
            subject,
            permissions: Permissions::All,
            tools,
            environment,
            cluster,
            folder,
            kubeconfig: api.kubeconfig(&User::admin())?,
            _api: api,
        })
    }

    /// Cases of one cloud config.
    async fn group(&self, index: usize, cases: &[Case]) -> Result<Ran> {
        let mut ran = Ran::default();
        let folder = self.folder.join(format!("group-{index}"));
        std::fs::create_dir_all(&folder)?;
        let Some(first) = cases.first() else {
            return Ok(ran);
        };

        let (kubeconfig, environment) = (&self.kubeconfig, &self.environment);
        let process = manager::start(
            self.subject,
            self.tools,
            &folder,
            kubeconfig,
            environment,
            &first.config,
        )?;
        let clean = self.environment.prepare(&Aws::default()).await?;
        let policy = self.permissions.role().map(|role| Arc::clone(&role.policy));
        self.environment.proxy.set_policy(policy);
        if !matches!(self.permissions, Permissions::Lacking(_)) {
            self.warm_up(&process).await.context("the first Service of a manager")?;
        }

        self.environment.clear(clean).await?;
        for case in cases {
            match self.case(&process, case).await {
                Ok(outcome) => drop(ran.outcomes.insert(case.name.clone(), outcome)),
                Err(error) => ran.failed.push(format!("case {}: {error:#}", case.name)),
            }
        }

        self.environment.proxy.set_policy(None);
        process.stop(Duration::from_secs(5)).await?;

        Ok(ran)
    }

    /// Creates and deletes a Service to fill the caches of the manager.
    async fn warm_up(&self, process: &Process) -> Result<()> {
        let manifest =
            json!({"metadata": {"name": "warm-up"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let service = self.cluster.create(&manifest).await?;
        let start = Instant::now();
        let mut deleted = false;

        loop {
            process.ensure_running()?;
            match service.state(&self.environment.names).await? {
                None => break,
                Some(state) if !deleted && !state.ingress.is_empty() => {
                    service.delete().await?;
                    deleted = true;
                }
                Some(_) if start.elapsed() > FIRST_SERVICE => {
                    bail!(
                        "no load balancer or no deletion within {FIRST_SERVICE:?}:\n{}",
                        process.log_tail()
                    )
                }
                Some(_) => tokio::time::sleep(INTERVAL).await,
            }
        }

        service.remove().await
    }

    async fn case(&self, process: &Process, case: &Case) -> Result<Vec<Outcome>> {
        let prepared = self.environment.prepare(&case.aws).await?;
        self.cluster.change(&case.nodes, &self.environment).await?;
        self.environment.proxy.set_quotas(case.quotas.quotas());

        let done = match self.begin(case, &prepared).await {
            Ok((mut progress, mark)) => {
                let done = self.steps(process, &mut progress, mark).await;
                progress.service.remove().await?;
                if let Some(neighbour) = &progress.neighbour {
                    self.until_deleted(process, neighbour).await?;
                }
                done.map(|()| progress.outcomes)
            }
            Err(error) => Err(error),
        };

        self.environment.proxy.set_quotas(Quotas::default());
        let changes: Vec<&Nodes> = case.steps.iter().map(|step| &step.nodes).chain([&case.nodes]).collect();
        self.cluster.restore(&changes, &self.environment).await?;
        tokio::time::sleep(QUIET).await;
        self.environment.clear(prepared).await?;

        done
    }

    /// Creates the Service.
    async fn begin<'c>(&self, case: &'c Case, prepared: &environment::Case) -> Result<(Progress<'c>, u64)> {
        let mut names = prepared.names.clone();
        let neighbour = match case.neighbour() {
            Some(manifest) => Some(self.neighbour(&manifest, &mut names).await?),
            None => None,
        };

        let before = self.account(case, &mut names).await?;
        let mark = self.environment.proxy.mark();
        let manifest = names.resolve(&case.manifest());
        let service = self.cluster.create(&manifest).await?;
        names.learn_service(CLUSTER_NAME, &service.namespace, &service.name, &service.uid);

        let progress = Progress {
            case,
            service,
            neighbour,
            names,
            before,
            events: Events::new(),
            outcomes: Vec::new(),
        };

        Ok((progress, mark))
    }

    /// Creates the other Service, and waits for its load balancer and its rules.
    async fn neighbour(&self, manifest: &Value, names: &mut Names) -> Result<Service> {
        let service = self.cluster.create(&names.resolve(manifest)).await?;
        names.learn_service_as(
            " of the neighbour",
            CLUSTER_NAME,
            &service.namespace,
            &service.name,
            &service.uid,
        );

        let start = Instant::now();
        while !service
            .events()
            .await?
            .keys()
            .any(|event| event.reason == "EnsuredLoadBalancer")
        {
            if start.elapsed() > FIRST_SERVICE {
                bail!("the neighbour has no load balancer within {FIRST_SERVICE:?}");
            }
            tokio::time::sleep(INTERVAL).await;
        }

        Ok(service)
    }

    /// Deletes a Service, and waits until its load balancer is deleted too.
    async fn until_deleted(&self, process: &Process, service: &Service) -> Result<()> {
        let start = Instant::now();
        service.delete().await?;
        while service.state(&self.environment.names).await?.is_some() && start.elapsed() < MOST {
            process.ensure_running()?;
            tokio::time::sleep(INTERVAL).await;
        }

        service.remove().await
    }

    async fn steps(&self, process: &Process, progress: &mut Progress<'_>, mark: u64) -> Result<()> {
        self.settle(process, progress, mark).await?;

        let case = progress.case;
        for (step, label) in case.steps.iter().zip(case.labels()).skip(1) {
            for call in &step.calls {
                self.environment.by_hand(call, &progress.names).await?;
            }
            let mark = self.environment.proxy.mark();
            if let Some(neighbour) = progress.neighbour.as_ref().filter(|_| !step.neighbour.is_null()) {
                neighbour.update(&progress.names.resolve(&step.neighbour)).await?;
            }
            let performed = self.perform(step, progress).await;
            performed.with_context(|| format!("step {label}"))?;
            self.settle(process, progress, mark).await?;
        }

        Ok(())
    }

    async fn perform(&self, step: &Step, progress: &mut Progress<'_>) -> Result<()> {
        match step.action {
            Action::Create => bail!("steps: a Service is created once"),
            Action::NoOp => progress.service.no_op().await,
            Action::Update => {
                let patch = progress.names.resolve(&step.patch);
                progress.service.update(&patch).await
            }
            Action::Nodes => self.cluster.change(&step.nodes, &self.environment).await,
            Action::Delete => progress.service.delete().await,
        }
    }

    /// Waits until nothing changes any more, and adds the outcome.
    async fn settle(&self, process: &Process, progress: &mut Progress<'_>, mark: u64) -> Result<()> {
        let index = progress.outcomes.len();
        let label = progress.case.labels().get(index).cloned().unwrap_or_default();
        let action = progress.case.steps.get(index).map(|step| step.action);
        let recorded = progress.case.recorded.as_deref().unwrap_or_default().get(index);
        let ends = recorded.is_some_and(|outcome| outcome.events.iter().any(ends_a_step));
        let of_nodes = action == Some(Action::Nodes);
        let least = if of_nodes { AFTER_NODES } else { QUIET };
        let patience = self.permissions.patience();
        let start = Instant::now();
        let (mut changed, mut last, mut compared) = (start, None, None);

        loop {
            tokio::time::sleep(INTERVAL).await;
            process.ensure_running()?;

            let mut calls = self.environment.proxy.calls_since(mark);
            calls.retain(|call| call.caller == manager::CALLER);
            let events = progress.service.events().await?;
            let state = progress.service.state(&progress.names).await?;
            let busy = calls.iter().any(|call| call.outcome.is_none());
            let seen = Observation {
                ended: state.is_none() || new_events(&events, &progress.events).iter().any(ends_a_step),
                wrote: calls.iter().any(Call::is_write),
                elapsed: start.elapsed(),
                quiet: changed.elapsed(),
            };
            let now = Some((calls.len(), busy, events.clone(), state.clone()));
            if now != last {
                last = now;
                changed = Instant::now();
                continue;
            }
            // Without a call or a write nothing is equal that was not.
            let is_late = seen.elapsed > patience.most || seen.quiet > patience.settled;
            let over = match self.subject {
                Subject::Incumbent => seen.incumbent_is_done(),
                Subject::Ours => seen.elapsed >= least && (seen.ended || !ends || seen.elapsed > NO_EVENT),
            };
            if (compared == now && !is_late) || busy || seen.quiet < QUIET || !over {
                continue;
            }

            compared = now;
            let outcome = self.outcome(&label, progress, &calls, &events, state).await?;
            progress.outcomes.push(outcome);

            let equal = || {
                let problems = compare::problems_of_step(progress.case, &progress.outcomes, index);
                let has_all = self.permissions.role().is_none();
                !problems.iter().any(|problem| has_all || problem.is_of_the_end_state())
            };
            let loses = recorded.is_some_and(|outcome| outcome.writes.iter().any(|line| removes_targets(line)));
            let ended = if loses || of_nodes {
                seen.quiet > patience.confirmed
            } else {
                seen.ended && seen.quiet > patience.settled
            };
            if self.subject == Subject::Incumbent || ended || seen.elapsed > patience.most || equal() {
                progress.events = events;
                return Ok(());
            }

            progress.outcomes.pop();
        }
    }

    /// The account, without the tag that only some roles need.
    async fn account(&self, case: &Case, names: &mut Names) -> Result<Account> {
        let account = account::read(&self.environment.proxy, names).await?;
        if !self.permissions.legacy_tags() || case.config.contains_key(manager::LEGACY_TAG_KEY) {
            return Ok(account);
        }
        Ok(account::without_tag(account, environment::LEGACY_TAG))
    }

    async fn outcome(
        &self,
        label: &str,
        progress: &mut Progress<'_>,
        calls: &[Call],
        events: &Events,
        state: Option<ServiceState>,
    ) -> Result<Outcome> {
        let account = self.account(progress.case, &mut progress.names).await?;
        let account = account::besides(account, &progress.before);
        let last = super::outcome::accounts(&progress.outcomes).pop().unwrap_or_default();
        let (writes, reads): (Vec<&Call>, Vec<&Call>) = calls.iter().partition(|call| call.is_write());
        let writes = writes.into_iter().map(|call| writes::line(call, &progress.names));

        Ok(compare::without_cluster_uid(Outcome {
            step: label.to_owned(),
            events: named(new_events(events, &progress.events), &progress.names),
            service: state,
            writes: writes.collect(),
            reads: reads.len(),
            aws: super::outcome::change(&last, &account),
        }))
    }
}

/// An observation of a step.
struct Observation {
    ended: bool,
    wrote: bool,
    elapsed: Duration,
    quiet: Duration,
}

impl Observation {
    fn incumbent_is_done(&self) -> bool {
        let patience = if self.wrote { BACKOFF } else { IDLE };
        self.ended || self.quiet >= patience || self.elapsed > MOST
    }
}

/// Whether a write of v1.37 removes targets, or rules that only targets need.
fn removes_targets(line: &str) -> bool {
    ["Deregister", "RevokeSecurityGroupIngress GroupId=<sg:parity-nodes>"]
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

fn ends_a_step(event: &Event) -> bool {
    ENDS.contains(&event.reason.as_str())
}

fn new_events(now: &Events, before: &Events) -> Vec<Event> {
    let new = |(event, count): (&Event, &i32)| (before.get(event).unwrap_or(&0) < count).then(|| event.clone());
    now.iter().filter_map(new).collect()
}

fn named(events: Vec<Event>, names: &Names) -> Vec<Event> {
    let named = |event: Event| Event {
        message: names.named(&event.message),
        ..event
    };
    let mut events: Vec<Event> = events.into_iter().map(named).collect();
    events.sort();
    events.dedup();

    events
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::{WORKERS, workers};

    #[test]
    fn every_case_is_in_one_worker_with_others_of_its_cloud_config() {
        let case = |number: usize, config: &str| -> Case {
            let text = format!("about: a\nservice: {{}}\nconfig: {config}\n");
            let mut case: Case = serde_saphyr::from_str(&text).expect("a case");
            case.name = number.to_string();
            case
        };
        let config = |number: usize| if number.is_multiple_of(10) { "{VPC: a}" } else { "{}" };
        let cases: Vec<Case> = (0..90).map(|number| case(number, config(number))).collect();
        assert_eq!(workers(&cases[..20]).len(), 1);
        let workers = workers(&cases);
        assert_eq!(workers.len(), WORKERS);
        let mut names: Vec<&str> = workers
            .iter()
            .flatten()
            .flatten()
            .map(|case| case.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 90);
        let alike = |group: &Vec<Case>| group.iter().all(|case| case.config == group[0].config);
        assert!(workers.iter().flatten().all(alike));
        let sizes: Vec<usize> = workers.iter().map(|worker| worker.iter().map(Vec::len).sum()).collect();
        assert!(sizes.iter().all(|size| (22..=38).contains(size)), "{sizes:?}");
    }
}
