//! Whatever there is of a Service at AWS: after its deletion nothing of it is left, and nothing of others is touched.

use std::collections::BTreeSet;

use outrigger_aws::fake::World;
use proptest::prelude::*;

use super::super::fixture::{Fixture, LB};
use super::case::{Case, cases, give_up};
use super::compare::{Ours, others, same};
use super::likeness::node_rules;
use super::network_edits;
use super::run::{End, Verdict, run, to_the_end};
use super::specs::Kind;

/// A deletion: of a Service in this case, with or without a look before, by this way.
#[derive(Debug, Clone)]
pub struct Deletion {
    case: Case,
    settled: bool,
    by_type: bool,
}

pub fn deletions(kind: Kind) -> impl Strategy<Value = Deletion> {
    (cases(kind), any::<bool>(), any::<bool>()).prop_map(|(case, settled, by_type)| Deletion { case, settled, by_type })
}

impl Deletion {
    pub async fn stage(&self) -> Result<Fixture, TestCaseError> {
        let mut fixture = self.case.stage().await;
        if self.settled {
            to_the_end(&fixture).await?;
            fixture.restart();
        }
        give_up(&fixture, self.by_type);
        fixture.aws.forget_calls();
        Ok(fixture)
    }
}

async fn leaves_nothing(deletion: &Deletion) -> Verdict {
    let fixture = deletion.stage().await?;
    let before = fixture.aws.world();
    let end = to_the_end(&fixture).await?;
    let after = fixture.aws.world();
    let ours = Ours::owned_resources(&[&before, &after]);
    same(
        &others(after.clone(), &ours),
        &others(before, &ours),
        "something of others was touched",
    )?;
    prop_assert!(!after.load_balancers.contains_key(LB), "the load balancer is left");
    let finalizers = fixture.service().metadata.finalizers.unwrap_or_default();
    prop_assert_eq!(end, End::Settled, "the deletion is stuck");
    prop_assert!(finalizers.is_empty(), "the Service is never let go");
    prop_assert_eq!(
        network_edits::balancer(&after),
        None,
        "the network load balancer is left"
    );
    let leftovers = network_edits::target_groups(&after);
    prop_assert_eq!(leftovers, BTreeSet::new(), "target groups are left");
    let open = node_rules(&after, true);
    let hands_off = deletion.case.settings.disable_security_group_ingress;
    prop_assert!(
        hands_off || open.is_empty(),
        "rules for its clients are left: {:?}",
        open
    );
    for id in ours.groups {
        let named = |world: &World| {
            let rules = world.security_groups.values().flat_map(|group| &group.ingress);
            let mut sources = rules
                .flat_map(|rule| &rule.groups)
                .filter_map(|pair| pair.group_id.as_ref());
            sources.any(|source| *source == id)
        };
        if hands_off && named(&after) {
            // Rules from before the setting stay, and EC2 keeps the group as long as they do.
            continue;
        }
        prop_assert!(!after.security_groups.contains_key(&id), "its group is left");
        prop_assert!(!named(&after), "a rule that names its group is left");
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn classic_load_balancers_leave_nothing(deletion in deletions(Kind::Classic)) {
        run(leaves_nothing(&deletion))?;
    }

    #[test]
    fn network_load_balancers_leave_nothing(deletion in deletions(Kind::Network)) {
        run(leaves_nothing(&deletion))?;
    }
}
