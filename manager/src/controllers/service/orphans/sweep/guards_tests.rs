use k8s_openapi::api::core::v1::Service;
use outrigger_aws::Tags;
use outrigger_aws::ec2::SecurityGroup;
use outrigger_aws::elb::LoadBalancer;
use serde_json::json;

use super::super::super::super::spec::names;
use super::*;

fn uid(n: usize) -> String {
    format!("{n:08x}-0000-0000-0000-000000000000")
}

/// A cluster with so many living load balancers, and so many that look left over.
fn cluster(existing: usize, gone: usize) -> (ExistingServices, Inventory, Vec<Finding>) {
    let services: Vec<Service> = (0..existing)
        .map(|n| serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b", "uid": uid(n)}})).unwrap())
        .collect();
    let name = |n: usize| names::load_balancer(&uid(n));
    let balancer = |n: usize| {
        let lb = LoadBalancer {
            name: name(n),
            ..LoadBalancer::default()
        };
        (lb, Tags::new())
    };
    let inventory = Inventory {
        classic: (0..existing + gone).map(balancer).collect(),
        ..Inventory::default()
    };
    let finding = |n: usize| Finding {
        resource: OrphanedResource {
            what: Resource::Classic(name(n)),
            of: "a/b".into(),
        },
        kept: None,
    };
    let found = (existing..existing + gone).map(finding).collect();
    (ExistingServices::of(services.iter()), inventory, found)
}

#[test]
fn load_balancers_without_services_are_compared_with_those_that_have_one() {
    let held = |existing: usize, gone: usize| {
        let (services, inventory, found) = cluster(existing, gone);
        hold(&found, &inventory, &services)
    };
    assert_eq!(held(0, 3), None, "few");
    assert_eq!(held(0, 4), Some(Hold::MassLoss { gone: 4, existing: 0 }));
    assert_eq!(
        held(100, 20),
        Some(Hold::MassLoss {
            gone: 20,
            existing: 100
        })
    );
    assert_eq!(held(100, 19), None);
}

#[test]
fn running_instances_that_had_time_to_join_and_are_no_nodes_hold_everything() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ids = ["i-node", "i-old", "i-new", "i-timeless"].map(InstanceId::new);
    let launched = [Some(1), Some(1_000_000 - 601), Some(1_000_000 - 600), None];
    let running: Vec<_> = ids.iter().cloned().zip(launched).collect();
    let foreign = foreign_instances(&running, &BTreeSet::from([ids[0].clone()]), now);
    assert_eq!(foreign, BTreeSet::from([ids[1].clone(), ids[3].clone()]));

    let (services, mut inventory, found) = cluster(10, 1);
    assert_eq!(hold(&found, &inventory, &services), None);
    inventory.foreign_instances = foreign;
    let told = hold(&found, &inventory, &services).unwrap().to_string();
    assert!(told.contains("i-old, i-timeless"), "{told}");
}

#[test]
fn other_clusters_of_the_id_are_counted_by_their_uid() {
    let group = |uid: &str, cluster: &str| {
        let mut tags = names::cluster_tags(cluster, false);
        tags.insert(names::CLUSTER_UID_TAG.into(), uid.into());
        SecurityGroup {
            id: "sg".into(),
            name: None,
            description: None,
            vpc_id: None,
            ingress: vec![],
            tags,
        }
    };
    let inventory = Inventory {
        groups: vec![
            group("u-1", "prod"),
            group("u-2", "prod"),
            group("u-2", "prod"),
            group("u-3", "other"),
        ],
        ..Inventory::default()
    };
    let mut settings = Settings {
        cluster_id: "prod".into(),
        ..Settings::default()
    };
    assert_eq!(
        other_uids(&inventory, &settings),
        BTreeMap::new(),
        "its own is not known"
    );
    settings.cluster_uid = Some("u-1".into());
    assert_eq!(
        other_uids(&inventory, &settings),
        BTreeMap::from([("u-2".to_owned(), 2)])
    );
}

#[test]
fn only_some_of_many_are_named() {
    let all: BTreeSet<String> = (0..7).map(|n| format!("i-{n}")).collect();
    assert_eq!(some_of(&all), "i-0, i-1, i-2, i-3, i-4, and 2 more");
}
