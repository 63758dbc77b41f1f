//! Callers that send no body, or a byte now and then, keep no other caller out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server_support::{H2, Options, Server, connect_from, read, request, review, within};
use tokio::task::JoinHandle;

/// Another address of this machine than the one of honest callers.
const ATTACKER: &str = "127.0.0.2:0";

type Silent = StreamBody<futures::stream::Pending<Result<Frame<Bytes>, std::io::Error>>>;

/// Sends headers of reviews and no body, on connections of `source`. Returns the tasks that wait for answers.
async fn silent_streams(
    server: &Server,
    source: SocketAddr,
    connections: usize,
    streams: usize,
) -> Vec<JoinHandle<u16>> {
    let mut waiting = Vec::new();
    for _ in 0..connections {
        let stream = connect_from(Some(source), server.address, server.authority.certificate_pem(), H2);
        let io = TokioIo::new(stream.await.unwrap());
        let handshake = hyper::client::conn::http2::handshake::<_, _, Silent>(TokioExecutor::new(), io);
        let (client, connection) = handshake.await.unwrap();
        tokio::spawn(connection);

        for _ in 0..streams {
            let mut client = client.clone();
            let request = Request::post("https://localhost/mutate")
                .header("content-type", "application/json")
                .body(StreamBody::new(futures::stream::pending()))
                .unwrap();
            client.ready().await.unwrap();
            waiting.push(tokio::spawn(async move {
                let answer = client.send_request(request).await;
                answer.map_or(0, |answer| answer.status().as_u16())
            }));
        }
    }

    waiting
}

/// The answers to reviews of an honest caller, by status.
async fn honest(server: &Server, reviews: usize) -> BTreeMap<u16, usize> {
    let client = server.h2().await;
    let answers = join_all((0..reviews).map(|number| {
        let mut client = client.clone();
        async move {
            let answer = client
                .send_request(request("/mutate", review(&number.to_string())))
                .await;
            read(answer.unwrap()).await.0
        }
    }));

    let mut counted = BTreeMap::new();
    for status in within(answers).await {
        *counted.entry(status).or_default() += 1;
    }
    counted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_without_a_body_take_no_slot_from_other_sources() {
    let server = Server::start(Options::default()).await;
    let waiting = silent_streams(&server, ATTACKER.parse().unwrap(), 3, 100).await;
    for _ in 0..5 {
        assert_eq!(honest(&server, 20).await, BTreeMap::from([(200, 20)]));
    }

    // 300 bodies do not fit into the pool of 64: the slowest of their source ended.
    let ended = waiting.iter().filter(|waiting| waiting.is_finished()).count();
    assert!(ended >= 300 - 64, "{ended}");
    server.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_arrive_ends_long_before_the_time_of_a_request() {
    let mut options = Options::default();
    options.requests.time = std::time::Duration::from_secs(3600);
    let server = Server::start(options).await;
    let waiting = silent_streams(&server, ATTACKER.parse().unwrap(), 1, 8).await;
    for status in within(join_all(waiting)).await {
        assert_eq!(status.unwrap(), 408);
    }
    server.assert_serving().await;
    server.finish().await;
}

#[tokio::test]
async fn a_review_in_an_array_is_refused() {
    let server = Server::start(Options::default()).await;
    let object = r#"{"kind":"Node"}"#;
    let kind = r#"{"group":"","version":"v1","kind":"Node"}"#;
    let fields = format!(r#"["u1",{kind},{kind},"","n","","CREATE",false,{object},null]"#);
    for body in [
        format!(r#"["admission.k8s.io/v1","AdmissionReview",{{"uid":"u1","operation":"CREATE","object":{object}}}]"#),
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{fields}}}"#),
    ] {
        let (status, text) = server.post("/mutate", body).await;
        assert_eq!(status, 400, "{text}");
        assert!(text.contains("expected a JSON object"), "{text}");
    }
    server.finish().await;
}
