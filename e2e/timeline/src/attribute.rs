//! Which controller made a call, and which process.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::input::{AwsCall, Inputs};
use super::rules::{Controller, Rules, Side};
use super::tenure::Tenure;
use outrigger_cluster_harness::audit::AuditEvent;
use outrigger_cluster_harness::pods::ProcessSpan;

/// A request that was on its way when its process ended may reach the API server a moment later.
const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(1);

/// A process, or the processes that it may have been.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor {
    /// Names of the processes that it may be; one where it is known.
    pub names: BTreeSet<String>,
    pub component: String,
    pub side: Side,
}

impl Actor {
    pub(super) fn known(process: &ProcessSpan, rules: &Rules) -> Self {
        Self::one_of(&[process], &process.component, rules)
    }

    /// One of `processes`, which are of one component; a nameless one where there is none.
    pub(super) fn one_of(processes: &[&ProcessSpan], component: &str, rules: &Rules) -> Self {
        let mut names: BTreeSet<_> = processes.iter().map(|process| process.process.clone()).collect();
        if names.is_empty() {
            names.insert(format!("{component} (no known process)"));
        }

        Self {
            names,
            component: component.into(),
            side: rules.side_of(component),
        }
    }

    /// True unless the two are different processes for certain.
    pub fn may_be(&self, other: &Self) -> bool {
        !self.names.is_disjoint(&other.names)
    }

    pub fn label(&self) -> String {
        self.names.iter().cloned().collect::<Vec<_>>().join(" or ")
    }
}

/// The controller that an AWS call speaks for; `None` for shared reads, for probes, and for what no migrated
/// controller does.
pub(super) fn of_aws_call(call: &AwsCall) -> Option<Controller> {
    if call.preflight {
        return None;
    }
    match (call.service.as_str(), call.action.as_str()) {
        ("elasticloadbalancing", _) => Some(Controller::Service),
        ("ec2", action) if action.contains("SecurityGroup") => Some(Controller::Service),
        // Tags of a security group are the service controller's; those of an instance are not.
        ("ec2", "CreateTags" | "DeleteTags") if call.parameters.values().any(|value| value.starts_with("sg-")) => {
            Some(Controller::Service)
        }
        // Reading route tables is not enough: load balancers need them too, to tell public subnets.
        ("ec2", "CreateRoute" | "ReplaceRoute" | "DeleteRoute") => Some(Controller::Route),
        // The source/destination check is switched off for an instance that becomes a route's target.
        ("ec2", "ModifyInstanceAttribute") if call.parameters.keys().any(|key| key.starts_with("SourceDestCheck")) => {
            Some(Controller::Route)
        }
        _ => None,
    }
}

/// The controller that a write to Kubernetes speaks for, told by the client's name in the user agent.
pub(super) fn of_api_write(event: &AuditEvent) -> Option<Controller> {
    if !event.is_write() {
        return None;
    }
    match event.client() {
        "service-controller" | "service-lb-controller" => Some(Controller::Service),
        "route-controller" | "node-route-controller" => Some(Controller::Route),
        "cloud-node-lifecycle-controller" => Some(Controller::NodeLifecycle),
        // Go managers run node lifecycle under the name that their other node controllers use as well;
        // only deleting a Node is its alone.
        "node-controller" if event.verb == "delete" && event.concerns("nodes") => Some(Controller::NodeLifecycle),
        _ => None,
    }
}

/// True for a write to a Service by a program of either side that is counted for no controller: only service controllers
/// write Services, so a client's name is missing above.
pub(super) fn is_overlooked(event: &AuditEvent, rules: &Rules) -> bool {
    event.is_write()
        && event.object_ref.resource == "services"
        && of_api_write(event).is_none()
        && rules.by_program(event.program()).is_some()
}

/// The process behind an AWS call.
pub(super) fn caller(call: &AwsCall, inputs: &Inputs, rules: &Rules) -> Actor {
    inputs.process(&call.caller).map_or_else(
        || Actor {
            names: [call.caller.clone()].into(),
            component: String::new(),
            side: Side::Unknown,
        },
        |process| Actor::known(process, rules),
    )
}

