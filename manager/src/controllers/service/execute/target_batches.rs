//! Registers and deregisters targets in batches, and separates those that AWS refuses.
//!
//! AWS refuses a whole call for one invalid target: an instance that does not run, is in another VPC, or has an
//! unsupported type. The others are sent again without it. It also refuses a whole call that exceeds a quota of targets;
//! then as many are registered as fit.

use std::collections::VecDeque;

use outrigger_aws::elbv2::Target;
use outrigger_aws::{Error as AwsError, InstanceId, Kind};

use super::super::error::Error;

/// AWS's error codes for an invalid target: of network load balancers, and of classic ones, where the documentation has
/// one name and the API returns the other.
const CODES: [&str; 3] = ["InvalidTarget", "InvalidInstance", "InvalidEndPoint"];

/// A target that AWS did not register or deregister.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RejectedTarget {
    pub instance: InstanceId,
    pub action: &'static str,
    /// AWS's code and message.
    pub why: String,
    /// Whether a quota is the reason.
    pub exceeds_quota: bool,
}

/// A target as AWS identifies it.
pub trait Instance {
    fn instance(&self) -> &InstanceId;
}

impl Instance for InstanceId {
    fn instance(&self) -> &InstanceId {
        self
    }
}

impl Instance for Target {
    fn instance(&self) -> &InstanceId {
        &self.id
    }
}

/// The calls of one action, batch by batch.
///
/// The targets that AWS names in a refusal are separated, and the others are sent again together; if it names none,
/// each is sent alone. So a batch costs at most one call more than it has targets.
#[derive(Debug)]
struct Calls<T> {
    action: &'static str,
    number: usize,
    todo: VecDeque<Vec<T>>,
    refused: Vec<RejectedTarget>,
    last: Option<Error>,
}

impl<T: Instance + Clone> Calls<T> {
    /// At most `most` targets are in one call.
    fn new(action: &'static str, targets: &[T], most: usize) -> Self {
        Self {
            action,
            number: targets.len(),
            todo: targets.chunks(most.max(1)).map(<[T]>::to_vec).collect(),
            refused: Vec::new(),
            last: None,
        }
    }

    fn batch(&mut self) -> Option<Vec<T>> {
        self.todo.pop_front()
    }

    /// Records the result of the call with this batch.
    /// Fails with the error of the call, if it is no refusal of a target.
    fn answered(&mut self, batch: Vec<T>, answer: Result<(), Error>) -> Result<(), Error> {
        let Err(Error::Aws(error)) = &answer else {
            return answer;
        };
        if error.kind() == Kind::QuotaExceeded {
            self.exceeded(batch, &text(error));
            self.last = answer.err();
            return Ok(());
        }
        let Some(why) = refusal(error) else {
            return answer;
        };

        let alone = batch.len() == 1;
        let (named, others): (Vec<T>, Vec<T>) = batch
            .into_iter()
            .partition(|target| alone || names(error.message(), target.instance()));
        if named.is_empty() {
            self.todo.extend(others.into_iter().map(|target| vec![target]));
        } else {
            self.refused.extend(named.iter().map(|target| RejectedTarget {
                instance: target.instance().clone(),
                action: self.action,
                why: why.clone(),
                exceeds_quota: false,
            }));
            self.todo.extend((!others.is_empty()).then_some(others));
        }

        self.last = answer.err();

        Ok(())
    }

    /// Halves a batch that does not fit. If not even one target fits, the others are not sent.
    fn exceeded(&mut self, mut batch: Vec<T>, why: &str) {
        if batch.len() > 1 {
            let rest = batch.split_off(batch.len() / 2);
            self.todo.push_front(rest);
            self.todo.push_front(batch);
            return;
        }

        let unsent = batch.into_iter().chain(self.todo.drain(..).flatten());
        self.refused.extend(unsent.map(|target| RejectedTarget {
            instance: target.instance().clone(),
            action: self.action,
            why: why.to_owned(),
            exceeds_quota: true,
        }));
    }

    /// The refused targets. If `needed`, at least one target must succeed.
    fn end(self, needed: bool) -> Result<Vec<RejectedTarget>, Error> {
        match self.last {
            Some(last) if needed && self.refused.len() == self.number => Err(last),
            _ => Ok(self.refused),
        }
    }
}

/// Sends `targets` by `call`, at most `most` per call, and returns the refused ones. If `needed`, at least one target
/// must succeed.
pub async fn hand_over<T, F>(
    action: &'static str,
    targets: &[T],
    most: usize,
    needed: bool,
    call: impl Fn(Vec<T>) -> F,
) -> Result<Vec<RejectedTarget>, Error>
where
    T: Instance + Clone,
    F: Future<Output = Result<(), Error>>,
{
    let mut calls = Calls::new(action, targets, most);
    while let Some(batch) = calls.batch() {
        let answer = call(batch.clone()).await;
        calls.answered(batch, answer)?;
    }
    calls.end(needed)
}

/// AWS's message, if it refused a call for one of its targets.
fn refusal(error: &AwsError) -> Option<String> {
    let code = error.code()?;
    let known = CODES.contains(&code.strip_suffix("Exception").unwrap_or(code));
    known.then(|| text(error))
}

fn text(error: &AwsError) -> String {
    format!("{}: {}", error.code().unwrap_or_default(), error.message())
}

