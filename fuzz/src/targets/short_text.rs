//! Short texts: provider IDs, versions, image references, tags, durations, lists, controller names.
//!
//! Checks: no panic; a value that is written and parsed again is equal; webhook and manager read the same duration.

use std::time::Duration;

use outrigger_manager::args::value;
use outrigger_shared::controller::Controller;
use outrigger_shared::provider_id::{InstanceId, ProviderId};
use outrigger_shared::tags;
use outrigger_shared::version::KubernetesVersion;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    provider_id(text);
    version(text);
    durations(text);
    if let Some(controller) = Controller::parse(text) {
        assert_eq!(Controller::parse(controller.canonical_name()), Some(controller));
    }

    match tags::cluster_of_key(text) {
        Some(id) => assert_eq!(tags::cluster_key(id), text),
        None => assert!(text.is_empty() || tags::cluster_of_key(&tags::cluster_key(text)) == Some(text)),
    }

    if let Ok(elements) = value::list(text) {
        let quoted = |element: &String| format!("\"{}\"", element.replace('"', "\"\""));
        let written: Vec<String> = elements.iter().map(quoted).collect();
        assert_eq!(value::list(&written.join(",")).ok(), Some(elements), "{text:?}");
    }
}

fn provider_id(text: &str) {
    match ProviderId::parse(text) {
        Err(error) => assert_eq!(error.text, text),
        Ok(id @ ProviderId::Fargate(_)) => assert_eq!(id.instance(), None),
        Ok(ProviderId::Instance(id)) => {
            assert_eq!(InstanceId::parse(id.as_str()).as_ref(), Some(&id));
            let again = ProviderId::parse(&id.provider_id("us-west-2a"));
            assert_eq!(again, Ok(ProviderId::Instance(id)), "{text:?}");
        }
    }
}

fn version(text: &str) {
    if let Ok(version) = text.parse::<KubernetesVersion>() {
        assert_eq!(version.to_string().parse(), Ok(version), "{text:?}");
    }
    if let Some(version) = KubernetesVersion::from_image(text) {
        let again = KubernetesVersion::from_image(&format!("registry:5000/x:v{version}@sha256:0"));
        assert_eq!(again, Some(version), "{text:?}");
    }
}

fn durations(text: &str) {
    let read = value::duration(text);
    match &read {
        Ok(duration) => {
            let whole = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
            if whole == *duration {
                let written = value::go_duration(*duration);
                let again = value::duration(&written).ok();
                assert_eq!(again, Some(*duration), "{text:?} is written {written:?}");
            }
        }
        Err(error) => drop(error.to_string()),
    }

    // The webhook's flags take fewer units, and longer durations.
    if let (Ok(webhook), Ok(manager)) = (outrigger_webhook::duration::parse(text), read) {
        assert_eq!(webhook, manager, "{text:?}");
    }
}

pub const WORDS: &[&str] = &[
    "aws:///",
    "aws://",
    "us-west-2a/",
    "i-0123456789abcdef0",
    "fargate-",
    "fargate-ip-10-0-0-1.internal",
    "/",
    "?",
    "#",
    "v1.26.13",
    "1.",
    "+k3s1",
    "-rke2r1",
    "26+",
    "registry:5000/",
    "@sha256:",
    ":",
    "1h",
    "30s",
    "ms",
    "m",
    "1.5",
    ".",
    "ns",
    "µs",
    "9223372036",
    "-0",
    "+",
    ",",
    "\"",
    "\"\"",
    "kubernetes.io/cluster/",
    "service",
    "route-controller",
    "999999h",
    "00000000000000000000001s",
];

pub fn seeds() -> Vec<Vec<u8>> {
    [
        "aws:///us-west-2a/i-0123",
        "aws:///eu-west-1b/1abc-2def/fargate-ip-10-0-0-1",
        "v1.26.13-rke2r1",
        "registry:5000/kube-apiserver:v1.26.13@sha256:0",
        "1h2m3.5s",
        "300ms",
        "a,\"b \"\"c\"\"\",d",
        "kubernetes.io/cluster/prod",
        "service-lb-controller",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
