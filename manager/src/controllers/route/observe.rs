//! All reads of the controller.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::ec2::{Filter, RouteTable, RouteTarget};
use outrigger_aws::limit::Priority;
use outrigger_aws::{Error as AwsError, InstanceId};
use outrigger_shared::tags;
use tokio::time::Instant;

use super::Deps;
use super::failures;
use super::plan::{Member, NodeHost, Observed, concerns};
use crate::instances::{Answer, Target, addresses, is_mismatch};
use crate::node_cache::{NodeView, ec2_name};

/// Maximum age of the description of a Node without provider ID.
const NAMES_MAX_AGE: Duration = Duration::from_secs(30);
/// How long the membership of an instance in the cluster is cached.
const MEMBERSHIP_MAX_AGE: Duration = Duration::from_secs(600);
/// The same for a Node whose instance has not been tagged yet.
const UNTAGGED_MAX_AGE: Duration = Duration::from_secs(30);

/// The answers of EC2 about the instances of Nodes and routes.
#[derive(Debug, Default)]
pub(super) struct Membership(HashMap<InstanceId, Known>);

#[derive(Debug)]
struct Known {
    /// It has the cluster's tag.
    belongs: bool,
    /// By which its machine may be named.
    addresses: Vec<Ipv4Addr>,
    /// When EC2 was asked.
    at: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error(transparent)]
    Aws(#[from] AwsError),
    #[error("EC2 lists no route table {0}: correct RouteTableID in the cloud configuration, or remove it")]
    NoSuchTable(String),
    #[error(
        "no route table of VPC {vpc} has the tag kubernetes.io/cluster/{cluster}: tag the tables of the nodes' subnets, or \
         name one with RouteTableID in the cloud configuration"
    )]
    NoTaggedTable { vpc: String, cluster: String },
}

/// Reads tables and Nodes, in the steady state with one call.
pub(super) async fn observe(deps: &Deps, membership: &mut Membership) -> Result<Observed, ObserveError> {
    let tables = Priority::Refresh.run(tables(deps)).await?;
    let mut members = members(deps, membership).await;
    let targets = targets(deps, &tables);
    let failures = membership.refresh(deps, &members, &targets).await;

    for member in &mut members {
        membership.check(deps, member, &failures);
    }

    let former = targets
        .into_iter()
        .filter(|id| membership.get(id) == Some(true))
        .collect();
    Ok(Observed {
        tables,
        members,
        former,
    })
}

/// The configured table, whatever its tags, or all tables of the VPC with the cluster's tag.
async fn tables(deps: &Deps) -> Result<Vec<RouteTable>, ObserveError> {
    if let Some(id) = &deps.route_table_id {
        let tables = deps.ec2.route_tables_by(&[Filter::new("route-table-id", [id])]).await?;
        if tables.is_empty() {
            return Err(ObserveError::NoSuchTable(id.clone()));
        }
        return Ok(tables);
    }

    let mut tables = deps.ec2.route_tables(&deps.vpc_id).await?;
    tables.retain(|table| {
        let tags = table.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        tags::belongs_to(&deps.cluster_id, tags)
    });

    if tables.is_empty() {
        return Err(ObserveError::NoTaggedTable {
            vpc: deps.vpc_id.clone(),
            cluster: deps.cluster_id.clone(),
        });
    }

    Ok(tables)
}

/// The Nodes. An instance that EC2 found by the Node's name belongs to the cluster.
async fn members(deps: &Deps, membership: &mut Membership) -> Vec<Member> {
    let nodes = deps.nodes.snapshot();
    let by_name: Vec<Arc<NodeView>> = nodes
        .iter()
        .filter(|node| !node.spec.pod_cidrs.is_empty() && matches!(Target::of(node), Target::Name(_)))
        .cloned()
        .collect();
    let mut named: HashMap<String, NodeHost> = HashMap::new();

    if !by_name.is_empty() {
        let answers = deps
            .instances
            .describe(by_name, Priority::Initialize, NAMES_MAX_AGE)
            .await;
        for (node, answer) in answers {
            if let Answer::Found(instance) = &answer {
                let known = Known {
                    belongs: true,
                    addresses: addresses(instance),
                    at: Instant::now(),
                };
                membership.0.insert(instance.id.clone(), known);
            }
            let host = host(answer);
            named.insert(node.name().to_owned(), host);
        }
    }

    nodes
        .into_iter()
        .map(|node| {
            let target = Target::of(&node);
            let host = match target {
                Target::Id(id) => NodeHost::Instance(id),
                Target::Name(_) => named
                    .remove(node.name())
                    .unwrap_or_else(|| NodeHost::Unknown("the Node has no provider ID yet".to_owned())),
                Target::Refused(reason) => NodeHost::Unknown(reason),
                Target::Fargate(_) | Target::Foreign(_) => NodeHost::NotOnEc2,
            };

            Member {
                cidrs: ipv4(&node),
                node,
                host,
            }
        })
        .collect()
}

