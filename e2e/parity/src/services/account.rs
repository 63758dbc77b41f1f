//! The load balancers, target groups and security groups of AWS as text. The reads use the proxy, which fills moto's
//! gaps and does not log them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::names::Names;
use super::outcome::Account;
use super::writes;
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Proxy, Service};

/// More load balancers than a case has.
const PAGE: (&str, &str) = ("PageSize", "400");

const TRIES: usize = 5;
const BACKOFF: Duration = Duration::from_millis(200);
/// Fields with a meaningful order.
const ORDERED: [&str; 4] = ["securityGroups", "subnetMappings", "actions", "certificates"];

type Fields = BTreeMap<String, Value>;

/// Reads everything, and learns the names of new resources. If one is deleted meanwhile, it reads everything again.
///
/// # Errors
/// When AWS refuses a call.
pub async fn read(proxy: &Proxy, names: &mut Names) -> Result<Account> {
    for _ in 0..TRIES {
        if let Ok(account) = read_once(proxy, names).await {
            return Ok(account);
        }
        tokio::time::sleep(BACKOFF).await;
    }
    read_once(proxy, names).await
}

async fn read_once(proxy: &Proxy, names: &mut Names) -> Result<Account> {
    let reader = Reader(proxy);
    let mut account = Account::new();
    reader.groups(names, &mut account).await?;
    reader.classic(names, &mut account).await?;

    let tags = reader.network(names, &mut account).await?;
    reader.target_groups(names, &mut account, tags).await?;

    let named = account.into_iter().map(|(object, fields)| {
        let fields = fields.into_iter().filter(|(_, value)| !is_empty(value));
        let fields = fields.map(|(field, value)| {
            let value = in_order(&field, names.name(&value));
            (field, value)
        });
        (names.named(&object), fields.collect())
    });

    Ok(named.collect())
}

/// Sorts lists without a meaningful order.
fn in_order(field: &str, value: Value) -> Value {
    match value {
        Value::Array(mut items) if !ORDERED.contains(&field) => {
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        other => other,
    }
}

pub(super) fn without_tag(mut account: Account, key: &str) -> Account {
    for fields in account.values_mut() {
        if let Some(Value::Object(tags)) = fields.get_mut("tags") {
            tags.remove(key);
        }
        fields.retain(|_, value| !is_empty(value));
    }
    account
}

/// New and changed objects since `before`. Deleted objects have a field `gone`.
pub(super) fn besides(account: Account, before: &Account) -> Account {
    let gone = before.keys().filter(|object| !account.contains_key(*object));
    let gone = gone.map(|object| (object.clone(), fields(json!({"gone": true}))));
    let gone: Vec<_> = gone.collect();
    let new = account
        .into_iter()
        .filter(|(object, fields)| before.get(object) != Some(fields));

    new.chain(gone).collect()
}

struct Reader<'a>(&'a Proxy);

