//! Whether a stored object is in the form of its migration's phase. Pure.

use outrigger_decide::{Input, Kind, Migration, Outcome, decide};
use serde_json::Value;

use super::{Deviation, Finding};
use crate::view::Namespaces;

/// Input of a comparison, besides the object.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    pub kind: &'static Kind,
    /// The migration that is checked; objects of others are skipped.
    pub migration: &'a str,
    /// Every migration, since an object that matches two belongs to none.
    pub all: &'a [Migration<'a>],
    pub own_namespace: &'a str,
    pub namespaces: &'a Namespaces,
}

/// Why the object is not in form; none if it is in form, or not of this migration.
pub fn compare(compare: &Comparison<'_>, object: &Value) -> Option<Finding> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let ends = text("/metadata/deletionTimestamp").is_some();
    let has_ended = compare.kind.kind == "Pod" && matches!(text("/status/phase"), Some("Succeeded" | "Failed"));
    if ends || has_ended {
        return None;
    }

    let namespace = text("/metadata/namespace");
    let labels = namespace.and_then(|name| compare.namespaces.cached(name));
    let nothing = Value::Null;
    // As if the object were written now, with a change that lets an update act.
    let decision = decide(&Input {
        namespace,
        namespace_labels: labels.as_deref(),
        own_namespace: Some(compare.own_namespace),
        ..Input::creation(object, compare.all).over(compare.kind.on_update.then_some(&nothing))
    });
    let deviation = match decision.outcome {
        Outcome::Changed | Outcome::Audited => Deviation::Missed,
        Outcome::Refused => Deviation::Refused,
        Outcome::NotOurs | Outcome::Unchanged => return None,
    };
    // A refusal before a migration was chosen (several match, namespace unknown) names none and is reported for each of
    // them.
    let of_another = decision
        .audit_annotations
        .get("migration")
        .is_some_and(|name| name != compare.migration);

    (!of_another).then(|| Finding {
        deviation,
        api_version: text("/apiVersion").unwrap_or_default().to_owned(),
        kind: compare.kind.kind,
        namespace: namespace.map(str::to_owned),
        name: text("/metadata/name").unwrap_or_default().to_owned(),
        uid: text("/metadata/uid").unwrap_or_default().to_owned(),
        reasons: decision.reasons,
    })
}

#[cfg(test)]
mod tests {
    use outrigger_decide::kinds;
    use outrigger_shared::migration::{CloudProviderMigration, Phase};
    use serde_json::json;

    use super::*;
    use super::{Deviation, Finding};

    fn migration(name: &str, phase: &str) -> CloudProviderMigration {
        let targets = json!([{"profile": "HostedControlPlane", "objectSelector": {"matchLabels": {"tenant": "prod"}}}]);
        serde_json::from_value(json!({"metadata": {"name": name},
            "spec": {"clusterID": "prod", "phase": phase, "targets": targets}}))
        .unwrap()
    }

    fn found(all: &[CloudProviderMigration], args: &[&str]) -> Option<Finding> {
        let object = json!({"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "TenantControlPlane",
            "metadata": {"name": "t", "uid": "u", "labels": {"tenant": "prod"}},
            "spec": {"kubernetes": {"version": "v1.26.1"}, "controlPlane": {"deployment": {"extraArgs": {"controllerManager": args}}}}});
        let all: Vec<Migration<'_>> = all.iter().map(Migration::from).collect();
        let compare = Comparison {
            kind: kinds().find(|kind| kind.kind == "TenantControlPlane").unwrap(),
            migration: "prod",
            all: &all,
            own_namespace: "outrigger-system",
            namespaces: &Namespaces::new(None),
        };
        super::compare(&compare, &object)
    }

    #[test]
    fn an_object_in_the_form_of_an_earlier_phase_is_missed() {
        let all = [migration("prod", "Prepare")];
        assert_eq!(all[0].spec.phase, Phase::Prepare);
        let finding = found(&all, &["--cloud-provider=aws"]).unwrap();
        assert_eq!((finding.deviation, finding.name.as_str()), (Deviation::Missed, "t"));
        assert!(finding.reasons[0].contains("--enable-leader-migration"), "{finding:?}");
        assert_eq!(found(&[migration("prod", "InTree")], &["--cloud-provider=aws"]), None);
        let in_form = ["--cloud-provider=aws", "--enable-leader-migration=true"];
        assert_eq!(found(&all, &in_form), None);
    }

    #[test]
    fn what_cannot_be_changed_is_refused_and_what_is_anothers_is_theirs() {
        let finding = found(&[migration("prod", "Prepare")], &["--cloud-provider=gce"]).unwrap();
        assert_eq!(finding.deviation, Deviation::Refused);
        assert_eq!(found(&[migration("other", "Prepare")], &["--cloud-provider=aws"]), None);
        let both = [migration("other", "Prepare"), migration("prod", "Prepare")];
        assert_eq!(
            found(&both, &["--cloud-provider=aws"]).unwrap().deviation,
            Deviation::Refused
        );
    }
}
