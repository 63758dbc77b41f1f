//! A second judge of the golden cases. `golden.rs` compares with what the webhook wrote itself; this test reads the same
//! files with the phase table and the rules of docs/webhook.md, and shares no code with the webhook.
//!
//! | what | file |
//! |---|---|
//! | a case as plain values | `case.rs` |
//! | the original form, by the undo annotation | `undo.rs` |
//! | command lines of each kind | `lines.rs` |
//! | the flags of each phase | `table.rs` |
//! | the places that may change | `places.rs` |
//! | tags, the taint, Kubermatic's switch | `additions.rs` |
//! | why an object stays as it is | `reasons.rs` |
//! | cases that it cannot judge | `unjudged.rs` |

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod additions;
mod case;
mod lines;
mod places;
mod reasons;
mod table;
mod undo;
mod unjudged;

use std::collections::BTreeMap;

use case::Case;
use serde_json::{Value, json};

/// How the patch, the object and the warnings of a case belong together, whatever it is about.
fn form(case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    let patch = &case.expected["patch"];
    if (case.outcome() == "changed") == patch.is_null() || patch.is_null() != case.expected["object"].is_null() {
        wrong.push("a patch and an object stand exactly where the outcome is `changed`".to_owned());
    }
    if matches!(case.outcome(), "refused" | "audited") && case.expected["warnings"].is_null() {
        wrong.push("nothing warns of it".to_owned());
    }
    if (case.outcome() == "audited") != (case.spec()["mode"] == "Audit") && case.outcome() != "refused" {
        wrong.push("`audited` is for the mode Audit".to_owned());
    }
    if patch.as_array().into_iter().flatten().any(|one| one["op"] == "test") {
        wrong.push("API servers compare the value of a `test` as Go's JSON text".to_owned());
    }
    if !patch.is_null() {
        let mut object = case.object().clone();
        let applied = serde_json::from_value(patch.clone())
            .map_err(|error| error.to_string())
            .and_then(|patch: json_patch::Patch| {
                json_patch::patch(&mut object, &patch).map_err(|error| error.to_string())
            });
        match applied {
            Err(error) => wrong.push(format!("the patch does not apply: {error}")),
            Ok(()) if object != *case.result() => wrong.push(format!("the patch gives\n  {object}")),
            Ok(()) => {}
        }
    }
    wrong
}

/// The mistakes in an expectation.
fn judge(case: &Case) -> Vec<String> {
    let mut wrong = form(case);
    match case.outcome() {
        "changed" => wrong.extend(changed(case)),
        "unchanged" => wrong.extend(unchanged(case)),
        "not-ours" if reasons::not_ours(case).is_none() => wrong.push("a target selects it".to_owned()),
        "refused" if reasons::refusal(case).is_none() => wrong.push("there is no reason to refuse it".to_owned()),
        "audited" if !would_change(case) => wrong.push("the phase changes nothing in it".to_owned()),
        "not-ours" | "refused" | "audited" => {}
        other => wrong.push(format!("unknown outcome {other}")),
    }
    wrong
}

fn changed(case: &Case) -> Vec<String> {
    let result = match additions::without(case) {
        Ok(result) => result,
        Err(error) => return vec![error],
    };
    let mut wrong = Vec::new();
    if result == *case.result() {
        wrong.extend(places::check(case));
    }
    let is_kept = case.kind() == "KubeadmControlPlaneTemplate" && result["spec"] == case.input["oldObject"]["spec"];
    if let Ok(original) = undo::original(case.object())
        && !is_kept
    {
        wrong.extend(table::check(case, &original, &result));
    }
    if reasons::is_not_selected(case) {
        wrong.push("no target selects it".to_owned());
    }
    if reasons::ignored_update(case) {
        wrong.push("the update changes nothing that a phase is about".to_owned());
    }
    wrong
}

fn unchanged(case: &Case) -> Vec<String> {
    if reasons::unchanged(case).is_some() || reasons::is_only_read(case) {
        return Vec::new();
    }
    let original = undo::original(case.object()).unwrap();
    if lines::of(&original).is_empty() {
        return vec!["there is no reason to leave it".to_owned()];
    }
    table::check(case, &original, case.object())
}

fn would_change(case: &Case) -> bool {
    let original = undo::original(case.object()).unwrap();
    !table::check(case, &original, case.object()).is_empty() || reasons::unchanged(case).is_none()
}

#[test]
fn every_expectation_agrees_with_the_phase_table() {
    let cases = case::read_all();
    assert_eq!(
        cases.len(),
        604,
        "cases in golden/; after adding some, change the number"
    );
    let unjudged: BTreeMap<&str, &str> = unjudged::CASES.iter().copied().collect();
    assert_eq!(unjudged.len(), unjudged::CASES.len(), "a case stands in the list once");

    let mut wrong = Vec::new();
    for case in &cases {
        let found = judge(case);
        match (found.is_empty(), unjudged.contains_key(case.name.as_str())) {
            (false, false) => wrong.push(format!("{} ({}):\n  {}", case.name, case.outcome(), found.join("\n  "))),
            (true, true) => wrong.push(format!("{}: it can be judged, take it off the list", case.name)),
            _ => {}
        }
        if unjudged.contains_key(case.name.as_str()) {
            wrong.extend(form(case).into_iter().map(|text| format!("{}: {text}", case.name)));
        }
    }

    let is_there = |name: &&&str| cases.iter().any(|case| case.name == ***name);
    assert_eq!(
        unjudged.keys().filter(is_there).count(),
        unjudged.len(),
        "the list names cases"
    );
    assert!(wrong.is_empty(), "{} expectations:\n{}", wrong.len(), wrong.join("\n"));
}

