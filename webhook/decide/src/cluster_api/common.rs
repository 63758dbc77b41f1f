//! Shared by the kinds of Cluster API, as are warnings about obsolete settings of external components, which the owner
//! must remove: cloud configuration files, and feature gates that keep EBS volumes in-tree.

use outrigger_shared::{
    command_line::{Flag, read_boolean},
    migration::Profile,
    phase_flags::flag,
    version::KubernetesVersion,
};
use serde_json::Value;

use crate::patch::Path;
use crate::{
    Draft, Input, Kind, Migration, Operation,
    arguments::ListFormat,
    document::Document,
    fields::has_owner,
    machine_scripts,
    provisioner_object::{self, Obstacle, Rules},
};

pub(crate) const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
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

pub(crate) const fn row(
    (group, kind, plural): (&'static str, &'static str, &'static str),
    draft: fn(&Input<'_>, &Migration<'_>) -> Draft,
) -> Kind {
    Kind {
        group,
        versions: &["v1beta1", "v1beta2"],
        kind,
        plural,
        namespaced: true,
        on_update: true,
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
    let is_owned_by = |kind| has_owner(input.object, kind, "");
    if is_owned_by(control_plane) {
        return Draft::unchanged(format!("{control_plane} determines the configuration of its machines"));
    }
    // A MachineSet creates it, then the Machine becomes its owner.
    if is_owned_by("Machine") || input.operation == Operation::Update && is_owned_by("MachineSet") {
        return Draft::unchanged("a machine reads its configuration once, when it is created");
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
        format!("spec.template.spec of this kind cannot be changed; the {kind} created from it follows the phase");
    let warning = input.asks_for_phase().then(|| reason.clone());
    let kept = provisioner_object::keep_immutable(input, &Path::new(&["spec", "template", "spec"]));
    let mut draft = kept.unwrap_or_else(|| Draft::unchanged(reason));
    draft.warnings.extend(warning);

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
        let ids = values(&document.value, kubelet, Flag::text("provider-id"));
        if let Some(id) = ids.iter().find(|id| id.contains("://") && !id.starts_with("aws://")) {
            return Err(other_cloud(&kubelet.0, &format!("provider-id={id}")));
        }
    }

    Ok(())
}

fn other_cloud(path: &Path, what: &str) -> Obstacle {
    Obstacle::Other(format!(
        "{} has {what:?}, which belongs to another cloud; this migration is for AWS, correct spec.targets",
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

/// The files that `--cloud-config` of any component names.
pub(super) fn cloud_configs(document: &Document, lists: &[(Path, ListFormat)]) -> Vec<String> {
    let found = lists
        .iter()
        .flat_map(|list| values(&document.value, list, flag::CLOUD_CONFIG));
    found.filter(|path| !path.is_empty()).collect()
}

/// Warns of volumes and files with a cloud configuration that no component reads any more. They do no harm, and other
/// processes may read them, so they are not removed.
pub(super) fn warn_of_cloud_configs(
    document: &mut Document,
    prefix: &[&str],
    before: &[String],
    lists: &[(Path, ListFormat)],
) {
    let read = cloud_configs(document, lists);
    let unread = |path: &str| before.iter().any(|one| one == path) && !read.iter().any(|one| one == path);
    let mut left = Vec::new();

    const VOLUME: &[&str] = &["hostPath", "mountPath"];
    for (place, fields) in [
        (&["clusterConfiguration", "apiServer", "extraVolumes"][..], VOLUME),
        (&["clusterConfiguration", "controllerManager", "extraVolumes"], VOLUME),
        (&["files"], &["path"]),
    ] {
        let list = document.get(&join(prefix, place)).and_then(Value::as_array);
        let is_left = |element: &Value| {
            let texts = fields.iter().filter_map(|field| element.get(field)?.as_str());
            texts.into_iter().any(unread)
        };
        if list.is_some_and(|list| list.iter().any(is_left)) {
            left.push(place.join("."));
        }
    }

    if !left.is_empty() {
        document.warn(format!(
            "no component reads the cloud config any more, but {} still provide it; remove it there once the phase is Complete",
            left.join(", ")
        ));
    }
}

/// `CSIMigrationAWS=false` keeps EBS volumes with the in-tree plugin. Up to 1.22 this is the default; 1.25 and 1.26 do
/// not start with it; later versions do not know the gate.
pub(super) fn warn_of_gates(document: &mut Document, lists: &[(Path, ListFormat)], version: Option<KubernetesVersion>) {
    const GATE: &str = "CSIMigrationAWS";

    let is_off = |list: &&(Path, ListFormat)| {
        let gates = values(&document.value, list, flag::FEATURE_GATES);
        let settings = gates.iter().flat_map(|gates| gates.split(','));
        let mut ours = settings.filter_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            (name.trim() == GATE).then(|| read_boolean(value.trim()))
        });
        ours.next_back().flatten() == Some(false)
    };

    let is_off: Vec<String> = lists.iter().filter(is_off).map(|(path, _)| holder(path)).collect();
    let what = match version.map(|version| version.minor) {
        // In-tree kubelets are refused, or no component knows the gate.
        Some(..=22 | 27..) => return,
        Some(23 | 24) => "EBS volumes may not attach beside an external provider",
        Some(_) => "a component with it does not start in this version",
        None => "from 1.23 on EBS volumes may not attach, from 1.25 on the component does not start",
    };

    if !is_off.is_empty() {
        document.warn(format!(
            "{GATE}=false in {}: {what}; install the EBS CSI driver, then remove the gate",
            is_off.join(", ")
        ));
    }
}

/// The name of the field with the list, for a warning: `controllerManager`, `initConfiguration`.
fn holder(path: &Path) -> String {
    let keys: Vec<&str> = path.keys().collect();
    let place = keys
        .iter()
        .rposition(|key| key.ends_with("ExtraArgs") || *key == "extraArgs");
    let place = place.unwrap_or_default();
    let holder = keys.get(place.saturating_sub(1)).copied().unwrap_or_default();
    let above = keys.get(place.saturating_sub(2)).copied().unwrap_or_default();

    if holder == "nodeRegistration" { above } else { holder }.to_owned()
}
