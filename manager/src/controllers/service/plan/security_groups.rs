//! The Nodes' security groups that have to let a load balancer in, and tags of managed groups.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::{InstanceId, Tags};

use super::super::error::Environment;
use super::super::model::NodeInstance;
use super::super::settings::Settings;
use super::super::spec::names;

/// The Nodes' security groups that have to allow traffic from a load balancer.
#[derive(Debug, Default)]
pub struct Open {
    pub groups: BTreeSet<String>,
    /// Whether there are no others: a target that EC2 does not describe may be in any group.
    pub are_all_known: bool,
    /// The reason why they cannot be chosen.
    pub refused: Option<Environment>,
}

/// The groups that are open for these targets, without frozen ones.
pub fn of_targets(
    targets: &BTreeSet<InstanceId>,
    (instances, groups): (&BTreeMap<InstanceId, NodeInstance>, &BTreeMap<String, SecurityGroup>),
    settings: &Settings,
) -> Open {
    match choose(targets, instances, groups, &settings.cluster_id) {
        Ok(mut chosen) => {
            chosen.retain(|id| !settings.is_frozen(id));
            Open {
                groups: chosen,
                are_all_known: targets.iter().all(|target| instances.contains_key(target)),
                refused: None,
            }
        }
        Err(refused) => Open {
            refused: Some(refused),
            ..Open::default()
        },
    }
}

/// The group of each target that has to allow traffic from a load balancer: its only group with the cluster's tag, or
/// its only group if none has one. A target without description or group has none.
/// Fails when an instance has several such groups.
fn choose(
    targets: &BTreeSet<InstanceId>,
    instances: &BTreeMap<InstanceId, NodeInstance>,
    groups: &BTreeMap<String, SecurityGroup>,
    cluster_id: &str,
) -> Result<BTreeSet<String>, Environment> {
    let mut chosen = BTreeSet::new();
    for (id, instance) in instances.iter().filter(|(id, _)| targets.contains(*id)) {
        let described = instance.security_groups.iter().filter_map(|id| groups.get(id));
        let (tagged, untagged): (Vec<&SecurityGroup>, Vec<_>) =
            described.partition(|group| names::in_cluster(&group.tags, cluster_id));
        let (which, usable) = if tagged.is_empty() {
            ("and none with the cluster's tag", untagged)
        } else {
            ("with the cluster's tag", tagged)
        };

        match usable.as_slice() {
            [] => {}
            [only] => {
                chosen.insert(only.id.clone());
            }
            several => {
                let name = |g: &&SecurityGroup| format!("{}({})", g.id, g.name.as_deref().unwrap_or_default());
                return Err(Environment::AmbiguousGroups {
                    instance: id.to_string(),
                    which,
                    groups: several.iter().map(name).collect::<Vec<_>>().join(", "),
                    cluster: cluster_id.to_owned(),
                });
            }
        }
    }

    Ok(chosen)
}

/// Cluster tags that a managed group lacks.
/// Fails when it has one with another value: it belongs to another owner.
pub fn missing_tags(group: &SecurityGroup, of_cluster: &Tags) -> Result<Tags, Environment> {
    let mut missing = Tags::new();
    for (key, expected) in of_cluster {
        match group.tags.get(key).map(String::as_str) {
            None | Some("") => {
                missing.insert(key.clone(), expected.clone());
            }
            Some(value) if value == expected => {}
            Some(value) => {
                return Err(Environment::ForeignGroup {
                    group: group.id.clone(),
                    key: key.clone(),
                    value: value.to_owned(),
                    expected: expected.clone(),
                });
            }
        }
    }

    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: &str, tagged: bool) -> SecurityGroup {
        let tags = if tagged {
            names::cluster_tags("prod", false)
        } else {
            Tags::new()
        };
        SecurityGroup {
            id: id.into(),
            name: Some(format!("n-{id}")),
            description: None,
            vpc_id: None,
            ingress: vec![],
            tags,
        }
    }

    #[test]
    fn each_target_has_one_group_that_lets_the_load_balancer_in() {
        let groups: BTreeMap<String, SecurityGroup> = [
            group("sg-t", true),
            group("sg-t2", true),
            group("sg-u", false),
            group("sg-u2", false),
        ]
        .map(|g| (g.id.clone(), g))
        .into();
        let of = |ids: &[&str]| {
            let security_groups = ids.iter().map(|id| (*id).to_owned()).collect();
            let instance = NodeInstance {
                in_cluster: true,
                living: true,
                addresses: vec![],
                security_groups,
            };
            let instances = BTreeMap::from([(InstanceId::new("i-1"), instance)]);
            choose(&BTreeSet::from([InstanceId::new("i-1")]), &instances, &groups, "prod")
        };
        assert_eq!(of(&["sg-u", "sg-t"]), Ok(BTreeSet::from(["sg-t".to_owned()])));
        assert_eq!(of(&["sg-u"]), Ok(BTreeSet::from(["sg-u".to_owned()])));
        assert_eq!(of(&[]), Ok(BTreeSet::new()));
        let error = of(&["sg-t", "sg-t2", "sg-u"]).unwrap_err().to_string();
        assert!(
            error.contains("i-1") && error.contains("sg-t(n-sg-t), sg-t2(n-sg-t2)"),
            "{error}"
        );
        assert!(of(&["sg-u", "sg-u2"]).is_err());
    }

    #[test]
    fn a_group_of_another_owner_is_refused_and_missing_tags_are_named() {
        let ours = names::cluster_tags("prod", false);
        assert_eq!(missing_tags(&group("sg", false), &ours), Ok(ours.clone()));
        assert_eq!(missing_tags(&group("sg", true), &ours), Ok(Tags::new()));
        let mut shared = group("sg", true);
        shared.tags.insert("kubernetes.io/cluster/prod".into(), "shared".into());
        assert!(matches!(
            missing_tags(&shared, &ours),
            Err(Environment::ForeignGroup { .. })
        ));
    }
}
