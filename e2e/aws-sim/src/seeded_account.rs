//! The simulated account of one cluster: VPC, subnets, a way to the internet, a security group, instances.

use outrigger_cluster_harness::kubelets::Instance;

use super::error::AwsError;
use super::moto::Moto;
use super::query::Parameters;
use super::service::{LOCAL_ZONE, REGION, Service};
use super::xml::Element;

/// Any image will do.
const IMAGE: &str = "ami-12c6146b";
/// A type without topology information, so that nothing asks for it.
const INSTANCE_TYPE: &str = "t3.medium";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    pub id: String,
    pub zone: String,
}

#[derive(Debug, Clone)]
pub struct SeededAccount {
    /// The cluster's ID: its resources carry the tag `kubernetes.io/cluster/ID`.
    pub cluster_id: String,
    pub vpc_id: String,
    /// Its main route table, with a default route to the internet.
    pub route_table_id: String,
    /// Two public subnets in two zones, tagged for the cluster and for internet-facing load balancers.
    pub subnets: Vec<Subnet>,
    /// The instances' security group, owned by the cluster.
    pub security_group_id: String,
    /// The instances, spread over the subnets in turn.
    pub instances: Vec<Instance>,
    /// More lines of section `[Global]` of the cloud config.
    pub cloud_config_lines: String,
}

impl SeededAccount {
    /// Seeds a fresh moto for the cluster with `instances` running instances.
    ///
    /// # Errors
    /// When moto refuses a call or answers without a field.
    pub async fn seed(moto: &Moto, cluster_id: &str, instances: usize) -> Result<Self, AwsError> {
        let ec2 = Ec2(moto);
        let vpcs = ec2.call("DescribeVpcs", &filter("is-default", "true")).await?;
        let vpc_id = first_item(&vpcs, "DescribeVpcs", "vpcSet", "vpcId")?;
        let subnets = ec2.subnets(&vpc_id, cluster_id).await?;
        let route_table_id = ec2.internet(&vpc_id).await?;
        let security_group_id = ec2.security_group(&vpc_id, cluster_id).await?;
        let mut account = Self {
            cluster_id: cluster_id.to_owned(),
            vpc_id,
            route_table_id,
            subnets,
            security_group_id,
            instances: Vec::new(),
            cloud_config_lines: String::new(),
        };

        account.add_instances(moto, instances).await?;

        Ok(account)
    }

    /// Starts more instances, spread over the subnets in turn, and returns them. They are running when this returns.
    ///
    /// # Errors
    /// As [`SeededAccount::seed`].
    pub async fn add_instances(&mut self, moto: &Moto, count: usize) -> Result<Vec<Instance>, AwsError> {
        let mut added = Vec::new();
        for (index, subnet) in self.subnets.iter().enumerate() {
            let here = (count + self.subnets.len() - 1 - index) / self.subnets.len();
            if here > 0 {
                let parameters = self.run_parameters(&subnet.id, &here.to_string());
                added.extend(Ec2(moto).run(parameters).await?);
            }
        }

        added.sort_by(|a, b| a.zone.cmp(&b.zone).then_with(|| a.id.cmp(&b.id)));
        self.instances.extend(added.iter().cloned());

        Ok(added)
    }

    /// Starts an instance with this private address in the first subnet, and returns it. It is running when this returns.
    ///
    /// # Errors
    /// As [`SeededAccount::seed`].
    pub async fn add_instance_at(&mut self, moto: &Moto, address: &str) -> Result<Instance, AwsError> {
        let subnet = self.subnets.first().map(|subnet| subnet.id.clone()).unwrap_or_default();
        let parameters = self.run_parameters(&subnet, "1");
        let parameters = parameters.iter().chain([("PrivateIpAddress", address)]).collect();
        let mut started = Ec2(moto).run(parameters).await?.into_iter();
        let added = started
            .next()
            .ok_or_else(|| missing("DescribeInstances", "instancesSet"))?;
        self.instances.push(added.clone());
        Ok(added)
    }

    /// Starts an instance in a security group of its own, in the first subnet. It is not one of the account's.
    ///
    /// # Errors
    /// As [`SeededAccount::seed`].
    pub async fn start_instance_in(&self, moto: &Moto, group: &str) -> Result<Instance, AwsError> {
        let subnet = self.subnets.first().map(|subnet| subnet.id.clone()).unwrap_or_default();
        let parameters = self.run_parameters(&subnet, "1");
        let others = parameters.iter().filter(|(key, _)| *key != "SecurityGroupId.1");
        let parameters = others.chain([("SecurityGroupId.1", group)]).collect();
        let started = Ec2(moto).run(parameters).await?;
        started
            .into_iter()
            .next()
            .ok_or_else(|| missing("DescribeInstances", "instancesSet"))
    }

