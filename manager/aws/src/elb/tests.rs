//! Reads of many classic load balancers at once.

use aws_credential_types::Credentials;
use aws_sdk_elasticloadbalancing::config::{BehaviorVersion, Region};

use super::adapter::SdkElb;
use super::*;
use crate::stub::{Asked, no, serve, yes};

async fn elb(answers: Vec<(u16, String)>) -> (SdkElb, Asked) {
    let (url, asked) = serve(answers).await;
    let config = aws_sdk_elasticloadbalancing::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(url)
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .build();
    (
        SdkElb {
            client: aws_sdk_elasticloadbalancing::Client::from_conf(config),
        },
        asked,
    )
}

fn described(names: &[&str], marker: &str) -> (u16, String) {
    let one = |name: &&str| format!("<member><LoadBalancerName>{name}</LoadBalancerName></member>");
    let all: String = names.iter().map(one).collect();
    let descriptions = format!("<LoadBalancerDescriptions>{all}</LoadBalancerDescriptions>{marker}");
    yes("DescribeLoadBalancers", &descriptions)
}

fn names(found: &[LoadBalancer]) -> Vec<&str> {
    found.iter().map(|lb| lb.name.as_str()).collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn many_are_described_in_one_call() {
    let (elb, asked) = elb(vec![described(&["a1", "a2"], "")]).await;
    let found = elb.describe_many(&owned(&["a1", "a2"])).await.unwrap();
    assert_eq!(names(&found), ["a1", "a2"]);
    let asked = asked.lock().unwrap();
    assert!(
        asked[0].contains(&"LoadBalancerNames.member.2=a2".to_owned()),
        "{asked:?}"
    );
}

#[tokio::test]
async fn an_unknown_name_among_many_hides_no_other() {
    let missing = || no("LoadBalancerNotFound");
    let (elb, _) = elb(vec![missing(), missing(), described(&["a2"], "")]).await;
    let found = elb.describe_many(&owned(&["a1", "a2"])).await.unwrap();
    assert_eq!(names(&found), ["a2"]);
}

#[tokio::test]
async fn one_that_is_not_there_is_none_and_a_refusal_is_an_error() {
    let (elb, _) = elb(vec![no("LoadBalancerNotFound"), no("AccessDenied")]).await;
    assert_eq!(elb.describe("a1").await.unwrap(), None);
    assert_eq!(elb.describe("a1").await.unwrap_err().kind(), Kind::AccessDenied);
}

#[tokio::test]
async fn all_are_read_to_the_last_page() {
    let first = described(&["a1"], "<NextMarker>more</NextMarker>");
    let (elb, asked) = elb(vec![first, described(&["a2"], "")]).await;
    assert_eq!(names(&elb.all().await.unwrap()), ["a1", "a2"]);
    assert!(asked.lock().unwrap()[1].contains(&"Marker=more".to_owned()));
}

#[tokio::test]
async fn a_name_may_be_left_out_only_where_one_was_asked_for() {
    let nameless = || {
        yes(
            "DescribeLoadBalancers",
            "<LoadBalancerDescriptions><member/></LoadBalancerDescriptions>",
        )
    };
    let (elb, _) = elb(vec![nameless(), nameless()]).await;
    assert_eq!(
        elb.describe("a1").await.unwrap().map(|lb| lb.name).as_deref(),
        Some("a1")
    );
    let error = elb.describe_many(&owned(&["a1", "a2"])).await.unwrap_err();
    assert!(error.to_string().contains("has no name"), "{error}");
}

#[tokio::test]
async fn tags_of_many_are_told_by_name() {
    let tags = |name: &str| {
        format!(
            "<member><LoadBalancerName>{name}</LoadBalancerName><Tags><member><Key>of</Key><Value>{name}</Value></member>\
             </Tags></member>"
        )
    };
    let both = format!("<TagDescriptions>{}{}</TagDescriptions>", tags("a1"), tags("a2"));
    let (elb, _) = elb(vec![yes("DescribeTags", &both), no("LoadBalancerNotFound")]).await;
    let found = elb.tags_of_many(&owned(&["a1", "a2"])).await.unwrap();
    assert_eq!(found["a2"]["of"], "a2");
    assert_eq!(elb.describe_tags("a3").await.unwrap(), Tags::new());
}

#[tokio::test]
async fn a_certificate_is_set_for_the_listener_of_a_port() {
    let (elb, asked) = elb(vec![
        yes("SetLoadBalancerListenerSSLCertificate", ""),
        no("CertificateNotFound"),
    ])
    .await;
    elb.set_listener_certificate("a1", 443, "arn:two").await.unwrap();
    for part in [
        "Action=SetLoadBalancerListenerSSLCertificate",
        "LoadBalancerName=a1",
        "LoadBalancerPort=443",
        "SSLCertificateId=arn:two",
    ] {
        let asked = asked.lock().unwrap();
        assert!(asked[0].contains(&part.to_owned()), "{part}: {asked:?}");
    }
    let refused = elb.set_listener_certificate("a1", 443, "arn:none").await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Malformed);
}
