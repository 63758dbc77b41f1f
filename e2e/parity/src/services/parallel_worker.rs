//! Runs cases in parallel workers. Each worker has an API server, a moto, and one controller manager at a time; one case after the other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::Instant;

use super::case::{self, Action, Aws, Case, Nodes, Step};
use super::cluster::{Cluster, Said, Subject as Service};
use super::environment::{self, Environment};
use super::manager::{self, CLUSTER_NAME};
use super::names::Names;
use super::outcome::{Account, Event, Outcome, ServiceState};
use super::{account, compare, writes};
use crate::Subject;
use outrigger_aws_sim::iam::roles::Role;
use outrigger_aws_sim::{Call, Caller};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::tools::{Tool, Tools};

/// Parallel workers.
const WORKERS: usize = 3;
/// Fewer cases are not worth the start of one more API server and one more moto, of 8 CPU seconds.
const CASES_OF_A_WORKER: usize = 20;
/// What the start of a manager costs, in cases.
const START: usize = 3;
/// Pause between two looks at what is there.
const LOOK: Duration = Duration::from_millis(100);
/// The same after a step has ended otherwise than recorded.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// So long nothing moves when a step is over.
const QUIET: Duration = Duration::from_millis(350);
/// A step of which nothing is seen is over then.
const IDLE: Duration = Duration::from_secs(2);
/// The incumbent tries a deletion again after 5 s.
const BETWEEN_TRIES: Duration = Duration::from_secs(6);
/// No step of the incumbent takes longer; and our manager has so long to become equal: it looks again after 5 s
/// before it takes away many targets, and reads more slowly on a busy machine.
const MOST: Duration = Duration::from_secs(30);
const OURS_MOST: Duration = Duration::from_secs(15);
/// Our manager is not waited for any longer when it has said what came out, and is not equal.
const SETTLED: Duration = Duration::from_millis(1500);
/// The same where many targets may go: it looks again after 5 s.
const CONFIRMED: Duration = Duration::from_secs(8);
/// Our manager looks at Nodes no more than once a second.
const AFTER_NODES: Duration = Duration::from_millis(1300);
/// Our manager is waited for so long where v1.37.0 says that it is done, and ours, which says the same failure once, need not.
const UNSAID: Duration = Duration::from_millis(2500);
/// For the first Service of a manager.
const WARM: Duration = Duration::from_secs(60);
/// The Events that end a step.
const ENDS: [&str; 6] = [
    "EnsuredLoadBalancer",
    "SyncLoadBalancerFailed",
    "UpdatedLoadBalancer",
    "UpdateLoadBalancerFailed",
    "DeletedLoadBalancer",
    "DeleteLoadBalancerFailed",
];

/// What became of cases.
#[derive(Debug, Default)]
pub struct Ran {
    /// By the case's name.
    pub outcomes: BTreeMap<String, Vec<Outcome>>,
    /// What kept others from being run to their end: mostly that the API server refuses something.
    pub failed: Vec<String>,
}

