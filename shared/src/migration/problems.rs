//! What the schema cannot refuse: settings that are legal but do not do what they seem to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

use super::{CloudProviderMigrationSpec, Target};
use crate::version::{KubernetesVersion, NotAVersion};

/// A setting that needs the operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No ID, no tags.
    #[error("spec.clusterID is empty; set it to the ID in the tag kubernetes.io/cluster/ID")]
    ClusterIdEmpty,
    /// The field is there so that the resource need not change when the feature comes.
    #[error("spec.leaderMigration is not built yet; remove it, the built-in configuration is used by 1.22 to 1.26")]
    LeaderMigrationNotBuilt,
    /// The version serves objects that do not tell their own.
    #[error("spec.kubernetesVersion: {0}")]
    Version(#[from] NotAVersion),
    /// A profile whose objects of many clusters are on one API server.
    #[error(
        "spec.targets[{index}].{field} is empty and matches nothing with profile {profile}; name labels or leave it out"
    )]
    EmptySelector {
        /// Position in `spec.targets`.
        index: usize,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// The profile.
        profile: String,
    },
    /// Neither selector on such a profile.
    #[error(
        "spec.targets[{index}] has no selector and matches nothing with profile {profile}; set namespaceSelector or objectSelector"
    )]
    NoSelector {
        /// Position in `spec.targets`.
        index: usize,
        /// The profile.
        profile: String,
    },
    /// An operator that label selectors do not have, or one without the values it needs.
    #[error("spec.targets[{index}].{field} is invalid: {cause}; it matches nothing until it is corrected")]
    InvalidSelector {
        /// Position in `spec.targets`.
        index: usize,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// What is wrong.
        cause: String,
    },
}

impl CloudProviderMigrationSpec {
    /// Everything that needs the operator's attention, in the order of the fields; empty when all is well.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.cluster_id.is_empty() {
            problems.push(Problem::ClusterIdEmpty);
        }
        if let Some(Err(error)) = self
            .kubernetes_version
            .as_ref()
            .map(|text| text.parse::<KubernetesVersion>())
        {
            problems.push(error.into());
        }
        if self.leader_migration.is_some() {
            problems.push(Problem::LeaderMigrationNotBuilt);
        }
        for (index, target) in self.targets.iter().enumerate() {
            target_problems(index, target, &mut problems);
        }
        problems
    }
}

fn target_problems(index: usize, target: &Target, problems: &mut Vec<Problem>) {
    let profile = format!("{:?}", target.profile);
    let selectors = [
        ("namespaceSelector", &target.namespace_selector),
        ("objectSelector", &target.object_selector),
    ];
    if target.profile.needs_selector() && selectors.iter().all(|(_, selector)| selector.is_none()) {
        problems.push(Problem::NoSelector {
            index,
            profile: profile.clone(),
        });
    }
    for (field, selector) in selectors {
        let Some(selector) = selector else { continue };
        if target.profile.needs_selector() && is_empty(selector) {
            problems.push(Problem::EmptySelector {
                index,
                field,
                profile: profile.clone(),
            });
        }
        if let Err(error) = Selector::try_from(selector.clone()) {
            problems.push(Problem::InvalidSelector {
                index,
                field,
                cause: error.to_string(),
            });
        }
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}
