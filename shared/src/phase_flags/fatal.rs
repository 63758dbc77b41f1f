//! Flags with which a component does not start in its version, for a warning before Migrate removes them.

use super::{AWS, EXTERNAL, flag};
use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::Component,
    version::KubernetesVersion,
};

/// An instruction about flags with which the component does not start in this version; none if it starts.
///
/// # Errors
/// When the command line cannot be read.
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
