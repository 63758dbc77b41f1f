//! The input of a plan.

use super::super::super::model::network::Observed;
use super::super::super::spec::network::desired::Desired;
use super::super::input;

pub type PlanInput<'a> = input::PlanInput<'a, &'a Desired, &'a Observed>;

pub type TargetsInput<'a> = input::TargetsInput<'a, &'a Observed>;
