//! Invalid specs: of several faults the same one is reported as by the in-tree provider.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::super::settings::Settings;
use super::super::spec::annotations::PREFIX;
use super::super::spec::desired::desired;
use super::fixture::{Fixture, service, world};

/// A fault: a field, or `@` and an annotation without its prefix; a wrong value; the right one, null for none; and what
/// the refusal names.
type Fault = (&'static str, Value, Value, &'static str);

fn set(service: &mut Value, place: &str, value: &Value) {
    let (parent, key) = match place.strip_prefix('@') {
        Some(suffix) => ("/metadata/annotations", format!("{PREFIX}{suffix}")),
        None => {
            let (parent, key) = place.rsplit_once('/').unwrap();
            (parent, key.to_owned())
        }
    };
    let fields = service.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => _ = fields.remove(&key),
        value => _ = fields.insert(key, value.clone()),
    }
}

/// (`ssl-cert` is no fault by itself: it makes one of `backend-protocol`.) All faults are present; each is reported
/// when those before it are fixed.
fn are_told_in_this_order(kind: &str, faults: &[Fault]) {
    let mut now = serde_json::to_value(service()).unwrap();
    now["metadata"]["annotations"] = json!({(format!("{PREFIX}type")): kind});
    faults.iter().for_each(|(place, wrong, ..)| set(&mut now, place, wrong));
    let read = |now: &Value| {
        let service: Service = serde_json::from_value(now.clone()).unwrap();
        desired(&service, &Settings::default()).map_err(|error| error.to_string())
    };
    for (place, _, right, word) in faults {
        let told = read(&now).unwrap_err();
        assert!(told.contains(word), "{word} is next: {told}");
        set(&mut now, place, right);
    }
    assert!(read(&now).is_ok());
}

fn status(hostname: &str) -> Value {
    json!({"loadBalancer": {"ingress": [{"hostname": hostname}]}})
}

fn ports(protocol: &str) -> Value {
    json!([
        {"name": "a", "port": 80, "nodePort": 30080, "protocol": "TCP"},
        {"name": "b", "port": 443, "nodePort": 30443, "protocol": protocol},
    ])
}

#[test]
fn errors_of_classic_load_balancers_are_reported_in_this_order() {
    are_told_in_this_order(
        "",
        &[
            (
                "/status",
                status("a-1.elb.eu-central-1.amazonaws.com"),
                json!(null),
                "the type cannot be changed",
            ),
            (
                "@target-group-attributes",
                json!(""),
                json!(null),
                "target-group-attributes",
            ),
            (
                "/spec/sessionAffinity",
                json!("ClientIP"),
                json!("None"),
                "spec.sessionAffinity",
            ),
            ("/spec/ports", ports("UDP"), ports("TCP"), "mixed protocols"),
            (
                "/spec/loadBalancerSourceRanges",
                json!(["::/0"]),
                json!(null),
                "loadBalancerSourceRanges",
            ),
            ("@backend-protocol", json!("gopher"), json!(null), "backend-protocol"),
            ("@ssl-cert", json!("arn:cert"), json!(null), "spec.loadBalancerIP"),
            (
                "/spec/loadBalancerIP",
                json!("192.0.2.1"),
                json!(null),
                "spec.loadBalancerIP",
            ),
            ("@proxy-protocol", json!("1"), json!(null), "proxy-protocol"),
            (
                "@connection-idle-timeout",
                json!("soon"),
                json!(null),
                "connection-idle-timeout",
            ),
            ("@subnets", json!(","), json!(null), "aws-load-balancer-subnets"),
            ("@healthcheck-interval", json!("4"), json!(null), "healthcheck-interval"),
        ],
    );
}

