//! Classic load balancers in memory.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::world::new_attributes;
use super::{FakeAws, FakeLoadBalancer, World, elb_validation};
use crate::elb::{Attributes, HealthCheck, Listener, LoadBalancer, MAX_NAMES, NewLoadBalancer, NewPolicy};
use crate::{Elb, Error, InstanceId, Page, Tags};

fn found<'w>(world: &'w mut World, action: &'static str, name: &str) -> Result<&'w mut FakeLoadBalancer, Error> {
    world.load_balancers.get_mut(name).ok_or_else(|| missing(action, name))
}

fn known<'w>(world: &'w World, action: &'static str, name: &str) -> Result<&'w FakeLoadBalancer, Error> {
    world.load_balancers.get(name).ok_or_else(|| missing(action, name))
}

/// AWS takes so many names in one call, and at least one where it takes any.
pub(super) fn at_most(action: &'static str, names: &[String], most: usize) -> Result<(), Error> {
    if names.is_empty() || names.len() > most {
        let message = format!("1 to {most} are taken in one call, not {}", names.len());
        return Err(Error::answered(action, "ValidationError", message));
    }
    Ok(())
}

fn missing(action: &'static str, name: &str) -> Error {
    Error::answered(
        action,
        "LoadBalancerNotFound",
        format!("There is no ACTIVE Load Balancer named '{name}'"),
    )
}

fn refused(action: &'static str, why: &str) -> Error {
    Error::answered(action, "InvalidConfigurationRequest", why)
}

pub(super) fn zone_of(world: &World, subnet: &str) -> Option<String> {
    world
        .subnets
        .iter()
        .find(|s| s.id == subnet)
        .and_then(|s| s.availability_zone.clone())
}

fn one_per_zone(world: &World, action: &'static str, subnets: &BTreeSet<String>) -> Result<(), Error> {
    let mut zones = BTreeSet::new();
    for subnet in subnets {
        let zone = zone_of(world, subnet).ok_or_else(|| Error::answered(action, "SubnetNotFound", subnet.clone()))?;
        if !zones.insert(zone) {
            return Err(refused(action, "two subnets in one zone"));
        }
    }

    Ok(())
}

fn make(world: &World, wanted: &NewLoadBalancer) -> LoadBalancer {
    LoadBalancer {
        name: wanted.name.clone(),
        dns_name: format!("{}-1234567890.eu-central-1.elb.amazonaws.com", wanted.name),
        scheme: Some(if wanted.internal { "internal" } else { "internet-facing" }.to_owned()),
        vpc_id: world
            .subnets
            .iter()
            .find(|s| wanted.subnets.contains(&s.id))
            .and_then(|s| s.vpc_id.clone()),
        listeners: wanted.listeners.clone(),
        subnets: wanted.subnets.iter().cloned().collect(),
        security_groups: wanted.security_groups.clone(),
        health_check: wanted.listeners.first().map(|listener| HealthCheck {
            target: format!("TCP:{}", listener.instance_port),
            interval: 30,
            timeout: 5,
            unhealthy_threshold: 2,
            healthy_threshold: 10,
        }),
        ..LoadBalancer::default()
    }
}

fn names(instances: &[InstanceId]) -> String {
    instances.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(",")
}

fn ports(listeners: &[Listener]) -> String {
    listeners
        .iter()
        .map(|l| l.port.to_string())
        .collect::<Vec<_>>()
        .join(",")
}

#[async_trait]
impl Elb for FakeAws {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>, Error> {
        const ACTION: &str = "DescribeLoadBalancers";
        self.read(ACTION, names.join(","), |world| {
            at_most(ACTION, names, MAX_NAMES)?;
            let one = |name: &String| Ok(known(world, ACTION, name)?.described.clone());
            names.iter().map(one).collect()
        })
    }

    async fn all_page(&self, token: Option<String>) -> Result<Page<LoadBalancer>, Error> {
        let all = self.read("DescribeLoadBalancers", String::new(), |world| {
            Ok(world.load_balancers.values().map(|lb| lb.described.clone()).collect())
        })?;
        Ok(self.page(all, token.as_deref()))
    }

