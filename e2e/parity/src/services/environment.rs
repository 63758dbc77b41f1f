//! The AWS of one worker: a moto with the resources of all cases and of one case, which are deleted after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::account;
use super::case::{Aws, AwsCall, CaseInstance, Subnet};
use super::names::Names;
use super::outcome::Account;
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Instance, Moto, Proxy, SeededAccount, Service};
use outrigger_cluster_harness::tools::Tools;

/// The cluster's ID in its AWS tags.
pub(super) const CLUSTER_ID: &str = "parity";
/// The tag of a cluster's resources before Kubernetes 1.6, which kOps still sets. Its value is the cluster's ID.
pub(super) const LEGACY_TAG: &str = "KubernetesCluster";
/// For the Nodes of every case, and for one that can be added.
const INSTANCES: usize = 7;
/// A security group without a cluster, for `ElbSecurityGroup` and annotations.
const SHARED_GROUP: &str = "shared";

pub(super) struct Environment {
    pub(super) proxy: Proxy,
    pub(super) account: SeededAccount,
    pub(super) names: Names,
    /// The resources without a case.
    pub(super) baseline: Account,
    /// Whether the case has stopped instances.
    stopped: AtomicBool,
    /// The case's own instances, by the names of their Nodes.
    instances: Mutex<BTreeMap<String, Instance>>,
    /// Whether the cluster's resources have [`LEGACY_TAG`] too.
    pub(super) legacy_tags: bool,
    moto: Moto,
}

/// The resources of a case, with the names of all.
pub(super) struct Case {
    pub(super) names: Names,
    subnets: Vec<String>,
    /// The VPCs of foreign subnets.
    vpcs: Vec<String>,
    tables: Vec<String>,
    /// Resource, key, and the value before.
    tags: Vec<(String, String, Option<String>)>,
}

impl Environment {
    pub(super) async fn start(tools: &Tools, folder: &Path, legacy_tags: bool) -> Result<Self> {
        let moto = Moto::start(tools, folder).await?;
        let account = SeededAccount::seed(&moto, CLUSTER_ID, INSTANCES).await?;
        let proxy = Proxy::start(&moto, &[], Some(&folder.join("aws-calls.jsonl"))).await?;
        let mut names = Names::default();
        names.learn(&account.vpc_id, "vpc");
        for (subnet, letter) in account.subnets.iter().zip(["a", "b"]) {
            names.learn(&subnet.id, format!("subnet-{letter}"));
        }

        for (number, instance) in account.instances.iter().enumerate() {
            names.learn(&instance.id, format!("node-{}", number + 1));
        }

        let mut environment = Self {
            proxy,
            account,
            names,
            baseline: Account::new(),
            stopped: AtomicBool::new(false),
            instances: Mutex::default(),
            legacy_tags,
            moto,
        };

        if legacy_tags {
            let tag = (LEGACY_TAG, CLUSTER_ID);
            environment.account.tag_all(&environment.moto, tag).await?;
        }

        environment.group(SHARED_GROUP, &BTreeMap::new()).await?;
        environment.baseline = account::read(&environment.proxy, &mut environment.names).await?;

        Ok(environment)
    }

    pub(super) fn instance(&self, node: &str) -> Option<Instance> {
        let own = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        own.get(node).cloned().or_else(|| {
            let number: usize = node.strip_prefix("node-")?.parse().ok()?;
            self.account.instances.get(number.checked_sub(1)?).cloned()
        })
    }

    /// Creates the resources of a case.
    pub(super) async fn prepare(&self, wanted: &Aws) -> Result<Case> {
        let mut case = Case {
            names: self.names.clone(),
            subnets: Vec::new(),
            vpcs: Vec::new(),
            tables: Vec::new(),
            tags: Vec::new(),
        };

        self.subnets(&wanted.subnets, &mut case).await?;
        for group in &wanted.groups {
            let id = self.group(&group.name, &group.tags).await?;
            case.names.learn(&id, format!("sg:{}", group.name));
        }

        for instance in &wanted.instances {
            self.start_instance(instance, &mut case).await?;
        }

        for address in &wanted.addresses {
            let made = self.ec2("AllocateAddress", &[("Domain", "vpc")]).await?;
            case.names.learn(&text(&made, "allocationId")?, address.clone());
        }

        for (resource, tags) in &wanted.tags {
            let id = case.names.id(resource).map(str::to_owned);
            let id = id.with_context(|| format!("aws.tags: {resource} is unknown"))?;
            for (key, value) in tags {
                let before = self.tag(&id, key, value.as_deref()).await?;
                case.tags.push((id.clone(), key.clone(), before));
            }
        }

        for call in &wanted.calls {
            self.by_hand(call, &case.names).await?;
        }

        Ok(case)
    }

