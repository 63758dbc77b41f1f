//! **The table: which flags does a component get in which phase and version.**
//!
//! | phase | kube-controller-manager | kube-apiserver | kubelet | AWS's cloud-controller-manager |
//! |---|---|---|---|---|
//! | InTree | its original form | untouched | untouched | untouched |
//! | Prepare | in-tree only: `--enable-leader-migration`, by version as below | untouched | untouched | `--enable-leader-migration` from 1.22 on, but with `downtime` |
//! | Migrate | `--cloud-provider=external`; `--enable-leader-migration`, `--leader-migration-config` and `--cloud-config` removed; the volume plugin by version as below | `--cloud-provider`, `--cloud-config` by version as below, never added | `--cloud-provider=external`, added where there is none; `--cloud-config` removed: nothing reads it with `external`, and it is unknown from 1.34 on. Refused where it is `aws` and CSI migration is off: up to 1.22 without `CSIMigrationAWS=true`, in 1.23 and 1.24 with `false` | as in Prepare |
//! | Complete | as in Migrate | as in Migrate | as in Migrate | untouched |
//!
//! | version | leader migration in Prepare | `--external-cloud-volume-plugin=aws` (then `--cloud-config` stays) | kube-apiserver | how known |
//! |---|---|---|---|---|
//! | below 1.20 | refused | refused | `aws` becomes `external` | read: the flags came in 1.21 |
//! | 1.20 | refused: only with `downtime` | set | `aws` becomes `external` | read: releases 1.20 have no such flags |
//! | 1.21 | refused: needs a feature gate, and its lists know no `*` | set | `aws` becomes `external` | read: gate alpha, off in 1.21 |
//! | 1.22 | added | set | `aws` becomes `external` | read: gate beta, on from 1.22 |
//! | 1.23, 1.24 | added | only with `CSIMigrationAWS=false`, else removed | `aws` becomes `external` | read: `CSIMigrationAWS` on from 1.23 |
//! | 1.25, 1.26 | added | removed: EBS volumes are CSI's | `aws` becomes `external` | **run: 1.26**; 1.25 read: `CSIMigrationAWS` locked from 1.25 |
//! | 1.27, 1.28 | the in-tree AWS provider is gone | removed: an error | `aws` becomes `external` | read: provider removed in 1.27 |
//! | 1.29 to 1.32 | as above | removed | `--cloud-provider` removed: anything but `external` is an error, and that needs gates | read: API server checks the value from 1.29 |
//! | 1.33 and later | as above | removed | `--cloud-config` removed too: both are unknown flags | **run: 1.36**; others read: flags removed in 1.33 |
//!
//! Run means that the tests start these binaries of that version; read, that the fact is from the release's change log or
//! source. Read as well: the kubelet's `--cloud-config` removed in 1.34, and the names of a manager's controllers, which
//! differ from its default list from 1.28 on. Where an
//! object holds both components, the API server's part moves in Complete, so that the two never roll together.
//! A cloud-controller-manager without leader migration runs service, route and node lifecycle beside an in-tree
//! kube-controller-manager; ours with `--migration` needs no flag for that and is untouched.
//! With `spec.leaderMigration` Prepare sets `--leader-migration-config` too, where the file can be brought.
//! Kubermatic's control planes are never changed: Kubermatic writes their flags itself.

use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::{Component, Form},
    migration::Phase,
    version::KubernetesVersion,
};

mod csi_migration;
mod own_configuration;
mod starts;

pub use csi_migration::volumes_warning;
pub use own_configuration::OwnConfiguration;
pub use starts::{gates_warning, is_named_by_host, is_removed_gate};

/// The flags that the rules are about.
pub mod flag {
    use crate::command_line::Flag;

    /// Which cloud provider the component builds.
    pub const CLOUD_PROVIDER: Flag = Flag::text("cloud-provider");
    /// That provider's configuration file.
    pub const CLOUD_CONFIG: Flag = Flag::text("cloud-config");
    /// Lets an external kube-controller-manager keep the in-tree volume plugin.
    pub const EXTERNAL_CLOUD_VOLUME_PLUGIN: Flag = Flag::text("external-cloud-volume-plugin");
    /// Runs the cloud controllers under the migration lease.
    pub const ENABLE_LEADER_MIGRATION: Flag = Flag::boolean("enable-leader-migration");
    /// The leader migration configuration's file.
    pub const LEADER_MIGRATION_CONFIG: Flag = Flag::text("leader-migration-config");
    /// Our manager's own: the migration that it takes part in. It guards more than `--enable-leader-migration` does.
    pub const MIGRATION: Flag = Flag::text("migration");
    /// Whether the component competes for a lease at all; on by default.
    pub const LEADER_ELECT: Flag = Flag::boolean("leader-elect");
    /// Feature gates, `A=true,B=false`; repeated flags add up.
    pub const FEATURE_GATES: Flag = Flag::text("feature-gates");

