//! Invalid requests to the admission port, and the server's responses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_serving::Drained;
use outrigger_webhook::health::Health;
use outrigger_webhook::view::Index;
use serde_json::{Value, json};
use server_support::{H1, H2, Options, Server, read, request, review, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SHORT: Duration = Duration::from_millis(300);
/// Longer than a test waits.
/// Sent by a server when it begins to receive a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const NEVER: Duration = Duration::from_secs(60);

#[tokio::test]
async fn bodies_that_are_no_review_get_400_and_say_why() {
    let server = Server::start(Options::default()).await;
    let whole = review("u");
    let mut not_utf8 = whole.clone().into_bytes();
    not_utf8[40] = 0xff;
    let bodies: Vec<(Vec<u8>, &str)> = vec![
        (b"garbage".to_vec(), "not an AdmissionReview"),
        (Vec::new(), "not an AdmissionReview"),
        (whole.as_bytes()[..whole.len() / 2].to_vec(), "EOF"),
        (not_utf8, "not an AdmissionReview"),
        (br#"{"apiVersion":"v1","kind":"Pod"}"#.to_vec(), "Pod"),
        (
            whole
                .replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
                .into_bytes(),
            "v1beta1",
        ),
        (whole.replace(r#""uid":"u""#, r#""uid":"""#).into_bytes(), "uid"),
        (b"[".repeat(1_000_000), "not an AdmissionReview"),
    ];
    for (body, hint) in bodies {
        let (status, text) = server.post("/mutate", body).await;
        assert_eq!(status, 400, "{text}");
        assert!(text.contains(hint), "{text} lacks {hint}");
        server.assert_serving().await;
    }
    let text = server.reviewer.metrics.text().unwrap();
    assert!(
        text.contains(r#"outrigger_webhook_errors_total{class="not_json"} 5"#),
        "{text}"
    );
    assert_eq!(server.finish().await, Drained::Clean);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_passes_unchanged_with_its_uid_and_a_warning() {
    let server = Server::start(Options::default()).await;
    let deep = format!("{}{}", r#"{"a":"#.repeat(100), "1") + &"}".repeat(100);
    for object in [r#"{"a":1,"a":2}"#, "null", "[1]", deep.as_str()] {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
                "request":{{"uid":"known","operation":"CREATE","object":{object}}}}}"#
        );
        let (status, text) = server.post("/mutate/prod", body).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &answer["response"]["uid"], &answer["response"]["allowed"]),
            (200, &json!("known"), &json!(true))
        );
        assert!(answer["response"]["patch"].is_null());
        assert!(
            answer["response"]["warnings"][0]
                .as_str()
                .unwrap()
                .contains("changed nothing"),
            "{text}"
        );
    }
    assert_eq!(server.finish().await, Drained::Clean);
}

#[tokio::test]
async fn paths_methods_and_content_types_are_told_apart() {
    let server = Server::start(Options::default()).await;
    let mut client = server.h2().await;
    for (method, path, kind, expected) in [
        ("POST", "/mutate?timeout=3s", "application/json; charset=utf-8", 200),
        ("POST", "/mutate/prod?timeout=3s", "application/json", 200),
        ("POST", "/mutate", "text/plain", 415),
        ("GET", "/mutate", "application/json", 405),
        ("POST", "/mutate/a/b", "application/json", 404),
        ("POST", "/", "application/json", 404),
        ("GET", "/metrics", "application/json", 404),
    ] {
        let mut request = request(path, review("u"));
        *request.method_mut() = method.parse().unwrap();
        request.headers_mut().insert("content-type", kind.parse().unwrap());
        let (status, text) = read(client.send_request(request).await.unwrap()).await;
        assert_eq!(status, expected, "{method} {path} {kind}: {text}");
    }
}

#[tokio::test]
async fn nothing_is_decided_before_the_migrations_are_known() {
    let server = Server::start(Options {
        migrations: None,
        ..Options::default()
    })
    .await;
    let (status, text) = server.post("/mutate", review("u")).await;
    assert_eq!(status, 503);
    assert!(text.contains("not known yet"), "{text}");
}

#[tokio::test]
async fn an_announced_body_of_100_mib_is_refused_before_it_is_sent() {
    let server = Server::start(Options::default()).await;
    let mut stream = server.connect(H1).await.unwrap();
    let head = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 104857600\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("larger than 7340032 bytes"), "{answer}");
    server.assert_serving().await;
}

#[tokio::test]
async fn an_endless_chunked_body_is_refused_at_the_limit_and_not_read_on() {
    let server = Server::start(Options::default()).await;
    let (mut reader, mut writer) = tokio::io::split(server.connect(H1).await.unwrap());
    let sender = tokio::spawn(async move {
        let head = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 100 * 1024 * 1024 && writer.write_all(&chunk).await.is_ok() {
            sent += 0x10000;
        }
        sent
    });
    let mut answer = Vec::new();
    // The server closes while we still send, so the end may be a reset; what came before it counts.
    let _ = within(reader.read_to_end(&mut answer)).await;
    let sent = within(sender).await.unwrap();
    assert!(sent < 60 * 1024 * 1024, "the server read on: {sent}");
    assert!(
        String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 413"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    server.assert_serving().await;
}

#[tokio::test]
async fn a_long_body_over_http_two_is_refused_and_its_connection_serves_on() {
    let server = Server::start(Options::default()).await;
    let mut client = server.h2().await;
    let (status, _) = read(
        within(client.send_request(request("/mutate", vec![b' '; 100 * 1024 * 1024])))
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(status, 413);
    let (status, _) = read(
        within(client.send_request(request("/mutate", review("u"))))
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(status, 200);
}

/// Opens a connection, sends `bytes`, and tells how long the server keeps it open.
async fn time_until_closed(server: &Server, protocol: &[u8], bytes: &[u8]) -> Duration {
    let begin = Instant::now();
    let mut stream = server.connect(protocol).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    let mut rest = Vec::new();
    let _ = within(stream.read_to_end(&mut rest)).await;
    begin.elapsed()
}

#[tokio::test]
async fn clients_that_send_headers_slowly_or_nothing_at_all_are_cut() {
    let mut options = Options::default();
    options.connections.header = SHORT;
    options.connections.drain = SHORT;
    let server = Server::start(options).await;
    for (protocol, bytes) in [
        (H1, b"POST /mutate HTTP/1.1\r\nhost: local".as_slice()),
        (H1, b"".as_slice()),
        (H2, b"".as_slice()),
        (H2, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice()),
    ] {
        // At the latest before the limit of an idle connection.
        let open = time_until_closed(&server, protocol, bytes).await;
        assert!(open >= SHORT / 2, "{protocol:?} {bytes:?}: {open:?}");
    }
    server.assert_serving().await;
}

#[tokio::test]
async fn a_client_that_never_begins_its_handshake_is_cut_and_counted() {
    let mut options = Options::default();
    options.connections.handshake = SHORT;
    let server = Server::start(options).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut rest = Vec::new();
    within(stream.read_to_end(&mut rest)).await.unwrap();
    assert!(
        server
            .reviewer
            .metrics
            .text()
            .unwrap()
            .contains(r#"port="admission",reason="handshake_timeout"} 1"#)
    );
    server.assert_serving().await;
}

#[tokio::test]
async fn a_body_that_stalls_is_answered_within_the_callers_time() {
    let server = Server::start(Options::default()).await;
    let mut stream = server.connect(H1).await.unwrap();
    let head = "POST /mutate?timeout=200ms HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let (begin, usual) = (Instant::now(), Options::default().requests.time);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(begin.elapsed() < usual, "{:?}", begin.elapsed());
    assert!(
        answer.starts_with("HTTP/1.1 408") || answer.starts_with("HTTP/1.1 504"),
        "{answer}"
    );
}

#[tokio::test]
async fn one_connection_past_the_cap_is_closed_at_once_and_a_freed_place_is_given_again() {
    let mut options = Options::default();
    options.connections.connections = 2;
    options.connections.handshake = NEVER;
    let server = Server::start(options).await;
    let (first, _second) = (server.h2().await, server.h2().await);
    assert!(within(server.connect(H2)).await.is_err());
    drop(first);
    within(async {
        while server.connect(H2).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A request of which half the body has been sent. The server receives the rest: it has sent 100 Continue.
async fn half_sent(server: &Server, uid: &str) -> (tokio_rustls::client::TlsStream<TcpStream>, Vec<u8>) {
    let body = review(uid).into_bytes();
    let head = format!(
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = server.connect(H1).await.unwrap();
    let (now, later) = body.split_at(body.len() / 2);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = vec![0; CONTINUE.len()];
    within(stream.read_exact(&mut interim)).await.unwrap();
    assert_eq!(interim, CONTINUE);
    stream.write_all(now).await.unwrap();
    stream.flush().await.unwrap();
    (stream, later.to_vec())
}

async fn finish(mut stream: tokio_rustls::client::TlsStream<TcpStream>, later: &[u8]) -> String {
    stream.write_all(later).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

fn no_slots() -> Options {
    let mut options = Options::default();
    options.requests.requests = 0;
    options
}

#[tokio::test]
async fn past_its_limit_the_server_answers_503_at_once_instead_of_queueing() {
    let server = Server::start(no_slots()).await;
    let (status, text) = within(server.post("/mutate", review("second"))).await;
    assert_eq!(status, 503, "{text}");
}

/// A caller may be slow without harm to others.
#[tokio::test]
async fn a_body_that_is_not_complete_takes_no_slot() {
    let mut options = Options::default();
    options.requests.requests = 1;
    let server = Server::start(options).await;
    let (stream, later) = half_sent(&server, "first").await;
    server.assert_serving().await;
    assert!(finish(stream, &later).await.contains("first"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_many_long_bodies_does_not_end_the_connection_that_others_share() {
    let server = Server::start(no_slots()).await;
    let client = server.h2().await;
    let long = bytes::Bytes::from(vec![b' '; 100 * 1024]);
    within(async {
        for _ in 0..20 {
            let many = (0..100).map(|_| {
                let (mut client, long) = (client.clone(), long.clone());
                async move {
                    read(client.send_request(request("/mutate", long)).await.unwrap())
                        .await
                        .0
                }
            });
            let refused = futures::future::join_all(many).await;
            assert!(refused.iter().all(|status| *status == 503), "{refused:?}");
        }
    })
    .await;
    let mut client = client;
    let answer = client.send_request(request("/mutate", review("alive"))).await.unwrap();
    assert_eq!(read(answer).await.0, 503);
}

#[tokio::test]
async fn a_request_in_flight_is_answered_while_the_server_drains_and_new_ones_are_not_taken() {
    let mut options = Options::default();
    options.connections.drain = Duration::from_secs(15);
    let server = Server::start(options).await;
    let idle = server.h2().await;
    let (stream, later) = half_sent(&server, "in-flight").await;
    server.stop.cancel();
    within(async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let answer = finish(stream, &later).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("in-flight"),
        "{answer}"
    );
    assert_eq!(within(server.task).await.unwrap(), Drained::Clean);
    drop(idle);
}

#[tokio::test]
async fn a_request_that_outlives_the_drain_is_cut() {
    let mut options = Options::default();
    options.connections.drain = SHORT;
    let server = Server::start(options).await;
    let (stream, _later) = half_sent(&server, "late").await;
    assert_eq!(server.finish().await, Drained::Cut);
    drop(stream);
}

#[tokio::test]
async fn an_old_connection_is_ended_politely_and_a_new_one_serves() {
    let mut options = Options::default();
    options.connections.age = SHORT;
    let server = Server::start(options).await;
    // On a busy machine a connection may be old before its first request.
    let client = within(async {
        loop {
            let mut client = server.h2().await;
            if let Ok(answer) = client.send_request(request("/mutate", review("u"))).await {
                assert_eq!(answer.status(), 200);
                return client;
            }
        }
    })
    .await;
    within(async {
        while !client.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    server.assert_serving().await;
}

#[tokio::test]
async fn over_http_one_an_old_connection_says_close_with_the_answer_that_is_under_way() {
    let mut options = Options::default();
    options.connections.age = SHORT;
    let server = Server::start(options).await;
    let body = review("u");
    let head = format!(
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = server.connect(H1).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(2 * SHORT).await;
    let answer = finish(stream, body.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    let ended = r#"outrigger_webhook_connections_ended_total{port="admission",reason="age"} 1"#;
    within(async {
        while !server.reviewer.metrics.text().unwrap().contains(ended) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// API servers keep their connections for 90 s and repeat no POST.
#[tokio::test]
async fn over_http_one_an_idle_connection_is_kept_for_longer_than_headers_may_take() {
    let mut options = Options::default();
    options.connections.header = SHORT;
    let server = Server::start(options).await;
    let body = review("u");
    let request = format!(
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = server.connect(H1).await.unwrap();
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 4096];
        let length = within(stream.read(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        tokio::time::sleep(2 * SHORT).await;
    }
}

/// A caller may send a request at the moment in which the connection gets old, and repeats no POST.
#[tokio::test]
async fn over_http_one_an_old_idle_connection_answers_once_more_and_says_close() {
    let mut options = Options::default();
    options.connections.age = SHORT;
    let server = Server::start(options).await;
    let body = review("u");
    let request = format!(
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // On a busy machine a connection may be old before its first answer.
    let stream = within(async {
        loop {
            let mut stream = server.connect(H1).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut first = [0; 4096];
            let length = stream.read(&mut first).await.unwrap();
            let first = String::from_utf8_lossy(&first[..length]).to_lowercase();
            assert!(first.starts_with("http/1.1 200"), "{first}");
            if !first.contains("connection: close") {
                return stream;
            }
        }
    })
    .await;
    tokio::time::sleep(2 * SHORT).await;
    let answer = finish(stream, request.as_bytes()).await.to_lowercase();
    assert!(
        answer.starts_with("http/1.1 200") && answer.contains("connection: close"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_caller_hears_what_is_wrong_before_its_time_is_over() {
    let server = Server::start(Options::default()).await;
    let mut stream = server.connect(H1).await.unwrap();
    let head = "POST /mutate?timeout=1s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let begin = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    let took = begin.elapsed();
    assert!(answer.contains("within 900 ms"), "{answer}");
    assert!(took >= Duration::from_millis(900), "{took:?}");
}

#[tokio::test]
async fn a_replica_is_ready_when_it_can_decide_and_its_certificate_is_valid() {
    let server = Server::start(Options {
        migrations: None,
        ..Options::default()
    })
    .await;
    let health = Health {
        reviewer: server.reviewer.clone(),
        certificates: server.certificates.clone(),
        obstacle: std::sync::Arc::default(),
        registration: std::sync::Arc::default(),
        stopping: CancellationToken::new(),
    };
    let now = Timestamp::now();
    assert_eq!(health.unready(now), ["the migrations have not been listed yet"]);
    server.reviewer.migrations.absent();
    assert!(health.unready(now).is_empty());
    assert_eq!(
        health.unready(now + Duration::from_secs(7200)),
        ["the serving certificate is not valid now"]
    );
    health.stopping.cancel();
    assert_eq!(health.unready(now), ["shutting down"]);
}
