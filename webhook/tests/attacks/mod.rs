//! Every known attack on the webhook's process at once, from one address, while an API server at another address asks for
//! reviews. The attacks are bounded in number and time, and stay on this machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::server_support::frames::{END_HEADERS, HEADERS, PING, RST_STREAM, SETTINGS, frame, post, preface};
use crate::server_support::process::{Api, Webhook, play};
use crate::server_support::{H2, connect_from, h2, read, request};
use crate::worst_objects::{aliases_in_values, charts_in_a_manifest};
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;

const ATTACKER: &str = "127.0.0.2:0";
const API_SERVER: &str = "127.0.0.3:0";
/// Between connections, and between reviews of a stream: the attackers must not use up this machine themselves.
const PAUSE: Duration = Duration::from_millis(100);

struct Attack {
    address: SocketAddr,
    trusted: String,
}

impl Attack {
    async fn connect(&self) -> Option<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        let source = Some(ATTACKER.parse().unwrap());
        connect_from(source, self.address, &self.trusted, H2).await.ok()
    }

    /// Streams with headers, and a byte of body each `interval`.
    async fn slow_bodies(self: Arc<Self>, interval: Duration) {
        loop {
            let Some(stream) = self.connect().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let Ok((client, connection)) = handshake.await else {
                continue;
            };
            tokio::spawn(connection);
            let mut open = JoinSet::new();
            for _ in 0..100 {
                let mut client = client.clone();
                open.spawn(async move {
                    let bytes = futures::stream::unfold((), move |()| async move {
                        tokio::time::sleep(interval).await;
                        let byte = Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b" ")));
                        Some((byte, ()))
                    });
                    let request = Request::post("https://localhost/mutate")
                        .header("content-type", "application/json")
                        .body(StreamBody::new(bytes.boxed()))
                        .unwrap();
                    let _refused = client.ready().await;
                    let _answer = client.send_request(request).await;
                });
            }
            while open.join_next().await.is_some() {}
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The same review again and again, on ten streams.
    async fn bombs(self: Arc<Self>, review: Bytes) {
        loop {
            let Some(stream) = self.connect().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let client = h2(stream).await;
            let mut open = JoinSet::new();
            for _ in 0..10 {
                let (mut client, review) = (client.clone(), review.clone());
                open.spawn(async move {
                    while let Ok(answer) = client.send_request(request("/mutate", review.clone())).await {
                        let _status = read(answer).await;
                        tokio::time::sleep(PAUSE).await;
                    }
                });
            }
            while open.join_next().await.is_some() {}
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A thousand of the same frames at a time, on a new connection whenever one ends.
    async fn frames(self: Arc<Self>, frames: impl Fn(&mut bytes::BytesMut, u32) + Send + Sync) {
        loop {
            let Some(stream) = self.connect().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (mut reader, mut writer) = tokio::io::split(stream);
            let reading = tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            });
            let mut bytes = preface(&[]);
            let mut number = 0;
            while !reading.is_finished() {
                for _ in 0..1000 {
                    frames(&mut bytes, number);
                    number += 1;
                }
                if writer.write_all(&bytes.split()).await.is_err() {
                    break;
                }
            }
            reading.abort();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn review(uid: &str, object: &Value, resource: &str) -> Bytes {
    let kind = &object["kind"];
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let request = json!({"uid": uid, "operation": "CREATE", "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"], "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource}, "object": object});
    Bytes::from(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string())
}

type Client = hyper::client::conn::http2::SendRequest<http_body_util::Full<Bytes>>;

/// Asks for a review; its answer, and the time that it took.
async fn ask(client: &mut Client, review: Bytes) -> (Value, Duration) {
    let begin = Instant::now();
    let (status, body) = read(client.send_request(request("/mutate", review)).await.unwrap()).await;
    let time = begin.elapsed();
    assert_eq!(status, 200, "{body}");
    (serde_json::from_str(&body).unwrap(), time)
}

/// Times of answers. All of them were right.
#[derive(Debug, Default)]
pub struct Answered {
    pub reviews: Vec<Duration>,
    pub probes: Vec<Duration>,
}

impl Answered {
    /// So many reviews of an API server, each compared with the right answer, and a probe after every tenth.
    async fn of(webhook: &Webhook, client: &mut Client, (honest, right): (&Bytes, &Value), reviews: usize) -> Self {
        let mut answered = Self::default();
        for number in 0..reviews {
            let (answer, time) = ask(client, honest.clone()).await;
            assert_eq!(&answer, right, "review {number}");
            answered.reviews.push(time);

            if number % 10 == 0 {
                let begin = Instant::now();
                let answer = webhook.get("/healthz").await.unwrap();
                answered.probes.push(begin.elapsed());
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answered
    }
}

/// The longest time of the fastest so many percent.
pub fn percentile(times: &[Duration], part: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[(times.len() * part / 100).min(times.len() - 1)]
}

/// Asks for so many reviews without attacks, and for as many while all attacks run.
pub async fn all_at_once(reviews: usize) -> [Answered; 2] {
    let everything = json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
    let api = Api {
        crd: AtomicBool::new(true),
        spec: Some(json!({"clusterID": "prod", "phase": "Prepare",
            "targets": [{"profile": "RancherRKE2", "objectSelector": everything}]})),
        address: Some("127.0.0.3"),
        ..Api::default()
    };
    let webhook = Webhook::start(play(Arc::new(api)).await, &[]);
    webhook.shows("/readyz", "200 OK").await;
    let trusted = webhook.authority.certificate_pem().to_owned();
    let attack = Arc::new(Attack {
        address: webhook.admission,
        trusted: trusted.clone(),
    });

    let source = Some(API_SERVER.parse().unwrap());
    let mut client = h2(connect_from(source, webhook.admission, &trusted, H2).await.unwrap()).await;
    let honest = review("honest", &charts_in_a_manifest(1).value, "clusters");
    let (right, _) = ask(&mut client, honest.clone()).await;
    assert!(
        right["response"]["patch"].is_string(),
        "the object has something to change: {right}"
    );

    let before = Answered::of(&webhook, &mut client, (&honest, &right), reviews).await;
    let mut attacks = JoinSet::new();
    for _ in 0..3 {
        attacks.spawn(Arc::clone(&attack).slow_bodies(Duration::from_secs(3600)));
        attacks.spawn(Arc::clone(&attack).slow_bodies(Duration::from_secs(1)));
    }
    attacks.spawn(Arc::clone(&attack).bombs(review("a", &aliases_in_values(18).value, "helmcharts")));
    attacks.spawn(Arc::clone(&attack).bombs(review("c", &charts_in_a_manifest(80).value, "clusters")));
    attacks.spawn(Arc::clone(&attack).frames(|bytes, number| {
        frame(bytes, HEADERS, END_HEADERS, 2 * number + 1, &post());
        frame(bytes, RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8]);
    }));
    attacks.spawn(Arc::clone(&attack).frames(|bytes, _| frame(bytes, PING, 0, 0, &[0; 8])));
    attacks.spawn(Arc::clone(&attack).frames(|bytes, _| frame(bytes, SETTINGS, 0, 0, &[])));
    tokio::time::sleep(Duration::from_secs(1)).await;

    let during = Answered::of(&webhook, &mut client, (&honest, &right), reviews).await;
    let decided = webhook
        .metric("outrigger_webhook_errors_total{class=\"too_much_work\"}")
        .await;
    assert!(decided > 0.0, "the attacker's reviews were decided as well");
    let flood = "outrigger_webhook_connections_ended_total{port=\"admission\",reason=\"flood\"}";
    assert!(webhook.metric(flood).await > 1.0, "floods were cut");
    assert!(attacks.try_join_next().is_none(), "all attacks went on to the end");

    [before, during]
}
