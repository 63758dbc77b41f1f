//! A dry run says whether the controller changes something.

use proptest::prelude::*;

use super::case::{Case, cases};
use super::config;
use super::run::{End, Verdict, run, to_the_end};
use super::specs::Kind;

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
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn of_a_classic_load_balancer(case in cases(Kind::Classic)) {
        run(a_dry_run_is_right(case))?;
    }

    #[test]
    fn of_a_network_load_balancer(case in cases(Kind::Network)) {
        run(a_dry_run_is_right(case))?;
    }
}
