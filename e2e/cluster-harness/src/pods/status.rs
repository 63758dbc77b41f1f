//! From the state of a Pod's processes to the status that its kubelet would post. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::plan::Refusal;
use super::span::Exit;

/// Every process of the harness is reached here.
pub(super) const LOOPBACK: &str = "127.0.0.1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    /// Not started, with a kubelet's reason and a message.
    Waiting {
        reason: &'static str,
        message: String,
    },
    /// Runs since then.
    Running {
        since: Timestamp,
    },
    Terminated(Ended),
}

/// One run of a container that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) doing: Doing,
    pub(super) last: Option<Ended>,
    pub(super) restarts: u32,
    pub(super) ready: bool,
}

impl ContainerState {
    pub(super) fn creating() -> Self {
        Self::waiting("ContainerCreating", String::new())
    }

    pub(super) fn refused(refusal: &Refusal) -> Self {
        Self::waiting(refusal.reason, refusal.message.clone())
    }

    fn waiting(reason: &'static str, message: String) -> Self {
        Self {
            doing: Doing::Waiting { reason, message },
            last: None,
            restarts: 0,
            ready: false,
        }
    }
}

/// Renders a Pod's status and remembers when each condition last changed.
#[derive(Debug)]
pub(super) struct StatusWriter {
    started: Timestamp,
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
}

impl StatusWriter {
    pub(super) fn new(started: Timestamp) -> Self {
        Self {
            started,
            conditions: BTreeMap::new(),
        }
    }

    /// A merge patch for the Pod's status. It carries the UID, so that the API server refuses it for a later Pod of
    /// the same name.
    pub(super) fn patch(&mut self, pod: &Pod, states: &[ContainerState], now: Timestamp) -> Value {
        let containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| &spec.containers);
        let phase = phase(states);
        let ready = phase == "Running" && states.iter().all(|state| state.ready);
        let over = matches!(phase, "Succeeded" | "Failed");
        let unready = if over { "PodCompleted" } else { "ContainersNotReady" };
        let conditions = [
            self.condition("PodScheduled", true, "", now),
            self.condition("Initialized", true, "", now),
            self.condition("ContainersReady", ready, unready, now),
            self.condition("Ready", ready, unready, now),
        ];
        let statuses: Vec<_> = containers
            .iter()
            .zip(states)
            .map(|(c, state)| container_status(c, state))
            .collect();

        json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {
                "phase": phase,
                "conditions": conditions,
                "hostIP": LOOPBACK,
                "podIP": LOOPBACK,
                "podIPs": [{"ip": LOOPBACK}],
                "startTime": seconds(self.started),
                "containerStatuses": statuses,
            }
        })
    }

    fn condition(&mut self, kind: &'static str, holds: bool, reason: &str, now: Timestamp) -> Value {
        let entry = self.conditions.entry(kind).or_insert((holds, now));
        if entry.0 != holds {
            *entry = (holds, now);
        }

        let mut condition = json!({
            "type": kind,
            "status": if holds { "True" } else { "False" },
            "lastTransitionTime": seconds(entry.1),
        });

        if let (false, Some(fields)) = (holds, condition.as_object_mut()) {
            fields.insert("reason".into(), reason.into());
        }

        condition
    }
}

fn phase(states: &[ContainerState]) -> &'static str {
    let all_over = states.iter().all(|state| matches!(state.doing, Doing::Terminated(_)));
    let clean = states
        .iter()
        .all(|state| matches!(state.doing, Doing::Terminated(ended) if ended.exit == Exit::Code(0)));
    let started = |state: &ContainerState| state.last.is_some() || !matches!(state.doing, Doing::Waiting { .. });

    match (all_over, clean) {
        (true, true) => "Succeeded",
        (true, false) => "Failed",
        _ if states.iter().all(started) => "Running",
        _ => "Pending",
    }
}

fn container_status(container: &Container, state: &ContainerState) -> Value {
    let running = matches!(state.doing, Doing::Running { .. });
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "restartCount": state.restarts,
        "ready": state.ready && running,
        "started": running,
        "state": match &state.doing {
            Doing::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Doing::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
            Doing::Terminated(ended) => json!({"terminated": terminated(ended)}),
        },
        "lastState": state.last.map_or_else(|| json!({}), |ended| json!({"terminated": terminated(&ended)})),
    })
}

fn terminated(ended: &Ended) -> Value {
    let signal = match ended.exit {
        Exit::Signal(signal) => Some(signal),
        Exit::Code(_) => None,
    };
    json!({
        "exitCode": ended.exit.container_code(),
        "signal": signal,
        "reason": if ended.exit == Exit::Code(0) { "Completed" } else { "Error" },
        "startedAt": seconds(ended.started),
        "finishedAt": seconds(ended.finished),
    })
}

/// Times of a status have whole seconds in the API.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Result<Pod, serde_json::Error> {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c", "image": "i"}]}
        }))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn state(doing: Doing, ready: bool) -> ContainerState {
        ContainerState {
            doing,
            last: None,
            restarts: 0,
            ready,
        }
    }

    #[test]
    fn a_running_ready_container_makes_the_pod_running_and_ready() -> Result<(), serde_json::Error> {
        let mut writer = StatusWriter::new(at(0));
        let patch = writer.patch(&pod()?, &[state(Doing::Running { since: at(5) }, true)], at(6));
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["phase"], "Running");
        assert_eq!(patch["status"]["podIP"], "127.0.0.1");
        assert_eq!(patch["status"]["conditions"][3]["status"], "True");
        assert_eq!(
            patch["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
            "1970-01-01T00:00:05Z"
        );
        Ok(())
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() -> Result<(), serde_json::Error> {
        let mut writer = StatusWriter::new(at(0));
        let running = |ready| state(Doing::Running { since: at(0) }, ready);
        writer.patch(&pod()?, &[running(false)], at(1));
        let same = writer.patch(&pod()?, &[running(false)], at(2));
        assert_eq!(
            same["status"]["conditions"][3]["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        let changed = writer.patch(&pod()?, &[running(true)], at(3));
        assert_eq!(
            changed["status"]["conditions"][3]["lastTransitionTime"],
            "1970-01-01T00:00:03Z"
        );
        Ok(())
    }

    #[test]
    fn phases_follow_the_containers() {
        let ended = |exit| {
            Doing::Terminated(Ended {
                exit,
                started: at(0),
                finished: at(1),
            })
        };
        let waiting = || Doing::Waiting {
            reason: "CrashLoopBackOff",
            message: String::new(),
        };
        assert_eq!(phase(&[state(ended(Exit::Code(0)), false)]), "Succeeded");
        assert_eq!(phase(&[state(ended(Exit::Signal(9)), false)]), "Failed");
        assert_eq!(phase(&[state(waiting(), false)]), "Pending");
        let last = Some(Ended {
            exit: Exit::Code(1),
            started: at(0),
            finished: at(1),
        });
        assert_eq!(
            phase(&[ContainerState {
                last,
                ..state(waiting(), false)
            }]),
            "Running",
            "it crashed and comes back"
        );
    }
}
