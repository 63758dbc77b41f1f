//! EBS volumes of the in-tree plugin beside an external kubelet.
//!
//! The in-tree plugin of a kubelet mounts a volume by means of the kubelet's own cloud provider (`NewAttacher` of
//! `pkg/volume/awsebs/attacher.go` in Kubernetes 1.22). A kubelet with `--cloud-provider=external` has none, so each
//! mount fails, unless CSI migration hands the volume to the EBS CSI driver. The gate `CSIMigrationAWS` is off by
//! default up to 1.22, on by default in 1.23 and 1.24, and locked to on from 1.25.

use super::{
    AWS, Circumstances, Refusal, flag,
    gates::{csi_migration_is_on, feature_gate},
};
use crate::{
    command_line::{CommandLine, Unreadable},
    component::Component,
    migration::Phase,
    version::KubernetesVersion,
};

fn is_in_tree(line: &CommandLine) -> Result<bool, Unreadable> {
    Ok(line.value(flag::CLOUD_PROVIDER)?.as_deref() == Some(AWS))
}

/// A kubelet that mounts in-tree EBS volumes by its provider keeps it.
pub(super) fn check(line: &CommandLine, version: Option<KubernetesVersion>) -> Result<(), Refusal> {
    let Some(version) = version else { return Ok(()) };
    if is_in_tree(line)? && !csi_migration_is_on(line, version)? {
        return Err(Refusal::EbsNeedsProvider(version));
    }
    Ok(())
}

/// A warning about EBS volumes before the kubelets become external.
///
/// # Errors
/// When the command line cannot be read.
pub fn volumes_warning(
    component: Component,
    line: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Option<&'static str>, Unreadable> {
    const FIRST: &str = "before Migrate, install the EBS CSI driver and set the gate CSIMigrationAWS=true on kubelets too: an \
        external kubelet of this version mounts no in-tree EBS volume";
    const UNKNOWN: &str = "set spec.kubernetesVersion of the migration: up to 1.22 an external kubelet mounts no in-tree EBS volume \
        without the EBS CSI driver and the gate CSIMigrationAWS=true";

    if circumstances.version.is_none() {
        let is_concerned = component == Component::Kubelet
            && matches!(circumstances.phase, Phase::Prepare | Phase::Migrate)
            && is_in_tree(line)?
            && feature_gate(line, "CSIMigrationAWS")? != Some(true);
        return Ok(is_concerned.then_some(UNKNOWN));
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
