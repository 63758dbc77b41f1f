//! Checks of Outrigger itself.

use jiff::SignedDuration;
use outrigger_shared::migration::{CloudProviderMigrationStatus, condition};

use super::control_plane::is_in_tree;
use super::finding::{Detail, Found};
use crate::facts::definition::own_fields;
use crate::facts::{ClusterFacts, NotRead};

/// The status is written at least once a minute.
const MAX_STATUS_AGE: SignedDuration = SignedDuration::from_mins(3);

/// Conditions of all migrations with this status, as a finding for each.
fn with_status(facts: &ClusterFacts, type_: &str, status: &str) -> Result<Found, NotRead> {
    let migrations = facts.migrations.get()?;
    let found = migrations.iter().filter_map(|migration| {
        let conditions = &migration.status.as_ref()?.conditions;
        let bad = conditions
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .filter(|condition| migration.is_of_now(condition.observed_generation))?;
        Some(Detail::new(format!("{}: {}", migration.name, bad.message)))
    });

    Ok(found.collect())
}

pub(super) fn phase_not_followed(facts: &ClusterFacts) -> Result<Found, NotRead> {
    with_status(facts, condition::PHASE_FOLLOWED, "False")
}

pub(super) fn invalid_spec(facts: &ClusterFacts) -> Result<Found, NotRead> {
    with_status(facts, condition::SPEC_VALID, "False")
}

pub(super) fn objects_not_applied(facts: &ClusterFacts) -> Result<Found, NotRead> {
    with_status(facts, condition::OBJECTS_APPLIED, "False")
}

pub(super) fn not_registered(facts: &ClusterFacts) -> Result<Found, NotRead> {
    with_status(facts, condition::WEBHOOK_REGISTERED, "False")
}

/// The changes of the last dry runs, or the message where they are not in the status.
pub(super) fn not_clean(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let migrations = facts.migrations.get()?.iter();
    let unclean = migrations.filter_map(|migration| {
        let status = migration.status.as_ref()?;
        let mut rows = status.conditions.iter();
        let row = rows.find(|row| row.type_ == condition::ADOPTION_CLEAN && row.status == "False")?;
        let row = Some(row).filter(|row| migration.is_of_now(row.observed_generation))?;
        Some((
            &migration.name,
            changes(status).unwrap_or_else(|| vec![row.message.clone()]),
        ))
    });

    let lines = unclean.flat_map(|(name, texts)| texts.into_iter().map(move |text| format!("{name}: {text}")));
    Ok(lines.map(Detail::new).collect())
}

fn changes(status: &CloudProviderMigrationStatus) -> Option<Vec<String>> {
    let adoption = status.adoption.as_ref().filter(|adoption| !adoption.first.is_empty())?;
    let named = adoption.first.iter();
    let named = named.map(|change| format!("{}: {} ({})", change.object, change.action, change.reason));
    let more = (adoption.changes as usize).saturating_sub(adoption.first.len());
    let more = (more > 0).then(|| format!("{more} more changes"));

    Some(named.chain(more).collect())
}

pub(super) fn stalled(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let stalled = with_status(facts, condition::STALLED, "True")?;
    if stalled.is_empty() {
        return Ok(stalled);
    }

    let migrations = facts.migrations.get()?;
    let missing = migrations.iter().flat_map(|migration| {
        let missing = migration.status.iter().flat_map(|status| &status.missing);
        missing.map(|fact| Detail {
            text: format!("{}: {}", migration.name, fact.observation),
            fix: (!fact.fix.is_empty()).then(|| fact.fix.clone()),
        })
    });
    let missing: Found = missing.collect();

    Ok(if missing.is_empty() { stalled } else { missing })
}

pub(super) fn unobserved(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let migrations = facts.migrations.get()?;
    let observed = migrations.iter().filter(|migration| migration.needs_manager());
    let found = observed.filter_map(|migration| {
        let observer = migration.status.as_ref().and_then(|status| status.observed_by.as_ref());
        let Some(observer) = observer else {
            return Some(Detail::new(format!(
                "{}: no manager has written its status",
                migration.name
            )));
        };
        let age = facts.at.duration_since(observer.time.0);
        (age > MAX_STATUS_AGE).then(|| {
            let (name, minutes, by) = (&migration.name, age.as_mins(), &observer.identity);
            Detail::new(format!("{name}: its status is {minutes} min old, by {by}"))
        })
    });

    Ok(found.collect())
}