/// The process behind a write to Kubernetes: of the program in the user agent, alive at that moment, and, where
/// several were, the one that held the lease.
pub(super) fn writer(
    event: &AuditEvent,
    controller: Controller,
    tenures: &[Tenure],
    inputs: &Inputs,
    rules: &Rules,
) -> Option<Actor> {
    let component = rules.by_program(event.program())?;
    let at = event.request_received_timestamp;
    let of_component = || {
        inputs
            .processes
            .iter()
            .filter(|process| process.component == component.name)
    };
    let mut alive: Vec<_> = of_component().filter(|process| alive_at(process, at)).collect();

    if alive.is_empty() {
        alive = of_component()
            .filter(|process| alive_at(process, at - IN_FLIGHT))
            .collect();
    }

    if alive.len() > 1 {
        let holds = |process: &&ProcessSpan| {
            tenures.iter().any(|tenure| {
                Some(tenure.lease) == rules.governing(controller, process)
                    && tenure.actor.names.len() == 1
                    && tenure.actor.names.contains(&process.process)
                    && tenure.contains(at)
            })
        };

        let holders: Vec<_> = alive.iter().copied().filter(holds).collect();
        if holders.len() == 1 {
            alive = holders;
        }
    }

    Some(Actor::one_of(&alive, &component.name, rules))
}

pub(super) fn alive_at(process: &ProcessSpan, at: Timestamp) -> bool {
    process.started <= at && process.ended.is_none_or(|ended| at <= ended)
}

#[cfg(test)]
mod tests {
    use outrigger_cluster_harness::audit::ObjectRef;
    use outrigger_cluster_harness::leases::Lease;

    use super::*;
    use crate::rules::Component;
    use crate::samples::{self, at, call, process, tenure};

    #[test]
    fn load_balancer_and_security_group_actions_belong_to_service_reads_included() {
        for (service, action) in [
            ("elasticloadbalancing", "DescribeLoadBalancers"),
            ("elasticloadbalancing", "ModifyLoadBalancerAttributes"),
            ("ec2", "DescribeSecurityGroups"),
            ("ec2", "AuthorizeSecurityGroupIngress"),
        ] {
            assert_eq!(
                of_aws_call(&call(service, action, &[])),
                Some(Controller::Service),
                "{action}"
            );
        }
        assert_eq!(
            of_aws_call(&call("ec2", "CreateTags", &[("ResourceId.1", "sg-1")])),
            Some(Controller::Service)
        );
    }

    #[test]
    fn shared_reads_and_probes_belong_to_nobody() {
        for action in [
            "DescribeInstances",
            "DescribeSubnets",
            "DescribeAvailabilityZones",
            "DescribeRouteTables",
        ] {
            assert_eq!(of_aws_call(&call("ec2", action, &[])), None, "{action}");
        }
        assert_eq!(
            of_aws_call(&call("ec2", "CreateTags", &[("ResourceId.1", "i-1")])),
            None
        );
        let probe = AwsCall {
            preflight: true,
            ..call("elasticloadbalancing", "DescribeLoadBalancers", &[])
        };
        assert_eq!(of_aws_call(&probe), None);
    }

    #[test]
    fn routes_belong_to_route() {
        assert_eq!(of_aws_call(&call("ec2", "CreateRoute", &[])), Some(Controller::Route));
        let check = call("ec2", "ModifyInstanceAttribute", &[("SourceDestCheck.Value", "false")]);
        assert_eq!(of_aws_call(&check), Some(Controller::Route));
        let other = call("ec2", "ModifyInstanceAttribute", &[("InstanceType.Value", "m5.large")]);
        assert_eq!(of_aws_call(&other), None);
    }

    #[test]
    fn actors_may_be_the_same_if_they_share_a_name() {
        let [a, b, both] = [&["a"][..], &["b"], &["b", "a"]].map(|names| samples::actor(names, Side::New));
        assert!(!a.may_be(&b) && a.may_be(&both) && both.may_be(&b) && a.may_be(&a));
        assert_eq!(both.label(), "a or b");
    }

    fn write(agent: &str, verb: &str, resource: &str, second: i64) -> AuditEvent {
        AuditEvent {
            stage: "ResponseComplete".into(),
            verb: verb.into(),
            user_agent: agent.into(),
            object_ref: ObjectRef {
                resource: resource.into(),
                name: "x".into(),
                ..ObjectRef::default()
            },
            request_received_timestamp: at(second),
            stage_timestamp: at(second),
            ..AuditEvent::default()
        }
    }

    const OURS: &str = "outrigger-manager/0.1.0";

