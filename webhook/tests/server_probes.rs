//! Probes of the process while it receives and reviews as much as it may. An unready replica gets no reviews,
//! and a dead one is restarted, so load alone must not cause either.
//!
//! Once with few places for bodies that are held, and once with the default number of reviews, each of which computes a patch.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

mod server_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use serde_json::{Value, json};
use server_support::process::{Api, Webhook, play};
use server_support::{H1, H2, h2, read, request, review, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

/// Bodies that are received at the same time.
const REVIEWS: usize = 16;
/// Callers that send one review after the other meanwhile.
const CALLERS: usize = 8;
const ROUNDS: usize = 50;
/// `--max-concurrent-requests`, and connections and streams that are together more.
const LIMIT: usize = 256;
const CONNECTIONS: usize = 8;
const STREAMS: usize = 40;
const PROBES: [&str; 3] = ["/livez", "/healthz", "/readyz"];

/// A review whose last byte is not sent, so it has one of the places for bodies.
struct Held(#[expect(dead_code, reason = "it stays open")] TlsStream<TcpStream>);

impl Held {
    async fn begin(webhook: &Webhook) -> Self {
        let mut body = review("held");
        let head = format!(
            "POST /mutate/prod HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        body.truncate(body.len() - 1);
        let mut stream = webhook.connect(H1).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server has begun to receive the body.
        let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        within(stream.read_exact(&mut interim)).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        Self(stream)
    }
}

/// Holds all places for bodies.
async fn saturate(webhook: &Webhook) -> Vec<Held> {
    let mut held = Vec::new();
    for _ in 0..REVIEWS {
        held.push(Held::begin(webhook).await);
    }
    held
}

/// Sends reviews until `stop`, and counts them. Each is answered: the slowest body gives way.
async fn call(webhook: Arc<Webhook>, stop: Arc<AtomicBool>, served: Arc<AtomicU64>) {
    let mut client = h2(webhook.connect(H2).await.unwrap()).await;
    while !stop.load(Ordering::SeqCst) {
        let answer = client.send_request(request("/mutate/prod", review("u"))).await.unwrap();
        assert_eq!(read(answer).await.0, 200);
        served.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sends all probes in each of many rounds, and returns those that failed. Each round takes place under load: `served`
/// grows meanwhile.
async fn probe(webhook: &Webhook, served: &AtomicU64) -> Vec<String> {
    let mut failures = Vec::new();
    for round in 0..ROUNDS {
        let before = served.load(Ordering::SeqCst);
        for path in PROBES {
            let answer = within(webhook.get(path)).await;
            if !answer.as_ref().is_some_and(|text| text.starts_with("HTTP/1.1 200")) {
                failures.push(format!("round {round}, {path}: {answer:?}"));
            }
        }

        let others_go_on = async {
            while served.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
        };
        within(others_go_on).await;
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_probe_is_answered_while_all_places_for_bodies_are_held_and_others_are_served() {
    let limit = format!("--max-concurrent-requests={}", 4 * REVIEWS);
    let webhook = Arc::new(Webhook::ready(&[&limit, "--request-timeout=10m"]).await);
    let held = saturate(&webhook).await;
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<JoinHandle<()>> = (0..CALLERS)
        .map(|_| tokio::spawn(call(Arc::clone(&webhook), Arc::clone(&stop), Arc::clone(&served))))
        .collect();

    let failures = probe(&webhook, &served).await;

    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        within(caller).await.unwrap();
    }
    println!(
        "{} probes, {} reviews meanwhile",
        ROUNDS * PROBES.len(),
        served.load(Ordering::SeqCst)
    );
    assert!(failures.is_empty(), "{failures:#?}");
    drop(held);
    assert_eq!(webhook.review().await, 200, "the places are free again");
}

/// A review of an instance to which the migration of [`patching`] adds the tag of the cluster.
fn review_with_a_patch() -> String {
    let tags: Vec<Value> = (0..40)
        .map(|number| json!({"key": format!("team.example.com/key-{number}"), "value": "a value"}))
        .collect();
    let object = json!({"apiVersion": "ec2.services.k8s.aws/v1alpha1", "kind": "Instance", "spec": {"tags": tags},
        "metadata": {"name": "one", "namespace": "a", "labels": {"cluster": "prod"}}});
    let request = json!({"uid": "u", "operation": "CREATE", "name": "one", "namespace": "a",
        "kind": {"group": "ec2.services.k8s.aws", "version": "v1alpha1", "kind": "Instance"},
        "resource": {"group": "ec2.services.k8s.aws", "version": "v1alpha1", "resource": "instances"}, "object": object});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// A webhook with [`LIMIT`], and a migration that selects the instance.
async fn patching() -> Arc<Webhook> {
    let selector = json!({"matchLabels": {"cluster": "prod"}});
    let spec = json!({"clusterID": "prod", "phase": "Prepare",
        "targets": [{"profile": "AwsResources", "objectSelector": selector}]});
    let api = Api {
        crd: AtomicBool::new(true),
        spec: Some(spec),
        ..Api::default()
    };
    let limit = format!("--max-concurrent-requests={LIMIT}");
    let webhook = Webhook::start(play(Arc::new(api)).await, &[&limit]);
    webhook.shows("/readyz", "200 OK").await;
    Arc::new(webhook)
}

/// Answers of the reviews.
#[derive(Default)]
struct Answers {
    patched: AtomicU64,
    shed: AtomicU64,
}

/// Sends one review with a patch after the other until `stop`.
async fn call_for_patches(mut client: SendRequest<Full<Bytes>>, stop: Arc<AtomicBool>, answers: Arc<Answers>) {
    while !stop.load(Ordering::SeqCst) {
        let answer = client.send_request(request("/mutate", review_with_a_patch())).await;
        let (status, body) = read(answer.unwrap()).await;
        match status {
            200 => {
                let review: Value = serde_json::from_str(&body).unwrap();
                assert!(review["response"]["patch"].is_string(), "{review}");
                answers.patched.fetch_add(1, Ordering::SeqCst);
            }
            503 => {
                answers.shed.fetch_add(1, Ordering::SeqCst);
            }
            _ => panic!("{status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_probe_is_answered_while_more_reviews_than_the_limit_compute_patches() {
    let webhook = patching().await;
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Answers::default()));
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = h2(webhook.connect(H2).await.unwrap()).await;
        callers.extend((0..STREAMS).map(|_| {
            let caller = call_for_patches(client.clone(), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(caller)
        }));
    }

    let failures = probe(&webhook, &answers.patched).await;

    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        within(caller).await.unwrap();
    }
    let (patched, shed) = (
        answers.patched.load(Ordering::SeqCst),
        answers.shed.load(Ordering::SeqCst),
    );
    println!(
        "{} probes, {patched} reviews with a patch and {shed} shed meanwhile",
        ROUNDS * PROBES.len()
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(webhook.review().await, 200, "the places are free again");
}
