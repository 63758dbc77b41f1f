//! The IDs that EC2 rejects in a call by plain IDs, and what that proves about their instances.

use std::collections::BTreeSet;

use outrigger_aws::ec2::MAX_IDS;
use outrigger_aws::{Ec2, Error, InstanceId};

use super::key::is_well_formed;

/// Why EC2 refused a call by plain IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    NotFound,
    Malformed,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BadIds {
    pub why: Problem,
    /// The IDs in EC2's message, if any.
    pub named: Vec<InstanceId>,
    pub rest: Vec<InstanceId>,
}

impl BadIds {
    /// `None` when the error is about the call as a whole and says nothing about single IDs.
    pub fn parse(asked: &[InstanceId], error: &Error) -> Option<Self> {
        let why = match error.code()? {
            "InvalidInstanceID.NotFound" => Problem::NotFound,
            "InvalidInstanceID.Malformed" | "InvalidID" => Problem::Malformed,
            _ => return None,
        };
        let mut named = named(asked, error.message());
        // A call with a single ID needs no name in the message.
        if asked.len() == 1 {
            named = asked.to_vec();
        }
        let rest = asked.iter().filter(|id| !named.contains(id)).cloned().collect();

        Some(Self { why, named, rest })
    }
}

/// The IDs that a message of EC2 names.
pub fn named(asked: &[InstanceId], message: &str) -> Vec<InstanceId> {
    let words: BTreeSet<&str> = message
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .collect();
    asked.iter().filter(|id| words.contains(id.as_str())).cloned().collect()
}

/// The IDs that EC2 reports as not existing, each by its ID. It sends at most two calls; the other IDs are left for the
/// next time. A malformed ID is never confirmed, because EC2 reports it only as malformed.
///
/// # Errors
/// Any failure except "not found": an error is never treated as absence.
pub(super) async fn absent(ec2: &dyn Ec2, ids: &[InstanceId]) -> Result<BTreeSet<InstanceId>, Error> {
    let mut asked: Vec<InstanceId> = ids.iter().filter(|id| is_well_formed(id)).cloned().collect();
    asked.truncate(MAX_IDS);

    let mut absent = BTreeSet::new();
    for _ in 0..2 {
        if asked.is_empty() {
            break;
        }
        let Err(error) = ec2.instances_by_plain_id(&asked).await else {
            break;
        };

        match BadIds::parse(&asked, &error) {
            Some(refusal) if refusal.why == Problem::NotFound => {
                if refusal.named.is_empty() {
                    // The answer names none, so only a question about a single one is clear.
                    asked.truncate(1);
                } else {
                    absent.extend(refusal.named);
                    asked = refusal.rest;
                }
            }
            _ => return Err(error),
        }
    }

    Ok(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<InstanceId> {
        ids.iter().map(|id| InstanceId::new(*id)).collect()
    }

    fn refusal(asked: &[&str], code: &str, message: &str) -> Option<BadIds> {
        BadIds::parse(&ids(asked), &Error::answered("DescribeInstances", code, message))
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
            BadIds::parse(&ids(&["i-0a"]), &Error::unanswered("DescribeInstances", "i-0a")),
            None
        );
    }
    #[test]
    fn only_ids_that_the_message_names_as_a_whole_are_bad() {
        let asked = ["i-0a", "i-0ab", "i-0c"].map(InstanceId::new);
        let message = "The instance IDs 'i-0ab, i-0d' do not exist";
        assert_eq!(named(&asked, message), [InstanceId::new("i-0ab")]);
    }
}

#[cfg(test)]
mod tests_of_absence {
    use outrigger_aws::fake::{FakeAws, World};
    use outrigger_aws::{Instance, Kind};

    use super::*;

    fn ids(ids: &[&str]) -> Vec<InstanceId> {
        ids.iter().map(|id| InstanceId::new(*id)).collect()
    }

    fn aws() -> FakeAws {
        let id = InstanceId::new("i-0000000a");
        FakeAws::new(World {
            instances: [(id.clone(), Instance::new(id))].into(),
            ..World::default()
        })
    }

    #[tokio::test]
    async fn two_calls_tell_the_absent_from_the_others() {
        let aws = aws();
        let found = absent(&aws, &ids(&["i-0000000a", "i-0000000b", "i-0000000c", "i-none"])).await;
        assert_eq!(found.unwrap(), ids(&["i-0000000b", "i-0000000c"]).into_iter().collect());
        assert_eq!(aws.calls().len(), 2);
    }

    #[tokio::test]
    async fn an_answer_without_names_leads_to_a_question_about_one() {
        let aws = aws();
        aws.fail_next(
            "DescribeInstances",
            Error::answered("DescribeInstances", "InvalidInstanceID.NotFound", "some do not exist"),
        );
        let found = absent(&aws, &ids(&["i-0000000b", "i-0000000c"])).await;
        assert_eq!(found.unwrap(), ids(&["i-0000000b"]).into_iter().collect());
    }

    #[tokio::test]
    async fn malformed_ids_are_neither_asked_for_nor_absent() {
        let aws = aws();
        assert!(absent(&aws, &ids(&["i-1", "i-made-up"])).await.unwrap().is_empty());
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn any_other_error_confirms_nothing() {
        for code in [
            "RequestLimitExceeded",
            "InvalidInstanceID.Malformed",
            "UnauthorizedOperation",
        ] {
            let aws = aws();
            aws.fail_next(
                "DescribeInstances",
                Error::answered("DescribeInstances", code, "i-0000000b"),
            );
            let error = absent(&aws, &ids(&["i-0000000b"])).await.unwrap_err();
            assert_ne!(error.kind(), Kind::NotFound, "{code}");
        }
    }
}
