//! Too many callers, and callers that are too slow: the process ends what gets nowhere and serves others meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

mod server_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use server_support::frames::{HEADERS, frame, post, preface};
use server_support::process::Webhook;
use server_support::{H1, H2, h2, request, review, within};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

const KIB: u64 = 1024;

/// Connections of the test that proves the first row of docs/threat-model.md.
const CONNECTIONS: usize = 10_000;
/// For everything else of this process.
const OTHER_FILES: usize = 500;
/// Much longer than all of them take.
const LIMIT: Duration = Duration::from_secs(120);

/// Raises this process's limit of open files to its hard limit, for the webhook too.
fn allow_open_files(wanted: usize) {
    let me = std::process::id().to_string();
    let limits = || -> Vec<usize> {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let numbers = line.split_whitespace().skip(3).take(2);
        numbers.map(|number| number.parse().unwrap_or(usize::MAX)).collect()
    };
    let hard = limits()[1];
    let raised = Command::new("prlimit")
        .args(["--pid", &me, &format!("--nofile={hard}:{hard}")])
        .status();
    let files = limits()[0];
    assert!(
        files >= wanted,
        "{files} open files are allowed, {wanted} are needed: raise the hard limit (`ulimit -Hn`, now {hard}); \
         prlimit: {raised:?}"
    );
}

