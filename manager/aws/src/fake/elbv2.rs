//! Network load balancers in memory.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::elb::{at_most, zone_of};
use super::network::{FakeListener, FakeNetworkLoadBalancer, Network, new_attributes, set};
use super::refusals::{invalid, refuse, unfit};
use super::{FakeAws, World, target_groups};
use crate::elbv2::{
    Attributes, HealthCheckChange, Listener, ListenerSettings, MAX_NAMES, MAX_TAGGED, NetworkLoadBalancer,
    NewNetworkLoadBalancer, NewTargetGroup, Target, TargetGroup, TargetGroupQuery, TargetHealth,
};
use crate::{Elbv2, Error, Page, Result, Tags, Token};

/// An ARN without what all have in common.
fn short(arn: &str) -> &str {
    arn.rsplit_once(':').map_or(arn, |(_, resource)| resource)
}

fn names(targets: &[Target]) -> String {
    let texts: Vec<String> = targets.iter().map(|t| format!("{}:{}", t.id, t.port)).collect();
    texts.join(",")
}

fn keys(attributes: &Attributes) -> String {
    let texts: Vec<String> = attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    texts.join(",")
}

fn about(listener: &ListenerSettings) -> String {
    let group = listener.target_group_arn.as_deref().map_or("", short);
    format!("{}/{} {group}", listener.protocol, listener.port)
}

/// The validation of a new load balancer.
fn check(world: &World, action: &'static str, new: &NewNetworkLoadBalancer) -> Result<()> {
    if new.subnets.is_empty() {
        return invalid(action, "At least one subnet must be specified");
    }

    let mut zones = BTreeSet::new();
    for mapping in &new.subnets {
        if !zones.insert(zone_of(world, action, &mapping.subnet_id)?) {
            return unfit(action, "two subnets in one zone");
        }
        if new.internal && mapping.allocation_id.is_some() {
            return unfit(action, "an internal load balancer has no elastic addresses");
        }
        if !new.internal && mapping.private_ipv4_address.is_some() {
            return unfit(action, "private addresses are for internal load balancers");
        }
    }

    groups_exist(world, action, &new.security_groups)
}

fn groups_exist(world: &World, action: &'static str, groups: &[String]) -> Result<()> {
    match groups.iter().find(|id| !world.security_groups.contains_key(*id)) {
        Some(group) => refuse(action, "InvalidSecurityGroup", group.clone()),
        None => Ok(()),
    }
}

