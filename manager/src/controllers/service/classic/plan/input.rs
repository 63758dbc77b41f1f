//! What a plan is made from.

use super::super::super::question;
use super::super::desired::Desired;
use super::super::model::Observed;

/// What a plan is made from.
pub type Question<'a> = question::Question<'a, &'a Desired, &'a Observed>;

/// What changes of targets are made from.
pub type Following<'a> = question::Following<'a, &'a Observed>;
