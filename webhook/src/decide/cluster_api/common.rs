//! Shared by the kinds of Cluster API.

use outrigger_shared::{command_line::Flag, migration::Profile};
use serde_json::Value;

use crate::decide::{
    Draft, Input, Kind, Migration, Operation,
    arguments::ListFormat,
    document::Document,
    machine_scripts,
    provisioner_object::{self, Obstacle, Rules},
};
use crate::patch::Path;

pub(super) const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
pub(super) const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

/// Autoscalers write `replicas`; the strategy of replacing machines is no part of the form.
pub(super) const RULES: Rules = Rules {
    triggers: &["/spec"],
    besides: &["replicas", "rolloutStrategy", "remediationStrategy", "remediation"],
    version: &[],
    both_in_one_object: true,
    is_external: |_| false,
    form: |_, _| Ok(()),
    warnings: machine_scripts::warnings,
};

pub(super) const fn row(
    (group, kind, plural): (&'static str, &'static str, &'static str),
    on_update: bool,
    draft: fn(&Input<'_>, &Migration<'_>) -> Draft,
) -> Kind {
    Kind {
        group,
        versions: &["v1beta1", "v1beta2"],
        kind,
        plural,
        namespaced: true,
        on_update,
        profiles: &[Profile::ClusterAPI],
        is_concerned: |_| true,
        draft,
    }
}

/// A template of worker machines. A change of it replaces no machine.
pub(super) fn template(input: &Input<'_>, migration: &Migration<'_>, rules: &Rules) -> Draft {
    let mut draft = provisioner_object::draft(input, migration, rules);
    if input.operation == Operation::Update && !draft.patch.is_empty() {
        draft.warnings.push(
            "only new machines get the change: MachineSets do not replace theirs; roll the MachineDeployment (rolloutAfter) or give it a new template"
                .to_owned(),
        );
    }

    draft
}

/// The configuration of one machine, or of a MachinePool.
///
/// The controller of a control plane compares the configuration of each machine with its own and replaces machines that
/// differ. So configurations with such an owner are not changed: they would be replaced endlessly. Other machines read
/// their configuration once, so only its creation is changed. A configuration without such an owner is written by hand
/// or by a MachinePool, whose new machines read it later.
pub(super) fn config(input: &Input<'_>, migration: &Migration<'_>, control_plane: &str, rules: &Rules) -> Draft {
    let owners = input
        .object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let is_owned_by = |kinds: &[&str]| {
        let kind = |owner: &Value| owner.get("kind").and_then(Value::as_str).map(str::to_owned);
        let mut found = owners.into_iter().flatten().filter_map(kind);
        found.any(|kind| kinds.contains(&kind.as_str()))
    };
    let unchanged = |reason: String| Draft {
        reasons: vec![reason],
        ..Draft::default()
    };
    if is_owned_by(&[control_plane]) {
        return unchanged(format!("{control_plane} gives its machines their form"));
    }
    // A MachineSet creates it, then the Machine becomes its owner.
    if is_owned_by(&["Machine"]) || input.operation == Operation::Update && is_owned_by(&["MachineSet"]) {
        return unchanged("a machine reads its configuration once, when it is made".to_owned());
    }

    provisioner_object::draft(input, migration, rules)
}

/// An immutable template of control planes. Changes of its creation are kept, also when its owner applies the original
/// manifest again.
pub(super) fn fixed_template(input: &Input<'_>, migration: &Migration<'_>, kind: &str, rules: &Rules) -> Draft {
    if input.operation != Operation::Update {
        return provisioner_object::draft(input, migration, rules);
    }

    let reason =
        format!("spec.template.spec of this kind cannot be changed; the {kind} that is made from it gets the phase");
    let warnings = if input.asks_for_phase() {
        vec![reason.clone()]
    } else {
        Vec::new()
    };
    let kept = provisioner_object::keep_immutable(input, &Path::new(&["spec", "template", "spec"]));
    let mut draft = kept.unwrap_or_else(|| Draft {
        reasons: vec![reason],
        ..Draft::default()
    });
    draft.warnings.extend(warnings);

    draft
}

/// Refuses objects for machines of another cloud, by their references and provider IDs.
pub(super) fn refuse_other_clouds(document: &Document, kubelets: &[(Path, ListFormat)]) -> Result<(), Obstacle> {
    const REFERENCES: [&[&str]; 3] = [
        &["machineTemplate", "infrastructureRef", "kind"],
        &["machineTemplate", "spec", "infrastructureRef", "kind"],
        &["infrastructureRef", "kind"],
    ];

    for prefix in [&["spec"][..], &["spec", "template", "spec"]] {
        for reference in REFERENCES {
            let path = join(prefix, reference);
            let kind = document.get(&path).and_then(Value::as_str).unwrap_or_default();
            let is_aws = ["aws", "ec2", "amazon"]
                .iter()
                .any(|name| kind.to_lowercase().contains(name));
            if !kind.is_empty() && !is_aws {
                return Err(other_cloud(&path, kind));
            }
        }
    }

    for kubelet in kubelets {
        let ids = values(document.whole(), kubelet, Flag::text("provider-id"));
        if let Some(id) = ids.iter().find(|id| id.contains("://") && !id.starts_with("aws://")) {
            return Err(other_cloud(&kubelet.0, &format!("provider-id={id}")));
        }
    }

    Ok(())
}

fn other_cloud(path: &Path, what: &str) -> Obstacle {
    Obstacle::Other(format!(
        "{} has {what:?}, which is of another cloud; this migration is for AWS, correct spec.targets",
        path.pointer()
    ))
}

pub(super) fn join(prefix: &[&str], rest: &[&str]) -> Path {
    Path::new(&[prefix, rest].concat())
}

/// The values of a flag, for checks; none where the list cannot be read.
pub(super) fn values(object: &Value, (path, shape): &(Path, ListFormat), flag: Flag) -> Vec<String> {
    let found = object.pointer(path.pointer().as_str()).filter(|value| !value.is_null());
    let line = shape.of(found).read(found, path).ok();
    line.and_then(|line| line.values(flag).ok()).unwrap_or_default()
}
