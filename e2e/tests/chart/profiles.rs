//! With one profile, API servers send the objects of its kinds to the webhook and no others, and the webhook may list the
//! kinds that its background check compares.

use std::collections::BTreeSet;

use outrigger_webhook::decide::{Kind, kinds};
use outrigger_webhook::stored_objects::is_checked;
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
