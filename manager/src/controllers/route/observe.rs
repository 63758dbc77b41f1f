//! Everything the controller reads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use outrigger_aws::ec2::{Filter, RouteTable, RouteTarget};
use outrigger_aws::limit::Lane;
use outrigger_aws::{Instance, InstanceId};
use outrigger_shared::tags;
use tokio::time::Instant;

use super::Deps;
use super::error::Unread;
use super::plan::{Host, Member, Observed, concerns};
use crate::instances::{Answer, Target};
use crate::node_cache::NodeView;

/// How old an answer about the name of a Node without provider ID may be.
const NAMES_FRESH: Duration = Duration::from_secs(30);
/// How long it is remembered whether an instance that is no Node belongs to the cluster.
const STRANGERS_FRESH: Duration = Duration::from_secs(600);

/// Which instances belong to the cluster, from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Acquaintances {
    /// Instances that were Nodes while this process ran.
    nodes: HashSet<InstanceId>,
    /// Others, with when EC2 told.
    strangers: HashMap<InstanceId, (bool, Instant)>,
}

/// Reads tables and Nodes. In the steady state that is one call.
pub(super) async fn observe(deps: &Deps, known: &mut Acquaintances) -> Result<Observed, Unread> {
    let tables = Lane::Refresh.run(tables(deps)).await?;
    let members = members(deps).await;
    let former = former(deps, &tables, &members, known).await;
    Ok(Observed {
        tables,
        members,
        former,
    })
}

/// The configured table, whatever its tags, or all tables of the VPC with the cluster's tag.
async fn tables(deps: &Deps) -> Result<Vec<RouteTable>, Unread> {
    if let Some(id) = &deps.route_table_id {
        let tables = deps.ec2.route_tables_by(&[Filter::new("route-table-id", [id])]).await?;
        if tables.is_empty() {
            return Err(Unread::NoSuchTable(id.clone()));
        }
        return Ok(tables);
    }
    let mut tables = deps.ec2.route_tables(&deps.vpc_id).await?;
    tables.retain(|table| {
        let tags = table.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        tags::belongs_to(&deps.cluster_id, tags)
    });
    if tables.is_empty() {
        return Err(Unread::NoTaggedTable {
            vpc: deps.vpc_id.clone(),
            cluster: deps.cluster_id.clone(),
        });
    }
    Ok(tables)
}

async fn members(deps: &Deps) -> Vec<Member> {
    let nodes = deps.nodes.snapshot();
    let by_name: Vec<Arc<NodeView>> = nodes
        .iter()
        .filter(|node| !node.spec.pod_cidrs.is_empty() && matches!(Target::of(node), Target::Name(_)))
        .cloned()
        .collect();
    let mut named: HashMap<String, Host> = HashMap::new();
    if !by_name.is_empty() {
        let answers = deps.instances.describe(by_name, Lane::Initialize, NAMES_FRESH).await;
        named.extend(
            answers
                .into_iter()
                .map(|(node, answer)| (node.name().to_owned(), host(answer))),
        );
    }
    nodes
        .into_iter()
        .map(|node| {
            let target = Target::of(&node);
            let host = match target {
                Target::Id(id) => Host::Instance(id),
                Target::Name(_) => named
                    .remove(node.name())
                    .unwrap_or_else(|| Host::Unknown("the Node has no provider ID yet".to_owned())),
                Target::Fargate(_) | Target::Foreign(_) => Host::Elsewhere,
            };
            Member {
                cidrs: ipv4(&node),
                node,
                host,
            }
        })
        .collect()
}

fn host(answer: Answer) -> Host {
    match answer {
        Answer::Found(instance) => Host::Instance(instance.id.clone()),
        Answer::Absent => Host::Unknown("EC2 lists no instance for the Node's name".to_owned()),
        Answer::Ambiguous(count) => Host::Unknown(format!("{count} instances fit the Node's name")),
        Answer::Failed(error) => Host::Unknown(error.to_string()),
        Answer::Fargate(_) | Answer::Foreign(_) => Host::Elsewhere,
    }
}

/// The IPv4 ranges of a Node. The API server lets nothing else but ranges in; IPv6 ranges get no route.
fn ipv4(node: &NodeView) -> Vec<Ipv4Net> {
    let parsed = node
        .spec
        .pod_cidrs
        .iter()
        .filter_map(|text| text.parse::<Ipv4Net>().ok());
    parsed.map(|cidr| cidr.trunc()).collect()
}

/// The instances to which routes in the cluster's range lead, and that are no Nodes but belong to the cluster.
async fn former(
    deps: &Deps,
    tables: &[RouteTable],
    members: &[Member],
    known: &mut Acquaintances,
) -> HashSet<InstanceId> {
    let nodes: HashSet<&InstanceId> = members
        .iter()
        .filter_map(|member| match &member.host {
            Host::Instance(id) => Some(id),
            _ => None,
        })
        .collect();
    let strangers: HashSet<&InstanceId> = tables
        .iter()
        .flat_map(|table| &table.routes)
        .filter_map(|route| {
            let cidr: Ipv4Net = route.destination.as_deref()?.parse().ok()?;
            match &route.target {
                RouteTarget::Instance(id) if concerns(deps.cluster_cidr, cidr) && !nodes.contains(id) => Some(id),
                _ => None,
            }
        })
        .collect();
    let now = Instant::now();
    known.nodes.retain(|id| strangers.contains(id));
    known
        .strangers
        .retain(|id, (_, at)| strangers.contains(id) && now.duration_since(*at) < STRANGERS_FRESH);
    let unknown: Vec<InstanceId> = strangers
        .iter()
        .filter(|id| !known.nodes.contains(**id) && !known.strangers.contains_key(**id))
        .map(|id| (*id).clone())
        .collect();
    if !unknown.is_empty() {
        let answers = deps.instances.by_id(&unknown, Lane::Background, NAMES_FRESH).await;
        for (id, answer) in answers {
            // Without an answer the instance stays a stranger for this pass only: its route stays.
            if let Answer::Found(instance) = answer {
                known
                    .strangers
                    .insert(id, (in_cluster(&instance, &deps.cluster_id), now));
            }
        }
    }
    let former = strangers
        .into_iter()
        .filter(|id| known.nodes.contains(*id) || known.strangers.get(*id).is_some_and(|(belongs, _)| *belongs));
    let former = former.cloned().collect();
    known.nodes.extend(nodes.into_iter().cloned());
    former
}

fn in_cluster(instance: &Instance, cluster_id: &str) -> bool {
    let tags = instance.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    tags::belongs_to(cluster_id, tags)
}
