//! EC2 in memory.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::refusals::{refuse, within};
use super::world::{join, pass_tags, same, sources, split};
use super::{FakeAws, World, instances, routes};
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, InstanceLayers, InstanceQuery, IpPermission,
    MAX_FILTER_VALUES, MAX_TOPOLOGY_IDS, NewSecurityGroup, RouteTable, SecurityGroup, Subnet,
};
use crate::{Ec2, Error, Page, Result, Tags, Token};

fn about(filters: &[Filter]) -> String {
    let texts = filters.iter().map(|f| format!("{}={}", f.name, f.values.join(",")));
    texts.collect::<Vec<_>>().join(" ")
}

fn check(action: &'static str, filters: &[Filter]) -> Result<()> {
    let bad = |f: &Filter| f.values.is_empty() || f.values.len() > MAX_FILTER_VALUES;
    if filters.is_empty() || filters.iter().any(bad) {
        return refuse(action, "InvalidParameterValue", "a filter needs 1 to 200 values");
    }

    Ok(())
}

fn has(filter: &Filter, value: Option<&String>) -> bool {
    value.is_some_and(|value| filter.values.contains(value))
}

fn group_passes(group: &SecurityGroup, filter: &Filter) -> Result<bool> {
    let mut sources = group.ingress.iter().flat_map(|rule| &rule.groups);
    Ok(match filter.name.as_str() {
        "group-id" => filter.values.contains(&group.id),
        "group-name" => has(filter, group.name.as_ref()),
        "vpc-id" => has(filter, group.vpc_id.as_ref()),
        "ip-permission.group-id" => sources.any(|pair| has(filter, pair.group_id.as_ref())),
        _ => pass_tags("DescribeSecurityGroups", &group.tags, filter)?,
    })
}

fn subnet_passes(subnet: &Subnet, filter: &Filter) -> Result<bool> {
    Ok(match filter.name.as_str() {
        "subnet-id" => filter.values.contains(&subnet.id),
        "vpc-id" => has(filter, subnet.vpc_id.as_ref()),
        _ => pass_tags("DescribeSubnets", &subnet.tags, filter)?,
    })
}

fn select<T: Clone>(
    from: impl Iterator<Item = T>,
    filters: &[Filter],
    passes: impl Fn(&T, &Filter) -> Result<bool>,
) -> Result<Vec<T>> {
    let mut selected = Vec::new();
    'next: for item in from {
        for filter in filters {
            if !passes(&item, filter)? {
                continue 'next;
            }
        }
        selected.push(item);
    }

    Ok(selected)
}

fn group_mut<'w>(world: &'w mut World, action: &'static str, id: &str) -> Result<&'w mut SecurityGroup> {
    world.security_groups.get_mut(id).ok_or_else(|| {
        let message = format!("The security group '{id}' does not exist");
        Error::answered(action, "InvalidGroup.NotFound", message)
    })
}

/// All or nothing, as EC2: before anything is changed, an ID that has no form of an ID or does not exist fails the call.
fn change_tags(
    world: &mut World,
    action: &'static str,
    resources: &[String],
    change: impl Fn(&mut Tags),
) -> Result<()> {
    if let Some(id) = resources.iter().find(|id| !has_form_of_id(id)) {
        return refuse(action, "InvalidID", format!("The ID '{id}' is not valid"));
    }

    let ids = resources.iter().filter(|id| id.starts_with("i-"));
    let ids: Vec<InstanceId> = ids.map(|id| InstanceId::new(id.as_str())).collect();
    instances::all_exist(world, action, &ids)?;

    for resource in resources.iter().filter(|id| !id.starts_with("i-")) {
        group_mut(world, action, resource)?;
    }

    for resource in resources {
        match world.instances.get_mut(&InstanceId::new(resource.as_str())) {
            Some(instance) => change(&mut instance.tags),
            None => change(&mut group_mut(world, action, resource)?.tags),
        }
    }

    Ok(())
}

