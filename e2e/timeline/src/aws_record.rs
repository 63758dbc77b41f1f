//! From the proxy's record to the timeline's record.

use jiff::SignedDuration;
use outrigger_aws_sim::Call;

use super::input::AwsCall;

impl From<&Call> for AwsCall {
    fn from(call: &Call) -> Self {
        let outcome = call.outcome.as_ref();
        // A caller that got no answer does not know, but AWS has done what was forwarded to it.
        let unanswered = if outcome.is_some_and(|outcome| outcome.forwarded) {
            200
        } else {
            0
        };

        Self {
            at: call.at,
            caller: call.caller.clone(),
            service: call.service.scope().to_owned(),
            action: call.action.clone(),
            preflight: call.preflight,
            is_write: call.is_write(),
            parameters: call
                .parameters
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            done: outcome
                .and_then(|outcome| SignedDuration::try_from(outcome.duration).ok())
                .and_then(|duration| call.at.checked_add(duration).ok())
                .unwrap_or(call.at),
            status: outcome.and_then(|outcome| outcome.status).unwrap_or(unanswered),
        }
    }
}
