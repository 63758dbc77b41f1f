//! Node IPAM, where `spec.leaderMigration` gives it to the cloud-controller-manager.
//!
//! An external kube-controller-manager runs it all the same, so from Migrate on `--controllers` has to leave it out:
//! <https://kubernetes.io/docs/tasks/administer-cluster/controller-manager-leader-migration/#special-case-migrating-the-node-ipam-controller>.
//! The flag's values add up, and of the items about one controller the first counts:
//! <https://github.com/kubernetes/kubernetes/blob/v1.26.13/staging/src/k8s.io/controller-manager/app/helper.go>.

use super::{Change, Refusal, flag};
use crate::{
    command_line::CommandLine,
    controller::{Controller, Party},
    leader_migration::Placement,
    migration::CloudProviderMigrationSpec,
};

/// Which manager runs node IPAM from Migrate on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeIpam {
    /// The kube-controller-manager, as before: the list does not name it for the other.
    #[default]
    Stays,
    /// The cloud-controller-manager.
    Moves {
        /// The controllers that a kube-controller-manager of this object runs without `--controllers`; none if unknown.
        default_controllers: Option<&'static str>,
    },
}

/// The name up to 1.27, and an alias of `node-ipam-controller` from 1.28 on.
const WITHOUT: &str = "-nodeipam";

impl NodeIpam {
    /// As the migration's list has it.
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
                "which controllers it runs is not written here: set its --controllers, with -nodeipam";
            let all = default_controllers.ok_or(Refusal::NodeIpam(UNKNOWN))?;
            let value = format!("{all},{WITHOUT}");
            return Ok(Some(Change::Set(flag::CONTROLLERS, value.into(), WHY)));
        };
        if !runs(&values) {
            return Ok(None);
        }
        if before.iter().any(|value| value.split(',').any(is_node_ipam)) {
            return Err(Refusal::NodeIpam(
                "its --controllers is written several times: make it one, with -nodeipam",
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

/// Whether node IPAM is among the controllers.
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
