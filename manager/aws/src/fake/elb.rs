//! Classic load balancers in memory.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::refusals::{invalid, refuse, unfit, within};
use super::world::new_attributes;
use super::{FakeAws, FakeLoadBalancer, World, elb_validation};
use crate::elb::{Attributes, HealthCheck, Listener, LoadBalancer, MAX_NAMES, NewLoadBalancer, NewPolicy};
use crate::{Elb, Error, InstanceId, Page, Result, Tags, Token};

fn found<'w>(world: &'w mut World, action: &'static str, name: &str) -> Result<&'w mut FakeLoadBalancer> {
    world.load_balancers.get_mut(name).ok_or_else(|| {
        let message = format!("There is no ACTIVE Load Balancer named '{name}'");
        Error::answered(action, "LoadBalancerNotFound", message)
    })
}

/// AWS takes so many names in one call, and at least one where it takes any.
pub(super) fn at_most(action: &'static str, names: &[String], most: usize) -> Result<()> {
    if names.is_empty() || names.len() > most {
        let count = names.len();
        return invalid(action, format!("1 to {most} are taken in one call, not {count}"));
    }
    Ok(())
}

pub(super) fn zone_of(world: &World, action: &'static str, subnet: &str) -> Result<String> {
    let found = world.subnets.iter().find(|s| s.id == subnet);
    let zone = found.and_then(|subnet| subnet.availability_zone.clone());
    zone.ok_or_else(|| Error::answered(action, "SubnetNotFound", subnet))
}

fn one_per_zone(world: &World, action: &'static str, subnets: &BTreeSet<String>) -> Result<()> {
    let mut zones = BTreeSet::new();
    for subnet in subnets {
        if !zones.insert(zone_of(world, action, subnet)?) {
            return unfit(action, "two subnets in one zone");
        }
    }

    Ok(())
}

fn make(world: &World, wanted: &NewLoadBalancer) -> LoadBalancer {
    let subnet = world.subnets.iter().find(|s| wanted.subnets.contains(&s.id));
    LoadBalancer {
        name: wanted.name.clone(),
        dns_name: format!("{}-1234567890.eu-central-1.elb.amazonaws.com", wanted.name),
        scheme: Some(if wanted.internal { "internal" } else { "internet-facing" }.to_owned()),
        vpc_id: subnet.and_then(|s| s.vpc_id.clone()),
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

fn joined(values: impl IntoIterator<Item = impl ToString>) -> String {
    let texts: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    texts.join(",")
}

/// A load balancer that has all these policies.
fn with_policies<'w>(
    world: &'w mut World,
    action: &'static str,
    name: &str,
    policies: &[String],
) -> Result<&'w mut LoadBalancer> {
    let balancer = &mut found(world, action, name)?.described;
    if policies.iter().any(|policy| !balancer.policies.contains(policy)) {
        return refuse(action, "PolicyNotFound", "no such policy");
    }
    Ok(balancer)
}

#[async_trait]
impl Elb for FakeAws {
    async fn describe_once(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        const ACTION: &str = "DescribeLoadBalancers";
        self.read(ACTION, names.join(","), |world| {
            at_most(ACTION, names, MAX_NAMES)?;
            let one = |name: &String| Ok(found(world, ACTION, name)?.described.clone());
            names.iter().map(one).collect()
        })
    }

    async fn all_page(&self, token: Token) -> Result<Page<LoadBalancer>> {
        self.list("DescribeLoadBalancers", String::new(), token, |world| {
            Ok(world.load_balancers.values().map(|lb| lb.described.clone()).collect())
        })
    }

