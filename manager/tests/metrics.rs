//! The output for scrapers, checked by a parser of our own, and the document that lists the metrics.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::Empty;
use outrigger_aws::{Call, Ending, Kind};
use outrigger_leader::Snapshot;
use outrigger_manager::controllers::node_ipam::IpamMetrics;
use outrigger_manager::controllers::service::orphans::sweep::SweepMetrics;
use outrigger_manager::controllers::tagging::TaggingMetrics;
use outrigger_manager::metrics::{CloudCallLabels, KindLabel, LeaseLabel, Metrics, ReasonLabel, RouteSyncLabels};
use outrigger_serving::{Ended, Refused};
use outrigger_shared::migration::Phase;
use tower::{Layer as _, ServiceExt as _};

/// All metrics, each family with a value at least.
async fn filled() -> Metrics {
    let metrics = Metrics::new();
    metrics
        .routes
        .syncs
        .get_or_create(&RouteSyncLabels {
            outcome: "noop",
            trigger: "periodic",
        })
        .inc();
    metrics.migration.set(&Snapshot {
        name: "prod".into(),
        phase: Some(Phase::Migrate),
        conditions: vec![("Prepared", "True".into())],
        owners: vec![("service-lb-controller".into(), None)],
        unreadable: [("migration", false); 4],
        alarm: false,
    });
    metrics.set_leader("cloud-controller-manager", true);
    metrics.set_running("service", true);
    let name = "odd \"name\",le=\"1.0\" \\ with\nbreak".to_owned();
    metrics.leader_slow_path.get_or_create(&LeaseLabel { name }).inc();
    metrics
        .nodes
        .waiting
        .get_or_create(&ReasonLabel { reason: "absent" })
        .set(2);
    metrics
        .nodes
        .by_kind
        .get_or_create(&KindLabel { kind: "foreign" })
        .set(1);
    let labels = CloudCallLabels {
        operation: "instance_exists",
        result: "success",
    };
    metrics.lifecycle.calls.get_or_create(&labels).inc();
    metrics.nodes.taint_removal_delay.observe(0.3);
    metrics.nodes.taint_removal_delay.observe(5000.0);
    let queue = metrics.queue("Nodes");
    drop(queue.start("a"));
    let observer = metrics.aws_observer();
    let refused = Ending::Refused {
        status: 503,
        code: Some("RequestLimitExceeded"),
        kind: Kind::Throttled,
    };
    for ending in [Ending::Success, refused] {
        observer.ended(&Call {
            service: "EC2",
            operation: "DescribeInstances",
            took: Duration::from_millis(30),
            ending,
        });
    }
    let connections = metrics.connections();
    connections.opened();
    connections.ended(Ended::Peer);
    connections.refused(Refused::HandshakeFailed);
    let server = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Empty::new())) });
    let layer = metrics.rest_client().layer(&Uri::from_static("https://server:6443"));
    for path in ["/", "/api/v1/nodes?watch=true"] {
        let request = Request::get(path).body(()).unwrap();
        layer.layer(server).oneshot(request).await.unwrap();
    }
    metrics
}

#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// One line `name{label="value",…} number`, by the letter of the format.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'),
        "{line}"
    );
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let (mut text, mut letters) = (String::new(), value.char_indices());
            let end = loop {
                match letters.next().unwrap_or_else(|| panic!("a label does not end: {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => text.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        letter @ ('"' | '\\') => letter,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, letter) => text.push(letter),
                }
            };
            labels.push((label.to_owned(), text));
            rest = value[end + 1..].trim_start_matches(',');
        }
        rest = &rest[1..];
    }
    let value = match rest.trim() {
        "+Inf" => f64::INFINITY,
        number => number.parse().unwrap_or_else(|_| panic!("{line}")),
    };
    Sample {
        name: name.to_owned(),
        labels,
        value,
    }
}

struct Family {
    kind: String,
    samples: Vec<Sample>,
}

/// The whole text: each family is described once, before its samples, which follow it without a gap.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let (mut helped, mut current) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            rest.split_once(' ').unwrap().0.clone_into(&mut helped);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "HELP and TYPE go together");
            name.clone_into(&mut current);
            let family = Family {
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "{name} is described twice"
            );
        } else {
            assert!(!line.starts_with('#') && !line.is_empty(), "{line}");
            families.get_mut(&current).unwrap().samples.push(sample(line));
        }
    }
    families
}

#[tokio::test]
async fn the_text_is_prometheus_format() {
    let families = parse(&filled().await.prometheus().unwrap());
    assert!(families.len() > 30, "{}", families.len());
    for (name, family) in &families {
        assert!(!family.samples.is_empty(), "{name}");
        match family.kind.as_str() {
            "histogram" => histogram(name, &family.samples),
            "counter" | "gauge" => assert!(family.samples.iter().all(|sample| sample.name == *name), "{name}"),
            other => panic!("{name} is of type {other}"),
        }
    }
    let odd = &families["leader_election_slowpath_total"].samples[0];
    assert_eq!(odd.labels[0].1, "odd \"name\",le=\"1.0\" \\ with\nbreak");
    assert_eq!(families["cloudprovider_aws_api_request_errors"].kind, "counter");
}

/// Buckets grow, end with +Inf, and that one is the count.
fn histogram(name: &str, samples: &[Sample]) {
    let (mut last, mut bound) = (0.0, 0.0);
    let mut seen = BTreeSet::new();
    for sample in samples {
        let suffix = sample.name.strip_prefix(name).unwrap();
        seen.insert(suffix.to_owned());
        if suffix != "_bucket" {
            (last, bound) = (0.0, 0.0);
            continue;
        }
        let (_, edge) = sample.labels.iter().find(|(label, _)| label == "le").unwrap();
        assert!(!edge.ends_with(".0"), "Go writes no {edge}");
        let edge = if edge == "+Inf" {
            f64::INFINITY
        } else {
            edge.parse().unwrap()
        };
        assert!(edge > bound && sample.value >= last, "{name} {sample:?}");
        (last, bound) = (sample.value, edge);
        if edge.is_infinite() {
            let counted = samples.iter().any(|s| s.name.ends_with("_count") && s.value == last);
            assert!(counted, "{name}: +Inf is not the count");
        }
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["_bucket", "_count", "_sum"],
        "{name}"
    );
    assert!(bound.is_infinite(), "{name}");
}

/// Each metric of the document is served with these labels, and nothing is served that it does not list.
#[tokio::test]
async fn the_document_lists_what_is_served_with_its_labels() {
    let metrics = filled().await;
    let families = parse(&metrics.prometheus().unwrap());
    let mut listed = BTreeSet::new();
    for row in metrics.rows() {
        let family = families
            .get(&row.name())
            .unwrap_or_else(|| panic!("{} has no value", row.name()));
        assert_eq!(family.kind, row.kind(), "{}", row.name());
        let first = family.samples[0].labels.iter().map(|(label, _)| label.as_str());
        let labels: Vec<&str> = first.filter(|label| *label != "le").collect();
        assert_eq!(labels, row.labels(), "{}", row.name());
        listed.insert(row.name());
    }
    assert_eq!(listed, families.keys().cloned().collect());
}

#[test]
fn the_document_of_metrics_equals_the_registry() {
    let path = "../docs/metrics.md";
    let metrics = Metrics::new();
    let _controllers_own = (
        IpamMetrics::registered(&metrics),
        TaggingMetrics::registered(&metrics),
        SweepMetrics::registered(&metrics),
    );
    let wanted = metrics.markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/metrics.md is out of date: run UPDATE_DOCS=1 cargo test -p outrigger-manager --test metrics"
    );
}