pub(super) fn uncovered_nodes(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let (components, nodes) = (facts.components.get()?, facts.nodes.get()?);
    let covered: Vec<&str> = components
        .iter()
        .filter(|component| component.is_outrigger)
        .filter_map(|component| component.node.as_deref())
        .collect();
    let is_uncovered = |node: &&crate::facts::Node| node.is_control_plane && !covered.contains(&node.name.as_str());
    if covered.is_empty() {
        return Ok(Vec::new());
    }

    Ok(nodes
        .iter()
        .filter(is_uncovered)
        .map(|node| Detail::new(node.name.clone()))
        .collect())
}

pub(super) fn not_ready(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let components = facts.components.get()?.iter();
    let bad = components.filter(|component| component.is_outrigger && !component.is_ready);
    Ok(bad.map(|component| Detail::new(component.object.clone())).collect())
}

pub(super) fn second_manager(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let components = facts.components.get()?;
    let managers = || components.iter().filter(|component| component.component == MANAGER);
    // Replacing the other one begins without a migration: both have one lease then.
    let is_replaced = facts.migrations.get()?.is_empty() && managers().any(|manager| manager.is_outrigger);
    let is_second = managers().any(|manager| manager.is_outrigger) || is_in_tree(facts)?;
    if is_replaced || !is_second {
        return Ok(Vec::new());
    }

    let others = managers().filter(|manager| !manager.is_outrigger);
    Ok(others.map(|other| Detail::new(other.object.clone())).collect())
}

const MANAGER: &str = "aws-cloud-controller-manager";

pub(super) fn registration(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let (migrations, registrations) = (facts.migrations.get()?, facts.registrations.get()?);
    let mut found: Found = registrations
        .iter()
        .filter(|registration| !registration.without_ca.is_empty())
        .map(|registration| {
            let names = registration.without_ca.join(", ");
            Detail::new(format!("{}: no caBundle for {names}", registration.name))
        })
        .collect();
    if registrations.is_empty()
        && let Some(migration) = migrations.iter().find(|migration| !migration.profiles.is_empty())
    {
        let text = format!("{}: no MutatingWebhookConfiguration of Outrigger", migration.name);
        found.push(Detail::new(text));
    }

    Ok(found)
}

/// Fields that this command knows and the definition in the cluster has not.
pub(super) fn old_definition(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let missing = missing_fields(facts.definition.get()?)?;
    Ok(if missing.is_empty() {
        Vec::new()
    } else {
        vec![Detail::new(format!("it lacks {}", missing.join(", ")))]
    })
}

/// The fields of this version that an installed definition has not. None, too, if it is not installed.
pub(crate) fn missing_fields(installed: &[String]) -> Result<Vec<String>, NotRead> {
    if installed.is_empty() {
        return Ok(Vec::new());
    }
    let own = own_fields().map_err(|error| NotRead::because(error.to_string()))?;
    let mut missing: Vec<String> = own.into_iter().filter(|field| !installed.contains(field)).collect();
    // Without the fields in a field that is missing; they follow it.
    missing.dedup_by(|field, before| {
        let rest = field.strip_prefix(before.as_str());
        rest.is_some_and(|rest| rest.starts_with(['.', '[']))
    });

    Ok(missing)
}

pub(super) fn no_webhook(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let (registrations, webhooks) = (facts.registrations.get()?, facts.webhooks.get()?);
    let called = registrations.iter().find(|registration| registration.calls_service);
    Ok(called
        .filter(|_| !webhooks.iter().any(|webhook| webhook.is_ready))
        .map(|registration| {
            Detail::new(format!(
                "{}: {} Pods, and none is Ready",
                registration.name,
                webhooks.len()
            ))
        })
        .into_iter()
        .collect())
}

/// Releases of manager and webhook that differ.
pub(super) fn different_releases(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let managers = facts.managers()?.map(|manager| (&manager.object, &manager.version));
    let webhooks = facts
        .webhooks
        .get()?
        .iter()
        .map(|webhook| (&webhook.object, &webhook.version));
    let mut by_release = std::collections::BTreeMap::<&str, Vec<&str>>::new();
    for (object, version) in managers.chain(webhooks) {
        if let Some(version) = version {
            by_release.entry(version).or_default().push(object);
        }
    }

    let has_one = by_release.len() <= 1;
    let found = by_release.into_iter().filter(|_| !has_one);
    Ok(found
        .map(|(version, objects)| Detail::new(format!("{version}: {}", objects.join(", "))))
        .collect())
}
