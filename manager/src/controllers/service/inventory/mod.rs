//! Reads AWS for load balancers of either kind, by name, ID or filter.
//!
//! Many Services need the same answers, most of all after a start, so that answers are shared:
//!
//! - subnets, route tables and security groups are shared for [`shared::MAX_AGE`]; groups are read up to 200 per
//!   call, with those that other Services will need;
//! - after a start or a change of Nodes, a load balancer is described together with 19 others that wait. Such a
//!   description is used once; later observations read their own load balancer;
//! - the first observation after a start, and one after a change of Nodes, read no attributes, which take one call for each
//!   load balancer and target group; after a change of Nodes nothing is read of a load balancer that is in memory
//!   ([`facts`]). Attributes are read when the next full observation is due.
//!
//! Stale answers do no harm. After a change of the Service or a failure no shared answer is used, since AWS may have
//! changed too. Otherwise a [`Reader`] records the use of an answer that is older than its start. A plan from such
//! answers is dropped and made again from fresh reads before anything is written or any error is reported
//! (`observation::suffices`). So a stale answer costs reads, never a wrong write. Only drift of the last minute may be
//! missed; the next resync finds it. Own changes are seen at once: a write to any security group invalidates all
//! answers about groups ([`Shared::written`]), also those under way; subnets and route tables are never written here.
//! Deletions read everything fresh.

pub mod account;
pub mod classic;
pub mod facts;
pub mod network;
pub mod shared;
pub mod target_groups;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::{MAX_FILTER_VALUES, SecurityGroup, Subnet};
use outrigger_aws::{Ec2, Elb, Elbv2, Error, Filter, InstanceId};
use outrigger_shared::tags;
use tokio::time::Instant;

use super::model::{NodeInstance, Vpc};
use super::settings::Settings;
use super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, rule};
use super::spec::request::Subnets;
use account::{NodeInstances, TagReads, TargetGroupList, ZoneCache};
use shared::{Freshness, Shared, each};

/// AWS with the age limits of one observation.
pub struct Reader<'a> {
    aws: &'a Aws,
    /// The age limits, and whether an older answer was used.
    pub freshness: Freshness,
    pub reads_attributes: bool,
    /// Whether tags of network load balancers are read where many are described at once.
    reads_tags: bool,
    /// Whether it takes what is in memory about the load balancer.
    remembers: bool,
    denied: Mutex<Option<Error>>,
}

impl<'a> Reader<'a> {
    /// Accepts answers that other Services were given up to [`shared::MAX_AGE`] ago.
    pub fn cached(aws: &'a Aws) -> Self {
        Self::new(aws, true)
    }

    /// The same for the first observation after a start, without attributes.
    pub fn at_start(aws: &'a Aws) -> Self {
        Self {
            reads_attributes: false,
            ..Self::new(aws, true)
        }
    }

    /// The same when attributes are due after a start. `remembers`: only they are read, if the load balancer is in memory.
    pub fn for_attributes(aws: &'a Aws, remembers: bool) -> Self {
        Self {
            remembers,
            ..Self::new(aws, true)
        }
    }

    /// The same after a change of Nodes, without attributes and tags. `remembers`: and without the load balancer, if it is
    /// in memory.
    pub fn for_targets(aws: &'a Aws, remembers: bool) -> Self {
        Self {
            reads_attributes: false,
            reads_tags: false,
            remembers,
            ..Self::new(aws, true)
        }
    }

    /// Accepts only answers from now on.
    pub fn fresh(aws: &'a Aws) -> Self {
        Self::new(aws, false)
    }

    fn new(aws: &'a Aws, cached: bool) -> Self {
        Self {
            aws,
            freshness: Freshness::starting_now(cached),
            reads_attributes: true,
            reads_tags: true,
            remembers: false,
            denied: Mutex::default(),
        }
    }

    /// Attributes, which a plan can do without: `None` if this observation does not read them, or AWS denies the action.
    /// The denial is kept for [`Reader::denied`].
    async fn attributes<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
        if !self.reads_attributes {
            return Ok(None);
        }