impl Reader<'_> {
    async fn ask(&self, service: &Service, action: &str, parameters: &[(&str, &str)]) -> Result<Element> {
        let parameters: Parameters = parameters.iter().copied().collect();
        let answer = self.0.ask(service, action, parameters).await;
        answer.with_context(|| format!("reading the AWS resources: {action}"))
    }

    async fn groups(&self, names: &mut Names, account: &mut Account) -> Result<()> {
        let answer = self.ask(&Service::Ec2, "DescribeSecurityGroups", &[]).await?;
        let items = answer.items("securityGroupInfo");
        for item in items {
            let name = names.named(item.value("groupName"));
            names.learn(item.value("groupId"), format!("sg:{name}"));
        }

        for item in items {
            let group = json!({
                "description": item.value("groupDescription"),
                "tags": pairs(list(item, "tagSet"), "key", "value"),
                "ingress": ingress(item),
            });
            account.insert(format!("security group {}", item.value("groupName")), fields(group));
        }

        Ok(())
    }

    async fn classic(&self, names: &mut Names, account: &mut Account) -> Result<()> {
        let elb = &Service::Elb;
        let answer = self.ask(elb, "DescribeLoadBalancers", &[PAGE]).await?;
        for item in answer.items("LoadBalancerDescriptions") {
            let name = item.value("LoadBalancerName");
            let of = [("LoadBalancerName", name)];
            let attributes = self.ask(elb, "DescribeLoadBalancerAttributes", &of).await?;
            let policies = self.ask(elb, "DescribeLoadBalancerPolicies", &of).await?;
            let named = [("LoadBalancerNames.member.1", name)];
            let tags = self.ask(elb, "DescribeTags", &named).await?;
            let attributes = flat(attributes.find("LoadBalancerAttributes"));
            let mut balancer = classic(item);

            balancer.insert("attributes".into(), json!(attributes));
            balancer.insert("policies".into(), json!(policy_lines(&policies)));
            balancer.insert("tags".into(), json!(pairs(tags.items("Tags"), "Key", "Value")));
            account.insert(format!("classic load balancer {}", names.named(name)), balancer);
        }

        Ok(())
    }

    /// Returns the tags of all ARNs, also those of target groups.
    async fn network(&self, names: &mut Names, account: &mut Account) -> Result<BTreeMap<String, Value>> {
        let v2 = &Service::ElbV2;
        let balancers = self.ask(v2, "DescribeLoadBalancers", &[PAGE]).await?;
        let groups = self.ask(v2, "DescribeTargetGroups", &[]).await?;
        let mut arns: Vec<String> = Vec::new();

        for group in groups.items("TargetGroups") {
            let arn = group.value("TargetGroupArn");
            names.learn(arn, group.value("TargetGroupName"));
            arns.push(arn.to_owned());
        }

        let mut found = Vec::new();
        for item in balancers.items("LoadBalancers") {
            let arn = item.value("LoadBalancerArn");
            arns.push(arn.to_owned());

            let of = [("LoadBalancerArn", arn)];
            let attributes = self.ask(v2, "DescribeLoadBalancerAttributes", &of).await?;
            let listeners = self.ask(v2, "DescribeListeners", &of).await?;

            for listener in listeners.items("Listeners") {
                let arn = listener.value("ListenerArn");
                names.learn(arn, format!("listener {}", listener.value("Port")));
                arns.push(arn.to_owned());
            }

            found.push((item.clone(), attributes, listeners));
        }

        let tags = self.tags(&arns).await?;
        for (item, attributes, listeners) in found {
            let name = names.named(item.value("LoadBalancerName"));
            names.learn(item.value("LoadBalancerArn"), format!("nlb {name}"));
            let object = format!("network load balancer {name}");
            account.insert(object, network(&item, &attributes, &tags));

            for listener in listeners.items("Listeners") {
                let object = format!("listener {} of {name}", listener.value("Port"));
                account.insert(object, listener_fields(listener, &tags));
            }
        }

        Ok(tags)
    }

    async fn tags(&self, arns: &[String]) -> Result<BTreeMap<String, Value>> {
        if arns.is_empty() {
            return Ok(BTreeMap::new());
        }

        let numbered = arns.iter().zip(1..);
        let numbered: Vec<(String, &str)> = numbered
            .map(|(arn, number)| (format!("ResourceArns.member.{number}"), arn.as_str()))
            .collect();
        let parameters: Vec<(&str, &str)> = numbered.iter().map(|(key, arn)| (key.as_str(), *arn)).collect();
        let answer = self.ask(&Service::ElbV2, "DescribeTags", &parameters).await?;
        let described = answer.items("TagDescriptions").iter();
        let tags = described.map(|item| {
            let tags = pairs(list(item, "Tags"), "Key", "Value");
            (item.value("ResourceArn").to_owned(), json!(tags))
        });

        Ok(tags.collect())
    }

    async fn target_groups(&self, names: &Names, account: &mut Account, tags: BTreeMap<String, Value>) -> Result<()> {
        let v2 = &Service::ElbV2;
        let answer = self.ask(v2, "DescribeTargetGroups", &[]).await?;
        for item in answer.items("TargetGroups") {
            let arn = item.value("TargetGroupArn");
            let of = [("TargetGroupArn", arn)];
            let attributes = self.ask(v2, "DescribeTargetGroupAttributes", &of).await?;
            let health = self.ask(v2, "DescribeTargetHealth", &of).await?;
            let target = |item: &Element| {
                let target = item.child("Target").cloned().unwrap_or_default();
                names.named(&format!("{}:{}", target.value("Id"), target.value("Port")))
            };
            let group = json!({
                "protocol": item.value("Protocol"),
                "port": item.value("Port"),
                "targetType": item.value("TargetType"),
                "healthCheck": group_check(item),
                "attributes": own_attributes(&attributes),
                "targets": sorted(health.items("TargetHealthDescriptions").iter().map(target)),
                "tags": tags.get(arn),
            });

            account.insert(format!("target group {}", item.value("TargetGroupName")), fields(group));
        }

        Ok(())
    }
}