    /// Those that a migration changes.
    pub(super) const ALL: [Flag; 5] = [
        CLOUD_PROVIDER,
        CLOUD_CONFIG,
        EXTERNAL_CLOUD_VOLUME_PLUGIN,
        ENABLE_LEADER_MIGRATION,
        LEADER_MIGRATION_CONFIG,
    ];
}

const AWS: &str = "aws";
const EXTERNAL: &str = "external";

/// What the rules depend on, besides the flags themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// The phase whose row applies.
    pub phase: Phase,
    /// The component's own version; none when nothing tells it.
    pub version: Option<KubernetesVersion>,
    /// The object holds the kube-controller-manager and the kube-apiserver.
    pub both_in_one_object: bool,
    /// The cluster is migrated with all old managers stopped, so leader migration is not needed.
    pub downtime: bool,
    /// Whether the migration has a leader migration configuration of its own, and how its file gets to the component.
    pub own_configuration: OwnConfiguration,
}

/// One change, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The flag gets this value; added if it is not there.
    Set(Flag, &'static str, &'static str),
    /// The flag goes.
    Remove(Flag, &'static str),
}

impl Change {
    /// Carries the change out.
    ///
    /// # Errors
    /// When the command line cannot be read.
    pub fn apply(&self, line: &mut CommandLine) -> Result<(), Unreadable> {
        match self {
            Self::Set(flag, value, _) => line.set(*flag, value),
            Self::Remove(flag, _) => line.remove(*flag),
        }
    }

    /// What to do, for somebody who does it by hand.
    fn in_words(&self) -> String {
        match self {
            Self::Set(flag, value, _) => format!("write --{}={value}", flag.name),
            Self::Remove(flag, _) => format!("remove --{}", flag.name),
        }
    }

    /// Which flag it is about.
    #[must_use]
    pub const fn flag(&self) -> Flag {
        match self {
            Self::Set(flag, ..) | Self::Remove(flag, _) => *flag,
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Set(_, _, reason) | Self::Remove(_, reason) => reason,
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set(flag, value, reason) => write!(formatter, "--{}={value}: {reason}", flag.name),
            Self::Remove(flag, reason) => write!(formatter, "--{} removed: {reason}", flag.name),
        }
    }
}

