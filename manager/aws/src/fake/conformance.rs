//! The two simulations of AWS refuse the same calls beyond its quotas: the one in memory, and the proxy in front of moto.

use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use outrigger_aws_quotas::Quotas;
use outrigger_aws_sim::{Moto, Proxy, REGION, SeededAccount};
use outrigger_cluster_harness::tools::{Tool, Tools};

use super::{FakeAws, World};
use crate::ec2::adapter::SdkEc2;
use crate::ec2::{Ec2, Filter, GroupPair, IpPermission, IpRange, NewSecurityGroup};
use crate::elb::adapter::SdkElb;
use crate::elb::{self, Elb, NewLoadBalancer};
use crate::elbv2::adapter::SdkElbv2;
use crate::elbv2::{
    Elbv2, ListenerSettings, NewNetworkLoadBalancer, NewTargetGroup, SubnetMapping, Target, TargetHealthCheck,
};
use crate::{InstanceId, Result, Tags};

const SMALL: Quotas = Quotas {
    rules: 4,
    targets_per_group: 3,
    targets_per_zone: 4,
    instances: 2,
};

/// A simulation of AWS, and the answers of its calls: a code, or an empty text for a call that was carried out.
struct Simulation {
    ec2: Arc<dyn Ec2>,
    elb: Arc<dyn Elb>,
    elbv2: Arc<dyn Elbv2>,
    vpc: String,
    group: String,
    other_group: String,
    subnets: Vec<String>,
    /// In the two zones by turns: even ones are in the first.
    instances: Vec<InstanceId>,
    answers: Vec<(String, String)>,
}

