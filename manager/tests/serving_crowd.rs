//! Many connections that send nothing, or not enough: probes of the manager's port are answered meanwhile.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends at the first thing that is not as it should be, and prints what it measured"
)]

mod serving_support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serving_support::{Any, Served};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// The action of a connection before it waits.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Nothing: not even a TLS handshake.
    Connect,
    /// The handshake, agreeing on this protocol.
    Handshake(&'static [u8]),
    /// The handshake and half of a request's headers.
    HalfHeader,
    /// One whole request, and no other one.
    OneRequest,
}

const H1: &[u8] = b"http/1.1";
const H2: &[u8] = b"h2";

/// A held connection. Reading ends when the server ends it.
type Held = Box<dyn AsyncRead + Send + Unpin>;

async fn hold(server: SocketAddr, source: Ipv4Addr, does: Does) -> Option<Held> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((source, 0).into()).ok()?;
    let tcp = socket.connect(server).await.ok()?;
    let protocol = match does {
        Does::Connect => return Some(Box::new(tcp)),
        Does::Handshake(protocol) => protocol,
        Does::HalfHeader | Does::OneRequest => H1,
    };
    let mut tls = handshake(tcp, protocol).await?;
    match does {
        Does::HalfHeader => tls.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").await.ok()?,
        Does::OneRequest => {
            tls.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.ok()?;
            tls.read_exact(&mut [0; 12]).await.ok()?;
        }
        _ => {}
    }
    tls.flush().await.ok()?;
    Some(Box::new(tls))
}

async fn handshake(tcp: TcpStream, protocol: &[u8]) -> Option<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(outrigger_certs::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any::default()))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, tcp).await.ok()
}

/// `number` connections from as many of the loopback addresses from `first` on as `sources` says. A server may refuse some.
async fn crowd(served: &Served, number: usize, sources: u8, first: u8, does: Does) -> Vec<Held> {
    let address = served.address;
    let open = (0..number).map(|turn| {
        let last = first + u8::try_from(turn % usize::from(sources)).unwrap();
        tokio::spawn(hold(address, Ipv4Addr::new(127, 0, 0, last), does))
    });
    let open = futures::future::join_all(open).await;
    open.into_iter().filter_map(Result::unwrap).collect()
}

/// Before the server closes the connections of a crowd by itself.
const AT_ONCE: Duration = Duration::from_secs(4);

/// Whether `/healthz` answers at once, as the kubelet asks: over a new connection.
async fn probe(served: &Served) -> Result<Duration, String> {
    let begin = Instant::now();
    let answer = async {
        let tcp = TcpStream::connect(served.address)
            .await
            .map_err(|error| error.to_string())?;
        let mut tls = handshake(tcp, H1).await.ok_or("no handshake")?;
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        tls.write_all(request).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        let _ = tls.read_to_string(&mut answer).await;
        if answer.starts_with("HTTP/1.1 200") {
            Ok(())
        } else {
            Err(format!("answer {answer:?}"))
        }
    };
    let answer: Result<(), String> = timeout(AT_ONCE, answer)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {AT_ONCE:?}")));
    answer.map(|()| begin.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_a_crowd_holds_idle_connections() {
    let mut failures = Vec::new();
    for does in [
        Does::Connect,
        Does::Handshake(H1),
        Does::Handshake(H2),
        Does::HalfHeader,
        Does::OneRequest,
    ] {
        // The same address as the probe's, another one, and many.
        for (number, sources, first) in [(256, 1, 1), (256, 1, 2), (600, 16, 1)] {
            let served = Served::start(&[], None).await;
            let held = crowd(&served, number, sources, first, does).await;
            let case = format!("{number} connections from {sources} addresses from 127.0.0.{first} on: {does:?}");
            for _ in 0..3 {
                match probe(&served).await {
                    Ok(took) => println!("{case}: {took:?}"),
                    Err(error) => failures.push(format!("{case}: {error}")),
                }
            }
            drop(held);
            served.end().await;
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
