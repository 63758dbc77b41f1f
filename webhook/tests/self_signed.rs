//! Certificates without cert-manager: the rules one by one, and replicas with late views of one Secret and of the
//! registrations.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Issued, Validity, bundle};
use outrigger_webhook::self_signed::Settings;
use outrigger_webhook::self_signed::decide::{self, Serving, Step, Trust};
use outrigger_webhook::self_signed::registration::{self, Entry};
use outrigger_webhook::self_signed::state::{Data, State};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAME: &str = "outrigger-webhook.outrigger-system.svc";
const LEAF: u64 = 60;
const CA: u64 = 240;

fn start() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn at(seconds: u64) -> Timestamp {
    start() + Duration::from_secs(seconds)
}

fn settings(names: &[&str]) -> Settings {
    Settings {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        certificate_lifetime: Duration::from_secs(LEAF),
        ca_lifetime: Duration::from_secs(CA),
    }
}

fn perform(step: Step, state: Option<State>, seconds: u64) -> State {
    let state = decide::perform(step, state, &settings(&[NAME]), at(seconds)).unwrap();
    read(&state.data(), seconds).unwrap()
}

fn read(data: &Data, seconds: u64) -> Option<State> {
    State::read(data, &settings(&[NAME]), at(seconds))
}

fn step(state: &State, is_trusted: bool, seconds: u64) -> Option<Step> {
    decide::step(
        Some(&read(&state.data(), seconds).unwrap()),
        |_| is_trusted,
        at(seconds),
    )
}

#[test]
fn everything_is_renewed_after_two_thirds_of_its_life() {
    assert_eq!(decide::step(None, |_| false, start()), Some(Step::Create));
    let first = perform(Step::Create, None, 0);
    assert_eq!(step(&first, true, 39), None);
    assert_eq!(step(&first, true, 40), Some(Step::Renew));
    // It has expired, and then it is no certificate any more.
    assert_eq!(step(&first, true, 60), Some(Step::Renew));

    let ca = first.current.certificate_pem().to_owned();
    let renewed = perform(Step::Renew, Some(first), 159);
    assert_eq!(renewed.current.certificate_pem(), ca);
    assert_eq!(step(&renewed, true, 159), None);
    assert_eq!(step(&renewed, true, 160), Some(Step::PrepareCa));
}

#[test]
fn the_next_ca_signs_when_it_is_trusted_or_the_old_one_has_expired() {
    let state = perform(Step::Renew, Some(perform(Step::Create, None, 0)), 159);
    let old = state.current.certificate_pem().to_owned();
    let prepared = perform(Step::PrepareCa, Some(state), 160);
    assert_eq!(prepared.current.certificate_pem(), old);
    assert_eq!(prepared.authorities().len(), 2);
    assert!(prepared.leaf.is_some(), "the certificate of the old CA stays");
    assert_eq!(step(&prepared, false, 160), None);
    assert_eq!(step(&prepared, false, 199), Some(Step::Renew), "by the old CA");
    assert_eq!(step(&prepared, false, 240), Some(Step::ReplaceCa));
    assert_eq!(step(&prepared, true, 161), Some(Step::ReplaceCa));

    let replaced = perform(Step::ReplaceCa, Some(prepared), 161);
    assert_ne!(replaced.current.certificate_pem(), old);
    assert!(replaced.next.is_none() && replaced.leaf.is_some());
    let text: Vec<u8> = replaced.data().into_values().flat_map(|value| value.0).collect();
    assert!(
        !String::from_utf8(text).unwrap().contains(&old),
        "the old CA leaves the Secret"
    );
}

#[test]
fn no_certificate_outlives_its_ca_or_is_renewed_in_vain() {
    let state = perform(Step::Renew, Some(perform(Step::Create, None, 0)), 200);
    assert_eq!(state.leaf.as_ref().unwrap().validity.not_after, at(CA));
    let state = perform(Step::PrepareCa, Some(state), 201);
    assert_eq!(step(&state, false, 239), None);
    assert_eq!(step(&perform(Step::Create, None, 0), false, 240), Some(Step::Create));
}