fn classic(item: &Element) -> Fields {
    let check = item.child("HealthCheck").cloned().unwrap_or_default();
    let number = |name: &str| check.value(name).to_owned();
    let instances = list(item, "Instances").iter();
    let backends = list(item, "BackendServerDescriptions").iter();

    fields(json!({
        "dnsName": item.value("DNSName"),
        "scheme": item.value("Scheme"),
        "subnets": sorted(texts(item, "Subnets")),
        "securityGroups": texts(item, "SecurityGroups"),
        "listeners": sorted(list(item, "ListenerDescriptions").iter().map(classic_listener)),
        "backends": sorted(backends.map(|backend| format!("{} {}", backend.value("InstancePort"), texts(backend, "PolicyNames").join(",")))),
        "healthCheck": format!(
            "{} every {} s, within {} s, healthy after {}, unhealthy after {}",
            number("Target"), number("Interval"), number("Timeout"), number("HealthyThreshold"), number("UnhealthyThreshold")
        ),
        "instances": sorted(instances.map(|instance| instance.value("InstanceId").to_owned())),
    }))
}

fn classic_listener(item: &Element) -> String {
    let listener = item.child("Listener").cloned().unwrap_or_default();
    let of = |name: &str| listener.value(name).to_owned();
    let (protocol, instance_protocol) = (of("Protocol"), of("InstanceProtocol"));
    let (port, instance_port) = (of("LoadBalancerPort"), of("InstancePort"));
    let mut line = format!("{protocol} {port} to {instance_protocol} {instance_port}");

    let certificate = of("SSLCertificateId");
    if !certificate.is_empty() {
        line.push_str(&format!(" certificate {certificate}"));
    }

    let policies = texts(item, "PolicyNames");
    if !policies.is_empty() {
        line.push_str(&format!(" policies {}", policies.join(",")));
    }

    line
}

fn policy_lines(answer: &Element) -> Vec<String> {
    let policy = |item: &Element| {
        let attribute = |item: &Element| format!("{}={}", item.value("AttributeName"), item.value("AttributeValue"));
        let attributes = list(item, "PolicyAttributeDescriptions").iter().map(attribute);
        let attributes = sorted(attributes).join(",");
        let (name, kind) = (item.value("PolicyName"), item.value("PolicyTypeName"));
        format!("{name} {kind} {attributes}")
    };
    sorted(answer.items("PolicyDescriptions").iter().map(policy))
}

fn network(item: &Element, attributes: &Element, tags: &BTreeMap<String, Value>) -> Fields {
    let zones = list(item, "AvailabilityZones").iter();
    fields(json!({
        "dnsName": item.value("DNSName"),
        "type": item.value("Type"),
        "scheme": item.value("Scheme"),
        "subnetMappings": zones.map(|zone| zone.value("SubnetId").to_owned()).collect::<Vec<_>>(),
        "securityGroups": texts(item, "SecurityGroups"),
        "attributes": pairs(attributes.items("Attributes"), "Key", "Value"),
        "tags": tags.get(item.value("LoadBalancerArn")),
    }))
}

