//! Problems of flags that a phase does not solve, for warnings.

use super::{
    AWS, Circumstances, EXTERNAL, flag,
    gates::{csi_migration_is_on, feature_gate, is_in_tree},
};
use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::Component,
    migration::{DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE, Phase},
    version::KubernetesVersion,
};

/// A warning about problems that the flags of a phase cannot solve.
///
/// From 1.28 on a cloud-controller-manager calls its controllers otherwise than its own default list does, so service
/// and route stay outside of the migration lease.
pub fn shortcoming(
    component: Component,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Option<&'static str>, Unreadable> {
    const NAMES: &str = "from 1.28 on service and route run outside of the migration lease; name service-lb-controller and \
        node-route-controller in --leader-migration-config, or use outrigger-manager";

    let guards = matches!(circumstances.phase, Phase::Prepare | Phase::Migrate) && !circumstances.downtime;
    let names_differ = circumstances
        .version
        .is_some_and(|version| version >= KubernetesVersion::v1(28));
    if component != Component::CloudControllerManager || !guards || !names_differ {
        return Ok(None);
    }

    let is_covered = line.value(flag::MIGRATION)?.is_some() || line.value(flag::LEADER_MIGRATION_CONFIG)?.is_some();
    Ok(Some(NAMES).filter(|_| !is_covered))
}

/// A warning about EBS volumes before the kubelets become external.
pub fn volumes_warning(
    component: Component,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Option<&'static str>, Unreadable> {
    const FIRST: &str = "before Migrate, install the EBS CSI driver and set the gate CSIMigrationAWS=true on kubelets too: an \
        external kubelet of this version mounts no in-tree EBS volume";
    const PLUGIN: &str = "an object that is external already keeps --external-cloud-volume-plugin up to 1.26, and from 1.27 on it \
        is an error; remove it before, or upgrade in Migrate or Complete, which then remove it";
    const UNKNOWN: &str = "set spec.kubernetesVersion of the migration: up to 1.22 an external kubelet mounts no in-tree EBS volume \
        without the EBS CSI driver and the gate CSIMigrationAWS=true";

    if circumstances.version.is_none() {
        let is_concerned = component == Component::Kubelet
            && matches!(circumstances.phase, Phase::Prepare | Phase::Migrate)
            && is_in_tree(line)?
            && feature_gate(line, "CSIMigrationAWS")? != Some(true);
        return Ok(is_concerned.then_some(UNKNOWN));
    }

    if component == Component::KubeControllerManager && keeps_plugin(line, circumstances)? {
        return Ok(Some(PLUGIN));
    }

    let concerns = match component {
        Component::Kubelet => circumstances.phase == Phase::Prepare,
        Component::KubeControllerManager => matches!(circumstances.phase, Phase::Prepare | Phase::Migrate),
        _ => false,
    };
    let Some(version) = circumstances.version.filter(|_| concerns) else {
        return Ok(None);
    };

    let is_concerned = is_in_tree(line)? && !csi_migration_is_on(line, version)?;
    Ok(is_concerned.then_some(FIRST))
}

/// Whether the kube-controller-manager was external before, and has a volume plugin that no phase removes yet.
fn keeps_plugin(line: &CommandLine, circumstances: &Circumstances) -> Result<bool, Unreadable> {
    let is_before = circumstances
        .version
        .is_some_and(|version| version < super::controller_manager::FIRST_WITHOUT_PLUGIN);
    let is_external = line.value(flag::CLOUD_PROVIDER)?.as_deref() == Some(EXTERNAL);
    let plugin = line.value(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN)?;
    Ok(circumstances.phase != Phase::InTree && is_before && is_external && plugin.as_deref() == Some(AWS))
}

