//! What looks like something that was made for a Service, and is not this cluster's to delete.

use outrigger_aws_sim::Service::{self, Ec2, Elb, ElbV2};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_e2e::alone::{Alone, CLUSTER};

/// Of a Service that does not exist.
pub const GONE: &str = "default/gone-long-ago";

/// The load balancer of a cluster with the same ID that was created by v1.37.0 and has a target.
pub struct Used {
    pub name: String,
    /// Its target, an instance that is not a Node here.
    pub instance: String,
}

/// What another cluster with the same ID has in the same VPC: resources with the UID of that cluster, and a load balancer
/// without this tag.
pub async fn make_of_same_id(alone: &Alone) -> Used {
    let own = &format!("kubernetes.io/cluster/{CLUSTER}");
    let cluster = [(own.as_str(), "owned"), (UID_TAG, "another-cluster")];
    let of_service = [cluster[0], cluster[1], service(GONE)];
    classic(alone, &name('a'), &of_service).await;
    network(alone, &name('b'), &of_service).await;
    node_rule(alone, &name('b'), "30089").await;
    target_group(alone, "k8s-default-gonelong-2123456789", &of_service).await;
    let description = format!("Security group for Kubernetes ELB {} ({GONE})", name('c'));
    security_group(alone, &(format!("k8s-elb-{}", name('c')), description), &cluster).await;

    let used = name('d');
    classic(alone, &used, &[(own, "owned"), service(GONE)]).await;
    let parameters = pairs(&[
        ("ImageId", "ami-12c6146b"),
        ("InstanceType", "t3.medium"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", &alone.world.subnets[0].id),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", own),
        ("TagSpecification.1.Tag.1.Value", "owned"),
    ]);
    let started = ask(alone, Ec2, "RunInstances", parameters).await;
    let instance = started.find("instanceId").expect("an instance").text.clone();
    let parameters = pairs(&[
        ("LoadBalancerName", &used),
        ("Instances.member.1.InstanceId", &instance),
    ]);
    ask(alone, Elb, "RegisterInstancesWithLoadBalancer", parameters).await;
    Used { name: used, instance }
}

/// The tag with a cluster's UID.
const UID_TAG: &str = "outrigger.dev/cluster-uid";

/// The UID in the tags of a classic load balancer.
pub async fn uid_of(alone: &Alone, load_balancer: &str) -> Option<String> {
    let parameters = pairs(&[("LoadBalancerNames.member.1", load_balancer)]);
    let answer = ask(alone, Elb, "DescribeTags", parameters).await;
    let tag = answer.items("Tags").iter().find(|tag| tag.value("Key") == UID_TAG)?;
    Some(tag.value("Value").to_owned())
}

/// Makes one of each kind; `living` is a Service that exists.
pub async fn make(alone: &Alone, living: &str) {
    let other = "kubernetes.io/cluster/other";
    let own = &format!("kubernetes.io/cluster/{CLUSTER}");
    // Names as both providers give them, of UIDs that no Service has.
    classic(alone, &name('1'), &[(other, "owned"), service(GONE)]).await;
    classic(alone, &name('2'), &[service(GONE)]).await;
    classic(alone, &name('3'), &[(own, "owned"), (other, "shared"), service(GONE)]).await;
    classic(alone, &name('4'), &[(own, "shared"), service(GONE)]).await;
    classic(alone, &name('5'), &[(own, "owned"), service(living)]).await;
    classic(alone, "made-by-hand", &[(own, "owned"), service(GONE)]).await;
    network(alone, &name('6'), &[(other, "owned"), service(GONE)]).await;
    node_rule(alone, &name('6'), "30080").await;
    target_group(
        alone,
        "k8s-default-gonelong-0123456789",
        &[(other, "owned"), service(GONE)],
    )
    .await;
    target_group(alone, "k8s-default-gonelong-1123456789", &[service(GONE)]).await;
    let group = |digit| {
        let description = format!("Security group for Kubernetes ELB {} ({GONE})", name(digit));
        (format!("k8s-elb-{}", name(digit)), description)
    };
    security_group(alone, &group('7'), &[(other, "owned")]).await;
    security_group(alone, &group('8'), &[]).await;
    let by_hand = (group('9').0, "made by hand".to_owned());
    security_group(alone, &by_hand, &[(own, "owned")]).await;
}

