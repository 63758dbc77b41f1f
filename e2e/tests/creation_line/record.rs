//! New load balancers in the record of AWS calls and in the Events.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws_sim::Call;
use outrigger_e2e::single_cluster::ServiceEvent;

/// The Event of who waits.
pub const WAITING: &str = "WaitingToCreateLoadBalancer";

/// Which API of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Classic load balancers.
    Classic,
    /// Network load balancers.
    Network,
}

impl Kind {
    /// Part of the Services' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Network => "network",
        }
    }

    /// The annotations that request it.
    pub fn annotations(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Classic => &[],
            Self::Network => &[("type", "nlb")],
        }
    }
}

/// A Service that was made.
#[derive(Debug)]
pub struct New {
    pub service: String,
    /// Its load balancer's kind.
    pub kind: Kind,
    /// When it was created, in whole seconds since 1970.
    pub created: f64,
    load_balancer: String,
}

impl New {
    /// The one that the API server has answered with.
    pub fn of(kind: Kind, service: &Service) -> Self {
        let uid = service.metadata.uid.clone().expect("a UID").replace('-', "");
        let created = service.metadata.creation_timestamp.as_ref().expect("a time");
        Self {
            service: service.metadata.name.clone().expect("a name"),
            kind,
            created: created.0.as_duration().as_secs_f64(),
            load_balancer: format!("a{}", &uid[..31]),
        }
    }

    /// How the names of its target groups begin.
    fn target_groups(&self) -> String {
        let name: String = self
            .service
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(8)
            .collect();
        format!("k8s-default-{name}-")
    }
}

/// The Event of a Service that waits.
#[derive(Debug)]
pub struct Promise {
    /// The Service.
    pub service: String,
    /// So many come before.
    pub ahead: usize,
    /// How long it will take, in seconds.
    pub wait: f64,
    /// When that will be, in seconds since 1970.
    pub at: f64,
}

/// The Events of these Services, one of each that waits.
pub fn promises(told: &[ServiceEvent], of: &[&New]) -> Vec<Promise> {
    let waiting = told.iter().filter(|told| told.reason == WAITING);
    let own = waiting.filter(|told| of.iter().any(|new| new.service == told.service));
    let promises: Vec<Promise> = own.map(promise).collect();
    for promise in &promises {
        let times = promises.iter().filter(|other| other.service == promise.service);
        assert_eq!(times.count(), 1, "told more than once: {promises:#?}");
    }
    promises
}

fn promise(told: &ServiceEvent) -> Promise {
    let number = |before: &str, after: &str| {
        let rest = told.message.split_once(before)?.1;
        rest.split_once(after)?.0.parse::<u32>().ok()
    };
    let ahead = number("(Services ahead in the queue: ", ")");
    let wait = number("expected in about ", " s");
    let (ahead, wait) = ahead.zip(wait).unwrap_or_else(|| panic!("{}", told.message));
    let wait = f64::from(wait);
    Promise {
        service: told.service.clone(),
        ahead: ahead as usize,
        wait,
        at: told.at.as_duration().as_secs_f64() + wait,
    }
}

/// When AWS was asked to make their load balancers, in seconds since 1970, in order.
pub fn creations(calls: &[Call], of: &[&New]) -> Vec<(String, f64)> {
    let made = calls.iter().filter(|call| call.action == "CreateLoadBalancer");
    let of_service = |call: &Call| {
        let name = call
            .parameters
            .get("LoadBalancerName")
            .or(call.parameters.get("Name"))?;
        let new = of.iter().find(|new| new.load_balancer == name)?;
        Some((new.service.clone(), call.at.as_duration().as_secs_f64()))
    };
    made.filter_map(of_service).collect()
}

/// The calls that make an instance a target of a load balancer.
pub fn registrations<'a>(calls: &'a [Call], new: &'a New, instance: &'a str) -> impl Iterator<Item = &'a Call> {
    calls.iter().filter(move |call| {
        let about = match call.action.as_str() {
            "RegisterInstancesWithLoadBalancer" => {
                call.parameters.get("LoadBalancerName") == Some(new.load_balancer.as_str())
            }
            "RegisterTargets" => {
                let group = call.parameters.get("TargetGroupArn").unwrap_or_default();
                group.contains(&new.target_groups())
            }
            _ => false,
        };
        about && call.succeeded() && call.parameters.iter().any(|(_, value)| value == instance)
    })
}

/// How many of them this caller has looked at so far: the attributes of each are read by a call of its own.
pub fn looked_at(calls: &[Call], caller: &str, of: &[&New]) -> usize {
    let read = |new: &&&New| {
        calls.iter().any(|call| {
            let about = |(_, value): (&str, &str)| value.contains(&new.load_balancer);
            call.caller == caller
                && call.action == "DescribeLoadBalancerAttributes"
                && call.parameters.iter().any(about)
        })
    };
    of.iter().filter(read).count()
}

/// Whether this caller has given the load balancer another listener.
pub fn has_listener(calls: &[Call], caller: &str, new: &New) -> bool {
    calls.iter().any(|call| {
        call.caller == caller
            && call.action == "CreateLoadBalancerListeners"
            && call.parameters.get("LoadBalancerName") == Some(new.load_balancer.as_str())
    })
}
