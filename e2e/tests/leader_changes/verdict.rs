//! The verdict on the record of AWS calls. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use outrigger_aws_sim::Call;

use crate::nodes::Causes;

/// The leaders' calls to AWS.
#[derive(Debug, Default)]
pub struct Verdict {
    calls: usize,
    writes: usize,
    refused: usize,
    /// The same write twice in a row on one thing.
    repeated: usize,
    registered: usize,
    /// Targets that were taken out since their Node was away or excluded.
    pub with_cause: usize,
    /// Targets that were taken out though their Node was there, with the call.
    pub without_cause: Vec<String>,
    /// Writes of a manager after a later leader had begun to write.
    pub out_of_turn: Vec<String>,
    /// Things that were made twice under one name.
    pub made_twice: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} AWS calls, {} writes ({} refused, {} repeated), {} targets registered, deregistered with cause {}, \
             without cause {}",
            self.calls,
            self.writes,
            self.refused,
            self.repeated,
            self.registered,
            self.with_cause,
            self.without_cause.len()
        )
    }
}

impl Verdict {
    /// Managers lead in the order of their numbers.
    pub fn of(calls: &[Call], causes: &Causes) -> Self {
        let mut verdict = Self {
            calls: calls.len(),
            ..Self::default()
        };
        let mut last_on: BTreeMap<String, &Call> = BTreeMap::new();
        let mut made = BTreeSet::new();
        let mut latest = 0;
        for call in calls.iter().filter(|call| call.is_write()) {
            verdict.writes += 1;
            let number = number(&call.caller);
            if number < latest {
                verdict.out_of_turn.push(call.to_string());
            }
            latest = latest.max(number);
            verdict.targets(call, causes);
            if !call.succeeded() {
                verdict.refused += 1;
                continue;
            }
            if let Some(name) = name_of_new(call).filter(|name| !made.insert(name.clone())) {
                verdict.made_twice.push(name);
            }
            if let Some(subject) = subject(call) {
                let before = last_on.insert(subject, call);
                let same = |before: &Call| before.action == call.action && before.parameters == call.parameters;
                verdict.repeated += usize::from(before.is_some_and(same));
            }
        }
        verdict
    }

    /// A call that was sent counts whatever was answered.
    fn targets(&mut self, call: &Call, causes: &Causes) {
        let field = match call.action.as_str() {
            "DeregisterInstancesFromLoadBalancer" | "RegisterInstancesWithLoadBalancer" => ".InstanceId",
            "DeregisterTargets" | "RegisterTargets" => ".Id",
            _ => return,
        };
        let targets = call.parameters.iter().filter(|(key, _)| key.ends_with(field));
        for (_, instance) in targets {
            if call.action.starts_with("Register") {
                self.registered += 1;
            } else if causes.cover(instance, call.at) {
                self.with_cause += 1;
            } else {
                self.without_cause.push(format!("{instance}: {call}"));
            }
        }
    }
}

fn number(caller: &str) -> usize {
    let number = caller.rsplit('-').next().and_then(|number| number.parse().ok());
    number.unwrap_or_default()
}

/// The created resource, by kind and name. Target groups and listeners may be created again.
fn name_of_new(call: &Call) -> Option<String> {
    let field = match call.action.as_str() {
        "CreateLoadBalancer" => call
            .parameters
            .get("Name")
            .or_else(|| call.parameters.get("LoadBalancerName")),
        "CreateSecurityGroup" => call.parameters.get("GroupName"),
        _ => None,
    };
    field.map(|name| format!("{} {name}", call.action))
}

/// The resource of a write.
fn subject(call: &Call) -> Option<String> {
    const FIELDS: [&str; 5] = [
        "TargetGroupArn",
        "ListenerArn",
        "LoadBalancerArn",
        "LoadBalancerName",
        "GroupId",
    ];
    let found = FIELDS.iter().find_map(|field| call.parameters.get(field));
    found.map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use outrigger_aws_sim::query::Query;
    use outrigger_aws_sim::{Answer, Outcome, Service};

    use super::{Call, Causes, Verdict};

    fn call(manager: usize, seconds: i64, form: &str) -> Call {
        let query = Query::parse(form.as_bytes());
        Call {
            seq: 0,
            at: Timestamp::from_second(seconds).expect("a time"),
            offset: Duration::ZERO,
            caller: format!("outrigger-manager-{manager}"),
            service: Service::Elb,
            version: query.version,
            action: query.action,
            parameters: query.parameters,
            user_agent: String::new(),
            preflight: false,
            outcome: Some(Outcome {
                status: Some(200),
                error_code: None,
                answer: Answer::Aws,
                forwarded: true,
                duration: Duration::ZERO,
            }),
        }
    }

    const OUT: &str = "Action=DeregisterInstancesFromLoadBalancer&LoadBalancerName=a&Instances.member.1.InstanceId=i-1";

    #[test]
    fn a_target_may_go_only_while_its_node_is_away() {
        let causes = Causes::default();
        causes.begin("i-1", Timestamp::from_second(100).expect("a time"));
        let verdict = Verdict::of(&[call(1, 99, OUT), call(1, 101, OUT)], &causes);
        assert_eq!(
            (verdict.with_cause, verdict.without_cause.len(), verdict.repeated),
            (1, 1, 1)
        );
    }

    #[test]
    fn a_manager_that_writes_after_its_successor_is_out_of_turn() {
        let calls = [call(1, 1, OUT), call(2, 2, OUT), call(1, 3, OUT), call(2, 4, OUT)];
        assert_eq!(Verdict::of(&calls, &Causes::default()).out_of_turn.len(), 1);
    }

    #[test]
    fn a_load_balancer_is_made_once() {
        let new = "Action=CreateLoadBalancer&LoadBalancerName=a";
        let other = "Action=CreateLoadBalancer&LoadBalancerName=b";
        let verdict = Verdict::of(
            &[call(1, 1, new), call(2, 2, other), call(2, 3, new)],
            &Causes::default(),
        );
        assert_eq!(verdict.made_twice, ["CreateLoadBalancer a"]);
    }
}
