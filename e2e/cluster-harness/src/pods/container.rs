//! Runs one container: starts its process, probes it, starts it again, stops it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::Shared;
use super::backoff::{Backoff, RestartPolicy};
use super::identity::ProcessIdentity;
use super::plan::ContainerPlan;
use super::span::{Exit, ProcessSpan};
use super::status::{ContainerState, Doing, Ended};
use crate::process::{self, Launch, Process};

/// One container of one Pod.
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
        self.set(|state| {
            (state.doing, state.ready) = (
                Doing::Running {
                    since: process.started(),
                },
                false,
            )
        });

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
