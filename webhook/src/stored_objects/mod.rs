//! The background check: which objects are not in the form of their migration's phase.
//!
//! The webhook may be down when an object is written, and a new phase changes no object by itself. So after each change
//! of a migration, and every few minutes, this check decides each stored object as if it were written now. An object
//! that would be changed was missed, or waits for its rollout. The check changes nothing. It reports in a metric, in the
//! condition `ObjectsApplied` of the migration, and in an Event on each object.
//!
//! Not checked: Nodes, whose taint the manager handles, and kinds that are changed at their creation
//! only, except Pods, which are replaced often.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use outrigger_decide::Migration;
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admit::Reviewer;
use crate::view::{Labels, MigrationSnapshot};

mod compare;
mod finding;
mod list;
mod report;
mod schedule;

pub use compare::{Comparison, compare};
use finding::MAX_NAMED;
pub use finding::{Deviation, Finding, Summary};
use list::Scope;
use schedule::Schedule;

/// An object that is still not in form gets another Event after this time: API servers keep Events for an hour.
const EVENT_INTERVAL: Duration = Duration::from_secs(3600);

/// Time between two looks for the first lists of migrations and namespaces.
const LISTS_PENDING: Duration = Duration::from_secs(1);

pub struct Check {
    pub client: Client,
    pub reviewer: Arc<Reviewer>,
    pub every: Duration,
}

/// The state between two passes.
#[derive(Default)]
struct Passes {
    schedule: Schedule,
    /// The objects that are not in form, by migration.
    counts: BTreeMap<String, Counts>,
    events_sent: HashMap<String, Instant>,
}

type Counts = HashMap<(&'static str, Deviation), i64>;

impl Check {
    /// Checks each migration after a change of its spec and then at growing intervals up to `every`, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut passes = Passes::default();
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.reviewer.migrations.changed() => {}
                () = tokio::time::sleep_until(next) => {}
            }

            // Like reviews, the first pass waits for the first lists of migrations and namespaces.
            next = Instant::now() + LISTS_PENDING;
            let (Some(known), true) = (self.reviewer.migrations.known(), self.reviewer.namespaces.listed()) else {
                continue;
            };

            if stop.run_until_cancelled(self.pass(&known, &mut passes)).await.is_none() {
                return;
            }
            next = passes.schedule.next().unwrap_or_else(|| Instant::now() + self.every);
        }
    }

    async fn pass(&self, known: &MigrationSnapshot, passes: &mut Passes) {
        let all: Vec<Migration<'_>> = known.iter().map(Migration::from).collect();
        let namespaces = self.reviewer.namespaces.all();
        passes.schedule.retain(known);
        passes.counts.retain(|name, _| passes.schedule.has(name));

        for migration in known.iter() {
            if !passes.schedule.is_due(migration, Instant::now()) {
                continue;
            }

            let mut counts = Counts::new();
            let summary = self.check(migration, &all, &namespaces, &mut counts).await;
            tracing::debug!(
                migration = migration.metadata.name,
                checked = summary.checked,
                missed = summary.missed,
                "checked stored objects"
            );
            report::condition(&self.client, migration, &summary, Timestamp::now()).await;
            self.send_events(migration, &summary, &mut passes.events_sent).await;

            let name = migration.metadata.name.clone().unwrap_or_default();
            passes.schedule.checked(&name, Instant::now(), self.every);
            passes.counts.insert(name, counts);
        }

        passes.events_sent.retain(|_, at| at.elapsed() < EVENT_INTERVAL);
        self.reviewer.metrics.missed(&sum(passes.counts.values()));
    }

    async fn check(
        &self,
        migration: &CloudProviderMigration,
        all: &[Migration<'_>],
        namespaces: &BTreeMap<String, Labels>,
        counts: &mut Counts,
    ) -> Summary {
        let mut summary = Summary::default();
        // UIDs: two targets may select one object.
        let mut seen = HashSet::new();
        for (kind, scope) in Scope::of(migration, namespaces, &self.reviewer.own_namespace) {
            let compare = Comparison {
                kind,
                migration: migration.metadata.name.as_deref().unwrap_or_default(),
                all,
                own_namespace: &self.reviewer.own_namespace,
                namespaces: &self.reviewer.namespaces,
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

            summary.unread.extend(result.err());
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

fn sum<'a>(all: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut sum = Counts::new();
    for (kind, count) in all.flatten() {
        *sum.entry(*kind).or_default() += count;
    }
    sum
}
