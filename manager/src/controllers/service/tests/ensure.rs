//! Making and changing load balancers.

use std::time::Duration;

use outrigger_aws::InstanceId;
use outrigger_aws::ec2::Instance;
use outrigger_leader::Permit;
use serde_json::json;

use super::super::action::Next;
use super::super::error::{Error, Invalid};
use super::super::settings::Settings;
use super::super::spec::names;
use super::fixture::{Fixture, HOST, LB, world};

async fn settled() -> Fixture {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_new_service_gets_its_load_balancer_in_these_calls() {
    let fixture = Fixture::new(world());
    fixture.sync().await.unwrap();
    let calls: Vec<&str> = fixture.aws.calls().iter().map(|call| call.action).collect();
    let reads: Vec<&str> = calls
        .into_iter()
        .filter(|action| action.starts_with("Describe"))
        .collect();
    assert_eq!(
        reads,
        [
            "DescribeLoadBalancers",
            "DescribeSecurityGroups",
            "DescribeSubnets",
            "DescribeRouteTables",
            "DescribeAvailabilityZones",
            "DescribeInstances",
            "DescribeSecurityGroups",
        ]
    );
    assert_eq!(
        fixture.aws.writes(),
        [
            format!("CreateSecurityGroup k8s-elb-{LB}"),
            "AuthorizeSecurityGroupIngress sg-new1 tcp/80<-0.0.0.0/0 tcp/443<-0.0.0.0/0 icmp/3<-0.0.0.0/0".into(),
            format!("CreateLoadBalancer {LB}"),
            format!("ConfigureHealthCheck {LB} TCP:30080"),
            "AuthorizeSecurityGroupIngress sg-node -1/<-sg-new1".into(),
            format!("RegisterInstancesWithLoadBalancer {LB} i-1,i-2"),
        ]
    );
    let made = fixture.aws.world().load_balancers[LB].clone();
    assert_eq!(made.tags["kubernetes.io/service-name"], "default/web");
    assert_eq!(made.tags["kubernetes.io/cluster/prod"], "owned");
    assert_eq!(
        made.described.subnets.iter().collect::<Vec<_>>(),
        ["subnet-a", "subnet-b"]
    );
    assert_eq!(
        *fixture.api.patches.lock().unwrap(),
        ["add the finalizer", "write the load balancer's address"]
    );
    assert!(super::super::writer::has_address(&fixture.service(), HOST));
    let reasons: Vec<String> = fixture
        .events()
        .iter()
        .map(|e| e.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(reasons, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_service_costs_no_calls_until_the_resync() {
    let fixture = settled().await;
    let next = fixture.sync().await.unwrap();
    assert!(fixture.aws.calls().is_empty());
    assert!(matches!(next, Next::After(time) if time <= Duration::from_secs(1980)));
    fixture.aws.change(|world| {
        world.load_balancers.get_mut(LB).unwrap().described.listeners.pop();
    });
    tokio::time::advance(Duration::from_secs(1980)).await;
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), [format!("CreateLoadBalancerListeners {LB} 443")]);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_without_effect_costs_reads_and_no_write() {
    let fixture = settled().await;
    let events = fixture.events().len();
    fixture.change(|service| {
        service
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("example.com/beat".into(), "1".into());
    });
    fixture.sync().await.unwrap();
    assert!(!fixture.aws.calls().is_empty());
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    let told = [
        "Normal EnsuringLoadBalancer Ensuring load balancer",
        "Normal EnsuredLoadBalancer Ensured load balancer",
    ];
    assert_eq!(fixture.events()[events..], told, "the user has asked for something");
}

#[tokio::test(start_paused = true)]
async fn a_changed_port_replaces_its_rule_and_its_listener_only() {
    let fixture = settled().await;
    fixture.change(|service| {
        let port = &mut service.spec.as_mut().unwrap().ports.as_mut().unwrap()[1];
        (port.port, port.node_port) = (8443, Some(30844));
    });
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [
            "AuthorizeSecurityGroupIngress sg-new1 tcp/8443<-0.0.0.0/0".to_owned(),
            "RevokeSecurityGroupIngress sg-new1 tcp/443<-0.0.0.0/0".into(),
            format!("DeleteLoadBalancerListeners {LB} 443"),
            format!("CreateLoadBalancerListeners {LB} 8443"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn changed_client_networks_change_rules_only() {
    let fixture = settled().await;
    fixture.change(|service| {
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["10.1.2.3/8".into()]);
    });
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [
            "AuthorizeSecurityGroupIngress sg-new1 icmp/3<-10.0.0.0/8 tcp/80<-10.0.0.0/8 tcp/443<-10.0.0.0/8",
            "RevokeSecurityGroupIngress sg-new1 icmp/3<-0.0.0.0/0 tcp/80<-0.0.0.0/0 tcp/443<-0.0.0.0/0",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn attributes_and_tags_are_set_once_and_unchanged_afterwards() {
    let fixture = settled().await;
    fixture.annotate("connection-idle-timeout", "120");
    fixture.annotate("additional-resource-tags", "team=a");
    fixture.sync().await.unwrap();
    let expected = [
        format!("AddTags {LB} team"),
        format!("ModifyLoadBalancerAttributes {LB}"),
    ];
    assert_eq!(fixture.aws.writes(), expected);
    fixture.annotate("beat", "2");
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tag_with_another_value_is_set_again_except_for_the_cluster_tag_of_a_shared_load_balancer() {
    let cluster = "kubernetes.io/cluster/prod";
    let mut fixture = Fixture::new(world());
    fixture.annotate("additional-resource-tags", "team=a");
    fixture.settle().await;
    fixture.aws.change(|world| {
        let tags = &mut world.load_balancers.get_mut(LB).unwrap().tags;
        tags.insert("team".into(), "b".into());
        tags.insert(cluster.into(), "shared".into());
    });
    fixture.aws.forget_calls();
    fixture.restart();
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), [format!("AddTags {LB} team")]);
    let tags = fixture.aws.world().load_balancers[LB].tags.clone();
    assert_eq!((tags["team"].as_str(), tags[cluster].as_str()), ("a", "shared"));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_created_gets_the_tag_with_the_clusters_uid() {
    let mut fixture = settled().await;
    let tags = |fixture: &Fixture| {
        let world = fixture.aws.world();
        let uid = |tags: &outrigger_aws::Tags| tags.get(names::CLUSTER_UID_TAG).cloned();
        let group = uid(&world.security_groups["sg-new1"].tags);
        (uid(&world.load_balancers[LB].tags), group)
    };
    // Made by v1.37, or without right to read the UID.
    fixture.settings.cluster_uid = Some("u-1".into());
    fixture.restart();
    fixture.settle().await;
    assert_eq!((fixture.aws.writes(), tags(&fixture)), (Vec::new(), (None, None)));

    fixture.aws.change(|world| {
        world.load_balancers.clear();
        world.security_groups.get_mut("sg-node").unwrap().ingress.clear();
        world.security_groups.remove("sg-new1");
        world.groups_made = 0;
    });
    fixture.restart();
    fixture.settle().await;
    let own = Some("u-1".to_owned());
    assert_eq!(tags(&fixture), (own.clone(), own));

    // Somebody takes it off, or sets another one.
    fixture.aws.change(|world| {
        let key = names::CLUSTER_UID_TAG;
        world.load_balancers.get_mut(LB).unwrap().tags.remove(key);
        let group = world.security_groups.get_mut("sg-new1").unwrap();
        group.tags.insert(key.into(), "u-2".into());
    });
    fixture.aws.forget_calls();
    fixture.restart();
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_proxy_protocol_and_a_tls_policy_are_made_once() {
    let fixture = settled().await;
    fixture.annotate("proxy-protocol", "*");
    fixture.annotate("ssl-cert", "arn:aws:acm:eu-central-1:1:certificate/x");
    fixture.annotate("ssl-ports", "443");
    fixture.annotate("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [
            format!("DeleteLoadBalancerListeners {LB} 443"),
            format!("CreateLoadBalancerListeners {LB} 443"),
            format!("CreateLoadBalancerPolicy {LB} k8s-proxyprotocol-enabled"),
            format!("SetLoadBalancerPoliciesForBackendServer {LB} 30080 k8s-proxyprotocol-enabled"),
            format!("SetLoadBalancerPoliciesForBackendServer {LB} 30443 k8s-proxyprotocol-enabled"),
            format!("CreateLoadBalancerPolicy {LB} k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01"),
            format!(
                "SetLoadBalancerPoliciesOfListener {LB} 443 k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01"
            ),
        ]
    );
    fixture.aws.forget_calls();
    fixture.annotate("beat", "2");
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_tls_policy_that_aws_refuses_keeps_neither_tags_nor_attributes_from_being_set() {
    let fixture = settled().await;
    for (suffix, value) in [
        ("ssl-cert", "arn:cert"),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-unknown"),
        ("connection-idle-timeout", "600"),
        ("additional-resource-tags", "team=web"),
        ("healthcheck-interval", "30"),
    ] {
        fixture.annotate(suffix, value);
    }
    let error = outrigger_aws::Error::answered("CreateLoadBalancerPolicy", "PolicyTypeNotFound", "no");
    fixture.aws.fail_next("CreateLoadBalancerPolicy", error);
    fixture.sync().await.unwrap_err();
    let action = |write: &String| write.split(' ').next().unwrap_or_default().to_owned();
    let writes: Vec<String> = fixture.aws.writes().iter().map(action).collect();
    let expected = [
        "DeleteLoadBalancerListeners",
        "CreateLoadBalancerListeners",
        "AddTags",
        "ModifyLoadBalancerAttributes",
        "CreateLoadBalancerPolicy",
    ];
    assert_eq!(writes, expected, "in the order of the in-tree provider");
}

/// EC2 finds the names, and knows wildcards.
#[tokio::test(start_paused = true)]
async fn subnets_are_listed_by_names_with_wildcards_and_one_by_id_and_name() {
    let mut world = world();
    for (at, name) in ["prod-public-a1", "prod-public-b1"].into_iter().enumerate() {
        world.subnets[at].tags.insert("Name".into(), name.into());
    }
    let fixture = Fixture::new(world);
    let subnets = || {
        let world = fixture.aws.world();
        let attached = world.load_balancers.get(LB).map(|lb| lb.described.subnets.clone());
        attached.into_iter().flatten().collect::<Vec<_>>()
    };
    fixture.annotate("subnets", "prod-public-*");
    let error = fixture.sync().await.unwrap_err().to_string();
    assert!(error.contains("lists 1 subnets, but AWS has 2"), "{error}");
    fixture.annotate("subnets", "prod-public-a*");
    fixture.settle().await;
    assert_eq!(subnets(), ["subnet-a"]);
    fixture.annotate("subnets", "subnet-a,prod-public-a1,prod-public-b*");
    fixture.settle().await;
    assert_eq!(subnets(), ["subnet-a", "subnet-b"]);
}

#[tokio::test(start_paused = true)]
async fn targets_come_before_others_go() {
    let fixture = Fixture::new(world());
    for id in ["i-4", "i-5", "i-6"] {
        let instance = super::fixture::instance(id);
        fixture
            .aws
            .change(|world| _ = world.instances.insert(instance.id.clone(), instance));
    }
    ["i-3", "i-4", "i-5"].iter().for_each(|id| fixture.node(id, true));
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture.drop_node("i-1");
    fixture.node("i-6", true);
    fixture.sync().await.unwrap();
    let expected = [
        format!("RegisterInstancesWithLoadBalancer {LB} i-6"),
        format!("DeregisterInstancesFromLoadBalancer {LB} i-1"),
    ];
    assert_eq!(fixture.aws.writes(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_joins_and_a_node_that_is_not_ready_neither_joins_nor_leaves() {
    let fixture = settled().await;
    fixture.node("i-3", false);
    fixture.node("i-1", false);
    fixture.sync().await.unwrap();
    assert!(fixture.aws.calls().is_empty());
    fixture.node("i-3", true);
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [format!("RegisterInstancesWithLoadBalancer {LB} i-3")]
    );
    assert!(
        fixture
            .events()
            .last()
            .unwrap()
            .starts_with("Normal UpdatedLoadBalancer")
    );
}

#[tokio::test(start_paused = true)]
async fn an_update_of_targets_counts_as_in_the_incumbent_and_the_making_of_a_load_balancer_does_not() {
    let fixture = settled().await;
    let counted = || {
        let metrics = &fixture.metrics;
        (metrics.service_syncs.get(), metrics.service_node_sync_errors.get())
    };
    assert_eq!(counted(), (0, 0));
    let denied = outrigger_aws::Error::answered("RegisterInstancesWithLoadBalancer", "AccessDenied", "no");
    fixture.aws.fail_next("RegisterInstancesWithLoadBalancer", denied);
    fixture.node("i-3", true);
    assert!(fixture.sync().await.is_err());
    assert_eq!(counted(), (1, 1));
    fixture.sync().await.unwrap();
    assert_eq!(counted(), (2, 1));
    let text = fixture.metrics.prometheus().unwrap();
    for name in ["nodesync_latency", "update_loadbalancer_host_latency"] {
        let line = format!("service_controller_{name}_seconds_count 1");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mass_loss_of_nodes_must_be_confirmed() {
    let fixture = settled().await;
    fixture.drop_node("i-2");
    assert_eq!(fixture.sync().await.unwrap(), Next::After(Duration::from_secs(5)));
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        Vec::<String>::new(),
        "a look at once does not confirm"
    );
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [format!("DeregisterInstancesFromLoadBalancer {LB} i-2")]
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_cluster_is_never_a_target_and_one_that_ec2_lists_later_is_found_soon() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        world
            .instances
            .insert(InstanceId::new("i-foreign"), Instance::new("i-foreign"));
    });
    fixture.node("i-foreign", true);
    fixture.node("i-late", true);
    let next = fixture.sync().await.unwrap();
    assert_eq!(
        (fixture.aws.writes().len(), next),
        (0, Next::After(Duration::from_secs(5)))
    );
    fixture.aws.change(|world| {
        world
            .instances
            .insert(InstanceId::new("i-late"), super::fixture::instance("i-late"));
    });
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.sync().await.unwrap();
    assert_eq!(
        fixture.aws.writes(),
        [format!("RegisterInstancesWithLoadBalancer {LB} i-late")]
    );
}

/// Gives the load balancer another group than its own.
async fn replace_own_group(fixture: &Fixture) {
    fixture.aws.change(|world| {
        let mut mine = world.security_groups["sg-node"].clone();
        (mine.id, mine.name) = ("sg-mine".into(), Some("mine".into()));
        mine.ingress.clear();
        // It lets the clients in, so that the change of groups may cut none.
        mine.ingress
            .extend(world.security_groups["sg-new1"].ingress.iter().cloned());
        world.security_groups.insert("sg-mine".into(), mine);
    });
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_group_that_was_given_to_another_cluster_stays_when_given_groups_replace_it() {
    let fixture = settled().await;
    fixture.aws.change(|world| {
        let own = world.security_groups.get_mut("sg-new1").unwrap();
        own.tags = [("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())].into();
    });
    replace_own_group(&fixture).await;
    assert!(fixture.aws.world().security_groups.contains_key("sg-new1"));
    assert_eq!(fixture.aws.writes().len(), 2, "{:?}", fixture.aws.writes());
}

#[tokio::test(start_paused = true)]
async fn given_groups_replace_the_own_one_which_is_deleted() {
    let fixture = settled().await;
    replace_own_group(&fixture).await;
    assert_eq!(
        fixture.aws.writes(),
        [
            "AuthorizeSecurityGroupIngress sg-node -1/<-sg-mine".into(),
            format!("ApplySecurityGroupsToLoadBalancer {LB} sg-mine"),
            "RevokeSecurityGroupIngress sg-node -1/<-sg-new1".into(),
            "DeleteSecurityGroup sg-new1".into(),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_node_rules_no_group_of_a_node_is_read_or_written() {
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        disable_security_group_ingress: true,
        ..Settings::default()
    };
    let fixture = Fixture::with(world(), settings, Permit::always());
    fixture.settle().await;
    assert!(fixture.aws.calls().iter().all(|call| !call.about.contains("sg-node")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_clearly_and_nothing_is_touched() {
    let fixture = Fixture::new(world());
    fixture.annotate("target-group-attributes", "");
    for _ in 0..3 {
        let error = fixture.sync().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(Invalid::Annotation { .. })), "{error}");
    }
    assert!(fixture.aws.calls().is_empty());
    assert_eq!(fixture.events().len(), 2, "the same failure is told once");
    assert!(
        fixture.events()[1].contains("SyncLoadBalancerFailed")
            && fixture.events()[1].contains("target-group-attributes")
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_of_the_other_aws_controller_gets_the_finalizer_and_nothing_else() {
    let fixture = Fixture::new(world());
    fixture.annotate("type", "external");
    fixture.sync().await.unwrap();
    fixture.sync().await.unwrap();
    assert!(fixture.aws.calls().is_empty());
    assert_eq!(fixture.events(), ["Normal EnsuringLoadBalancer Ensuring load balancer"]);
    assert_eq!(*fixture.api.patches.lock().unwrap(), ["add the finalizer"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_value_stops_before_any_call_and_names_its_place() {
    let fixture = Fixture::new(world());
    fixture.annotate("connection-idle-timeout", "soon");
    assert!(fixture.sync().await.is_err());
    fixture.change(|service| {
        service.metadata.annotations = None;
        service.spec.as_mut().unwrap().session_affinity = Some("ClientIP".into());
    });
    assert!(fixture.sync().await.is_err());
    assert!(fixture.aws.calls().is_empty());
    let told = fixture.events();
    assert_eq!(told.len(), 4, "each wish is told, and what became of it: {told:?}");
    let prefix = "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: ";
    assert!(told[1].starts_with(prefix) && told[1].contains("aws-load-balancer-connection-idle-timeout"));
    assert!(told[3].starts_with(prefix) && told[3].contains("spec.sessionAffinity"));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_ends_in_the_middle_of_a_plan_stops_before_the_next_write() {
    let (grantor, permit) = Permit::pair();
    grantor.extend(tokio::time::Instant::now() + Duration::from_secs(3600));
    let settings = Settings {
        cluster_id: "prod".into(),
        vpc_id: "vpc-1".into(),
        ..Settings::default()
    };
    let fixture = Fixture::with(world(), settings, permit);
    fixture.aws.on_write("CreateLoadBalancer", move || grantor.revoke());
    let error = fixture.sync().await.unwrap_err();
    assert!(matches!(error, Error::NotLeader(_)), "{error}");
    assert_eq!(fixture.aws.writes().last(), Some(&format!("CreateLoadBalancer {LB}")));
    assert_eq!(fixture.aws.writes().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_listed_subnet_that_is_missing_is_an_error_with_both_numbers() {
    let fixture = Fixture::new(world());
    fixture.change(|service| {
        service.metadata.annotations = serde_json::from_value(json!({
            "service.beta.kubernetes.io/aws-load-balancer-subnets": "subnet-a, Nowhere, subnet-b",
        }))
        .unwrap();
    });
    let error = fixture.sync().await.unwrap_err().to_string();
    assert!(error.contains("lists 3 subnets") && error.contains("has 2"), "{error}");
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}
