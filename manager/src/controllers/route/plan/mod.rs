//! Plans which routes are created, replaced and deleted. Pure: the time is an argument.
//!
//! A route table may contain routes of others, so this controller manages a route only if it is in the cluster's range
//! and its target is an instance of the cluster, or it is a blackhole.
//!
//! A kubelet chooses the range of a Node that it creates. So a range gets no route outside of the cluster's range, or if it
//! overlaps with that of an older Node; one that is much larger than a Node's comes after all others. Routes that exist for
//! such a range stay.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{Route, RouteTable, RouteTarget};
use tokio::time::Instant;

use super::confirmation::{Confirmations, Deletion, UnwantedRoute};
use crate::node_cache::NodeView;

#[derive(Debug, Clone)]
pub struct Member {
    pub node: Arc<NodeView>,
    pub cidrs: Vec<Ipv4Net>,
    pub host: NodeHost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeHost {
    Instance(InstanceId),
    /// An instance without the cluster's tag, with a message. Its routes and the instance stay unchanged: it may belong
    /// to another cluster, and anyone who may write the Node may set its provider ID.
    NotInCluster(InstanceId, String),
    Unknown(String),
    /// Not an EC2 instance: it gets no route, and routes to its range stay unchanged.
    NotOnEc2,
}

#[derive(Debug, Default)]
pub struct Observed {
    pub tables: Vec<RouteTable>,
    pub members: Vec<Member>,
    /// Targets of routes that have the cluster's tag.
    pub former: HashSet<InstanceId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub table: String,
    pub cidr: Ipv4Net,
    /// Whether the table has a route for the destination with another target.
    pub replaces: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// Its index among the members.
    pub member: usize,
    pub steps: Vec<Step>,
    /// The problems that prevent the Node's routes, and how to fix them.
    pub obstacles: Vec<String>,
    /// Why it would get no routes for ranges, if these did not exist.
    pub kept: Vec<String>,
    /// Why the Node's instance is unknown.
    pub waits: Option<String>,
    /// The Node has no range, although a route targets its instance.
    pub has_no_range: bool,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub deletions: Vec<Deletion>,
    /// One for each Node that has, needs or should not have a route.
    pub node_plans: Vec<NodePlan>,
    /// How many deletions are deferred because of a mass loss.
    pub deferred: usize,
    /// When to reconcile again, if nothing changes before.
    pub retry_after: Option<Duration>,
}

/// Whether a range begins or ends in the cluster's range. The range of a default route does neither.
pub fn concerns(cluster: Ipv4Net, cidr: Ipv4Net) -> bool {
    cluster.contains(&cidr.network()) || cluster.contains(&cidr.broadcast())
}

/// The cluster's range, and the shortest prefix of a Node's range in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    pub cidr: Ipv4Net,
    pub shortest_prefix: u8,
}

pub fn plan(observed: &Observed, range: ClusterRange, confirmations: &mut Confirmations, now: Instant) -> Plan {
    let (view, cluster) = (View::of(observed, range), range.cidr);
    let mut node_plans: BTreeMap<usize, NodePlan> = BTreeMap::new();
    let (mut unwanted, mut present) = (Vec::new(), 0);

    for table in &observed.tables {
        let routes = by_destination(table);
        for (cidr, member) in &view.winners {
            let work = node_plans.entry(*member).or_insert_with(|| NodePlan::of(*member));
            view.wanted(table, *cidr, routes.get(cidr).copied(), *member, work);
        }
        for refused in &view.refused {
            let work = node_plans
                .entry(refused.member)
                .or_insert_with(|| NodePlan::of(refused.member));
            view.refused(refused, routes.get(&refused.cidr).copied(), work);
        }

        for (cidr, route) in routes {
            present += usize::from(concerns(cluster, cidr) && view.targets_cluster(route));
            unwanted.extend(view.unwanted(cidr, route).map(|why| UnwantedRoute {
                deletion: Deletion {
                    table: table.id.clone(),
                    cidr,
                    why,
                },
                target: route.target.clone(),
                blackhole: route.blackhole,
            }));
        }
    }

    for member in view.targets_without_range() {
        let work = node_plans.entry(member).or_insert_with(|| NodePlan::of(member));
        work.has_no_range = true;
    }

    let confirmed = confirmations.confirm(unwanted, present, now);
    Plan {
        deletions: confirmed.deletions,
        node_plans: node_plans.into_values().collect(),
        deferred: confirmed.deferred,
        retry_after: confirmed.retry_after,
    }
}

impl NodePlan {
    fn of(member: usize) -> Self {
        Self {
            member,
            steps: Vec::new(),
            obstacles: Vec::new(),
            kept: Vec::new(),
            waits: None,
            has_no_range: false,
        }
    }
}

/// The table's routes to IPv4 ranges.
fn by_destination(table: &RouteTable) -> HashMap<Ipv4Net, &Route> {
    let parsed = |route: &Route| route.destination.as_deref()?.parse::<Ipv4Net>().ok();
    let routes = table.routes.iter();
    routes
        .filter_map(|route| Some((parsed(route)?.trunc(), route)))
        .collect()
}