#[test]
fn errors_of_network_load_balancers_are_reported_in_this_order() {
    are_told_in_this_order(
        "nlb",
        &[
            (
                "/status",
                status("a-1.eu-central-1.elb.amazonaws.com"),
                json!(null),
                "the type cannot be changed",
            ),
            (
                "@extra-security-groups",
                json!(""),
                json!(null),
                "extra-security-groups",
            ),
            (
                "@target-group-attributes",
                json!("color=true"),
                json!(null),
                "target-group-attributes",
            ),
            (
                "/spec/sessionAffinity",
                json!("ClientIP"),
                json!("None"),
                "spec.sessionAffinity",
            ),
            ("/spec/ports", ports("UDP"), ports("TCP"), "mixed protocols"),
            (
                "/spec/loadBalancerSourceRanges",
                json!(["::/0"]),
                json!(null),
                "loadBalancerSourceRanges",
            ),
            (
                "@healthcheck-protocol",
                json!("gopher"),
                json!(null),
                "healthcheck-protocol",
            ),
            (
                "/spec/loadBalancerIP",
                json!("192.0.2.1"),
                json!(null),
                "spec.loadBalancerIP",
            ),
            ("@subnets", json!(","), json!(null), "aws-load-balancer-subnets"),
            ("@access-log-enabled", json!("maybe"), json!(null), "access-log-enabled"),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn tags_that_name_another_cluster_are_refused_before_anything_is_made() {
    let tags = [
        ("team=a,kubernetes.io/cluster/other=owned", "\"other\""),
        ("kubernetes.io/cluster/other=shared", "\"other\""),
        ("KubernetesCluster=other", "\"other\""),
        ("outrigger.dev/cluster-uid=u-1", "outrigger.dev/cluster-uid"),
    ];
    for kind in ["elb", "nlb"] {
        for (tags, named) in tags {
            let fixture = Fixture::new(world());
            fixture.annotate("type", kind);
            fixture.annotate("additional-resource-tags", tags);
            let refused = fixture.sync().await.map(drop).map_err(|error| error.to_string());
            let told = refused.expect_err(tags);
            assert!(
                told.contains("additional-resource-tags") && told.contains(named),
                "{told}"
            );
            let events = fixture.events();
            assert!(
                events
                    .iter()
                    .any(|event| event.starts_with("Warning SyncLoadBalancerFailed") && event.contains(named)),
                "{events:?}"
            );
            assert_eq!(fixture.aws.writes(), [""; 0]);
        }
    }
}

/// With the first one, new Nodes would get the load balancer's group.
#[tokio::test(start_paused = true)]
async fn tags_of_other_controllers_are_not_set_and_an_event_names_them() {
    let reserved = [
        "karpenter.sh/discovery",
        "elbv2.k8s.aws/cluster",
        "service.k8s.aws/stack",
        "eks:cluster-name",
    ];
    for kind in ["elb", "nlb"] {
        let fixture = Fixture::new(world());
        fixture.annotate("type", kind);
        let tags = reserved.map(|key| format!("{key}=victim"));
        fixture.annotate("additional-resource-tags", &format!("team=a,{}", tags.join(",")));
        fixture.settle().await;

        let world = fixture.aws.world();
        let groups = world.security_groups.values().map(|group| &group.tags);
        let classic = world.load_balancers.values().map(|balancer| &balancer.tags);
        let mut tags: Vec<_> = groups.chain(classic).collect();
        let network = &world.network;
        tags.extend(network.load_balancers.values().map(|balancer| &balancer.tags));
        tags.extend(network.target_groups.values().map(|group| &group.tags));
        assert!(
            tags.iter()
                .any(|tags| tags.get("team").is_some_and(|value| value == "a")),
            "{kind}"
        );
        for key in reserved {
            assert!(tags.iter().all(|tags| !tags.contains_key(key)), "{kind}: {key}");
            let events = fixture.events();
            let named = events
                .iter()
                .filter(|event| event.contains("ReservedTagsIgnored") && event.contains(key));
            assert_eq!(named.count(), 1, "{kind}: {events:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tags_of_the_user_never_replace_the_controllers_own() {
    let fixture = Fixture::new(world());
    let tags = "kubernetes.io/cluster/prod=shared,kubernetes.io/service-name=other/thing,team=a";
    fixture.annotate("additional-resource-tags", tags);
    fixture.settle().await;
    let world = fixture.aws.world();
    let of_balancer = &world.load_balancers.values().next().unwrap().tags;
    let of_group = &world.security_groups["sg-new1"].tags;
    assert_eq!(of_balancer["kubernetes.io/service-name"], "default/web");
    for tags in [of_balancer, of_group] {
        assert_eq!(
            (tags["kubernetes.io/cluster/prod"].as_str(), tags["team"].as_str()),
            ("owned", "a")
        );
    }
}
