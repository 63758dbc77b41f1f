//! The cluster that owns a load balancer. Its name is made from the Service's UID, which a restored copy of a cluster
//! shares with the original, often together with the cluster ID. The UID of the namespace `kube-system`, in the tag
//! `outrigger.dev/cluster-uid`, tells the two apart. Pure: no IO.

use outrigger_aws::Tags;
use outrigger_shared::tags;

use super::super::settings::Settings;
use super::names;

/// The UID of another cluster in the tags; `None` if there is none, or this cluster's UID is unknown.
pub fn other_uid<'a>(of_resource: &'a Tags, settings: &Settings) -> Option<&'a str> {
    let own = settings.cluster_uid.as_ref()?;
    let named = of_resource.get(names::CLUSTER_UID_TAG)?;
    (named != own).then_some(named)
}

/// The UID or ID of the other cluster that a load balancer belongs to. Without known tags it counts as this cluster's,
/// as in v1.37.0.
pub fn other_owner<'a>(of_balancer: Option<&'a Tags>, settings: &Settings) -> Option<&'a str> {
    let of_balancer = of_balancer?;
    let pairs = of_balancer.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    other_uid(of_balancer, settings).or_else(|| tags::other_owner(&settings.cluster_id, pairs))
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