/// An instruction about flags with which the component does not start in this version; none if it starts.
pub fn fatal(
    component: Component,
    line: &CommandLine,
    version: Option<KubernetesVersion>,
) -> Result<Option<String>, Unreadable> {
    let Some(version) = version else { return Ok(None) };
    let script = line.script();
    let line = script.as_ref().unwrap_or(line);
    let provider = line.value(flag::CLOUD_PROVIDER)?.unwrap_or_default();
    let is_named = |flag: Flag| line.value(flag).map(|value| value.is_some());
    let mut flags = Vec::new();

    match (component, version.minor) {
        (Component::KubeApiserver, 33..) => {
            for flag in [flag::CLOUD_PROVIDER, flag::CLOUD_CONFIG] {
                if is_named(flag)? {
                    flags.push(format!("--{}", flag.name));
                }
            }
        }
        (Component::KubeApiserver, 29..) if !["", EXTERNAL].contains(&provider.as_str()) => {
            flags.push(format!("--cloud-provider={provider}"));
        }
        (Component::KubeControllerManager | Component::Kubelet, 27..) if provider == AWS => {
            return Ok(Some(format!(
                "keep 1.26 until this cluster is migrated: {component} {version} does not start with --cloud-provider=aws"
            )));
        }
        // https://github.com/kubernetes/kubernetes/blob/v1.27.0/cmd/kube-controller-manager/app/controllermanager.go
        (Component::KubeControllerManager, 27..=31) if is_named(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN)? => {
            flags.push(format!("--{}", flag::EXTERNAL_CLOUD_VOLUME_PLUGIN.name));
        }
        (Component::Kubelet, 34..) if is_named(flag::CLOUD_CONFIG)? => {
            flags.push(format!("--{}", flag::CLOUD_CONFIG.name));
        }
        _ => {}
    }

    Ok((!flags.is_empty()).then(|| {
        let flags = flags.join(" and ");
        format!("remove {flags} from {component}: version {version} does not start with it")
    }))
}

/// Where every stock component has its leases.
const NAMESPACE: &str = "kube-system";

/// An instruction about a kube-controller-manager whose lease is not the one that the migration reads; none if it is.
pub fn other_lease(component: Component, line: &CommandLine, expected: &str) -> Result<Option<String>, Unreadable> {
    if component != Component::KubeControllerManager || line.script().is_some() {
        return Ok(None);
    }

    let value = |name| line.value(Flag::text(name));
    let name = value("leader-elect-resource-name")?;
    let name = name.unwrap_or_else(|| DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned());
    if name != expected {
        return Ok(Some(format!(
            "set spec.kubeControllerManagerLease: {name}, the value of its --leader-elect-resource-name: the manager finds no evidence for Prepared in the lease {expected}"
        )));
    }

    let namespace = value("leader-elect-resource-namespace")?.filter(|namespace| namespace != NAMESPACE);
    Ok(namespace.map(|namespace| {
        format!(
            "start the cloud-controller-manager with --leader-elect-resource-namespace={namespace}, like this one; otherwise it reads leases of {NAMESPACE}"
        )
    }))
}

/// Gates of a migration that no component knows from 1.27 on: an unknown gate ends it.
/// <https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/>
const REMOVED: [&str; 3] = ["CSIMigrationAWS", "CSIMigration", "ControllerManagerLeaderMigration"];
const REMOVED_IN: KubernetesVersion = KubernetesVersion::v1(27);

/// Whether a setting of a gate is one that a component of the version does not know.
#[must_use]
pub fn is_removed_gate(gate: &str, version: KubernetesVersion) -> bool {
    version.minor >= REMOVED_IN.minor && REMOVED.contains(&gate)
}

/// Feature gates with which the component does not start in its version, for a warning.
pub fn gates_warning(line: &CommandLine, circumstances: &Circumstances) -> Result<Option<String>, Unreadable> {
    let Some(version) = circumstances.version.filter(|_| circumstances.phase > Phase::InTree) else {
        return Ok(None);
    };

    let mut gates = Vec::new();
    for gate in REMOVED {
        if is_removed_gate(gate, version) && feature_gate(line, gate)?.is_some() {
            gates.push(gate);
        }
    }

    if !gates.is_empty() {
        return Ok(Some(format!(
            "remove {} from --feature-gates: {version} does not know it and does not start",
            gates.join(", ")
        )));
    }

    let is_locked = matches!(version.minor, 25 | 26) && feature_gate(line, "CSIMigrationAWS")? == Some(false);
    Ok(is_locked.then(|| {
        format!("install the EBS CSI driver and remove CSIMigrationAWS=false: {version} does not start with it")
    }))
}

/// The name that a kubelet gives itself. With the in-tree provider its Node has the private DNS name of the instance;
/// with an external one the host name, or `--hostname-override` (`getNodeName` of `cmd/kubelet/app/server.go`).
pub fn is_named_by_host(
    component: Component,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<bool, Unreadable> {
    const HOSTNAME_OVERRIDE: Flag = Flag::text("hostname-override");

    if component != Component::Kubelet || circumstances.phase == Phase::InTree {
        return Ok(false);
    }

    let was_external = line.value(flag::CLOUD_PROVIDER)?.as_deref() == Some(EXTERNAL);
    let is_named = match line.value(HOSTNAME_OVERRIDE) {
        // A name that only the machine knows is a name.
        Err(Unreadable::Variable { .. }) => true,
        value => value?.is_some_and(|name| !name.is_empty()),
    };

    Ok(!was_external && !is_named)
}
