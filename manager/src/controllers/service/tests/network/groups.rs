//! Security groups of network load balancers.

use outrigger_aws::ec2::SecurityGroup;

use super::super::fixture::Fixture;
use super::*;

const OWN: &str = "sg-new1";

fn bring(fixture: &Fixture, id: &str) {
    let group = SecurityGroup {
        id: id.into(),
        name: Some(id.into()),
        description: None,
        vpc_id: Some("vpc-1".into()),
        ingress: vec![],
        tags: outrigger_aws::Tags::new(),
    };
    fixture.aws.change(|world| {
        world.security_groups.insert(id.into(), group);
    });
}

fn attached(fixture: &Fixture) -> Vec<String> {
    balancer(&fixture.aws.world()).described.security_groups.clone()
}

#[tokio::test(start_paused = true)]
async fn a_managed_group_is_made_first_and_opened_for_clients() {
    let fixture = managed();
    fixture.annotate("ssl-cert", "arn:cert");
    fixture.annotate("ssl-ports", "443");
    fixture.settle().await;
    assert_eq!(actions(&fixture)[..2], ["CreateSecurityGroup", "CreateLoadBalancer/v2"]);
    assert_eq!(attached(&fixture), [OWN]);
    let world = fixture.aws.world();
    let group = &world.security_groups[OWN];
    assert_eq!(
        group.description.as_deref(),
        Some("[k8s] Managed SecurityGroup for LoadBalancer")
    );
    assert!(group.name.as_deref().unwrap().starts_with("k8s-default-web-"));
    assert!(!group.tags.contains_key("kubernetes.io/service-name"));
    let expected = [
        "icmp/3-4<-0.0.0.0/0 ",
        "tcp/443-443<-0.0.0.0/0 ",
        "tcp/80-80<-0.0.0.0/0 ",
    ];
    assert_eq!(rules(&world, OWN), expected, "EC2 knows no protocol TLS");
}

#[tokio::test(start_paused = true)]
async fn client_networks_of_a_managed_group_are_added_before_others_are_revoked() {
    let fixture = settle(managed()).await;
    fixture.change(|service| {
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
    });
    fixture.settle().await;
    let writes = fixture.aws.writes();
    let at = |action: &str| writes.iter().position(|write| write.starts_with(action)).unwrap();
    assert!(at("AuthorizeSecurityGroupIngress sg-new1") < at("RevokeSecurityGroupIngress sg-new1"));
    let expected = [
        "icmp/3-4<-10.0.0.0/8 ",
        "tcp/443-443<-10.0.0.0/8 ",
        "tcp/80-80<-10.0.0.0/8 ",
    ];
    assert_eq!(rules(&fixture.aws.world(), OWN), expected);
}

#[tokio::test(start_paused = true)]
async fn given_groups_replace_the_managed_one_and_back() {
    let fixture = settle(managed()).await;
    bring(&fixture, "sg-mine");
    fixture.annotate("security-groups", " sg-mine ,");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["SetSecurityGroups", "DeleteSecurityGroup"]);
    assert_eq!(attached(&fixture), ["sg-mine"]);
    assert!(!fixture.aws.world().security_groups.contains_key(OWN));
    fixture.aws.forget_calls();
    fixture.annotate("security-groups", " , ");
    fixture.settle().await;
    let expected = [
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "SetSecurityGroups",
    ];
    assert_eq!(actions(&fixture), expected, "the group is open before it is used");
    assert_eq!(attached(&fixture), ["sg-new2"]);
    assert!(fixture.aws.world().security_groups.contains_key("sg-mine"));
    assert!(rules(&fixture.aws.world(), "sg-mine").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_managed_group_that_was_given_to_another_cluster_stays_when_given_groups_replace_it() {
    let fixture = settle(managed()).await;
    bring(&fixture, "sg-mine");
    fixture.aws.change(|world| {
        let own = world.security_groups.get_mut(OWN).unwrap();
        own.tags = [("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())].into();
    });
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["SetSecurityGroups"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_made_again_with_given_groups_leaves_no_other_behind() {
    let fixture = settle(managed()).await;
    bring(&fixture, "sg-mine");
    fixture.aws.change(|world| {
        world.network.load_balancers.clear();
        world.network.listeners.clear();
    });
    fixture.annotate("security-groups", "sg-mine");
    fixture.sync().await.unwrap();
    assert_eq!(attached(&fixture), ["sg-mine"]);
    assert!(!fixture.aws.world().security_groups.contains_key(OWN), "at once");
}

#[tokio::test(start_paused = true)]
async fn without_the_mode_the_annotation_has_no_effect_and_groups_stay() {
    let fixture = settled().await;
    bring(&fixture, "sg-mine");
    fixture.annotate("security-groups", "sg-mine");
    fixture.aws.change(|world| {
        for balancer in world.network.load_balancers.values_mut() {
            balancer.described.security_groups = vec!["sg-byhand".into()];
        }
    });
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_without_groups_never_gets_any() {
    let mut fixture = settled().await;
    fixture.settings.nlb_security_groups_managed = true;
    fixture.restart();
    fixture.settle().await;
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
}

/// An interrupted creation has left it, before the mode was switched off and on again.
#[tokio::test(start_paused = true)]
async fn the_own_group_of_a_load_balancer_without_groups_stays_until_the_deletion() {
    let own = settle(managed()).await.aws.world().security_groups[OWN].clone();
    let mut fixture = settled().await;
    fixture
        .aws
        .change(|world| _ = world.security_groups.insert(OWN.into(), own));
    bring(&fixture, "sg-mine");
    fixture.settings.nlb_security_groups_managed = true;
    fixture.restart();
    fixture.annotate("security-groups", "sg-mine");
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), Vec::<String>::new());
    fixture.change(super::deletion::delete);
    fixture.settle().await;
    assert!(!fixture.aws.world().security_groups.contains_key(OWN));
}

#[tokio::test(start_paused = true)]
async fn a_group_attached_by_hand_gives_way_to_the_managed_one() {
    let fixture = settle(managed()).await;
    bring(&fixture, "sg-byhand");
    fixture.aws.change(|world| {
        for balancer in world.network.load_balancers.values_mut() {
            balancer.described.security_groups.push("sg-byhand".into());
        }
    });
    fixture.annotate("seen", "1");
    fixture.settle().await;
    assert_eq!(actions(&fixture), ["SetSecurityGroups"]);
    assert_eq!(attached(&fixture), [OWN]);
    assert!(fixture.aws.world().security_groups.contains_key("sg-byhand"));
}
