//! Compares the registration in the cluster with what the migrations in use need, and reports each difference: in a metric,
//! in the log, at `/registration` of the health port, and in a condition of the migrations. It repairs nothing, and
//! `/readyz` does not depend on it: a replica that is not ready gets even fewer reviews.
//!
//! ```text
//! configurations ──watch──▶ Latest ─┐
//! migrations, namespaces, CA ───────┴─▶ registration::differences (pure) ──▶ Report ──▶ metric, log, /registration, condition
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use outrigger_certs::Reloader;
use outrigger_decide::Migration;
use outrigger_decide::registration::{Configuration, Difference, Field, Needs, Options, differences, fix};
use outrigger_serving::Tasks;
use outrigger_shared::migration::Labels;
use outrigger_shared::migration::condition::WEBHOOK_REGISTERED;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::admit::Reviewer;
use crate::conditions::{ConditionType, Verdict};
use crate::metrics::WatchedType;
use crate::view::{Latest, WatchTask, only};

/// Certificates and migrations change without a change of the registration.
const INTERVAL: Duration = Duration::from_secs(15);
/// cert-manager and the webhook itself set `caBundle` some seconds after the registration is applied.
const PATIENCE: Duration = Duration::from_secs(30);
/// Differences that the condition names.
const MAX_NAMED: usize = 5;
const CONDITION: ConditionType = ConditionType {
    name: WEBHOOK_REGISTERED,
    field_manager: "outrigger-webhook-registration",
};
/// A difference that stays is logged again after this time.
const REPEAT: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub struct Report {
    lines: Mutex<Option<Vec<String>>>,
}

impl Report {
    /// One line for each difference; `None` before the first comparison.
    pub fn lines(&self) -> Option<Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, lines: Vec<String>) {
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = Some(lines);
    }
}

pub struct RegistrationCheck {
    pub client: Client,
    pub reviewer: Arc<Reviewer>,
    pub certificates: Arc<Reloader>,
    /// The names for which the certificate must be valid.
    pub server_names: Vec<String>,
    pub options: Options,
    pub report: Arc<Report>,
}

type Registrations = Vec<(Configuration, Arc<Latest<DynamicObject>>)>;

impl RegistrationCheck {
    pub fn spawn(self, tasks: &Tasks) {
        let changed = Arc::<Notify>::default();
        let mut registrations = Registrations::new();
        for configuration in Configuration::ALL {
            let kind = match configuration {
                Configuration::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
                _ => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            };
            let latest = Latest::new(&changed);
            let watch = WatchTask {
                api: Api::<DynamicObject>::all_with(self.client.clone(), &kind),
                config: only(configuration.name()),
                most: 1,
                index: Arc::clone(&latest),
                watched: WatchedType::Registrations,
                cluster: format!("{} {} in management", kind.kind, configuration.name()),
                metrics: Arc::clone(&self.reviewer.metrics),
            };
            watch.spawn(tasks);
            registrations.push((configuration, latest));
        }

        let stop = tasks.stop().clone();
        tasks.spawn("registration check", async move {
            stop.run_until_cancelled(self.run(&registrations, &changed)).await;
        });
    }

    async fn run(self, registrations: &Registrations, changed: &Notify) {
        let mut log = Log::default();
        loop {
            // A timeout is a reason to go on, like a change.
            tokio::time::timeout(INTERVAL, changed.notified()).await.ok();
            // Changes come in groups: one for each entry that gets its caBundle.
            tokio::time::sleep(Duration::from_millis(200)).await;

            if let Some((found, fix)) = self.compare(registrations) {
                self.report.set(found.iter().map(|one| line(one, &fix)).collect());
                self.count(&found);
                let now = Instant::now();
                log.update(found, now).write(&fix);
                self.write_condition(log.verdict(&fix, now)).await;
            }
        }
    }

    /// On every migration: the registration is of all of them.
    async fn write_condition(&self, verdict: Option<Verdict>) {
        let (Some(verdict), Some(known)) = (verdict, self.reviewer.migrations.known()) else {
            return;
        };
        for migration in known.iter() {
            CONDITION
                .write(&self.client, migration, verdict.clone(), Timestamp::now())
                .await;
        }
    }

    /// The differences, and the command that repairs most of them; `None` until everything was read.
    fn compare(&self, registrations: &Registrations) -> Option<(Vec<Difference>, String)> {
        let index = &self.reviewer.namespaces;
        let known = self.reviewer.migrations.known().filter(|_| index.listed())?;
        let migrations: Vec<Migration<'_>> = known.iter().map(Migration::from).collect();
        let namespaces = index.all().into_iter();
        let namespaces: BTreeMap<String, Labels> = namespaces
            .map(|(name, labels)| (name, Labels::clone(&labels)))
            .collect();
        let (pair, now) = (self.certificates.current()?, Timestamp::now());
        let needs = Needs {
            options: self.options.clone(),
            migrations: &migrations,
            namespaces: &namespaces,
            server_names: &self.server_names,
            trusts: &|bundle| pair.is_trusted_by(bundle, &outrigger_certs::provider(), now),
        };

        let mut all = Vec::new();
        for (configuration, latest) in registrations {
            let found = latest.get()?;
            let found = found.as_ref().map(|object| &object.data);
            all.extend(differences(*configuration, found, &needs));
        }
        Some((all, fix(&needs.profiles(), &self.options)))
    }

