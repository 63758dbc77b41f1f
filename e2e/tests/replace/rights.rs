//! The rights of the incumbent's service account during a switch.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;

const INTERVAL: Duration = Duration::from_millis(200);
/// Fewer observations than this show nothing.
const FEWEST: usize = 10;

type Lost = BTreeSet<String>;

/// Every right in kube-system of the user of a client, as the API server's authorizer lists them: one for each verb of
/// each resource, so that the grouping in rules does not count.
pub async fn rules(client: &Client) -> Result<BTreeSet<String>> {
    let question: SelfSubjectRulesReview = serde_json::from_value(json!({"spec": {"namespace": "kube-system"}}))?;
    let api = Api::<SelfSubjectRulesReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &question).await?;
    let status = answer.status.context("a review without status")?;
    let mut rights = BTreeSet::new();
    for rule in status.resource_rules {
        let names = rule.resource_names.unwrap_or_default();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let of_resource = |verb: &String| format!("{verb} {resource} of {group:?} {names:?}");
                rights.extend(rule.verbs.iter().map(of_resource));
            }
        }
    }
    Ok(rights)
}

/// Observes which rules are missing. Dropping it ends the task.
pub struct Observer {
    observations: Arc<Mutex<Vec<(Timestamp, Lost)>>>,
    task: JoinHandle<()>,
}

impl Observer {
    /// The rules of now are those that may not be missing.
    pub async fn start(client: Client) -> Result<Self> {
        let before = rules(&client).await?;
        ensure!(
            before.iter().any(|right| right.starts_with("* nodes of ")),
            "the account has no rights: {before:?}"
        );

        let observations: Arc<Mutex<Vec<(Timestamp, Lost)>>> = Arc::default();
        let shared = Arc::clone(&observations);
        let task = tokio::spawn(async move {
            loop {
                if let Ok(now) = rules(&client).await {
                    let lost = before.difference(&now).cloned().collect();
                    let entry = (Timestamp::now(), lost);
                    shared.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Ok(Self { observations, task })
    }

    /// Fails if a rule was missing before `end`.
    pub fn nothing_lost_before(&self, end: Timestamp) -> Result<()> {
        let observations = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        let until: Vec<_> = observations.iter().filter(|(at, _)| *at < end).collect();
        ensure!(until.len() >= FEWEST, "only {} observations before {end}", until.len());
        for (at, lost) in until {
            ensure!(
                lost.is_empty(),
                "at {at} the account had lost {lost:?}; its process ended at {end}"
            );
        }
        Ok(())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
