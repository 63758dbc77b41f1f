//! ELBv2: network load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::upstream::{Answered, Reply, Upstream, corrected, query, read, set, without};
use crate::query::{Parameters, Query};
use crate::service::{REGION, Service};
use crate::xml::{Element, XmlError};

const V2: &Service = &Service::ElbV2;
/// Attributes of network load balancers that AWS lists and moto does not.
const BALANCER_ATTRIBUTES: [(&str, &str); 1] = [("access_logs.s3.enabled", "false")];
/// Attributes of target groups of instances that AWS lists and moto does not.
const GROUP_ATTRIBUTES: [(&str, &str); 2] = [
    ("preserve_client_ip.enabled", "true"),
    ("proxy_protocol_v2.enabled", "false"),
];
/// A target group that is created again must have the same of these. Request and answer use the same names.
const GROUP_SETTINGS: [&str; 10] = [
    "Protocol",
    "Port",
    "VpcId",
    "TargetType",
    "HealthCheckProtocol",
    "HealthCheckPort",
    "HealthCheckPath",
    "HealthCheckIntervalSeconds",
    "HealthyThresholdCount",
    "UnhealthyThresholdCount",
];

/// Listeners by ARN, as far as moto does not know them.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<String, Listener>>);

#[derive(Debug, Default, Clone)]
struct Listener {
    balancer: String,
    /// Target groups of the default actions.
    groups: Vec<String>,
    /// From ModifyListener.
    protocol: Option<String>,
    certificates: Option<Vec<String>>,
}

impl Memory {
    pub(super) async fn answer<U: Upstream>(&self, moto: &U, query: Query) -> Result<Reply, XmlError> {
        match query.action.as_str() {
            "CreateLoadBalancer" => create_load_balancer(moto, &query).await,
            "DescribeLoadBalancers" => corrected(moto, V2, &query, complete_balancers).await,
            "DescribeLoadBalancerAttributes" => {
                corrected(moto, V2, &query, |answer| add_attributes(answer, &BALANCER_ATTRIBUTES)).await
            }
            "DeleteLoadBalancer" => self.delete(moto, &query).await,
            "CreateListener" => self.create_listener(moto, &query).await,
            "ModifyListener" => self.modify_listener(moto, &query).await,
            "DescribeListeners" => corrected(moto, V2, &query, |answer| self.complete_listeners(answer)).await,
            "DeleteListener" => self.delete(moto, &query).await,
            "CreateTargetGroup" => create_target_group(moto, &query).await,
            "DescribeTargetGroups" => self.describe_target_groups(moto, &query).await,
            "DescribeTargetGroupAttributes" => {
                corrected(moto, V2, &query, |answer| add_attributes(answer, &GROUP_ATTRIBUTES)).await
            }
            _ => Ok(Reply::Moto(moto.ask(V2, &query).await)),
        }
    }

    /// The load balancer of a listener.
    pub(super) fn balancer_of(&self, listener: &str) -> Option<String> {
        self.listeners().get(listener).map(|known| known.balancer.clone())
    }

    /// The load balancers with a listener that forwards to a target group.
    pub(super) fn balancers_of(&self, group: &str) -> BTreeSet<String> {
        let known = self.listeners();
        let users = known
            .values()
            .filter(|listener| listener.groups.iter().any(|arn| arn == group));
        users.map(|listener| listener.balancer.clone()).collect()
    }

    /// The target groups of a load balancer's listeners, without those of the listener `except`.
    pub(super) fn groups_of_others(&self, balancer: &str, except: Option<&str>) -> BTreeSet<String> {
        let known = self.listeners();
        let others = known
            .iter()
            .filter(|(arn, listener)| listener.balancer == balancer && except != Some(arn.as_str()));
        others.flat_map(|(_, listener)| listener.groups.clone()).collect()
    }

    fn listeners(&self) -> MutexGuard<'_, BTreeMap<String, Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn delete<U: Upstream>(&self, moto: &U, query: &Query) -> Result<Reply, XmlError> {
        let response = moto.ask(V2, query).await;
        if response.status().is_success() {
            let balancer = query.parameters.get("LoadBalancerArn");
            let listener = query.parameters.get("ListenerArn");
            self.listeners()
                .retain(|arn, kept| Some(arn.as_str()) != listener && Some(kept.balancer.as_str()) != balancer);
        }