fn name(digit: char) -> String {
    let digits: String = std::iter::repeat_n(digit, 31).collect();
    format!("a{digits}")
}

fn service(name: &str) -> (&str, &str) {
    ("kubernetes.io/service-name", name)
}

type Tags<'a> = [(&'a str, &'a str)];

async fn classic(alone: &Alone, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("LoadBalancerName", name),
        ("Listeners.member.1.Protocol", "TCP"),
        ("Listeners.member.1.LoadBalancerPort", "80"),
        ("Listeners.member.1.InstanceProtocol", "TCP"),
        ("Listeners.member.1.InstancePort", "30080"),
        ("Subnets.member.1", &alone.world.subnets[0].id),
    ]);
    parameters.extend(tags(of_it));
    ask(alone, Elb, "CreateLoadBalancer", parameters).await;
}

async fn network(alone: &Alone, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("Name", name),
        ("Type", "network"),
        ("SubnetMappings.member.1.SubnetId", &alone.world.subnets[0].id),
    ]);
    parameters.extend(tags(of_it));
    ask(alone, ElbV2, "CreateLoadBalancer", parameters).await;
}

async fn target_group(alone: &Alone, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("Name", name),
        ("Protocol", "TCP"),
        ("Port", "30080"),
        ("VpcId", &alone.world.vpc_id),
        ("TargetType", "instance"),
    ]);
    parameters.extend(tags(of_it));
    ask(alone, ElbV2, "CreateTargetGroup", parameters).await;
}

async fn security_group(alone: &Alone, (name, description): &(String, String), of_it: &Tags<'_>) {
    let parameters = pairs(&[
        ("GroupName", name),
        ("GroupDescription", description),
        ("VpcId", &alone.world.vpc_id),
    ]);
    let made = ask(alone, Ec2, "CreateSecurityGroup", parameters).await;
    let id = &made.find("groupId").expect("an ID").text;
    for (key, value) in of_it {
        let tag = pairs(&[("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)]);
        ask(alone, Ec2, "CreateTags", tag).await;
    }
}

/// In the group of the cluster's nodes, for a load balancer that exists. EC2 takes one rule of a port and network only.
async fn node_rule(alone: &Alone, load_balancer: &str, port: &str) {
    let description = format!("kubernetes.io/rule/nlb/client={load_balancer}");
    let parameters = pairs(&[
        ("GroupId", &alone.world.security_group_id),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", port),
        ("IpPermissions.1.ToPort", port),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
        ("IpPermissions.1.IpRanges.1.Description", &description),
    ]);
    ask(alone, Ec2, "AuthorizeSecurityGroupIngress", parameters).await;
}

fn tags(of_it: &Tags<'_>) -> Vec<(String, String)> {
    let tag = |(index, (key, value)): (usize, &(&str, &str))| {
        let number = index + 1;
        pairs(&[
            (&format!("Tags.member.{number}.Key"), key),
            (&format!("Tags.member.{number}.Value"), value),
        ])
    };
    of_it.iter().enumerate().flat_map(tag).collect()
}

fn pairs(parameters: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    parameters.iter().map(own).collect()
}

/// Asks AWS as a user would.
pub async fn ask(alone: &Alone, service: Service, action: &str, parameters: Vec<(String, String)>) -> Element {
    let parameters: Parameters = parameters.into_iter().collect();
    let answer = alone.proxy.ask(&service, action, parameters).await;
    answer.unwrap_or_else(|error| panic!("{action}: {error}"))
}
