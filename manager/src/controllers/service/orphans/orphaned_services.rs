//! Services that disappeared and left their AWS resources: a user removed the finalizer by force, or a new Service has
//! the same name. Their resources are deleted if this process has state of them; the sweep finds the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::action::{Next, has_finalizer};
use super::super::context::Context;
use super::super::error::Error;
use super::super::events::{self, During, Failure};
use super::super::queue::service_state::ServiceState;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::names::{namespaced_name, uid};
use super::super::spec::{hostname, names};
use super::super::writer;
use super::deletion::delete;

/// Time between two searches. A Service must be missing in two of them: during a normal deletion it is missing for a
/// moment before its state is dropped.
const PERIOD: Duration = Duration::from_secs(10);

/// Services that were missing at the last search, and the backoff of failed deletions.
#[derive(Debug, Default)]
pub(crate) struct MissingServices {
    seen: BTreeSet<String>,
    not_before: HashMap<String, Instant>,
    /// Services that were missing in a mass loss: their resources are kept.
    kept: BTreeSet<String>,
}

pub(crate) async fn watch(context: &Context, services: &Store<Service>, stop: &CancellationToken) {
    let mut missing = MissingServices::default();
    let exists = |name: &str, of: &str| {
        let Some((namespace, name)) = name.split_once('/') else {
            return true;
        };
        let service = services.get(&ObjectRef::new(name).within(namespace));
        service.is_some_and(|service| uid(&service) == of)
    };

    while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
        // Every cluster has this Service. If it is missing, the list is incomplete.
        if services.get(&ObjectRef::new("kubernetes").within("default")).is_some() {
            delete_orphaned(context, &mut missing, exists).await;
        }
    }
}

/// Whether so many Services are missing at once that the API server was more likely restored from an old backup.
fn is_mass_loss(missing: usize, of: usize) -> bool {
    missing > 3 && missing * 5 > of
}

/// Deletes the resources of Services that were missing in this search and in the last one, by name and UID. A new
/// Service of the same name may be unmanaged, and then never deletes the earlier resources.
pub(crate) async fn delete_orphaned(
    context: &Context,
    missing: &mut MissingServices,
    exists: impl Fn(&str, &str) -> bool,
) {
    let now = Instant::now();
    let (gone, there): (Vec<_>, Vec<_>) = context
        .states
        .names()
        .into_iter()
        .partition(|(name, uid)| !exists(name, uid));
    let mut gone: BTreeMap<String, String> = gone.into_iter().map(|(name, uid)| (uid, name)).collect();
    missing.not_before.retain(|uid, _| gone.contains_key(uid));
    missing.kept.retain(|uid| gone.contains_key(uid));
    gone.retain(|uid, _| !missing.kept.contains(uid));

    let seen = std::mem::replace(&mut missing.seen, gone.keys().cloned().collect());
    let of = gone.len() + there.len();
    if is_mass_loss(gone.len(), of) {
        tracing::error!(
            missing = gone.len(),
            of,
            "mass loss: more than a fifth of the Services disappeared without a deletion; keeping their AWS resources (if the \
             Services are really gone, the sweep finds them)"
        );
        missing.kept.extend(gone.into_keys());
        return;
    }

    for (uid, name) in gone.iter().filter(|(uid, _)| seen.contains(*uid)) {
        let waits = missing.not_before.get(uid).is_some_and(|time| now < *time);
        // An earlier deletion of this loop may have taken minutes.
        if waits || exists(name, uid) {
            continue;
        }

        match delete_orphan(context, uid).await {
            Ok(()) => {}
            Err(failure) if matches!(*failure.error, Error::NotLeader(_)) => return,
            Err(_) => {
                let pause = context.states.of(uid).retry_after();
                missing.not_before.insert(uid.clone(), now + pause);
            }
        }
    }
}

/// Deletes the resources of earlier Services of the same name, before any is created for the new one.
pub(crate) async fn delete_earlier(context: &Context, service: &Service) -> Result<(), Failure> {
    for earlier in context.states.earlier(&namespaced_name(service), uid(service)) {
        delete_orphan(context, &earlier).await?;
    }
    Ok(())
}

/// Releases a Service that requests no load balancer. If it did a moment ago, its resources are deleted; if it has a
/// class now, the finalizer is removed too.
pub(crate) async fn release_unmanaged(context: &Context, service: &Service) -> Result<Next, Failure> {
    let before = remains(&context.states.of(uid(service)), uid(service));
    let had_one = before.is_some_and(|before| Annotations::of(&before).kind() != Kind::External);
    delete_remembered(context, uid(service))
        .await
        .map_err(|(_, failure)| failure)?;

    if had_one && has_finalizer(service) {
        let release = match hostname::is_of(service, &names::load_balancer(uid(service))) {
            true => writer::release(service),
            false => writer::release_only(service),
        };
        let released = context.writer.patch(service, "remove the finalizer", release).await;
        released.during(events::REMOVE_FINALIZER)?;
    }

    // Only now: the state says that the finalizer is this controller's.
    context.states.forget(uid(service));

    Ok(Next::OnChange)
}

async fn delete_orphan(context: &Context, uid: &str) -> Result<(), Failure> {
    if let Err((remains, failure)) = delete_remembered(context, uid).await {
        events::report_failure(context, &remains, &failure).await;
        return Err(failure);
    }
    context.states.forget(uid);
    Ok(())
}

/// Deletes the resources of a Service that this process has state of. A failure is returned with the remains of the
/// Service.
async fn delete_remembered(context: &Context, uid: &str) -> Result<(), (Service, Failure)> {
    if remains(&context.states.of(uid), uid).is_none() {
        return Ok(());
    }

    let alone = context.deleting.lock().await;
    // Check again: the previous holder of the lock may have deleted the same Service.
    let Some(remains) = remains(&context.states.of(uid), uid) else {
        return Ok(());
    };

    match delete(context, &remains, &alone).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            events::report_deleted(context, &remains).await;
            Ok(())
        }
        Err(failure) => Err((remains, failure.of_orphan())),
    }
}

/// The fields of a Service that deleting its resources needs; `None` if it was never reconciled.
fn remains(state: &ServiceState, uid: &str) -> Option<Service> {
    let (namespace, name) = state.name.split_once('/')?;
    Some(state.fingerprint.as_ref()?.remains(namespace, name, uid))
}
