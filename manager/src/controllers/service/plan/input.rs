//! What a plan is made from, for either kind of load balancer.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;

use super::super::settings::Settings;
use super::targets::Candidate;

/// What the plan for a Service that wants a load balancer is made from. `D` is what it asks for and `O` what AWS has,
/// each a reference.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a, D, O> {
    /// What the Service asks for.
    pub desired: D,
    /// What holds for all Services.
    pub settings: &'a Settings,
    /// What AWS has.
    pub observed: O,
    /// The Nodes that may be targets.
    pub candidates: &'a [Candidate],
    /// Targets that an earlier look found gone.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

/// What changes of targets are made from, whatever the Service asks for.
#[derive(Debug, Clone, Copy)]
pub struct TargetsInput<'a, O> {
    /// What holds for all Services.
    pub settings: &'a Settings,
    /// What AWS has.
    pub observed: O,
    /// The Nodes that may be targets.
    pub candidates: &'a [Candidate],
    /// Targets that an earlier look found gone.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

impl<'a, D, O> PlanInput<'a, D, O> {
    /// The same without what is asked for.
    pub(crate) fn targets_input(self) -> TargetsInput<'a, O> {
        TargetsInput {
            settings: self.settings,
            observed: self.observed,
            candidates: self.candidates,
            seen_gone: self.seen_gone,
        }
    }
}
