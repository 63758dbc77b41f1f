//! The input of a plan for either kind of load balancer.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;

use super::super::settings::Settings;
use super::targets::Candidate;

/// The input of a plan. `D` is the desired state and `O` the observed one, each a reference.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a, D, O> {
    pub desired: D,
    pub settings: &'a Settings,
    pub observed: O,
    pub candidates: &'a [Candidate],
    /// Targets with a confirmed loss.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

/// The input of a plan for targets only.
#[derive(Debug, Clone, Copy)]
pub struct TargetsInput<'a, O> {
    pub settings: &'a Settings,
    pub observed: O,
    pub candidates: &'a [Candidate],
    /// Targets with a confirmed loss.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

impl<'a, D, O> PlanInput<'a, D, O> {
    pub(crate) fn targets_input(self) -> TargetsInput<'a, O> {
        TargetsInput {
            settings: self.settings,
            observed: self.observed,
            candidates: self.candidates,
            seen_gone: self.seen_gone,
        }
    }
}