fn create(world: &mut World, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer> {
    const ACTION: &str = "CreateLoadBalancer";

    check(world, ACTION, new)?;

    let scheme = if new.internal { "internal" } else { "internet-facing" };
    if let Some(old) = world.network.named(&new.name) {
        let described = &old.described;
        let groups = |ids: &[String]| ids.iter().cloned().collect::<BTreeSet<_>>();
        let same = old.kind == "network"
            && described.scheme.as_deref() == Some(scheme)
            && old.mappings == new.subnets
            && groups(&described.security_groups) == groups(&new.security_groups);
        if same {
            return Ok(described.clone());
        }

        let name = &new.name;
        let message = format!("A load balancer with the same name '{name}' exists, but with different settings");
        return refuse(ACTION, "DuplicateLoadBalancerName", message);
    }

    let subnets: BTreeSet<String> = new.subnets.iter().map(|mapping| mapping.subnet_id.clone()).collect();
    let subnet = world.subnets.iter().find(|subnet| subnets.contains(&subnet.id));
    let vpc_id = subnet.and_then(|subnet| subnet.vpc_id.clone());
    let provisioning = world.network.provisioning_looks;
    let arn = world.network.new_arn(&format!("loadbalancer/net/{}", new.name));
    let described = NetworkLoadBalancer {
        arn: arn.clone(),
        name: new.name.clone(),
        dns_name: format!("{}-0123456789abcdef.elb.eu-central-1.amazonaws.com", new.name),
        state: Some(if provisioning > 0 { "provisioning" } else { "active" }.to_owned()),
        scheme: Some(scheme.to_owned()),
        vpc_id,
        subnets,
        security_groups: new.security_groups.clone(),
    };

    let made = FakeNetworkLoadBalancer {
        described: described.clone(),
        kind: "network".to_owned(),
        mappings: new.subnets.clone(),
        attributes: new_attributes(new.internal),
        tags: new.tags.clone(),
        provisioning,
    };

    world.network.load_balancers.insert(arn, made);

    Ok(described)
}

fn delete(network: &mut Network, arn: &str) -> Result<()> {
    let protected = |lb: &FakeNetworkLoadBalancer| {
        let protection = lb.attributes.get("deletion_protection.enabled");
        protection.is_some_and(|value| value == "true")
    };
    if network.load_balancers.get(arn).is_some_and(protected) {
        let message = format!("Load balancer '{arn}' cannot be deleted because deletion protection is enabled");
        return refuse("DeleteLoadBalancer", "OperationNotPermitted", message);
    }

    network.load_balancers.remove(arn);
    network.listeners.retain(|_, listener| listener.load_balancer != arn);

    Ok(())
}

fn set_groups(world: &mut World, arn: &str, groups: &[String]) -> Result<()> {
    const ACTION: &str = "SetSecurityGroups";

    groups_exist(world, ACTION, groups)?;

    let now = &mut world.network.balancer(ACTION, arn)?.described.security_groups;
    if now.is_empty() {
        return unfit(
            ACTION,
            "a load balancer that was made without security groups can never have any",
        );
    }
    if groups.is_empty() {
        return unfit(ACTION, "at least one security group must stay");
    }

    *now = groups.to_vec();

    Ok(())
}

fn create_listener(world: &mut World, arn: &str, wanted: &ListenerSettings, tags: &Tags) -> Result<String> {
    const ACTION: &str = "CreateListener";

    let mut network = world.network.clone();
    let settings = network.checked(ACTION, arn, None, wanted)?;
    let balancer = short(arn).trim_start_matches("loadbalancer/");
    let own = network.new_arn(&format!("listener/{balancer}/{}", wanted.port));
    let made = FakeListener {
        load_balancer: arn.to_owned(),
        settings,
        tags: tags.clone(),
    };

    network.listeners.insert(own.clone(), made);
    target_groups::check_zones(world, &network, ACTION, arn)?;
    world.network = network;

    Ok(own)
}

#[async_trait]
impl Elbv2 for FakeAws {
    async fn load_balancers_once(&self, names: &[String]) -> Result<Vec<NetworkLoadBalancer>> {
        const ACTION: &str = "DescribeLoadBalancers";
        self.turn().await;
        self.read("DescribeLoadBalancers/v2", names.join(","), |world| {
            at_most(ACTION, names, MAX_NAMES)?;
            if let Some(name) = names.iter().find(|name| world.network.named(name).is_none()) {
                return Err(Network::no_name(ACTION, "LoadBalancerNotFound", name));
            }

            let found = world.network.load_balancers.values_mut();
            let mut seen = Vec::new();
            for balancer in found.filter(|lb| names.contains(&lb.described.name)) {
                if balancer.kind != "network" {
                    let message = format!("{} is of type {}", balancer.described.name, balancer.kind);
                    return Err(Error::unusable(ACTION, message));
                }
                seen.push(Network::look(balancer));
            }

            Ok(seen)
        })
    }

    async fn all_load_balancers_page(&self, token: Token) -> Result<Page<NetworkLoadBalancer>> {
        self.list("DescribeLoadBalancers/v2", String::new(), token, |world| {
            let all = world.network.load_balancers.values_mut();
            Ok(all.filter(|lb| lb.kind == "network").map(Network::look).collect())
        })
    }

    async fn create_load_balancer(&self, new: &NewNetworkLoadBalancer) -> Result<NetworkLoadBalancer> {
        self.write("CreateLoadBalancer/v2", new.name.clone(), |world| create(world, new))
    }

    async fn delete_load_balancer(&self, arn: &str) -> Result<()> {
        self.turn().await;
        self.write("DeleteLoadBalancer/v2", short(arn).to_owned(), |world| {
            delete(&mut world.network, arn)
        })
    }

    async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<()> {
        let about = format!("{} {}", short(arn), groups.join(","));
        self.write("SetSecurityGroups", about, |world| set_groups(world, arn, groups))
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes> {
        self.read("DescribeLoadBalancerAttributes/v2", short(arn).to_owned(), |world| {
            let balancer = world.network.balancer("DescribeLoadBalancerAttributes", arn)?;
            Ok(balancer.attributes.clone())
        })
    }

    async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()> {
        const ACTION: &str = "ModifyLoadBalancerAttributes";
        let about = format!("{} {}", short(arn), keys(attributes));
        self.write("ModifyLoadBalancerAttributes/v2", about, |world| {
            set(ACTION, &mut world.network.balancer(ACTION, arn)?.attributes, attributes)
        })
    }

    async fn tags_once(&self, arns: &[String]) -> Result<Vec<(String, Tags)>> {
        const ACTION: &str = "DescribeTags";
        let about: Vec<&str> = arns.iter().map(|arn| short(arn)).collect();
        self.read("DescribeTags/v2", about.join(","), |world| {
            at_most(ACTION, arns, MAX_TAGGED)?;
            let mut one = |arn: &String| Ok((arn.clone(), world.network.tags_of(ACTION, arn)?.clone()));
            arns.iter().map(&mut one).collect()
        })
    }

    async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<()> {
        let about: Vec<&str> = arns.iter().map(|arn| short(arn)).collect();
        self.write("AddTags/v2", about.join(","), |world| {
            at_most("AddTags", arns, MAX_TAGGED)?;
            for arn in arns {
                world.network.tags_of("AddTags", arn)?;
            }

            for arn in arns {
                world.network.tags_of("AddTags", arn)?.extend(tags.clone());
            }

            Ok(())
        })
    }

    async fn listeners_page(&self, load_balancer_arn: &str, token: Token) -> Result<Page<Listener>> {
        self.turn().await;
        self.list(
            "DescribeListeners",
            short(load_balancer_arn).to_owned(),
            token,
            |world| {
                world.network.balancer("DescribeListeners", load_balancer_arn)?;

                let all = world.network.listeners.iter();
                let own = all.filter(|(_, listener)| listener.load_balancer == load_balancer_arn);
                let described = own.map(|(arn, listener)| Listener {
                    arn: arn.clone(),
                    settings: listener.settings.clone(),
                });

                Ok(described.collect())
            },
        )
    }

    async fn create_listener(&self, balancer_arn: &str, listener: &ListenerSettings, tags: &Tags) -> Result<String> {
        self.turn().await;
        let about = format!("{} {}", short(balancer_arn), about(listener));
        self.write("CreateListener", about, |world| {
            create_listener(world, balancer_arn, listener, tags)
        })
    }

    async fn modify_listener(&self, arn: &str, listener: &ListenerSettings) -> Result<()> {
        const ACTION: &str = "ModifyListener";
        self.turn().await;
        self.write(ACTION, format!("{} {}", short(arn), about(listener)), |world| {
            let balancer = world.network.listener(ACTION, arn)?.load_balancer.clone();
            let mut network = world.network.clone();
            let settings = network.checked(ACTION, &balancer, Some(arn), listener)?;
            network.listener(ACTION, arn)?.settings = settings;
            target_groups::check_zones(world, &network, ACTION, &balancer)?;
            world.network = network;
            Ok(())
        })
    }

    async fn delete_listener(&self, arn: &str) -> Result<()> {
        self.turn().await;
        self.write("DeleteListener", short(arn).to_owned(), |world| {
            world.network.listeners.remove(arn);
            Ok(())
        })
    }

    async fn target_groups_page(&self, query: TargetGroupQuery<'_>, token: Token) -> Result<Page<TargetGroup>> {
        let about = match query {
            TargetGroupQuery::All => String::new(),
            TargetGroupQuery::UsedBy(arn) => short(arn).to_owned(),
            TargetGroupQuery::Names(names) => names.join(","),
        };
        self.list("DescribeTargetGroups", about, token, |world| {
            target_groups::describe(&mut world.network, query)
        })
    }

    async fn create_target_group(&self, new: &NewTargetGroup) -> Result<String> {
        self.write("CreateTargetGroup", new.name.clone(), |world| {
            target_groups::create(&mut world.network, new)
        })
    }

    async fn modify_target_group(&self, arn: &str, change: &HealthCheckChange) -> Result<()> {
        self.turn().await;
        self.write("ModifyTargetGroup", short(arn).to_owned(), |world| {
            target_groups::modify(&mut world.network, arn, change)
        })
    }

    async fn delete_target_group(&self, arn: &str) -> Result<()> {
        self.write("DeleteTargetGroup", short(arn).to_owned(), |world| {
            target_groups::delete(world, arn)
        })
    }

    async fn target_health(&self, target_group_arn: &str) -> Result<Vec<TargetHealth>> {
        self.turn().await;
        self.read("DescribeTargetHealth", short(target_group_arn).to_owned(), |world| {
            target_groups::health(&mut world.network, target_group_arn)
        })
    }

    async fn register_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        self.turn().await;
        let about = format!("{} {}", short(target_group_arn), names(targets));
        self.write("RegisterTargets", about, |world| {
            target_groups::register(world, target_group_arn, targets)
        })
    }

    async fn deregister_targets(&self, target_group_arn: &str, targets: &[Target]) -> Result<()> {
        let about = format!("{} {}", short(target_group_arn), names(targets));
        self.write("DeregisterTargets", about, |world| {
            target_groups::deregister(world, target_group_arn, targets)
        })
    }

    async fn target_group_attributes(&self, arn: &str) -> Result<Attributes> {
        const ACTION: &str = "DescribeTargetGroupAttributes";
        self.read(ACTION, short(arn).to_owned(), |world| {
            Ok(world.network.group(ACTION, arn)?.attributes.clone())
        })
    }

    async fn modify_target_group_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()> {
        let about = format!("{} {}", short(arn), keys(attributes));
        self.write("ModifyTargetGroupAttributes", about, |world| {
            target_groups::set_attributes(&mut world.network, arn, attributes)
        })
    }
}