    /// A manual call.
    pub(super) async fn by_hand(&self, call: &AwsCall, names: &Names) -> Result<()> {
        let service = match call.service.as_str() {
            "ec2" => Service::Ec2,
            "elb" => Service::Elb,
            "elbv2" => Service::ElbV2,
            other => anyhow::bail!("calls: service {other:?} is unknown; use ec2, elb or elbv2"),
        };

        if call.action == "StopInstances" {
            self.stopped.store(true, Ordering::Relaxed);
        }

        let parameters = call.parameters.iter();
        let parameters = parameters.map(|(key, value)| (key.clone(), names.resolved(value)));
        let answer = self.proxy.ask(&service, &call.action, parameters.collect()).await;
        answer.with_context(|| format!("calls: {}", call.action)).map(drop)
    }

    /// Starts an instance of the case, in one of its security groups.
    async fn start_instance(&self, wanted: &CaseInstance, case: &mut Case) -> Result<()> {
        let group = case.names.id(&format!("sg:{}", wanted.group));
        let group = group.with_context(|| format!("aws.instances: group {} is unknown", wanted.group))?;
        let made = self.account.start_instance_in(&self.moto, group).await?;

        case.names.learn(&made.id, wanted.name.clone());
        let mut own = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        own.insert(wanted.name.clone(), made);

        Ok(())
    }

    /// moto draws random IDs. The first subnet in each zone gets the smallest of its zone.
    async fn subnets(&self, wanted: &[Subnet], case: &mut Case) -> Result<()> {
        let mut made = Vec::new();
        for (number, subnet) in wanted.iter().enumerate() {
            let range = format!("172.31.{}.0/24", 128 + number);
            let zone = subnet.zone.as_str();
            let vpc = self.vpc_of(subnet, case).await?;
            let parameters = [
                ("VpcId", vpc.as_str()),
                ("CidrBlock", &range),
                ("AvailabilityZone", zone),
            ];
            let answer = self.ec2("CreateSubnet", &parameters).await?;
            made.push((zone, text(&answer, "subnetId")?));
        }

        case.subnets = made.iter().map(|(_, id)| id.clone()).collect();
        made.sort();
        for subnet in wanted {
            let position = made.iter().position(|(zone, _)| *zone == subnet.zone);
            let (_, id) = made.remove(position.context("a subnet for each")?);
            case.names.learn(&id, subnet.name.clone());
            for (key, value) in &subnet.tags {
                self.tag(&id, key, Some(value)).await?;
            }

            if subnet.private || subnet.public {
                case.tables.extend(self.own_table(&id, subnet.public).await?);
            }
        }

        Ok(())
    }

    /// The cluster's VPC, or a new one for a foreign subnet.
    async fn vpc_of(&self, subnet: &Subnet, case: &mut Case) -> Result<String> {
        if !subnet.foreign {
            return Ok(self.account.vpc_id.clone());
        }

        let made = self.ec2("CreateVpc", &[("CidrBlock", "172.31.0.0/16")]).await?;
        let vpc = text(&made, "vpcId")?;
        case.vpcs.push(vpc.clone());

        Ok(vpc)
    }

    /// Creates a route table for a subnet; returns the association and the table.
    async fn own_table(&self, subnet: &str, public: bool) -> Result<[String; 2]> {
        let vpc = [("VpcId", self.account.vpc_id.as_str())];
        let table = text(&self.ec2("CreateRouteTable", &vpc).await?, "routeTableId")?;
        if public {
            let gateways = self.ec2("DescribeInternetGateways", &[]).await?;
            let gateway = text(&gateways, "internetGatewayId")?;
            let route = [
                ("RouteTableId", table.as_str()),
                ("DestinationCidrBlock", "0.0.0.0/0"),
                ("GatewayId", &gateway),
            ];

            self.ec2("CreateRoute", &route).await?;
        }

        let parameters = [("RouteTableId", table.as_str()), ("SubnetId", subnet)];
        let made = self.ec2("AssociateRouteTable", &parameters).await?;
        Ok([text(&made, "associationId")?, table])
    }

    async fn group(&self, name: &str, tags: &BTreeMap<String, String>) -> Result<String> {
        let parameters = [
            ("GroupName", name),
            ("GroupDescription", name),
            ("VpcId", &self.account.vpc_id),
        ];
        let made = self.ec2("CreateSecurityGroup", &parameters).await?;
        let id = text(&made, "groupId")?;

        for (key, value) in tags {
            self.tag(&id, key, Some(value)).await?;
        }

        let own = format!("kubernetes.io/cluster/{CLUSTER_ID}");
        if self.legacy_tags && tags.contains_key(&own) {
            self.tag(&id, LEGACY_TAG, Some(CLUSTER_ID)).await?;
        }

        Ok(id)
    }

