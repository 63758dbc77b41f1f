//! The kube-controller-manager's rows.

use super::{
    AWS, Change, Circumstances, EXTERNAL, Refusal, flag,
    gates::{beta_gate, csi_migration_is_on},
};
use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::Form,
    migration::Phase,
    version::KubernetesVersion,
};

const OLDEST: KubernetesVersion = KubernetesVersion::v1(20);
/// The first version that does not start with the volume plugin of AWS.
pub(super) const FIRST_WITHOUT_PLUGIN: KubernetesVersion = KubernetesVersion::v1(27);

/// The values of `--cloud-provider` that matter to a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Aws,
    External,
    /// None: no cloud controller runs.
    None,
}

impl Provider {
    pub fn of(line: &CommandLine) -> Result<Self, Refusal> {
        match line.value(flag::CLOUD_PROVIDER)?.as_deref() {
            None | Some("") => Ok(Self::None),
            Some(EXTERNAL) => Ok(Self::External),
            Some(AWS) => Ok(Self::Aws),
            Some(other) => Err(Refusal::ForeignProvider(other.to_owned())),
        }
    }
}

/// Refuses the volume plugin of another cloud: the object is not one of AWS, in every phase.
fn refuse_other_clouds(line: &CommandLine) -> Result<(), Refusal> {
    let plugin = line.value(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN)?;
    match plugin.filter(|plugin| !plugin.is_empty() && plugin != AWS) {
        Some(other) => Err(Refusal::ForeignVolumePlugin(other)),
        None => Ok(()),
    }
}

pub(super) fn prepare(line: &CommandLine, circumstances: &Circumstances) -> Result<Vec<Change>, Refusal> {
    refuse_other_clouds(line)?;
    if Provider::of(line)? != Provider::Aws {
        return Ok(Vec::new());
    }

    let version = circumstances.version.ok_or(Refusal::VersionUnknown)?;
    if version < KubernetesVersion::v1(22) && circumstances.downtime {
        return Ok(Vec::new());
    }

    match version.minor {
        ..20 => return Err(Refusal::TooOld(version)),
        20 => return Err(Refusal::NoLeaderMigration(version)),
        21 => return Err(Refusal::NeedsGateAndFile),
        22..=26 => {}
        _ => return Err(Refusal::ProviderGone(version)),
    }

    if line.boolean(flag::LEADER_ELECT)? == Some(false) {
        return if circumstances.downtime {
            Ok(Vec::new())
        } else {
            Err(Refusal::LeaderElectionOff)
        };
    }
    if version.minor <= 23 && !beta_gate(line, "ControllerManagerLeaderMigration", true)? {
        return Err(Refusal::GateOff);
    }

    const WHY: &str = "the migration lease guards the cloud controllers";

    let mut changes = vec![Change::Set(flag::ENABLE_LEADER_MIGRATION, "true".into(), WHY)];
    changes.extend(circumstances.own_configuration.file(line)?);

    Ok(changes)
}

/// Phases Migrate and Complete. A process without the in-tree provider gets no flags for it.
pub(super) fn external(line: &CommandLine, circumstances: &Circumstances) -> Result<Vec<Change>, Refusal> {
    let provider = Provider::of(line)?;
    refuse_other_clouds(line)?;

    // The in-tree provider is replaced, or a provider that another field of the object may set.
    let becomes_external = provider == Provider::Aws || provider == Provider::None && circumstances.named_elsewhere;
    let mut changes = Vec::new();
    if becomes_external {
        const WHY: &str = "the cloud controllers run in the cloud-controller-manager";
        changes.push(Change::Set(flag::CLOUD_PROVIDER, EXTERNAL.into(), WHY));
    }

    const IDLE: &str =
        "an external kube-controller-manager would hold the migration lease without running the cloud controllers";

    changes
        .extend([flag::ENABLE_LEADER_MIGRATION, flag::LEADER_MIGRATION_CONFIG].map(|flag| Change::Remove(flag, IDLE)));
    changes.extend(volumes(line, provider, becomes_external, circumstances.version)?);

    // Without the range it allocates none, so node IPAM does not start.
    let allocates = line.boolean(flag::ALLOCATE_NODE_CIDRS)? == Some(true);
    if becomes_external || allocates {
        changes.extend(circumstances.node_ipam.change(line)?);
    }

    Ok(changes)
}

/// The in-tree volume plugin and its configuration.
fn volumes(
    line: &CommandLine,
    provider: Provider,
    becomes_external: bool,
    version: Option<KubernetesVersion>,
) -> Result<Vec<Change>, Refusal> {
    let has = |flag: Flag| line.value(flag).map(|value| value.is_some());
    // Without a provider nothing reads the configuration, before and after.
    let has_config = provider != Provider::None && has(flag::CLOUD_CONFIG)?;
    if !becomes_external && !has_config && !has(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN)? {
        return Ok(Vec::new());
    }

    let version = version.ok_or(Refusal::VersionUnknown)?;
    if version < OLDEST {
        return Err(Refusal::TooOld(version));
    }
    // Its operator configured it. From 1.27 on the plugin is an error.
    if provider == Provider::External && version < FIRST_WITHOUT_PLUGIN {
        return Ok(Vec::new());
    }
    if !csi_migration_is_on(line, version)? {
        const WHY: &str = "in-tree EBS volumes still need the provider in this version";
        let plugin = Change::Set(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN, AWS.into(), WHY);
        return Ok(Some(plugin).filter(|_| provider == Provider::Aws).into_iter().collect());
    }

    const CSI: &str = "the EBS CSI driver serves EBS volumes in this version";
    const UNREAD: &str = "nothing in the process reads it any more";

    let mut changes = vec![Change::Remove(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN, CSI)];
    if becomes_external || has_config {
        changes.push(Change::Remove(flag::CLOUD_CONFIG, UNREAD));
    }

    Ok(changes)
}

/// Why a kube-controller-manager gets nothing from Migrate on; none where it had the in-tree provider.
pub fn nothing_to_add(line: &CommandLine, circumstances: &Circumstances) -> Result<Option<&'static str>, Unreadable> {
    if circumstances.phase < Phase::Migrate || line.script().is_some() {
        return Ok(None);
    }
    Ok(match line.value(flag::CLOUD_PROVIDER)?.as_deref() {
        Some(EXTERNAL) => Some("it was external from the start, so nothing is added"),
        None | Some("") if !circumstances.named_elsewhere => {
            Some("it has no cloud provider, so it runs no cloud controllers and nothing is added")
        }
        _ => None,
    })
}

/// The row whose flags a kube-controller-manager gets. In Migrate and Complete an in-tree one becomes external only on
/// evidence (`prepared`) or with `downtime`; until then it gets the row of Prepare, so that a hasty change of phase
/// cannot skip the evidence. A provider that cannot be read may be in-tree, so the same row applies. A
/// provider that is external already (`stays_external`) is never changed back for a lack of evidence.
#[must_use]
pub fn controller_manager_row(
    phase: Phase,
    original: &Form,
    stays_external: bool,
    prepared: bool,
    downtime: bool,
) -> Phase {
    let may_be_in_tree = matches!(original, Form::InTree { .. } | Form::Unreadable { .. });
    let must_wait = may_be_in_tree && !stays_external && !prepared && !downtime;
    if phase >= Phase::Migrate && must_wait {
        Phase::Prepare
    } else {
        phase
    }
}
