//! EC2 actions that the policies of the manager's role do not allow.

use std::collections::HashMap;
use std::time::Duration;

use outrigger_aws::Error;
use tokio::time::Instant;

use super::failures;
use crate::event_dedup::EventDedup;

/// Replaced by two other actions while it is denied.
pub(super) const REPLACE: &str = "ReplaceRoute";

/// How long a denial of [`REPLACE`] is remembered. Any other denied action is retried in the next pass.
pub(super) const REPLACE_AGAIN: Duration = Duration::from_secs(1800);

/// Denied actions, by resource: a policy may allow an action for one resource and deny it for another.
#[derive(Debug, Default)]
pub(super) struct Denials {
    by_call: HashMap<(&'static str, String), (Error, Instant)>,
    events: EventDedup,
}

impl Denials {
    /// Forgets the denials of actions that this pass retries.
    pub(super) fn begin_pass(&mut self, now: Instant) {
        self.by_call
            .retain(|(action, _), (_, at)| *action == REPLACE && now.duration_since(*at) < REPLACE_AGAIN);
    }

    /// AWS's answer, if the action is denied for the resource.
    pub(super) fn get(&self, action: &'static str, resource: &str) -> Option<Error> {
        self.by_call
            .get(&(action, resource.to_owned()))
            .map(|(error, _)| error.clone())
    }

    /// Records a denial. Returns the message of its Event, one per action, repeated as by [`EventDedup`].
    pub(super) fn add(&mut self, action: &'static str, resource: &str, error: &Error, now: Instant) -> Option<String> {
        self.by_call.insert((action, resource.to_owned()), (error.clone(), now));

        let explained = failures::explain(error, resource);
        let message = if action == REPLACE {
            format!(
                "{explained}. Until then a route is deleted and created again, and its Node cannot be reached in between"
            )
        } else {
            explained
        };

        self.events.is_new(action, "", now).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(action: &'static str) -> Error {
        Error::answered(action, "UnauthorizedOperation", "no")
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_holds_for_its_action_and_resource_until_the_next_pass() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        denials.add("CreateRoute", "rtb-1", &denied("CreateRoute"), now);
        assert!(denials.get("CreateRoute", "rtb-1").is_some());
        assert!(denials.get("CreateRoute", "rtb-2").is_none());
        assert!(denials.get("DeleteRoute", "rtb-1").is_none());
        denials.begin_pass(now);
        assert!(denials.get("CreateRoute", "rtb-1").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_replace_is_remembered_for_half_an_hour() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        denials.add(REPLACE, "rtb-1", &denied(REPLACE), now);
        denials.begin_pass(now + REPLACE_AGAIN / 2);
        assert!(denials.get(REPLACE, "rtb-1").is_some());
        denials.begin_pass(now + REPLACE_AGAIN);
        assert!(denials.get(REPLACE, "rtb-1").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_action_is_reported_once_and_named() {
        let (mut denials, now) = (Denials::default(), Instant::now());
        let first = denials.add("CreateRoute", "rtb-1", &denied("CreateRoute"), now);
        assert!(first.is_some_and(|message| message.contains("ec2:CreateRoute")));
        assert_eq!(denials.add("CreateRoute", "rtb-2", &denied("CreateRoute"), now), None);
        assert!(
            denials
                .add("DeleteRoute", "rtb-1", &denied("DeleteRoute"), now)
                .is_some()
        );
    }
}
