//! Warns of silent errors in Rancher's machine configuration.

use outrigger_shared::{migration::Phase, work};
use serde_json::{Map, Value};

use super::{
    fields::{list_at, text_at},
    helm_chart,
    machine_config::{MachineConfig, Roles, Section},
    node_names,
    provisioner_object::Situation,
    rancher_rke2::{Cluster, has_form, is_external},
    rke2_provider, warning,
};

/// Keys that a warning names; API servers cut warnings after 256 characters.
const MAX_KEYS: usize = 3;

pub(super) fn warnings(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    if situation.effective_phase == Phase::InTree {
        return Vec::new();
    }

    let cluster = Cluster::of(object, situation.version);
    let was_external = is_external(object);
    let mut warnings: Vec<String> = cluster
        .config
        .entries
        .iter()
        .enumerate()
        .filter_map(without_effect)
        .collect();

    warnings.extend(replaced_lists(&cluster.config, &roles(object)));
    if was_external && !cluster.is_disabled() {
        warnings.push(
            "disable-cloud-controller is not true on every server, so the embedded cloud controller may give Nodes provider IDs \
             of its own, which never change; set it"
                .to_owned(),
        );
    }

    warnings.extend(csi_migration_off(gated_keys(&cluster.config)));

    let manifest = text_at(object, "/spec/rkeConfig/additionalManifest").unwrap_or_default();
    // With an external kube-controller-manager nothing runs twice.
    let row = if cluster.may_be_in_tree() {
        situation.effective_phase
    } else {
        Phase::Complete
    };
    let situation_of_chart = Situation {
        effective_phase: row,
        ..*situation
    };

    warnings.extend(helm_chart::manifest_warnings(manifest, &situation_of_chart));
    warnings.extend(later_releases(&cluster, situation));
    if !was_external && has_form(object, situation) {
        warnings.extend(before_the_switch(&cluster, situation.effective_phase));
    }

    warnings
}

/// Warns of upgrades while the name stays `aws`, once nothing else is left to do.
fn later_releases(cluster: &Cluster<'_>, situation: &Situation<'_>) -> Option<String> {
    let is_before = situation.version.is_some_and(|version| version.minor < 29);
    let is_complete = situation.effective_phase == Phase::Complete;
    (is_complete && is_before && cluster.passes_aws()).then(|| rke2_provider::LATER_RELEASES.to_owned())
}

/// Steps for the operator before a cluster becomes external.
fn before_the_switch(cluster: &Cluster<'_>, row: Phase) -> Vec<String> {
    let mut warnings = Vec::new();
    if node_names::is_said_in(row) && cluster.is_named_by_metadata() {
        warnings.push(node_names::of_rke2(row));
    }
    if node_names::is_said_in(row) && cluster.is_named_by_host() {
        let remedy = if cluster.is_k3s {
            "give each machine the private DNS name of its instance by node-name or as its host name"
        } else {
            "set cloud-provider-name: aws, so that RKE2 takes the name from instance metadata"
        };
        warnings.push(node_names::of_rke2_by_arguments(row, remedy));
    }

    if row == Phase::Migrate {
        warnings.push(
            "Rancher does not uncordon Nodes of RKE2 and K3s that were cordoned by hand; uncordon them when their machines are done"
                .to_owned(),
        );
    }

    warnings
}

/// Warns of the feature gate that disables CSI migration, with the keys that set it.
pub(super) fn csi_migration_off(mut keys: Vec<String>) -> Option<String> {
    keys.sort();
    keys.dedup();

    let verb = if keys.len() == 1 { "sets" } else { "set" };
    (!keys.is_empty()).then(|| {
        format!(
            "{} still {verb} the feature gate CSIMigrationAWS=false, with which volumes cannot attach after the switch; remove it \
             once the EBS CSI driver runs",
            shortened(keys)
        )
    })
}

/// Whether a flag's value turns CSI migration for EBS off.
pub(super) fn turns_csi_migration_off(item: &str) -> bool {
    item.split(['=', ','])
        .collect::<Vec<_>>()
        .windows(2)
        .any(|pair| matches!(pair, [name, value] if name.trim() == "CSIMigrationAWS" && value.trim() == "false"))
}

