//! Certificates and protocols of classic listeners change without a gap where AWS permits it. A refusal leaves what
//! serves.

use std::collections::BTreeSet;

use outrigger_aws::elb::Listener;
use outrigger_aws::fake::World;

use super::fixture::{Fixture, LB, world};

const SET: &str = "SetLoadBalancerListenerSSLCertificate";
const CREATE: &str = "CreateLoadBalancerListeners";
const DELETE: &str = "DeleteLoadBalancerListeners";
const POLICY: &str = "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01";
const PROXY: &str = "k8s-proxyprotocol-enabled";

/// A Service whose port 443 has the certificate `arn:one`.
async fn settled(annotations: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::new(world());
    fixture.annotate("ssl-cert", "arn:one");
    fixture.annotate("ssl-ports", "443");
    for (suffix, value) in annotations {
        fixture.annotate(suffix, value);
    }
    fixture.settle().await;
    fixture.aws.forget_calls();
    fixture
}

fn listener(world: &World, port: i32) -> Option<Listener> {
    let listeners = &world.load_balancers[LB].described.listeners;
    listeners.iter().find(|listener| listener.port == port).cloned()
}

fn certificate(fixture: &Fixture) -> Option<String> {
    listener(&fixture.aws.world(), 443)?.certificate
}

fn policies(fixture: &Fixture) -> [BTreeSet<String>; 2] {
    let described = fixture.aws.world().load_balancers[LB].described.clone();
    [
        described.listener_policies[&443].clone(),
        described.backend_policies[&30443].clone(),
    ]
}

fn refuse(fixture: &Fixture, arn: &str) {
    fixture
        .aws
        .change(|world| _ = world.missing_certificates.insert(arn.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_changes_in_place() {
    let fixture = settled(&[]).await;
    fixture.annotate("ssl-cert", "arn:two");
    fixture.sync().await.unwrap();
    assert_eq!(fixture.aws.writes(), [format!("{SET} {LB} 443 arn:two")]);

    fixture.aws.forget_calls();
    fixture.settle().await;
    assert_eq!(fixture.aws.writes(), [""; 0]);
    assert_eq!(certificate(&fixture).as_deref(), Some("arn:two"));
}

/// A wrong ARN in the annotation.
#[tokio::test(start_paused = true)]
async fn a_refused_certificate_leaves_the_old_one() {
    let fixture = settled(&[]).await;
    refuse(&fixture, "arn:two");
    fixture.annotate("ssl-cert", "arn:two");
    for _ in 0..3 {
        fixture.sync().await.unwrap_err();
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    }
    assert_eq!(certificate(&fixture).as_deref(), Some("arn:one"));
    let events = fixture.events().join("\n");
    assert!(events.contains("CertificateNotFound"), "{events}");
    assert!(!fixture.aws.writes().iter().any(|write| write.starts_with(DELETE)));

    fixture.annotate("ssl-cert", "arn:three");
    fixture.settle().await;
    assert_eq!(certificate(&fixture).as_deref(), Some("arn:three"));
}

/// As in v1.37, but with the policies that the listener had.
#[tokio::test(start_paused = true)]
async fn without_the_permission_the_listener_is_created_again_with_its_policies() {
    let fixture = settled(&[
        ("proxy-protocol", "*"),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
    ])
    .await;
    let before = policies(&fixture);
    fixture.aws.deny(&format!("elasticloadbalancing:{SET}"));
    fixture.annotate("ssl-cert", "arn:two");

    let cuts = fixture
        .cuts_of_a_swap(async { _ = fixture.sync().await.unwrap() })
        .await;
    assert_eq!(cuts, [""; 0]);
    let writes = [
        format!("{SET} {LB} 443 arn:two"),
        format!("{DELETE} {LB} 443"),
        format!("{CREATE} {LB} 443"),
        format!("SetLoadBalancerPoliciesOfListener {LB} 443 {POLICY}"),
        format!("SetLoadBalancerPoliciesForBackendServer {LB} 30443 {PROXY}"),
    ];
    assert_eq!(fixture.aws.writes(), writes);
    assert_eq!(policies(&fixture), before);
    assert_eq!(certificate(&fixture).as_deref(), Some("arn:two"));
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_a_refused_certificate_leaves_the_old_one_too() {
    let fixture = settled(&[("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01")]).await;
    let before = fixture.aws.world().load_balancers[LB].described.clone();
    fixture.aws.deny(&format!("elasticloadbalancing:{SET}"));
    refuse(&fixture, "arn:two");
    fixture.annotate("ssl-cert", "arn:two");

    let cuts = fixture
        .cuts_of_a_swap(async { drop(fixture.sync().await.unwrap_err()) })
        .await;
    assert_eq!(cuts, [""; 0]);
    let mut after = fixture.aws.world().load_balancers[LB].described.clone();
    after.listeners.sort();
    assert_eq!(after.listener_policies, before.listener_policies);
    assert_eq!(
        listener(&fixture.aws.world(), 443).unwrap().certificate.as_deref(),
        Some("arn:one")
    );
}

/// AWS changes no protocol of a listener. Port 443 gets TLS, with a certificate that AWS does not find.
#[tokio::test(start_paused = true)]
async fn a_refused_replacement_leaves_the_old_listener() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    fixture.aws.forget_calls();
    let before = listener(&fixture.aws.world(), 443);
    refuse(&fixture, "arn:one");
    fixture.annotate("ssl-cert", "arn:one");
    fixture.annotate("ssl-ports", "443");

    fixture.sync().await.unwrap_err();
    let writes = [
        format!("{DELETE} {LB} 443"),
        format!("{CREATE} {LB} 443"),
        format!("{CREATE} {LB} 443"),
    ];
    assert_eq!(fixture.aws.writes(), writes);
    assert_eq!(listener(&fixture.aws.world(), 443), before);

    fixture.aws.change(|world| world.missing_certificates.clear());
    fixture.settle().await;
    assert_eq!(certificate(&fixture).as_deref(), Some("arn:one"));
}

/// A port that the Service does not request any more stays deleted.
#[tokio::test(start_paused = true)]
async fn only_listeners_of_requested_ports_are_created_again() {
    let fixture = Fixture::new(world());
    fixture.settle().await;
    refuse(&fixture, "arn:one");
    fixture.annotate("ssl-cert", "arn:one");
    fixture.change(|service| drop(service.spec.as_mut().unwrap().ports.as_mut().unwrap().remove(0)));
    fixture.sync().await.unwrap_err();

    let world = fixture.aws.world();
    let ports: Vec<i32> = world.load_balancers[LB]
        .described
        .listeners
        .iter()
        .map(|listener| listener.port)
        .collect();
    assert_eq!(ports, [443]);
}

/// AWS has no action for it, so the oracle permits that the listener is created again.
#[tokio::test(start_paused = true)]
async fn another_protocol_of_the_instances_is_another_listener() {
    let fixture = Fixture::new(world());
    fixture.annotate("ssl-cert", "arn:aws:acm:eu-central-1:1:certificate/x");
    fixture.settle().await;
    fixture.aws.forget_calls();

    fixture.annotate("backend-protocol", "ssl");
    fixture.settle().await;
    let writes = fixture.aws.writes();
    assert!(
        writes
            .iter()
            .any(|write| write.starts_with("CreateLoadBalancerListeners")),
        "{writes:?}"
    );
}