/// The case with another expectation, and with the patch that leads to it.
fn planted(name: &str, defect: impl Fn(&mut Value)) -> Vec<String> {
    let mut case = case::read(name);
    assert!(judge(&case).is_empty(), "{name} is right");
    defect(&mut case.expected);
    if let Some(result) = case.expected.get("object") {
        case.expected["patch"] = json!(json_patch::diff(case.object(), result));
    }
    judge(&case)
}

fn at<'a>(expected: &'a mut Value, place: &str) -> &'a mut Value {
    expected.pointer_mut(&format!("/object{place}")).unwrap()
}

/// Removes the words that begin so from the first container.
fn drop_words(expected: &mut Value, prefix: &str) {
    let words = at(expected, "/spec/template/spec/containers/0/command")
        .as_array_mut()
        .unwrap();
    let count = words.len();
    words.retain(|word| !word.as_str().unwrap().starts_with(prefix));
    assert!(words.len() < count, "{prefix}");
}

#[test]
fn wrong_flags_are_found() {
    let wrong = planted("workload/migrate-becomes-external", |expected| {
        drop_words(expected, "--cloud-provider")
    });
    assert!(wrong.iter().any(|text| text.contains("cloud-provider")), "{wrong:?}");
    let wrong = planted("workload/prepare-adds-leader-migration", |expected| {
        drop_words(expected, "--enable-leader-migration");
    });
    assert!(
        wrong.iter().any(|text| text.contains("enable-leader-migration")),
        "{wrong:?}"
    );
    let home = "/spec/kubeadmConfigSpec/clusterConfiguration/controllerManager/extraArgs/cloud-provider";
    let wrong = planted("kubeadm-control-plane/migrate-map", |expected| {
        *at(expected, home) = json!("aws")
    });
    assert!(wrong.iter().any(|text| text.contains("cloud-provider")), "{wrong:?}");
}

#[test]
fn changes_beside_the_phase_are_found() {
    let version = |expected: &mut Value| *at(expected, "/spec/version") = json!("v1.27.0");
    assert!(!planted("kubeadm-control-plane/migrate-map", version).is_empty());
    let replicas = |expected: &mut Value| *at(expected, "/spec/replicas") = json!(7);
    assert!(!planted("workload/prepare-adds-leader-migration", replicas).is_empty());
}

#[test]
fn a_wrong_record_of_the_original_is_found() {
    let lost = |expected: &mut Value| {
        at(expected, "/metadata").as_object_mut().unwrap().remove("annotations");
    };
    assert!(!planted("kubeadm-control-plane/migrate-map", lost).is_empty());
    let other = |expected: &mut Value| {
        let undo = at(expected, "/metadata/annotations/outrigger.dev~1undo");
        *undo = json!(
            undo.as_str()
                .unwrap()
                .replace("cloud-provider=aws", "cloud-provider=gce")
        );
    };
    assert!(!planted("kubeadm-control-plane/migrate-map", other).is_empty());
}

/// API servers write `<` as an escape, so a `test` of a text with it fails there and passes here.
#[test]
fn a_test_in_a_patch_is_found() {
    let mut case = case::read("kubeadm-config/migrate-ampersand-in-an-address");
    assert!(judge(&case).is_empty());
    let place = "/data/ClusterConfiguration";
    let test = json!({"op": "test", "path": place, "value": case.object().pointer(place)});
    case.expected["patch"].as_array_mut().unwrap().insert(0, test);
    assert_eq!(judge(&case).len(), 1);
}

#[test]
fn wrong_tags_and_taints_are_found() {
    let tags = "/spec/template/spec/providerSpec/value/cloudProviderSpec/tags";
    let shared = |expected: &mut Value| at(expected, tags)["kubernetes.io/cluster/prod"] = json!("shared");
    assert!(!planted("machine-deployment/tag-is-added", shared).is_empty());
    let another = |expected: &mut Value| at(expected, tags)["kubernetes.io/cluster/test"] = json!("owned");
    assert!(!planted("machine-deployment/tag-is-added", another).is_empty());
    let effect = |expected: &mut Value| at(expected, "/spec/taints/0")["effect"] = json!("NoExecute");
    assert!(!planted("node/migrate-adds-the-taint", effect).is_empty());
}

#[test]
fn wrong_outcomes_and_patches_are_found() {
    let name = "workload/prepare-adds-leader-migration";
    let unchanged = |expected: &mut Value| *expected = json!({"outcome": "unchanged"});
    assert!(!planted(name, unchanged).is_empty());
    let refused = |expected: &mut Value| *expected = json!({"outcome": "refused", "warnings": ["no"]});
    assert!(!planted(name, refused).is_empty());
    let not_ours = |expected: &mut Value| *expected = json!({"outcome": "not-ours"});
    assert!(!planted(name, not_ours).is_empty());

    let mut case = case::read(name);
    case.expected["patch"].as_array_mut().unwrap().pop();
    assert!(!judge(&case).is_empty(), "a patch without its last step");
}
