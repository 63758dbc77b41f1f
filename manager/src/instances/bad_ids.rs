//! The IDs that EC2 rejects in a call by plain IDs.

use std::collections::BTreeSet;

use outrigger_aws::{Error, InstanceId};

/// Problem EC2 refused a call by plain IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// Some of them do not exist.
    NotFound,
    /// Some of them are no instance IDs.
    Malformed,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadIds {
    /// The problem of the named IDs.
    pub why: Problem,
    /// The IDs in EC2's message, if any.
    pub named: Vec<InstanceId>,
    pub rest: Vec<InstanceId>,
}

/// `None` when the error is about the call as a whole and says nothing about single IDs.
pub(super) fn parse(asked: &[InstanceId], error: &Error) -> Option<BadIds> {
    let why = match error.code()? {
        "InvalidInstanceID.NotFound" => Problem::NotFound,
        "InvalidInstanceID.Malformed" | "InvalidID" => Problem::Malformed,
        _ => return None,
    };
    let words: BTreeSet<&str> = error
        .message()
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .collect();
    let (named, rest): (Vec<_>, Vec<_>) = asked.iter().cloned().partition(|id| words.contains(id.as_str()));
    // A call with a single ID needs no name in the message.
    if named.is_empty() && rest.len() == 1 {
        return Some(BadIds {
            why,
            named: rest,
            rest: named,
        });
    }

    Some(BadIds { why, named, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<InstanceId> {
        ids.iter().map(|id| InstanceId::new(*id)).collect()
    }

    fn refusal(asked: &[&str], code: &str, message: &str) -> Option<BadIds> {
        parse(&ids(asked), &Error::answered("DescribeInstances", code, message))
    }

    #[test]
    fn the_ids_that_the_answer_names_are_told_from_the_rest() {
        let message = "The instance IDs 'i-0a, i-0c' do not exist";
        let wanted = BadIds {
            why: Problem::NotFound,
            named: ids(&["i-0a", "i-0c"]),
            rest: ids(&["i-0b"]),
        };
        assert_eq!(
            refusal(&["i-0a", "i-0b", "i-0c"], "InvalidInstanceID.NotFound", message),
            Some(wanted)
        );
    }

    #[test]
    fn an_id_that_is_the_beginning_of_a_named_one_is_not_meant() {
        let read = refusal(
            &["i-0ab", "i-0cd"],
            "InvalidInstanceID.NotFound",
            "The instance ID 'i-0abc' does not exist",
        );
        assert_eq!(read.unwrap().named, ids(&[]));
    }

    #[test]
    fn a_single_id_needs_no_name_in_the_answer() {
        let read = refusal(&["i-0a"], "InvalidInstanceID.Malformed", "no").unwrap();
        assert_eq!((read.why, read.named), (Problem::Malformed, ids(&["i-0a"])));
    }

    #[test]
    fn any_other_error_is_about_the_whole_call() {
        for code in [
            "RequestLimitExceeded",
            "UnauthorizedOperation",
            "InternalError",
            "NotFound",
        ] {
            assert_eq!(refusal(&["i-0a"], code, "i-0a"), None, "{code}");
        }
        assert_eq!(
            parse(&ids(&["i-0a"]), &Error::unanswered("DescribeInstances", "i-0a")),
            None
        );
    }
}