/// A range of a Node that gets no route, and why.
struct Refused {
    member: usize,
    cidr: Ipv4Net,
    why: String,
}

struct View<'a> {
    observed: &'a Observed,
    range: ClusterRange,
    by_instance: HashMap<&'a InstanceId, usize>,
    /// Each route of the tables to an instance.
    leading: HashSet<(Ipv4Net, &'a InstanceId)>,
    /// The Node that gets a range. No two ranges overlap.
    winners: HashMap<Ipv4Net, usize>,
    refused: Vec<Refused>,
    /// Ranges whose routes stay: those of Nodes that do not run on EC2, and refused ones of unknown instances.
    spared: HashSet<Ipv4Net>,
    /// Refused ranges, each with the instance of its Node: this route stays.
    kept: HashSet<(Ipv4Net, &'a InstanceId)>,
}

impl<'a> View<'a> {
    fn of(observed: &'a Observed, range: ClusterRange) -> Self {
        let members = observed.members.iter().enumerate();
        let by_instance = members.filter_map(|(place, member)| match &member.host {
            NodeHost::Instance(id) => Some((id, place)),
            _ => None,
        });
        let routes = observed.tables.iter().flat_map(by_destination);
        let leading = routes.filter_map(|(cidr, route)| match &route.target {
            RouteTarget::Instance(id) => Some((cidr, id)),
            _ => None,
        });
        let mut view = Self {
            observed,
            range,
            by_instance: by_instance.collect(),
            leading: leading.collect(),
            winners: HashMap::new(),
            refused: Vec::new(),
            spared: HashSet::new(),
            kept: HashSet::new(),
        };

        view.divide();

        view
    }

    /// Assigns each range to one Node: to the target of the present route, else to the oldest Node. A range that is much larger
    /// than a Node's comes later, and a Node whose instance does not belong to the cluster last.
    fn divide(&mut self) {
        let mut claims: Vec<(usize, Ipv4Net)> = Vec::new();
        for (place, member) in self.observed.members.iter().enumerate() {
            match member.host {
                NodeHost::NotOnEc2 => self.spared.extend(&member.cidrs),
                _ => claims.extend(member.cidrs.iter().map(|cidr| (place, *cidr))),
            }
        }
        claims.sort_by_cached_key(|(place, cidr)| {
            let member = self.observed.members.get(*place);
            let created = member.and_then(|member| member.node.metadata.creation_timestamp.clone());
            (
                member.is_some_and(|member| matches!(member.host, NodeHost::NotInCluster(..))),
                cidr.prefix_len() < self.range.shortest_prefix,
                Reverse(self.has_route(*place, *cidr)),
                created,
                self.name(*place).to_owned(),
                *cidr,
            )
        });

        let mut taken: BTreeMap<Ipv4Addr, (Ipv4Net, usize)> = BTreeMap::new();
        for (place, cidr) in claims {
            let cluster = self.range.cidr;
            match overlapping(&taken, cidr) {
                _ if !cluster.contains(&cidr) => self.refuse(
                    place,
                    cidr,
                    format!(
                        "is not inside of --cluster-cidr={cluster}; create the Node again, or widen --cluster-cidr"
                    ),
                ),
                None => _ = taken.insert(cidr.network(), (cidr, place)),
                Some((_, winner)) if winner == place => {}
                Some((other, winner)) => {
                    let winner = self.name(winner);
                    let relation = match other == cidr {
                        true => format!("is also the range of Node {winner}"),
                        false => format!("overlaps with the range {other} of Node {winner}"),
                    };
                    self.refuse(
                        place,
                        cidr,
                        format!("{relation}; give one of the two Nodes another range"),
                    );
                }
            }
        }
        self.winners = taken.into_values().collect();
    }

    fn refuse(&mut self, member: usize, cidr: Ipv4Net, why: String) {
        let observed: &'a Observed = self.observed;
        match observed.members.get(member).map(|member| &member.host) {
            Some(NodeHost::Instance(id) | NodeHost::NotInCluster(id, _)) => _ = self.kept.insert((cidr, id)),
            _ => _ = self.spared.insert(cidr),
        }
        self.refused.push(Refused { member, cidr, why });
    }

    fn name(&self, member: usize) -> &str {
        self.observed
            .members
            .get(member)
            .map_or("", |member| member.node.name())
    }

    /// Whether a table has a route for the range to the Node's instance.
    fn has_route(&self, member: usize, cidr: Ipv4Net) -> bool {
        let member = self.observed.members.get(member);
        member
            .is_some_and(|member| matches!(&member.host, NodeHost::Instance(id) if self.leading.contains(&(cidr, id))))
    }

    fn is_in_cluster(&self, instance: &InstanceId) -> bool {
        self.by_instance.contains_key(instance) || self.observed.former.contains(instance)
    }

    fn targets_cluster(&self, route: &Route) -> bool {
        matches!(&route.target, RouteTarget::Instance(id) if self.is_in_cluster(id))
    }

    /// Adds the step or obstacle for the route to a Node's range in a table.
    fn wanted(&self, table: &RouteTable, cidr: Ipv4Net, present: Option<&Route>, member: usize, work: &mut NodePlan) {
        let Some(member) = self.observed.members.get(member) else {
            return;
        };

        let step = |replaces| Step {
            table: table.id.clone(),
            cidr,
            replaces,
        };

        match (&member.host, present) {
            (NodeHost::Instance(id), Some(route)) if route.target == RouteTarget::Instance(id.clone()) => {}
            (NodeHost::Instance(_), None) => work.steps.push(step(false)),
            (NodeHost::Instance(_), Some(route)) if self.may_replace(cidr, route) => work.steps.push(step(true)),
            (NodeHost::Instance(_), Some(route)) => work.obstacles.push(format!(
                "route table {} has a route for {cidr} to {}, which does not belong to this cluster; delete that route or give the \
                 Node another range",
                table.id,
                shown(&route.target)
            )),
            (NodeHost::NotInCluster(id, _), Some(route)) if route.target == RouteTarget::Instance(id.clone()) => {}
            (NodeHost::NotInCluster(_, why), _) => work.obstacles.push(why.clone()),
            (NodeHost::Unknown(why), None) => work.waits = Some(why.clone()),
            (NodeHost::Unknown(_), Some(_)) | (NodeHost::NotOnEc2, _) => {}
        }
    }

    /// Adds the obstacle for the route to a refused range in a table, or what keeps the route.
    fn refused(&self, refused: &Refused, present: Option<&Route>, work: &mut NodePlan) {
        let Some(member) = self.observed.members.get(refused.member) else {
            return;
        };

        let why = format!("range {} {}", refused.cidr, refused.why);
        let (list, why) = match (&member.host, present) {
            (NodeHost::Instance(id) | NodeHost::NotInCluster(id, _), Some(route))
                if route.target == RouteTarget::Instance(id.clone()) =>
            {
                (&mut work.kept, why)
            }
            (NodeHost::Instance(_), _) => (&mut work.obstacles, why),
            (NodeHost::NotInCluster(_, tag), _) => (&mut work.obstacles, tag.clone()),
            (NodeHost::Unknown(why), None) => {
                work.waits = Some(why.clone());
                return;
            }
            (NodeHost::Unknown(_), Some(_)) | (NodeHost::NotOnEc2, _) => return,
        };
        if !list.contains(&why) {
            list.push(why);
        }
    }

    fn may_replace(&self, cidr: Ipv4Net, route: &Route) -> bool {
        concerns(self.range.cidr, cidr) && (self.targets_cluster(route) || is_blackhole(route))
    }

    /// Why a route is to be deleted; `None` for one that is wanted or not managed.
    fn unwanted(&self, cidr: Ipv4Net, route: &Route) -> Option<&'static str> {
        if !concerns(self.range.cidr, cidr) || self.winners.contains_key(&cidr) || self.spared.contains(&cidr) {
            return None;
        }
        match &route.target {
            RouteTarget::Instance(id) if self.kept.contains(&(cidr, id)) => None,
            _ if is_blackhole(route) => Some("it is a blackhole and no Node has its range"),
            RouteTarget::Instance(id) if self.by_instance.contains_key(id) => {
                Some("its target is a Node that does not have its range")
            }
            RouteTarget::Instance(id) if self.is_in_cluster(id) => {
                Some("its target is an instance that is no longer a Node")
            }
            _ => None,
        }
    }

    /// Nodes without an IPv4 range that are the target of a route in the cluster's range.
    fn targets_without_range(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for route in self.observed.tables.iter().flat_map(|table| &table.routes) {
            let cidr = route
                .destination
                .as_deref()
                .and_then(|text| text.parse::<Ipv4Net>().ok());
            if let (RouteTarget::Instance(id), Some(cidr)) = (&route.target, cidr)
                && concerns(self.range.cidr, cidr)
                && let Some(place) = self.by_instance.get(id)
                && self
                    .observed
                    .members
                    .get(*place)
                    .is_some_and(|member| member.cidrs.is_empty())
                && !found.contains(place)
            {
                found.push(*place);
            }
        }

        found
    }
}

/// The range that has addresses in common with this one. `taken` has no two of those, by their first addresses.
fn overlapping(taken: &BTreeMap<Ipv4Addr, (Ipv4Net, usize)>, cidr: Ipv4Net) -> Option<(Ipv4Net, usize)> {
    let before = taken.range(..=cidr.broadcast()).next_back();
    before
        .map(|(_, found)| *found)
        .filter(|(other, _)| other.broadcast() >= cidr.network())
}

/// A blackhole whose target is an instance or a former one. A blackhole to a gateway is not managed.
fn is_blackhole(route: &Route) -> bool {
    route.blackhole && !matches!(route.target, RouteTarget::Other(_))
}

fn shown(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Instance(id) => id.to_string(),
        RouteTarget::NetworkInterface(id) | RouteTarget::Other(id) => id.clone(),
        RouteTarget::Unknown => "a target of unknown type".to_owned(),
    }
}

#[cfg(test)]
mod tests;