        match call.await {
            Err(error) if error.is_denied_action() => {
                let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
                denied.get_or_insert(error);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// No answer is from before this moment, except for those that an own write has invalidated.
    pub fn since(&self) -> Instant {
        self.freshness.since()
    }

    /// The first read that AWS denied and that the plan was made without.
    pub fn denied(&self) -> Option<Error> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Reader<'_> {
    type Target = Aws;

    fn deref(&self) -> &Aws {
        self.aws
    }
}

/// The clients of AWS, and what Services share of its answers.
pub struct Aws {
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
    pub target_groups: TargetGroupList,
    pub instances: NodeInstances,
    pub zones: ZoneCache,
    /// Whether tags of network load balancers are read to see whose they are: the UID of the cluster is known.
    pub reads_owners: bool,
    pub tag_reads: TagReads,
    pub shared: Shared,
    /// The Services of the cluster, as the watch has delivered them.
    pub services: Services,
}

pub type Services = Arc<dyn Fn() -> Vec<Arc<Service>> + Send + Sync>;

/// The groups of the account that this filter finds, by a tag or by the VPC, as far as they are `wanted`.
pub async fn groups_where(
    reader: &Reader<'_>,
    filter: Filter,
    wanted: impl Fn(&SecurityGroup) -> bool,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let key = format!("{}={}", filter.name, filter.values.join(","));
    let ask = || async { Ok(Arc::new(reader.ec2.security_groups(&[filter]).await?)) };
    let groups = reader.shared.found.one(&key, &reader.freshness, ask).await?;
    let wanted = groups.iter().filter(|group| wanted(group));

    Ok(wanted.map(|group| (group.id.clone(), group.clone())).collect())
}

/// The group of this name in the VPC; names are unique there.
pub async fn group_by_name(reader: &Reader<'_>, vpc_id: &str, name: &str) -> Result<Option<SecurityGroup>, Error> {
    let ask = |names: BTreeSet<String>| async move {
        let filters = [
            Filter::new("group-name", names.iter().cloned()),
            Filter::new("vpc-id", [vpc_id]),
        ];
        let groups = reader.ec2.security_groups(&filters).await?.into_iter();
        let named = groups.filter_map(|group| Some((group.name.clone()?, Some(Arc::new(group)))));

        Ok(each(names, named.collect()))
    };

    let key = BTreeSet::from([name.to_owned()]);
    let ahead = || reader.shared.groups_to_prefetch();
    let mut found = reader.shared.named.of(&key, &reader.freshness, ahead, ask).await?;

    Ok(found.remove(name).flatten().map(Arc::unwrap_or_clone))
}

pub async fn groups_by_id(
    reader: &Reader<'_>,
    ids: BTreeSet<String>,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let ask = |ids: BTreeSet<String>| async move {
        let listed: Vec<String> = ids.iter().cloned().collect();
        let mut found = BTreeMap::new();
        for chunk in listed.chunks(MAX_FILTER_VALUES) {
            let filter = Filter::new("group-id", chunk.iter().cloned());
            let groups = reader.ec2.security_groups(&[filter]).await?;
            let groups = groups.into_iter();
            found.extend(groups.map(|group| (group.id.clone(), Some(Arc::new(group)))));
        }

        Ok(each(ids, found))
    };

    let groups = &reader.shared.groups;
    let found = groups.of(&ids, &reader.freshness, BTreeSet::new, ask).await?;
    let listed = found
        .into_iter()
        .filter_map(|(id, group)| Some((id, Arc::unwrap_or_clone(group?))));

    Ok(listed.collect())
}

/// The groups with a rule that names one of `sources`, at most 200; no source: no call.
pub async fn referencing(reader: &Reader<'_>, sources: BTreeSet<String>) -> Result<Vec<SecurityGroup>, Error> {
    let ask = |sources: BTreeSet<String>| async move {
        let filter = Filter::new("ip-permission.group-id", sources.iter().cloned());
        let mut by_source = BTreeMap::<String, Vec<Arc<SecurityGroup>>>::new();
        for group in reader.ec2.security_groups(&[filter]).await? {
            let group = Arc::new(group);
            let pairs = group.ingress.iter().flat_map(|rule| &rule.groups);
            let named: BTreeSet<&String> = pairs.filter_map(|pair| pair.group_id.as_ref()).collect();
            for source in named {
                by_source.entry(source.clone()).or_default().push(Arc::clone(&group));
            }
        }

        Ok(each(sources, by_source))
    };

    let ahead = || reader.shared.sources_to_prefetch();
    let referencing = &reader.shared.referencing;
    let found = referencing.of(&sources, &reader.freshness, ahead, ask).await?;
    let groups = found.into_values().flatten();
    let once: BTreeMap<String, Arc<SecurityGroup>> = groups.map(|group| (group.id.clone(), group)).collect();

    Ok(once.into_values().map(Arc::unwrap_or_clone).collect())
}

/// Reads the VPC, whose subnets are chosen from, for a load balancer with `attached` subnets.
pub async fn vpc(
    reader: &Reader<'_>,
    wanted: &Subnets,
    settings: &Settings,
    attached: &BTreeSet<String>,
) -> Result<Vpc, Error> {
    let vpc_id = &settings.vpc_id;
    match wanted {
        Subnets::Discover => {
            let subnets = subnets_of_vpc(reader, settings).await?;
            let ask = || async { Ok(Arc::new(reader.ec2.route_tables(vpc_id).await?)) };
            let tables = reader.shared.route_tables.one(vpc_id, &reader.freshness, ask).await?;
            let zones = reader.zones.covering(reader.ec2.as_ref(), &subnets).await?;

            Ok(Vpc {
                subnets,
                route_tables: Arc::unwrap_or_clone(tables),
                zones,
                named: BTreeSet::new(),
            })
        }
        Subnets::Listed { ids, names } => {
            let by_id: BTreeSet<String> = ids.iter().chain(attached).cloned().collect();
            let (mut subnets, mut named) = (Vec::new(), BTreeSet::new());
            if !by_id.is_empty() {
                let filters = [Filter::new("subnet-id", by_id), Filter::new("vpc-id", [vpc_id])];
                subnets = reader.ec2.subnets(&filters).await?;
            }

            if !names.is_empty() {
                let of_names = Filter::new("tag:Name", names.iter().cloned());
                let more = reader.ec2.subnets(&[of_names, Filter::new("vpc-id", [vpc_id])]).await?;
                named.extend(more.iter().map(|subnet| subnet.id.clone()));
                let known: BTreeSet<String> = subnets.iter().map(|subnet| subnet.id.clone()).collect();
                subnets.extend(more.into_iter().filter(|subnet| !known.contains(&subnet.id)));
            }

            Ok(Vpc {
                subnets,
                named,
                ..Vpc::default()
            })
        }
    }
}

pub async fn subnets_of_vpc(reader: &Reader<'_>, settings: &Settings) -> Result<Vec<Subnet>, Error> {
    let vpc_id = &settings.vpc_id;
    let of_vpc = [Filter::new("vpc-id", [vpc_id])];
    let ask = || async { Ok(Arc::new(reader.ec2.subnets(&of_vpc).await?)) };
    let subnets = reader.shared.subnets.one(vpc_id, &reader.freshness, ask).await?;
    Ok(Arc::unwrap_or_clone(subnets))
}

/// Filters for the resources with one of the cluster's tags.
pub fn cluster_filters(settings: &Settings) -> Vec<Filter> {
    let mut filters = vec![Filter::new("tag-key", [tags::cluster_key(&settings.cluster_id)])];
    if settings.legacy_tags {
        let key = format!("tag:{}", tags::LEGACY_CLUSTER);
        filters.push(Filter::new(key, [&settings.cluster_id]));
    }
    filters
}

/// The groups with the cluster's tag, and the groups of the instances.
pub async fn node_groups(
    reader: &Reader<'_>,
    settings: &Settings,
    instances: &BTreeMap<InstanceId, NodeInstance>,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let mut found = BTreeMap::new();
    for filter in cluster_filters(settings) {
        // Another cluster with the same ID may be in another VPC of the account.
        let is_here = |group: &SecurityGroup| group.vpc_id.as_ref() == Some(&settings.vpc_id);
        found.extend(groups_where(reader, filter, is_here).await?);
    }

    let of_instances = instances.values().flat_map(|instance| &instance.security_groups);
    let others: BTreeSet<String> = of_instances.filter(|id| !found.contains_key(*id)).cloned().collect();
    found.extend(groups_by_id(reader, others).await?);

    Ok(found)
}

/// The groups of the VPC with a rule for this load balancer, or with an orphaned one. An untagged group is not found
/// through its Nodes once they are gone.
pub async fn groups_with_rules_of(
    reader: &Reader<'_>,
    settings: &Settings,
    load_balancer: &str,
) -> Result<BTreeMap<String, SecurityGroup>, Error> {
    let ours = [CLIENT_RULE, HEALTH_RULE].map(|kind| rule(kind, load_balancer));
    let is_wanted = |group: &SecurityGroup| {
        let ranges = group.ingress.iter().flat_map(|rule| &rule.ranges);
        let texts: Vec<&str> = ranges.filter_map(|range| range.description.as_deref()).collect();
        let orphaned = texts.contains(&MTU_RULE) && !texts.iter().any(|text| text.contains(CLIENT_RULE));
        orphaned || texts.iter().any(|text| ours.iter().any(|own| own == text))
    };

    groups_where(reader, Filter::new("vpc-id", [&settings.vpc_id]), is_wanted).await
}
