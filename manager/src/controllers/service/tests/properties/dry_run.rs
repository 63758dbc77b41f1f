//! A dry run says whether the controller changes something.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::case::{Case, cases};
use super::config;
use super::run::{End, Verdict, run, to_the_end};
use super::specs::Kind as Balancer;

/// A kind of writes. A step of another kind is another change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Targets,
    Rules,
    Others,
}

impl Kind {
    fn of(action: &str) -> Self {
        let begins = |verbs: &[&str]| verbs.iter().any(|verb| action.starts_with(verb));
        match () {
            () if begins(&["Register", "Deregister"]) => Self::Targets,
            () if begins(&["Authorize", "Revoke", "UpdateSecurityGroupRule"]) => Self::Rules,
            () => Self::Others,
        }
    }
}

async fn a_dry_run_is_right(case: Case) -> Verdict {
    let fixture = case.stage().await;
    let (world, patches) = (fixture.aws.world(), fixture.api.patches.lock().unwrap().len());
    let said = fixture.dry_run().await;
    prop_assert!(fixture.aws.writes().is_empty(), "a dry run writes nothing");
    prop_assert!(fixture.api.patches.lock().unwrap().len() == patches);

    fixture.aws.change(|now| *now = world);
    let service = fixture.service();
    let end = to_the_end(&fixture).await?;
    let writes = fixture.aws.writes();
    let changes = !writes.is_empty() || end != End::Settled || fixture.service().status != service.status;
    prop_assert!(
        said.is_empty() != changes,
        "said {said:#?}, ended {end:?}, wrote {writes:#?}"
    );

    let said_kinds: BTreeSet<Kind> = said.iter().map(|change| Kind::of(&change.action)).collect();
    let unsaid = writes.iter().find(|write| !said_kinds.contains(&Kind::of(write)));
    prop_assert!(
        end != End::Settled || unsaid.is_none(),
        "wrote {unsaid:?}, and said {said:#?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn of_a_classic_load_balancer(case in cases(Balancer::Classic)) {
        run(a_dry_run_is_right(case))?;
    }

    #[test]
    fn of_a_network_load_balancer(case in cases(Balancer::Network)) {
        run(a_dry_run_is_right(case))?;
    }
}