        Ok(Reply::Moto(response))
    }

    async fn create_listener<U: Upstream>(&self, moto: &U, query: &Query) -> Result<Reply, XmlError> {
        let balancer = query.parameters.get("LoadBalancerArn").unwrap_or_default();
        let live = match listeners(moto, "LoadBalancerArn", balancer).await? {
            Ok(live) => live,
            Err(refused) => return Ok(refused),
        };
        let port = query.parameters.get("Port").unwrap_or_default();
        let taken = live.items("Listeners").iter().any(|there| there.value("Port") == port);
        if taken {
            let message = "A listener already exists on this port for this load balancer".to_owned();
            return Ok(Reply::Refused("DuplicateListener", message));
        }

        let protocol = query.parameters.get("Protocol").unwrap_or_default();
        if let Some(refused) = unfit(moto, protocol, query).await? {
            return Ok(refused);
        }

        corrected(moto, V2, query, |answer| {
            if let [made] = answer.items("Listeners") {
                let listener = Listener {
                    balancer: balancer.to_owned(),
                    groups: groups_of(query),
                    ..Listener::default()
                };
                self.listeners().insert(made.value("ListenerArn").to_owned(), listener);
            }
            self.complete_listeners(answer);
        })
        .await
    }

    async fn modify_listener<U: Upstream>(&self, moto: &U, query: &Query) -> Result<Reply, XmlError> {
        let arn = query.parameters.get("ListenerArn").unwrap_or_default();
        let mut live = match listeners(moto, "ListenerArns.member.1", arn).await? {
            Ok(live) => live,
            Err(refused) => return Ok(refused),
        };
        self.complete_listeners(&mut live);

        let there = live.items("Listeners").first().cloned().unwrap_or_default();
        let wanted = query.parameters.get("Protocol");
        let protocol = wanted.unwrap_or_else(|| there.value("Protocol")).to_owned();
        let certificates = match (
            protocol.as_str(),
            query.parameters.get("Certificates.member.1.CertificateArn"),
        ) {
            ("TLS", Some(certificate)) => vec![certificate.to_owned()],
            ("TLS", None) => certificates_of(&there),
            _ => Vec::new(),
        };
        if protocol == "TLS" && certificates.is_empty() {
            let message = "A certificate must be specified for TLS listeners".to_owned();
            return Ok(Reply::Refused("ValidationError", message));
        }
        if let Some(refused) = unfit(moto, &protocol, query).await? {
            return Ok(refused);
        }

        corrected(moto, V2, &without(query, &["Protocol", "Certificates"]), |answer| {
            let mut listeners = self.listeners();
            let listener = listeners.entry(arn.to_owned()).or_default();
            there.value("LoadBalancerArn").clone_into(&mut listener.balancer);
            listener.protocol = Some(protocol);
            listener.certificates = Some(certificates);

            let groups = groups_of(query);
            if !groups.is_empty() {
                listener.groups = groups;
            }

            drop(listeners);
            self.complete_listeners(answer);
        })
        .await
    }

    fn complete_listeners(&self, answer: &mut Element) {
        let known = self.listeners();
        let Some(list) = answer.find_mut("Listeners") else {
            return;
        };

        for listener in &mut list.children {
            if let Some(known) = known.get(listener.value("ListenerArn")) {
                if let Some(protocol) = &known.protocol {
                    set(listener, Element::text("Protocol", protocol.as_str()));
                }
                if let Some(certificates) = &known.certificates {
                    let member =
                        |arn: &String| Element::parent("member", [Element::text("CertificateArn", arn.as_str())]);
                    let members: Vec<Element> = certificates.iter().map(member).collect();
                    set(listener, Element::parent("Certificates", members));
                }
            }

            let tls = listener.value("Protocol") == "TLS";
            listener.children.retain(|field| tls || field.name != "SslPolicy");
        }
    }

    /// Those of a load balancer are those of its listeners, and moto knows these better than the other way round.
    async fn describe_target_groups<U: Upstream>(&self, moto: &U, asked: &Query) -> Result<Reply, XmlError> {
        let Some(balancer) = asked.parameters.get("LoadBalancerArn") else {
            return corrected(moto, V2, asked, |answer| self.complete_groups(answer)).await;
        };

        let live = match listeners(moto, "LoadBalancerArn", balancer).await? {
            Ok(live) => live,
            Err(refused) => return Ok(refused),
        };
        let mut arns: Vec<String> = live.items("Listeners").iter().flat_map(forwards_to).collect();
        arns.sort();
        arns.dedup();
        if arns.is_empty() {
            return Ok(Reply::from(&no_target_groups()));
        }

        let by_arn = Query {
            parameters: Parameters::numbered("TargetGroupArns.member", arns.iter().map(String::as_str)),
            ..asked.clone()
        };

        corrected(moto, V2, &by_arn, |answer| {
            each_group(answer, |group| set(group, balancers_element([balancer.to_owned()])));
        })
        .await
    }

    fn complete_groups(&self, answer: &mut Element) {
        let known = self.listeners();
        each_group(answer, |group| {
            let arn = group.value("TargetGroupArn").to_owned();
            let users = known.values().filter(|listener| listener.groups.contains(&arn));
            let mut balancers: Vec<String> = users.map(|listener| listener.balancer.clone()).collect();
            balancers.sort();
            balancers.dedup();
            set(group, balancers_element(balancers));
        });
    }
}

