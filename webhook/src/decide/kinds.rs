//! **The table of the kinds that have rules.** It dispatches reviews, selects the kinds of the background check, bounds
//! the labels of metrics, and is compared with the registration in the manifests.
//!
//! The rows of each family are in its own file.

use super::{
    Input, Kind, cluster_api, helm_chart, kamaji, kubeadm_config, kubermatic, machine, node, pod, rancher_rke1,
    rancher_rke2, tags, workload,
};

const FAMILIES: [&[Kind]; 15] = [
    workload::KINDS,
    pod::KINDS,
    node::KINDS,
    helm_chart::KINDS,
    kamaji::KINDS,
    cluster_api::KUBEADM,
    cluster_api::RKE2,
    cluster_api::CLASS,
    kubeadm_config::KINDS,
    tags::KINDS,
    tags::DRIVERS,
    // After the rows of tags, which handle Machines on AWS.
    machine::KINDS,
    rancher_rke2::KINDS,
    rancher_rke1::KINDS,
    kubermatic::KINDS,
];

/// Every row. A kind may have several, for different profiles.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    FAMILIES.iter().copied().flatten()
}

/// The rows that may be about the object of a review.
pub(super) fn concerned<'a>(input: &'a Input<'_>) -> impl Iterator<Item = &'static Kind> + 'a {
    kinds().filter(|row| row.group == input.group && row.kind == input.kind && (row.is_concerned)(input))
}