impl Simulation {
    /// Adds an answer, and returns the value of a call that was carried out.
    fn note<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        let code = match &result {
            Ok(_) => String::new(),
            Err(error) => error.code().unwrap_or("no code").to_owned(),
        };
        self.answers.push((what.to_owned(), code));
        result.ok()
    }

    async fn allow(&mut self, what: &str, rules: &[IpPermission]) {
        let result = self.ec2.authorize_ingress(&self.group, rules).await;
        self.note(what, result);
    }

    async fn rules(&mut self) {
        self.allow("three networks", &[networks(0..3)]).await;
        self.allow("two more", &[networks(3..5)]).await;
        self.allow("the fourth", &[networks(3..4)]).await;
        self.allow("the fifth", &[networks(4..5)]).await;
        self.allow("a duplicate of a full group", &[networks(3..4)]).await;

        let ipv6 = |numbers: std::ops::Range<usize>| IpPermission {
            ranges: Vec::new(),
            ipv6_ranges: numbers.map(|number| format!("2001:db8:{number}::/48")).collect(),
            ..networks(0..0)
        };
        let group = IpPermission {
            groups: vec![GroupPair {
                group_id: Some(self.other_group.clone()),
                ..GroupPair::default()
            }],
            ..networks(0..0)
        };
        self.allow("three networks of IPv6", &[ipv6(0..3)]).await;
        self.allow("a group beside four networks", std::slice::from_ref(&group))
            .await;

        let result = self.ec2.revoke_ingress(&self.group, &[networks(0..1)]).await;
        self.note("a revocation", result);
        self.allow("a group in place of a network", &[group]).await;
        self.allow("the fourth network of IPv6", &[ipv6(3..4)]).await;
    }

    async fn classic(&mut self) {
        let new = NewLoadBalancer {
            name: "classic".into(),
            internal: false,
            listeners: vec![elb::Listener {
                port: 80,
                protocol: "tcp".into(),
                instance_port: 30080,
                instance_protocol: "tcp".into(),
                certificate: None,
            }],
            subnets: self.subnets.clone(),
            security_groups: vec![self.group.clone()],
            tags: tags(),
        };
        let created = self.elb.create(&new).await;
        self.note("a classic load balancer", created);

        let of = |numbers: &[usize]| -> Vec<InstanceId> {
            numbers.iter().map(|number| self.instances[*number].clone()).collect()
        };
        let (two, second, third) = (of(&[0, 1]), of(&[1]), of(&[2]));
        for (what, instances) in [
            ("two instances", &two),
            ("the third", &third),
            ("the second again", &second),
        ] {
            let result = self.elb.register("classic", instances).await;
            self.note(what, result);
        }

        let result = self.elb.deregister("classic", &second).await;
        self.note("the second leaves", result);
        let result = self.elb.register("classic", &third).await;
        self.note("the third in its place", result);
    }

    async fn target_group(&mut self, name: &str, numbers: &[usize]) -> String {
        let new = NewTargetGroup {
            name: name.into(),
            port: 30080,
            protocol: "TCP".into(),
            vpc_id: self.vpc.clone(),
            health_check: TargetHealthCheck {
                protocol: "TCP".into(),
                port: "traffic-port".into(),
                path: None,
                interval: 30,
                healthy_threshold: 3,
                unhealthy_threshold: 3,
            },
            tags: tags(),
        };
        let created = self.elbv2.create_target_group(&new).await;
        let arn = self.note(&format!("target group {name}"), created).expect(name);
        self.register(&format!("targets of {name}"), &arn, numbers).await;

        arn
    }

    fn targets(&self, numbers: &[usize]) -> Vec<Target> {
        let target = |number: &usize| Target {
            id: self.instances[*number].clone(),
            port: 30080,
        };
        numbers.iter().map(target).collect()
    }

    async fn register(&mut self, what: &str, group: &str, numbers: &[usize]) {
        let result = self.elbv2.register_targets(group, &self.targets(numbers)).await;
        self.note(what, result);
    }

    async fn deregister(&mut self, group: &str, numbers: &[usize]) {
        let result = self.elbv2.deregister_targets(group, &self.targets(numbers)).await;
        self.note("targets leave", result);
    }

    async fn listen(&mut self, what: &str, balancer: &str, port: i32, group: &str) -> Option<String> {
        let created = self
            .elbv2
            .create_listener(balancer, &forward(port, group), &tags())
            .await;
        self.note(what, created)
    }

    async fn network(&mut self) {
        let subnets = self.subnets.iter().map(|subnet| SubnetMapping {
            subnet_id: subnet.clone(),
            ..SubnetMapping::default()
        });
        let new = NewNetworkLoadBalancer {
            name: "network".into(),
            subnets: subnets.collect(),
            tags: tags(),
            ..NewNetworkLoadBalancer::default()
        };
        let created = self.elbv2.create_load_balancer(&new).await;
        let balancer = self.note("a network load balancer", created).expect("created").arn;

        // Zones a, b, a: with both listeners four targets in the first zone.
        let one = self.target_group("one", &[0, 1, 2]).await;
        self.register("the fourth target of a group", &one, &[3]).await;
        let two = self.target_group("two", &[0, 1, 2]).await;
        let first = self
            .listen("listener 80", &balancer, 80, &one)
            .await
            .expect("listener 80");
        let second = self
            .listen("listener 443", &balancer, 443, &two)
            .await
            .expect("listener 443");
        self.register("the same again", &one, &[0, 1, 2]).await;

        self.deregister(&one, &[1]).await;
        self.register("the fifth of a zone", &one, &[4]).await;
        self.cross_zone(&balancer, true).await;
        self.register("the sixth of all zones", &one, &[3]).await;
        self.cross_zone(&balancer, false).await;
        self.register("the second of its zone", &one, &[3]).await;

        let three = self.target_group("three", &[0, 2, 4]).await;
        let other = forward(443, &three);
        let result = self.elbv2.modify_listener(&second, &other).await;
        self.note("a listener moves to three of a zone", result);
        self.deregister(&three, &[4]).await;
        let result = self.elbv2.modify_listener(&second, &other).await;
        self.note("a listener moves to two of a zone", result);

        self.listen("a third listener", &balancer, 8080, &two).await;
        let result = self.elbv2.delete_listener(&first).await;
        self.note("listener 80 ends", result);
        self.listen("a third listener in its place", &balancer, 8080, &two)
            .await;
    }

    async fn cross_zone(&mut self, balancer: &str, on: bool) {
        let attributes = [("load_balancing.cross_zone.enabled".to_owned(), on.to_string())];
        let result = self.elbv2.modify_attributes(balancer, &attributes.into()).await;
        self.note("balancing across zones", result);
    }
}