    /// Tags everything of the cluster.
    ///
    /// # Errors
    /// When moto refuses.
    pub async fn tag_all(&self, moto: &Moto, tag: (&str, &str)) -> Result<(), AwsError> {
        let subnets = self.subnets.iter().map(|subnet| &subnet.id);
        let instances = self.instances.iter().map(|instance| &instance.id);
        let others = [&self.security_group_id, &self.route_table_id];
        for id in subnets.chain(instances).chain(others) {
            Ec2(moto).tag(id, &[tag]).await?;
        }
        Ok(())
    }

    /// Terminates instances. moto shows them as `terminated` from then on.
    ///
    /// # Errors
    /// When moto refuses.
    pub async fn terminate(&self, moto: &Moto, ids: &[&str]) -> Result<(), AwsError> {
        let ids = Parameters::numbered("InstanceId", ids.iter().copied());
        Ec2(moto).call_with("TerminateInstances", ids).await.map(drop)
    }

    /// # Errors
    /// When moto refuses.
    pub async fn stop(&self, moto: &Moto, ids: &[&str]) -> Result<(), AwsError> {
        let ids = Parameters::numbered("InstanceId", ids.iter().copied());
        Ec2(moto).call_with("StopInstances", ids).await.map(drop)
    }

    /// The cloud config file of the in-tree provider. Zone, VPC, subnet and route table are given, so it asks no
    /// instance metadata; its generation of the SDK knows no `AWS_ENDPOINT_URL`, so the endpoints are in here too.
    pub fn cloud_config(&self, endpoint: &str) -> String {
        let first = self.subnets.first();
        let (subnet, zone) = first.map_or(("", ""), |subnet| (subnet.id.as_str(), subnet.zone.as_str()));
        let config = format!(
            "[Global]\nZone = {zone}\nVPC = {}\nSubnetID = {subnet}\nRouteTableID = {}\nKubernetesClusterID = {}\n{}",
            self.vpc_id, self.route_table_id, self.cluster_id, self.cloud_config_lines
        );
        config + &service_overrides(endpoint)
    }

    /// A cloud config file that leaves zone, VPC and own instance to the instance metadata service
    /// ([`InstanceMetadata`](super::InstanceMetadata)).
    pub fn cloud_config_of_instances(&self, endpoint: &str) -> String {
        format!(
            "[Global]\nKubernetesClusterID = {}\n{}{}",
            self.cluster_id,
            self.cloud_config_lines,
            service_overrides(endpoint)
        )
    }

    fn run_parameters(&self, subnet: &str, count: &str) -> Parameters {
        let cluster_tag = cluster_tag(&self.cluster_id);
        let name = format!("{}-node", self.cluster_id);
        Parameters::from_iter([
            ("ImageId", IMAGE),
            ("InstanceType", INSTANCE_TYPE),
            ("MinCount", count),
            ("MaxCount", count),
            ("SubnetId", subnet),
            ("SecurityGroupId.1", &self.security_group_id),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", &cluster_tag),
            ("TagSpecification.1.Tag.1.Value", "owned"),
            ("TagSpecification.1.Tag.2.Key", "Name"),
            ("TagSpecification.1.Tag.2.Value", &name),
        ])
    }
}

fn service_overrides(endpoint: &str) -> String {
    let sections = ["ec2", "elasticloadbalancing"]
        .iter()
        .enumerate()
        .map(|(number, service)| {
            format!(
                "\n[ServiceOverride \"{}\"]\nService = {service}\nRegion = {REGION}\nURL = {endpoint}\n\
             SigningRegion = {REGION}\n",
                number + 1
            )
        });
    sections.collect()
}

struct Ec2<'a>(&'a Moto);

