//! The desired network load balancer, derived from a Service and the settings only.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_aws::ec2::{IpPermission, NewSecurityGroup};
use outrigger_aws::elbv2::Attributes;

use super::super::super::error::Invalid;
use super::super::super::plan::security_groups;
use super::super::super::settings::Settings;
use super::super::annotations::Annotations;
use super::super::names::{MOST_TAGS, cluster_tags, creation_tags, namespaced};
use super::super::request::{self, Subnets};
use super::super::source_ranges;
use super::attributes;
use super::names::{self, Owner, TargetGroupNames};
use super::ports::{self, Port};

/// The security groups of a load balancer (`NLBSecurityGroupMode`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// The existing ones; a new load balancer gets none.
    Kept,
    /// One of its own.
    Managed,
    /// Given ones, whose rules are not managed.
    Given(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub name: String,
    /// Only reachable within the VPC. Fixed at creation.
    pub internal: bool,
    /// Listeners and target groups; none where no port has a node port.
    pub ports: Vec<Port>,
    /// Subnets. Fixed at creation.
    pub subnets: Subnets,
    /// Allocation IDs of elastic addresses, one for each subnet. Fixed at creation.
    pub elastic_addresses: Option<Vec<String>>,
    /// Addresses within the subnets, one for each. Fixed at creation.
    pub private_addresses: Option<Vec<String>>,
    pub groups: Groups,
    /// Its own group, if it has one.
    pub own_group: NewSecurityGroup,
    pub ingress: Vec<IpPermission>,
    /// Client networks.
    pub networks: BTreeSet<String>,
    pub attributes: Attributes,
    /// Attributes of all target groups; `None`: unchanged.
    pub target_group_attributes: Option<Attributes>,
    /// Tags of the load balancer, its listeners and target groups.
    pub tags: Tags,
    /// The cluster's tags among them.
    pub cluster_tags: Tags,
    /// Names of its target groups.
    pub target_groups: TargetGroupNames,
    /// Labels that a Node must have to be a target.
    pub node_labels: BTreeMap<String, String>,
}

/// Fails with the first error, in the order of the in-tree provider.
pub fn desired(service: &Service, settings: &Settings) -> Result<Desired, Invalid> {
    let annotations = Annotations::of(service);
    if annotations.get("extra-security-groups").is_some() {
        let expected =
            "network load balancers take no extra security groups; list them in aws-load-balancer-security-groups";
        return Err(annotations.wrong("extra-security-groups", expected));
    }

    let user_tags = request::user_tags(annotations, &settings.cluster_id)?;
    let target_group_attributes = attributes::of_target_groups(service)?;
    request::refuse_affinity(service)?;

    let listed = ports::checked(service)?;
    let networks = source_ranges::wanted(service)?;
    let cluster_tags = cluster_tags(&settings.cluster_id, settings.legacy_tags);
    let tags = request::tags(service, &user_tags, &cluster_tags);
    let created = |tags: &Tags| creation_tags(tags, settings.cluster_uid.as_deref(), MOST_TAGS);
    let ports = ports::wanted(service, listed, settings, &created(&tags))?;
    request::refuse_fixed_address(service)?;

    let (namespace, name) = namespaced(service);
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    let owner = Owner { namespace, name, uid };
    let own_tags = created(&user_tags.into_iter().chain(cluster_tags.clone()).collect());

    Ok(Desired {
        name: super::super::names::load_balancer(uid),
        internal: annotations.internal(),
        subnets: request::subnets(annotations)?,
        elastic_addresses: untrimmed(annotations, "eip-allocations"),
        private_addresses: untrimmed(annotations, "private-ipv4-addresses"),
        groups: groups(annotations, settings),
        own_group: NewSecurityGroup {
            name: names::security_group(&settings.cluster_name, owner),
            description: names::GROUP_DESCRIPTION.to_owned(),
            vpc_id: settings.vpc_id.clone(),
            tags: own_tags,
        },
        ingress: ingress(&ports, &networks),
        networks,
        attributes: attributes::wanted(annotations)?,
        target_group_attributes,
        target_groups: TargetGroupNames::of(owner),
        node_labels: annotations.pairs("target-node-labels"),
        tags,
        cluster_tags,
        ports,
    })
}

/// The items of a comma list, untrimmed; the empty value is one empty item.
fn untrimmed(annotations: Annotations<'_>, suffix: &str) -> Option<Vec<String>> {
    let items = annotations.get(suffix)?.split(',');
    Some(items.map(str::to_owned).collect())
}

/// Without `NLBSecurityGroupMode=Managed` the annotation has no effect.
fn groups(annotations: Annotations<'_>, settings: &Settings) -> Groups {
    if !settings.nlb_security_groups_managed {
        return Groups::Kept;
    }

    let given = annotations.list("security-groups").unwrap_or_default();
    if given.is_empty() {
        Groups::Managed
    } else {
        Groups::Given(given)
    }
}

/// Ingress of its own group. A security group has no protocol TLS, only TCP.
fn ingress(ports: &[Port], networks: &BTreeSet<String>) -> Vec<IpPermission> {
    let protocol = |port: &Port| {
        if port.listener.protocol == ports::UDP {
            "udp"
        } else {
            "tcp"
        }
    };
    security_groups::ingress_of(ports.iter().map(|port| (protocol(port), port.listener.port)), networks)
}
