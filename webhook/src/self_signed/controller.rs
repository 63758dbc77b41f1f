//! Keeps the Secret, the served certificate and the registrations up to date.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use outrigger_certs::{Authority, Reloader};
use outrigger_decide::registration::SECRET_TYPE;
use outrigger_serving::Tasks;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::decide::{self, Serving, Step, Trust};
use super::registration::{self, Entry};
use super::state::{self, State};
use super::{Obstacle, Settings};
use crate::metrics::{Metrics, WatchedType};
use crate::view::{Latest, WatchTask, only};

const FIELD_MANAGER: &str = "outrigger-webhook";
/// Another controller may restore its own `caBundle` after each write.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// A connection to an API server may hang.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Steps are due by the clock, too.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// Between two attempts before the replica is ready, of which no event tells. It doubles from [`MIN_INTERVAL`] on.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The Secret, and what it contains.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    pub namespace: String,
    pub secret: String,
    pub settings: Settings,
}

struct Registration {
    api: Api<DynamicObject>,
    name: String,
    /// Names the object in logs.
    text: String,
    latest: Arc<Latest<DynamicObject>>,
}

pub struct Controller {
    secrets: Api<Secret>,
    options: Options,
    reloader: Arc<Reloader>,
    /// The CA of the served certificate; empty before the first one.
    served_ca: String,
    obstacle: Arc<Obstacle>,
    secret: Arc<Latest<Secret>>,
    registrations: Vec<Registration>,
    trust: Trust,
    changed: Arc<Notify>,
    failing: HashSet<String>,
}

impl Controller {
    /// Nothing is read, and no certificate served, before [`Controller::spawn`].
    pub fn new(options: Options) -> Self {
        let source = state::source(&options.namespace, &options.secret, &options.settings);
        let changed = Arc::<Notify>::default();
        Self {
            secrets: Api::namespaced(options.client.clone(), &options.namespace),
            options,
            reloader: Arc::new(Reloader::empty(source, outrigger_certs::provider())),
            served_ca: String::new(),
            obstacle: Arc::default(),
            secret: Latest::new(&changed),
            registrations: Vec::new(),
            trust: Trust::default(),
            changed,
            failing: HashSet::new(),
        }
    }

    pub fn certificates(&self) -> Arc<Reloader> {
        Arc::clone(&self.reloader)
    }

    /// The reason why there is no certificate yet.
    pub fn obstacle(&self) -> Arc<Obstacle> {
        Arc::clone(&self.obstacle)
    }

    pub fn add_registrations(&mut self, cluster: &str, client: &Client, mutating: &[String], validating: &[String]) {
        let kinds = [
            (ApiResource::erase::<MutatingWebhookConfiguration>(&()), mutating),
            (ApiResource::erase::<ValidatingWebhookConfiguration>(&()), validating),
        ];
        for (kind, names) in kinds {
            for name in names {
                self.registrations.push(Registration {
                    api: Api::all_with(client.clone(), &kind),
                    name: name.clone(),
                    text: format!("{} {name} in {cluster}", kind.kind),
                    latest: Latest::new(&self.changed),
                });
            }
        }
    }

    /// Starts the watches and the task. Registrations are changed only while `is_ready`.
    pub fn spawn(self, is_ready: impl Fn() -> bool + Send + 'static, metrics: &Arc<Metrics>, tasks: &Tasks) {
        let watch = WatchTask {
            api: self.secrets.clone(),
            config: only(&self.options.secret),
            most: 1,
            index: Arc::clone(&self.secret),
            watched: WatchedType::Secret,
            cluster: "management".to_owned(),
            metrics: Arc::clone(metrics),
        };
        watch.spawn(tasks);
        for registration in &self.registrations {
            let watch = WatchTask {
                api: registration.api.clone(),
                config: only(&registration.name),
                most: 1,
                index: Arc::clone(&registration.latest),
                watched: WatchedType::Registrations,
                cluster: registration.text.clone(),
                metrics: Arc::clone(metrics),
            };
            watch.spawn(tasks);
        }

        tasks.spawn("self-signed certificate", self.run(is_ready, tasks.stop().clone()));
    }