#[test]
fn broken_content_is_issued_again() {
    let good = perform(Step::Create, None, 0).data();
    let other = perform(Step::Create, None, 0).data();
    let with = |key: &str, from: &Data| {
        let mut data = good.clone();
        data.insert(key.to_owned(), from[key].clone());
        read(&data, 1)
    };
    for key in ["ca.crt", "ca.key"] {
        assert!(with(key, &other).is_none(), "{key} of another CA");
    }
    for key in ["tls.crt", "tls.key"] {
        assert!(with(key, &other).unwrap().leaf.is_none(), "{key} of another pair");
    }
    let mut mixed = good.clone();
    for key in ["tls.crt", "tls.key"] {
        mixed.insert(key.to_owned(), other[key].clone());
    }
    assert!(read(&mixed, 1).unwrap().leaf.is_none(), "a pair of another CA");
    assert!(read(&good, 1).unwrap().leaf.is_some());
    assert!(read(&Data::new(), 1).is_none());
}

#[test]
fn replicas_that_want_different_names_agree_on_all_of_them() {
    let (old, new) = (settings(&["a.test"]), settings(&["b.test"]));
    let first = decide::perform(Step::Create, None, &old, start()).unwrap();
    let seen = State::read(&first.data(), &new, at(1)).unwrap();
    assert_eq!(decide::step(Some(&seen), |_| true, at(1)), Some(Step::Renew));
    let second = decide::perform(Step::Renew, Some(seen), &new, at(1)).unwrap().data();
    for settings in [old, new] {
        let seen = State::read(&second, &settings, at(2)).unwrap();
        assert_eq!(decide::step(Some(&seen), |_| true, at(2)), None);
    }
}

#[test]
fn no_key_is_printed() {
    let state = perform(Step::PrepareCa, Some(perform(Step::Create, None, 0)), 1);
    let text = format!("{state:?}");
    assert!(
        text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE"),
        "{text}"
    );
}

fn ca(name: &str, life: u64) -> String {
    let validity = Validity::starting(start(), Duration::from_secs(life));
    Authority::new(name, validity).unwrap().certificate_pem().to_owned()
}

fn webhook(name: &str, client_config: Value) -> Value {
    json!({"name": name, "clientConfig": client_config})
}

#[test]
fn only_entries_for_a_server_name_are_ours() {
    let service = |name: &str, namespace: &str| json!({"service": {"name": name, "namespace": namespace}});
    let names = [NAME.to_owned(), "webhook.example.com".to_owned(), "fd00::1".to_owned()];
    let registration = json!({"webhooks": [
        webhook("ours", service("outrigger-webhook", "outrigger-system")),
        webhook("other-service", service("other", "outrigger-system")),
        webhook("other-namespace", service("outrigger-webhook", "default")),
        webhook("url", json!({"url": "https://Webhook.example.com:8443/mutate/prod"})),
        webhook("address", json!({"url": "https://[fd00::1]:8443/mutate/prod"})),
        webhook("other-url", json!({"url": "https://other.example.com/mutate"})),
    ]});
    let found = registration::entries(&registration, &names);
    let found: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found, ["ours", "url", "address"]);
    assert_eq!(registration::entries(&json!({}), &names), []);
}

#[test]
fn a_bundle_gets_what_it_lacks_and_loses_what_has_expired() {
    let (old, new, short) = (ca("old", 1000), ca("new", 1000), ca("short", 10));
    let entry = |name: &str, bundle: &str| Entry {
        name: name.to_owned(),
        bundle: bundle.to_owned(),
    };
    let entries = [
        entry("empty", ""),
        entry("placeholder", "\n"),
        entry("garbage", "not PEM"),
        entry("old", &old),
        entry("expired", &[new.clone(), short].concat()),
        entry("complete", &[old.clone(), new.clone()].concat()),
    ];
    let patch = registration::patch(&entries, "7", &new, at(20)).unwrap().unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let bundles: Vec<(&str, String)> = patch["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|webhook| {
            let text = webhook["clientConfig"]["caBundle"].as_str().unwrap();
            let text = String::from_utf8(STANDARD.decode(text).unwrap()).unwrap();
            (webhook["name"].as_str().unwrap(), text)
        })
        .collect();
    let with_old = bundle::merge(&old, &new, at(20)).unwrap();
    let only = bundle::merge("", &new, at(20)).unwrap();
    let wanted = ["empty", "placeholder", "garbage"].map(|name| (name, only.clone()));
    assert_eq!(bundles[..3], wanted);
    assert_eq!(bundles[3..], [("old", with_old), ("expired", only)]);
    assert_eq!(registration::patch(&entries[5..], "7", &new, at(20)).unwrap(), None);
}

