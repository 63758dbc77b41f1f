//! Runs one container: starts its process, probes it, starts it again, stops it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::watch;

use super::Shared;
use super::plan::ContainerPlan;
use super::readiness::{HttpProbe, Readiness};
use super::span::{Exit, ProcessSpan};
use super::status::{ContainerState, Doing, Ended};
use crate::process::{self, Launch, Process};

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A run that lasted this long was no crash loop; the next wait starts over.
const STABLE: Duration = Duration::from_secs(60);

pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) identity: ProcessIdentity,
    pub(super) plan: ContainerPlan,
    pub(super) policy: RestartPolicy,
    /// Where among the Pod's containers its state lies.
    pub(super) index: usize,
    pub(super) states: watch::Sender<Vec<ContainerState>>,
    /// How long the process may take to end, once it is to end.
    pub(super) stop: watch::Receiver<Option<Duration>>,
}

impl Runner {
    /// Returns when the process has ended and does not come back.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let (ended, failure) = self.run_once().await;
            if self.stop.borrow().is_some() || !self.policy.restarts(ended.exit) {
                self.set(|state| (state.doing, state.ready) = (Doing::Terminated(ended), false));
                return;
            }

            let ran = Duration::try_from(ended.finished.duration_since(ended.started)).unwrap_or(Duration::ZERO);
            let wait = backoff.next(ran);
            let reason = if failure.is_some() {
                "RunContainerError"
            } else {
                "CrashLoopBackOff"
            };
            let what = failure.unwrap_or_else(|| format!("{} after {ran:.1?}", ended.exit));
            let message = format!("{what}; starts again in {wait:?}");

            self.set(|state| {
                state.doing = Doing::Waiting { reason, message };
                (state.ready, state.last, state.restarts) = (false, Some(ended), state.restarts + 1);
            });
            self.identity.restarts += 1;

            let stopped = tokio::time::timeout(wait, self.stop.wait_for(Option::is_some))
                .await
                .is_ok();
            if stopped {
                self.set(|state| state.doing = Doing::Terminated(ended));
                return;
            }
        }
    }

    /// One run of the process, and why it could not be started if it could not.
    async fn run_once(&mut self) -> (Ended, Option<String>) {
        let began = Timestamp::now();
        match self.start() {
            Ok((name, process)) => {
                let ended = self.watch(&process).await;
                let exit = self.shared.processes.ended(&name, &ended);
                (
                    Ended {
                        exit,
                        started: process.started(),
                        finished: ended.at,
                    },
                    None,
                )
            }
            Err(error) => {
                tracing::warn!(error, container = %self.plan.container, "the process was not started");
                // 128 is what a container runtime reports for a program that it cannot start.
                (
                    Ended {
                        exit: Exit::Code(128),
                        started: began,
                        finished: Timestamp::now(),
                    },
                    Some(error),
                )
            }
        }
    }

    fn start(&self) -> Result<(String, Arc<Process>), String> {
        let name = self.identity.process();
        let key = self.identity.access_key();
        (self.shared.config.on_access_key)(&key.id, &name);

        let mut launch = Launch::new(&name, &self.plan.program)
            .arguments(self.plan.argv.iter().skip(1).cloned())
            .environment("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .environment("HOME", self.shared.config.folder.display().to_string())
            .environment("HOSTNAME", &self.identity.pod)
            // The kubelet cuts the host name, too.
            .host_name(self.identity.pod.chars().take(63).collect::<String>());

        for (variable, value) in &self.plan.environment {
            launch = launch.environment(variable, value);
        }

        launch = launch
            .environment("AWS_ACCESS_KEY_ID", &key.id)
            .environment("AWS_SECRET_ACCESS_KEY", &key.secret);

        if let Some(directory) = &self.plan.directory {
            launch = launch.directory(directory);
        }

        let process = Arc::new(Process::start(&launch, &self.shared.config.folder).map_err(|error| error.to_string())?);
        self.shared.processes.started(self.span(&name, &process), &process);
        let since = process.started();
        self.set(|state| (state.doing, state.ready) = (Doing::Running { since }, false));

        Ok((name, process))
    }

    fn span(&self, name: &str, process: &Process) -> ProcessSpan {
        ProcessSpan {
            process: name.to_owned(),
            component: self.plan.component.clone(),
            namespace: self.identity.namespace.clone(),
            pod: self.identity.pod.clone(),
            uid: self.identity.uid.clone(),
            pid: u32::try_from(process.pid()).unwrap_or(0),
            program: self.plan.program.clone(),
            argv: self.plan.argv.clone(),
            started: process.started(),
            ended: None,
            exit: None,
        }
    }

    /// Until the process ended, by itself or because the Pod is stopped.
    async fn watch(&mut self, process: &Process) -> process::Exit {
        let (states, index) = (self.states.clone(), self.index);
        let ready = |ready: bool| {
            states.send_if_modified(|states| {
                let state = states.get_mut(index).filter(|state| state.ready != ready);
                state.map(|state| state.ready = ready).is_some()
            });
        };
        let grace = tokio::select! {
            exit = process.ended() => return exit,
            () = self.plan.readiness.watch(ready) => Duration::ZERO,
            grace = self.stop.wait_for(Option::is_some) => grace.ok().and_then(|grace| *grace).unwrap_or(Duration::ZERO),
        };

        match process.stop(grace).await {
            Ok(exit) => exit,
            Err(error) => {
                tracing::error!(%error, "the process was not stopped; waiting for its end");
                process.ended().await
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut ContainerState)) {
        self.states.send_modify(|states| {
            if let Some(state) = states.get_mut(self.index) {
                change(state);
            }
        });
    }
}

/// `restartPolicy` of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// Reads the API's word; missing means Always.
    pub(super) fn parse(word: Option<&str>) -> Self {
        match word {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    pub(super) fn restarts(self, exit: Exit) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit != Exit::Code(0),
            Self::Never => false,
        }
    }
}

