//! A controller that dies after any write, and the next one that goes on: the end is that of an undisturbed run, and
//! nothing was made twice.

use outrigger_aws::fake::World;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::fixture::Fixture;
use super::case::{Case, cases};
use super::compare::same;
use super::deletion::{Deletion, deletions};
use super::run::{End, Verdict, run, to_the_end};
use super::specs::Kind;

struct Outcome {
    end: End,
    world: World,
    writes: Vec<String>,
}

async fn outcome(fixture: &Fixture) -> Result<Outcome, TestCaseError> {
    let end = to_the_end(fixture).await?;
    Ok(Outcome {
        end,
        world: fixture.aws.world(),
        writes: fixture.aws.writes(),
    })
}

fn made(writes: &[String]) -> Vec<&String> {
    let mut made: Vec<&String> = writes.iter().filter(|write| write.starts_with("Create")).collect();
    made.sort();
    made
}

/// Runs twice: undisturbed, and dying at one of its writes.
async fn survives(staged: [Fixture; 2], at: Index) -> Verdict {
    let [whole, mut cut] = staged;
    let undisturbed = outcome(&whole).await?;
    if undisturbed.writes.is_empty() {
        return Ok(());
    }
    let write = 1 + at.index(undisturbed.writes.len());
    cut.aws.die_at_write(write);
    let _ = to_the_end(&cut).await;
    cut.restart();
    let resumed = outcome(&cut).await?;
    let place = format!(
        "killed at write {write} of {:#?}, then {:#?}",
        undisturbed.writes, resumed.writes
    );
    prop_assert_eq!(&resumed.end, &undisturbed.end, "{}", &place);
    same(&resumed.world, &undisturbed.world, &place)?;
    if undisturbed.end == End::Settled {
        prop_assert_eq!(made(&resumed.writes), made(&undisturbed.writes), "{}", &place);
    }
    Ok(())
}

async fn of_case(case: &Case, at: Index) -> Verdict {
    Box::pin(survives([case.stage().await, case.stage().await], at)).await
}

async fn of_deletion(deletion: &Deletion, at: Index) -> Verdict {
    Box::pin(survives([deletion.stage().await?, deletion.stage().await?], at)).await
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn classic_load_balancers_survive_a_kill(case in cases(Kind::Classic), at in any::<Index>()) {
        run(of_case(&case, at))?;
    }

    #[test]
    fn network_load_balancers_survive_a_kill(case in cases(Kind::Network), at in any::<Index>()) {
        run(of_case(&case, at))?;
    }

    #[test]
    fn deletions_of_network_load_balancers_survive_a_kill(deletion in deletions(Kind::Network), at in any::<Index>()) {
        run(of_deletion(&deletion, at))?;
    }

    #[test]
    fn deletions_of_classic_load_balancers_survive_a_kill(deletion in deletions(Kind::Classic), at in any::<Index>()) {
        run(of_deletion(&deletion, at))?;
    }
}