    async fn create(&self, wanted: &NewLoadBalancer) -> Result<String, Error> {
        const ACTION: &str = "CreateLoadBalancer";
        self.write(ACTION, wanted.name.clone(), |world| {
            one_per_zone(world, ACTION, &wanted.subnets.iter().cloned().collect())?;
            elb_validation::listeners(ACTION, &wanted.listeners)?;

            let new = make(world, wanted);
            // Without any it gets the VPC's default group.
            if !wanted.security_groups.is_empty() {
                elb_validation::groups(world, ACTION, &wanted.security_groups, new.vpc_id.as_ref())?;
            }

            if let Some(old) = world.load_balancers.get(&wanted.name) {
                let same = old.described.listeners == new.listeners && old.described.subnets == new.subnets;
                let taken = || Error::answered(ACTION, "DuplicateLoadBalancerName", wanted.name.clone());
                return if same {
                    Ok(old.described.dns_name.clone())
                } else {
                    Err(taken())
                };
            }

            let dns_name = new.dns_name.clone();
            let made = FakeLoadBalancer {
                described: new,
                attributes: new_attributes(),
                tags: wanted.tags.clone(),
            };

            world.load_balancers.insert(wanted.name.clone(), made);

            Ok(dns_name)
        })
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        self.write("DeleteLoadBalancer", name.to_owned(), |world| {
            world.load_balancers.remove(name);
            Ok(())
        })
    }

    async fn attributes(&self, name: &str) -> Result<Attributes, Error> {
        const ACTION: &str = "DescribeLoadBalancerAttributes";
        self.read(ACTION, name.to_owned(), |world| {
            world
                .load_balancers
                .get(name)
                .map(|lb| lb.attributes.clone())
                .ok_or_else(|| missing(ACTION, name))
        })
    }