/// Waits between the runs of one container: none before the first restart, then 1 s, doubled up to 10 s. (A kubelet
/// starts at 10 s and goes up to 5 minutes; nobody waits that long for a test.)
#[derive(Debug, Default)]
pub(super) struct Backoff {
    crashes: u32,
}

impl Backoff {
    /// The wait after a run that lasted `ran`.
    pub(super) fn next(&mut self, ran: Duration) -> Duration {
        if ran >= STABLE {
            self.crashes = 0;
        }

        self.crashes += 1;
        match self.crashes {
            0 | 1 => Duration::ZERO,
            crashes => FIRST_WAIT
                .saturating_mul(2_u32.saturating_pow(crashes - 2))
                .min(LONGEST_WAIT),
        }
    }
}

impl Readiness {
    /// Tells `ready` each time that the answer changes; never returns.
    pub(super) async fn watch(&self, ready: impl Fn(bool)) {
        match self {
            Self::Alive => {
                ready(true);
                std::future::pending().await
            }
            Self::Http(probe) => probe.watch(ready).await,
        }
    }
}

impl HttpProbe {
    async fn watch(&self, ready: impl Fn(bool)) {
        tokio::time::sleep(self.initial_delay).await;

        let (mut good, mut bad) = (0, 0);
        loop {
            match tokio::time::timeout(self.timeout, self.get()).await {
                Ok(Ok(status)) if (200..400).contains(&status) => (good, bad) = (good + 1, 0),
                answer => {
                    tracing::debug!(
                        ?answer,
                        port = self.port,
                        path = self.path,
                        "the readiness probe failed"
                    );
                    (good, bad) = (0, bad + 1);
                }
            }

            if good >= self.successes {
                ready(true);
            } else if bad >= self.failures {
                ready(false);
            }

            // A process that has just started is asked often, so that a test need not wait a whole period for it.
            let pause = if good == 0 {
                self.period.min(Duration::from_millis(250))
            } else {
                self.period
            };

            tokio::time::sleep(pause).await;
        }
    }

    async fn get(&self) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
        let mut config = kube::Config::new(format!("{}://127.0.0.1:{}", self.scheme, self.port).parse()?);
        config.accept_invalid_certs = true;
        let request = http::Request::get(self.path.as_str()).body(Body::empty())?;
        // A client of its own each time: the kubelet does not keep connections of probes either.
        Ok(kube::Client::try_from(config)?.send(request).await?.status().as_u16())
    }
}

/// One process of a Pod: a container's N-th run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// Counts Pods of this name from 1: a StatefulSet gives a name again.
    pub(super) occurrence: usize,
    pub(super) uid: String,
    /// The container's name, where the Pod has several.
    pub(super) container: Option<String>,
    /// The container's place in the Pod.
    pub(super) index: usize,
    pub(super) restarts: u32,
}

/// A pair of static credentials. Nobody checks them; the ID tells who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccessKey {
    pub(super) id: String,
    pub(super) secret: String,
}

impl ProcessIdentity {
    /// Unique in a run; also the name of its log file.
    pub(super) fn process(&self) -> String {
        let mut name = self.pod.clone();
        if self.occurrence > 1 {
            name += &format!("~{}", self.occurrence);
        }
        if let Some(container) = &self.container {
            name += &format!(":{container}");
        }
        if self.restarts > 0 {
            name += &format!("#{}", self.restarts);
        }
        name
    }

    /// In AWS's form, AKIA and 16 capitals and digits: ten of the Pod's UID, two of the container, four of the run.
    pub(super) fn access_key(&self) -> AccessKey {
        let uid: String = self.uid.chars().filter(char::is_ascii_alphanumeric).take(10).collect();
        let id = format!(
            "AKIA{:0<10}{:02}{:04}",
            uid.to_uppercase(),
            self.index % 100,
            self.restarts % 10_000
        );

        AccessKey {
            secret: format!("secret-of-{id}"),
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_seconds_and_start_over_after_a_stable_run() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..7).map(|_| backoff.next(Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.next(STABLE), Duration::ZERO);
    }

    #[test]
    fn the_restart_policy_decides_who_comes_back() {
        assert!(RestartPolicy::parse(None).restarts(Exit::Code(0)));
        assert!(RestartPolicy::parse(Some("OnFailure")).restarts(Exit::Signal(9)));
        assert!(!RestartPolicy::parse(Some("OnFailure")).restarts(Exit::Code(0)));
        assert!(!RestartPolicy::parse(Some("Never")).restarts(Exit::Code(1)));
    }

    #[test]
    fn every_run_of_every_container_has_its_own_name_and_key() {
        let mut identity = ProcessIdentity {
            namespace: "tenant".into(),
            pod: "kcm-0".into(),
            occurrence: 1,
            uid: "0d9f3c1e-8a2b-4c5d-9e6f-000000000000".into(),
            container: None,
            index: 0,
            restarts: 0,
        };
        assert_eq!(identity.process(), "kcm-0");
        assert_eq!(identity.access_key().id, "AKIA0D9F3C1E8A000000");
        identity.restarts = 2;
        identity.container = Some("side".into());
        identity.index = 1;
        assert_eq!(identity.process(), "kcm-0:side#2");
        identity.occurrence = 3;
        assert_eq!(identity.process(), "kcm-0~3:side#2");
        assert_eq!(identity.access_key().id, "AKIA0D9F3C1E8A010002");
        assert_eq!(identity.access_key().id.len(), 20);
    }
}
