//! `spec.leaderMigration`: a leader migration configuration of the migration's own. It is a file, and it may give node
//! IPAM to the cloud-controller-manager.
//!
//! An external kube-controller-manager runs node IPAM all the same, so from Migrate on `--controllers` has to leave it out:
//! <https://kubernetes.io/docs/tasks/administer-cluster/controller-manager-leader-migration/#special-case-migrating-the-node-ipam-controller>.
//! The flag's values add up, and of the items about one controller the first counts:
//! <https://github.com/kubernetes/kubernetes/blob/v1.26.13/staging/src/k8s.io/controller-manager/app/helper.go>.

use super::{Change, Refusal, flag};
use crate::{
    command_line::CommandLine,
    controller::{Controller, Party},
    leader_migration::{self, Placement},
    migration::CloudProviderMigrationSpec,
};

/// Whether the migration has one, and how the file gets to the component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnConfiguration {
    /// There is none: the component's built-in list is right from 1.22 to 1.27.
    #[default]
    None,
    /// The author of the change also adds the file at [`leader_migration::FILE`].
    Brought,
    /// The object cannot contain a file, so its owner provides one and names it on the command line.
    ByHand,
}

impl OwnConfiguration {
    /// For an object that cannot contain a file.
    #[must_use]
    pub fn by_hand(spec: &CloudProviderMigrationSpec) -> Self {
        spec.leader_migration.as_ref().map_or(Self::None, |_| Self::ByHand)
    }

    /// For a Pod or Pod template, which brings it.
    #[must_use]
    pub fn brought(spec: &CloudProviderMigrationSpec) -> Self {
        spec.leader_migration.as_ref().map_or(Self::None, |_| Self::Brought)
    }

    /// No file is brought where its flag cannot be written.
    pub(super) const fn where_nothing_is_changed(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Brought | Self::ByHand => Self::ByHand,
        }
    }

    /// The flag that names the file. The content of a file of the owner is unknown, and two managers with different
    /// configurations do not exclude each other; so the migration's file applies, unless the owner must bring it.
    pub(super) fn file(self, line: &CommandLine) -> Result<Option<Change>, Refusal> {
        const BROUGHT: &str = "the file has the content of spec.leaderMigration, and the Pod template mounts it";
        const REPLACED: &str = "the file has the content of spec.leaderMigration; it replaces the owner's file, whose content is not known";

        let owners = line.value(flag::LEADER_MIGRATION_CONFIG)?;
        let set = |why| {
            Some(Change::Set(
                flag::LEADER_MIGRATION_CONFIG,
                leader_migration::FILE.into(),
                why,
            ))
        };

        match (self, owners.filter(|path| !path.is_empty())) {
            (Self::None, _) | (Self::ByHand, Some(_)) => Ok(None),
            (Self::ByHand, None) => Err(Refusal::OwnConfiguration),
            (Self::Brought, None) => Ok(set(BROUGHT)),
            (Self::Brought, Some(_)) => Ok(set(REPLACED)),
        }
    }
}

/// Which manager runs node IPAM from Migrate on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeIpam {
    /// The kube-controller-manager, as before: the list does not name it for the other.
    #[default]
    Stays,
    Moves {
        /// The controllers that a kube-controller-manager of this object runs without `--controllers`; none if unknown.
        default_controllers: Option<&'static str>,
    },
}

/// The name up to 1.27, and an alias of `node-ipam-controller` from 1.28 on.
const WITHOUT: &str = "-nodeipam";

impl NodeIpam {
    #[must_use]
    pub fn of(spec: &CloudProviderMigrationSpec, default_controllers: Option<&'static str>) -> Self {
        let placement = spec
            .leader_migration
            .as_ref()
            .map(|config| config.placement(Controller::NodeIpam, Party::CloudControllerManager));
        if placement == Some(Placement::Migrated) {
            Self::Moves { default_controllers }
        } else {
            Self::Stays
        }
    }

    /// The change that takes node IPAM out of a kube-controller-manager; none where it does not run it.
    pub(super) fn change(self, line: &CommandLine) -> Result<Option<Change>, Refusal> {
        const WHY: &str = "spec.leaderMigration gives node IPAM to the cloud-controller-manager";

        let Self::Moves { default_controllers } = self else {
            return Ok(None);
        };

        let values = line.values(flag::CONTROLLERS)?;
        let Some((last, before)) = values.split_last() else {
            const UNKNOWN: &str =
                "the controllers that it runs are not specified here: set its --controllers, with -nodeipam";
            let all = default_controllers.ok_or(Refusal::NodeIpam(UNKNOWN))?;
            let value = format!("{all},{WITHOUT}");
            return Ok(Some(Change::Set(flag::CONTROLLERS, value.into(), WHY)));
        };
        if !runs(&values) {
            return Ok(None);
        }
        if before.iter().any(|value| value.split(',').any(is_node_ipam)) {
            return Err(Refusal::NodeIpam(
                "its --controllers is set several times: keep one, with -nodeipam",
            ));
        }

        let kept = last.split(',').filter(|item| !item.is_empty() && !is_node_ipam(item));
        let items: Vec<&str> = kept.chain([WITHOUT]).collect();
        Ok(Some(Change::Set(flag::CONTROLLERS, items.join(",").into(), WHY)))
    }
}

/// Whether a kube-controller-manager with this command line allocates Pod CIDRs, with any `--cloud-provider`: it needs
/// `--allocate-node-cidrs`, and `--controllers` must not leave the controller out. On AWS `--cidr-allocator-type` has one
/// value with which it starts. An unreadable flag counts as the default.
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/cmd/kube-controller-manager/app/core.go>)
#[must_use]
pub fn runs_node_ipam(line: &CommandLine) -> bool {
    let allocates = line.boolean(flag::ALLOCATE_NODE_CIDRS).ok().flatten() == Some(true);
    let values = line.values(flag::CONTROLLERS).unwrap_or_default();
    allocates && (values.is_empty() || runs(&values))
}

fn runs(values: &[String]) -> bool {
    let mut items = values.iter().flat_map(|value| value.split(','));
    let own = items
        .clone()
        .find(|item| is_node_ipam(item.strip_prefix('-').unwrap_or(item)));
    own.map_or_else(|| items.any(|item| item == "*"), is_node_ipam)
}

fn is_node_ipam(item: &str) -> bool {
    Controller::parse(item) == Some(Controller::NodeIpam)
}
