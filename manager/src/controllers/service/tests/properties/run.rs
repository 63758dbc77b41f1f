//! Running a controller until it has nothing left to do, and looking at what it leaves.

use std::future::Future;

use outrigger_aws::InstanceId;
use outrigger_aws::fake::World;
use proptest::test_runner::TestCaseError;
use tokio::time::Duration;

use super::super::super::action::Next;
use super::super::super::error::Error;
use super::super::fixture::Fixture;
use super::case::PAUSE;

pub type Verdict = Result<(), TestCaseError>;

/// Looks after which a controller must have come to an end.
const LOOKS: usize = 16;

/// Quiet looks in a row that make an end. One may still wait for a second sight of lost targets.
const QUIET: usize = 3;

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing is left to do.
    Settled,
    /// The same failure again and again, which changes nothing any more: its class and AWS's code, and its text.
    Stuck(String, String),
}

/// Runs a case on a clock that stands still until it is moved.
pub fn run(test: impl Future<Output = Verdict>) -> Verdict {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// The kind of a failure.
pub fn class(error: &Error) -> String {
    match error {
        Error::Invalid(_) => "invalid".to_owned(),
        Error::Environment(_) => "world".to_owned(),
        Error::GroupInUse { .. } => "group in use".to_owned(),
        Error::Aws(error) => format!("AWS {}", error.code().unwrap_or("without an answer")),
        other => format!("other {other}"),
    }
}

/// Whether a write offers a target whose instance EC2 does not list. AWS refuses that, and it is offered again, after
/// longer and longer pauses, until EC2 lists it or its Node goes: that is waiting, and no step towards the end.
pub fn waits_for_ec2(write: &str, world: &World) -> bool {
    let mut words = write.split([' ', ',', ':']);
    let registers = words.next().is_some_and(|action| action.starts_with("Register"));
    let mut instances = words.filter(|word| word.starts_with("i-"));
    registers && instances.any(|id| !world.instances.contains_key(&InstanceId::new(id)))
}

/// Whether all writes but the first `known` wait for EC2.
fn only_waits(fixture: &Fixture, known: usize) -> bool {
    let world = fixture.aws.world();
    let writes = fixture.aws.writes();
    writes.iter().skip(known).all(|write| waits_for_ec2(write, &world))
}

/// The time until the next look: as soon as the controller wants it, as much that it knows is still fresh then.
fn pause(result: &Result<Next, Error>) -> Duration {
    match result {
        Ok(Next::After(wait)) => *wait,
        _ => PAUSE,
    }
}

/// Looks at the Service until it is in its desired state or the same failure comes back.
pub async fn to_the_end(fixture: &Fixture) -> Result<End, TestCaseError> {
    let (mut quiet, mut last) = (0, None);
    let mut seen = Vec::new();
    for _ in 0..LOOKS {
        let (before, service, writes) = (fixture.aws.world(), fixture.service(), fixture.aws.writes().len());
        let result = fixture.sync().await;
        tokio::time::advance(pause(&result)).await;
        let unchanged = before == fixture.aws.world() && service == fixture.service();
        match result {
            Ok(_) if unchanged && only_waits(fixture, writes) => quiet += 1,
            Ok(_) => quiet = 0,
            Err(error) => {
                let end = End::Stuck(class(&error), error.to_string());
                if unchanged && last.as_ref() == Some(&end) {
                    return Ok(end);
                }
                (quiet, last) = (0, Some(end));
                seen.push(error.to_string());
                continue;
            }
        }
        last = None;
        if quiet == QUIET {
            return Ok(End::Settled);
        }
    }
    let writes = fixture.aws.writes();
    Err(TestCaseError::fail(format!(
        "no end: failures {seen:#?}, writes {writes:#?}"
    )))
}