/// Security groups have names of all sorts in tests; an instance's ID is hexadecimal.
fn has_form_of_id(id: &str) -> bool {
    match id.strip_prefix("i-") {
        Some(number) => !number.is_empty() && number.chars().all(|c| c.is_ascii_hexdigit()),
        None => id.starts_with("sg-"),
    }
}

fn in_use(world: &World, id: &str) -> bool {
    let is_in = |groups: &[String]| groups.iter().any(|group| group == id);
    let names = |group: &SecurityGroup| {
        let mut sources = group.ingress.iter().flat_map(|rule| &rule.groups);
        group.id != id && sources.any(|pair| pair.group_id.as_deref() == Some(id))
    };
    let mut balancers = world.load_balancers.values();

    world.security_groups.values().any(names)
        || balancers.any(|lb| is_in(&lb.described.security_groups))
        || world.network.uses_group(id)
        || world.interfaces.values().any(|groups| groups.contains(id))
        || world
            .instances
            .values()
            .any(|instance| is_in(&instance.security_groups))
}

/// Refuses rules that EC2 does not take: a protocol or network that is none, a source that does not exist.
fn acceptable(world: &World, rules: &[IpPermission]) -> Result<()> {
    let refuse = |code, what: &str| refuse("AuthorizeSecurityGroupIngress", code, what);
    for rule in rules {
        let number = rule.protocol.parse::<u8>().is_ok();
        if !number && !matches!(rule.protocol.as_str(), "tcp" | "udp" | "icmp" | "icmpv6" | "-1") {
            return refuse("InvalidParameterValue", &rule.protocol);
        }
        if let Some(range) = rule.ranges.iter().find(|range| !is_ipv4_network(&range.cidr)) {
            return refuse("InvalidParameterValue", &range.cidr);
        }

        let sources = rule.groups.iter().filter_map(|pair| pair.group_id.as_ref());
        if let Some(missing) = sources.clone().find(|id| !world.security_groups.contains_key(*id)) {
            return refuse("InvalidGroup.NotFound", missing);
        }
    }

    Ok(())
}

fn is_ipv4_network(cidr: &str) -> bool {
    cidr.split_once('/').is_some_and(|(address, length)| {
        address.parse::<std::net::Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|length| length <= 32)
    })
}

fn describe_rules(rules: &[IpPermission]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for rule in split(rules) {
        let port = rule.from_port.map_or_else(String::new, |p| format!("{p}"));
        let source = rule.ranges.first().map(|r| r.cidr.clone());
        let source = source
            .or_else(|| rule.groups.first().and_then(|g| g.group_id.clone()))
            .unwrap_or_default();
        texts.push(format!("{}/{port}<-{source}", rule.protocol));
    }

    texts.join(" ")
}