    async fn modify_attributes(&self, name: &str, wanted: &Attributes) -> Result<(), Error> {
        const ACTION: &str = "ModifyLoadBalancerAttributes";
        self.write(ACTION, name.to_owned(), |world| {
            let now = &mut found(world, ACTION, name)?.attributes;
            elb_validation::attributes(ACTION, wanted)?;
            now.cross_zone = wanted.cross_zone.or(now.cross_zone);
            now.access_log = wanted.access_log.clone().or_else(|| now.access_log.clone());
            now.connection_draining = wanted.connection_draining.or(now.connection_draining);
            now.connection_draining_timeout = wanted.connection_draining_timeout.or(now.connection_draining_timeout);
            now.idle_timeout = wanted.idle_timeout.or(now.idle_timeout);

            Ok(())
        })
    }

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<(), Error> {
        const ACTION: &str = "ConfigureHealthCheck";
        self.write(ACTION, format!("{name} {}", check.target), |world| {
            let lb = found(world, ACTION, name)?;
            elb_validation::health_check(ACTION, check)?;
            lb.described.health_check = Some(check.clone());
            Ok(())
        })
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        const ACTION: &str = "RegisterInstancesWithLoadBalancer";
        self.write(ACTION, format!("{name} {}", names(instances)), |world| {
            elb_validation::instances(world, ACTION, instances)?;
            found(world, ACTION, name)?
                .described
                .instances
                .extend(instances.iter().cloned());
            Ok(())
        })
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<(), Error> {
        const ACTION: &str = "DeregisterInstancesFromLoadBalancer";
        self.write(ACTION, format!("{name} {}", names(instances)), |world| {
            found(world, ACTION, name)?
                .described
                .instances
                .retain(|id| !instances.contains(id));
            Ok(())
        })
    }

    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<(), Error> {
        const ACTION: &str = "CreateLoadBalancerListeners";
        self.write(ACTION, format!("{name} {}", ports(listeners)), |world| {
            let now = &mut found(world, ACTION, name)?.described.listeners;
            elb_validation::listeners(ACTION, listeners)?;
            if listeners
                .iter()
                .any(|new| now.iter().any(|old| old.port == new.port && old != new))
            {
                return Err(Error::answered(
                    ACTION,
                    "DuplicateListener",
                    "the port has another listener",
                ));
            }

            now.retain(|old| !listeners.contains(old));
            now.extend(listeners.iter().cloned());

            Ok(())
        })
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<(), Error> {
        const ACTION: &str = "DeleteLoadBalancerListeners";

        let texts: Vec<String> = ports.iter().map(i32::to_string).collect();
        self.write(ACTION, format!("{name} {}", texts.join(",")), |world| {
            let now = &mut found(world, ACTION, name)?.described;
            now.listeners.retain(|old| !ports.contains(&old.port));
            now.listener_policies.retain(|port, _| !ports.contains(port));
            Ok(())
        })
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        const ACTION: &str = "AttachLoadBalancerToSubnets";
        self.write(ACTION, format!("{name} {}", subnets.join(",")), |world| {
            let mut all = found(world, ACTION, name)?.described.subnets.clone();
            all.extend(subnets.iter().cloned());
            one_per_zone(world, ACTION, &all)?;
            found(world, ACTION, name)?.described.subnets = all;
            Ok(())
        })
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<(), Error> {
        const ACTION: &str = "DetachLoadBalancerFromSubnets";
        self.write(ACTION, format!("{name} {}", subnets.join(",")), |world| {
            let now = &mut found(world, ACTION, name)?.described.subnets;
            if now.iter().all(|subnet| subnets.contains(subnet)) {
                return Err(refused(ACTION, "the last subnet cannot be detached"));
            }
            now.retain(|subnet| !subnets.contains(subnet));
            Ok(())
        })
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<(), Error> {
        const ACTION: &str = "ApplySecurityGroupsToLoadBalancer";
        self.write(ACTION, format!("{name} {}", groups.join(",")), |world| {
            let vpc = found(world, ACTION, name)?.described.vpc_id.clone();
            elb_validation::groups(world, ACTION, groups, vpc.as_ref())?;
            found(world, ACTION, name)?.described.security_groups = groups.to_vec();
            Ok(())
        })
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<(), Error> {
        let keys: Vec<&str> = tags.keys().map(String::as_str).collect();
        self.write("AddTags", format!("{name} {}", keys.join(",")), |world| {
            found(world, "AddTags", name)?.tags.extend(tags.clone());
            Ok(())
        })
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>, Error> {
        const ACTION: &str = "DescribeTags";
        self.read(ACTION, names.join(","), |world| {
            at_most(ACTION, names, MAX_NAMES)?;
            let one = |name: &String| Ok((name.clone(), known(world, ACTION, name)?.tags.clone()));
            names.iter().map(one).collect()
        })
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<(), Error> {
        const ACTION: &str = "CreateLoadBalancerPolicy";
        self.write(ACTION, format!("{name} {}", policy.name), |world| {
            let policies = &mut found(world, ACTION, name)?.described.policies;
            if policies.insert(policy.name.clone()) {
                return Ok(());
            }
            Err(Error::answered(ACTION, "DuplicatePolicyName", policy.name.clone()))
        })
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<(), Error> {
        const ACTION: &str = "SetLoadBalancerPoliciesForBackendServer";
        self.write(
            ACTION,
            format!("{name} {instance_port} {}", policies.join(",")),
            |world| {
                let now = &mut found(world, ACTION, name)?.described;
                if policies.iter().any(|policy| !now.policies.contains(policy)) {
                    return Err(Error::answered(ACTION, "PolicyNotFound", "no such policy"));
                }

                now.backend_policies.remove(&instance_port);
                if !policies.is_empty() {
                    now.backend_policies
                        .insert(instance_port, policies.iter().cloned().collect());
                }

                Ok(())
            },
        )
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<(), Error> {
        const ACTION: &str = "SetLoadBalancerPoliciesOfListener";
        self.write(ACTION, format!("{name} {port} {}", policies.join(",")), |world| {
            let now = &mut found(world, ACTION, name)?.described;
            if policies.iter().any(|policy| !now.policies.contains(policy)) {
                return Err(Error::answered(ACTION, "PolicyNotFound", "no such policy"));
            }
            if !now.listeners.iter().any(|listener| listener.port == port) {
                return Err(Error::answered(
                    ACTION,
                    "ListenerNotFound",
                    format!("no listener on {port}"),
                ));
            }

            now.listener_policies.insert(port, policies.iter().cloned().collect());

            Ok(())
        })
    }
}
