//! Feature gates, as far as flags depend on them.

use super::{AWS, Refusal, flag};
use crate::{
    command_line::{CommandLine, Unreadable, read_boolean},
    version::KubernetesVersion,
};

/// A feature gate's setting on the command line; the last one counts. None if it is not set there.
pub(super) fn feature_gate(line: &CommandLine, gate: &str) -> Result<Option<bool>, Unreadable> {
    let values = line.values(flag::FEATURE_GATES)?;
    let settings = values.iter().flat_map(|value| value.split(','));
    let mut pairs = settings.filter_map(|setting| setting.split_once('='));
    let last = pairs.rfind(|(name, _)| name.trim() == gate);

    Ok(last.and_then(|(_, value)| read_boolean(value.trim())))
}

/// Whether a beta gate is on: by its own name, with all others by `AllBeta`, or by default.
pub(super) fn beta_gate(line: &CommandLine, gate: &str, default: bool) -> Result<bool, Unreadable> {
    match feature_gate(line, gate)? {
        Some(on) => Ok(on),
        None => Ok(feature_gate(line, "AllBeta")?.unwrap_or(default)),
    }
}

/// Whether EBS volumes are the CSI driver's. `CSIMigrationAWS` is beta and off by default up to 1.22, on by default in
/// 1.23 and 1.24, and locked from 1.25 on; without `CSIMigration`, on by default since 1.17, it has no effect.
/// <https://github.com/kubernetes/kubernetes/blob/v1.24.17/pkg/features/kube_features.go>
pub(super) fn csi_migration_is_on(line: &CommandLine, version: KubernetesVersion) -> Result<bool, Unreadable> {
    if version >= KubernetesVersion::v1(25) {
        return Ok(true);
    }
    let by_default = version >= KubernetesVersion::v1(23);
    Ok(feature_gate(line, "CSIMigration")? != Some(false) && beta_gate(line, "CSIMigrationAWS", by_default)?)
}

pub(super) fn is_in_tree(line: &CommandLine) -> Result<bool, Unreadable> {
    Ok(line.value(flag::CLOUD_PROVIDER)?.as_deref() == Some(AWS))
}

/// A kubelet that mounts in-tree EBS volumes by its provider keeps it.
///
/// The in-tree plugin of a kubelet mounts a volume by means of the kubelet's own cloud provider (`NewAttacher` of
/// `pkg/volume/awsebs/attacher.go` in Kubernetes 1.22). A kubelet with `--cloud-provider=external` has none, so each
/// mount fails, unless CSI migration hands the volume to the EBS CSI driver.
pub(super) fn check_volumes(line: &CommandLine, version: Option<KubernetesVersion>) -> Result<(), Refusal> {
    let Some(version) = version else { return Ok(()) };
    if is_in_tree(line)? && !csi_migration_is_on(line, version)? {
        return Err(Refusal::EbsNeedsProvider(version));
    }
    Ok(())
}