fn listener_fields(item: &Element, tags: &BTreeMap<String, Value>) -> Fields {
    let action = |action: &Element| format!("{} {}", action.value("Type"), action.value("TargetGroupArn"));
    let certificate = |item: &Element| item.value("CertificateArn").to_owned();
    fields(json!({
        "protocol": item.value("Protocol"),
        "actions": list(item, "DefaultActions").iter().map(action).collect::<Vec<_>>(),
        "certificates": list(item, "Certificates").iter().map(certificate).collect::<Vec<_>>(),
        "sslPolicy": item.value("SslPolicy"),
        "tags": tags.get(item.value("ListenerArn")),
    }))
}

fn group_check(item: &Element) -> String {
    let of = |name: &str| item.value(name).to_owned();
    format!(
        "{} {}{} every {} s, healthy after {}, unhealthy after {}",
        of("HealthCheckProtocol"),
        of("HealthCheckPort"),
        of("HealthCheckPath"),
        of("HealthCheckIntervalSeconds"),
        of("HealthyThresholdCount"),
        of("UnhealthyThresholdCount")
    )
}

/// The attributes that an annotation can set.
fn own_attributes(answer: &Element) -> BTreeMap<String, String> {
    let mut all = pairs(answer.items("Attributes"), "Key", "Value");
    all.retain(|key, _| key.starts_with("preserve_client_ip") || key.starts_with("proxy_protocol_v2"));
    all
}

/// One line for each source of each rule, with duplicates.
fn ingress(group: &Element) -> Vec<String> {
    let mut lines = Vec::new();
    for permission in list(group, "ipPermissions") {
        let of = |name: &str| permission.value(name).to_owned();
        let rule = writes::rule(&of("ipProtocol"), &of("fromPort"), &of("toPort"));
        for (name, field) in [
            ("ipRanges", "cidrIp"),
            ("ipv6Ranges", "cidrIpv6"),
            ("groups", "groupId"),
        ] {
            let sources = list(permission, name).iter();
            lines.extend(sources.map(|item| writes::source(&rule, item.value(field), item.value("description"))));
        }
    }

    sorted(lines)
}

/// The leaves of an element by their paths.
fn flat(element: Option<&Element>) -> BTreeMap<String, String> {
    fn walk(element: &Element, path: &str, out: &mut BTreeMap<String, String>) {
        for child in &element.children {
            let key = child.value("Key");
            let path = match (path, key) {
                ("", _) => child.name.clone(),
                (path, "") => format!("{path}.{}", child.name),
                (path, key) => format!("{path}.{key}"),
            };

            match (key, child.children.is_empty()) {
                ("", false) => walk(child, &path, out),
                ("", true) if child.text.is_empty() => {}
                ("", true) => drop(out.insert(path, child.text.clone())),
                (_, _) => drop(out.insert(path, child.value("Value").to_owned())),
            }
        }
    }

    let mut out = BTreeMap::new();
    if let Some(element) = element {
        walk(element, "", &mut out);
    }

    out
}

fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !is_empty(value)).collect(),
        other => Fields::from([("value".to_owned(), other)]),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn list<'a>(item: &'a Element, name: &str) -> &'a [Element] {
    item.child(name).map_or(&[], |list| &list.children)
}

fn texts(item: &Element, name: &str) -> Vec<String> {
    list(item, name).iter().map(|item| item.text.clone()).collect()
}

fn sorted(values: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut values: Vec<String> = values.into_iter().collect();
    values.sort();
    values
}

fn pairs(items: &[Element], key: &str, value: &str) -> BTreeMap<String, String> {
    let pair = |item: &Element| (item.value(key).to_owned(), item.value(value).to_owned());
    items.iter().map(pair).collect()
}
