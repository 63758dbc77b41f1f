//! EC2 in memory.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::filters::tag_matches;
use super::world::{join, same, split};
use super::{FakeAws, World, routes};
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, InstanceQuery, IpPermission, MAX_FILTER_VALUES,
    MAX_TOPOLOGY_IDS, NewSecurityGroup, RouteTable, SecurityGroup, Subnet,
};
use crate::{Ec2, Error, Page, Tags};

fn about(filters: &[Filter]) -> String {
    let texts: Vec<String> = filters
        .iter()
        .map(|f| format!("{}={}", f.name, f.values.join(",")))
        .collect();
    texts.join(" ")
}

fn check(action: &'static str, filters: &[Filter]) -> Result<(), Error> {
    let bad = |f: &Filter| f.values.is_empty() || f.values.len() > MAX_FILTER_VALUES;
    if filters.is_empty() || filters.iter().any(bad) {
        return Err(Error::answered(
            action,
            "InvalidParameterValue",
            "a filter needs 1 to 200 values",
        ));
    }

    Ok(())
}

fn has(filter: &Filter, value: Option<&String>) -> bool {
    value.is_some_and(|value| filter.values.contains(value))
}

fn unknown(action: &'static str, filter: &Filter) -> Error {
    Error::answered(
        action,
        "InvalidParameterValue",
        format!("The filter '{}' is invalid", filter.name),
    )
}

fn group_passes(group: &SecurityGroup, filter: &Filter) -> Result<bool, Error> {
    Ok(match filter.name.as_str() {
        "group-id" => filter.values.contains(&group.id),
        "group-name" => has(filter, group.name.as_ref()),
        "vpc-id" => has(filter, group.vpc_id.as_ref()),
        "ip-permission.group-id" => group
            .ingress
            .iter()
            .flat_map(|rule| &rule.groups)
            .any(|pair| has(filter, pair.group_id.as_ref())),
        _ => tag_matches(&group.tags, filter).ok_or_else(|| unknown("DescribeSecurityGroups", filter))?,
    })
}

fn subnet_passes(subnet: &Subnet, filter: &Filter) -> Result<bool, Error> {
    Ok(match filter.name.as_str() {
        "subnet-id" => filter.values.contains(&subnet.id),
        "vpc-id" => has(filter, subnet.vpc_id.as_ref()),
        _ => tag_matches(&subnet.tags, filter).ok_or_else(|| unknown("DescribeSubnets", filter))?,
    })
}

fn select<T: Clone>(
    from: impl Iterator<Item = T>,
    filters: &[Filter],
    passes: impl Fn(&T, &Filter) -> Result<bool, Error>,
) -> Result<Vec<T>, Error> {
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

fn group_mut<'w>(world: &'w mut World, action: &'static str, id: &str) -> Result<&'w mut SecurityGroup, Error> {
    world.security_groups.get_mut(id).ok_or_else(|| {
        Error::answered(
            action,
            "InvalidGroup.NotFound",
            format!("The security group '{id}' does not exist"),
        )
    })
}

/// All or nothing, as EC2: before anything is changed, an ID that has no form of an ID or does not exist fails the call.
fn change_tags(
    world: &mut World,
    action: &'static str,
    resources: &[String],
    change: impl Fn(&mut Tags),
) -> Result<(), Error> {
    if let Some(id) = resources.iter().find(|id| !has_form_of_id(id)) {
        let message = format!("The ID '{id}' is not valid");
        return Err(Error::answered(action, "InvalidID", message));
    }

    let missing: Vec<&str> = resources
        .iter()
        .filter(|id| id.starts_with("i-") && !world.instances.contains_key(&InstanceId::new(id.as_str())))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        let message = match missing.as_slice() {
            [id] => format!("The instance ID '{id}' does not exist"),
            ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
        };
        return Err(Error::answered(action, "InvalidInstanceID.NotFound", message));
    }

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
    let named = |group: &SecurityGroup| {
        group.id != id
            && group
                .ingress
                .iter()
                .flat_map(|r| &r.groups)
                .any(|p| p.group_id.as_deref() == Some(id))
    };
    world.security_groups.values().any(named)
        || world
            .load_balancers
            .values()
            .any(|lb| lb.described.security_groups.iter().any(|group| group == id))
        || world.network.uses_group(id)
        || world.interfaces.values().any(|groups| groups.contains(id))
        || world
            .instances
            .values()
            .any(|instance| instance.security_groups.iter().any(|group| group == id))
}