#[test]
fn a_ca_is_trusted_after_all_registrations_have_held_it_for_a_while() {
    let (one, settle) = (ca("one", 1000), Duration::from_secs(10));
    let (with, without) = (one.clone(), String::new());
    let mut trust = Trust::default();
    let mut see = |bundles: Option<&[String]>, seconds: u64| {
        trust.observe(&[&one], bundles, at(seconds));
        trust.settled(&one, settle, at(seconds))
    };
    assert!(!see(Some(&[with.clone(), without.clone()]), 0));
    assert!(!see(Some(&[with.clone(), with.clone()]), 1));
    assert!(!see(Some(&[with.clone(), with.clone()]), 10));
    assert!(see(Some(&[with.clone(), with.clone()]), 11));
    assert!(!see(None, 12), "the watch is broken");
    assert!(!see(Some(std::slice::from_ref(&with)), 13));
    assert!(!see(Some(&[without]), 30));
    assert!(!see(Some(std::slice::from_ref(&with)), 31));
    assert!(see(Some(&[]), 41), "nothing calls this webhook");
}

#[test]
fn a_certificate_of_another_ca_waits_until_it_is_accepted() {
    let (old, new) = (ca("old", 1000), ca("new", 1000));
    let may = |bundles: Option<&[&str]>, is_valid| {
        let bundles: Option<Vec<String>> = bundles.map(|all| all.iter().map(|&bundle| bundle.to_owned()).collect());
        let serving = Serving {
            ca: &old,
            is_valid,
            bundles: bundles.as_deref(),
        };
        assert!(serving.may_change_to(&old, false) && serving.may_change_to(&new, true));
        serving.may_change_to(&new, false)
    };
    let both = [old.clone(), new.clone()].concat();
    assert!(!may(None, true), "a registration cannot be read");
    assert!(!may(Some(&[&old, &new]), true));
    assert!(!may(Some(&[&both, &both]), true), "until it has settled");
    assert!(may(Some(&[&both, &new]), true), "the old one is not accepted any more");
    assert!(may(Some(&[&old, &old]), false));
}

/// An object with its version, as the API server stores it.
#[derive(Clone, Default)]
struct Versioned<T> {
    version: u64,
    value: T,
}

/// Two registrations with one entry each.
type Bundles = [String; 2];

#[derive(Default)]
struct Replica {
    secret: Versioned<Option<Data>>,
    bundles: Versioned<Bundles>,
    trust: Trust,
    served: Option<Served>,
    last_seen: u64,
}

#[derive(Clone, PartialEq)]
struct Served {
    certificate: Issued,
    not_after: Timestamp,
    ca: String,
}

#[derive(Default)]
struct Cluster {
    now: u64,
    secret: Versioned<Option<Data>>,
    bundles: Versioned<Bundles>,
    /// The view of an API server that calls the webhook, and its time.
    caller: (u64, Bundles),
    replicas: [Replica; 3],
    cas: std::collections::BTreeSet<String>,
}

impl Cluster {
    fn see(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.secret = self.secret.clone();
        replica.bundles = self.bundles.clone();
        replica.last_seen = self.now;
    }

