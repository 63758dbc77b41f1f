//! Flags that a migration does not change, but that decide how a component restarts.

use super::{Circumstances, EXTERNAL, flag, gates::feature_gate};
use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::Component,
    migration::Phase,
    version::KubernetesVersion,
};

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
///
/// # Errors
/// When the command line cannot be read.
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
///
/// # Errors
/// When the command line cannot be read.
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