/// Why a component does not get its phase's flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The flags say too little.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A shell script is never rewritten: what a shell makes of it cannot be known.
    #[error("its flags are inside a shell script, which is never rewritten; it has {found}; {advice}")]
    Script {
        /// The flags of a migration that stand in the script.
        found: String,
        /// What to do.
        advice: String,
    },
    /// Every row depends on it.
    #[error("its Kubernetes version is not known from the image's tag; set spec.kubernetesVersion")]
    VersionUnknown,
    /// Outside of the table.
    #[error("version {0} is older than 1.20 and not supported; upgrade the component first")]
    TooOld(KubernetesVersion),
    /// Another cloud.
    #[error("--cloud-provider is {0:?}, not \"aws\"; this migration is for AWS, correct spec.targets")]
    ForeignProvider(String),
    /// The provider that the flag names is not in this version.
    #[error("--cloud-provider=aws is an error in {0}; 1.26 is the last version with the in-tree AWS provider")]
    ProviderGone(KubernetesVersion),
    /// 1.20 and below have no leader migration.
    #[error(
        "version {0} has no leader migration; set spec.downtime: true and stop every old manager first, or upgrade to 1.22"
    )]
    NoLeaderMigration(KubernetesVersion),
    /// The flag is unknown before 1.21, and a gate before 1.22.
    #[error("without --enable-leader-migration it runs beside the kube-controller-manager; {0}")]
    ManagerVersion(String),
    /// 1.21 has it as an alpha feature without a built-in list.
    #[error(
        "leader migration is alpha in 1.21: it needs a feature gate, and no list of it serves both managers; upgrade to 1.22 or set spec.downtime: true"
    )]
    NeedsGateAndFile,
    /// Asking for it with the gate off ends the process.
    #[error(
        "--feature-gates turns ControllerManagerLeaderMigration off, so --enable-leader-migration would be an error; remove that gate"
    )]
    GateOff,
    /// Without leader election, leader migration is ignored.
    #[error("--leader-elect=false makes leader migration void; remove it, or set spec.downtime: true")]
    LeaderElectionOff,
    /// An external kubelet has no provider, and the in-tree volume plugin mounts nothing without one.
    #[error(
        "an external kubelet of {0} cannot mount in-tree EBS volumes; install the EBS CSI driver and set --feature-gates=CSIMigrationAWS=true on it first"
    )]
    EbsNeedsProvider(KubernetesVersion),
    /// The built-in list would do without the file, but under another lease than the manager's.
    #[error("put spec.leaderMigration on its machines as a file; set --leader-migration-config")]
    OwnConfiguration,
}

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
        return in_script(component, &script, circumstances);
    }
    let wanted = match (component, circumstances.phase) {
        (_, Phase::InTree) | (Component::KubeApiserver | Component::Kubelet, Phase::Prepare) => Vec::new(),
        (Component::KubeControllerManager, Phase::Prepare) => prepare(original, circumstances)?,
        (Component::KubeControllerManager, Phase::Migrate | Phase::Complete) => external(original, circumstances)?,
        (Component::KubeApiserver, Phase::Migrate) if circumstances.both_in_one_object => Vec::new(),
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

/// Nothing is changed in a script; the refusal says what its owner has to write. The API server may do without any flag.
fn in_script(
    component: Component,
    script: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<Change>, Refusal> {
    let untouched = matches!(
        (component, circumstances.phase),
        (_, Phase::InTree)
            | (Component::KubeApiserver | Component::Kubelet, Phase::Prepare)
            | (Component::CloudControllerManager, Phase::Complete)
    );
    if untouched {
        return Ok(Vec::new());
    }
    let circumstances = &Circumstances {
        own_configuration: circumstances.own_configuration.where_nothing_is_changed(),
        ..*circumstances
    };
    let needed = changes(component, script, circumstances);
    if component == Component::KubeApiserver && needed.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let steps = |changes: Vec<Change>| changes.iter().map(Change::in_words).collect::<Vec<_>>().join(", ");
    let advice = match needed {
        Ok(changes) if changes.is_empty() => "nothing seems to be missing".to_owned(),
        Ok(changes) => format!("there, {}", steps(changes)),
        Err(refusal) => refusal.to_string(),
    };
    let found = flag::ALL.iter().flat_map(|flag| {
        let values = script.values(*flag).unwrap_or_default();
        values.into_iter().map(|value| format!("--{}={value}", flag.name))
    });
    let found = found.collect::<Vec<_>>();
    Err(Refusal::Script {
        found: if found.is_empty() {
            "none of the flags of a migration".to_owned()
        } else {
            found.join(", ")
        },
        advice,
    })
}

fn is_done(change: &Change, line: &CommandLine) -> Result<bool, Unreadable> {
    Ok(match change {
        Change::Set(flag, value, _) if *flag == flag::ENABLE_LEADER_MIGRATION => {
            line.boolean(*flag)? == Some(*value == "true")
        }
        Change::Set(flag, value, _) => line.value(*flag)?.as_deref() == Some(value),
        Change::Remove(flag, _) => line.value(*flag)?.is_none(),
    })
}

/// kube-controller-manager, phase Prepare.
fn prepare(line: &CommandLine, circumstances: &Circumstances) -> Result<Vec<Change>, Refusal> {
    if in_tree_provider(line)?.is_none() {
        return Ok(Vec::new());
    }
    let version = circumstances.version.ok_or(Refusal::VersionUnknown)?;
    if version < KubernetesVersion::v1(22) && circumstances.downtime {
        return Ok(Vec::new());
    }
    match version.minor {
        ..=20 => return Err(Refusal::NoLeaderMigration(version)),
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
    if version.minor <= 23 && beta_gate_is_off(line, "ControllerManagerLeaderMigration")? {
        return Err(Refusal::GateOff);
    }
    const WHY: &str = "the cloud controllers go under the migration lease";
    let mut changes = vec![Change::Set(flag::ENABLE_LEADER_MIGRATION, "true", WHY)];
    changes.extend(circumstances.own_configuration.file(line)?);
    Ok(changes)
}

/// kube-controller-manager, phases Migrate and Complete.
fn external(line: &CommandLine, circumstances: &Circumstances) -> Result<Vec<Change>, Refusal> {
    const IDLE: &str = "an external kube-controller-manager would hold the migration lease for nothing";
    in_tree_provider(line)?;
    let version = circumstances.version.ok_or(Refusal::VersionUnknown)?;
    if version < KubernetesVersion::v1(20) {
        return Err(Refusal::TooOld(version));
    }
    let mut changes = vec![
        Change::Set(
            flag::CLOUD_PROVIDER,
            EXTERNAL,
            "the cloud controllers run in the cloud-controller-manager",
        ),
        Change::Remove(flag::ENABLE_LEADER_MIGRATION, IDLE),
        Change::Remove(flag::LEADER_MIGRATION_CONFIG, IDLE),
    ];
    if needs_volume_plugin(line, version)? {
        const WHY: &str = "in-tree EBS volumes still need the provider in this version";
        changes.push(Change::Set(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN, AWS, WHY));
    } else {
        const WHY: &str = "EBS volumes are CSI's in this version";
        changes.push(Change::Remove(flag::EXTERNAL_CLOUD_VOLUME_PLUGIN, WHY));
        changes.push(Change::Remove(
            flag::CLOUD_CONFIG,
            "nothing in the process reads it any more",
        ));
    }
    Ok(changes)
}

/// The in-tree AWS provider, if the line names it.
fn in_tree_provider(line: &CommandLine) -> Result<Option<&'static str>, Refusal> {
    match line.value(flag::CLOUD_PROVIDER)?.as_deref() {
        None | Some("" | EXTERNAL) => Ok(None),
        Some(AWS) => Ok(Some(AWS)),
        Some(other) => Err(Refusal::ForeignProvider(other.to_owned())),
    }
}

/// CSI migration for EBS is off by default up to 1.22, can be off in 1.23 and 1.24, and is always on from 1.25.
fn needs_volume_plugin(line: &CommandLine, version: KubernetesVersion) -> Result<bool, Unreadable> {
    Ok(match version.minor {
        ..=22 => true,
        23 | 24 => beta_gate_is_off(line, "CSIMigrationAWS")?,
        _ => false,
    })
}

/// kube-apiserver, from Migrate on.
fn api_server(line: &CommandLine, version: Option<KubernetesVersion>) -> Result<Vec<Change>, Refusal> {
    let provider = line.value(flag::CLOUD_PROVIDER)?;
    if provider.is_none() && line.value(flag::CLOUD_CONFIG)?.is_none() {
        return Ok(Vec::new());
    }
    let version = version.ok_or(Refusal::VersionUnknown)?;
    const NO_EFFECT: &str = "the flag has no effect here, and its value follows the other components";
    const GONE: &str = "the flag is an error or unknown in this version";
    Ok(match (version.minor, provider.as_deref()) {
        (..=28, Some(AWS)) => vec![Change::Set(flag::CLOUD_PROVIDER, EXTERNAL, NO_EFFECT)],
        (..=28, _) => Vec::new(),
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
    in_tree_provider(line)?;
    csi_migration::check(line, version)?;
    Ok(vec![
        Change::Set(flag::CLOUD_PROVIDER, EXTERNAL, NODE),
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
            "true",
            "the cloud controllers would run beside those of the kube-controller-manager",
        )]),
    }
}

/// What the flags of a phase cannot put right, for a warning.
///
/// From 1.28 on a cloud-controller-manager calls its controllers otherwise than its own default list does, so service
/// and route stay outside of the migration lease.
///
/// # Errors
/// When the command line cannot be read.
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

/// A feature gate's setting on the command line; the last one counts. None if it is not set there.
fn feature_gate(line: &CommandLine, gate: &str) -> Result<Option<bool>, Unreadable> {
    let values = line.values(flag::FEATURE_GATES)?;
    let settings = values.iter().flat_map(|value| value.split(','));
    let mut ours = settings
        .filter_map(|setting| setting.split_once('='))
        .filter(|(name, _)| name.trim() == gate);
    Ok(ours
        .next_back()
        .and_then(|(_, value)| crate::command_line::read_boolean(value.trim())))
}

/// Whether a gate that is beta and on by default is turned off, by its own name or with all others by `AllBeta=false`.
fn beta_gate_is_off(line: &CommandLine, gate: &str) -> Result<bool, Unreadable> {
    let own = feature_gate(line, gate)?;
    let setting = if own.is_some() {
        own
    } else {
        feature_gate(line, "AllBeta")?
    };
    Ok(setting == Some(false))
}

/// The row whose flags a kube-controller-manager gets. In Migrate and Complete an in-tree one becomes external only on
/// evidence (`prepared`) or with `downtime`; until then it gets the row of Prepare, so that a hasty change of phase
/// cannot skip the evidence. One that cannot be read may be in-tree, so its owner is told the same. One that is external already (`stays_external`) is never turned back by a lack of evidence.
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