impl Ran {
    /// What became of all cases.
    ///
    /// # Errors
    /// When one was not run to its end.
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
/// When something of the harness does not come about.
pub async fn run(subject: Subject, cases: &[Case], folder: &Path) -> Result<Ran> {
    run_workers(subject, &Permissions::All, cases, folder).await
}

/// As [`run`], with a manager that may do only what a role allows. A step is over when AWS and the Service are as recorded,
/// whatever the Events and the calls are.
///
/// # Errors
/// As [`run`].
pub async fn run_as(subject: Subject, role: &Role, cases: &[Case], folder: &Path) -> Result<Ran> {
    run_workers(subject, &Permissions::Role(role.clone()), cases, folder).await
}

/// Runs each case under its own role, one after the other in one worker. A role may lack an action which the first Service of
/// a manager needs: no Service comes before the cases.
///
/// # Errors
/// As [`run`].
pub async fn run_each_without_an_action(
    subject: Subject,
    cases: &[(Role, Case)],
    folder: &Path,
) -> Result<Vec<Vec<Outcome>>> {
    let tools = tools(subject).await?;
    let etcd = Etcd::start(&tools, folder).await?;
    let mut worker = Worker::start(subject, &Permissions::All, &tools, &etcd, folder, 0).await?;
    let mut outcomes = Vec::new();
    for (index, (role, case)) in cases.iter().enumerate() {
        let mut ran = Ran::default();
        worker.permissions = Permissions::Lacking(role.clone());
        worker.group(index, std::slice::from_ref(case), &mut ran).await?;
        outcomes.extend(ran.all()?.into_values());
    }

    Ok(outcomes)
}

async fn tools(subject: Subject) -> Result<Tools> {
    let mut wanted = subject.tools();
    wanted.push(Tool::MotoPython);

    Ok(Tools::load(&wanted).await?)
}

async fn run_workers(subject: Subject, permissions: &Permissions, cases: &[Case], folder: &Path) -> Result<Ran> {
    let tools = tools(subject).await?;
    let etcd = Etcd::start(&tools, folder).await?;
    let workers = workers(cases);
    let workers = workers.iter().enumerate().map(|(number, groups)| {
        let (tools, etcd) = (&tools, &etcd);
        async move {
            let worker = Worker::start(subject, permissions, tools, etcd, folder, number).await?;
            let mut ran = Ran::default();
            for (index, cases) in groups.iter().enumerate() {
                worker.group(index, cases, &mut ran).await?;
            }
            anyhow::Ok(ran)
        }
    });

    let mut all = Ran::default();

    for ran in try_join_all(workers).await? {
        all.outcomes.extend(ran.outcomes);
        all.failed.extend(ran.failed);
    }

    Ok(all)
}

/// Cases by worker and by run of a manager, about as many in each worker.
fn workers(cases: &[Case]) -> Vec<Vec<Vec<Case>>> {
    let groups = case::groups(cases);
    let most = WORKERS.min(cases.len().div_ceil(CASES_OF_A_WORKER));
    let share = (cases.len() + START * (groups.len() + most)).div_ceil(most.max(1));
    let mut workers: Vec<Vec<Vec<Case>>> = vec![Vec::new()];
    let mut load = 0;

    for group in groups {
        let mut rest = &group[..];
        while !rest.is_empty() {
            if load + START >= share && workers.len() < most {
                workers.push(Vec::new());
                load = 0;
            }

            let room = if workers.len() < most {
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

/// What AWS allows a manager.
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

/// A manager that runs.
struct Running {
    process: Process,
    caller: Caller,
}

/// One case under way.
struct Progress<'a> {
    case: &'a Case,
    service: Service,
    names: Names,
    /// What AWS had before the Service.
    before: Account,
    said: Said,
    outcomes: Vec<Outcome>,
}

impl<'a> Worker<'a> {
    async fn start(
        subject: Subject,
        permissions: &Permissions,
        tools: &'a Tools,
        etcd: &Etcd,
        folder: &Path,
        number: usize,
    ) -> Result<Self> {
        let name = format!("parity-services-{number}");
        let options = ApiServerOptions::new(&name, Version::V1_36, format!("127.{}.0.0/16", 110 + number));
        let api = ApiServer::start(tools, folder, etcd, &options).await?;
        let folder = api.home().to_owned();
        let legacy_tags = permissions.role().is_some_and(|role| role.legacy_tags);
        let environment = Environment::start(tools, &folder, legacy_tags).await?;
        let cluster = Cluster::start(api.client(&User::admin(), "parity").await?, &environment).await?;

        Ok(Self {
            subject,
            permissions: permissions.clone(),
            tools,
            environment,
            cluster,
            folder,
            kubeconfig: api.kubeconfig(&User::admin())?,
            _api: api,
        })
    }

    /// Cases of one cloud config.
    async fn group(&self, index: usize, cases: &[Case], ran: &mut Ran) -> Result<()> {
        let folder = self.folder.join(format!("group-{index}"));
        std::fs::create_dir_all(&folder)?;
        let Some(first) = cases.first() else {
            return Ok(());
        };

        let started = manager::start(
            self.subject,
            self.tools,
            &folder,
            &self.kubeconfig,
            &self.environment,
            &first.config,
        )?;

        let running = Running {
            process: started.0,
            caller: started.1,
        };
        let clean = self.environment.prepare(&Aws::default()).await?;
        let policy = self.permissions.role().map(|role| Arc::clone(&role.policy));
        self.environment.proxy.set_policy(policy);
        if !matches!(self.permissions, Permissions::Lacking(_)) {
            self.warm_up(&running).await.context("the first Service of a manager")?;
        }

        self.environment.clear(clean).await?;
        for case in cases {
            match self.case(&running, case).await {
                Ok(outcome) => drop(ran.outcomes.insert(case.name.clone(), outcome)),
                Err(error) => ran.failed.push(format!("case {}: {error:#}", case.name)),
            }
        }

        self.environment.proxy.set_policy(None);
        running.process.stop(Duration::from_secs(5)).await?;

        Ok(())
    }

    /// A Service that comes and goes, so that the manager's caches are full.
    async fn warm_up(&self, running: &Running) -> Result<()> {
        let manifest =
            json!({"metadata": {"name": "warm-up"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let service = self.cluster.create(&manifest).await?;
        let start = Instant::now();
        let mut deleted = false;

        loop {
            running.alive()?;
            match service.state(&self.environment.names).await? {
                None => break,
                Some(state) if !deleted && !state.ingress.is_empty() => {
                    service.delete().await?;
                    deleted = true;
                }
                Some(_) if start.elapsed() > WARM => bail!("not done within {WARM:?}:\n{}", running.process.log_tail()),
                Some(_) => tokio::time::sleep(LOOK).await,
            }
        }

        service.remove().await
    }

    async fn case(&self, running: &Running, case: &Case) -> Result<Vec<Outcome>> {
        let prepared = self.environment.prepare(&case.aws).await?;
        self.cluster.change(&case.nodes, &self.environment).await?;

        let done = match self.begin(case, &prepared).await {
            Ok((mut progress, mark)) => {
                let done = self.steps(running, &mut progress, mark).await;
                progress.service.remove().await?;
                done.map(|()| progress.outcomes)
            }
            Err(error) => Err(error),
        };

        let changes: Vec<&Nodes> = case.steps.iter().map(|step| &step.nodes).chain([&case.nodes]).collect();
        self.cluster.restore(&changes, &self.environment).await?;
        tokio::time::sleep(QUIET).await;
        self.environment.clear(prepared).await?;

        done
    }

    /// Makes the Service.
    async fn begin<'c>(&self, case: &'c Case, prepared: &environment::Case) -> Result<(Progress<'c>, u64)> {
        let mut names = prepared.names.clone();
        let before = self.account(case, &mut names).await?;
        let mark = self.environment.proxy.mark();
        let manifest = names.resolve(&case.manifest());
        let service = self.cluster.create(&manifest).await?;
        names.learn_service(CLUSTER_NAME, &service.namespace, service.name(), &service.uid);

        let progress = Progress {
            case,
            service,
            names,
            before,
            said: Said::new(),
            outcomes: Vec::new(),
        };

        Ok((progress, mark))
    }

    /// Looks at what came of the creation, and goes on from there.
    async fn steps(&self, running: &Running, progress: &mut Progress<'_>, mark: u64) -> Result<()> {
        self.settle(running, progress, mark).await?;

        let case = progress.case;
        for (step, label) in case.steps.iter().zip(case.labels()).skip(1) {
            for call in &step.calls {
                self.environment.by_hand(call, &progress.names).await?;
            }
            let mark = self.environment.proxy.mark();
            let performed = self.perform(step, progress).await;
            performed.with_context(|| format!("step {label}"))?;
            self.settle(running, progress, mark).await?;
        }

        Ok(())
    }

    async fn perform(&self, step: &Step, progress: &mut Progress<'_>) -> Result<()> {
        match step.action {
            Action::Create => bail!("steps: a Service is created once"),
            Action::NoOp => progress.service.look().await,
            Action::Update => {
                let patch = progress.names.resolve(&step.patch);
                progress.service.update(&patch).await
            }
            Action::Nodes => self.cluster.change(&step.nodes, &self.environment).await,
            Action::Delete => progress.service.delete().await,
        }
    }

    /// Waits until nothing moves any more, and writes down what is there.
    async fn settle(&self, running: &Running, progress: &mut Progress<'_>, mark: u64) -> Result<()> {
        let label = progress
            .case
            .labels()
            .get(progress.outcomes.len())
            .cloned()
            .unwrap_or_default();
        let action = progress.case.steps.get(progress.outcomes.len()).map(|step| step.action);
        let recorded = progress.case.recorded.as_deref().unwrap_or_default();
        let recorded = recorded.get(progress.outcomes.len());
        let ends = recorded.is_some_and(|outcome| outcome.events.iter().any(ends_a_step));
        let least = if action == Some(Action::Nodes) {
            AFTER_NODES
        } else {
            QUIET
        };
        let start = Instant::now();
        let mut moved = start;
        let mut last = None;
        // Whether the step came out as recorded. AWS is read again only after something has moved.
        let mut compared = None;
        let mut called = 0;

        loop {
            tokio::time::sleep(if compared.is_some() { LOOK_AGAIN } else { LOOK }).await;
            running.alive()?;

            let calls = running.calls(self.environment.proxy.calls_since(mark));
            if calls.len() > called {
                // The manager is at work: the API server is asked when it has stopped.
                (called, moved) = (calls.len(), Instant::now());
                continue;
            }

            let said = progress.service.said().await?;
            let state = progress.service.state(&progress.names).await?;
            let busy = calls.iter().any(|call| call.outcome.is_none());
            let look = Look {
                ended: state.is_none() || new_events(&said, &progress.said).iter().any(ends_a_step),
                wrote: calls.iter().any(Call::is_write),
                elapsed: start.elapsed(),
                quiet: moved.elapsed(),
            };
            let now = Some((calls.len(), busy, said.clone(), state.clone()));
            if now != last {
                last = now;
                moved = Instant::now();
                if compared.take().is_some() {
                    progress.outcomes.pop();
                }
                continue;
            }
            if busy || look.quiet < QUIET {
                continue;
            }

            let over = match self.subject {
                Subject::Incumbent => look.incumbent_is_done(),
                Subject::Ours => look.elapsed >= least && (look.ended || !ends || look.elapsed > UNSAID),
            };
            if !over {
                continue;
            }

            let equal = match compared {
                Some(equal) => equal,
                None => {
                    let outcome = self.outcome(&label, progress, &calls, &said, state).await?;
                    progress.outcomes.push(outcome);
                    *compared.insert(self.is_as_recorded(progress))
                }
            };
            let loses = recorded.is_some_and(|outcome| outcome.writes.iter().any(|line| takes_targets_away(line)));
            let told = if loses || action == Some(Action::Nodes) {
                look.quiet > CONFIRMED
            } else {
                look.ended && look.quiet > SETTLED
            };
            if self.subject == Subject::Incumbent || told || look.elapsed > OURS_MOST || equal {
                progress.said = said;
                return Ok(());
            }
        }
    }

    /// Whether the last step came out as recorded.
    fn is_as_recorded(&self, progress: &Progress<'_>) -> bool {
        let last = progress.outcomes.len().saturating_sub(1);
        let problems = compare::problems_of_step(progress.case, &progress.outcomes, last);
        !problems
            .iter()
            .any(|problem| self.permissions.role().is_none() || problem.is_of_the_end_state())
    }

    /// The account, without the tag that only some roles need.
    async fn account(&self, case: &Case, names: &mut Names) -> Result<Account> {
        let account = account::read(&self.environment.proxy, names).await?;
        let legacy_tags = self.permissions.role().is_some_and(|role| role.legacy_tags);
        if !legacy_tags || case.config.contains_key(manager::LEGACY_TAG_KEY) {
            return Ok(account);
        }
        Ok(account::without_tag(account, environment::LEGACY_TAG))
    }

    async fn outcome(
        &self,
        label: &str,
        progress: &mut Progress<'_>,
        calls: &[Call],
        said: &Said,
        state: Option<ServiceState>,
    ) -> Result<Outcome> {
        let account = self.account(progress.case, &mut progress.names).await?;
        let account = account::besides(account, &progress.before);
        let last = super::outcome::accounts(&progress.outcomes).pop().unwrap_or_default();
        let (writes, reads): (Vec<&Call>, Vec<&Call>) = calls.iter().partition(|call| call.is_write());

        Ok(compare::without_cluster_uid(Outcome {
            step: label.to_owned(),
            events: named(new_events(said, &progress.said), &progress.names),
            service: state,
            writes: writes
                .into_iter()
                .map(|call| writes::line(call, &progress.names))
                .collect(),
            reads: reads.len(),
            aws: super::outcome::change(&last, &account),
        }))
    }
}

/// What is seen of a step.
struct Look {
    ended: bool,
    wrote: bool,
    elapsed: Duration,
    quiet: Duration,
}

impl Look {
    fn incumbent_is_done(&self) -> bool {
        let patience = if self.wrote { BETWEEN_TRIES } else { IDLE };
        self.ended || self.quiet >= patience || self.elapsed > MOST
    }
}

impl Running {
    fn alive(&self) -> Result<()> {
        if self.process.exit().is_some() {
            bail!("the manager ended by itself:\n{}", self.process.log_tail());
        }
        Ok(())
    }

    fn calls(&self, calls: Vec<Call>) -> Vec<Call> {
        calls
            .into_iter()
            .filter(|call| call.caller == self.caller.name)
            .collect()
    }
}

/// Whether a write of v1.37.0 takes targets away, or what only targets need.
fn takes_targets_away(line: &str) -> bool {
    ["Deregister", "RevokeSecurityGroupIngress GroupId=<sg:parity-nodes>"]
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

fn ends_a_step(event: &Event) -> bool {
    ENDS.contains(&event.reason.as_str())
}

/// What was said since.
fn new_events(now: &Said, before: &Said) -> Vec<Event> {
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
    use super::{CASES_OF_A_WORKER, WORKERS, workers};

    #[test]
    fn every_case_is_in_one_worker_with_others_of_its_cloud_config() {
        let case = |number: usize, config: &str| -> Case {
            let text = format!("about: a\nservice: {{}}\nconfig: {config}\n");
            let mut case: Case = serde_saphyr::from_str(&text).expect("a case");
            case.name = number.to_string();
            case
        };
        let config = |number: usize| if number.is_multiple_of(10) { "{VPC: a}" } else { "{}" };
        let cases: Vec<Case> = (0..60).map(|number| case(number, config(number))).collect();
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
        assert_eq!(names.len(), 60);
        let alike = |group: &Vec<Case>| group.iter().all(|case| case.config == group[0].config);
        assert!(workers.iter().flatten().all(alike));
        let sizes: Vec<usize> = workers.iter().map(|worker| worker.iter().map(Vec::len).sum()).collect();
        assert!(sizes.iter().all(|size| (14..=26).contains(size)), "{sizes:?}");

        let few = super::workers(&cases[..CASES_OF_A_WORKER]);
        assert_eq!(few.len(), 1);
        assert_eq!(few.iter().flatten().map(Vec::len).sum::<usize>(), CASES_OF_A_WORKER);
    }
}