impl Ec2<'_> {
    async fn call(&self, action: &str, parameters: &[(&str, &str)]) -> Result<Element, AwsError> {
        self.call_with(action, parameters.iter().copied().collect()).await
    }

    async fn call_with(&self, action: &str, parameters: Parameters) -> Result<Element, AwsError> {
        self.0.call(&Service::Ec2, action, parameters).await
    }

    async fn tag(&self, resource: &str, tags: &[(&str, &str)]) -> Result<(), AwsError> {
        let fields = (1..).zip(tags).flat_map(|(number, (key, value))| {
            let field = |name: &str| format!("Tag.{number}.{name}");
            [(field("Key"), *key), (field("Value"), *value)]
        });
        let parameters = [("ResourceId.1".to_owned(), resource)].into_iter().chain(fields);
        self.call_with("CreateTags", parameters.collect()).await.map(drop)
    }

    /// Starts instances, and returns them when they run: only then they have public addresses.
    async fn run(&self, parameters: Parameters) -> Result<Vec<Instance>, AwsError> {
        let answer = self.call_with("RunInstances", parameters).await?;
        let started = answer.items("instancesSet");
        if started.is_empty() {
            return Err(missing("RunInstances", "instanceId"));
        }

        let ids = started.iter().map(|item| item.value("instanceId"));
        let ids = Parameters::numbered("InstanceId", ids);
        let running = self.call_with("DescribeInstances", ids).await?;
        Ok(running.items("instancesSet").iter().map(instance).collect())
    }

    /// The default subnets of the region's first two availability zones, tagged. The others are deleted: both AWS providers
    /// also put load balancers into subnets that carry no cluster's tag, and AWS makes no default subnet in a local zone.
    async fn subnets(&self, vpc: &str, cluster_id: &str) -> Result<Vec<Subnet>, AwsError> {
        let answer = self.call("DescribeSubnets", &filter("vpc-id", vpc)).await?;
        let subnets = answer.items("subnetSet").iter().map(|item| Subnet {
            id: item.value("subnetId").to_owned(),
            zone: item.value("availabilityZone").to_owned(),
        });
        let (local, mut subnets): (Vec<Subnet>, Vec<Subnet>) = subnets.partition(|subnet| subnet.zone == LOCAL_ZONE);
        subnets.sort_by(|a, b| a.zone.cmp(&b.zone));
        for other in local.iter().chain(subnets.iter().skip(2)) {
            self.call("DeleteSubnet", &[("SubnetId", &other.id)]).await?;
        }

        subnets.truncate(2);
        if subnets.len() < 2 {
            return Err(missing("DescribeSubnets", "second default subnet"));
        }

        for subnet in &subnets {
            self.tag(
                &subnet.id,
                &[(&cluster_tag(cluster_id), "owned"), ("kubernetes.io/role/elb", "1")],
            )
            .await?;
        }

        Ok(subnets)
    }

    /// An internet gateway and a default route to it; the main route table's ID.
    async fn internet(&self, vpc: &str) -> Result<String, AwsError> {
        let made = self.call("CreateInternetGateway", &[]).await?;
        let gateway = text(&made, "CreateInternetGateway", "internetGatewayId")?;
        self.call(
            "AttachInternetGateway",
            &[("InternetGatewayId", &gateway), ("VpcId", vpc)],
        )
        .await?;

        let tables = self.call("DescribeRouteTables", &filter("vpc-id", vpc)).await?;
        let table = first_item(&tables, "DescribeRouteTables", "routeTableSet", "routeTableId")?;
        let route = [
            ("RouteTableId", &*table),
            ("DestinationCidrBlock", "0.0.0.0/0"),
            ("GatewayId", &*gateway),
        ];

        self.call("CreateRoute", &route).await?;

        Ok(table)
    }

    async fn security_group(&self, vpc: &str, cluster_id: &str) -> Result<String, AwsError> {
        let name = format!("{cluster_id}-nodes");
        let group = [
            ("GroupName", name.as_str()),
            ("GroupDescription", "nodes of the cluster"),
            ("VpcId", vpc),
        ];
        let made = self.call("CreateSecurityGroup", &group).await?;
        let id = text(&made, "CreateSecurityGroup", "groupId")?;
        self.tag(&id, &[(&cluster_tag(cluster_id), "owned")]).await?;

        Ok(id)
    }
}

/// The tag of everything that belongs to a cluster.
pub(super) fn cluster_tag(cluster_id: &str) -> String {
    format!("kubernetes.io/cluster/{cluster_id}")
}

fn filter<'a>(name: &'a str, value: &'a str) -> [(&'static str, &'a str); 2] {
    [("Filter.1.Name", name), ("Filter.1.Value.1", value)]
}

fn missing(action: &str, field: &'static str) -> AwsError {
    AwsError::Missing {
        action: action.to_owned(),
        field,
    }
}

fn text(answer: &Element, action: &str, field: &'static str) -> Result<String, AwsError> {
    let found = answer
        .find(field)
        .map(|element| element.text.clone())
        .filter(|text| !text.is_empty());
    found.ok_or_else(|| missing(action, field))
}

fn first_item(answer: &Element, action: &str, list: &str, field: &'static str) -> Result<String, AwsError> {
    let first = answer.items(list).first().map(|item| item.value(field).to_owned());
    first
        .filter(|text| !text.is_empty())
        .ok_or_else(|| missing(action, field))
}

fn instance(item: &Element) -> Instance {
    Instance {
        id: item.value("instanceId").to_owned(),
        private_dns_name: item.value("privateDnsName").to_owned(),
        private_ip: item.value("privateIpAddress").to_owned(),
        zone: item
            .at(&["placement", "availabilityZone"])
            .map(|zone| zone.text.clone())
            .unwrap_or_default(),
        region: REGION.to_owned(),
        instance_type: item.value("instanceType").to_owned(),
        public: Some((item.value("ipAddress").to_owned(), item.value("dnsName").to_owned()))
            .filter(|(address, name)| !address.is_empty() && !name.is_empty()),
    }
}
