//! Reports of failures: an Event on the Node when its failure is new or changes, and one log line per reason and pass,
//! for any number of Nodes.

use std::collections::BTreeMap;

use outrigger_aws::{Error, InstanceId, Kind};
use outrigger_shared::tags;

use crate::aws_errors;

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

/// An error with its sources.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    words
}

/// Why a Node gets no route to its instance, and how to fix it.
pub(super) fn not_in_cluster(id: &InstanceId, cluster_id: &str) -> String {
    format!(
        "its instance {id} does not have the tag {}: tag the instance if it belongs to this cluster, else delete the \
         Node, whose provider ID names an instance of another owner",
        tags::cluster_key(cluster_id)
    )
}

/// Whether the table's quota of routes is used up.
pub(super) fn is_full(error: &Error) -> bool {
    error.code() == Some("RouteLimitExceeded")
}

/// Explains a failed write and how to fix it. Without the request ID, so that equal failures have equal messages.
pub(super) fn explain(error: &Error, table: &str) -> String {
    if is_full(error) {
        let told = aws_errors::answer(error);
        return format!(
            "route table {table} holds as many routes as AWS allows ({told}): raise the VPC quota \"Routes per route \
             table\" (50 unless raised, at most 1,000) or use a network plug-in that needs no routes"
        );
    }
    if error.kind() == Kind::AccessDenied {
        return aws_errors::denied_ec2(error);
    }

    aws_errors::answer(error)
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
