//! The input of a plan for either kind of load balancer.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;

use super::super::model::{classic, network};
use super::super::settings::Settings;
use super::super::spec::classic::desired::Desired as ClassicDesired;
use super::super::spec::network::desired::Desired as NetworkDesired;
use super::targets::Candidate;

/// The input of a plan. `D` is the desired state and `O` the observed one, each a reference. A plan for targets only has
/// `()` as desired state.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a, D, O> {
    pub desired: D,
    pub settings: &'a Settings,
    pub observed: O,
    pub candidates: &'a [Candidate],
    /// Targets with a confirmed loss.
    pub seen_gone: &'a BTreeSet<InstanceId>,
}

pub type ClassicInput<'a, D = &'a ClassicDesired> = PlanInput<'a, D, &'a classic::Observed>;

pub type NetworkInput<'a, D = &'a NetworkDesired> = PlanInput<'a, D, &'a network::Observed>;
