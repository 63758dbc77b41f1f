//! Input that is cut off or was never meant for the admission port: it never counts as a review, and the server serves
//! on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::time::Duration;

use outrigger_serving::Drained;
use server_support::{H1, H2, Options, Server, read, request, review, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MOMENT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_review_cut_off_after_any_byte_is_no_review() {
    let server = Server::start(Options::default()).await;
    let whole = review("u").into_bytes();
    let mut client = server.h2().await;
    for length in 0..whole.len() {
        let answer = within(client.send_request(request("/mutate", whole[..length].to_vec()))).await;
        let (status, text) = read(answer.unwrap()).await;
        assert_eq!(status, 400, "after {length} bytes: {text}");
        assert!(!text.contains("\"allowed\""), "after {length} bytes: {text}");
    }
    let answer = within(client.send_request(request("/mutate", whole))).await;
    assert_eq!(
        read(answer.unwrap()).await.0,
        200,
        "the whole review, on the same connection"
    );
    server.assert_serving().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_in_the_middle_of_a_body_disturbs_nobody() {
    let server = Server::start(Options::default()).await;
    let body = review("u");
    for part in [0, 1, body.len() / 2, body.len() - 1] {
        let head = format!(
            "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = server.connect(H1).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body.as_bytes()[..part]).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        server.assert_serving().await;
    }
    assert_eq!(server.finish().await, Drained::Clean);
}

#[tokio::test]
async fn garbage_in_the_place_of_tls_or_of_http_is_turned_away() {
    let server = Server::start(Options::default()).await;
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    let plain = b"POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
    let half_a_hello = [&[0x16, 0x03, 0x01, 0x40, 0x00, 0x01][..], &noise[..100]].concat();
    for bytes in [&noise[..], plain, &half_a_hello, b"\x16\x03\x01\xff\xff"] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(!throw(stream, bytes).await.starts_with(b"HTTP/1.1 2"));
        server.assert_serving().await;
    }
    let long_head = format!("POST /mutate HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1_000_000));
    let frames = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &noise].concat();
    for (protocol, bytes) in [
        (H1, &noise[..]),
        (H1, long_head.as_bytes()),
        (H1, b"\0\0 / HTTP/9.9\r\n\r\n"),
        (H2, &noise),
        (H2, &frames),
    ] {
        let stream = server.connect(protocol).await.unwrap();
        assert!(!throw(stream, bytes).await.starts_with(b"HTTP/1.1 2"));
        server.assert_serving().await;
    }
}

/// Sends bytes and reads until the other side closes, or a moment long. Being cut off while sending is an answer too.
async fn throw(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(MOMENT, async {
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        let _ = stream.read_to_end(&mut answer).await;
    })
    .await;
    answer
}
