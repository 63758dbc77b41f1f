//! AWS's quotas, which moto does not know. `outrigger-aws-quotas` counts. This module collects what is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_aws_quotas::Quotas;

use super::elbv2::{self, groups_of};
use super::upstream::{Reply, Upstream, read};
use super::{elb, groups};
use crate::query::{Parameters, Query};
use crate::service::Service;
use crate::xml::XmlError;

/// Instance and port.
type Target = (String, String);

/// The quotas, and the targets of target groups: moto needs a time to list many of them that grows with their square.
/// Targets that are changed at moto itself are not counted.
#[derive(Debug, Default)]
pub(super) struct Memory {
    quotas: Mutex<Quotas>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By target group.
    targets: BTreeMap<String, BTreeSet<Target>>,
    /// Load balancers that balance across zones.
    cross_zone: BTreeSet<String>,
    /// Of instances.
    zones: BTreeMap<String, String>,
}

impl Memory {
    pub(super) fn set(&self, quotas: Quotas) {
        *self.quotas.lock().unwrap_or_else(PoisonError::into_inner) = quotas;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// AWS's refusal of a call beyond a quota.
    pub(super) async fn refused<U: Upstream>(
        &self,
        moto: &U,
        service: &Service,
        asked: &Query,
        listeners: &elbv2::Memory,
    ) -> Result<Option<Reply>, XmlError> {
        let quotas = *self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        match (service, asked.action.as_str()) {
            (Service::Ec2, "AuthorizeSecurityGroupIngress") => groups::beyond_quota(moto, asked, &quotas).await,
            (Service::Elb, "RegisterInstancesWithLoadBalancer") => elb::beyond_quota(moto, asked, &quotas).await,
            (Service::ElbV2, "RegisterTargets") => self.registration(moto, asked, &quotas, listeners).await,
            (Service::ElbV2, "CreateListener") => {
                let balancer = asked.parameters.get("LoadBalancerArn").unwrap_or_default();
                self.forwarding(
                    moto,
                    asked,
                    &quotas,
                    balancer,
                    listeners.groups_of_others(balancer, None),
                )
                .await
            }
            (Service::ElbV2, "ModifyListener") => {
                let listener = asked.parameters.get("ListenerArn").unwrap_or_default();
                let Some(balancer) = listeners.balancer_of(listener) else {
                    return Ok(None); // moto names it
                };
                let others = listeners.groups_of_others(&balancer, Some(listener));
                self.forwarding(moto, asked, &quotas, &balancer, others).await
            }
            _ => Ok(None),
        }
    }

    /// Of a target group, and of each load balancer that uses it.
    async fn registration<U: Upstream>(
        &self,
        moto: &U,
        asked: &Query,
        quotas: &Quotas,
        listeners: &elbv2::Memory,
    ) -> Result<Option<Reply>, XmlError> {
        let group = asked.parameters.get("TargetGroupArn").unwrap_or_default();
        let new = targets_of(asked);
        let all = self.known().targets_with(group, &new);
        if let Err(refusal) = quotas.check_target_group(all.len()) {
            return Ok(Some(refusal.into()));
        }

        for balancer in listeners.balancers_of(group) {
            let mut others = listeners.groups_of_others(&balancer, None);
            others.remove(group);
            let targets = [self.targets(&others), all.iter().cloned().collect()].concat();
            if let Some(refused) = self.zones_exceeded(moto, quotas, &balancer, &targets).await? {
                return Ok(Some(refused));
            }
        }

        Ok(None)
    }

    /// Of a load balancer whose listener will forward to the target groups of a call.
    async fn forwarding<U: Upstream>(
        &self,
        moto: &U,
        asked: &Query,
        quotas: &Quotas,
        balancer: &str,
        others: BTreeSet<String>,
    ) -> Result<Option<Reply>, XmlError> {
        let groups: BTreeSet<String> = others.into_iter().chain(groups_of(asked)).collect();
        let targets = self.targets(&groups);
        self.zones_exceeded(moto, quotas, balancer, &targets).await
    }

    /// All targets of some target groups.
    fn targets(&self, groups: &BTreeSet<String>) -> Vec<Target> {
        let known = self.known();
        let targets = groups.iter().filter_map(|group| known.targets.get(group));
        targets.flatten().cloned().collect()
    }

    async fn zones_exceeded<U: Upstream>(
        &self,
        moto: &U,
        quotas: &Quotas,
        balancer: &str,
        targets: &[Target],
    ) -> Result<Option<Reply>, XmlError> {
        // So few fit even if all of them are in one zone.
        if targets.len() <= quotas.targets_per_zone {
            return Ok(None);
        }

        self.learn_zones(moto, targets).await?;

        let known = self.known();
        let is_cross_zone = known.cross_zone.contains(balancer);
        let zones = targets
            .iter()
            .map(|(id, _)| known.zones.get(id).map_or("", String::as_str));
        let refusal = quotas.check_balancer(zones, is_cross_zone).err();

        Ok(refusal.map(Reply::from))
    }

    async fn learn_zones<U: Upstream>(&self, moto: &U, targets: &[Target]) -> Result<(), XmlError> {
        let unknown: BTreeSet<&str> = {
            let known = self.known();
            let ids = targets.iter().map(|(id, _)| id.as_str());
            ids.filter(|id| !known.zones.contains_key(*id)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }

        // A plain list of IDs fails if one of them does not exist.
        let ids = Parameters::numbered("Filter.1.Value", unknown);
        let filter = [("Filter.1.Name", "instance-id")].into_iter().chain(ids.iter());
        let describe = Query::new(&Service::Ec2, "DescribeInstances", filter.collect());
        let answer = read(moto, &Service::Ec2, &describe).await?.unwrap_or_default();
        let reservations = answer.items("reservationSet").iter();

        let mut known = self.known();
        for instance in reservations.flat_map(|reservation| reservation.items("instancesSet")) {
            let zone = instance.at(&["placement", "availabilityZone"]);
            let zone = zone.map_or("", |zone| zone.text.as_str());
            known
                .zones
                .insert(instance.value("instanceId").to_owned(), zone.to_owned());
        }

        Ok(())
    }

    /// Takes note of a call that AWS carried out.
    pub(super) fn remember(&self, service: &Service, done: &Query) {
        if *service == Service::ElbV2 {
            self.known().remember(done);
        }
    }
}

impl Known {
    fn targets_with(&self, group: &str, new: &[Target]) -> BTreeSet<Target> {
        let mut all = self.targets.get(group).cloned().unwrap_or_default();
        all.extend(new.iter().cloned());
        all
    }

    fn remember(&mut self, done: &Query) {
        let of = |key: &str| done.parameters.get(key).unwrap_or_default().to_owned();
        match done.action.as_str() {
            "RegisterTargets" => {
                let group = of("TargetGroupArn");
                let all = self.targets_with(&group, &targets_of(done));
                self.targets.insert(group, all);
            }
            "DeregisterTargets" => {
                let gone = targets_of(done);
                let is_gone = |target: &Target| {
                    let named = |(id, port): &Target| *id == target.0 && (port.is_empty() || *port == target.1);
                    gone.iter().any(named)
                };
                if let Some(targets) = self.targets.get_mut(&of("TargetGroupArn")) {
                    targets.retain(|target| !is_gone(target));
                }
            }
            "DeleteTargetGroup" => drop(self.targets.remove(&of("TargetGroupArn"))),
            "ModifyLoadBalancerAttributes" => self.remember_attributes(done),
            _ => {}
        }
    }

    fn remember_attributes(&mut self, done: &Query) {
        let balancer = done.parameters.get("LoadBalancerArn").unwrap_or_default();
        for (key, name) in done.parameters.iter() {
            let Some(item) = key
                .strip_suffix(".Key")
                .filter(|_| name == "load_balancing.cross_zone.enabled")
            else {
                continue;
            };
            if done.parameters.get(&format!("{item}.Value")) == Some("true") {
                self.cross_zone.insert(balancer.to_owned());
            } else {
                self.cross_zone.remove(balancer);
            }
        }
    }
}

/// The targets that a call names; no port means that of the target group.
fn targets_of(asked: &Query) -> Vec<Target> {
    let ids = asked.parameters.iter().filter(|(key, _)| key.ends_with(".Id"));
    let targets = ids.map(|(key, id)| {
        let port = key.strip_suffix("Id").map(|item| format!("{item}Port"));
        let port = port.and_then(|key| asked.parameters.get(&key)).unwrap_or_default();
        (id.to_owned(), port.to_owned())
    });

    targets.collect()
}