fn host(answer: Answer) -> NodeHost {
    match answer {
        Answer::Found(instance) => NodeHost::Instance(instance.id.clone()),
        Answer::Absent => NodeHost::Unknown("EC2 lists no instance for the Node's name".to_owned()),
        Answer::Ambiguous(count) => NodeHost::Unknown(format!("{count} instances match the Node's name")),
        Answer::Failed(error) => NodeHost::Unknown(error.to_string()),
        Answer::Refused(reason) => NodeHost::Unknown(reason),
        Answer::Fargate(_) | Answer::Foreign(_) => NodeHost::NotOnEc2,
    }
}

/// The IPv4 ranges of a Node. IPv6 ranges get no route.
fn ipv4(node: &NodeView) -> Vec<Ipv4Net> {
    let parsed = node
        .spec
        .pod_cidrs
        .iter()
        .filter_map(|text| text.parse::<Ipv4Net>().ok());
    parsed.map(|cidr| cidr.trunc()).collect()
}

/// The instances that are targets of routes in the cluster's range.
fn targets(deps: &Deps, tables: &[RouteTable]) -> HashSet<InstanceId> {
    let routes = tables.iter().flat_map(|table| &table.routes);
    routes
        .filter_map(|route| {
            let cidr: Ipv4Net = route.destination.as_deref()?.parse().ok()?;
            match &route.target {
                RouteTarget::Instance(id) if concerns(deps.cluster.cidr, cidr) => Some(id.clone()),
                _ => None,
            }
        })
        .collect()
}

impl Membership {
    fn get(&self, id: &InstanceId) -> Option<bool> {
        self.0.get(id).map(|known| known.belongs)
    }

    /// Describes the instances of Nodes with a range and of targets of routes, if the cached membership is missing or
    /// outdated. If EC2 no longer lists an instance, the cached membership stays: a terminated instance belonged to the
    /// cluster. Returns the failures.
    async fn refresh(
        &mut self,
        deps: &Deps,
        members: &[Member],
        targets: &HashSet<InstanceId>,
    ) -> HashMap<InstanceId, String> {
        let nodes = members.iter().filter_map(|member| match &member.host {
            NodeHost::Instance(id) if !member.cidrs.is_empty() => Some(id),
            _ => None,
        });
        let nodes: HashSet<&InstanceId> = nodes.collect();
        let concerned: HashSet<&InstanceId> = nodes.iter().copied().chain(targets).collect();
        self.0.retain(|id, _| concerned.contains(id));

        let now = Instant::now();
        let is_fresh = |id: &InstanceId| {
            let is_untagged_node = self.get(id) == Some(false) && nodes.contains(id);
            let longest = if is_untagged_node {
                UNTAGGED_MAX_AGE
            } else {
                MEMBERSHIP_MAX_AGE
            };
            let known = self.0.get(id);

            known.is_some_and(|known| now.duration_since(known.at) < longest)
        };

        let unknown: Vec<InstanceId> = concerned.into_iter().filter(|id| !is_fresh(id)).cloned().collect();
        if unknown.is_empty() {
            return HashMap::new();
        }

        let answers = deps
            .instances
            .by_id(&unknown, Priority::Initialize, NAMES_MAX_AGE)
            .await;
        let mut failures = HashMap::new();
        for (id, answer) in answers {
            match answer {
                Answer::Found(instance) => {
                    let known = Known {
                        belongs: deps.instances.in_cluster(&instance),
                        addresses: addresses(&instance),
                        at: now,
                    };
                    self.0.insert(id, known);
                }
                Answer::Failed(error) => _ = failures.insert(id, error.to_string()),
                _ => {
                    if let Some(known) = self.0.get_mut(&id) {
                        known.at = now;
                    }
                }
            }
        }

        failures
    }

    /// Marks a Node whose instance does not belong to the cluster or has another name, or of which nothing is known.
    fn check(&self, deps: &Deps, member: &mut Member, failures: &HashMap<InstanceId, String>) {
        let NodeHost::Instance(id) = &member.host else {
            return;
        };
        let addresses = self
            .0
            .get(id)
            .map(|known| known.addresses.as_slice())
            .unwrap_or_default();
        match (self.get(id), failures.get(id)) {
            (Some(true), _) if is_mismatch(ec2_name::address(member.node.name()), addresses) => {
                member.host = NodeHost::NotInCluster(id.clone(), failures::other_name(id));
            }
            (Some(true), _) | (None, None) => {}
            (Some(false), _) => {
                member.host = NodeHost::NotInCluster(id.clone(), failures::not_in_cluster(id, &deps.cluster_id))
            }
            (None, Some(error)) => member.host = NodeHost::Unknown(error.clone()),
        }
    }
}
