//! The background check: which objects are not in the form of their migration's phase.
//!
//! The webhook may be down when an object is written, and a new phase changes no object by itself. So every few minutes
//! this check decides each stored object as if it were written now. An object that would be changed was missed, or
//! waits for its rollout. The check changes nothing. It reports in a metric, in the condition `ObjectsApplied` of the
//! migration, and in an Event on each object.
//!
//! Not checked: Nodes, whose taint the manager handles, and kinds that are changed at their creation
//! only, except Pods, which are replaced often.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::decide::Migration;
use crate::metrics::Metrics;
use crate::view::{Labels, MigrationSnapshot, Migrations, Namespaces};

mod compare;
mod finding;
mod list;
mod report;

pub use compare::{Comparison, compare};
use finding::MAX_NAMED;
pub use finding::{Deviation, Finding, Summary};
pub use list::is_checked;
use list::{ListResult, Scope};

/// An object that is still not in form gets another Event after this time: API servers keep Events for an hour.
const EVENT_INTERVAL: Duration = Duration::from_secs(3600);

pub struct Check {
    pub client: Client,
    pub migrations: Arc<Migrations>,
    pub namespaces: Arc<Namespaces>,
    /// The webhook changes nothing in its own namespace.
    pub own_namespace: String,
    pub metrics: Arc<Metrics>,
    pub every: Duration,
}

impl Check {
    /// Checks at each interval, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut events_sent = HashMap::new();
        // Like reviews, the first pass waits for the first lists of migrations and namespaces.
        let mut pause = Duration::from_secs(1);
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let (Some(known), true) = (self.migrations.known(), self.namespaces.listed()) else {
                continue;
            };

            pause = self.every;
            if stop
                .run_until_cancelled(self.pass(&known, &mut events_sent))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    async fn pass(&self, known: &MigrationSnapshot, events_sent: &mut HashMap<String, Instant>) {
        let all: Vec<Migration<'_>> = known.iter().map(Migration::from).collect();
        let namespaces = self.namespaces.all();
        let mut counts = HashMap::new();

        for migration in known.iter() {
            let summary = self.check(migration, &all, &namespaces, &mut counts).await;
            tracing::debug!(
                migration = migration.metadata.name,
                checked = summary.checked,
                missed = summary.missed,
                "checked stored objects"
            );
            report::condition(&self.client, migration, &summary, Timestamp::now()).await;
            self.send_events(migration, &summary, events_sent).await;
        }

        events_sent.retain(|_, at| at.elapsed() < EVENT_INTERVAL);
        self.metrics.missed(&counts);
    }

    async fn check(
        &self,
        migration: &CloudProviderMigration,
        all: &[Migration<'_>],
        namespaces: &BTreeMap<String, Labels>,
        counts: &mut HashMap<(&'static str, Deviation), i64>,
    ) -> Summary {
        let mut summary = Summary::default();
        // UIDs: two targets may select one object.
        let mut seen = HashSet::new();
        for (kind, scope) in Scope::of(migration, namespaces, &self.own_namespace) {
            let compare = Comparison {
                kind,
                migration: migration.metadata.name.as_deref().unwrap_or_default(),
                all,
                own_namespace: &self.own_namespace,
                namespaces: &self.namespaces,
            };
            let result = list::each(&self.client, kind, &scope, |object| {
                let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
                if !seen.insert(uid.unwrap_or_default().to_owned()) {
                    return;
                }

                summary.checked += 1;
                if let Some(finding) = compare::compare(&compare, object) {
                    *counts.entry((kind.kind, finding.deviation)).or_default() += 1;
                    summary.missed += 1;
                    if summary.findings.len() < MAX_NAMED {
                        summary.findings.push(finding);
                    }
                }
            })
            .await;

            match result {
                ListResult::All | ListResult::NotServed => {}
                ListResult::Failed(reason) => summary.unread.push(reason),
            }
        }

        summary
    }

    async fn send_events(
        &self,
        migration: &CloudProviderMigration,
        summary: &Summary,
        events_sent: &mut HashMap<String, Instant>,
    ) {
        for finding in &summary.findings {
            let key = report::event_name(migration, finding);
            if events_sent.contains_key(&key) {
                continue;
            }
            report::event(&self.client, migration, finding, &key, Timestamp::now()).await;
            events_sent.insert(key, Instant::now());
        }
    }
}