    async fn run(mut self, is_ready: impl Fn() -> bool, stop: CancellationToken) {
        let settle = self.options.settings.settle();
        let interval = (settle / 2).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let changed = Arc::clone(&self.changed);
        let mut backoff = MIN_INTERVAL;
        let mut was_ready = false;
        loop {
            let interval = if was_ready { interval } else { interval.min(backoff) };
            let wake = async {
                tokio::time::sleep(MIN_INTERVAL).await;
                // A timeout is a reason to go on, like a change.
                tokio::time::timeout(interval, changed.notified()).await.ok();
            };
            if stop.run_until_cancelled(wake).await.is_none() {
                return;
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
            was_ready = is_ready();
            let reconcile = tokio::time::timeout(TIMEOUT, self.reconcile(was_ready));
            let Some(result) = stop.run_until_cancelled(reconcile).await else {
                return;
            };
            self.report("reach the API servers", result.context("timed out"));
        }
    }

    async fn reconcile(&mut self, is_ready: bool) {
        let Some(secret) = self.secret.get() else {
            if let Some(error) = self.secret.error() {
                self.is_waiting("read the Secret", &error);
            }
            return;
        };
        let now = Timestamp::now();
        let state = match read(secret.as_deref(), &self.options, now) {
            Ok(state) => state,
            Err(error) => return self.report("read the Secret", Err(error)),
        };
        let entries = self.entries();
        let bundles: Option<Vec<String>> = entries
            .as_ref()
            .map(|all| all.iter().flatten().map(|entry| entry.bundle.clone()).collect());
        let authorities = state.as_ref().map(State::authorities).unwrap_or_default();
        self.trust.observe(&authorities, bundles.as_deref(), now);

        if let Some(state) = &state {
            self.serve(state, bundles.as_deref(), now);
            if is_ready {
                self.register(&state.authorities().concat(), now).await;
            }
        }

        let settle = self.options.settings.settle();
        let trusted = |ca: &Authority| self.trust.settled(ca.certificate_pem(), settle, now);
        if let Some(step) = decide::step(state.as_ref(), trusted, now) {
            let written = write(&self.secrets, &self.options, step, secret.as_deref(), state, now).await;
            self.report("write the Secret", written.map(drop));
        }
    }

    fn serve(&mut self, state: &State, bundles: Option<&[String]>, now: Timestamp) {
        let Some(leaf) = &state.leaf else {
            return;
        };

        let ca = state.current.certificate_pem();
        let is_settled = self.trust.settled(ca, self.options.settings.settle(), now);
        let serving = Serving {
            ca: &self.served_ca,
            is_valid: self.reloader.current().is_some_and(|pair| pair.is_valid_at(now)),
            bundles,
        };
        if serving.may_change_to(ca, is_settled) {
            self.reloader.replace(&leaf.issued, now);
            ca.clone_into(&mut self.served_ca);
        }
    }

    /// The entries of each registration; `None` while one cannot be read.
    fn entries(&self) -> Option<Vec<Vec<Entry>>> {
        let entries = |registration: &Registration| {
            let object = registration.latest.get()?;
            Some(object.map_or_else(Vec::new, |object| {
                registration::entries(&object.data, &self.options.settings.names)
            }))
        };
        self.registrations.iter().map(entries).collect()
    }

    async fn register(&mut self, wanted: &str, now: Timestamp) {
        let mut results = Vec::new();
        for registration in &self.registrations {
            if let Some(Some(object)) = registration.latest.get() {
                let result = set_bundle(registration, &object, &self.options.settings.names, wanted, now).await;
                results.push((format!("set caBundle of {}", registration.text), result));
            }
        }

        for (what, result) in results {
            self.report(&what, result);
        }
    }

    /// States in `/readyz` why there is no certificate yet.
    fn is_waiting(&self, what: &str, error: &str) {
        if self.reloader.current().is_none() {
            let Options { namespace, secret, .. } = &self.options;
            self.obstacle
                .set(format!("cannot {what} ({namespace}/{secret}), retrying: {error}"));
        }
    }

    /// Logs a failure when it begins and when it ends.
    fn report(&mut self, what: &str, result: Result<()>) {
        let Err(error) = result else {
            if self.failing.remove(what) {
                tracing::info!(action = what, "self-signed certificates recovered");
            }
            return;
        };

        let error = format!("{error:#}");
        self.is_waiting(what, &error);
        if self.failing.insert(what.to_owned()) {
            tracing::error!(action = what, error, "self-signed certificates: action failed");
        }
    }
}

fn read(secret: Option<&Secret>, options: &Options, now: Timestamp) -> Result<Option<State>> {
    let Some(secret) = secret else {
        return Ok(None);
    };

    let found = secret.type_.as_deref().unwrap_or_default();
    ensure!(
        found == SECRET_TYPE,
        "the Secret has the type {found:?} and not {SECRET_TYPE:?}, so it is not this webhook's; choose another name"
    );
    let state = secret
        .data
        .as_ref()
        .and_then(|data| State::read(data, &options.settings, now));
    Ok(state)
}

/// Creates or updates the Secret. If another replica was faster, nothing changes and the watch brings its version.
async fn write(
    secrets: &Api<Secret>,
    options: &Options,
    step: Step,
    stored: Option<&Secret>,
    state: Option<State>,
    now: Timestamp,
) -> Result<()> {
    let state = decide::perform(step, state, &options.settings, now).context("cannot issue a certificate")?;
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let result = match stored {
        None => secrets.create(&parameters, &new_secret(options, &state)).await,
        // It has the resourceVersion that was read.
        Some(stored) => {
            let mut secret = stored.clone();
            secret.data = Some(state.data());
            secrets.replace(&options.secret, &parameters, &secret).await
        }
    };

    match result {
        Ok(_) => {
            let leaf = state.leaf.as_ref().map(|leaf| leaf.validity.not_after.to_string());
            let ca = state.current.validity().not_after;
            tracing::info!(?step, certificate_not_after = leaf, ca_not_after = %ca, "wrote self-signed certificates");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            tracing::debug!(?step, "another replica changed the Secret");
            Ok(())
        }
        // The manifests contain the Secret, and no right to create one.
        Err(error) if stored.is_none() => Err(error).context("the Secret does not exist; apply the manifests again"),
        Err(error) => bail!(error),
    }
}

fn new_secret(options: &Options, state: &State) -> Secret {
    let label = |key: &str, value: &str| (format!("app.kubernetes.io/{key}"), value.to_owned());
    Secret {
        metadata: ObjectMeta {
            name: Some(options.secret.clone()),
            labels: Some([label("part-of", "outrigger"), label("managed-by", FIELD_MANAGER)].into()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(state.data()),
        ..Secret::default()
    }
}

async fn set_bundle(
    registration: &Registration,
    object: &DynamicObject,
    names: &[String],
    wanted: &str,
    now: Timestamp,
) -> Result<()> {
    let entries = registration::entries(&object.data, names);
    let version = object.resource_version().unwrap_or_default();
    let Some(patch) = registration::patch(&entries, &version, wanted, now)? else {
        return Ok(());
    };

    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(patch);
    match registration.api.patch(&registration.name, &parameters, &patch).await {
        Ok(_) => tracing::info!(registration = registration.text, "set caBundle"),
        // The object has changed or is gone; the watch brings its version.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => bail!(error),
    }
    Ok(())
}
