//! Obsolete settings of external components, which the owner must remove: cloud configuration files, and feature gates
//! that keep EBS volumes in-tree.

use outrigger_shared::{command_line::read_boolean, phase_flags::flag, version::KubernetesVersion};
use serde_json::Value;

use super::common::{join, values};
use crate::{
    decide::{arguments::ListFormat, document::Document},
    patch::Path,
};

/// The files that `--cloud-config` of any component names.
pub(super) fn cloud_configs(document: &Document, lists: &[(Path, ListFormat)]) -> Vec<String> {
    let found = lists
        .iter()
        .flat_map(|list| values(document.whole(), list, flag::CLOUD_CONFIG));
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

    for (place, fields) in [
        (
            &["clusterConfiguration", "apiServer", "extraVolumes"][..],
            &["hostPath", "mountPath"][..],
        ),
        (
            &["clusterConfiguration", "controllerManager", "extraVolumes"],
            &["hostPath", "mountPath"],
        ),
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
            "no component reads the cloud config any more, but {} still bring it; remove it there once the phase is Complete",
            left.join(", ")
        ));
    }
}

/// `CSIMigrationAWS=false` keeps EBS volumes with the in-tree plugin. Up to 1.22 this is the default; 1.25 and 1.26 do
/// not start with it; later versions do not know the gate.
pub(super) fn warn_of_gates(document: &mut Document, lists: &[(Path, ListFormat)], version: Option<KubernetesVersion>) {
    const GATE: &str = "CSIMigrationAWS";

    let is_off = |list: &&(Path, ListFormat)| {
        let gates = values(document.whole(), list, flag::FEATURE_GATES);
        let settings = gates.iter().flat_map(|gates| gates.split(','));
        let mut ours = settings.filter_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            (name.trim() == GATE).then(|| read_boolean(value.trim()))
        });
        ours.next_back().flatten() == Some(false)
    };

    let is_off: Vec<String> = lists.iter().filter(is_off).map(|(path, _)| holder(path)).collect();

    const FIX: &str = "install the EBS CSI driver, then remove the gate";

    let what = match version.map(|version| version.minor) {
        // In-tree kubelets are refused, or no component knows the gate.
        Some(..=22 | 27..) => return,
        Some(23 | 24) => "EBS volumes may not attach beside an external provider",
        Some(_) => "a component with it does not start in this version",
        None => "from 1.23 on EBS volumes may not attach, from 1.25 on the component does not start",
    };

    if !is_off.is_empty() {
        document.warn(format!("{GATE}=false in {}: {what}; {FIX}", is_off.join(", ")));
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
