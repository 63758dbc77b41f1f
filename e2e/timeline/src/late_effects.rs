//! AWS writes that were carried out when the next process already owned the controller.

use std::time::Duration;

use super::attribute;
use super::input::{AwsCall, Inputs};
use super::overlap::since;
use super::rules::Rules;
use super::tenure::Tenure;

/// An AWS write that was sent before, and carried out after another process acquired the lease of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateEffect {
    pub call: AwsCall,
    /// From the acquisition to the effect.
    pub after: Duration,
}

/// The late effects of every process, of either side. AWS carries out what it has received, whether or not the sender
/// still runs.
pub(super) fn late_effects(inputs: &Inputs, tenures: &[Tenure], rules: &Rules) -> Vec<LateEffect> {
    let writes = inputs.aws_calls.iter().filter(|call| {
        call.is_write && call.succeeded() && !call.is_dry_run() && call.at <= inputs.until && call.at < call.done
    });
    let late = writes.filter_map(|call| {
        let process = inputs.processes.iter().find(|process| process.process == call.caller)?;
        let lease = rules.governing(attribute::of_aws_call(call)?, process)?;
        let by_other = |tenure: &&Tenure| {
            tenure.lease == lease
                && !tenure.actor.names.contains(&call.caller)
                && call.at < tenure.from
                && tenure.from < call.done
        };
        let next = tenures.iter().filter(by_other).map(|tenure| tenure.from).min()?;
        Some(LateEffect {
            call: call.clone(),
            after: since(next, call.done),
        })
    });
    late.collect()
}
