//! Resources that look like those of a Service, and that this cluster may not delete.

use outrigger_aws_sim::Service::{self, Ec2, Elb, ElbV2};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_e2e::single_cluster::{CLUSTER, SingleCluster};

/// Of a Service that does not exist.
pub const GONE: &str = "default/gone-long-ago";

/// The load balancer of a cluster with the same ID that was created by v1.37 and has a target.
pub struct Used {
    pub name: String,
    /// Its target, an instance that is not a Node here.
    pub instance: String,
}

/// Resources of another cluster with the same ID in the same VPC: some with the UID of that cluster, and a load
/// balancer without this tag.
pub async fn make_of_same_id(cluster: &SingleCluster) -> Used {
    let own = &format!("kubernetes.io/cluster/{CLUSTER}");
    let of_cluster = [(own.as_str(), "owned"), (UID_TAG, "another-cluster")];
    let of_service = [of_cluster[0], of_cluster[1], service(GONE)];
    classic(cluster, &name('a'), &of_service).await;
    network(cluster, &name('b'), &of_service).await;
    node_rule(cluster, &name('b'), "30089").await;
    target_group(cluster, "k8s-default-gonelong-2123456789", &of_service).await;
    let description = format!("Security group for Kubernetes ELB {} ({GONE})", name('c'));
    security_group(cluster, &(format!("k8s-elb-{}", name('c')), description), &of_cluster).await;

    let used = name('d');
    classic(cluster, &used, &[(own, "owned"), service(GONE)]).await;
    let parameters = pairs(&[
        ("ImageId", "ami-12c6146b"),
        ("InstanceType", "t3.medium"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", &cluster.account.subnets[0].id),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", own),
        ("TagSpecification.1.Tag.1.Value", "owned"),
    ]);
    let started = ask(cluster, Ec2, "RunInstances", parameters).await;
    let instance = started.find("instanceId").expect("an instance").text.clone();
    let parameters = pairs(&[
        ("LoadBalancerName", &used),
        ("Instances.member.1.InstanceId", &instance),
    ]);
    ask(cluster, Elb, "RegisterInstancesWithLoadBalancer", parameters).await;
    Used { name: used, instance }
}

/// The tag with a cluster's UID.
const UID_TAG: &str = "outrigger.dev/cluster-uid";

/// The UID in the tags of a classic load balancer.
pub async fn uid_of(cluster: &SingleCluster, load_balancer: &str) -> Option<String> {
    let parameters = pairs(&[("LoadBalancerNames.member.1", load_balancer)]);
    let answer = ask(cluster, Elb, "DescribeTags", parameters).await;
    let tag = answer.items("Tags").iter().find(|tag| tag.value("Key") == UID_TAG)?;
    Some(tag.value("Value").to_owned())
}

/// Makes one of each kind; `living` is a Service that exists.
pub async fn make(cluster: &SingleCluster, living: &str) {
    let other = "kubernetes.io/cluster/other";
    let own = &format!("kubernetes.io/cluster/{CLUSTER}");
    // Names as both providers give them, of UIDs that no Service has.
    classic(cluster, &name('1'), &[(other, "owned"), service(GONE)]).await;
    classic(cluster, &name('2'), &[service(GONE)]).await;
    classic(cluster, &name('3'), &[(own, "owned"), (other, "shared"), service(GONE)]).await;
    classic(cluster, &name('4'), &[(own, "shared"), service(GONE)]).await;
    classic(cluster, &name('5'), &[(own, "owned"), service(living)]).await;
    classic(cluster, "made-by-hand", &[(own, "owned"), service(GONE)]).await;
    network(cluster, &name('6'), &[(other, "owned"), service(GONE)]).await;
    node_rule(cluster, &name('6'), "30080").await;
    target_group(
        cluster,
        "k8s-default-gonelong-0123456789",
        &[(other, "owned"), service(GONE)],
    )
    .await;
    target_group(cluster, "k8s-default-gonelong-1123456789", &[service(GONE)]).await;
    let group = |digit| {
        let description = format!("Security group for Kubernetes ELB {} ({GONE})", name(digit));
        (format!("k8s-elb-{}", name(digit)), description)
    };
    security_group(cluster, &group('7'), &[(other, "owned")]).await;
    security_group(cluster, &group('8'), &[]).await;
    let by_hand = (group('9').0, "made by hand".to_owned());
    security_group(cluster, &by_hand, &[(own, "owned")]).await;
}

fn name(digit: char) -> String {
    let digits: String = std::iter::repeat_n(digit, 31).collect();
    format!("a{digits}")
}

fn service(name: &str) -> (&str, &str) {
    ("kubernetes.io/service-name", name)
}

type Tags<'a> = [(&'a str, &'a str)];

async fn classic(cluster: &SingleCluster, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("LoadBalancerName", name),
        ("Listeners.member.1.Protocol", "TCP"),
        ("Listeners.member.1.LoadBalancerPort", "80"),
        ("Listeners.member.1.InstanceProtocol", "TCP"),
        ("Listeners.member.1.InstancePort", "30080"),
        ("Subnets.member.1", &cluster.account.subnets[0].id),
    ]);
    parameters.extend(tags(of_it));
    ask(cluster, Elb, "CreateLoadBalancer", parameters).await;
}

async fn network(cluster: &SingleCluster, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("Name", name),
        ("Type", "network"),
        ("SubnetMappings.member.1.SubnetId", &cluster.account.subnets[0].id),
    ]);
    parameters.extend(tags(of_it));
    ask(cluster, ElbV2, "CreateLoadBalancer", parameters).await;
}

async fn target_group(cluster: &SingleCluster, name: &str, of_it: &Tags<'_>) {
    let mut parameters = pairs(&[
        ("Name", name),
        ("Protocol", "TCP"),
        ("Port", "30080"),
        ("VpcId", &cluster.account.vpc_id),
        ("TargetType", "instance"),
    ]);
    parameters.extend(tags(of_it));
    ask(cluster, ElbV2, "CreateTargetGroup", parameters).await;
}

async fn security_group(cluster: &SingleCluster, (name, description): &(String, String), of_it: &Tags<'_>) {
    let parameters = pairs(&[
        ("GroupName", name),
        ("GroupDescription", description),
        ("VpcId", &cluster.account.vpc_id),
    ]);
    let made = ask(cluster, Ec2, "CreateSecurityGroup", parameters).await;
    let id = &made.find("groupId").expect("an ID").text;
    for (key, value) in of_it {
        let tag = pairs(&[("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)]);
        ask(cluster, Ec2, "CreateTags", tag).await;
    }
}

/// In the group of the cluster's nodes, for a load balancer that exists. EC2 takes one rule of a port and network only.
async fn node_rule(cluster: &SingleCluster, load_balancer: &str, port: &str) {
    let description = format!("kubernetes.io/rule/nlb/client={load_balancer}");
    let parameters = pairs(&[
        ("GroupId", &cluster.account.security_group_id),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", port),
        ("IpPermissions.1.ToPort", port),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
        ("IpPermissions.1.IpRanges.1.Description", &description),
    ]);
    ask(cluster, Ec2, "AuthorizeSecurityGroupIngress", parameters).await;
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
pub async fn ask(
    cluster: &SingleCluster,
    service: Service,
    action: &str,
    parameters: Vec<(String, String)>,
) -> Element {
    let parameters: Parameters = parameters.into_iter().collect();
    let answer = cluster.proxy.ask(&service, action, parameters).await;
    answer.unwrap_or_else(|error| panic!("{action}: {error}"))
}
