//! **The table: which flags does a component get in which phase and version.**
//!
//! | phase | kube-controller-manager with `aws` | kube-apiserver | kubelet | AWS's cloud-controller-manager |
//! |---|---|---|---|---|
//! | InTree | its original form | untouched | untouched | untouched |
//! | Prepare | in-tree only: `--enable-leader-migration`, by version as below | untouched | untouched | `--enable-leader-migration` from 1.22 on, but with `downtime` |
//! | Migrate | `--cloud-provider=external`; `--enable-leader-migration`, `--leader-migration-config` and `--cloud-config` removed; the volume plugin by version as below | `--cloud-provider`, `--cloud-config` by version as below, never added | `--cloud-provider=external`, added where there is none; `--cloud-config` removed: nothing reads it with `external`, and it is unknown from 1.34 on. Refused where it is `aws` and CSI migration is off: up to 1.22 without `CSIMigrationAWS=true`, in 1.23 and 1.24 with `false` | as in Prepare |
//! | Complete | as in Migrate | as in Migrate | as in Migrate | untouched |
//!
//! | version | leader migration in Prepare | `--external-cloud-volume-plugin=aws` (then `--cloud-config` stays) | kube-apiserver | how known |
//! |---|---|---|---|---|
//! | below 1.20 | refused | refused | refused, the kubelet's too | read: the flags came in 1.21 |
//! | 1.20 | refused: only with `downtime` | set, but with `CSIMigrationAWS=true` | `aws` becomes `external` | read: releases 1.20 have no such flags |
//! | 1.21 | refused: needs a feature gate, and its lists know no `*` | as above | `aws` becomes `external` | read: gate alpha, off in 1.21 |
//! | 1.22 | added | as above | `aws` becomes `external` | read: gate beta, on from 1.22 |
//! | 1.23, 1.24 | added | only with `CSIMigrationAWS=false`, else removed | `aws` becomes `external` | read: `CSIMigrationAWS` on from 1.23 |
//! | 1.25, 1.26 | added | removed: EBS volumes are CSI's | `aws` becomes `external` | **run: 1.26**; 1.25 read: `CSIMigrationAWS` locked from 1.25 |
//! | 1.27, 1.28 | the in-tree AWS provider is gone | removed: an error | `aws` becomes `external` | read: provider removed in 1.27 |
//! | 1.29 to 1.32 | as above | removed | `--cloud-provider` removed: anything but `external` is an error, and that needs gates | read: API server checks the value from 1.29 |
//! | 1.33 and later | as above | removed | `--cloud-config` removed too: both are unknown flags | **run: 1.36**; others read: flags removed in 1.33 |
//!
//! Run means that the tests start these binaries of that version; read, that the fact is from the release's change log
//! or source. Read as well: the kubelet's `--cloud-config` removed in 1.34, and the names of a manager's controllers,
//! which differ from its default list from 1.28 on. Where an
//! object holds both components, the API server's part moves in Complete up to 1.28, so that the two never roll
//! together. A kube-controller-manager that is external from the start, or has no provider, was never AWS's: nothing is
//! added to it, and what an external one must not have is removed. Where `spec.leaderMigration` gives node IPAM to the
//! cloud-controller-manager, `--controllers` gets `-nodeipam` from Migrate on. Before Migrate, [`fatal`] names flags
//! with which a component does not start. A cloud-controller-manager without leader migration runs service, route and
//! node lifecycle beside an in-tree kube-controller-manager; ours with `--migration` needs no flag for that and is
//! untouched. With `spec.leaderMigration` Prepare sets `--leader-migration-config` too, where the file can be brought.
//! Kubermatic's control planes are never changed: Kubermatic writes their flags itself.

use crate::{
    command_line::{CommandLine, Unreadable},
    component::Component,
    migration::Phase,
    version::KubernetesVersion,
};

mod change;
mod controller_manager;
pub mod flag;
mod gates;
mod own_configuration;
mod script;
mod warnings;

pub use self::{
    change::{Change, Circumstances, Refusal},
    controller_manager::{controller_manager_row, nothing_to_add},
    own_configuration::{NodeIpam, OwnConfiguration, runs_node_ipam},
    warnings::{fatal, gates_warning, is_named_by_host, is_removed_gate, other_lease, shortcoming, volumes_warning},
};
use self::{
    controller_manager::{Provider, external, prepare},
    flag::{AWS, EXTERNAL},
};

