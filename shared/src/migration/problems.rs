//! Problems that the schema cannot refuse: valid settings with another effect than expected.

use kube::core::Selector;

use super::{Attestation, CloudProviderMigrationSpec, Phase, Profile, Target, selection::is_empty};
use crate::{
    controller::Controller,
    leader_migration::Warning,
    version::{KubernetesVersion, NotAVersion},
};

/// The name of the cloud-controller-manager's main lease, unless a flag changes it.
const NEW_MAIN_LEASE: &str = "cloud-controller-manager";

/// A setting that needs the operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("spec.clusterID is empty; set it to the ID in the tag kubernetes.io/cluster/ID")]
    ClusterIdEmpty,
    /// A phase in which nothing is attested.
    #[error("spec.attestation.phase {0} is not possible; set Prepare, or Migrate, which also counts in phase Complete")]
    AttestedPhase(Phase),
    #[error("spec.attestation.holders has {0} entries; name at most {max}, or leave it out to name every holder", max = Attestation::MAX_HOLDERS)]
    AttestedHolders(usize),
    #[error(
        "spec.attestation.holders[{index}] {holder:?} has {length} characters; name the identity of a holder (HOSTNAME_UUID) or its host name with 1 to {max}",
        length = holder.chars().count(),
        max = Attestation::MAX_HOLDER
    )]
    AttestedHolder { index: usize, holder: String },
    /// A text that no Lease can be called.
    #[error(
        "spec.leaderMigration.leaderName {0:?} is not a valid Lease name; use lowercase letters, digits, - and . (at most 253 characters)"
    )]
    LeaderName(String),
    /// One Lease for two purposes: a manager would always hold or lose both.
    #[error("spec.leaderMigration.leaderName {0:?} is the main lease of a manager; name a Lease of its own")]
    LeaderNameTaken(String),
    /// A text that no Lease can be called.
    #[error(
        "spec.kubeControllerManagerLease {0:?} is not a valid Lease name; use lowercase letters, digits, - and . (at most 253 characters)"
    )]
    MainLease(String),
    /// Our own main lease is no evidence about the kube-controller-manager.
    #[error(
        "spec.kubeControllerManagerLease {0:?} is the cloud-controller-manager's main lease; name the kube-controller-manager's"
    )]
    MainLeaseTaken(String),
    /// An entry that does less than it seems to.
    #[error("spec.leaderMigration.{0}")]
    LeaderMigration(Warning),
    /// One list serves both managers, so a controller for one of them has no owner while it is the other's turn.
    #[error(
        "spec.leaderMigration.controllerLeaders[{index}].component {component:?} leaves {controller} without an owner {when}; write \"*\""
    )]
    OneSided {
        index: usize,
        component: &'static str,
        controller: Controller,
        when: &'static str,
    },
    /// The version serves objects that do not tell their own.
    #[error("spec.kubernetesVersion: {0}")]
    Version(#[from] NotAVersion),
    /// A profile whose objects of many clusters are on one API server.
    #[error(
        "spec.targets[{index}].{field} is empty and matches nothing with profile {profile}; name labels or leave it out"
    )]
    EmptySelector {
        index: usize,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        profile: String,
    },
    #[error(
        "spec.targets[{index}] has no selector and matches nothing with profile {profile}; set namespaceSelector or objectSelector"
    )]
    NoSelector { index: usize, profile: String },
    /// The Nodes of the API server that holds a hosted control plane are another cluster's.
    #[error(
        "spec.targets[{nodes}] of profile Nodes selects no Node of this API server, as spec.targets[{hosted}] of profile {profile} \
         selects a control plane that is hosted here; Nodes get the taint where the tenant's API server calls /mutate/NAME"
    )]
    NodesElsewhere {
        nodes: usize,
        hosted: usize,
        profile: String,
    },
    /// An operator that label selectors do not have, or one without the values it needs.
    #[error("spec.targets[{index}].{field} is invalid: {cause}; it matches nothing until it is corrected")]
    InvalidSelector {
        index: usize,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
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

        problems.extend(self.attestation.iter().flat_map(attestation_problems));
        let version = self.kubernetes_version.as_deref().map(str::parse::<KubernetesVersion>);
        problems.extend(version.and_then(Result::err).map(Problem::from));
        problems.extend(self.main_lease_problem());
        problems.extend(self.leader_name_problem());
        problems.extend(self.controller_leaders_problems());
        for (index, target) in self.targets.iter().enumerate() {
            target_problems(index, target, &mut problems);
        }

        problems.extend(self.nodes_problem());

        problems
    }

    /// A target of Nodes beside one of a hosted control plane.
    fn nodes_problem(&self) -> Option<Problem> {
        let mut targets = self.targets.iter();
        let nodes = targets.position(|target| target.profile == Profile::Nodes)?;
        let hosted = self.targets.iter().position(Target::hosts_a_control_plane)?;
        let profile = format!("{:?}", self.targets.get(hosted)?.profile);
        Some(Problem::NodesElsewhere { nodes, hosted, profile })
    }

    fn main_lease_problem(&self) -> Option<Problem> {
        let name = &self.kube_controller_manager_lease;
        match name.as_str() {
            NEW_MAIN_LEASE => Some(Problem::MainLeaseTaken(name.clone())),
            _ => (!is_lease_name(name)).then(|| Problem::MainLease(name.clone())),
        }
    }

    /// Why `spec.leaderMigration.leaderName` cannot be used; with such a name no file is written.
    #[must_use]
    pub fn leader_name_problem(&self) -> Option<Problem> {
        let name = &self.leader_migration.as_ref()?.leader_name;
        if !is_lease_name(name) {
            return Some(Problem::LeaderName(name.clone()));
        }

        let main = [self.kube_controller_manager_lease.as_str(), NEW_MAIN_LEASE];
        main.contains(&name.as_str())
            .then(|| Problem::LeaderNameTaken(name.clone()))
    }

    /// Entries of `spec.leaderMigration` that do not do what they seem to. One that is missing is none: the files have
    /// it.
    #[must_use]
    pub fn controller_leaders_problems(&self) -> Vec<Problem> {
        let Some(config) = &self.leader_migration else {
            return Vec::new();
        };

        let warnings = config.warnings().into_iter();
        let mut problems: Vec<Problem> = warnings
            .filter(|warning| !matches!(warning, Warning::Omitted { .. }))
            .map(Problem::LeaderMigration)
            .collect();
        for (index, entry) in config.controller_leaders.iter().enumerate() {
            let controller = Controller::parse(&entry.name).filter(|one| Controller::SHARED.contains(one));
            let (component, when) = match entry.component.as_str() {
                "kube-controller-manager" => ("kube-controller-manager", "from phase Migrate on"),
                "cloud-controller-manager" => ("cloud-controller-manager", "in phase Prepare"),
                _ => continue,
            };

            problems.extend(controller.map(|controller| Problem::OneSided {
                index,
                component,
                controller,
                when,
            }));
        }

        problems
    }
}

/// A DNS subdomain (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>).
fn is_lease_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let ends_well = |end: Option<u8>| end.is_some_and(|byte| byte != b'-');
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        ends_well(word.bytes().next()) && ends_well(word.bytes().last()) && word.bytes().all(is_plain)
    };
    name.len() <= 253 && name.split('.').all(is_word)
}

/// The schema refuses these, too. A file of `outrigger mutate` is not compared with it.
fn attestation_problems(attestation: &Attestation) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !Attestation::PHASES.contains(&attestation.phase) {
        problems.push(Problem::AttestedPhase(attestation.phase));
    }
    if attestation.holders.len() > Attestation::MAX_HOLDERS {
        problems.push(Problem::AttestedHolders(attestation.holders.len()));
    }

    let holders = attestation.holders.iter().enumerate();
    let bad = holders.filter(|(_, holder)| holder.is_empty() || holder.chars().count() > Attestation::MAX_HOLDER);
    problems.extend(bad.map(|(index, holder)| Problem::AttestedHolder {
        index,
        holder: holder.clone(),
    }));

    problems
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
