//! Which routes are made, led elsewhere and taken away. Pure: the time is an argument.
//!
//! A route table may hold routes of others, so this controller touches a route only if it lies in the cluster's range
//! and leads to an instance of the cluster, or nowhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::InstanceId;
use outrigger_aws::ec2::{Route, RouteTable, RouteTarget};
use tokio::time::Instant;

use super::confirmation::{Deletion, Doubt, Sightings};
use crate::node_cache::NodeView;

/// A Node, as far as routes are concerned.
#[derive(Debug, Clone)]
pub struct Member {
    /// The Node.
    pub node: Arc<NodeView>,
    /// Its IPv4 ranges.
    pub cidrs: Vec<Ipv4Net>,
    /// What runs it.
    pub host: Host,
}

/// What runs a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An instance.
    Instance(InstanceId),
    /// An instance without the cluster's tag, with what to say about it. Its routes and the instance stay unchanged:
    /// it may be of another cluster or owner, and the provider ID is what somebody wrote.
    NotInCluster(InstanceId, String),
    /// An instance that is not known now; why.
    Unknown(String),
    /// No instance of EC2: it gets no route, and what leads to its range stays as it is.
    Elsewhere,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Observed {
    /// The route tables that are managed.
    pub tables: Vec<RouteTable>,
    /// The Nodes.
    pub members: Vec<Member>,
    /// Targets of routes that have the cluster's tag.
    pub former: HashSet<InstanceId>,
}

/// A route to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The table.
    pub table: String,
    /// The route's destination.
    pub cidr: Ipv4Net,
    /// Whether the table has a route for it that leads elsewhere.
    pub replaces: bool,
}

/// What a Node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Its place among the members.
    pub member: usize,
    /// The routes to be made.
    pub steps: Vec<Step>,
    /// What keeps the Node from having its routes, with what helps.
    pub obstacles: Vec<String>,
    /// Why nothing can be said about the Node now.
    pub waits: Option<String>,
    /// The Node has no range, though a route leads to it.
    pub bare: bool,
}

/// What a pass does.
#[derive(Debug, Default)]
pub struct Plan {
    /// Routes to be taken away.
    pub deletions: Vec<Deletion>,
    /// One for each Node that has, needs or should not have a route.
    pub works: Vec<Work>,
    /// How many routes look unwanted, but so many at once that they are looked at again.
    pub held: usize,
    /// When to look again, if nothing happens before.
    pub again: Option<Duration>,
}

/// Whether a range lies in the cluster's, at least with one end.
#[must_use]
pub fn concerns(cluster: Ipv4Net, cidr: Ipv4Net) -> bool {
    cluster.contains(&cidr.network()) || cluster.contains(&cidr.broadcast())
}

