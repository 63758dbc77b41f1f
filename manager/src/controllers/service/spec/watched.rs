//! A Service as the cache keeps it. A Service may have a megabyte, and any user of a namespace may create thousands: only what
//! this controller reads is kept, and of that as much as a load balancer can have.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::Service;

use super::super::error::Invalid;
use super::names::FINALIZER;

/// The beginning of all annotations of load balancers, also of those of Kubernetes.
const PREFIX: &str = "service.beta.kubernetes.io/";
/// Bytes of these annotations. The longest list that AWS takes, 50 tags of full length, has 20 KiB.
const ANNOTATIONS: usize = 24 << 10;
/// Networks of clients. A security group has at most 1,000 rules:
/// <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html>.
const SOURCE_RANGES: usize = 1000;
/// More of them than any object has. The finalizer of this controller is kept in any case.
const FINALIZERS: usize = 100;
/// A load balancer has at most 100 listeners, a network one 50:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-limits.html>.
const PORTS: usize = 200;
/// A change of this annotation has everything about the Service read again. Its hash is kept. v1.37 does so at a change of
/// any annotation, and other programs write theirs often.
pub const RECONCILE: &str = "outrigger.dev/reconcile";
/// Marks a Service of which something was left out. No API server takes a key like this.
const LEFT_OUT: &str = "outrigger.dev//left-out";

/// Removes what no controller of Services reads, and what is too much for any load balancer; see [`whole`].
pub fn reduce(service: &mut Service) {
    let spec = service.spec.get_or_insert_default();
    let is_managed = spec.type_.as_deref() == Some("LoadBalancer");
    let mut is_whole = cut(&mut spec.load_balancer_source_ranges, SOURCE_RANGES);
    is_whole &= cut(&mut spec.ports, PORTS);
    // Only a change of them is noticed.
    cut(&mut spec.external_ips, PORTS);
    spec.selector = None;

    let metadata = &mut service.metadata;
    let is_ours = |finalizer: &String| finalizer == FINALIZER;
    let is_managed = is_managed || metadata.finalizers.iter().flatten().any(is_ours);
    if let Some(finalizers) = metadata.finalizers.as_mut().filter(|all| all.len() > FINALIZERS) {
        finalizers.sort_by_key(|finalizer| !is_ours(finalizer));
    }
    is_whole &= cut(&mut metadata.finalizers, FINALIZERS);
    metadata.managed_fields = None;
    metadata.owner_references = None;
    metadata.labels = None;
    let mut all = metadata.annotations.take().filter(|_| is_managed).unwrap_or_default();
    let asked = all.remove(RECONCILE);
    let mut annotations: Vec<_> = all.into_iter().filter(|(key, _)| key.starts_with(PREFIX)).collect();

    // The short ones first: they say of which kind the load balancer is.
    annotations.sort_by_key(|(key, value)| key.len() + value.len());
    let mut bytes = 0;
    let fitting = annotations.iter().take_while(|(key, value)| {
        bytes += key.len() + value.len();
        bytes <= ANNOTATIONS
    });
    let fitting = fitting.count();
    is_whole &= fitting == annotations.len();
    annotations.truncate(fitting);
    if !is_whole {
        annotations.push((LEFT_OUT.to_owned(), String::new()));
    }
    if let Some(asked) = asked {
        let mut hasher = DefaultHasher::new();
        asked.hash(&mut hasher);
        annotations.push((RECONCILE.to_owned(), hasher.finish().to_string()));
    }
    metadata.annotations = Some(annotations.into_iter().collect());

    if let Some(status) = &mut service.status {
        status.conditions = None;
    }
}

/// Cuts a list. Returns whether nothing was cut off.
fn cut<T>(list: &mut Option<Vec<T>>, most: usize) -> bool {
    let is_whole = list.as_ref().is_none_or(|list| list.len() <= most);
    if let Some(list) = list.as_mut().filter(|_| !is_whole) {
        list.truncate(most);
        list.shrink_to_fit();
    }
    is_whole
}

