//! Too much of everything, sent to the process: it refuses, stays small, and serves others meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

mod server_support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server_support::frames::{
    CONTINUATION, END_HEADERS, HEADERS, PING, RST_STREAM, SETTINGS, extra, frame, kinds, post, preface,
};
use server_support::process::Webhook;
use server_support::{H1, H2, h2, request, review, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// As many streams are opened and reset.
const TAKEN_BACK: u32 = 10_000;

/// How much larger the process has ever been than it was at the beginning.
struct Growth(u64);

impl Growth {
    async fn of(webhook: &Webhook) -> Self {
        assert_eq!(webhook.review().await, 200);
        Self(webhook.kib("VmRSS"))
    }

    /// Asserts a bound in MiB.
    fn is_below(&self, webhook: &Webhook, bound: u64, what: &str) {
        let grown = webhook.kib("VmHWM").saturating_sub(self.0) / KIB;
        println!("{what}: grown by {grown} MiB at most, from {} MiB", self.0 / KIB);
        assert!(grown < bound, "{what}: grown by {grown} MiB, not less than {bound}");
    }
}

/// Writes `bytes` again and again, `times` at most, until the other side closes; then what it said. Reading goes on meanwhile.
async fn flood(stream: TlsStream<TcpStream>, first: BytesMut, bytes: BytesMut, times: u64) -> (u64, Vec<u8>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sender = tokio::spawn(async move {
        let mut sent = 0;
        if writer.write_all(&first).await.is_ok() {
            while sent < times && writer.write_all(&bytes).await.is_ok() {
                sent += 1;
            }
        }
        let _ = writer.flush().await;
        (sent, writer)
    });
    let mut answer = Vec::new();
    // The server closes while we still send, so the end may be a reset; what came before it counts.
    let _ = within(reader.read_to_end(&mut answer)).await;
    let (sent, _writer) = within(sender).await.unwrap();
    (sent, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_a_gibibyte_is_refused_after_the_limit() {
    let webhook = Webhook::ready(&[]).await;
    let growth = Growth::of(&webhook).await;

    let head = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    let stream = webhook.connect(H1).await.unwrap();
    let (sent, answer) = flood(stream, head.into(), chunk.as_slice().into(), GIB / 0x10000).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(sent * 0x10000 < 64 * MIB, "the server read on: {sent} chunks");

    let polled = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&polled);
    let body = futures::stream::iter((0..GIB / 0x10000).map(move |_| {
        counted.fetch_add(0x10000, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[b' '; 0x10000])))
    }));
    let io = TokioIo::new(webhook.connect(H2).await.unwrap());
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let (parts, _) = request("/mutate", "").into_parts();
    let answer = within(client.send_request(http::Request::from_parts(parts, StreamBody::new(body))))
        .await
        .unwrap();
    assert_eq!(answer.status(), 413);
    let polled = polled.load(Ordering::Relaxed) / MIB;
    assert!(polled < 64, "the server read on: {polled} MiB");

    growth.is_below(&webhook, 40, "bodies of 1 GiB");
    assert_eq!(webhook.review().await, 200);
}

