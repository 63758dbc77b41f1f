//! Checks of the control plane.

use std::collections::BTreeMap;

use outrigger_evidence::facts::{host_of, same_host};
use outrigger_shared::phase_flags::is_removed_gate;
use outrigger_shared::version::KubernetesVersion;

use super::finding::{Detail, Found};
use super::nodes::by_kubelet;
use crate::facts::{Acts, ClusterFacts, Component, Judgement, NotRead};

const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const MANAGER: &str = "aws-cloud-controller-manager";

/// The renew deadline of our manager, in seconds.
const RENEW_DEADLINE: u64 = 10;

/// The flags of kube-controller-managers that have to be the same for all.
const ALIKE: [&str; 9] = [
    "allocate-node-cidrs",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "configure-cloud-routes",
    "controllers",
    "enable-leader-migration",
    "leader-migration-config",
];

fn controller_managers(facts: &ClusterFacts) -> Result<Vec<(&Component, &Judgement)>, NotRead> {
    if facts.is_management_cluster() {
        return Err(NotRead::because(
            "the control planes of the migrations are in other clusters: check these too",
        ));
    }
    let all = facts.components.get()?.iter();
    let ours = all.filter(|component| component.component == CONTROLLER_MANAGER);
    Ok(ours
        .filter_map(|component| Some((component, component.judgement.as_ref()?)))
        .collect())
}

/// The ones that count for the manager and can be read.
fn readable(facts: &ClusterFacts) -> Result<Vec<(&Component, &Judgement)>, NotRead> {
    let all = controller_managers(facts)?.into_iter();
    Ok(all.filter(|(component, _)| component.unreadable.is_none()).collect())
}

fn version(facts: &ClusterFacts) -> Result<KubernetesVersion, NotRead> {
    let version = facts.version.get()?;
    version
        .parse()
        .map_err(|_| NotRead::because("the API server's version is none of Kubernetes"))
}

/// Whether the in-tree provider runs: a cluster without it has nothing to migrate.
pub(super) fn is_in_tree(facts: &ClusterFacts) -> Result<bool, NotRead> {
    Ok(controller_managers(facts)?.iter().any(|(_, judged)| judged.is_in_tree))
}

pub(super) fn old_version(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let version = version(facts)?;
    let is_old = version.minor < 22 && is_in_tree(facts)?;
    Ok(is_old
        .then(|| Detail::new(format!("Kubernetes {version}")))
        .into_iter()
        .collect())
}

pub(super) fn none_seen(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let is_seen = !controller_managers(facts)?.is_empty();
    Ok((!is_seen)
        .then(|| Detail::new("none among the Pods that were read"))
        .into_iter()
        .collect())
}

pub(super) fn unreadable(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = controller_managers(facts)?.into_iter();
    let found = all.filter_map(|(component, _)| {
        let why = component.unreadable.as_ref()?;
        Some(Detail::new(format!("{}: {why}", component.object)))
    });
    let found: Found = found.collect();
    // Without the Nodes it is not known which mirror Pods count.
    if found.is_empty() {
        facts.nodes.get()?;
    }

    Ok(found)
}

pub(super) fn routes(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let readable = readable(facts)?;
    let Some((component, _)) = readable.iter().find(|(_, judged)| judged.is_in_tree && judged.routes) else {
        return Ok(Vec::new());
    };
    let cidr = component.flags.as_ref().and_then(|flags| flags.get("cluster-cidr"));
    let ours = managers(facts)?;
    let goes_on = |manager: &&Component| {
        let value = |flag: &str| manager.flags.as_ref().and_then(|flags| flags.get(flag));
        value("configure-cloud-routes").is_some_and(|on| on == "true") && value("cluster-cidr") == cidr
    };
    if !ours.is_empty() && ours.iter().all(goes_on) {
        return Ok(Vec::new());
    }

    let nodes = facts.nodes.known().map(Vec::as_slice).unwrap_or_default();
    let is_rke2 = nodes.iter().any(|node| node.kubelet_version.contains("+rke2"));
    let fix = match cidr {
        _ if is_rke2 => Some("RKE2's own networks need no routes: set kube-controller-manager-arg configure-cloud-routes=false (docs/guides/rke2.md)".to_owned()),
        Some(cidr) => Some(format!("start the manager with --configure-cloud-routes=true and --cluster-cidr={cidr}")),
        None => None,
    };
    Ok(vec![Detail {
        text: component.object.clone(),
        fix,
    }])
}

/// The managers of Outrigger that take part in a migration.
fn managers(facts: &ClusterFacts) -> Result<Vec<&Component>, NotRead> {
    let all = facts.components.get()?.iter();
    let takes_part = |manager: &&Component| {
        manager
            .flags
            .as_ref()
            .is_some_and(|flags| flags.contains_key("migration"))
    };
    Ok(all
        .filter(|component| component.component == MANAGER && component.is_outrigger)
        .filter(takes_part)
        .collect())
}

pub(super) fn differences(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = readable(facts)?;
    let value = |component: &Component, flag: &str| {
        let value = component.flags.as_ref().and_then(|flags| flags.get(flag));
        value.map_or_else(|| "absent".to_owned(), Clone::clone)
    };
    let Some(((first, _), others)) = all.split_first() else {
        return Ok(Vec::new());
    };

    let found = ALIKE.iter().filter_map(|flag| {
        let of_first = value(first, flag);
        let (other, of_other) = others
            .iter()
            .map(|(other, _)| (other, value(other, flag)))
            .find(|(_, of_other)| *of_other != of_first)?;
        let (first, other) = (&first.object, &other.object);
        Some(Detail::new(format!(
            "--{flag} is {of_first} in {first}, and {of_other} in {other}"
        )))
    });

    Ok(found.collect())
}

