//! Node ports that move from one Service to another.

use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use super::super::super::queue::service_state::CONFIRMATION;
use super::super::fixture::{Answer, service};
use super::*;

pub const UID: &str = "b2345678-1234-1234-1234-123456789abc";
pub const CLIENT_OF_NEIGHBOUR: &str = "kubernetes.io/rule/nlb/client=ab2345678123412341234123456789ab";

/// A Service with one port beside the one of the fixture.
pub fn neighbour(node_port: i32) -> Service {
    let mut neighbour = service();
    neighbour.metadata.uid = Some(UID.into());
    neighbour.metadata.name = Some("beside".into());
    neighbour.metadata.annotations = Some(
        [(
            "service.beta.kubernetes.io/aws-load-balancer-type".to_owned(),
            "nlb".to_owned(),
        )]
        .into(),
    );
    let ports = json!([{"name": "http", "port": 80, "nodePort": node_port, "protocol": "TCP"}]);
    neighbour.spec.as_mut().unwrap().ports = serde_json::from_value(ports).unwrap();
    neighbour
}

async fn with_neighbour(node_port: i32) -> Fixture {
    let fixture = fixture();
    fixture.api.neighbours.lock().unwrap().push(neighbour(node_port));
    for _ in 0..4 {
        fixture.sync_neighbour(0).await.unwrap();
        tokio::time::advance(CONFIRMATION).await;
    }
    settle(fixture).await
}

fn set_node_port(service: &mut Service, node_port: i32) {
    service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(node_port);
}

/// The neighbour gets the node port 30080 that the Service gives up by this change.
async fn moved(change: impl Fn(&mut Service)) -> Fixture {
    let fixture = with_neighbour(30180).await;
    fixture.change(&change);
    set_node_port(&mut fixture.api.neighbours.lock().unwrap()[0], 30080);
    fixture.sync_neighbour(0).await.unwrap();
    fixture.sync().await.unwrap();
    fixture
}

pub fn clients(fixture: &Fixture, port: &str) -> Vec<String> {
    let mut rules = rules(&fixture.aws.world(), "sg-node");
    rules.retain(|rule| rule.starts_with(&format!("tcp/{port}")));
    rules
}

/// It has no claim after a restart, since its finalizer cannot be written.
#[tokio::test(start_paused = true)]
async fn a_service_that_goes_on_failing_does_not_keep_the_rules_of_others() {
    let mut fixture = with_neighbour(30180).await;
    fixture.restart();
    fixture.api.neighbours.lock().unwrap()[0].metadata.finalizers = None;
    fixture.change(|service| set_node_port(service, 30280));
    let old = clients(&fixture, "30080");
    assert_eq!(old.len(), 1);

    for failed in 0..4 {
        fixture.sync().await.unwrap();
        assert_eq!(clients(&fixture, "30080"), old, "after {failed} failures");
        fixture.api.answers.lock().unwrap().push(Answer::Refused);
        fixture.sync_neighbour(0).await.unwrap_err();
    }
    fixture.sync().await.unwrap();
    assert_eq!(clients(&fixture, "30080"), Vec::<String>::new());
    assert_eq!(clients(&fixture, "30180").len(), 1, "that of the other one");
}

fn to_cluster_ip(service: &mut Service) {
    service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
}

#[tokio::test(start_paused = true)]
async fn a_node_port_of_a_deleted_load_balancer_keeps_its_client_rule() {
    let fixture = moved(to_cluster_ip).await;
    let expected = [format!("tcp/30080-30080<-0.0.0.0/0 {CLIENT_OF_NEIGHBOUR}")];
    assert_eq!(clients(&fixture, "30080"), expected);
    assert_eq!(clients(&fixture, "30443"), Vec::<String>::new());
    let mtu = rules(&fixture.aws.world(), "sg-node")
        .iter()
        .any(|rule| rule.starts_with("icmp/"));
    assert!(mtu, "path MTU discovery of the neighbour");
}

#[tokio::test(start_paused = true)]
async fn a_node_port_that_a_service_changes_keeps_its_client_rule() {
    let fixture = moved(|service| set_node_port(service, 30280)).await;
    let expected = [format!("tcp/30080-30080<-0.0.0.0/0 {CLIENT_OF_NEIGHBOUR}")];
    assert_eq!(clients(&fixture, "30080"), expected);
    assert_eq!(
        clients(&fixture, "30280"),
        [format!("tcp/30280-30280<-0.0.0.0/0 {CLIENT}")]
    );
    assert_eq!(clients(&fixture, "30180"), Vec::<String>::new());
}

/// A role for v1.37 may not change descriptions.
#[tokio::test(start_paused = true)]
async fn without_the_permission_the_rule_keeps_the_old_description() {
    let fixture = with_neighbour(30180).await;
    fixture.aws.deny("ec2:UpdateSecurityGroupRuleDescriptionsIngress");
    fixture.change(to_cluster_ip);
    set_node_port(&mut fixture.api.neighbours.lock().unwrap()[0], 30080);
    fixture.sync_neighbour(0).await.unwrap();
    fixture.sync().await.unwrap();
    assert_eq!(
        clients(&fixture, "30080"),
        [format!("tcp/30080-30080<-0.0.0.0/0 {CLIENT}")]
    );
}

/// Both change at the same time: the neighbour finds the rule before the Service revokes it.
#[tokio::test(start_paused = true)]
async fn a_node_port_that_moves_during_both_reconciliations_keeps_its_client_rule() {
    let fixture = with_neighbour(30180).await;
    fixture.change(|service| set_node_port(service, 30280));
    set_node_port(&mut fixture.api.neighbours.lock().unwrap()[0], 30080);
    let (first, second) = tokio::join!(fixture.sync(), fixture.sync_neighbour(0));
    first.and(second).unwrap();
    let expected = [format!("tcp/30080-30080<-0.0.0.0/0 {CLIENT_OF_NEIGHBOUR}")];
    assert_eq!(clients(&fixture, "30080"), expected);
}
