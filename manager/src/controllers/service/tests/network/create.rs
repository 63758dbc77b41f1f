//! Making network load balancers, and leaving them alone.

use k8s_openapi::api::core::v1::Service;
use outrigger_aws::ec2::Subnet;
use outrigger_aws::elbv2::SubnetMapping;

use super::super::super::error::Error;
use super::super::fixture::LB;
use super::*;

fn hostname(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()?.hostname.clone()
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_is_made_in_the_old_order_and_left_alone_after() {
    let fixture = fixture();
    fixture.settle().await;
    assert_eq!(
        actions(&fixture),
        [
            "CreateLoadBalancer/v2",
            "CreateTargetGroup",
            "RegisterTargets",
            "CreateListener",
            "CreateTargetGroup",
            "RegisterTargets",
            "CreateListener",
            "AuthorizeSecurityGroupIngress",
        ]
    );
    let world = fixture.aws.world();
    let made = balancer(&world);
    assert_eq!(made.described.scheme.as_deref(), Some("internet-facing"));
    assert_eq!(made.described.subnets.len(), 2);
    assert!(made.described.security_groups.is_empty());
    let tag = |tags: &outrigger_aws::Tags, key: &str| tags.get(key).cloned().unwrap_or_default();
    for tags in [&made.tags, &behind(&world, 80).tags, &listeners(&world)[&80].tags] {
        assert_eq!(tag(tags, "kubernetes.io/service-name"), "default/web");
        assert_eq!(tag(tags, "kubernetes.io/cluster/prod"), "owned");
    }
    assert_eq!(targets(&behind(&world, 80)), ["i-1:30080", "i-2:30080"]);
    assert_eq!(targets(&behind(&world, 443)), ["i-1:30443", "i-2:30443"]);
    assert_eq!(hostname(&fixture.service()).unwrap(), made.described.dns_name);
    fixture.aws.forget_calls();
    let mut fixture = fixture;
    fixture.restart();
    fixture.settle().await;
    assert_eq!(
        fixture.aws.writes(),
        Vec::<String>::new(),
        "an unchanged Service costs no write"
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_are_given_to_the_subnets_in_their_order() {
    let fixture = fixture();
    fixture.annotate("eip-allocations", "eip-1,eip-2");
    fixture.settle().await;
    let mapping = |subnet: &str, address: &str| SubnetMapping {
        subnet_id: subnet.into(),
        allocation_id: Some(address.into()),
        private_ipv4_address: None,
    };
    let expected = [mapping("subnet-a", "eip-1"), mapping("subnet-b", "eip-2")];
    assert_eq!(balancer(&fixture.aws.world()).mappings, expected);
}

#[tokio::test(start_paused = true)]
async fn listed_subnets_have_their_addresses_in_the_order_of_the_list() {
    for listed in ["subnet-b, subnet-a", "second, first"] {
        let fixture = fixture();
        fixture.aws.change(|world| {
            for (subnet, name) in world.subnets.iter_mut().zip(["first", "second"]) {
                subnet.tags.insert("Name".into(), name.into());
            }
        });
        fixture.annotate("internal", "true");
        fixture.annotate("subnets", listed);
        fixture.annotate("private-ipv4-addresses", "10.0.1.9,10.0.0.9");
        fixture.settle().await;
        let world = fixture.aws.world();
        let made: Vec<(String, Option<String>)> = balancer(&world)
            .mappings
            .iter()
            .map(|mapping| (mapping.subnet_id.clone(), mapping.private_ipv4_address.clone()))
            .collect();
        let expected = [("subnet-b", "10.0.1.9"), ("subnet-a", "10.0.0.9")];
        assert_eq!(
            made,
            expected.map(|(subnet, ip)| (subnet.to_owned(), Some(ip.to_owned()))),
            "{listed}"
        );
        assert_eq!(balancer(&world).described.scheme.as_deref(), Some("internal"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_created_again_uses_replaces_or_deletes_the_target_groups_of_the_lost_one() {
    let fixture = fixture();
    fixture.change(|service| {
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        let mut more = ports[0].clone();
        (more.name, more.port, more.node_port) = (Some("more".into()), 8080, Some(30090));
        ports.push(more);
    });
    let mut fixture = settle(fixture).await;
    let before = fixture.aws.world();
    fixture.aws.change(|world| {
        let changed = behind(world, 80).described.arn;
        let changed = world.network.target_groups.get_mut(&changed).unwrap();
        changed.described.health_check.interval = 60;
        world.network.load_balancers.clear();
        world.network.listeners.clear();
    });
    fixture.change(|service| _ = service.spec.as_mut().unwrap().ports.as_mut().unwrap().pop());
    fixture.restart();
    fixture.sync().await.unwrap();
    let done = actions(&fixture)
        .into_iter()
        .filter(|action| !action.ends_with("Ingress"));
    let expected = [
        "CreateLoadBalancer/v2",
        "DeleteTargetGroup",
        "CreateTargetGroup",
        "RegisterTargets",
        "CreateListener",
        "CreateListener",
        "DeleteTargetGroup",
    ];
    assert_eq!(done.collect::<Vec<_>>(), expected);
    let world = fixture.aws.world();
    assert_eq!(behind(&world, 80).described.health_check.interval, 30);
    assert_eq!(behind(&world, 443), behind(&before, 443));
    assert_eq!(group_names(&world), ["own", "own"]);
}

#[tokio::test(start_paused = true)]
async fn too_few_addresses_are_refused_with_both_numbers_before_anything_is_made() {
    for (annotation, value) in [("eip-allocations", ""), ("private-ipv4-addresses", "10.0.0.9")] {
        let fixture = managed();
        fixture.annotate(annotation, value);
        let error = fixture.sync().await.unwrap_err().to_string();
        assert!(
            error.contains(annotation) && error.contains("1 addresses for 2"),
            "{error}"
        );
        assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_specs_are_refused_before_any_call() {
    for (annotation, value) in [
        ("extra-security-groups", ""),
        ("target-group-attributes", "x=true"),
        ("healthcheck-protocol", "udp"),
        ("access-log-enabled", "maybe"),
    ] {
        let fixture = fixture();
        fixture.annotate(annotation, value);
        let error = fixture.sync().await.unwrap_err();
        assert!(
            matches!(error, Error::Invalid(_)) && error.to_string().contains(annotation),
            "{error}"
        );
        assert!(fixture.aws.calls().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_of_load_balancer_and_target_groups_are_set_once() {
    let fixture = fixture();
    fixture.annotate("cross-zone-load-balancing-enabled", "true");
    fixture.annotate("target-group-attributes", "preserve_client_ip.enabled=false");
    fixture.settle().await;
    let writes = fixture.aws.writes();
    let of = |action: &str| writes.iter().filter(|write| write.starts_with(action)).count();
    assert_eq!(
        (of("ModifyLoadBalancerAttributes"), of("ModifyTargetGroupAttributes")),
        (1, 2)
    );
    let world = fixture.aws.world();
    assert_eq!(balancer(&world).attributes["load_balancing.cross_zone.enabled"], "true");
    assert_eq!(behind(&world, 80).attributes["preserve_client_ip.enabled"], "false");
}

#[tokio::test(start_paused = true)]
async fn a_port_without_node_port_has_no_listener() {
    let fixture = fixture();
    fixture.change(|service| {
        for port in service.spec.as_mut().unwrap().ports.as_mut().unwrap() {
            port.node_port = None;
        }
    });
    fixture.settle().await;
    let world = fixture.aws.world();
    assert!(listeners(&world).is_empty() && world.network.named(LB).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_status_keeps_its_address_while_aws_says_that_the_load_balancer_is_impaired() {
    let fixture = settled().await;
    let set = |state: &'static str| {
        fixture.aws.change(|world| {
            for balancer in world.network.load_balancers.values_mut() {
                balancer.described.state = Some(state.to_owned());
                balancer.described.dns_name = "another".to_owned();
            }
        });
        fixture.annotate("seen", state);
    };
    let before = hostname(&fixture.service());
    set("active_impaired");
    fixture.sync().await.unwrap();
    assert_eq!(hostname(&fixture.service()), before);
    assert!(before.is_some());
    set("active");
    fixture.sync().await.unwrap();
    assert_eq!(hostname(&fixture.service()).as_deref(), Some("another"));
}

#[tokio::test(start_paused = true)]
async fn an_existing_load_balancer_keeps_its_subnets() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let mut better: Subnet = world.subnets[0].clone();
        better.id = "subnet-0".into();
        better.tags.insert("kubernetes.io/role/elb".into(), "1".into());
        world.subnets.push(better);
    });
    fixture.annotate("internal", "true");
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn load_balancer_target_groups_and_security_group_get_the_tag_with_the_clusters_uid() {
    let mut fixture = managed();
    fixture.settings.cluster_uid = Some("u-1".into());
    fixture.restart();
    let fixture = settle(fixture).await;
    let world = fixture.aws.world();
    let has = |tags: &outrigger_aws::Tags| tags.get("outrigger.dev/cluster-uid").is_some_and(|uid| uid == "u-1");
    assert!(has(&balancer(&world).tags) && has(&world.security_groups["sg-new1"].tags));
    assert!(world.network.target_groups.values().all(|group| has(&group.tags)));
    assert!(!listeners(&world).values().any(|listener| has(&listener.tags)));

    // Existing resources without the tag do not get it.
    fixture.aws.change(|world| {
        for group in world.network.target_groups.values_mut() {
            group.tags.remove("outrigger.dev/cluster-uid");
        }
    });
    let mut fixture = fixture;
    fixture.restart();
    let fixture = settle(fixture).await;
    assert_eq!(actions(&fixture), Vec::<String>::new());
}
