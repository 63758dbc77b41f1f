//! A small metadata service on loopback, and what becomes of each of its moods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// An answer to `METHOD PATH`: status and body.
type Answers = fn(&str, bool) -> (u16, String);

/// Serves `answers`, which learns whether the request carried the session token. Returns its address and a count of requests.
async fn service(answers: Answers) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                count.fetch_add(1, Ordering::SeqCst);
                let head = String::from_utf8(head).unwrap();
                let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
                let (status, body) = answers(line, head.to_lowercase().contains("x-aws-ec2-metadata-token: secret"));
                let ttl = if line.starts_with("PUT") {
                    "x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"
                } else {
                    ""
                };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\n{ttl}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

fn good(line: &str, token: bool) -> (u16, String) {
    let text = match line {
        "PUT /latest/api/token" => return (200, "secret".into()),
        _ if !token => return (401, String::new()),
        "GET /latest/meta-data/placement/region" => "us-west-2",
        "GET /latest/meta-data/placement/availability-zone" => "us-west-2-lax-1a",
        "GET /latest/meta-data/instance-id" => "i-0123456789abcdef0",
        "GET /latest/meta-data/mac" => "0e:00:00:00:00:01",
        "GET /latest/meta-data/network/interfaces/macs/0e:00:00:00:00:01/vpc-id" => "vpc-1",
        "GET /latest/meta-data/network/interfaces/macs/0e:00:00:00:00:01/subnet-id" => "subnet-1\n",
        _ => return (404, String::new()),
    };
    (200, text.into())
}

fn at(address: &str) -> Metadata {
    Metadata::new(Some(address), |_| None)
}

#[tokio::test]
async fn the_own_instance_is_read_with_a_session_token() {
    let (address, asked) = service(good).await;
    let wanted = OwnInstance {
        region: Some("us-west-2".into()),
        zone: Some("us-west-2-lax-1a".into()),
        id: Some(InstanceId::new("i-0123456789abcdef0")),
        vpc_id: Some("vpc-1".into()),
        subnet_id: Some("subnet-1".into()),
    };
    // As the old SDK's override has it, too.
    for url in [address.clone(), format!("{address}/"), format!("{address}/latest/")] {
        asked.store(0, Ordering::SeqCst);
        assert_eq!(at(&url).own_instance().await, Ok(wanted.clone()), "{url}");
        assert_eq!(asked.load(Ordering::SeqCst), 7, "one token, six questions");
    }
}

#[tokio::test]
async fn a_path_that_is_missing_is_no_error() {
    let (address, _) = service(|line, token| match line {
        "GET /latest/meta-data/placement/region" | "GET /latest/meta-data/mac" => (404, String::new()),
        _ => good(line, token),
    })
    .await;
    let own = at(&address).own_instance().await.unwrap();
    assert_eq!((own.region, own.vpc_id), (None, None));
    assert_eq!(own.zone.as_deref(), Some("us-west-2-lax-1a"));
}

#[tokio::test]
async fn a_refusal_and_a_closed_port_are_told_at_once_with_their_reason() {
    let (forbidden, _) = service(|_, _| (403, String::new())).await;
    let (unauthorized, _) = service(|line, token| match line {
        "PUT /latest/api/token" => good(line, token),
        _ => (401, String::new()),
    })
    .await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (url, words) in [
        (forbidden, ["rejects", "no session token: request forbidden"]),
        (unauthorized, ["rejects", "HTTP status 401"]),
        (format!("http://{closed}"), ["cannot be reached", "onnection refused"]),
        ("ftp://x".into(), ["ftp://x", "is not an http:// URL"]),
    ] {
        let start = Instant::now();
        let error = at(&url).own_instance().await.unwrap_err().to_string();
        assert!(error.contains(&url), "{error}");
        words
            .iter()
            .for_each(|word| assert!(error.to_lowercase().contains(&word.to_lowercase()), "{error}"));
        assert!(start.elapsed() < 3 * PATIENCE, "{error}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_service_that_hangs_costs_two_seconds_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let start = Instant::now();
    let error = at(&address).own_instance().await.unwrap_err();
    assert_eq!(error, MetadataError::Silent(address));
    // A second attempt and a third one would cost as much again.
    assert!(start.elapsed() < 3 * PATIENCE, "{:?}", start.elapsed());
    assert!(error.to_string().contains("within 2 s") && error.to_string().contains("hop limit"));
}

#[tokio::test]
async fn the_environment_can_forbid_to_ask_and_name_another_address() {
    let (address, asked) = service(good).await;
    let off = Metadata::new(Some(&address), |name| (name == DISABLED).then(|| "TRUE".into()));
    assert_eq!(off.own_instance().await, Err(MetadataError::Disabled));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let elsewhere = |name: &str| (name == ENDPOINT).then(|| "http://127.0.0.1:9".to_owned());
    assert_eq!(Metadata::new(None, elsewhere).address(), "http://127.0.0.1:9");
    assert_eq!(Metadata::new(Some(&address), elsewhere).address(), address);
    let six = |name: &str| (name == MODE).then(|| "IPv6".to_owned());
    assert_eq!(Metadata::new(None, six).address(), "http://[fd00:ec2::254]");
    assert_eq!(Metadata::new(None, |_| None).address(), "http://169.254.169.254");
}