    /// One pass of a replica with the views that it has; see `Controller::reconcile`.
    fn pass(&mut self, index: usize) {
        let (now, settings) = (at(self.now), settings(&[NAME]));
        let replica = &mut self.replicas[index];
        let state = replica
            .secret
            .value
            .as_ref()
            .and_then(|data| State::read(data, &settings, now));
        let authorities = state.as_ref().map(State::authorities).unwrap_or_default();
        replica.trust.observe(&authorities, Some(&replica.bundles.value), now);
        let settled = |ca: &str| replica.trust.settled(ca, settings.settle(), now);

        if let Some(state) = &state {
            let ca = state.current.certificate_pem();
            let may_serve = replica.served.as_ref().is_none_or(|served| {
                let serving = Serving {
                    ca: &served.ca,
                    is_valid: now < served.not_after,
                    bundles: Some(&replica.bundles.value),
                };
                serving.may_change_to(ca, settled(ca))
            });
            if let (Some(leaf), true) = (&state.leaf, may_serve) {
                replica.served = Some(Served {
                    certificate: leaf.issued.clone(),
                    not_after: leaf.validity.not_after,
                    ca: ca.to_owned(),
                });
                self.cas.insert(ca.to_owned());
            }
            if replica.bundles.version == self.bundles.version {
                let wanted = state.authorities().concat();
                for bundle in &mut self.bundles.value {
                    if let Some(extended) = bundle::extend(bundle, &wanted, now).unwrap() {
                        *bundle = extended;
                        self.bundles.version += 1;
                    }
                }
            }
        }

        let step = decide::step(state.as_ref(), |ca| settled(ca.certificate_pem()), now);
        if let (Some(step), true) = (step, replica.secret.version == self.secret.version) {
            let state = decide::perform(step, state, &settings, now).unwrap();
            self.secret.value = Some(state.data());
            self.secret.version += 1;
        }
    }

    fn is_installed(&self) -> bool {
        self.caller.1.iter().all(|bundle| !bundle.is_empty())
    }

    fn calls_succeed(&self) -> Result<(), TestCaseError> {
        for served in self.replicas.iter().filter_map(|replica| replica.served.as_ref()) {
            prop_assert!(at(self.now) < served.not_after, "expired at {}", self.now);
            for bundle in &self.caller.1 {
                prop_assert!(bundle::contains(bundle, &served.ca), "not trusted at {}", self.now);
            }
        }
        Ok(())
    }
}

/// One moment: its distance from the last one, and the processes that see the newest objects.
#[derive(Debug, Clone)]
struct Moment {
    seconds: u64,
    sees: [bool; 3],
    caller_sees: bool,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (1..=3_u64, any::<[bool; 3]>(), any::<bool>());
    let moment = moment.prop_map(|(seconds, sees, caller_sees)| Moment {
        seconds,
        sees,
        caller_sees,
    });
    prop::collection::vec(moment, 220)
}

/// Replicas see changes after at most 4 s, the API server after at most 8 s: less than the 10 s of `Settings::settle`.
fn run(moments: &[Moment], disturb: impl Fn(&mut Cluster, usize)) -> Result<Cluster, TestCaseError> {
    let mut cluster = Cluster::default();
    for (number, moment) in moments.iter().enumerate() {
        cluster.now += moment.seconds;
        disturb(&mut cluster, number);
        for (index, sees) in moment.sees.iter().enumerate() {
            if *sees || cluster.now - cluster.replicas[index].last_seen > 2 {
                cluster.see(index);
            }
            cluster.pass(index);
        }
        if moment.caller_sees || cluster.now - cluster.caller.0 > 5 {
            cluster.caller = (cluster.now, cluster.bundles.value.clone());
        }
        if cluster.is_installed() {
            cluster.calls_succeed()?;
        }
    }
    Ok(cluster)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_call_fails_while_certificates_and_cas_change_and_replicas_restart(moments in moments(), restart in 60..200_usize) {
        let cluster = run(&moments, |cluster, number| {
            if number == restart {
                cluster.replicas[0] = Replica::default();
            }
        })?;
        prop_assert!(cluster.is_installed() && cluster.cas.len() > 1, "{} CAs", cluster.cas.len());
        let served: Vec<_> = cluster.replicas.iter().map(|replica| replica.served.is_some()).collect();
        prop_assert_eq!(served, [true; 3]);
        for bundle in &cluster.bundles.value {
            let count = bundle.matches("BEGIN").count();
            prop_assert!((1..=3).contains(&count), "{} CAs in the bundle", count);
        }
    }

    #[test]
    fn no_call_fails_after_the_secret_was_deleted(moments in moments(), deletion in 40..160_usize) {
        let cluster = run(&moments, |cluster, number| {
            if number == deletion {
                cluster.secret = Versioned { version: cluster.secret.version + 1, value: None };
            }
        })?;
        prop_assert!(cluster.cas.len() > 1);
    }
}
