//! `LeaderMigrationConfiguration`, YAML or JSON.
//!
//! Promised: no panic; what is refused has a reason; what is read, written and read again is the same.

use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::LeaderMigrationConfiguration;
use serde_json::json;

use super::text;
use crate::features::note;
use crate::mutate;
use crate::random::Random;

/// One input.
///
/// # Panics
/// When a promise is broken.
pub fn target(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let loaded = match LeaderMigrationConfiguration::from_text("f", text) {
        Err(error) => {
            assert!(!error.problems().is_empty(), "refused without a reason");
            error
                .problems()
                .iter()
                .for_each(|problem| note(&format!("{problem:?}")));
            return;
        }
        Ok(loaded) => loaded,
    };
    loaded.warnings.iter().for_each(|warning| note(&warning.to_string()));
    for controller in Controller::ALL {
        for party in [Party::KubeControllerManager, Party::CloudControllerManager] {
            note(&format!(
                "{controller:?} {party:?} {:?}",
                loaded.config.placement(controller, party)
            ));
        }
    }
    let mut written = json!(loaded.config);
    written["apiVersion"] = json!("controllermanager.config.k8s.io/v1");
    written["kind"] = json!("LeaderMigrationConfiguration");
    let again = LeaderMigrationConfiguration::from_text("f", &written.to_string());
    assert_eq!(again.expect("what was read can be written"), loaded, "{written}");
}

const WORDS: &[&str] = &[
    "apiVersion: controllermanager.config.k8s.io/v1",
    "controllermanager.config.k8s.io/v1beta1",
    "kind: LeaderMigrationConfiguration",
    "leaderName:",
    "resourceLock: leases",
    "controllerLeaders:",
    "  - name: service",
    "    component: \"*\"",
    "route",
    "*",
    "&a",
    "*a",
    "<<: *a",
    "!!str",
    "!!binary",
    "---",
    "...",
    "|",
    ">-",
    "{",
    "}",
    "[",
    "]",
    "[[[[[[[[",
    "{{{{{{{{",
    "- - - - ",
    "? ",
    ": ",
    "#",
    "null",
    "~",
    "0x1f",
    ".inf",
    "cloud-controller-manager",
    "kube-controller-manager",
    "node-ipam-controller",
    "%YAML 1.1",
];

/// One change of an input.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    mutate::text::mutate(random, data, other, WORDS)
}

/// One of each version.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let built_in = json!({
        "kind": "LeaderMigrationConfiguration", "apiVersion": "controllermanager.config.k8s.io/v1", "leaderName": "m",
        "controllerLeaders": [{"name": "route", "component": "*"}, {"name": "service-lb-controller", "component": "kube-controller-manager"}],
    });
    vec![
        built_in.to_string().into_bytes(),
        b"kind: LeaderMigrationConfiguration\napiVersion: controllermanager.config.k8s.io/v1beta1\nleaderName: m\nresourceLock: leases\ncontrollerLeaders:\n  - name: route\n    component: \"*\"\n  - {name: cloud-node-lifecycle, component: x}\n".to_vec(),
        b"".to_vec(),
    ]
}