#[async_trait]
impl Ec2 for FakeAws {
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Token) -> Result<Page<Instance>> {
        self.list("DescribeInstances", instances::about(query), token, |world| {
            instances::found(world, query)
        })
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>> {
        self.read("DescribeAvailabilityZones", String::new(), |world| {
            Ok(world.zones.clone())
        })
    }

    async fn subnets_page(&self, filters: &[Filter], token: Token) -> Result<Page<Subnet>> {
        self.list("DescribeSubnets", about(filters), token, |world| {
            check("DescribeSubnets", filters)?;
            select(world.subnets.iter().cloned(), filters, subnet_passes)
        })
    }

    async fn security_groups_page(&self, filters: &[Filter], token: Token) -> Result<Page<SecurityGroup>> {
        self.turn().await;
        let listed = self.listed_groups();
        self.turn().await;
        self.list("DescribeSecurityGroups", about(filters), token, |_| {
            check("DescribeSecurityGroups", filters)?;
            let mut groups = select(listed.into_values(), filters, group_passes)?;
            for group in &mut groups {
                group.ingress = join(&group.ingress);
            }
            Ok(groups)
        })
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String> {
        self.write("CreateSecurityGroup", group.name.clone(), |world| {
            let taken = |other: &SecurityGroup| {
                other.name.as_deref() == Some(&group.name) && other.vpc_id.as_deref() == Some(&group.vpc_id)
            };
            if world.security_groups.values().any(taken) {
                return refuse("CreateSecurityGroup", "InvalidGroup.Duplicate", "the name is taken");
            }

            world.groups_made += 1;

            let id = format!("sg-new{}", world.groups_made);
            let made = SecurityGroup {
                id: id.clone(),
                name: Some(group.name.clone()),
                description: Some(group.description.clone()),
                vpc_id: Some(group.vpc_id.clone()),
                ingress: Vec::new(),
                tags: group.tags.clone(),
            };

            world.security_groups.insert(id.clone(), made);

            Ok(id)
        })
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        const ACTION: &str = "AuthorizeSecurityGroupIngress";
        self.turn().await;
        let done = self.write(ACTION, format!("{group_id} {}", describe_rules(rules)), |world| {
            acceptable(world, rules)?;

            let quotas = world.quotas;
            let group = group_mut(world, ACTION, group_id)?;
            let (old, new) = (split(&group.ingress), split(rules));
            if (1..new.len()).any(|at| new[..at].iter().any(|other| same(&new[at], other))) {
                let message = "The same permission must not appear multiple times";
                return refuse(ACTION, "InvalidParameterValue", message);
            }
            if new.iter().any(|rule| old.iter().any(|other| same(rule, other))) {
                return refuse(ACTION, "InvalidPermission.Duplicate", "the rule exists");
            }

            let all: Vec<IpPermission> = old.into_iter().chain(new).collect();
            within(ACTION, quotas.check_rules(sources(&all)))?;
            group.ingress = all;

            Ok(())
        });
        self.turn().await;
        done
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        const ACTION: &str = "RevokeSecurityGroupIngress";
        self.turn().await;
        let done = self.write(ACTION, format!("{group_id} {}", describe_rules(rules)), |world| {
            let group = group_mut(world, ACTION, group_id)?;
            let (mut old, gone) = (split(&group.ingress), split(rules));
            if gone.iter().any(|rule| !old.iter().any(|other| same(rule, other))) {
                return refuse(ACTION, "InvalidPermission.NotFound", "no such rule");
            }

            old.retain(|other| !gone.iter().any(|rule| same(rule, other)));
            group.ingress = old;

            Ok(())
        });
        self.turn().await;
        done
    }

    async fn describe_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<()> {
        const ACTION: &str = "UpdateSecurityGroupRuleDescriptionsIngress";
        self.turn().await;
        let done = self.write(ACTION, format!("{group_id} {}", describe_rules(rules)), |world| {
            let group = group_mut(world, ACTION, group_id)?;
            let (mut all, described) = (split(&group.ingress), split(rules));
            for rule in described {
                let Some(found) = all.iter_mut().find(|other| same(&rule, other)) else {
                    return refuse(ACTION, "InvalidPermission.NotFound", "no such rule");
                };
                *found = rule;
            }

            group.ingress = all;

            Ok(())
        });
        self.turn().await;
        done
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<()> {
        const ACTION: &str = "DeleteSecurityGroup";
        self.write(ACTION, group_id.to_owned(), |world| {
            group_mut(world, ACTION, group_id)?;
            if world.lingers(group_id) || in_use(world, group_id) {
                return refuse(ACTION, "DependencyViolation", "has a dependent object");
            }
            world.security_groups.remove(group_id);
            Ok(())
        })
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        self.write("CreateTags", resources.join(","), |world| {
            change_tags(world, "CreateTags", resources, |of| of.extend(tags.clone()))
        })
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        self.write("DeleteTags", resources.join(","), |world| {
            change_tags(world, "DeleteTags", resources, |of| {
                of.retain(|key, value| tags.get(key) != Some(value));
            })
        })
    }

    async fn instance_topology_page(&self, ids: &[InstanceId], token: Token) -> Result<Page<InstanceLayers>> {
        const ACTION: &str = "DescribeInstanceTopology";
        self.list(ACTION, instances::names(ids, ","), token, |world| {
            if ids.len() > MAX_TOPOLOGY_IDS {
                return refuse(ACTION, "InvalidParameterValue", "at most 100 IDs");
            }

            instances::all_exist(world, ACTION, ids)?;
            let layers = |id: &InstanceId| Some((id.clone(), world.topology.get(id)?.clone()));
            Ok(ids.iter().filter_map(layers).collect())
        })
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Token) -> Result<Page<RouteTable>> {
        self.list("DescribeRouteTables", about(filters), token, |world| {
            check("DescribeRouteTables", filters)?;
            let tables = world.route_tables.iter();
            let all = tables.flat_map(|(vpc, tables)| tables.iter().map(move |table| (vpc.as_str(), table)));
            let chosen = select(all, filters, |(vpc, table), filter| routes::passes(vpc, table, filter))?;
            Ok(chosen.into_iter().map(|(_, table)| table.clone()).collect())
        })
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        self.write("CreateRoute", format!("{table_id} {cidr} {instance}"), |world| {
            routes::create(world, table_id, cidr, instance)
        })
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<()> {
        self.write("ReplaceRoute", format!("{table_id} {cidr} {instance}"), |world| {
            routes::replace(world, table_id, cidr, instance)
        })
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<()> {
        self.write("DeleteRoute", format!("{table_id} {cidr}"), |world| {
            routes::delete(world, table_id, cidr)
        })
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<()> {
        self.write("ModifyInstanceAttribute", instance.to_string(), |world| {
            routes::instance(world, "ModifyInstanceAttribute", instance)?.source_dest_check = Some(false);
            Ok(())
        })
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>> {
        let about = format!("plain {}", instances::names(ids, ", "));
        self.read("DescribeInstances", about, |world| instances::by_plain_id(world, ids))
    }

    async fn fargate_interfaces_page(&self, vpc_id: &str, ips: &[String], token: Token) -> Result<Page<FargateEni>> {
        self.list("DescribeNetworkInterfaces", ips.join(","), token, |world| {
            instances::fargate_enis(world, vpc_id, ips)
        })
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Token) -> Result<Page<String>> {
        let about = format!("group-id={group_id}");
        self.list("DescribeNetworkInterfaces", about, token, |world| {
            let has = |(_, groups): &(&String, &BTreeSet<String>)| groups.contains(group_id);
            Ok(world.interfaces.iter().filter(has).map(|(id, _)| id.clone()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[tokio::test]
    async fn tags_are_set_and_taken_off_for_all_resources_or_none() {
        let aws = FakeAws::default();
        aws.change(|world| {
            for id in ["i-1", "i-2"] {
                world.instances.insert(InstanceId::new(id), Instance::new(id));
            }
        });
        let tags = |id: &str| aws.world().instances[&InstanceId::new(id)].tags.clone();
        let wanted = Tags::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let error = aws.create_tags(&ids(&["i-1", "i-9"]), &wanted).await.unwrap_err();
        assert_eq!(error.code(), Some("InvalidInstanceID.NotFound"));
        assert!(error.message().contains("i-9"));
        assert!(tags("i-1").is_empty());
        let error = aws.create_tags(&ids(&["i-1", "i-kwok"]), &wanted).await.unwrap_err();
        assert_eq!(error.code(), Some("InvalidID"));
        aws.create_tags(&ids(&["i-1", "i-2"]), &wanted).await.unwrap();
        assert_eq!(tags("i-2"), wanted);
        let other = Tags::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "other".to_owned())]);
        aws.delete_tags(&ids(&["i-1"]), &other).await.unwrap();
        assert_eq!(tags("i-1"), Tags::from([("b".to_owned(), "2".to_owned())]));
    }
}