/// The changes that bring a component from its original command line to the form of a phase; empty when it has it.
///
/// # Errors
/// When the form cannot or must not be reached; the component then stays as it is.
pub fn changes(
    component: Component,
    original: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<Change>, Refusal> {
    if let Some(script) = original.script() {
        return script::in_script(component, original, &script, circumstances);
    }

    // Such an API server is left to its operator: no flag is ever added to it.
    if component == Component::KubeControllerManager && circumstances.phase != Phase::InTree {
        original.no_config_file()?;
    }

    let wanted = match (component, circumstances.phase) {
        (_, Phase::InTree) | (Component::KubeApiserver | Component::Kubelet, Phase::Prepare) => Vec::new(),
        (Component::KubeControllerManager, Phase::Prepare) => prepare(original, circumstances)?,
        (Component::KubeControllerManager, Phase::Migrate | Phase::Complete) => external(original, circumstances)?,
        (Component::KubeApiserver, Phase::Migrate) if circumstances.api_server_waits() => Vec::new(),
        (Component::KubeApiserver, Phase::Migrate | Phase::Complete) => api_server(original, circumstances.version)?,
        (Component::Kubelet, Phase::Migrate | Phase::Complete) => kubelet(original, circumstances.version)?,
        (Component::CloudControllerManager, Phase::Complete) => Vec::new(),
        (Component::CloudControllerManager, Phase::Prepare | Phase::Migrate) => manager(original, circumstances)?,
    };

    let mut needed = Vec::new();
    for change in wanted {
        if !is_done(&change, original)? {
            needed.push(change);
        }
    }

    Ok(needed)
}

fn is_done(change: &Change, line: &CommandLine) -> Result<bool, Unreadable> {
    Ok(match change {
        Change::Set(flag, value, _) if *flag == flag::ENABLE_LEADER_MIGRATION => {
            line.boolean(*flag)? == Some(*value == "true")
        }
        Change::Set(flag, value, _) => line.value(*flag)?.as_deref() == Some(value.as_ref()),
        Change::Remove(flag, _) => line.value(*flag)?.is_none(),
    })
}

/// kube-apiserver, from Migrate on.
fn api_server(line: &CommandLine, version: Option<KubernetesVersion>) -> Result<Vec<Change>, Refusal> {
    let provider = line.value(flag::CLOUD_PROVIDER)?;
    if provider.is_none() && line.value(flag::CLOUD_CONFIG)?.is_none() {
        return Ok(Vec::new());
    }
    let Some(version) = version else {
        // Right up to 1.32; the warning of `fatal` is for later versions.
        return if matches!(provider.as_deref(), None | Some("" | EXTERNAL)) {
            Ok(Vec::new())
        } else {
            Err(Refusal::VersionUnknown)
        };
    };
    if version < KubernetesVersion::v1(20) && provider.as_deref() == Some(AWS) {
        return Err(Refusal::TooOld(version));
    }

    const NO_EFFECT: &str = "the flag has no effect here, and its value follows the other components";
    const GONE: &str = "the flag is an error or unknown in this version";
    const SOON_GONE: &str = "external has no effect here, and the flag is unknown from 1.33 on";

    Ok(match (version.minor, provider.as_deref()) {
        (..=28, Some(AWS)) => vec![Change::Set(flag::CLOUD_PROVIDER, EXTERNAL.into(), NO_EFFECT)],
        (..=28, _) => Vec::new(),
        (29..=32, Some(EXTERNAL)) => vec![Change::Remove(flag::CLOUD_PROVIDER, SOON_GONE)],
        (29..=32, _) => vec![Change::Remove(flag::CLOUD_PROVIDER, GONE)],
        (33.., _) => vec![
            Change::Remove(flag::CLOUD_PROVIDER, GONE),
            Change::Remove(flag::CLOUD_CONFIG, GONE),
        ],
    })
}

/// kubelet, from Migrate on. `external` is legal in every version.
fn kubelet(line: &CommandLine, version: Option<KubernetesVersion>) -> Result<Vec<Change>, Refusal> {
    const NODE: &str = "the cloud-controller-manager initializes the Node";

    let provider = Provider::of(line)?;
    if let Some(version) = version.filter(|version| *version < KubernetesVersion::v1(20))
        && provider != Provider::External
    {
        return Err(Refusal::TooOld(version));
    }

    gates::check_volumes(line, version)?;

    Ok(vec![
        Change::Set(flag::CLOUD_PROVIDER, EXTERNAL.into(), NODE),
        Change::Remove(flag::CLOUD_CONFIG, "nothing in the process reads it any more"),
    ])
}

/// AWS's cloud-controller-manager while an in-tree kube-controller-manager may run.
fn manager(line: &CommandLine, circumstances: &Circumstances) -> Result<Vec<Change>, Refusal> {
    let provider = line.value(flag::CLOUD_PROVIDER)?;
    let is_foreign = provider.is_some_and(|provider| provider != AWS);
    let has_migration = line.value(flag::MIGRATION)?.is_some_and(|name| !name.is_empty());
    if is_foreign
        || has_migration
        || circumstances.downtime
        || line.boolean(flag::ENABLE_LEADER_MIGRATION)? == Some(true)
    {
        return Ok(Vec::new());
    }
    if line.boolean(flag::LEADER_ELECT)? == Some(false) {
        return Err(Refusal::LeaderElectionOff);
    }

    match circumstances.version {
        None => Err(Refusal::ManagerVersion(
            "its version is not known; write the flag, or an image tag with a version".to_owned(),
        )),
        Some(version) if version < KubernetesVersion::v1(22) => Err(Refusal::ManagerVersion(format!(
            "version {version} has no such flag; upgrade it to 1.22 or set spec.downtime: true"
        ))),
        Some(_) => Ok(vec![Change::Set(
            flag::ENABLE_LEADER_MIGRATION,
            "true".into(),
            "the cloud controllers would run beside those of the kube-controller-manager",
        )]),
    }
}