/// Refuses rules that EC2 does not take: a protocol or network that is none, a source that does not exist.
fn acceptable(world: &World, rules: &[IpPermission]) -> Result<(), Error> {
    let refuse = |code, what: &str| Err(Error::answered("AuthorizeSecurityGroupIngress", code, what));
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
    async fn instances_page(&self, query: InstanceQuery<'_>, token: Option<String>) -> Result<Page<Instance>, Error> {
        let found = match query {
            InstanceQuery::Ids(ids) => self.ids(ids),
            InstanceQuery::PrivateDnsNames(names) => self.private_dns_names(names),
            InstanceQuery::PrivateIps { vpc_id, ips } => self.private_ips(vpc_id, ips),
            InstanceQuery::Running { vpc_id, tag } => self.running(vpc_id, tag),
        };
        Ok(self.page(found?, token.as_deref()))
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        self.read("DescribeAvailabilityZones", String::new(), |world| {
            Ok(world.zones.clone())
        })
    }

    async fn subnets_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<Subnet>, Error> {
        let found = self.read("DescribeSubnets", about(filters), |world| {
            check("DescribeSubnets", filters)?;
            select(world.subnets.iter().cloned(), filters, subnet_passes)
        })?;
        Ok(self.page(found, token.as_deref()))
    }

    async fn security_groups_page(
        &self,
        filters: &[Filter],
        token: Option<String>,
    ) -> Result<Page<SecurityGroup>, Error> {
        let found = self.read("DescribeSecurityGroups", about(filters), |world| {
            check("DescribeSecurityGroups", filters)?;
            let mut groups = select(world.security_groups.values().cloned(), filters, group_passes)?;
            for group in &mut groups {
                group.ingress = join(&group.ingress);
            }
            Ok(groups)
        })?;
        Ok(self.page(found, token.as_deref()))
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String, Error> {
        self.write("CreateSecurityGroup", group.name.clone(), |world| {
            let taken = |other: &SecurityGroup| {
                other.name.as_deref() == Some(&group.name) && other.vpc_id.as_deref() == Some(&group.vpc_id)
            };
            if world.security_groups.values().any(taken) {
                return Err(Error::answered(
                    "CreateSecurityGroup",
                    "InvalidGroup.Duplicate",
                    "the name is taken",
                ));
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

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "AuthorizeSecurityGroupIngress";
        self.write(ACTION, format!("{group_id} {}", describe_rules(rules)), |world| {
            acceptable(world, rules)?;

            let group = group_mut(world, ACTION, group_id)?;
            let (old, new) = (split(&group.ingress), split(rules));
            if (1..new.len()).any(|at| new[..at].iter().any(|other| same(&new[at], other))) {
                let message = "The same permission must not appear multiple times";
                return Err(Error::answered(ACTION, "InvalidParameterValue", message));
            }
            if new.iter().any(|rule| old.iter().any(|other| same(rule, other))) {
                return Err(Error::answered(
                    ACTION,
                    "InvalidPermission.Duplicate",
                    "the rule exists",
                ));
            }

            group.ingress = old.into_iter().chain(new).collect();

            Ok(())
        })
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        const ACTION: &str = "RevokeSecurityGroupIngress";
        self.write(ACTION, format!("{group_id} {}", describe_rules(rules)), |world| {
            let group = group_mut(world, ACTION, group_id)?;
            let (mut old, gone) = (split(&group.ingress), split(rules));
            if gone.iter().any(|rule| !old.iter().any(|other| same(rule, other))) {
                return Err(Error::answered(ACTION, "InvalidPermission.NotFound", "no such rule"));
            }

            old.retain(|other| !gone.iter().any(|rule| same(rule, other)));
            group.ingress = old;

            Ok(())
        })
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<(), Error> {
        const ACTION: &str = "DeleteSecurityGroup";
        self.write(ACTION, group_id.to_owned(), |world| {
            group_mut(world, ACTION, group_id)?;
            if world.lingers(group_id) || in_use(world, group_id) {
                return Err(Error::answered(ACTION, "DependencyViolation", "has a dependent object"));
            }
            world.security_groups.remove(group_id);
            Ok(())
        })
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.write("CreateTags", resources.join(","), |world| {
            change_tags(world, "CreateTags", resources, |of| of.extend(tags.clone()))
        })
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.write("DeleteTags", resources.join(","), |world| {
            change_tags(world, "DeleteTags", resources, |of| {
                of.retain(|key, value| tags.get(key) != Some(value));
            })
        })
    }

    async fn instance_topology_page(
        &self,
        ids: &[InstanceId],
        token: Option<String>,
    ) -> Result<Page<(InstanceId, Vec<String>)>, Error> {
        const ACTION: &str = "DescribeInstanceTopology";

        let names: Vec<&str> = ids.iter().map(InstanceId::as_str).collect();
        let found = self.read(ACTION, names.join(","), |world| {
            if ids.len() > MAX_TOPOLOGY_IDS {
                return Err(Error::answered(ACTION, "InvalidParameterValue", "at most 100 IDs"));
            }

            let unknown: Vec<&str> = names
                .iter()
                .copied()
                .filter(|id| !world.instances.contains_key(&InstanceId::new(*id)))
                .collect();
            if !unknown.is_empty() {
                let message = format!("The instance IDs '{}' do not exist", unknown.join(", "));
                return Err(Error::answered(ACTION, "InvalidInstanceID.NotFound", message));
            }

            let known = ids
                .iter()
                .filter_map(|id| Some((id.clone(), world.topology.get(id)?.clone())));
            Ok(known.collect())
        })?;

        Ok(self.page(found, token.as_deref()))
    }

    async fn route_tables_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<RouteTable>, Error> {
        let found: Vec<RouteTable> = self.read("DescribeRouteTables", about(filters), |world| {
            check("DescribeRouteTables", filters)?;
            let tables = world.route_tables.iter();
            let all = tables.flat_map(|(vpc, tables)| tables.iter().map(move |table| (vpc.as_str(), table)));
            let chosen = select(all, filters, |(vpc, table), filter| routes::passes(vpc, table, filter))?;
            Ok(chosen.into_iter().map(|(_, table)| table.clone()).collect())
        })?;
        Ok(self.page(found, token.as_deref()))
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.write("CreateRoute", format!("{table_id} {cidr} {instance}"), |world| {
            routes::create(world, table_id, cidr, instance)
        })
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.write("ReplaceRoute", format!("{table_id} {cidr} {instance}"), |world| {
            routes::replace(world, table_id, cidr, instance)
        })
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<(), Error> {
        self.write("DeleteRoute", format!("{table_id} {cidr}"), |world| {
            routes::delete(world, table_id, cidr)
        })
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<(), Error> {
        self.write("ModifyInstanceAttribute", instance.to_string(), |world| {
            routes::instance(world, "ModifyInstanceAttribute", instance)?.source_dest_check = Some(false);
            Ok(())
        })
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        self.plain_ids(ids)
    }

    async fn fargate_interfaces_page(
        &self,
        vpc_id: &str,
        ips: &[String],
        token: Option<String>,
    ) -> Result<Page<FargateEni>, Error> {
        Ok(self.page(self.fargate_enis(vpc_id, ips)?, token.as_deref()))
    }

    async fn interfaces_of_group_page(&self, group_id: &str, token: Option<String>) -> Result<Page<String>, Error> {
        let about = format!("group-id={group_id}");
        let found = self.read("DescribeNetworkInterfaces", about, |world| {
            let has = |(_, groups): &(&String, &BTreeSet<String>)| groups.contains(group_id);
            Ok(world.interfaces.iter().filter(has).map(|(id, _)| id.clone()).collect())
        })?;
        Ok(self.page(found, token.as_deref()))
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