/// Every call that creates something needs a tag.
fn tags() -> Tags {
    [("key".to_owned(), "value".to_owned())].into()
}

/// Networks that may use one port.
fn networks(numbers: std::ops::Range<usize>) -> IpPermission {
    let range = |number| IpRange {
        cidr: format!("10.{number}.0.0/16"),
        description: None,
    };
    IpPermission {
        protocol: "tcp".into(),
        from_port: Some(80),
        to_port: Some(80),
        ranges: numbers.map(range).collect(),
        ..IpPermission::default()
    }
}

fn forward(port: i32, group: &str) -> ListenerSettings {
    ListenerSettings {
        port,
        protocol: "TCP".into(),
        target_group_arn: Some(group.to_owned()),
        ..ListenerSettings::default()
    }
}

/// The clients of the proxy.
async fn proxied(account: &SeededAccount, proxy: &Proxy) -> Simulation {
    let credentials = Credentials::new("a", "b", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(proxy.url())
        .build();
    let ec2 = SdkEc2 {
        client: aws_sdk_ec2::Client::new(&config),
    };
    let elb = SdkElb {
        client: aws_sdk_elasticloadbalancing::Client::new(&config),
    };
    let elbv2 = SdkElbv2 {
        client: aws_sdk_elasticloadbalancingv2::Client::new(&config),
    };
    let group = NewSecurityGroup {
        name: "group".into(),
        description: "of the load balancers".into(),
        vpc_id: account.vpc_id.clone(),
        tags: tags(),
    };
    let group = ec2.create_security_group(&group).await.expect("a security group");

    Simulation {
        ec2: Arc::new(ec2),
        elb: Arc::new(elb),
        elbv2: Arc::new(elbv2),
        vpc: account.vpc_id.clone(),
        group,
        other_group: account.security_group_id.clone(),
        subnets: account.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        // The account's are sorted by zone.
        instances: [0, 3, 1, 4, 2, 5]
            .map(|number| InstanceId::new(&account.instances[number].id))
            .into(),
        answers: Vec::new(),
    }
}

/// The same resources in memory.
async fn in_memory(other: &Simulation) -> Simulation {
    let mut world = World {
        quotas: SMALL,
        ..World::default()
    };
    for instance in other.ec2.instances_by_id(&other.instances).await.expect("instances") {
        world.instances.insert(instance.id.clone(), instance);
    }
    let of_vpc = [Filter::new("vpc-id", [&other.vpc])];
    for group in other.ec2.security_groups(&of_vpc).await.expect("security groups") {
        world.security_groups.insert(group.id.clone(), group);
    }
    world.subnets = other.ec2.subnets(&of_vpc).await.expect("subnets");

    let aws = Arc::new(FakeAws::new(world));
    Simulation {
        ec2: aws.clone(),
        elb: aws.clone(),
        elbv2: aws,
        vpc: other.vpc.clone(),
        group: other.group.clone(),
        other_group: other.other_group.clone(),
        subnets: other.subnets.clone(),
        instances: other.instances.clone(),
        answers: Vec::new(),
    }
}

#[tokio::test]
async fn both_simulations_refuse_the_same_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let tools = Tools::load(&[Tool::MotoPython]).await.expect("moto");
    let moto = Moto::start(&tools, folder.path()).await.expect("moto");
    let account = SeededAccount::seed(&moto, "quotas", 6).await.expect("an account");
    let proxy = Proxy::start(&moto, &[], None).await.expect("a proxy");
    proxy.set_quotas(SMALL);

    let mut theirs = proxied(&account, &proxy).await;
    let mut ours = in_memory(&theirs).await;
    for simulation in [&mut theirs, &mut ours] {
        simulation.rules().await;
        simulation.classic().await;
        simulation.network().await;
    }

    assert_eq!(theirs.answers, ours.answers);
    let count = |code: &str| ours.answers.iter().filter(|(_, answer)| answer == code).count();
    assert_eq!(count("RulesPerSecurityGroupLimitExceeded"), 4, "{:?}", ours.answers);
    assert_eq!(count("ValidationError"), 1, "{:?}", ours.answers);
    assert_eq!(count("TooManyTargets"), 5, "{:?}", ours.answers);
}
