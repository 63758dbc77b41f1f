//! With one profile, API servers send the objects of its kinds to the webhook and no others, and the webhook may list the
//! kinds that its background check compares.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_decide::registration::{self, Certificates, Options};
use outrigger_decide::{Kind, is_checked, kinds};
use outrigger_shared::migration::Profile;
use serde_json::{Value, json};

use super::{Helm, NAMESPACE, PROFILES, values};

/// Group and resource.
type Pair = (String, String);

fn pairs<'a>(rules: impl Iterator<Item = &'a Value>) -> BTreeSet<Pair> {
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().expect("a list").iter();
        items.map(|item| item.as_str().expect("text").to_owned()).collect()
    };
    let mut found = BTreeSet::new();
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            found.extend(
                texts(&rule["resources"])
                    .into_iter()
                    .map(|plural| (group.clone(), plural)),
            );
        }
    }
    found
}

fn rules_of<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let of_kind = objects.iter().filter(move |object| object["kind"] == kind);
    let entries = of_kind.flat_map(|object| object["webhooks"].as_array().expect("webhooks"));
    entries.flat_map(|entry| entry["rules"].as_array().expect("rules"))
}

fn listable(objects: &[Value]) -> BTreeSet<Pair> {
    let role = objects
        .iter()
        .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "outrigger-webhook")
        .expect("the webhook's role");
    let rules = role["rules"].as_array().expect("rules").iter();
    pairs(rules.filter(|rule| rule["verbs"] == json!(["list"])))
}

fn wanted(profile: &str, kinds: impl Iterator<Item = &'static Kind>) -> BTreeSet<Pair> {
    let selected = kinds.filter(|kind| kind.profiles.iter().any(|other| format!("{other:?}") == profile));
    selected
        .map(|kind| (kind.group.to_owned(), kind.plural.to_owned()))
        .collect()
}

#[tokio::test]
async fn each_profile_has_its_registration_and_its_rights_and_no_others() {
    let helm = Helm::new().await;
    for profile in PROFILES {
        let objects = helm
            .template(NAMESPACE, &values(&json!({"profiles": [profile], "validation": true})))
            .await
            .expect("rendered");

        let sent = pairs(rules_of(&objects, "MutatingWebhookConfiguration"));
        assert_eq!(sent, wanted(profile, kinds()), "{profile}: registration");

        let listed = listable(&objects);
        let checked = wanted(profile, kinds().filter(|kind| is_checked(kind)));
        assert!(
            checked.is_subset(&listed),
            "{profile}: {checked:?} must be listed: {listed:?}"
        );
        // A role has a row for a kind, not for a profile of it.
        assert!(listed.is_subset(&sent), "{profile}: {listed:?}");

        let validated = pairs(rules_of(&objects, "ValidatingWebhookConfiguration"));
        let migrations = ("outrigger.dev".to_owned(), "cloudprovidermigrations".to_owned());
        assert!(
            validated.contains(&migrations),
            "{profile}: the migration itself is validated"
        );
        let others: BTreeSet<&Pair> = validated
            .difference(&sent)
            .filter(|pair| **pair != migrations)
            .collect();
        assert!(others.is_empty(), "{profile}: validated, but not sent: {others:?}");
    }
}

/// The objects of the webhook that do not run, in any order, as `outrigger webhook register` prints them.
fn without_labels(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let of_the_webhook = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        kind.ends_with("WebhookConfiguration")
            || name.starts_with(registration::NAME) && !matches!(kind, "Deployment" | "Service" | "PodDisruptionBudget")
    };
    let objects = objects.into_iter().filter(of_the_webhook);
    let named = objects.map(|mut object| {
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.remove("labels");
        (format!("{} {}", object["kind"], object["metadata"]["name"]), object)
    });
    named.collect()
}

#[tokio::test]
async fn the_chart_installs_what_the_command_prints_for_each_version_of_api_servers() {
    let helm = Helm::new().await;
    for version in ["1.26.13", "1.27.16", "1.28.0", "1.36.3-eks-1234"] {
        let sets = Profile::ALL.iter().map(|profile| vec![*profile]);
        for profiles in sets.chain([Profile::ALL.to_vec()]) {
            let names: Vec<&str> = profiles.iter().map(|profile| profile.as_str()).collect();
            let certificates = if profiles.len() == 1 {
                json!({"source": "selfSigned"})
            } else {
                json!({"source": "secret", "caBundle": "QUJD"})
            };
            let chosen = json!({
                "profiles": names, "validation": true, "apiServerAddresses": ["192.0.2.1/32"],
                "certificates": certificates,
            });
            let chart = helm
                .template_for(version, NAMESPACE, &values(&chosen))
                .await
                .expect("rendered");
            let options = Options {
                validation: true,
                certificates: match profiles.len() {
                    1 => Certificates::SelfSigned,
                    _ => Certificates::Secret,
                },
                ca_bundle: certificates["caBundle"].as_str().map(str::to_owned),
                api_servers: vec!["192.0.2.1/32".to_owned()],
                kubernetes_version: Some(version.parse().expect("a version")),
                ..Options::new(&profiles)
            };
            let (chart, printed) = (without_labels(chart), without_labels(registration::objects(&options)));
            let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&chart), names(&printed), "{version} {profiles:?}");
            for (name, object) in &chart {
                assert_eq!(*object, printed[name], "{version} {profiles:?} {name}");
            }
        }
    }
}

/// The entries that keep Pods waiting are only for clusters with hosted control planes.
#[tokio::test]
async fn no_object_waits_for_the_webhook_by_default() {
    let objects = Helm::new().await.template(NAMESPACE, &values(&json!({}))).await;
    let objects = objects.expect("rendered");
    let registrations = objects
        .iter()
        .filter(|object| object["kind"] == "MutatingWebhookConfiguration");
    let entries: Vec<&Value> = registrations
        .flat_map(|object| object["webhooks"].as_array().expect("webhooks"))
        .collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["name"], "nodes.outrigger.dev");
    assert_eq!(entries[0]["failurePolicy"], "Ignore");
}
