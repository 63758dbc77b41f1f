//! Plans the deletion of a load balancer and its resources.

use outrigger_aws::ec2::SecurityGroup;
use outrigger_shared::tags;

use super::super::super::model::classic::OwnedResources;
use super::super::super::settings::Settings;
use super::super::super::spec::owner::{other_owner, other_uid};
use super::super::{Plan, Planned, group_deletion};
use super::Step;

/// Deletes everything. After a crash at any step the plan is made again without the steps that are done.
pub fn plan_deletion(owned_resources: &OwnedResources, settings: &Settings) -> Plan {
    let mut steps = Vec::new();
    if owned_resources.load_balancer && other_owner(owned_resources.tags.as_ref(), settings).is_none() {
        steps.push(Planned::new(
            Step::DeleteLoadBalancer,
            "the Service does not want a load balancer any more",
        ));
    }

    if let Some(group) = owned_resources
        .own_group
        .as_ref()
        .filter(|group| is_ours(group, &owned_resources.listed, settings))
    {
        let reason = "it was made for the load balancer";
        steps.extend(group_deletion(
            &group.id,
            &owned_resources.referencing,
            settings,
            reason,
        ));
    }

    Plan {
        steps,
        ..Plan::default()
    }
}

/// Whether a group with a name of ours may be deleted: not the configured one, not listed by the Service, and not
/// shared or another cluster's. A group without cluster tags is left by an interrupted creation.
pub fn is_ours(group: &SecurityGroup, listed: &[String], settings: &Settings) -> bool {
    if settings.is_frozen(&group.id) || listed.contains(&group.id) || other_uid(&group.tags, settings).is_some() {
        return false;
    }
    let pairs = || group.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let untagged = !pairs().any(|(key, _)| tags::cluster_of_key(key).is_some() || key == tags::LEGACY_CLUSTER);
    untagged || tags::owned_by(&settings.cluster_id, pairs())
}

#[cfg(test)]
mod tests {
    use super::super::super::super::spec::names;
    use super::super::super::security_groups::all_from;
    use outrigger_aws::Tags;

    use super::*;

    fn group(id: &str, pairs: &[(&str, &str)]) -> SecurityGroup {
        let tags = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        SecurityGroup {
            id: id.into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: vec![],
            tags,
        }
    }

    fn settings() -> Settings {
        Settings {
            cluster_id: "prod".into(),
            ..Settings::default()
        }
    }

    fn actions(owned_resources: &OwnedResources, settings: &Settings) -> Vec<&'static str> {
        plan_deletion(owned_resources, settings)
            .steps
            .iter()
            .map(|planned| planned.step.action())
            .collect()
    }

    #[test]
    fn the_load_balancer_is_deleted_first_and_its_group_last() {
        let mut node = group("sg-node", &[]);
        node.ingress = vec![all_from("sg-own")];
        let own = Some(SecurityGroup {
            tags: names::cluster_tags("prod", false),
            ..group("sg-own", &[])
        });
        let owned_resources = OwnedResources {
            load_balancer: true,
            tags: Some(names::cluster_tags("prod", false)),
            own_group: own,
            referencing: vec![node],
            listed: vec![],
        };
        assert_eq!(
            actions(&owned_resources, &settings()),
            [
                "DeleteLoadBalancer",
                "RevokeSecurityGroupIngress",
                "DeleteSecurityGroup"
            ]
        );
        let is_unmanaged = Settings {
            disable_security_group_ingress: true,
            ..settings()
        };
        assert_eq!(
            actions(&owned_resources, &is_unmanaged),
            ["DeleteLoadBalancer"],
            "a rule that is not ours to touch names the group"
        );
        let unnamed = OwnedResources {
            referencing: vec![],
            ..owned_resources
        };
        assert_eq!(
            actions(&unnamed, &is_unmanaged),
            ["DeleteLoadBalancer", "DeleteSecurityGroup"]
        );
        assert_eq!(actions(&OwnedResources::default(), &settings()), Vec::<&str>::new());
    }

    #[test]
    fn a_load_balancer_of_another_cluster_stays() {
        let of = |tags: Option<Tags>| {
            let owned_resources = OwnedResources {
                load_balancer: true,
                tags,
                ..OwnedResources::default()
            };
            actions(&owned_resources, &settings())
        };
        let (own, other) = (names::cluster_tags("prod", false), names::cluster_tags("other", true));
        let both = own.clone().into_iter().chain(other.clone()).collect();
        let deleted = ["DeleteLoadBalancer"];
        assert_eq!(of(Some(own)), deleted);
        assert_eq!(of(Some(other)), [""; 0]);
        assert_eq!(of(Some(both)), deleted, "a user's tag names the other one");
        assert_eq!(of(Some(Tags::new())), deleted, "somebody took the tags off");
        assert_eq!(of(None), deleted, "as v1.37.0");
    }

    #[test]
    fn groups_that_are_shared_listed_configured_or_of_another_cluster_stay() {
        let key = "kubernetes.io/cluster/prod";
        let of = |own: SecurityGroup, listed: &[&str], settings: &Settings| {
            let listed = listed.iter().map(|id| (*id).to_owned()).collect();
            actions(
                &OwnedResources {
                    own_group: Some(own),
                    listed,
                    ..OwnedResources::default()
                },
                settings,
            )
            .len()
        };
        assert_eq!(of(group("sg", &[(key, "owned")]), &[], &settings()), 1);
        assert_eq!(
            of(group("sg", &[("team", "a")]), &[], &settings()),
            1,
            "cut off before it was tagged"
        );
        assert_eq!(of(group("sg", &[(key, "shared")]), &[], &settings()), 0);
        assert_eq!(
            of(
                group("sg", &[("kubernetes.io/cluster/other", "owned")]),
                &[],
                &settings()
            ),
            0
        );
        assert_eq!(of(group("sg", &[(key, "owned")]), &["sg"], &settings()), 0);
        let configured = Settings {
            elb_security_group: Some("sg".into()),
            ..settings()
        };
        assert_eq!(of(group("sg", &[(key, "owned")]), &[], &configured), 0);
    }
}
