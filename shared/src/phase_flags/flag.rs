//! The flags that the rules are about.

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
/// Which controllers run; repeated flags add up, and of the items about one controller the first counts.
pub const CONTROLLERS: Flag = Flag::text("controllers");
/// Whether node IPAM runs; off by default.
pub const ALLOCATE_NODE_CIDRS: Flag = Flag::boolean("allocate-node-cidrs");
/// Whether the route controller runs; on by default, in a kube-controller-manager only with `--allocate-node-cidrs`.
pub const CONFIGURE_CLOUD_ROUTES: Flag = Flag::boolean("configure-cloud-routes");

/// The flags that a migration changes.
pub(crate) const ALL: [Flag; 6] = [
    CLOUD_PROVIDER,
    CLOUD_CONFIG,
    EXTERNAL_CLOUD_VOLUME_PLUGIN,
    ENABLE_LEADER_MIGRATION,
    LEADER_MIGRATION_CONFIG,
    CONTROLLERS,
];

/// The value of `--cloud-provider` for the in-tree AWS provider.
pub(super) const AWS: &str = "aws";
/// The value of `--cloud-provider` for an external cloud-controller-manager.
pub(super) const EXTERNAL: &str = "external";
