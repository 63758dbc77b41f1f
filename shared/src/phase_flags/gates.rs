//! Feature gates, as far as flags depend on them.

use super::flag;
use crate::{
    command_line::{CommandLine, Unreadable},
    version::KubernetesVersion,
};

/// A feature gate's setting on the command line; the last one counts. None if it is not set there.
pub(super) fn feature_gate(line: &CommandLine, gate: &str) -> Result<Option<bool>, Unreadable> {
    let values = line.values(flag::FEATURE_GATES)?;
    let settings = values.iter().flat_map(|value| value.split(','));
    let mut ours = settings
        .filter_map(|setting| setting.split_once('='))
        .filter(|(name, _)| name.trim() == gate);

    Ok(ours
        .next_back()
        .and_then(|(_, value)| crate::command_line::read_boolean(value.trim())))
}

/// Whether a beta gate is on: by its own name, with all others by `AllBeta`, or by default.
pub(super) fn beta_gate(line: &CommandLine, gate: &str, default: bool) -> Result<bool, Unreadable> {
    let own = feature_gate(line, gate)?;
    let setting = if own.is_some() {
        own
    } else {
        feature_gate(line, "AllBeta")?
    };
    Ok(setting.unwrap_or(default))
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
