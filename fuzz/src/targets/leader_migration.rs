//! `LeaderMigrationConfiguration`, YAML or JSON.
//!
//! Checks: no panic; an error has a problem; a configuration that is written and parsed again is equal.

use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::leader_migration::LeaderMigrationConfiguration;
use serde_json::json;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let loaded = match LeaderMigrationConfiguration::from_text("f", text) {
        Err(error) => {
            assert!(!error.problems().is_empty(), "an error without a problem");
            return drop(error.to_string());
        }
        Ok(loaded) => loaded,
    };

    loaded.warnings.iter().for_each(|warning| drop(warning.to_string()));
    for controller in Controller::ALL {
        for party in [Party::KubeControllerManager, Party::CloudControllerManager] {
            let _ = loaded.config.placement(controller, party);
        }
    }

    let mut written = json!(loaded.config);
    written["apiVersion"] = json!("controllermanager.config.k8s.io/v1");
    written["kind"] = json!("LeaderMigrationConfiguration");

    let again = LeaderMigrationConfiguration::from_text("f", &written.to_string());
    let again = again.expect("a written configuration can be parsed");
    assert_eq!(again, loaded, "{written}");
}

pub const WORDS: &[&str] = &[
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
