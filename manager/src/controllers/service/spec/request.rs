//! Checks, subnets and tags for either kind of load balancer.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_shared::tags;

use super::super::error::Invalid;
use super::annotations::Annotations;
use super::names;

/// The requested subnets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subnets {
    /// Suitable ones.
    Discover,
    Listed {
        ids: Vec<String>,
        /// By `Name` tag.
        names: Vec<String>,
    },
}

/// Refuses session affinity, which AWS load balancers do not support here.
pub fn refuse_affinity(service: &Service) -> Result<(), Invalid> {
    let affinity = service
        .spec
        .as_ref()
        .and_then(|spec| spec.session_affinity.as_deref())
        .unwrap_or("None");
    if affinity != "None" {
        return Err(Invalid::Field {
            field: "spec.sessionAffinity",
            value: affinity.to_owned(),
            expected: "load balancers of AWS know no affinity here; expected None",
        });
    }

    Ok(())
}

/// Refuses `spec.loadBalancerIP`.
pub fn refuse_fixed_address(service: &Service) -> Result<(), Invalid> {
    let address = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_ip.as_deref())
        .unwrap_or_default();
    if address.is_empty() {
        return Ok(());
    }

    let expected = "AWS chooses the addresses of a load balancer; leave the field empty";
    Err(Invalid::Field {
        field: "spec.loadBalancerIP",
        value: address.to_owned(),
        expected,
    })
}

/// The subnets of annotation `subnets`, or discovery.
/// Fails when the annotation is there and lists none.
pub fn subnets(annotations: Annotations<'_>) -> Result<Subnets, Invalid> {
    let Some(listed) = annotations.list("subnets") else {
        return Ok(Subnets::Discover);
    };
    if listed.is_empty() {
        return Err(annotations.wrong("subnets", "expected a comma list of subnet IDs or Name tags"));
    }

    let (ids, names) = listed.into_iter().partition(|item| item.starts_with("subnet-"));
    Ok(Subnets::Listed { ids, names })
}

/// The tags of annotation `additional-resource-tags`.
/// Fails when a tag names another cluster: both would own the resource, and neither would delete it. Also when it is
/// the tag with the cluster's UID.
pub fn user_tags(annotations: Annotations<'_>, cluster_id: &str) -> Result<BTreeMap<String, String>, Invalid> {
    let pairs = annotations.pairs("additional-resource-tags");
    let wrong = |expected: String| Err(annotations.wrong("additional-resource-tags", expected));
    for (key, value) in &pairs {
        if let Some(other) = tags::cluster_named(key, value).filter(|other| *other != cluster_id) {
            let expected = format!(
                "tag {key}={value} gives the resources to cluster {other:?}, and this one is {cluster_id:?}; remove this tag"
            );
            return wrong(expected);
        }
        if key == names::CLUSTER_UID_TAG {
            let expected = format!("tag {key} is set by the controller; remove it");
            return wrong(expected);
        }
    }

    Ok(pairs)
}

/// The tags of the annotation, without those with a key of the controller.
pub fn annotated_tags(user_tags: BTreeMap<String, String>, cluster_tags: &Tags) -> Tags {
    let own = |key: &String| key == names::SERVICE_TAG || cluster_tags.contains_key(key);
    user_tags.into_iter().filter(|(key, _)| !own(key)).collect()
}

/// Tags of a Service's new resources. The controller's tags override the user's.
pub fn tags(service: &Service, user_tags: &BTreeMap<String, String>, cluster_tags: &Tags) -> Tags {
    let (namespace, name) = names::namespaced(service);
    let mut tags = user_tags.clone();
    tags.insert(names::SERVICE_TAG.to_owned(), format!("{namespace}/{name}"));
    tags.extend(cluster_tags.clone());
    tags
}