/// Sends bodies over one connection each, all at the same time; how many were answered with each status.
async fn at_once(webhook: &Webhook, number: usize, body: &Bytes) -> std::collections::BTreeMap<u16, usize> {
    let mut tasks = Vec::new();
    for _ in 0..number {
        let mut client = h2(webhook.connect(H2).await.unwrap()).await;
        let request = request("/mutate", body.clone());
        tasks.push(tokio::spawn(async move {
            within(client.send_request(request)).await.unwrap().status().as_u16()
        }));
    }
    let mut answers = std::collections::BTreeMap::new();
    for task in tasks {
        *answers.entry(task.await.unwrap()).or_default() += 1;
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_grow_when_they_are_read_are_not_read_to_their_end() {
    let webhook = Webhook::ready(&[]).await;
    let growth = Growth::of(&webhook).await;
    for piece in [r#"{"":0},"#, "0,"] {
        let mut body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{{"a":[{}0]}}}}}}"#,
            piece.repeat(3 * 1024 * 1024 / piece.len())
        );
        body.push(' ');
        let answers = at_once(&webhook, 8, &Bytes::from(body)).await;
        println!("{piece} {answers:?}");
        assert!(answers.keys().all(|status| [200, 503].contains(status)), "{answers:?}");
    }
    // 32 MiB of bodies, and buffers that grow by doubling. The budget for work ends before the one for memory.
    growth.is_below(&webhook, 128, "objects of many small parts");
    assert!(
        webhook
            .metric(r#"outrigger_webhook_errors_total{class="too_much_work"}"#)
            .await
            >= 1.0
    );
    assert_eq!(webhook.review().await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_do_not_pile_up() {
    let webhook = Webhook::ready(&[]).await;
    let growth = Growth::of(&webhook).await;
    // The answer carries the request's UID, so a long UID makes a long answer.
    let body = Bytes::from(review(&"u".repeat(512 * 1024)));
    let mut kept = Vec::new();
    for _ in 0..2 {
        let io = TokioIo::new(webhook.connect(H2).await.unwrap());
        // With a window of 0 the server may send headers, and no byte of a body.
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut client, connection) = builder.initial_stream_window_size(0).handshake(io).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..90 {
            kept.push(
                within(client.send_request(request("/mutate", body.clone())))
                    .await
                    .unwrap(),
            );
        }
    }
    let answered = kept.iter().filter(|answer| answer.status() == 200).count();
    assert!(
        (40..70).contains(&answered),
        "32 MiB have room for 63 answers: {answered}"
    );
    assert!(kept.iter().all(|answer| [200, 503].contains(&answer.status().as_u16())));
    growth.is_below(&webhook, 72, "90 MiB of answers that nobody reads");
    drop(kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_http_two_frames_are_cut_and_others_are_served() {
    let webhook = Webhook::ready(&[]).await;
    let growth = Growth::of(&webhook).await;

    let mut resets = BytesMut::new();
    for number in 0..10_000 {
        frame(&mut resets, HEADERS, END_HEADERS, 2 * number + 1, &post());
        frame(&mut resets, RST_STREAM, 0, 2 * number + 1, &[0, 0, 0, 8]);
    }
    let mut continued = preface(&[]);
    frame(&mut continued, HEADERS, 0, 1, &post());
    let mut continuation = BytesMut::new();
    frame(&mut continuation, CONTINUATION, 0, 1, &extra());
    let mut empty = BytesMut::new();
    frame(&mut empty, CONTINUATION, 0, 1, &[]);
    for (what, first, bytes, times) in [
        ("streams opened and reset", preface(&[]), resets, 1),
        ("a header block without end", continued.clone(), continuation, 1_000_000),
        ("empty parts of a header block", continued, empty, 10_000_000),
    ] {
        let flooding = flood(webhook.connect(H2).await.unwrap(), first, bytes, times);
        let (flooded, status) = tokio::join!(flooding, webhook.review());
        let (sent, answer) = flooded;
        let said = kinds(&answer);
        println!("{what}: cut after {sent} writes, {:?}", said.last());
        assert_eq!(status, 200, "{what}: somebody else calls meanwhile");
        assert_eq!(webhook.review().await, 200, "{what}: somebody else calls afterwards");
    }
    // Slow enough for each stream to be taken up before it is reset.
    let stream = webhook.connect(H2).await.unwrap();
    let taken_back = within(open_and_reset_in_turns(stream)).await;
    println!("streams taken up and reset: cut after {taken_back}");
    // A busy machine does not run the server while some of these are sent.
    assert!(taken_back < TAKEN_BACK, "{taken_back}");
    assert_eq!(webhook.review().await, 200);
    growth.is_below(&webhook, 24, "floods of frames");
    let ended = |reason| format!("outrigger_webhook_connections_ended_total{{port=\"admission\",reason=\"{reason}\"}}");
    let (error, flood) = (
        webhook.metric(&ended("error")).await,
        webhook.metric(&ended("flood")).await,
    );
    assert!(error + flood >= 4.0, "{error}, {flood}");
}

/// Opens streams and resets them, ten at a time, until the server ends the connection; how many those were.
async fn open_and_reset_in_turns(stream: TlsStream<TcpStream>) -> u32 {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = tokio::spawn(async move { reader.read_to_end(&mut Vec::new()).await });
    let mut bytes = preface(&[]);
    let mut number = 0;
    while number < TAKEN_BACK && !reading.is_finished() {
        for id in number..number + 10 {
            frame(&mut bytes, HEADERS, END_HEADERS, 2 * id + 1, &post());
        }
        let opened = writer.write_all(&bytes.split()).await.is_ok() && writer.flush().await.is_ok();
        tokio::time::sleep(Duration::from_millis(10)).await;
        for id in number..number + 10 {
            frame(&mut bytes, RST_STREAM, 0, 2 * id + 1, &[0, 0, 0, 8]);
        }
        if !opened || writer.write_all(&bytes.split()).await.is_err() || writer.flush().await.is_err() {
            break;
        }
        number += 10;
    }
    number
}

/// Pings and settings must each be acknowledged. A caller that sends them without end keeps the server busy, and fills its
/// memory if it does not read the answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_only_pings_is_cut() {
    let webhook = Webhook::ready(&[]).await;
    let growth = Growth::of(&webhook).await;
    for (what, kind, payload) in [("pings", PING, &[0; 8][..]), ("settings", SETTINGS, &[][..])] {
        let mut bytes = BytesMut::new();
        for _ in 0..1000 {
            frame(&mut bytes, kind, 0, 0, payload);
        }
        let mut stream = webhook.connect(H2).await.unwrap();
        stream.write_all(&preface(&[])).await.unwrap();
        let sent = Cell::new(0);
        let sending = async {
            while sent.get() < 20_000 && stream.write_all(&bytes).await.is_ok() {
                sent.set(sent.get() + 1);
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), sending).await;
        println!("{what}: {} thousand were taken", sent.get());
        assert!(sent.get() < 20_000, "{what} are read on");
        assert_eq!(webhook.review().await, 200, "{what}");
    }
    let flood = "outrigger_webhook_connections_ended_total{port=\"admission\",reason=\"flood\"}";
    assert!(webhook.metric(flood).await >= 2.0);
    growth.is_below(&webhook, 24, "pings and settings");
}
