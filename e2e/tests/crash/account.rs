//! What AWS has, in a form that can be compared: IDs that AWS makes up are replaced by names.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service as KubernetesService;
use outrigger_e2e::aws::query::Parameters;
use outrigger_e2e::aws::xml::Element;
use outrigger_e2e::aws::{Moto, Service, World};
use serde_json::{Value, json};

use crate::alone::CLUSTER;

/// A security group: tags, and ingress as one line for each source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub tags: BTreeMap<String, String>,
    pub ingress: Vec<String>,
}

/// Load balancers as JSON, and security groups by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub load_balancers: Vec<Value>,
    pub groups: BTreeMap<String, Group>,
}

impl Account {
    /// Reads all load balancers and all security groups of the account, not only those that the manager knows.
    pub async fn read(moto: &Moto) -> Self {
        let answer = call(moto, Service::Ec2, "DescribeSecurityGroups", &[]).await;
        let items = answer.items("securityGroupInfo");
        let ids: BTreeMap<&str, &str> = items
            .iter()
            .map(|g| (g.value("groupId"), g.value("groupName")))
            .collect();
        assert_eq!(ids.len(), items.len());
        let mut groups = BTreeMap::new();
        for item in items {
            let name = item.value("groupName").to_owned();
            let group = Group {
                tags: pairs(item.items("tagSet"), "key", "value"),
                ingress: ingress(item, &ids),
            };
            assert!(
                groups.insert(name.clone(), group).is_none(),
                "two security groups {name}"
            );
        }
        let answer = call(moto, Service::Elb, "DescribeLoadBalancers", &[]).await;
        let mut load_balancers = Vec::new();
        for item in answer.items("LoadBalancerDescriptions") {
            load_balancers.push(load_balancer(moto, item, &ids).await);
        }
        Self { load_balancers, groups }
    }

    /// What the account has to hold when it held `self` before and this Service has its load balancer.
    pub fn with(&self, service: &KubernetesService, world: &World) -> Self {
        let metadata = &service.metadata;
        let uid = metadata.uid.as_deref().unwrap_or_default().replace('-', "");
        let name: String = format!("a{uid}").chars().take(32).collect();
        let group = format!("k8s-elb-{name}");
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let host_names: Vec<_> = status
            .and_then(|status| status.ingress.as_ref())
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(host_names.len(), 1, "{host_names:?}");
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
        let node_port = ports.and_then(|ports| ports.first()?.node_port).expect("a node port");
        let owned = format!("kubernetes.io/cluster/{CLUSTER}");
        let mut then = self.clone();
        then.load_balancers.push(json!({
            "name": name,
            "hostName": host_names[0].hostname,
            "scheme": "internet-facing",
            "tags": {&owned: "owned", "kubernetes.io/service-name": format!("default/{}", metadata.name.as_deref().unwrap_or_default())},
            "listeners": [format!("TCP 80 to {node_port}")],
            "healthCheck": format!("TCP:{node_port} every 10 s, within 5 s, healthy after 2, unhealthy after 6"),
            "groups": [&group],
            "subnets": sorted(world.subnets.iter().map(|subnet| subnet.id.clone())),
            "targets": sorted(world.instances.iter().map(|instance| instance.id.clone())),
        }));
        let nodes = then
            .groups
            .get_mut(&format!("{CLUSTER}-nodes"))
            .expect("the nodes' group");
        nodes.ingress.push(format!("-1 from {group}"));
        nodes.ingress.sort();
        let ingress = vec![
            "icmp 3-4 from 0.0.0.0/0".to_owned(),
            "tcp 80-80 from 0.0.0.0/0".to_owned(),
        ];
        let tags = BTreeMap::from([(owned, "owned".to_owned())]);
        then.groups.insert(group, Group { tags, ingress });
        then
    }
}

async fn load_balancer(moto: &Moto, item: &Element, ids: &BTreeMap<&str, &str>) -> Value {
    let name = item.value("LoadBalancerName");
    let tags = call(
        moto,
        Service::Elb,
        "DescribeTags",
        &[("LoadBalancerNames.member.1", name)],
    )
    .await;
    let texts = |list: &str| {
        item.items(list)
            .iter()
            .map(|item| item.text.clone())
            .collect::<Vec<_>>()
    };
    let listeners = item
        .items("ListenerDescriptions")
        .iter()
        .filter_map(|item| item.child("Listener"));
    let listener = |l: &Element| {
        format!(
            "{} {} to {}",
            l.value("Protocol"),
            l.value("LoadBalancerPort"),
            l.value("InstancePort")
        )
    };
    let check = item.child("HealthCheck").cloned().unwrap_or_default();
    let number = |name| check.value(name);
    json!({
        "name": name,
        "hostName": item.value("DNSName"),
        "scheme": item.value("Scheme"),
        "tags": pairs(tags.items("Tags"), "Key", "Value"),
        "listeners": listeners.map(listener).collect::<Vec<_>>(),
        "healthCheck": format!(
            "{} every {} s, within {} s, healthy after {}, unhealthy after {}",
            number("Target"), number("Interval"), number("Timeout"), number("HealthyThreshold"), number("UnhealthyThreshold"),
        ),
        "groups": texts("SecurityGroups").iter().map(|id| named(id, ids)).collect::<Vec<_>>(),
        "subnets": sorted(texts("Subnets")),
        "targets": targets(item),
    })
}

/// moto lists an instance once for every time it was registered; AWS takes the second time for done.
fn targets(load_balancer: &Element) -> BTreeSet<String> {
    let instances = load_balancer.items("Instances").iter();
    instances.map(|item| item.value("InstanceId").to_owned()).collect()
}

/// One line for each source of each rule, doubles included.
fn ingress(group: &Element, ids: &BTreeMap<&str, &str>) -> Vec<String> {
    let permissions = group.child("ipPermissions").map_or(&[][..], |list| &list.children);
    let mut lines = Vec::new();
    for rule in permissions {
        let protocol = rule.value("ipProtocol");
        let what = match protocol {
            "-1" => protocol.to_owned(),
            _ => format!("{protocol} {}-{}", rule.value("fromPort"), rule.value("toPort")),
        };
        let of = |list: &str, field: &str| {
            let items = rule.child(list).map_or(&[][..], |list| &list.children);
            items
                .iter()
                .map(|item| item.value(field).to_owned())
                .collect::<Vec<_>>()
        };
        let groups = of("groups", "groupId").into_iter().map(|id| named(&id, ids));
        let sources = of("ipRanges", "cidrIp")
            .into_iter()
            .chain(of("ipv6Ranges", "cidrIpv6"))
            .chain(groups);
        lines.extend(sources.map(|source| format!("{what} from {source}")));
    }
    lines.sort();
    lines
}

fn named(id: &str, ids: &BTreeMap<&str, &str>) -> String {
    (*ids.get(id).unwrap_or(&id)).to_owned()
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

async fn call(moto: &Moto, service: Service, action: &str, parameters: &[(&str, &str)]) -> Element {
    let parameters: Parameters = parameters.iter().copied().collect();
    moto.call(&service, action, parameters).await.expect("answered")
}