/// Refuses a Service of which something was left out.
pub fn whole(service: &Service) -> Result<(), Invalid> {
    let mut annotations = service.metadata.annotations.iter().flatten();
    match annotations.any(|(key, _)| key == LEFT_OUT) {
        true => Err(Invalid::TooLarge {
            annotations: ANNOTATIONS >> 10,
            ranges: SOURCE_RANGES,
            ports: PORTS,
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reduced(service: Value) -> Service {
        let mut service = serde_json::from_value(service).unwrap();
        reduce(&mut service);
        service
    }

    fn annotations(service: &Service) -> Vec<(&str, usize)> {
        let all = service.metadata.annotations.iter().flatten();
        all.map(|(key, value)| (key.as_str(), value.len())).collect()
    }

    #[test]
    fn only_what_is_read_is_kept() {
        let tags = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags";
        let spec = |kind: &str| json!({"type": kind, "selector": {"app": "a"}, "ports": [{"port": 80}]});
        let asked = |value: &str, finalizers: &[&str]| {
            json!({
                "name": "a", "labels": {"a": "b"}, "finalizers": finalizers,
                "annotations": {"note": "n".repeat(200_000), RECONCILE: value.repeat(50_000), tags: "a=b"},
            })
        };
        let metadata = |finalizers| asked("n", finalizers);
        let managed = reduced(json!({"metadata": metadata(&[]), "spec": spec("LoadBalancer")}));
        let kept = |service: &Service| {
            let all = annotations(service);
            all.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kept(&managed), [RECONCILE, tags]);
        let hash = |value| {
            let service = reduced(json!({"metadata": asked(value, &[]), "spec": spec("LoadBalancer")}));
            service.metadata.annotations.unwrap().remove(RECONCILE).unwrap()
        };
        assert!(hash("n") == hash("n") && hash("n") != hash("m") && hash("n").len() <= 20);
        assert_eq!((managed.metadata.labels.as_ref(), whole(&managed)), (None, Ok(())));
        assert_eq!(managed.spec.unwrap().ports.unwrap().len(), 1);

        let other = reduced(json!({"metadata": metadata(&[]), "spec": spec("ClusterIP")}));
        assert!(annotations(&other).is_empty());
        let former = reduced(json!({"metadata": metadata(&[FINALIZER]), "spec": spec("ClusterIP")}));
        assert_eq!(kept(&former), [RECONCILE, tags], "its load balancer has to be deleted");
    }

    #[test]
    fn a_service_that_is_too_large_for_any_load_balancer_is_refused_and_keeps_its_kind() {
        let kind = "service.beta.kubernetes.io/aws-load-balancer-type";
        let tags = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags";
        let large = json!({"annotations": {tags: "a".repeat(ANNOTATIONS), kind: "nlb"}});
        let of = |metadata: Value, ranges: usize, ports: usize| {
            let spec = json!({
                "type": "LoadBalancer", "loadBalancerSourceRanges": vec!["10.0.0.0/8"; ranges],
                "ports": vec![json!({"port": 80}); ports],
            });
            reduced(json!({"metadata": metadata, "spec": spec}))
        };
        let service = of(large, 1, 1);
        assert_eq!(annotations(&service), [(LEFT_OUT, 0), (kind, 3)]);
        assert!(whole(&service).unwrap_err().to_string().contains("24 KiB"));

        let many: Vec<String> = (0..200)
            .map(|number| format!("example.com/{number}"))
            .chain([FINALIZER.to_owned()])
            .collect();
        let service = of(json!({"finalizers": many}), 1, 1);
        assert!(whole(&service).is_err());
        let kept = service.metadata.finalizers.unwrap();
        assert!(kept.len() == FINALIZERS && kept.contains(&FINALIZER.to_owned()));

        for (ranges, ports, is_whole) in [(1000, 200, true), (1001, 1, false), (1, 201, false)] {
            let service = of(json!({}), ranges, ports);
            assert_eq!(whole(&service).is_ok(), is_whole, "{ranges} {ports}");
            let spec = service.spec.unwrap();
            assert!(spec.ports.unwrap().len() <= PORTS);
            assert!(spec.load_balancer_source_ranges.unwrap().len() <= SOURCE_RANGES);
        }
    }
}