pub(super) fn other_locks(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = readable(facts)?.into_iter();
    let found = all.filter_map(|(component, judged)| {
        let flag = judged.other_lock.as_ref()?;
        Some(Detail::new(format!("{}: {flag}", component.object)))
    });
    Ok(found.collect())
}

pub(super) fn own_configuration(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = readable(facts)?.into_iter();
    let found = all.filter_map(|(component, judged)| {
        let why = judged.configuration.as_ref().filter(|_| judged.is_in_tree)?;
        Some(Detail::new(format!("{}: {why}", component.object)))
    });
    Ok(found.collect())
}

pub(super) fn short_leases(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let held = facts.leases.get()?.iter().filter(|lease| !lease.holder.is_empty());
    let short = held.filter(|lease| lease.duration_seconds <= RENEW_DEADLINE);
    Ok(short
        .map(|lease| Detail::new(format!("{}: {} s", lease.name, lease.duration_seconds)))
        .collect())
}

pub(super) fn unknown_leader(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = controller_managers(facts)?;
    let migrations = facts.migrations.known().map(Vec::as_slice).unwrap_or_default();
    let own = migrations.iter().find(|migration| !migration.is_elsewhere());
    let name = own.map_or(CONTROLLER_MANAGER, |migration| &migration.main_lease);
    // An attestation stands in for a leader that cannot be read.
    if own.is_some_and(|migration| migration.is_attested) {
        return Ok(Vec::new());
    }
    let lease = facts
        .leases
        .get()?
        .iter()
        .find(|lease| lease.name == name && !lease.holder.is_empty());
    let Some(lease) = lease.filter(|_| !all.is_empty()) else {
        return Ok(Vec::new());
    };

    let host = host_of(&lease.holder);
    let is_same = |name: &String| same_host(name, host);
    let is_seen = all.iter().any(|(_, judged)| judged.hosts.iter().any(is_same));
    Ok((!is_seen)
        .then(|| Detail::new(format!("lease {name} is held by {}", lease.holder)))
        .into_iter()
        .collect())
}

pub(super) fn does_not_start(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = facts.components.get()?.iter();
    let found = all.filter_map(|component| {
        let fix = component.does_not_start.as_ref()?;
        Some(Detail::with_fix(component.object.clone(), fix.clone()))
    });
    Ok(found.collect())
}

/// Settings that the manager takes over: those of the in-tree kube-controller-managers that it does not have.
pub(super) fn settings(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let all = readable(facts)?;
    let in_tree = all
        .iter()
        .find(|(_, judged)| judged.is_in_tree && judged.acts != Acts::Never);
    let Some(flags) = in_tree.and_then(|(component, _)| component.flags.as_ref()) else {
        return Ok(Vec::new());
    };
    let ours = managers(facts)?;
    let mut found = Vec::new();

    if let Some(name) = flags.get("cluster-name").filter(|name| *name != "kubernetes") {
        let has =
            |manager: &&Component| manager.flags.as_ref().and_then(|flags| flags.get("cluster-name")) == Some(name);
        if ours.is_empty() || !ours.iter().all(has) {
            let fix = format!("start the manager with --cluster-name={name}");
            found.push(Detail::with_fix(format!("--cluster-name={name}"), fix));
        }
    }
    if let Some(file) = flags.get("cloud-config").filter(|file| !file.is_empty()) {
        let has = |manager: &&Component| {
            manager
                .flags
                .as_ref()
                .is_some_and(|flags| flags.contains_key("cloud-config"))
        };
        if ours.is_empty() || !ours.iter().all(has) {
            let fix = "give the manager the content of that file, in a ConfigMap (docs/guides/install.md)";
            found.push(Detail::with_fix(format!("--cloud-config={file}"), fix));
        }
    }

    Ok(found)
}

/// Gates are unknown from this version on.
const FIRST_WITHOUT_GATES: KubernetesVersion = KubernetesVersion::v1(27);

fn removed_gate(flags: &BTreeMap<String, String>) -> Option<&str> {
    let gates = flags.get("feature-gates")?;
    let names = gates.split(',').filter_map(|gate| gate.split_once('='));
    names
        .map(|(name, _)| name.trim())
        .find(|name| is_removed_gate(name, FIRST_WITHOUT_GATES))
}

pub(super) fn removed_gates(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let components = facts.components.get()?.iter();
    let of_components = components.filter_map(|component| {
        let gate = removed_gate(component.flags.as_ref()?)?;
        Some(Detail::new(format!("{}: {gate}", component.object)))
    });
    let mut found: Found = of_components.collect();

    let of_kubelets = by_kubelet(facts, |node, kubelet| {
        let gate = removed_gate(&kubelet.flags)?;
        Some(Detail::new(format!("kubelet of {}: {gate}", node.name)))
    });
    match of_kubelets {
        Err(why) if found.is_empty() => return Err(why),
        of_kubelets => found.extend(of_kubelets.unwrap_or_default()),
    }

    Ok(found)
}

/// Gates that keep EBS volumes with the in-tree plugin
/// (<https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/>).
const KEEPS_VOLUMES: [&str; 2] = ["CSIMigrationAWS=false", "CSIMigration=false"];

pub(super) fn csi_gates(facts: &ClusterFacts) -> Result<Found, NotRead> {
    if facts.ebs_volumes.get()?.count == 0 {
        return Ok(Vec::new());
    }
    let components = facts.components.get()?.iter();
    let found = components.filter_map(|component| {
        let gates = component.flags.as_ref()?.get("feature-gates")?;
        let gate = gates.split(',').find(|gate| KEEPS_VOLUMES.contains(&gate.trim()))?;
        Some(Detail::new(format!("{}: {gate}", component.object)))
    });

    Ok(found.collect())
}