    /// Sets or deletes a tag, and returns its old value.
    async fn tag(&self, id: &str, key: &str, value: Option<&str>) -> Result<Option<String>> {
        let there = self.filtered("DescribeTags", "resource-id", id).await?;
        let before = there.items("tagSet").iter().find(|tag| tag.value("key") == key);
        let before = before.map(|tag| tag.value("value").to_owned());
        let on = [("ResourceId.1", id), ("Tag.1.Key", key)];

        match value {
            Some(value) => self.ec2("CreateTags", &[on[0], on[1], ("Tag.1.Value", value)]).await?,
            None => self.ec2("DeleteTags", &on).await?,
        };

        Ok(before)
    }

    /// Deletes the resources of the case, and the remaining ones of its Service.
    pub(super) async fn clear(&self, case: Case) -> Result<()> {
        self.clear_load_balancers().await?;
        self.terminate_instances().await?;
        self.clear_groups().await?;
        for pair in case.tables.chunks(2) {
            if let [association, table] = pair {
                self.ec2("DisassociateRouteTable", &[("AssociationId", association)])
                    .await?;
                self.ec2("DeleteRouteTable", &[("RouteTableId", table)]).await?;
            }
        }

        for id in &case.subnets {
            self.ec2("DeleteSubnet", &[("SubnetId", id)]).await?;
        }

        for id in &case.vpcs {
            self.ec2("DeleteVpc", &[("VpcId", id)]).await?;
        }

        for (id, key, before) in case.tags.iter().rev() {
            if !case.subnets.contains(id) {
                self.tag(id, key, before.as_deref()).await?;
            }
        }

        self.start_instances().await
    }

    async fn start_instances(&self) -> Result<()> {
        if !self.stopped.swap(false, Ordering::Relaxed) {
            return Ok(());
        }

        let instances = self.account.instances.iter().zip(1..);
        let parameters: Parameters = instances
            .map(|(instance, number)| (format!("InstanceId.{number}"), instance.id.clone()))
            .collect();
        self.proxy.ask(&Service::Ec2, "StartInstances", parameters).await?;
        Ok(())
    }

    /// Terminates the case's own instances.
    async fn terminate_instances(&self) -> Result<()> {
        let instances = std::mem::take(&mut *self.instances.lock().unwrap_or_else(PoisonError::into_inner));
        for instance in instances.values() {
            self.ec2("TerminateInstances", &[("InstanceId.1", &instance.id)])
                .await?;
        }

        Ok(())
    }

    /// Deletes through the proxy, which has state of some resources.
    async fn clear_load_balancers(&self) -> Result<()> {
        let (elb, v2) = (&Service::Elb, &Service::ElbV2);
        for (service, resource, list, key) in [
            (elb, "LoadBalancer", "LoadBalancerDescriptions", "LoadBalancerName"),
            (v2, "LoadBalancer", "LoadBalancers", "LoadBalancerArn"),
            (v2, "TargetGroup", "TargetGroups", "TargetGroupArn"),
        ] {
            let described = self.call(service, &format!("Describe{resource}s"), &[]).await?;
            for item in described.items(list) {
                let parameters: Parameters = [(key, item.value(key))].into_iter().collect();
                let action = format!("Delete{resource}");
                self.proxy.ask(service, &action, parameters).await?;
            }
        }

        Ok(())
    }

    /// Deletes the rules of groups of all cases, and all other groups.
    async fn clear_groups(&self) -> Result<()> {
        let groups = self
            .filtered("DescribeSecurityGroups", "vpc-id", &self.account.vpc_id)
            .await?;
        for group in groups.items("securityGroupInfo") {
            let id = group.value("groupId");
            if group.value("groupName") == "default" {
                continue; // AWS created it with a rule
            }

            let object = format!("security group {}", group.value("groupName"));
            if !self.baseline.contains_key(&object) {
                self.ec2("DeleteSecurityGroup", &[("GroupId", id)]).await?;
                continue;
            }

            let rules = self.filtered("DescribeSecurityGroupRules", "group-id", id).await?;
            let rules = rules.items("securityGroupRuleSet").iter();
            for rule in rules.filter(|rule| rule.value("isEgress") == "false") {
                let rule = ("SecurityGroupRuleId.1", rule.value("securityGroupRuleId"));
                self.ec2("RevokeSecurityGroupIngress", &[("GroupId", id), rule]).await?;
            }
        }

        Ok(())
    }

    async fn filtered(&self, action: &str, filter: &str, value: &str) -> Result<Element> {
        let filters = [("Filter.1.Name", filter), ("Filter.1.Value.1", value)];
        self.ec2(action, &filters).await
    }

    async fn ec2(&self, action: &str, parameters: &[(&str, &str)]) -> Result<Element> {
        self.call(&Service::Ec2, action, parameters).await
    }

    async fn call(&self, service: &Service, action: &str, parameters: &[(&str, &str)]) -> Result<Element> {
        let parameters: Parameters = parameters.iter().copied().collect();
        Ok(self.moto.call(service, action, parameters).await?)
    }
}

fn text(answer: &Element, field: &str) -> Result<String> {
    let found = answer.find(field).map(|element| element.text.clone());
    found.with_context(|| format!("no {field} in moto's answer"))
}