    fn count(&self, found: &[Difference]) {
        for configuration in Configuration::ALL {
            let mut counts: HashMap<Field, i64> = HashMap::new();
            for one in found.iter().filter(|one| one.configuration == configuration) {
                *counts.entry(one.field).or_default() += 1;
            }
            self.reviewer.metrics.registration(configuration, &counts);
        }
    }
}

fn line(difference: &Difference, fix: &str) -> String {
    let (kind, name) = (difference.configuration.kind(), difference.configuration.name());
    let entry = match difference.entry.as_str() {
        "" => String::new(),
        entry => format!(", entry {entry}"),
    };
    let (field, found, wanted) = (difference.field.as_str(), &difference.found, &difference.wanted);
    let fix = difference.own_fix().unwrap_or(fix);
    format!("{kind} {name}{entry}: {field} is {found}; needed: {wanted}; {fix}")
}

/// The differences that were seen, and since when.
#[derive(Debug, Default)]
struct Log {
    seen: BTreeMap<Difference, Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    first: Instant,
    logged: Option<Instant>,
}

/// The differences that are due in the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    differ: Vec<Difference>,
    repaired: Vec<Difference>,
}

impl Log {
    fn update(&mut self, found: Vec<Difference>, now: Instant) -> Due {
        let mut due = Due::default();
        self.seen.retain(|one, times| {
            let stays = found.contains(one);
            if !stays && times.logged.is_some() {
                due.repaired.push(one.clone());
            }
            stays
        });

        for one in found {
            let times = self.seen.entry(one.clone()).or_insert(Times {
                first: now,
                logged: None,
            });
            let is_due = match times.logged {
                None => now - times.first >= PATIENCE,
                Some(logged) => now - logged >= REPEAT,
            };
            if is_due {
                times.logged = Some(now);
                due.differ.push(one);
            }
        }
        due
    }
}

impl Log {
    /// The verdict of the condition; `None` while all differences are new.
    fn verdict(&self, fix: &str, now: Instant) -> Option<Verdict> {
        if self.seen.is_empty() {
            let message = "API servers call the webhook for all targets".to_owned();
            return Some(("True", "Registered", message));
        }

        let lasting = self.seen.iter().filter(|(_, times)| now - times.first >= PATIENCE);
        let lines: Vec<String> = lasting.map(|(one, _)| line(one, fix)).collect();
        let named = lines.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("\n");
        let more = match lines.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!("\nand {more} more"),
        };
        (!lines.is_empty()).then(|| ("False", "RegistrationDiffers", named + &more))
    }
}

impl Due {
    fn write(self, fix: &str) {
        for one in self.differ {
            tracing::warn!(
                registration = format!("{}/{}", one.configuration.kind(), one.configuration.name()),
                entry = one.entry,
                field = one.field.as_str(),
                found = one.found,
                needed = one.wanted,
                fix = one.own_fix().unwrap_or(fix),
                "the registration differs from what the migrations need"
            );
        }
        for one in self.repaired {
            tracing::info!(
                registration = format!("{}/{}", one.configuration.kind(), one.configuration.name()),
                entry = one.entry,
                field = one.field.as_str(),
                "the registration no longer differs"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(entry: &str) -> Difference {
        Difference {
            configuration: Configuration::Main,
            entry: entry.to_owned(),
            field: Field::TimeoutSeconds,
            found: "10".to_owned(),
            wanted: "3".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_is_logged_when_it_stays_then_each_hour_and_when_it_ends() {
        let mut log = Log::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, other) = (difference("a"), difference("b"));

        assert_eq!(log.update(vec![one.clone(), other.clone()], at(0)), Due::default());
        assert_eq!(
            log.update(vec![one.clone()], at(29)),
            Due::default(),
            "it ended before it was logged"
        );
        assert_eq!(log.update(vec![one.clone()], at(30)).differ, std::slice::from_ref(&one));
        assert_eq!(log.update(vec![one.clone()], at(60)), Due::default());
        assert_eq!(
            log.update(vec![one.clone()], at(3630)).differ,
            std::slice::from_ref(&one)
        );
        assert_eq!(log.update(vec![], at(3631)).repaired, std::slice::from_ref(&one));
        assert_eq!(log.update(vec![one], at(3632)), Due::default());
    }

    #[tokio::test(start_paused = true)]
    async fn the_condition_is_about_differences_that_last() {
        let mut log = Log::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let status = |log: &Log, seconds| log.verdict("run this", at(seconds)).map(|(status, ..)| status);

        assert_eq!(status(&log, 0), Some("True"));
        let many: Vec<Difference> = (0..7).map(|number| difference(&format!("entry-{number}"))).collect();
        log.update(many.clone(), at(0));
        assert_eq!(status(&log, 29), None);
        let (status_then, reason, message) = log.verdict("run this", at(30)).unwrap();
        assert_eq!((status_then, reason), ("False", "RegistrationDiffers"));
        assert!(message.starts_with("MutatingWebhookConfiguration outrigger, entry entry-0: timeoutSeconds is 10"));
        assert!(message.ends_with("\nand 2 more"), "{message}");
        log.update(Vec::new(), at(31));
        assert_eq!(status(&log, 31), Some("True"));
    }

    #[test]
    fn a_line_names_the_field_the_value_and_the_fix() {
        assert_eq!(
            line(&difference("nodes.outrigger.dev"), "run this"),
            "MutatingWebhookConfiguration outrigger, entry nodes.outrigger.dev: timeoutSeconds is 10; needed: 3; run this"
        );
    }
}
