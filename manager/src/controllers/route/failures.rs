//! Reports of failures: an Event on the Node when its failure is new or changes, and one log line per reason and pass,
//! for any number of Nodes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use outrigger_aws::{Error, InstanceId, Kind};
use outrigger_shared::tags;
use tokio::time::Instant;

use crate::aws_errors;
use crate::events::EventDedup;

/// The failures of a pass by cause, each with how often and one example.
#[derive(Debug, Default)]
pub(super) struct Failures {
    causes: BTreeMap<String, (usize, String)>,
}

impl Failures {
    pub(super) fn add(&mut self, cause: &str, example: &str) {
        let entry = self.causes.entry(cause.to_owned());
        entry.or_insert_with(|| (0, example.to_owned())).0 += 1;
    }

    /// Logs the failures, and returns whether there was one.
    pub(super) fn log(&self) -> bool {
        for (cause, (count, example)) in &self.causes {
            tracing::warn!(count, example, "failed to update routes ({cause}); retrying");
        }
        !self.causes.is_empty()
    }
}

/// The operation and AWS's error code, which group failures.
pub(super) fn cause(error: &Error) -> String {
    error.code().map_or_else(
        || format!("{}: no answer", error.operation()),
        |code| format!("{}: {code}", error.operation()),
    )
}

/// Why a Node gets no route to its instance, and how to fix it.
pub(super) fn not_in_cluster(id: &InstanceId, cluster_id: &str) -> String {
    format!(
        "its instance {id} does not have the tag {}: tag the instance if it belongs to this cluster, else delete the \
         Node, whose provider ID names an instance of another owner",
        tags::cluster_key(cluster_id)
    )
}

/// Why a Node gets no route to an instance that has another name, and how to fix it.
pub(super) fn other_name(id: &InstanceId) -> String {
    format!(
        "its provider ID names instance {id}, which does not have the address in the name of the Node: correct the host \
         name or the provider ID, and delete the Node, so that its kubelet registers again"
    )
}

pub(super) fn is_full(error: &Error) -> bool {
    error.code() == Some("RouteLimitExceeded")
}

/// Explains a failed write and how to fix it. Without the request ID, so that equal failures have equal messages.
pub(super) fn explain(error: &Error, table: &str) -> String {
    if is_full(error) {
        let told = aws_errors::answer(error);
        return format!(
            "route table {table} holds as many routes as AWS allows ({told}): raise the VPC quota \"Routes per route \
             table\" (at most 1,000) or use a network plug-in that needs no routes"
        );
    }
    if error.kind() == Kind::AccessDenied {
        return aws_errors::denied_ec2(error);
    }

    aws_errors::answer(error)
}

/// Replaced by two other actions while it is denied.
pub(super) const REPLACE: &str = "ReplaceRoute";

/// How long a denial of [`REPLACE`] is remembered. Any other denied action is retried in the next pass.
pub(super) const REPLACE_AGAIN: Duration = Duration::from_secs(1800);

/// EC2 actions that the policies of the role do not allow, by resource: a policy may allow an action for one resource and
/// deny it for another.
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

        let explained = explain(error, resource);
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

    #[test]
    fn a_full_table_and_a_denied_call_come_with_what_helps() {
        let full = Error::answered("CreateRoute", "RouteLimitExceeded", "x");
        assert!(explain(&full, "rtb-1").contains("Routes per route table"));
        let denied = Error::answered("CreateRoute", "UnauthorizedOperation", "x").with_request_id(Some("r-1"));
        assert!(!explain(&denied, "rtb-1").contains("r-1"));
        assert!(explain(&denied, "rtb-1").ends_with("allow ec2:CreateRoute to the cloud controller manager's role"));
    }
}

#[cfg(test)]
mod tests_of_denials {
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