    #[test]
    fn a_write_belongs_to_the_controller_that_the_client_names() {
        let of = |client: &str, verb: &str, resource: &str| {
            of_api_write(&write(&format!("{OURS} {client}"), verb, resource, 0))
        };
        let lifecycle = Some(Controller::NodeLifecycle);
        assert_eq!(of("service-controller", "patch", "services"), Some(Controller::Service));
        assert_eq!(
            of("service-lb-controller", "create", "events"),
            Some(Controller::Service)
        );
        assert_eq!(of("route-controller", "patch", "nodes"), Some(Controller::Route));
        assert_eq!(of("node-route-controller", "patch", "nodes"), Some(Controller::Route));
        assert_eq!(of("cloud-node-lifecycle-controller", "patch", "nodes"), lifecycle);
        assert_eq!(of("node-controller", "delete", "nodes"), lifecycle);
        assert_eq!(of("node-controller", "patch", "nodes"), None);
        assert_eq!(of("node-controller", "delete", "pods"), None);
        assert_eq!(of("service-controller", "get", "services"), None, "a read");
        assert_eq!(of("other", "patch", "services"), None);
    }

    #[test]
    fn a_write_to_a_service_by_an_unknown_client_of_a_known_program_is_overlooked() {
        let rules = Rules::new(Component::outrigger_manager());
        let overlooked =
            |agent: &str, verb: &str, resource: &str| is_overlooked(&write(agent, verb, resource, 0), &rules);
        let unknown = format!("{OURS} other");
        assert!(overlooked(&unknown, "patch", "services"));
        assert!(!overlooked(&unknown, "get", "services"));
        assert!(!overlooked(&unknown, "patch", "nodes"));
        assert!(!overlooked(&format!("{OURS} service-controller"), "patch", "services"));
        assert!(!overlooked("kubectl/v1.26 other", "patch", "services"));
    }

    #[test]
    fn the_writer_is_alive_or_just_ended_and_of_several_the_holder_of_the_lease() {
        let rules = Rules::new(Component::outrigger_manager());
        let ours = "outrigger-manager";
        let mut inputs = Inputs {
            processes: vec![
                process("a", ours, &["--migration=prod"], 10, Some(20)),
                process("b", ours, &["--migration=prod"], 30, Some(40)),
                process("kcm", "kube-controller-manager", &[], 0, None),
            ],
            ..Inputs::default()
        };
        let writer = |inputs: &Inputs, second, tenures: &[Tenure]| {
            let event = write(&format!("{OURS} service-controller"), "patch", "services", second);
            writer(&event, Controller::Service, tenures, inputs, &rules).map(|actor| actor.label())
        };
        let label = |text: &str| Some(text.to_owned());
        for second in [10, 15, 20, 21] {
            assert_eq!(writer(&inputs, second, &[]), label("a"), "{second}");
        }
        for second in [9, 22, 29] {
            let unknown = label("outrigger-manager (no known process)");
            assert_eq!(writer(&inputs, second, &[]), unknown, "{second}");
        }

        inputs.processes[1].started = at(15);
        let held = tenure(Lease::M, "b", Side::New, (16, 19));
        assert_eq!(writer(&inputs, 17, &[]), label("a or b"));
        assert_eq!(writer(&inputs, 17, std::slice::from_ref(&held)), label("b"));
        assert_eq!(
            writer(&inputs, 19, std::slice::from_ref(&held)),
            label("a or b"),
            "later"
        );
        let main = tenure(Lease::C, "b", Side::New, (16, 19));
        assert_eq!(
            writer(&inputs, 17, &[main]),
            label("a or b"),
            "C guards another controller"
        );
        let either = Tenure {
            actor: samples::actor(&["a", "b"], Side::New),
            ..held
        };
        assert_eq!(writer(&inputs, 17, &[either]), label("a or b"));
    }

    #[test]
    fn the_process_behind_an_access_key_is_known_by_its_name() {
        let inputs = Inputs {
            processes: vec![process("x", "outrigger-manager", &[], 0, None)],
            ..Inputs::default()
        };
        let rules = Rules::new(Component::outrigger_manager());
        let of = |caller_name: &str| {
            let call = AwsCall {
                caller: caller_name.into(),
                ..call("ec2", "CreateRoute", &[])
            };
            caller(&call, &inputs, &rules)
        };
        assert_eq!(
            (of("x").side, of("x").component.as_str()),
            (Side::New, "outrigger-manager")
        );
        assert_eq!((of("y").side, of("y").label()), (Side::Unknown, "y".to_owned()));
    }
}
