//! **The table of the kinds that have rules.** It dispatches reviews, selects the kinds of the background check, bounds
//! the labels of metrics, and is compared with the registration in the manifests.
//!
//! The rows of each family are in its own file.

use std::sync::LazyLock;

use outrigger_shared::migration::Profile;

use super::{
    Input, Kind, cluster_api, helm_chart, kamaji, kubeadm_config, kubermatic, node, rancher_rke1, rancher_rke2, tags,
    workload,
};

static ROWS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    [
        workload::KINDS,
        workload::POD,
        node::KINDS,
        helm_chart::KINDS,
        kamaji::KINDS,
        cluster_api::KUBEADM,
        cluster_api::RKE2,
        cluster_api::CLASS,
        kubeadm_config::KINDS,
        &tags::kinds(),
        tags::DRIVERS,
        // After the rows of tags, which handle Machines on AWS.
        kubermatic::MACHINES,
        rancher_rke2::KINDS,
        rancher_rke1::KINDS,
        kubermatic::KINDS,
    ]
    .concat()
});

/// Every row. A kind may have several, for different profiles.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    ROWS.iter()
}

/// The rows that may be about the object of a review.
pub(super) fn concerned<'a>(input: &'a Input<'_>) -> impl Iterator<Item = &'static Kind> + 'a {
    kinds().filter(|row| row.group == input.group && row.kind == input.kind && (row.is_concerned)(input))
}

/// Whether the webhook checks stored objects of the kind. ConfigMaps are not checked: to find one, the check would have to read
/// all of them.
#[must_use]
pub fn is_checked(kind: &Kind) -> bool {
    let is_node = kind.profiles.contains(&Profile::Nodes);
    // An update of this kind only restores what its creation added.
    let is_fixed = kind.kind == "KubeadmControlPlaneTemplate";
    let is_changed = kind.on_update && !is_fixed && !tags::only_warns_on_update(kind);
    !is_node && kind.kind != "ConfigMap" && (is_changed || kind.kind == "Pod")
}
