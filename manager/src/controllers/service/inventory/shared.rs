//! Answers of AWS that several Services use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_aws::ec2::{MAX_FILTER_VALUES, RouteTable, SecurityGroup, Subnet};
use outrigger_aws::elb::LoadBalancer;
use outrigger_aws::elbv2::NetworkLoadBalancer;

use super::super::action::{ServiceAction, action};
use super::super::model::known_tags::KnownTags;
use super::super::plan::Step;
use super::super::spec::annotations::{Annotations, Kind};
use super::super::spec::{hostname, names};
use super::prefetch::Prefetch;
use super::single_flight::SingleFlight;

type Services = Box<dyn Fn() -> Vec<Arc<Service>> + Send + Sync>;

#[derive(Default)]
pub struct Shared {
    pub(super) subnets: SingleFlight<Arc<Vec<Subnet>>>,
    pub(super) route_tables: SingleFlight<Arc<Vec<RouteTable>>>,
    pub(super) named: SingleFlight<Option<Arc<SecurityGroup>>>,
    pub(super) groups: SingleFlight<Option<Arc<SecurityGroup>>>,
    /// Those with a rule that names a group, by that group's ID.
    pub(super) referencing: SingleFlight<Vec<Arc<SecurityGroup>>>,
    /// Those that a filter finds, by the filter.
    pub(super) found: SingleFlight<Arc<Vec<SecurityGroup>>>,
    /// Classic load balancers with their tags.
    pub(super) classic: Prefetch<(LoadBalancer, KnownTags)>,
    /// Network load balancers, with their tags if they were read.
    pub(super) network: Prefetch<(NetworkLoadBalancer, Option<Tags>)>,
    services: OnceLock<Services>,
}

impl Shared {
    /// Sets the Services to prefetch for; without them nothing is prefetched.
    pub fn prefetch_for(&self, services: impl Fn() -> Vec<Arc<Service>> + Send + Sync + 'static) {
        // A second call would set the same: a process has one cache of Services.
        let _ = self.services.set(Box::new(services));
    }

    /// Records the end of a write, successful or not. A write to any security group invalidates all answers about
    /// groups.
    pub fn written(&self, load_balancer: &str, step: &Step) {
        self.classic.forget(load_balancer);
        self.network.forget(load_balancer);
        if matches!(step, Step::Group(_)) {
            self.named.invalidate();
            self.groups.invalidate();
            self.referencing.invalidate();
            self.found.invalidate();
        }
    }

    /// Records a change of Nodes: every Service will be reconciled.
    pub fn nodes_changed(&self) {
        self.classic.begin(self.load_balancers(Kind::Classic));
        self.network.begin(self.load_balancers(Kind::Network));
    }

    /// Names of all existing load balancers of this kind that Services request. AWS refuses a whole call for one name
    /// that does not exist.
    pub(super) fn load_balancers(&self, kind: Kind) -> BTreeSet<String> {
        let services = self.services.get().map(|services| services()).unwrap_or_default();
        let wanted = services.iter().filter(|service| {
            action(service) == ServiceAction::Ensure
                && Annotations::of(service).kind() == kind
                && hostname::kind_in_status(service).is_some()
        });

        wanted
            .map(|service| names::load_balancer(service.metadata.uid.as_deref().unwrap_or_default()))
            .collect()
    }

    /// Names of groups that other Services will need, as many as fit in one call beside one.
    pub(super) fn groups_to_prefetch(&self) -> BTreeSet<String> {
        let balancers = self.load_balancers(Kind::Classic).into_iter();
        let names = balancers.map(|name| names::security_group(&name));
        names
            .filter(|name| !self.named.has(name))
            .take(MAX_FILTER_VALUES - 1)
            .collect()
    }

    /// IDs of groups whose references other Services will need, as many as fit in one call beside two.
    pub(super) fn sources_to_prefetch(&self) -> BTreeSet<String> {
        let known = self.named.values().into_iter().flatten();
        let ids = known.map(|group| group.id.clone());
        ids.filter(|id| !self.referencing.has(id))
            .take(MAX_FILTER_VALUES - 2)
            .collect()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

pub(super) fn each<V: Default>(keys: BTreeSet<String>, mut found: BTreeMap<String, V>) -> BTreeMap<String, V> {
    let value = |key: String| {
        let value = found.remove(&key).unwrap_or_default();
        (key, value)
    };
    keys.into_iter().map(value).collect()
}
