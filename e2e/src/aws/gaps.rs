//! Where moto 5.2 is not AWS, and what is done about it. Each row was needed by a real controller.
//!
//! | action | moto | here |
//! |---|---|---|
//! | EC2 DescribeInstanceTopology | missing | an empty set, as for types without topology |
//! | EC2 DescribeNetworkInterfaces | fails on the filter `attachment.status` | the filter is applied to the answer |
//! | EC2 DescribeRouteTables | a route to a terminated instance stays active | a blackhole to its interface |
//! | ELB DescribeLoadBalancers | no health check before one is configured | AWS's default |
//! | ELB DescribeLoadBalancers | a listener's instance protocol is its own protocol | the one it was created with |
//! | ELB DeleteLoadBalancerListeners | a list of ports removes one and doubles others | one call for each port |
//!
//! Not here yet: the gaps of ELBv2 (network load balancers), which nothing in this crate uses so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::query::{Parameters, Query};
use super::service::Service;
use super::xml::{Element, XmlError};

/// What is to be done with a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Forward these, one after the other; the last answer, or the first error, is the answer.
    Forward(Vec<Query>),
    /// Answer with this body; moto does not know the action.
    Answer(String),
}

/// The gaps, and what must be remembered to fill them.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Instance protocol by load balancer and port, where the creator named one.
    protocols: Mutex<BTreeMap<(String, String), String>>,
    /// Instances that are terminated.
    terminated: Mutex<BTreeSet<String>>,
}

impl Gaps {
    /// What moto is asked instead of `query`.
    pub(super) fn plan(&self, service: &Service, query: Query) -> Plan {
        match (service, query.action.as_str()) {
            (Service::Ec2, "DescribeInstanceTopology") => Plan::Answer(empty_topology(service)),
            (Service::Ec2, "DescribeNetworkInterfaces") => Plan::Forward(vec![without_attachment_status(query)]),
            (Service::Elb, "DeleteLoadBalancerListeners") => Plan::Forward(one_port_each(query)),
            _ => Plan::Forward(vec![query]),
        }
    }

    /// These instances are terminated.
    pub(super) fn terminated(&self, ids: &[&str]) {
        let mut terminated = self.terminated.lock().unwrap_or_else(PoisonError::into_inner);
        terminated.extend(ids.iter().map(|id| (*id).to_owned()));
    }

    /// The body to answer `query` with, where moto's is not right; called for good answers only.
    pub(super) fn correct(&self, service: &Service, query: &Query, body: &str) -> Result<Option<String>, XmlError> {
        match (service, query.action.as_str()) {
            (Service::Ec2, "DescribeNetworkInterfaces") => {
                let filters = query.parameters.filters();
                let Some((_, wanted)) = filters.iter().find(|(name, _)| *name == ATTACHMENT_STATUS) else {
                    return Ok(None);
                };
                let mut answer = Element::parse(body)?;
                keep_attachments(&mut answer, wanted);
                Ok(Some(answer.document()))
            }
            (Service::Ec2, "DescribeRouteTables") => {
                let terminated = self.terminated.lock().unwrap_or_else(PoisonError::into_inner);
                if terminated.is_empty() {
                    return Ok(None);
                }
                let mut answer = Element::parse(body)?;
                if let Some(tables) = answer.find_mut("routeTableSet") {
                    blackholes(tables, &terminated);
                }
                Ok(Some(answer.document()))
            }
            (Service::Elb, "CreateLoadBalancer" | "CreateLoadBalancerListeners") => {
                self.remember_protocols(&query.parameters);
                Ok(None)
            }
            (Service::Elb, "DescribeLoadBalancers") => {
                let mut answer = Element::parse(body)?;
                self.complete_load_balancers(&mut answer);
                Ok(Some(answer.document()))
            }
            _ => Ok(None),
        }
    }

    fn remember_protocols(&self, parameters: &Parameters) {
        let balancer = parameters.get("LoadBalancerName").unwrap_or_default();
        let mut protocols = self.protocols.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 1.. {
            let field = |name: &str| parameters.get(&format!("Listeners.member.{number}.{name}"));
            let Some(port) = field("LoadBalancerPort") else { break };
            let key = (balancer.to_owned(), port.to_owned());
            match field("InstanceProtocol") {
                Some(protocol) => protocols.insert(key, protocol.to_uppercase()),
                None => protocols.remove(&key),
            };
        }
    }

    fn complete_load_balancers(&self, answer: &mut Element) {
        let protocols = self.protocols.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(list) = answer.find_mut("LoadBalancerDescriptions") else {
            return;
        };
        for balancer in &mut list.children {
            let name = balancer.value("LoadBalancerName").to_owned();
            if let Some(listeners) = balancer.child_mut("ListenerDescriptions") {
                for listener in listeners
                    .children
                    .iter_mut()
                    .filter_map(|member| member.child_mut("Listener"))
                {
                    let key = (name.clone(), listener.value("LoadBalancerPort").to_owned());
                    let protocol = protocols
                        .get(&key)
                        .cloned()
                        .unwrap_or_else(|| listener.value("Protocol").to_uppercase());
                    set(listener, Element::text("InstanceProtocol", protocol));
                }
            }
            if balancer
                .at(&["HealthCheck", "Target"])
                .is_none_or(|target| target.text.is_empty())
            {
                let check = default_health_check(balancer);
                set(balancer, check);
            }
        }
    }
}

