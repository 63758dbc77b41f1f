//! ELB: classic load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_aws_quotas::Quotas;

use super::upstream::{Reply, Upstream, corrected, query, read, set, texts, without};
use crate::query::{Parameters, Query};
use crate::service::Service;
use crate::xml::{Element, XmlError};

/// The mode that AWS gives a load balancer that nobody told another.
const DESYNC: (&str, &str) = ("elb.http.desyncmitigationmode", "defensive");
/// AWS's draining timeout in seconds where none was set.
const DRAINING_TIMEOUT: &str = "300";
const SUBNETS_REFUSAL: &str = "InvalidConfigurationRequest";
const SUBNETS: &str = "Subnets.member";

/// State by load balancer and port.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Instance protocol by listener port, where the creator named one.
    protocols: BTreeMap<(String, String), String>,
    /// Policies by instance port.
    backends: BTreeMap<(String, String), Vec<String>>,
}

impl Memory {
    pub(super) async fn answer<U: Upstream>(&self, moto: &U, query: Query) -> Result<Reply, XmlError> {
        let elb = &Service::Elb;
        match query.action.as_str() {
            "AttachLoadBalancerToSubnets" => attach_subnets(moto, &query).await,
            "DeleteLoadBalancerListeners" => delete_listeners(moto, &query).await,
            "DetachLoadBalancerFromSubnets" => detach_subnets(moto, &query).await,
            "DescribeLoadBalancers" => corrected(moto, elb, &query, |answer| self.complete(answer)).await,
            "DescribeLoadBalancerAttributes" => corrected(moto, elb, &query, complete_attributes).await,
            _ => {
                let response = moto.ask(elb, &query).await;
                if response.status().is_success() {
                    self.remember(&query);
                }
                Ok(Reply::Moto(response))
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, query: &Query) {
        let name = query.parameters.get("LoadBalancerName").unwrap_or_default();
        let mut known = self.known();
        match query.action.as_str() {
            "CreateLoadBalancer" | "CreateLoadBalancerListeners" => known.remember_protocols(name, &query.parameters),
            "SetLoadBalancerPoliciesForBackendServer" => {
                let port = query.parameters.get("InstancePort").unwrap_or_default();
                let policies = query.parameters.list("PolicyNames.member");
                let policies = policies.into_iter().map(str::to_owned).collect();
                known.backends.insert((name.to_owned(), port.to_owned()), policies);
            }
            "DeleteLoadBalancer" => {
                known.protocols.retain(|(balancer, _), _| balancer != name);
                known.backends.retain(|(balancer, _), _| balancer != name);
            }
            _ => {}
        }
    }

    fn complete(&self, answer: &mut Element) {
        let known = self.known();
        let Some(list) = answer.find_mut("LoadBalancerDescriptions") else {
            return;
        };

        for balancer in &mut list.children {
            let name = balancer.value("LoadBalancerName").to_owned();
            known.complete_listeners(&name, balancer);
            known.complete_backends(&name, balancer);
            each_once(balancer);

            let target = balancer.at(&["HealthCheck", "Target"]);
            if target.is_none_or(|target| target.text.is_empty()) {
                let check = default_health_check(balancer);
                set(balancer, check);
            }
        }
    }
}

impl Known {
    fn remember_protocols(&mut self, balancer: &str, parameters: &Parameters) {
        for number in 1.. {
            let field = |name: &str| parameters.get(&format!("Listeners.member.{number}.{name}"));
            let Some(port) = field("LoadBalancerPort") else { break };
            let key = (balancer.to_owned(), port.to_owned());
            match field("InstanceProtocol") {
                Some(protocol) => self.protocols.insert(key, protocol.to_uppercase()),
                None => self.protocols.remove(&key),
            };
        }
    }

    fn complete_listeners(&self, name: &str, balancer: &mut Element) {
        let Some(listeners) = balancer.child_mut("ListenerDescriptions") else {
            return;
        };

        let listeners = listeners.children.iter_mut();
        for listener in listeners.filter_map(|member| member.child_mut("Listener")) {
            let key = (name.to_owned(), listener.value("LoadBalancerPort").to_owned());
            let own = || listener.value("Protocol").to_uppercase();
            let protocol = self.protocols.get(&key).cloned().unwrap_or_else(own);
            set(listener, Element::text("InstanceProtocol", protocol));
        }
    }

    fn complete_backends(&self, name: &str, balancer: &mut Element) {
        let here = self.backends.iter().filter(|((balancer, _), _)| balancer == name);
        let mut backends = Vec::new();
        let mut any = false;

        for ((_, port), policies) in here {
            any = true;
            if !policies.is_empty() {
                let names = policies.iter().map(|policy| Element::text("member", policy.as_str()));
                let fields = [
                    Element::text("InstancePort", port.as_str()),
                    Element::parent("PolicyNames", names),
                ];
                backends.push(Element::parent("member", fields));
            }
        }

        if any {
            set(balancer, Element::parent("BackendServerDescriptions", backends));
        }
    }
}

/// A port at a time; the last answer, or the first refusal, is the answer.
async fn delete_listeners<U: Upstream>(moto: &U, query: &Query) -> Result<Reply, XmlError> {
    let mut reply = None;
    for query in one_port_each(query) {
        match read(moto, &Service::Elb, &query).await? {
            Ok(answer) => reply = Some(Reply::from(&answer)),
            Err(refused) => return Ok(refused),
        }
    }

    Ok(reply.unwrap_or_else(|| Reply::Refused("ValidationError", "no port".to_owned())))
}

fn one_port_each(query: &Query) -> Vec<Query> {
    const PORTS: &str = "LoadBalancerPorts.member";

    let ports = query.parameters.list(PORTS);
    if ports.len() < 2 {
        return vec![query.clone()];
    }

    let others = without(query, &[PORTS]);
    let single = |port: &&str| {
        let only = [("LoadBalancerPorts.member.1", *port)];
        Query {
            parameters: others.parameters.iter().chain(only).collect(),
            ..others.clone()
        }
    };

    ports.iter().map(single).collect()
}

fn each_once(balancer: &mut Element) {
    let mut seen = BTreeSet::new();
    if let Some(instances) = balancer.child_mut("Instances") {
        let new = |item: &Element| seen.insert(item.value("InstanceId").to_owned());
        instances.children.retain(new);
    }
}

/// AWS tells a draining timeout even where draining is off, and the desync mode of every load balancer.
fn complete_attributes(answer: &mut Element) {
    if let Some(draining) = answer.find_mut("ConnectionDraining")
        && draining.value("Timeout").is_empty()
    {
        set(draining, Element::text("Timeout", DRAINING_TIMEOUT));
    }
    if let Some(attributes) = answer.find_mut("LoadBalancerAttributes") {
        let (key, value) = DESYNC;
        let known = attributes.child("AdditionalAttributes").cloned().unwrap_or_default();
        let others = known.children.into_iter().filter(|item| item.value("Key") != key);
        let desync = Element::parent("member", [Element::text("Key", key), Element::text("Value", value)]);
        let all = others.chain([desync]);
        set(attributes, Element::parent("AdditionalAttributes", all));
    }
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

/// AWS's refusal of instances that are too many together with those of the load balancer.
pub(super) async fn beyond_quota<U: Upstream>(
    moto: &U,
    asked: &Query,
    quotas: &Quotas,
) -> Result<Option<Reply>, XmlError> {
    let balancer = described(moto, asked).await?;
    let now = balancer.list("Instances").iter().map(|item| item.value("InstanceId"));
    let named = asked.parameters.iter().filter(|(key, _)| key.ends_with(".InstanceId"));
    let all: BTreeSet<&str> = now.chain(named.map(|(_, id)| id)).collect();

    Ok(quotas.check_instances(all.len()).err().map(Reply::from))
}

/// Attaches subnets, unless one would stand in the zone of another.
async fn attach_subnets<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let mut subnets = attached(moto, asked).await?;
    subnets.extend(asked.parameters.list(SUBNETS).into_iter().map(str::to_owned));

    let zones = zones(moto, &subnets).await?;
    if zones.iter().collect::<BTreeSet<_>>().len() < zones.len() {
        let message = "a load balancer stands in one subnet of a zone only".to_owned();
        return Ok(Reply::Refused(SUBNETS_REFUSAL, message));
    }

    Ok(Reply::Moto(moto.ask(&Service::Elb, asked).await))
}

/// Detaches subnets, unless none would be left.
async fn detach_subnets<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let mut subnets = attached(moto, asked).await?;
    let any = !subnets.is_empty();
    subnets.retain(|subnet| !asked.parameters.list(SUBNETS).contains(&subnet.as_str()));
    if any && subnets.is_empty() {
        let message = "a load balancer has to stay in one subnet at least".to_owned();
        return Ok(Reply::Refused(SUBNETS_REFUSAL, message));
    }

    Ok(Reply::Moto(moto.ask(&Service::Elb, asked).await))
}

async fn attached<U: Upstream>(moto: &U, asked: &Query) -> Result<BTreeSet<String>, XmlError> {
    let balancer = described(moto, asked).await?;
    Ok(texts(balancer.list("Subnets")).into_iter().collect())
}

/// The load balancer that a call names; an empty one if there is none.
async fn described<U: Upstream>(moto: &U, asked: &Query) -> Result<Element, XmlError> {
    let name = asked.parameters.get("LoadBalancerName").unwrap_or_default();
    let parameters = [("LoadBalancerNames.member.1", name)];
    let describe = query(&Service::Elb, "DescribeLoadBalancers", &parameters);
    let answer = read(moto, &Service::Elb, &describe).await?.unwrap_or_default();
    Ok(answer
        .items("LoadBalancerDescriptions")
        .first()
        .cloned()
        .unwrap_or_default())
}

/// The zone of each subnet that there is.
async fn zones<U: Upstream>(moto: &U, subnets: &BTreeSet<String>) -> Result<Vec<String>, XmlError> {
    let all = query(&Service::Ec2, "DescribeSubnets", &[]);
    let answer = read(moto, &Service::Ec2, &all).await?.unwrap_or_default();
    let listed = answer.items("subnetSet").iter();
    let wanted = listed.filter(|subnet| subnets.contains(subnet.value("subnetId")));
    Ok(wanted
        .map(|subnet| subnet.value("availabilityZone").to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Script, body};
    use super::{Memory, one_port_each};
    use crate::query::Query;
    use crate::xml::Element;

    fn query(form: &str) -> Query {
        Query::parse(form.as_bytes())
    }

    async fn described(memory: &Memory, answer: &str) -> Element {
        let describe = query("Action=DescribeLoadBalancers&Version=2012-06-01");
        let answer = body(memory.answer(&Script::answering(answer), describe).await);
        answer.items("LoadBalancerDescriptions")[0].clone()
    }

    #[test]
    fn listeners_are_deleted_one_port_at_a_time() {
        let form = "Action=DeleteLoadBalancerListeners&Version=2012-06-01&LoadBalancerName=a&LoadBalancerPorts.member.1=80&LoadBalancerPorts.member.2=443";
        let queries = one_port_each(&query(form));
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

    #[tokio::test]
    async fn a_load_balancer_gets_aws_default_health_check_and_its_instance_protocols() {
        let memory = Memory::default();
        let create = query(
            "Action=CreateLoadBalancer&Version=2012-06-01&LoadBalancerName=a&Listeners.member.1.LoadBalancerPort=443&Listeners.member.1.InstanceProtocol=tcp",
        );
        body(memory.answer(&Script::answering("<R/>"), create).await);
        let answer = "<R><LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><ListenerDescriptions>\
            <member><Listener><Protocol>SSL</Protocol><LoadBalancerPort>443</LoadBalancerPort><InstanceProtocol>SSL</InstanceProtocol><InstancePort>30443</InstancePort></Listener></member>\
            <member><Listener><Protocol>TCP</Protocol><LoadBalancerPort>80</LoadBalancerPort><InstancePort>30080</InstancePort></Listener></member>\
            </ListenerDescriptions></member></LoadBalancerDescriptions></R>";
        let balancer = described(&memory, answer).await;
        let target = balancer.at(&["HealthCheck", "Target"]);
        assert_eq!(target.map(|target| target.text.as_str()), Some("TCP:30443"));
        let listeners = balancer.items("ListenerDescriptions").iter();
        let protocols: Vec<_> = listeners
            .filter_map(|member| member.child("Listener"))
            .map(|listener| listener.value("InstanceProtocol").to_owned())
            .collect();
        assert_eq!(protocols, ["TCP", "TCP"]);
    }

    #[tokio::test]
    async fn a_configured_health_check_is_left_alone_and_an_instance_is_listed_once() {
        let answer = "<R><LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><HealthCheck><Target>HTTP:1/x</Target></HealthCheck>\
            <Instances><member><InstanceId>i-1</InstanceId></member><member><InstanceId>i-1</InstanceId></member></Instances></member></LoadBalancerDescriptions></R>";
        let balancer = described(&Memory::default(), answer).await;
        let target = balancer.at(&["HealthCheck", "Target"]);
        assert_eq!(target.map(|target| target.text.as_str()), Some("HTTP:1/x"));
        assert_eq!(balancer.items("Instances").len(), 1);
    }

    #[tokio::test]
    async fn policies_of_instance_ports_are_kept_until_they_are_taken_off() {
        let memory = Memory::default();
        let answer = "<R><LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><BackendServerDescriptions/></member></LoadBalancerDescriptions></R>";
        let form =
            "Action=SetLoadBalancerPoliciesForBackendServer&Version=2012-06-01&LoadBalancerName=a&InstancePort=30081";
        let policies = |balancer: &Element| {
            let backends = balancer.items("BackendServerDescriptions").iter();
            backends
                .map(|backend| {
                    (
                        backend.value("InstancePort").to_owned(),
                        backend.items("PolicyNames").len(),
                    )
                })
                .collect::<Vec<_>>()
        };
        let moto = Script::answering("<R/>");
        body(
            memory
                .answer(&moto, query(&format!("{form}&PolicyNames.member.1=p")))
                .await,
        );
        assert_eq!(policies(&described(&memory, answer).await), [("30081".to_owned(), 1)]);
        body(memory.answer(&moto, query(&format!("{form}&PolicyNames="))).await);
        assert!(policies(&described(&memory, answer).await).is_empty());
    }

    #[tokio::test]
    async fn attributes_are_told_as_aws_tells_them() {
        let member = "<member><Key>elb.http.desyncmitigationmode</Key><Value>defensive</Value></member>";
        let answer = format!(
            "<R><LoadBalancerAttributes><ConnectionDraining><Enabled>false</Enabled></ConnectionDraining><AdditionalAttributes>{member}{member}</AdditionalAttributes></LoadBalancerAttributes></R>"
        );
        let describe = query("Action=DescribeLoadBalancerAttributes&Version=2012-06-01&LoadBalancerName=a");
        let answer = body(Memory::default().answer(&Script::answering(&answer), describe).await);
        assert_eq!(answer.items("AdditionalAttributes").len(), 1);
        let draining = answer.find("ConnectionDraining").expect("there");
        assert_eq!(draining.value("Timeout"), "300");
    }
}

#[cfg(test)]
mod tests_of_subnets {
    use super::super::Reply;
    use super::super::fixture::Script;
    use super::{attach_subnets, detach_subnets};
    use crate::query::Query;

    const BALANCER: &str = "<R><LoadBalancerDescriptions><member><Subnets><member>a1</member><member>b1</member></Subnets></member></LoadBalancerDescriptions></R>";
    const SUBNETS: &str = "<R><subnetSet>\
        <item><subnetId>a1</subnetId><availabilityZone>a</availabilityZone></item>\
        <item><subnetId>a2</subnetId><availabilityZone>a</availabilityZone></item>\
        <item><subnetId>b1</subnetId><availabilityZone>b</availabilityZone></item>\
        <item><subnetId>c1</subnetId><availabilityZone>c</availabilityZone></item></subnetSet></R>";

    async fn taken(action: &'static str, subnets: &[&str]) -> bool {
        let moto = Script::default()
            .on("DescribeLoadBalancers", BALANCER)
            .on("DescribeSubnets", SUBNETS)
            .on(action, "<R/>");
        let listed = subnets.iter().enumerate();
        let listed: String = listed
            .map(|(n, id)| format!("&Subnets.member.{}={id}", n + 1))
            .collect();
        let form = format!("Action={action}&Version=2012-06-01&LoadBalancerName=lb{listed}");
        let asked = Query::parse(form.as_bytes());
        let reply = if action.starts_with("Attach") {
            attach_subnets(&moto, &asked).await
        } else {
            detach_subnets(&moto, &asked).await
        };
        let taken = moto.asked().iter().any(|query| query.action == action);
        assert_eq!(taken, !matches!(reply.expect("XML"), Reply::Refused(..)));
        taken
    }

    #[tokio::test]
    async fn one_subnet_in_a_zone_and_one_at_least() {
        let attach = "AttachLoadBalancerToSubnets";
        assert!(taken(attach, &["c1"]).await);
        assert!(taken(attach, &["a1"]).await, "it is there already");
        assert!(!taken(attach, &["a2"]).await);
        assert!(!taken(attach, &["c1", "a2"]).await);
        let detach = "DetachLoadBalancerFromSubnets";
        assert!(taken(detach, &["a1"]).await);
        assert!(!taken(detach, &["b1", "a1"]).await);
    }
}
