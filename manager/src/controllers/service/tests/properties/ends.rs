//! Whatever a Service asks for and whatever stands at AWS: the steps lead to an end where no steps are left, and that
//! end does not depend on what was there before.

use std::collections::BTreeSet;

use outrigger_aws::InstanceId;
use proptest::prelude::*;

use super::case::{Case, cases};
use super::cluster::Fact;
use super::compare::{Ours, others, same};
use super::likeness::{likeness, node_rules, targets, with_subnets_of};
use super::run::{End, Verdict, run, to_the_end, waits_for_ec2};
use super::specs::Kind;

/// Reads that one look costs at most, however much there is in the account: a quick look and the fresh one that has to
/// come before writes, at a load balancer of three ports with used, wanted and left over target groups.
const READS: usize = 64;

async fn comes_to_an_end(case: &Case) -> Verdict {
    let mut fixture = case.stage().await;
    let before = fixture.aws.world();
    let end = to_the_end(&fixture).await?;
    let after = fixture.aws.world();
    let ours = Ours::of(case, &[&before, &after]);
    same(
        &others(after.clone(), &ours),
        &others(before, &ours),
        "something of others was touched",
    )?;

    fixture.restart();
    fixture.aws.forget_calls();
    let service = fixture.service();
    let _ = fixture.sync().await;
    let reads = fixture.aws.calls().iter().filter(|call| !call.write).count();
    prop_assert!(reads <= READS, "{} reads: {:#?}", reads, fixture.aws.calls());
    let again = to_the_end(&fixture).await?;
    prop_assert_eq!(&again, &end, "a second controller comes to another end");
    let (mut expected, mut who) = (after.clone(), "a second controller changes something");
    if may_come_further(&end) {
        (expected, who) = (fixture.aws.world(), "a third controller changes something");
        fixture.restart();
        to_the_end(&fixture).await?;
    }
    same(&fixture.aws.world(), &expected, who)?;
    prop_assert_eq!(fixture.service(), service);
    if end == End::Settled {
        let mut writes = fixture.aws.writes();
        writes.retain(|write| !waits_for_ec2(write, &after));
        prop_assert_eq!(writes, Vec::<String>::new(), "a second controller writes");
    }
    forgets_its_past(case, &end, &after).await
}

/// How far a Service comes that AWS refuses for good depends on when it is looked at: a second controller may take away
/// what the first one has kept until a loss of targets was confirmed.
fn may_come_further(end: &End) -> bool {
    matches!(end, End::Stuck(class, _) if class.starts_with("AWS"))
}

/// Compares the end with that in an account where nothing of the Service was.
async fn forgets_its_past(case: &Case, end: &End, after: &outrigger_aws::fake::World) -> Verdict {
    let fresh = case.untouched();
    let clean = to_the_end(&fresh).await?;
    let class = |end: &End| match end {
        End::Settled => None,
        End::Stuck(class, _) => Some(class.clone()),
    };
    if let End::Stuck(class, text) = &clean {
        let allowed = class == "invalid" || class == "world" || case.wish.odd;
        prop_assert!(allowed, "a good Service is refused in an empty account: {}", text);
        return Ok(());
    }
    if let End::Stuck(class, text) = end {
        // A detail of logs or draining counts while these are on; AWS reads it whenever anything else is sent with it.
        let unread = class == "AWS ValidationError" && case.wish.odd;
        // A new target group needs a target, and EC2 does not list the only one: see [`waits_for_ec2`].
        let has_unlisted = case.facts.iter().any(|fact| matches!(fact, Fact::Unlisted(_)));
        let waits = class == "AWS InvalidTarget" && has_unlisted;
        prop_assert!(
            class == "world" || class == "invalid" || unread || waits,
            "the past stops the Service: {}",
            text
        );
        return Ok(());
    }
    prop_assert_eq!(class(&clean), class(end));
    let ideal = fresh.aws.world();
    let kind = case.wish.kind();
    let mine = with_subnets_of(likeness(after, kind), (after, &ideal));
    prop_assert_eq!(mine, likeness(&ideal, kind));
    let candidates: BTreeSet<InstanceId> = case
        .nodes
        .iter()
        .filter(|node| !node.excluded)
        .map(|node| InstanceId::new(node.id))
        .collect();
    let (mut have, need) = (targets(after), targets(&ideal));
    have.retain(|port, _| need.contains_key(port));
    for (port, need) in &need {
        let have = &have[port];
        prop_assert!(have.is_superset(need), "port {}: {:?} of {:?}", port, have, need);
        prop_assert!(
            have.is_subset(&candidates),
            "port {}: {:?} of {:?}",
            port,
            have,
            candidates
        );
    }
    if kind == Kind::Network && have == need {
        let (open, all) = (node_rules(&ideal, true), node_rules(after, false));
        prop_assert!(all.is_superset(&open), "closed: {:?}", open.difference(&all));
        let (extra, known) = (node_rules(after, true), node_rules(&ideal, false));
        let hands_off = case.settings.disable_security_group_ingress;
        prop_assert!(
            hands_off || extra.is_subset(&known),
            "open: {:?}",
            extra.difference(&known)
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn classic_load_balancers_come_to_an_end(case in cases(Kind::Classic)) {
        run(comes_to_an_end(&case))?;
    }

    #[test]
    fn network_load_balancers_come_to_an_end(case in cases(Kind::Network)) {
        run(comes_to_an_end(&case))?;
    }
}