    async fn create(&self, wanted: &NewLoadBalancer) -> Result<String> {
        const ACTION: &str = "CreateLoadBalancer";
        self.write(ACTION, wanted.name.clone(), |world| {
            one_per_zone(world, ACTION, &wanted.subnets.iter().cloned().collect())?;
            elb_validation::listeners(world, ACTION, &wanted.listeners)?;

            let new = make(world, wanted);
            // Without any it gets the VPC's default group.
            if !wanted.security_groups.is_empty() {
                elb_validation::groups(world, ACTION, &wanted.security_groups, new.vpc_id.as_ref())?;
            }

            if let Some(old) = world.load_balancers.get(&wanted.name) {
                let same = old.described.listeners == new.listeners && old.described.subnets == new.subnets;
                return if same {
                    Ok(old.described.dns_name.clone())
                } else {
                    refuse(ACTION, "DuplicateLoadBalancerName", wanted.name.clone())
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

    async fn delete(&self, name: &str) -> Result<()> {
        self.write("DeleteLoadBalancer", name.to_owned(), |world| {
            world.load_balancers.remove(name);
            Ok(())
        })
    }

    async fn attributes(&self, name: &str) -> Result<Attributes> {
        const ACTION: &str = "DescribeLoadBalancerAttributes";
        self.read(ACTION, name.to_owned(), |world| {
            Ok(found(world, ACTION, name)?.attributes.clone())
        })
    }

    async fn modify_attributes(&self, name: &str, wanted: &Attributes) -> Result<()> {
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

    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<()> {
        const ACTION: &str = "ConfigureHealthCheck";
        self.write(ACTION, format!("{name} {}", check.target), |world| {
            let lb = found(world, ACTION, name)?;
            elb_validation::health_check(ACTION, check)?;
            lb.described.health_check = Some(check.clone());
            Ok(())
        })
    }

    async fn register(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        const ACTION: &str = "RegisterInstancesWithLoadBalancer";
        self.write(ACTION, format!("{name} {}", joined(instances)), |world| {
            elb_validation::instances(world, ACTION, instances)?;
            let quotas = world.quotas;
            let now = &mut found(world, ACTION, name)?.described.instances;
            let all: BTreeSet<InstanceId> = now.iter().chain(instances).cloned().collect();
            within(ACTION, quotas.check_instances(all.len()))?;
            *now = all;
            Ok(())
        })
    }

    async fn deregister(&self, name: &str, instances: &[InstanceId]) -> Result<()> {
        const ACTION: &str = "DeregisterInstancesFromLoadBalancer";
        self.write(ACTION, format!("{name} {}", joined(instances)), |world| {
            let now = &mut found(world, ACTION, name)?.described.instances;
            now.retain(|id| !instances.contains(id));
            Ok(())
        })
    }

    async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<()> {
        const ACTION: &str = "CreateLoadBalancerListeners";
        self.write(
            ACTION,
            format!("{name} {}", joined(listeners.iter().map(|listener| listener.port))),
            |world| {
                found(world, ACTION, name)?;
                elb_validation::listeners(world, ACTION, listeners)?;
                let now = &mut found(world, ACTION, name)?.described.listeners;
                let taken = |new: &Listener| now.iter().any(|old| old.port == new.port && old != new);
                if listeners.iter().any(taken) {
                    return refuse(ACTION, "DuplicateListener", "the port has another listener");
                }

                now.retain(|old| !listeners.contains(old));
                now.extend(listeners.iter().cloned());

                Ok(())
            },
        )
    }

    async fn delete_listeners(&self, name: &str, ports: &[i32]) -> Result<()> {
        const ACTION: &str = "DeleteLoadBalancerListeners";
        self.write(ACTION, format!("{name} {}", joined(ports)), |world| {
            let now = &mut found(world, ACTION, name)?.described;
            now.listeners.retain(|old| !ports.contains(&old.port));
            now.listener_policies.retain(|port, _| !ports.contains(port));
            Ok(())
        })
    }

    async fn set_listener_certificate(&self, name: &str, port: i32, arn: &str) -> Result<()> {
        const ACTION: &str = "SetLoadBalancerListenerSSLCertificate";
        self.write(ACTION, format!("{name} {port} {arn}"), |world| {
            found(world, ACTION, name)?;
            elb_validation::certificate(world, ACTION, arn)?;
            let mut listeners = found(world, ACTION, name)?.described.listeners.iter_mut();
            let Some(listener) = listeners.find(|listener| listener.port == port) else {
                return refuse(ACTION, "ListenerNotFound", format!("no listener on {port}"));
            };

            if listener.certificate.is_none() {
                return unfit(
                    ACTION,
                    format!("listener {port}: a certificate goes with https and ssl"),
                );
            }
            listener.certificate = Some(arn.to_owned());

            Ok(())
        })
    }

    async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        const ACTION: &str = "AttachLoadBalancerToSubnets";
        self.write(ACTION, format!("{name} {}", subnets.join(",")), |world| {
            let mut all = found(world, ACTION, name)?.described.subnets.clone();
            all.extend(subnets.iter().cloned());
            one_per_zone(world, ACTION, &all)?;
            found(world, ACTION, name)?.described.subnets = all;
            Ok(())
        })
    }

    async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        const ACTION: &str = "DetachLoadBalancerFromSubnets";
        self.write(ACTION, format!("{name} {}", subnets.join(",")), |world| {
            let now = &mut found(world, ACTION, name)?.described.subnets;
            if now.iter().all(|subnet| subnets.contains(subnet)) {
                return unfit(ACTION, "the last subnet cannot be detached");
            }
            now.retain(|subnet| !subnets.contains(subnet));
            Ok(())
        })
    }

    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<()> {
        const ACTION: &str = "ApplySecurityGroupsToLoadBalancer";
        self.write(ACTION, format!("{name} {}", groups.join(",")), |world| {
            let vpc = found(world, ACTION, name)?.described.vpc_id.clone();
            elb_validation::groups(world, ACTION, groups, vpc.as_ref())?;
            found(world, ACTION, name)?.described.security_groups = groups.to_vec();
            Ok(())
        })
    }

    async fn add_tags(&self, name: &str, tags: &Tags) -> Result<()> {
        self.write("AddTags", format!("{name} {}", joined(tags.keys())), |world| {
            found(world, "AddTags", name)?.tags.extend(tags.clone());
            Ok(())
        })
    }

    async fn tags_once(&self, names: &[String]) -> Result<Vec<(String, Tags)>> {
        const ACTION: &str = "DescribeTags";
        self.read(ACTION, names.join(","), |world| {
            at_most(ACTION, names, MAX_NAMES)?;
            let one = |name: &String| Ok((name.clone(), found(world, ACTION, name)?.tags.clone()));
            names.iter().map(one).collect()
        })
    }

    async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()> {
        const ACTION: &str = "CreateLoadBalancerPolicy";
        self.write(ACTION, format!("{name} {}", policy.name), |world| {
            let policies = &mut found(world, ACTION, name)?.described.policies;
            if policies.insert(policy.name.clone()) {
                return Ok(());
            }
            refuse(ACTION, "DuplicatePolicyName", policy.name.clone())
        })
    }

    async fn set_backend_policies(&self, name: &str, instance_port: i32, policies: &[String]) -> Result<()> {
        const ACTION: &str = "SetLoadBalancerPoliciesForBackendServer";
        let about = format!("{name} {instance_port} {}", policies.join(","));
        self.write(ACTION, about, |world| {
            let now = with_policies(world, ACTION, name, policies)?;
            now.backend_policies.remove(&instance_port);
            if !policies.is_empty() {
                let policies = policies.iter().cloned().collect();
                now.backend_policies.insert(instance_port, policies);
            }

            Ok(())
        })
    }

    async fn set_listener_policies(&self, name: &str, port: i32, policies: &[String]) -> Result<()> {
        const ACTION: &str = "SetLoadBalancerPoliciesOfListener";
        self.write(ACTION, format!("{name} {port} {}", policies.join(",")), |world| {
            let now = with_policies(world, ACTION, name, policies)?;
            if !now.listeners.iter().any(|listener| listener.port == port) {
                return refuse(ACTION, "ListenerNotFound", format!("no listener on {port}"));
            }

            now.listener_policies.insert(port, policies.iter().cloned().collect());

            Ok(())
        })
    }
}