async fn listeners<U: Upstream>(moto: &U, key: &str, arn: &str) -> Result<Answered, XmlError> {
    read(moto, V2, &query(V2, "DescribeListeners", &[(key, arn)])).await
}

/// The target groups that a call of CreateListener or ModifyListener names.
pub(super) fn groups_of(query: &Query) -> Vec<String> {
    let named = query
        .parameters
        .iter()
        .filter(|(key, _)| key.ends_with("TargetGroupArn"));
    named.map(|(_, arn)| arn.to_owned()).collect()
}

fn forwards_to(listener: &Element) -> Vec<String> {
    let actions = listener.list("DefaultActions");
    let direct = actions.iter().map(|action| action.value("TargetGroupArn").to_owned());
    let weighted = actions.iter().flat_map(|action| {
        let forward = action.child("ForwardConfig");
        let groups = forward.map_or(&[][..], |config| config.list("TargetGroups"));
        groups.iter().map(|group| group.value("TargetGroupArn").to_owned())
    });

    direct.chain(weighted).filter(|arn| !arn.is_empty()).collect()
}

fn certificates_of(listener: &Element) -> Vec<String> {
    let members = listener.list("Certificates").iter();
    members
        .map(|member| member.value("CertificateArn").to_owned())
        .collect()
}

/// AWS's refusal where the listener's protocol does not fit the target group's.
async fn unfit<U: Upstream>(moto: &U, protocol: &str, asked: &Query) -> Result<Option<Reply>, XmlError> {
    let groups = groups_of(asked);
    let Some(arn) = groups.first() else { return Ok(None) };
    let describe = query(V2, "DescribeTargetGroups", &[("TargetGroupArns.member.1", arn)]);
    let answer = read(moto, V2, &describe).await?.unwrap_or_default();
    let Some(group) = answer.items("TargetGroups").first() else {
        return Ok(None); // moto says what is wrong
    };

    let target = group.value("Protocol");
    let fits = match protocol {
        "TCP" => ["TCP", "TCP_UDP"].contains(&target),
        "UDP" => ["UDP", "TCP_UDP"].contains(&target),
        "TLS" => ["TCP", "TLS"].contains(&target),
        _ => true,
    };

    Ok((!fits).then(|| {
        let message = format!("Listener protocol '{protocol}' does not fit a target group with protocol '{target}'");
        Reply::Refused("InvalidConfigurationRequest", message)
    }))
}

async fn create_load_balancer<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let name = asked.parameters.get("Name").unwrap_or_default();
    let by_name = query(V2, "DescribeLoadBalancers", &[("Names.member.1", name)]);
    if let Ok(mut answer) = read(moto, V2, &by_name).await? {
        complete_balancers(&mut answer);
        if let Some(there) = answer.items("LoadBalancers").first() {
            if same_balancer(asked, there) {
                return Ok(Reply::from(&renamed(answer, "Describe", "Create")));
            }
            let message = "A load balancer with the same name and other settings exists".to_owned();
            return Ok(Reply::Refused("DuplicateLoadBalancerName", message));
        }
    }

    let kept: Query = match asked.parameters.get("SecurityGroups") {
        Some("") => without(asked, &["SecurityGroups"]), // an empty list on the wire
        _ => asked.clone(),
    };
    corrected(moto, V2, &kept, complete_balancers).await
}

