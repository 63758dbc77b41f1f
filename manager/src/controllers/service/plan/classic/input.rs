//! The input of a plan.

use super::super::super::model::classic::Observed;
use super::super::super::spec::classic::desired::Desired;
use super::super::input;

pub type PlanInput<'a> = input::PlanInput<'a, &'a Desired, &'a Observed>;

pub type TargetsInput<'a> = input::TargetsInput<'a, &'a Observed>;