/// Plans a pass.
pub fn plan(observed: &Observed, cluster: Ipv4Net, sightings: &mut Sightings, now: Instant) -> Plan {
    let view = View::of(observed, cluster);
    let mut works: BTreeMap<usize, Work> = BTreeMap::new();
    let (mut doubts, mut present) = (Vec::new(), 0);
    for table in &observed.tables {
        let routes = by_destination(table);
        for (cidr, claim) in &view.claims {
            let work = works.entry(claim.winner).or_insert_with(|| Work::of(claim.winner));
            view.wanted(table, *cidr, routes.get(cidr).copied(), claim.winner, work);
        }
        for (cidr, route) in routes {
            present += usize::from(concerns(cluster, cidr) && view.leads_to_ours(route));
            doubts.extend(view.unwanted(cidr, route).map(|why| Doubt {
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
    for (cidr, claim) in &view.claims {
        let winner = view.name(claim.winner);
        for loser in &claim.losers {
            let work = works.entry(*loser).or_insert_with(|| Work::of(*loser));
            work.obstacles.push(format!(
                "range {cidr} is also the range of Node {winner}; give one of the two Nodes another range"
            ));
        }
    }
    for member in view.targets_without_range() {
        let work = works.entry(member).or_insert_with(|| Work::of(member));
        work.bare = true;
    }
    let judged = sightings.judge(doubts, present, now);
    Plan {
        deletions: judged.go,
        works: works.into_values().collect(),
        held: judged.held,
        again: judged.again,
    }
}

impl Work {
    fn of(member: usize) -> Self {
        Self {
            member,
            steps: Vec::new(),
            obstacles: Vec::new(),
            waits: None,
            bare: false,
        }
    }
}

/// The table's routes for IPv4 ranges. Text that is no range is left out: it is none of ours.
fn by_destination(table: &RouteTable) -> HashMap<Ipv4Net, &Route> {
    let parsed = |route: &Route| route.destination.as_deref()?.parse::<Ipv4Net>().ok();
    let routes = table.routes.iter();
    routes
        .filter_map(|route| Some((parsed(route)?.trunc(), route)))
        .collect()
}

/// Who gets a range that several Nodes have.
struct Claim {
    winner: usize,
    losers: Vec<usize>,
}

struct View<'a> {
    observed: &'a Observed,
    cluster: Ipv4Net,
    by_instance: HashMap<&'a InstanceId, usize>,
    claims: HashMap<Ipv4Net, Claim>,
    /// Ranges of Nodes that do not run on EC2.
    spared: HashSet<Ipv4Net>,
}

impl<'a> View<'a> {
    fn of(observed: &'a Observed, cluster: Ipv4Net) -> Self {
        let members = observed.members.iter().enumerate();
        let by_instance = members.filter_map(|(place, member)| match &member.host {
            Host::Instance(id) => Some((id, place)),
            _ => None,
        });
        let mut view = Self {
            observed,
            cluster,
            by_instance: by_instance.collect(),
            claims: HashMap::new(),
            spared: HashSet::new(),
        };
        view.divide();
        view
    }

    /// Each range goes to one Node: where several have it, to the one that its route leads to, else to the oldest. A Node
    /// whose instance is not one of the cluster comes last.
    fn divide(&mut self) {
        let mut claimants: HashMap<Ipv4Net, Vec<usize>> = HashMap::new();
        for (place, member) in self.observed.members.iter().enumerate() {
            if member.host == Host::Elsewhere {
                self.spared.extend(&member.cidrs);
                continue;
            }
            for cidr in &member.cidrs {
                claimants.entry(*cidr).or_default().push(place);
            }
        }
        for (cidr, mut places) in claimants {
            if places.len() > 1 {
                places.sort_by_cached_key(|place| {
                    let member = self.observed.members.get(*place);
                    let created = member.and_then(|member| member.node.metadata.creation_timestamp.clone());
                    (
                        member.is_some_and(|member| matches!(member.host, Host::NotInCluster(..))),
                        Reverse(self.has_route(*place, cidr)),
                        created,
                        self.name(*place).to_owned(),
                    )
                });
            }
            let mut places = places.into_iter();
            if let Some(winner) = places.next() {
                let losers = places.collect();
                self.claims.insert(cidr, Claim { winner, losers });
            }
        }
    }

    fn name(&self, member: usize) -> &str {
        self.observed
            .members
            .get(member)
            .map_or("", |member| member.node.name())
    }

    fn has_route(&self, member: usize, cidr: Ipv4Net) -> bool {
        let host = self.observed.members.get(member).map(|member| &member.host);
        let leads_there = |route: &&Route| matches!((&route.target, host), (RouteTarget::Instance(to), Some(Host::Instance(id))) if to == id);
        let routes = self
            .observed
            .tables
            .iter()
            .filter_map(|table| by_destination(table).remove(&cidr));
        routes.filter(|route| leads_there(route)).count() > 0
    }

    fn is_ours(&self, instance: &InstanceId) -> bool {
        self.by_instance.contains_key(instance) || self.observed.former.contains(instance)
    }

    fn leads_to_ours(&self, route: &Route) -> bool {
        matches!(&route.target, RouteTarget::Instance(id) if self.is_ours(id))
    }

    /// What it takes that the table's route for a wanted range leads to its Node.
    fn wanted(&self, table: &RouteTable, cidr: Ipv4Net, present: Option<&Route>, member: usize, work: &mut Work) {
        let Some(member) = self.observed.members.get(member) else {
            return;
        };
        let step = |replaces| Step {
            table: table.id.clone(),
            cidr,
            replaces,
        };
        match (&member.host, present) {
            (Host::Instance(id), Some(route)) if route.target == RouteTarget::Instance(id.clone()) => {}
            (Host::Instance(_), None) => work.steps.push(step(false)),
            (Host::Instance(_), Some(route)) if self.may_replace(cidr, route) => work.steps.push(step(true)),
            (Host::Instance(_), Some(route)) => work.obstacles.push(format!(
                "route table {} has a route for {cidr} to {}, which is not this cluster's; delete that route or give the \
                 Node another range",
                table.id,
                shown(&route.target)
            )),
            (Host::NotInCluster(id, _), Some(route)) if route.target == RouteTarget::Instance(id.clone()) => {}
            (Host::NotInCluster(_, why), _) => work.obstacles.push(why.clone()),
            (Host::Unknown(why), None) => work.waits = Some(why.clone()),
            (Host::Unknown(_), Some(_)) | (Host::Elsewhere, _) => {}
        }
    }

    fn may_replace(&self, cidr: Ipv4Net, route: &Route) -> bool {
        concerns(self.cluster, cidr) && (self.leads_to_ours(route) || leads_nowhere(route))
    }

    /// Why a route should go; `None` for one that is wanted or not ours.
    fn unwanted(&self, cidr: Ipv4Net, route: &Route) -> Option<&'static str> {
        if !concerns(self.cluster, cidr) || self.claims.contains_key(&cidr) || self.spared.contains(&cidr) {
            return None;
        }
        match &route.target {
            _ if leads_nowhere(route) => Some("it leads nowhere and no Node has its range"),
            RouteTarget::Instance(id) if self.by_instance.contains_key(id) => {
                Some("it leads to a Node that does not have its range")
            }
            RouteTarget::Instance(id) if self.is_ours(id) => Some("it leads to an instance that is no Node any more"),
            _ => None,
        }
    }

    /// Nodes without an IPv4 range to which a route of the cluster's range leads all the same.
    fn targets_without_range(&self) -> Vec<usize> {
        let mut found = Vec::new();
        for route in self.observed.tables.iter().flat_map(|table| &table.routes) {
            let cidr = route
                .destination
                .as_deref()
                .and_then(|text| text.parse::<Ipv4Net>().ok());
            if let (RouteTarget::Instance(id), Some(cidr)) = (&route.target, cidr)
                && concerns(self.cluster, cidr)
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

/// A blackhole whose target is an instance, or what is left of one. One to a gateway is someone else's affair.
fn leads_nowhere(route: &Route) -> bool {
    route.blackhole && !matches!(route.target, RouteTarget::Other(_))
}

fn shown(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Instance(id) => id.to_string(),
        RouteTarget::NetworkInterface(id) | RouteTarget::Other(id) => id.clone(),
        RouteTarget::Unknown => "a target that EC2 does not name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