fn shortened(mut names: Vec<String>) -> String {
    names.sort();
    names.dedup();

    warning::listed(&names, MAX_KEYS)
}

/// An entry without `config`, most often because its keys are not indented below it.
fn without_effect((index, entry): (usize, &Value)) -> Option<String> {
    let place = Section::Selector(index);
    let known = ["machineLabelSelector", "config"];
    let beside = entry.as_object().into_iter().flat_map(Map::keys);
    let beside: Vec<String> = beside.filter(|key| !known.contains(&key.as_str())).cloned().collect();
    if !beside.is_empty() {
        let (verb, they, them) = if beside.len() == 1 {
            ("stands", "it has", "it")
        } else {
            ("stand", "they have", "them")
        };
        let keys = shortened(beside);
        return Some(format!(
            "{keys} {verb} beside config in {place}, where {they} no effect; indent {them} below config"
        ));
    }

    let is_missing = entry.get("config").is_none_or(Value::is_null);
    is_missing.then(|| format!("config of {place} is null, so the entry does nothing; fill it or remove the entry"))
}

/// Whether a list has no `item`. Each list that takes effect gets the provider of the phase, so it is not lost.
fn loses(list: &Value, item: &Value) -> bool {
    item.as_str() != Some("cloud-provider=external") && items(list).all(|kept| kept != item)
}

/// Lists that replace another list on some machine, and lose some of its items.
fn replaced_lists(config: &MachineConfig<'_>, roles: &[Roles]) -> Vec<String> {
    let places: Vec<(Section, &Map<String, Value>)> = config.places().collect();
    let mut warnings = Vec::new();
    for (number, (later, keys)) in places.iter().enumerate() {
        // Each list is compared with those of all earlier sections.
        if work::take(20 * number * keys.len()).is_err() {
            break;
        }

        for (key, list) in keys.iter().filter(|(key, _)| key.ends_with("-arg")) {
            let earlier = places.iter().take(number).find(|(earlier, others)| {
                let lost = others
                    .get(key)
                    .is_some_and(|other| is_compared(list, other) && items(other).any(|item| loses(list, item)));
                lost && roles.iter().any(|roles| config.overlap(*earlier, *later, *roles))
            });
            if let Some((earlier, _)) = earlier {
                let own = if *earlier == Section::Global && key == "kube-apiserver-arg" {
                    " Rancher's own pod security argument is lost with it."
                } else {
                    ""
                };
                warnings.push(format!(
                    "{key} of {later} replaces that of {earlier} where both match: lists are not merged.{own} Write all of them into one"
                ));
            }
        }
    }

    warnings
}

/// Whether there is work left to compare each item with each other one.
fn is_compared(list: &Value, other: &Value) -> bool {
    work::take(2 * items(list).count() * items(other).count()).is_ok()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    let (list, one) = match value {
        Value::Array(list) => (list.as_slice(), None),
        Value::Null => (&[][..], None),
        other => (&[][..], Some(other)),
    };
    list.iter().chain(one)
}

fn gated_keys(config: &MachineConfig<'_>) -> Vec<String> {
    let mut keys = Vec::new();
    for (_, values) in config.places() {
        for (key, list) in values.iter().filter(|(key, _)| key.ends_with("-arg")) {
            if items(list).filter_map(Value::as_str).any(turns_csi_migration_off) {
                keys.push(key.clone());
            }
        }
    }

    keys
}

/// The roles of machines: those of the pools, or any where the operator creates the machines.
fn roles(object: &Value) -> Vec<Roles> {
    let pools = list_at(object, "/spec/rkeConfig/machinePools");
    let of_pool = |pool: &Value| {
        let has = |role: &str| pool.get(role).and_then(Value::as_bool).unwrap_or_default();
        Roles {
            control_plane: has("controlPlaneRole"),
            etcd: has("etcdRole"),
            worker: has("workerRole"),
        }
    };

    if pools.is_empty() {
        return Roles::all().collect();
    }
    pools.iter().map(of_pool).collect()
}
