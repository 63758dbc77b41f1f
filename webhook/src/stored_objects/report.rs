//! Reports findings: the condition of the migration, and an Event on each object.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::StatusCode;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use outrigger_shared::event::{About, EventType};
use outrigger_shared::migration::{CloudProviderMigration, condition::OBJECTS_APPLIED};

use super::{Deviation, Finding, Summary};
use crate::conditions::{ConditionType, Verdict};

/// Objects that the condition's message names.
const MAX_NAMED: usize = 5;
const MANAGER: &str = "outrigger-webhook";
const CONDITION: ConditionType = ConditionType {
    name: OBJECTS_APPLIED,
    field_manager: MANAGER,
};

fn verdict(migration: &CloudProviderMigration, summary: &Summary) -> Verdict {
    let phase = migration.spec.phase;
    if summary.missed > 0 {
        let names = summary.findings.iter().take(MAX_NAMED).map(title);
        let (all, name) = (summary.missed, migration.name_any());
        let more = if all > MAX_NAMED { ", …" } else { "" };
        let message = format!(
            "{all} objects do not have the form of {phase}: {}{more}; their Events name the reasons. When they may \
             roll, write them again, for example with annotation outrigger.dev/apply={name}/{phase}",
            names.collect::<Vec<_>>().join(", ")
        );

        return ("False", "Missed", message);
    }
    if !summary.unread.is_empty() {
        let message = format!(
            "could not be read: {}; is the ClusterRole outrigger-webhook bound?",
            summary.unread.join("; ")
        );
        return ("Unknown", "NotReadable", message);
    }

    let message = format!("all {} checked objects have the form of {phase}", summary.checked);
    ("True", "AllApplied", message)
}

fn title(finding: &Finding) -> String {
    let namespace = finding
        .namespace
        .as_ref()
        .map(|name| format!("{name}/"))
        .unwrap_or_default();
    format!("{} {namespace}{}", finding.kind, finding.name)
}

pub(super) async fn condition(client: &Client, migration: &CloudProviderMigration, summary: &Summary, now: Timestamp) {
    let verdict = verdict(migration, summary);
    CONDITION.write(client, migration, verdict, now).await;
}

/// One name per finding and phase, so that replicas write one Event.
pub(super) fn event_name(migration: &CloudProviderMigration, finding: &Finding) -> String {
    let mut hasher = DefaultHasher::new();
    let about = (&finding.uid, migration.name_any(), migration.spec.phase.to_string());
    (about, finding.deviation, &finding.reasons).hash(&mut hasher);
    // Names of Events are bounded as all names are.
    let name: String = finding.name.chars().take(200).collect();
    format!("{name}.{:016x}", hasher.finish())
}

/// Writes an Event on the object. A conflict means that another replica has written it.
pub(super) async fn event(
    client: &Client,
    migration: &CloudProviderMigration,
    finding: &Finding,
    name: &str,
    now: Timestamp,
) {
    let about = About {
        api_version: finding.api_version.clone(),
        kind: finding.kind.to_owned(),
        name: finding.name.clone(),
        namespace: finding.namespace.clone(),
        uid: finding.uid.clone(),
    };
    let (reason, message) = event_text(migration, finding);
    let event = about.event(name.to_owned(), MANAGER, EventType::Warning, (reason, &message), now);
    let api = Api::<Event>::namespaced(client.clone(), about.event_namespace());
    let written = match api.create(&PostParams::default(), &event).await {
        Err(kube::Error::Api(status)) if status.code == StatusCode::CONFLICT.as_u16() => Ok(()),
        answer => answer.map(drop),
    };

    if let Err(error) = written {
        tracing::warn!(%error, object = title(finding), "cannot write Event");
    }
}

fn event_text(migration: &CloudProviderMigration, finding: &Finding) -> (&'static str, String) {
    let (migration, phase) = (migration.name_any(), migration.spec.phase);
    let reasons = finding.reasons.join("; ");
    match finding.deviation {
        Deviation::Missed => (
            "NotInPhase",
            format!("migration {migration}: not in the form of {phase}; when it is written again: {reasons}"),
        ),
        Deviation::Refused => (
            "PhaseRefused",
            format!("migration {migration}: cannot get the form of {phase}: {reasons}"),
        ),
    }
}