const ATTACHMENT_STATUS: &str = "attachment.status";

fn empty_topology(service: &Service) -> String {
    let mut answer = Element::parent(
        "DescribeInstanceTopologyResponse",
        [Element::text("requestId", "gap"), Element::parent("instanceSet", [])],
    );
    answer.attributes.push(("xmlns".to_owned(), service.namespace()));
    answer.document()
}

/// moto knows no such filter, so it is left out and the others are numbered anew.
fn without_attachment_status(query: Query) -> Query {
    let mut pairs: Vec<(String, String)> = query
        .parameters
        .iter()
        .filter(|(key, _)| !key.starts_with("Filter."))
        .map(own)
        .collect();
    let kept = query
        .parameters
        .filters()
        .into_iter()
        .filter(|(name, _)| *name != ATTACHMENT_STATUS);
    for (index, (name, values)) in kept.enumerate() {
        let number = index + 1;
        pairs.push((format!("Filter.{number}.Name"), name.to_owned()));
        let numbered = values.iter().enumerate();
        pairs.extend(
            numbered.map(|(index, value)| (format!("Filter.{number}.Value.{}", index + 1), (*value).to_owned())),
        );
    }
    Query {
        parameters: pairs.into_iter().collect(),
        ..query
    }
}

fn own((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn keep_attachments(answer: &mut Element, wanted: &[&str]) {
    if let Some(set) = answer.find_mut("networkInterfaceSet") {
        set.children.retain(|interface| {
            let status = interface
                .at(&["attachment", "status"])
                .map_or("", |status| status.text.as_str());
            wanted.contains(&status)
        });
    }
}

/// What is left of a route to an instance that is terminated.
fn blackholes(tables: &mut Element, terminated: &BTreeSet<String>) {
    let routes = tables
        .children
        .iter_mut()
        .filter_map(|table| table.child_mut("routeSet"));
    for route in routes.flat_map(|routes| &mut routes.children) {
        if terminated.contains(route.value("instanceId")) {
            route.children.retain(|field| field.name != "instanceId");
            set(route, Element::text("networkInterfaceId", "eni-gone"));
            set(route, Element::text("state", "blackhole"));
        }
    }
}

fn one_port_each(query: Query) -> Vec<Query> {
    const PORTS: &str = "LoadBalancerPorts.member";
    let ports = query.parameters.list(PORTS);
    if ports.len() < 2 {
        return vec![query];
    }
    let others = || {
        query
            .parameters
            .iter()
            .filter(|(key, _)| !key.starts_with(PORTS))
            .map(own)
    };
    let only = |port: &str| (format!("{PORTS}.1"), port.to_owned());
    let single = |port: &&str| Query {
        parameters: others().chain([only(port)]).collect(),
        ..query.clone()
    };
    ports.iter().map(single).collect()
}

/// AWS gives a new classic load balancer a TCP check on the instance port of its first listener, every 30 s with 5 s to
/// answer, 2 failures to go and 10 successes to come back.
fn default_health_check(balancer: &Element) -> Element {
    let first = balancer
        .child("ListenerDescriptions")
        .and_then(|listeners| listeners.children.first());
    let port = first
        .and_then(|member| member.child("Listener"))
        .map_or("", |listener| listener.value("InstancePort"));
    Element::parent(
        "HealthCheck",
        [
            Element::text("Target", format!("TCP:{port}")),
            Element::text("Interval", "30"),
            Element::text("Timeout", "5"),
            Element::text("UnhealthyThreshold", "2"),
            Element::text("HealthyThreshold", "10"),
        ],
    )
}

/// Replaces the child of the same name, or adds it.
fn set(parent: &mut Element, child: Element) {
    match parent.child_mut(&child.name) {
        Some(existing) => *existing = child,
        None => parent.children.push(child),
    }
}

#[cfg(test)]
mod tests {
    use super::{Gaps, Plan};
    use crate::aws::query::Query;
    use crate::aws::service::Service;
    use crate::aws::xml::Element;

    fn query(form: &str) -> Query {
        Query::parse(form.as_bytes())
    }

    #[test]
    fn topology_is_an_empty_set() {
        let plan = Gaps::default().plan(
            &Service::Ec2,
            query("Action=DescribeInstanceTopology&Version=2016-11-15"),
        );
        let Plan::Answer(body) = plan else { panic!("{plan:?}") };
        assert_eq!(
            Element::parse(&body)
                .expect("XML")
                .child("instanceSet")
                .map(|set| set.children.len()),
            Some(0)
        );
    }

    #[test]
    fn a_route_to_a_terminated_instance_is_a_blackhole_and_others_are_not() {
        let gaps = Gaps::default();
        gaps.terminated(&["i-1"]);
        let route = |id: &str| format!("<item><instanceId>{id}</instanceId><state>active</state></item>");
        let body = format!(
            "<R><routeTableSet><item><routeSet>{}{}</routeSet></item></routeTableSet></R>",
            route("i-1"),
            route("i-2")
        );
        let asked = query("Action=DescribeRouteTables&Version=2016-11-15");
        let answer = gaps
            .correct(&Service::Ec2, &asked, &body)
            .expect("XML")
            .expect("corrected");
        let answer = Element::parse(&answer).expect("XML");
        let routes = answer.find("routeSet").expect("there").children.clone();
        let seen: Vec<_> = routes
            .iter()
            .map(|r| (r.value("instanceId"), r.value("state")))
            .collect();
        assert_eq!(seen, [("", "blackhole"), ("i-2", "active")]);
    }

    #[test]
    fn listeners_are_deleted_one_port_at_a_time() {
        let form = "Action=DeleteLoadBalancerListeners&Version=2012-06-01&LoadBalancerName=a&LoadBalancerPorts.member.1=80&LoadBalancerPorts.member.2=443";
        let Plan::Forward(queries) = Gaps::default().plan(&Service::Elb, query(form)) else {
            panic!()
        };
        let ports: Vec<_> = queries
            .iter()
            .map(|query| query.parameters.list("LoadBalancerPorts.member"))
            .collect();
        assert_eq!(ports, [["80"], ["443"]]);
        assert!(
            queries
                .iter()
                .all(|query| query.parameters.get("LoadBalancerName") == Some("a"))
        );
    }

    #[test]
    fn interfaces_are_filtered_by_attachment_here() {
        let asked = query(
            "Action=DescribeNetworkInterfaces&Version=2016-11-15&Filter.1.Name=attachment.status&Filter.1.Value.1=attached&Filter.2.Name=private-ip-address&Filter.2.Value.1=10.0.0.1",
        );
        let gaps = Gaps::default();
        let Plan::Forward(queries) = gaps.plan(&Service::Ec2, asked.clone()) else {
            panic!()
        };
        assert_eq!(
            queries[0].parameters.filters(),
            [("private-ip-address", vec!["10.0.0.1"])]
        );
        let body = "<R><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><attachment><status>attached</status></attachment></item><item><networkInterfaceId>eni-2</networkInterfaceId></item></networkInterfaceSet></R>";
        let answer = gaps
            .correct(&Service::Ec2, &asked, body)
            .expect("XML")
            .expect("changed");
        let answer = Element::parse(&answer).expect("XML");
        let ids: Vec<_> = answer
            .items("networkInterfaceSet")
            .iter()
            .map(|item| item.value("networkInterfaceId"))
            .collect();
        assert_eq!(ids, ["eni-1"]);
    }

    #[test]
    fn a_load_balancer_gets_aws_default_health_check_and_its_instance_protocols() {
        let gaps = Gaps::default();
        let create = query(
            "Action=CreateLoadBalancer&Version=2012-06-01&LoadBalancerName=a&Listeners.member.1.LoadBalancerPort=443&Listeners.member.1.InstanceProtocol=tcp",
        );
        assert_eq!(gaps.correct(&Service::Elb, &create, "").expect("no XML read"), None);
        let body = "<R><LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><ListenerDescriptions>\
            <member><Listener><Protocol>SSL</Protocol><LoadBalancerPort>443</LoadBalancerPort><InstanceProtocol>SSL</InstanceProtocol><InstancePort>30443</InstancePort></Listener></member>\
            <member><Listener><Protocol>TCP</Protocol><LoadBalancerPort>80</LoadBalancerPort><InstancePort>30080</InstancePort></Listener></member>\
            </ListenerDescriptions></member></LoadBalancerDescriptions></R>";
        let describe = query("Action=DescribeLoadBalancers&Version=2012-06-01");
        let answer = gaps
            .correct(&Service::Elb, &describe, body)
            .expect("XML")
            .expect("changed");
        let answer = Element::parse(&answer).expect("XML");
        let balancer = &answer.items("LoadBalancerDescriptions")[0];
        assert_eq!(
            balancer
                .at(&["HealthCheck", "Target"])
                .map(|target| target.text.as_str()),
            Some("TCP:30443")
        );
        let protocols: Vec<_> = balancer
            .items("ListenerDescriptions")
            .iter()
            .map(|member| {
                member
                    .child("Listener")
                    .expect("a listener")
                    .value("InstanceProtocol")
                    .to_owned()
            })
            .collect();
        assert_eq!(protocols, ["TCP", "TCP"]);
    }

    #[test]
    fn a_configured_health_check_is_left_alone() {
        let body = "<R><LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><HealthCheck><Target>HTTP:1/x</Target></HealthCheck></member></LoadBalancerDescriptions></R>";
        let describe = query("Action=DescribeLoadBalancers&Version=2012-06-01");
        let answer = Gaps::default()
            .correct(&Service::Elb, &describe, body)
            .expect("XML")
            .expect("written");
        assert_eq!(
            Element::parse(&answer)
                .expect("XML")
                .find("Target")
                .map(|target| target.text.as_str()),
            Some("HTTP:1/x")
        );
    }
}