/// Opens `number` connections that say nothing, and returns those that are still open a moment later.
async fn open(address: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(number);
    for turn in 0..number {
        if turn % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // One that is refused at once may fail here already.
        streams.extend(within(TcpStream::connect(address)).await);
    }
    streams.retain(
        |stream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
    );
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_held_or_refused_and_leave_nothing_behind() {
    allow_open_files(CONNECTIONS + OTHER_FILES);
    let cap = CONNECTIONS * 9 / 10;
    let webhook = Webhook::ready(&[&format!("--max-connections={cap}"), "--handshake-timeout=60s"]).await;
    let mut served = h2(webhook.connect(H2).await.unwrap()).await;
    let mut ask = async || {
        let answer = within(served.send_request(request("/mutate", review("u")))).await;
        answer.unwrap().status().as_u16()
    };
    assert_eq!(ask().await, 200);
    let before = webhook.kib("VmRSS");

    let begin = Instant::now();
    let mut silent = open(webhook.admission, CONNECTIONS).await;
    println!("opened after {:?}", begin.elapsed());
    let refused = r#"outrigger_webhook_connections_refused_total{port="admission",reason="too_many_connections"}"#;
    let wanted = (CONNECTIONS - cap + 1) as f64;
    while webhook.metric(refused).await < wanted {
        let seen = webhook.metric(refused).await;
        assert!(begin.elapsed() < LIMIT, "{seen} refused, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let grown = webhook.kib("VmHWM").saturating_sub(before) / KIB;
    println!(
        "{cap} connections held, {wanted} refused in {:?}, {grown} MiB",
        begin.elapsed()
    );
    assert!(grown < 160, "more than 16 KiB for each that says nothing: {grown} MiB");

    // Past the cap: a closed door at once, not a wait.
    assert!(within(webhook.connect(H2)).await.is_err());
    assert_eq!(ask().await, 200, "the one who was there before is served");

    silent.clear();
    let open = r#"outrigger_webhook_connections{port="admission"}"#;
    while webhook.metric(open).await > 1.0 {
        assert!(begin.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(webhook.review().await, 200, "there is room again");
}

/// Sends `first`, then `drop` again and again with pauses, until the other side closes; how long that took.
async fn drip(stream: impl AsyncRead + AsyncWrite + Unpin, first: &[u8], drop: &[u8]) -> Duration {
    let begin = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let dripping = async {
        let _ = writer.write_all(first).await;
        loop {
            let _ = writer.write_all(drop).await;
            let _ = writer.flush().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut said = Vec::new();
    within(async {
        tokio::select! {
            () = dripping => {}
            _ = reader.read_to_end(&mut said) => {}
        }
    })
    .await;
    begin.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_send_drop_by_drop_are_ended_and_others_are_served_meanwhile() {
    let limits = [
        "--handshake-timeout=3s",
        "--header-timeout=3s",
        "--request-timeout=3s",
        "--idle-timeout=3s",
    ];
    let webhook = Webhook::ready(&[&limits[..], &["--drain-timeout=1s"]].concat()).await;
    let tcp = || TcpStream::connect(webhook.admission);
    let head = "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let body = format!("{head}content-length: 1000\r\n\r\n");
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let mut headers = preface(&[]);
    frame(&mut headers, HEADERS, 0, 1, &post());
    // A frame of 200 bytes is announced.
    let mut begun = preface(&[]);
    begun.extend_from_slice(&[0, 0, 200, HEADERS, 4, 0, 0, 0, 1]);

    let (one, two) = (webhook.connect(H1), webhook.connect(H2));
    let slow = futures::future::join_all([
        Box::pin(drip(
            tcp().await.unwrap(),
            b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc",
            b"\x03",
        )) as std::pin::Pin<Box<dyn Future<Output = Duration>>>,
        Box::pin(drip(one.await.unwrap(), head.as_bytes(), b"x")),
        Box::pin(drip(webhook.connect(H1).await.unwrap(), body.as_bytes(), b" ")),
        Box::pin(drip(
            webhook.connect(H1).await.unwrap(),
            chunked.as_bytes(),
            b"1\r\n \r\n",
        )),
        Box::pin(drip(two.await.unwrap(), &headers, b"")),
        Box::pin(drip(webhook.connect(H2).await.unwrap(), b"PRI * HT", b"")),
        Box::pin(drip(webhook.connect(H2).await.unwrap(), &begun, b"x")),
    ]);
    let meanwhile = async {
        for _ in 0..20 {
            assert_eq!(webhook.review().await, 200);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (slow, ()) = tokio::join!(slow, meanwhile);
    // Each has ended within the time of `within`.
    println!("{slow:.1?}");
}

/// Probes must come through again by themselves, and reviews all the time: the health port has no client certificates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_the_health_port_goes_away_and_does_not_reach_reviews() {
    let webhook = Webhook::ready(&[]).await;
    let held = open(webhook.health, 400).await;
    assert_eq!(webhook.review().await, 200);
    assert!(held.len() <= 400);
    webhook.shows("/healthz", "200 OK").await;
    let refused = r#"outrigger_webhook_connections_refused_total{port="health",reason="too_many_connections"}"#;
    assert!(webhook.metric(refused).await >= 272.0, "128 are let in");
    assert_eq!(webhook.review().await, 200);
}

/// Opens connections from 16 addresses that send `bytes` and then nothing. The server may refuse some of them.
async fn hold(server: SocketAddr, number: usize, bytes: &'static [u8]) -> Vec<TcpStream> {
    let open = (0..number).map(|turn| async move {
        let socket = TcpSocket::new_v4().unwrap();
        let source = Ipv4Addr::new(127, 0, 1, u8::try_from(turn % 16).unwrap() + 1);
        socket.bind((source, 0).into()).unwrap();
        let mut stream = socket.connect(server).await.ok()?;
        stream.write_all(bytes).await.ok()?;
        Some(stream)
    });
    futures::future::join_all(open).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_from_many_addresses_delays_neither_probes_nor_reviews() {
    let webhook = Webhook::ready(&["--handshake-timeout=60s", "--header-timeout=60s"]).await;
    for (port, bytes) in [
        (webhook.health, &b""[..]),
        (webhook.health, b"GET /healthz HTTP/1.1\r\nhost: loc"),
        (webhook.health, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        (webhook.admission, b""),
        (webhook.admission, b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc"),
    ] {
        let held = hold(port, 700, bytes).await;
        for _ in 0..3 {
            let begin = Instant::now();
            let probe = webhook.get("/healthz").await;
            assert!(
                probe.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")),
                "{bytes:?}"
            );
            assert_eq!(webhook.review().await, 200, "{bytes:?}");
            // A connection of the crowd is closed after a minute.
            println!("{bytes:?}: {:?}", begin.elapsed());
            assert!(begin.elapsed() < Duration::from_secs(10), "{bytes:?}");
        }
        drop(held);
    }
}
