//! Whether instances that EC2 does not list really do not exist.

use std::collections::BTreeSet;

use outrigger_aws::ec2::MAX_IDS;
use outrigger_aws::{Ec2, Error, InstanceId};

use super::bad_ids::{self, Problem};
use super::key::is_well_formed;

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

        match bad_ids::parse(&asked, &error) {
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