fn same_balancer(asked: &Query, there: &Element) -> bool {
    let scheme = asked.parameters.get("Scheme").unwrap_or("internet-facing");
    let mappings = asked.parameters.iter().filter(|(key, _)| {
        key.starts_with("Subnet") && (key.ends_with(".SubnetId") || key.starts_with("Subnets.member."))
    });
    let mut wanted: Vec<&str> = mappings.map(|(_, id)| id).collect();
    let zones = there.list("AvailabilityZones").iter();
    let mut subnets: Vec<&str> = zones.map(|zone| zone.value("SubnetId")).collect();
    wanted.sort_unstable();
    subnets.sort_unstable();

    asked.parameters.get("Type").unwrap_or("application") == there.value("Type")
        && scheme == there.value("Scheme")
        && wanted == subnets
}

fn complete_balancers(answer: &mut Element) {
    let Some(list) = answer.find_mut("LoadBalancers") else {
        return;
    };
    for balancer in &mut list.children {
        if balancer.value("Scheme").is_empty() {
            set(balancer, Element::text("Scheme", "internet-facing"));
        }
        if balancer.value("Type") == "network" {
            let arn = balancer.value("LoadBalancerArn").to_owned();
            let number = arn.rsplit('/').next().unwrap_or_default();
            let name = format!(
                "{}-{number}.elb.{REGION}.amazonaws.com",
                balancer.value("LoadBalancerName")
            );
            set(balancer, Element::text("DNSName", name));
        }
    }
}

fn add_attributes(answer: &mut Element, defaults: &[(&str, &str)]) {
    let Some(list) = answer.find_mut("Attributes") else {
        return;
    };
    for (key, value) in defaults {
        if list.children.iter().all(|attribute| attribute.value("Key") != *key) {
            let fields = [Element::text("Key", *key), Element::text("Value", *value)];
            list.children.push(Element::parent("member", fields));
        }
    }
}

async fn create_target_group<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    let name = asked.parameters.get("Name").unwrap_or_default();
    let by_name = query(V2, "DescribeTargetGroups", &[("Names.member.1", name)]);
    if let Ok(answer) = read(moto, V2, &by_name).await? {
        let same = answer.items("TargetGroups").first().is_some_and(|there| {
            let agrees = |key: &&str| {
                asked
                    .parameters
                    .get(key)
                    .is_none_or(|wanted| wanted == there.value(key))
            };
            GROUP_SETTINGS.iter().all(agrees)
        });
        if same {
            return Ok(Reply::from(&renamed(answer, "Describe", "Create")));
        }
    }

    Ok(Reply::Moto(moto.ask(V2, asked).await))
}

/// The answer of one action in the form of another's: the root and its result are named after the action.
fn renamed(mut answer: Element, from: &str, to: &str) -> Element {
    let rename = |element: &mut Element| {
        if let Some(rest) = element.name.strip_prefix(from) {
            // `DescribeTargetGroupsResult`, but `CreateTargetGroupResult`
            element.name = format!("{to}{}", rest.replacen("sRes", "Res", 1));
        }
    };

    answer.children.iter_mut().for_each(rename);
    rename(&mut answer);
    answer
}

fn no_target_groups() -> Element {
    let result = Element::parent("DescribeTargetGroupsResult", [Element::parent("TargetGroups", [])]);
    let metadata = Element::parent("ResponseMetadata", [Element::text("RequestId", "gap")]);
    let mut answer = Element::parent("DescribeTargetGroupsResponse", [result, metadata]);
    answer.attributes.push(("xmlns".to_owned(), V2.namespace()));
    answer
}

fn each_group(answer: &mut Element, change: impl FnMut(&mut Element)) {
    if let Some(list) = answer.find_mut("TargetGroups") {
        list.children.iter_mut().for_each(change);
    }
}

fn balancers_element(arns: impl IntoIterator<Item = String>) -> Element {
    let members = arns.into_iter().map(|arn| Element::text("member", arn));
    Element::parent("LoadBalancerArns", members)
}
