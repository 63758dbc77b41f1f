//! Whose the load balancer of a Service's name is. The name is made from the Service's UID, which a restored copy of a cluster
//! shares with the original, often together with the cluster ID. What tells the two apart is the UID of the namespace
//! `kube-system` in the tag `outrigger.dev/cluster-uid`.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_shared::tags;

use super::error::{Error, World};
use super::names;
use super::plan::Plan;
use super::settings::Settings;
use super::sync::{Reconciler, uid};
use super::tag_reads::KnownTags;

/// The UID of another cluster that tags name. `None` if they name none, or the UID of this cluster is not known.
#[must_use]
pub fn other_uid<'a>(of_resource: &'a Tags, settings: &Settings) -> Option<&'a str> {
    let own = settings.cluster_uid.as_ref()?;
    let named = of_resource.get(names::CLUSTER_UID_TAG)?;
    (named != own).then_some(named)
}

/// The cluster that a load balancer belongs to, by its UID or its ID, if that is another one. A load balancer without known
/// tags is taken for ours, as v1.37.0 takes all.
#[must_use]
pub fn other_owner<'a>(of_balancer: Option<&'a Tags>, settings: &Settings) -> Option<&'a str> {
    let of_balancer = of_balancer?;
    let pairs = of_balancer.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    other_uid(of_balancer, settings).or_else(|| tags::other_owner(&settings.cluster_id, pairs))
}

/// A load balancer that exists, as far as the question is whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its DNS name, which no other load balancer ever has.
    pub dns_name: String,
    /// The ARN of a network load balancer; `None`: it is a classic one.
    pub arn: Option<String>,
    /// Its tags, if they were read.
    pub tags: Option<Tags>,
}

impl Standing {
    /// A classic load balancer.
    #[must_use]
    pub fn classic(existing: &super::classic::observe::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: None,
            tags: match &existing.tags {
                KnownTags::Read(tags) => Some(tags.clone()),
                KnownTags::Unknown { .. } => None,
            },
        }
    }

    /// The same, with tags that were not read.
    #[must_use]
    pub fn without_tags(self) -> Self {
        Self { tags: None, ..self }
    }

    /// A network load balancer.
    #[must_use]
    pub fn network(existing: &super::network::observe::Existing) -> Self {
        Self {
            dns_name: existing.described.dns_name.clone(),
            arn: Some(existing.described.arn.clone()),
            tags: existing.tags.clone(),
        }
    }
}

impl Reconciler {
    /// Makes sure that a plan changes no load balancer of another cluster. Tags that an observation did not read are read here,
    /// once for each load balancer in the life of the process.
    ///
    /// # Errors
    /// [`World::ForeignLoadBalancer`], and a call that failed other than by a denial: then all are taken for ours.
    pub(super) async fn check_owner(
        &self,
        service: &Service,
        standing: Option<&Standing>,
        plan: &Plan,
    ) -> Result<(), Error> {
        let (Some(standing), Some(own)) = (standing, &self.settings.cluster_uid) else {
            return Ok(());
        };
        let known = self.memories.of(uid(service)).owned.as_ref() == Some(&standing.dns_name);
        if standing.tags.is_none() && (known || plan.steps.is_empty()) {
            return Ok(());
        }

        let name = names::load_balancer(uid(service));
        let tags = match (&standing.tags, &standing.arn) {
            (Some(tags), _) => Some(tags.clone()),
            (None, Some(arn)) => {
                let read = self.aws.elbv2.tags(std::slice::from_ref(arn)).await;
                let read = self.aws.tag_reads.allowed(read)?;
                read.map(|mut tags| tags.remove(arn).unwrap_or_default())
            }
            (None, None) => self.aws.tag_reads.allowed(self.aws.elb.describe_tags(&name).await)?,
        };

        let other = tags.as_ref().and_then(|tags| other_uid(tags, &self.settings));
        if let Some(other) = other {
            return Err(Error::World(World::ForeignLoadBalancer {
                load_balancer: name,
                other: other.to_owned(),
                own: own.clone(),
            }));
        }
        self.remember_owned(service, &standing.dns_name);
        Ok(())
    }

    /// Remembers that a load balancer is this cluster's.
    pub(super) fn remember_owned(&self, service: &Service, dns_name: &str) {
        self.memories
            .update(uid(service), |memory| memory.owned = Some(dns_name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cluster_uid: Option<&str>) -> Settings {
        Settings {
            cluster_id: "prod".into(),
            cluster_uid: cluster_uid.map(str::to_owned),
            ..Settings::default()
        }
    }

    #[test]
    fn a_load_balancer_is_another_clusters_by_its_uid_or_its_id() {
        let tags = |pairs: &[(&str, &str)]| -> Tags {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let own = ("kubernetes.io/cluster/prod", "owned");
        let of_other_id = tags(&[("kubernetes.io/cluster/test", "owned")]);
        let of_other_uid = tags(&[own, (names::CLUSTER_UID_TAG, "u-2")]);
        let of_incumbent = tags(&[own]);
        for known in [Some("u-1"), None] {
            let settings = &settings(known);
            assert_eq!(other_owner(Some(&of_other_id), settings), Some("test"));
            assert_eq!(other_owner(Some(&of_incumbent), settings), None);
            assert_eq!(other_owner(None, settings), None);
            assert_eq!(other_owner(Some(&of_other_uid), settings), known.map(|_| "u-2"));
            assert_eq!(other_uid(&of_other_id, settings), None);
        }
        assert_eq!(other_owner(Some(&of_other_uid), &settings(Some("u-2"))), None);
    }
}
