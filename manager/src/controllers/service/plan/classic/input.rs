//! What a plan is made from.

use super::super::super::model::classic::Observed;
use super::super::super::spec::classic::desired::Desired;
use super::super::input;

/// What a plan is made from.
pub type PlanInput<'a> = input::PlanInput<'a, &'a Desired, &'a Observed>;

/// What changes of targets are made from.
pub type TargetsInput<'a> = input::TargetsInput<'a, &'a Observed>;