fn names(text: &str, instance: &InstanceId) -> bool {
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.any(|word| word == instance.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(number: usize) -> Vec<InstanceId> {
        (1..=number).map(|n| InstanceId::new(format!("i-{n}"))).collect()
    }

    fn invalid(message: &str) -> Error {
        Error::Aws(AwsError::answered("RegisterTargets", "InvalidTarget", message))
    }

    /// Hands over `number` targets to an AWS that does not take `bad`; says how many calls that took, and what was
    /// refused.
    fn hand_over(number: usize, most: usize, bad: &[usize], tells: bool) -> (usize, Vec<String>) {
        let bad: Vec<InstanceId> = bad.iter().map(|n| InstanceId::new(format!("i-{n}"))).collect();
        let (mut calls, mut made, mut taken) = (Calls::new("RegisterTargets", &ids(number), most), 0, 0);
        while let Some(batch) = calls.batch() {
            made += 1;
            let stopped: Vec<&str> = batch
                .iter()
                .filter(|id| bad.contains(id))
                .map(InstanceId::as_str)
                .collect();
            let words = if tells {
                stopped.join("', '")
            } else {
                "one of them".to_owned()
            };
            let answer = match stopped.is_empty() {
                true => Ok(()),
                false => Err(invalid(&format!("The following targets are not running: '{words}'"))),
            };
            taken += if answer.is_ok() { batch.len() } else { 0 };
            calls.answered(batch, answer).unwrap();
        }
        let refused = calls.end(false).unwrap();
        assert_eq!(taken + refused.len(), number, "each is taken or refused");
        (
            made,
            refused
                .into_iter()
                .map(|refused| refused.instance.to_string())
                .collect(),
        )
    }

    #[test]
    fn targets_that_aws_names_are_separated_and_the_others_are_sent_again() {
        assert_eq!(hand_over(5, 100, &[], true), (1, vec![]));
        assert_eq!(hand_over(12, 100, &[1, 3], true), (2, vec!["i-1".into(), "i-3".into()]));
        assert_eq!(hand_over(4, 2, &[1, 4], true), (4, vec!["i-1".into(), "i-4".into()]));
        assert_eq!(hand_over(2, 100, &[1, 2], true).0, 1);
    }

    #[test]
    fn if_aws_names_no_target_each_is_sent_alone() {
        assert_eq!(hand_over(4, 100, &[2], false), (5, vec!["i-2".into()]));
        assert_eq!(hand_over(1, 100, &[1], false), (1, vec!["i-1".into()]));
    }

    #[test]
    fn an_answer_that_misleads_costs_at_most_one_call_more_than_there_are_targets() {
        // Each refusal names the first one only, and the last ones are not named at all.
        let (mut calls, mut made) = (Calls::new("RegisterTargets", &ids(9), 100), 0);
        while let Some(batch) = calls.batch() {
            made += 1;
            let first = batch
                .iter()
                .find(|_| batch.len() > 4)
                .map_or("none", InstanceId::as_str);
            let error = invalid(&format!("not running: {first}"));
            calls.answered(batch, Err(error)).unwrap();
        }
        assert_eq!(made, 10);
        assert_eq!(calls.end(false).unwrap().len(), 9);
    }

    /// Registers 9 targets at an AWS that allows so many; returns the number of calls, and of targets that it has not.
    fn register_within(quota: usize, needed: bool) -> (usize, Result<usize, String>) {
        let (mut calls, mut made, mut taken) = (Calls::new("RegisterTargets", &ids(9), 4), 0, 0);
        while let Some(batch) = calls.batch() {
            made += 1;
            let answer = match taken + batch.len() > quota {
                false => Ok(()),
                true => Err(Error::Aws(AwsError::answered(
                    "RegisterTargets",
                    "TooManyTargets",
                    "full",
                ))),
            };
            taken += if answer.is_ok() { batch.len() } else { 0 };
            calls.answered(batch, answer).unwrap();
        }
        let refused = calls.end(needed).map_err(|error| error.to_string());
        let counted = refused.map(|refused| {
            assert!(refused.iter().all(|refused| refused.exceeds_quota));
            refused.len()
        });
        (made, counted)
    }

    #[test]
    fn as_many_targets_are_registered_as_a_quota_allows() {
        assert_eq!(register_within(9, true), (3, Ok(0)));
        assert_eq!(register_within(4, true).1, Ok(5));
        assert_eq!(register_within(3, true).1, Ok(6));
        assert_eq!(register_within(0, false), (3, Ok(9)));
        assert!(
            register_within(0, true)
                .1
                .is_err_and(|error| error.contains("TooManyTargets"))
        );
    }

    #[test]
    fn another_failure_stops_and_so_does_the_refusal_of_all_that_are_needed() {
        let mut calls = Calls::new("RegisterTargets", &ids(2), 100);
        let batch = calls.batch().unwrap();
        let denied = AwsError::answered("RegisterTargets", "AccessDenied", "i-1");
        assert!(calls.answered(batch.clone(), Err(Error::Aws(denied))).is_err());
        calls.answered(batch, Err(invalid("i-1, i-2"))).unwrap();
        let error = calls.end(true).unwrap_err().to_string();
        assert!(error.contains("InvalidTarget"), "{error}");
    }
}
