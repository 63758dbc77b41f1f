//! A TCP relay in front of one server, which a test cuts or slows down. It needs no rights and works on any system.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

const CHUNK: usize = 16 * 1024;
/// Chunks that wait in one direction of a connection.
const QUEUE: usize = 256;
/// The chunks of a TLS handshake. A slow server is slow to answer requests, not to accept connections.
const HANDSHAKE: usize = 2;

/// The state of the network between the clients and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Open,
    /// No byte arrives, and no connection ends. When the link opens again, a connection that its client still has
    /// goes on; one that the client closed meanwhile delivers nothing: a kernel drops the data of a closed socket after
    /// `TCP_USER_TIMEOUT` (<https://man7.org/linux/man-pages/man7/tcp.7.html>).
    Cut,
    /// Requests arrive this much later.
    Slow(Duration),
}

/// A running relay. Dropping it ends its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    link: watch::Sender<Link>,
    task: JoinHandle<()>,
}

impl Relay {
    /// # Errors
    /// When no port of loopback is free.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (link, seen) = watch::channel(Link::Open);
        let task = tokio::spawn(accept(listener, server, seen));
        Ok(Self { address, link, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the network for connections that exist and for new ones.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, link: watch::Receiver<Link>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(connection(client, server, link.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Ends when one direction ends: HTTP clients and servers do not use half-open connections.
async fn connection(client: TcpStream, server: SocketAddr, mut link: watch::Receiver<Link>) {
    if !opened(&mut link).await || is_closed(&client).await {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };

    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = requests(from_client, to_server, link.clone()) => {}
        () = responses(from_server, to_client, link) => {}
    }
}

/// Waits until the link is not cut. False when the relay ended.
async fn opened(link: &mut watch::Receiver<Link>) -> bool {
    link.wait_for(|link| *link != Link::Cut).await.is_ok()
}

async fn is_closed(client: &TcpStream) -> bool {
    // Ready at once when the other end has closed; else at the first byte.
    let ready = tokio::time::timeout(Duration::from_millis(20), client.ready(Interest::READABLE)).await;
    matches!(ready, Ok(Ok(ready)) if ready.is_read_closed())
}

/// Reads while earlier chunks wait, so that a delay does not add up.
async fn requests(mut client: OwnedReadHalf, server: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let (chunks, queue) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(deliver(server, queue));
    let mut buffer = vec![0; CHUNK];
    let mut count = 0;
    loop {
        let was_cut = *link.borrow() == Link::Cut;
        if !opened(&mut link).await || was_cut && is_closed(client.as_ref()).await {
            break;
        }
        // A chunk that arrives while the link is cut waits in the kernel.
        let length = tokio::select! {
            biased;
            _ = link.wait_for(|link| *link == Link::Cut) => continue,
            length = client.read(&mut buffer) => length.unwrap_or(0),
        };
        if length == 0 {
            break;
        }

        count += 1;
        let delay = match *link.borrow() {
            Link::Slow(delay) if count > HANDSHAKE => delay,
            _ => Duration::ZERO,
        };
        if chunks
            .send((Instant::now() + delay, buffer[..length].to_vec()))
            .await
            .is_err()
        {
            break;
        }
    }

    // Chunks that were read before the client closed still arrive: a kernel has acknowledged them.
    drop(chunks);
    let _ = writer.await;
}

async fn deliver(mut server: OwnedWriteHalf, mut queue: mpsc::Receiver<(Instant, Vec<u8>)>) {
    while let Some((due, chunk)) = queue.recv().await {
        sleep_until(due).await;
        if server.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

async fn responses(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = server.read(&mut buffer).await.unwrap_or(0);
        if length == 0 || !opened(&mut link).await || client.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    /// Much longer than an answer takes.
    const LONG: Duration = Duration::from_secs(20);
    const SLOW: Duration = Duration::from_millis(1500);

    /// A server that answers each chunk with itself and reports it.
    async fn echo() -> (Relay, mpsc::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let relay = Relay::start(listener.local_addr().expect("an address")).await;
        let (seen, received) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 64];
                    while let Ok(length @ 1..) = client.read(&mut buffer).await {
                        let _ = seen.send(buffer[..length].to_vec()).await;
                        let _ = client.write_all(&buffer[..length]).await;
                    }
                });
            }
        });
        (relay.expect("it listens"), received)
    }

    async fn answered(client: &mut TcpStream, text: &[u8], within: Duration) -> bool {
        client.write_all(text).await.expect("written");
        let mut buffer = [0; 64];
        matches!(tokio::time::timeout(within, client.read(&mut buffer)).await, Ok(Ok(length)) if &buffer[..length] == text)
    }

    #[tokio::test]
    async fn a_cut_connection_goes_on_when_the_link_opens() {
        let (relay, mut received) = echo().await;
        let mut client = TcpStream::connect(relay.address()).await.expect("connected");
        assert!(answered(&mut client, b"one", LONG).await);
        assert_eq!(received.recv().await, Some(b"one".to_vec()));

        relay.set(Link::Cut);
        assert!(!answered(&mut client, b"two", SOON).await);
        assert!(received.try_recv().is_err(), "a cut link delivers nothing");

        relay.set(Link::Open);
        assert_eq!(received.recv().await, Some(b"two".to_vec()));
    }

    #[tokio::test]
    async fn what_a_client_wrote_before_it_closed_in_a_cut_is_lost() {
        let (relay, mut received) = echo().await;
        let mut client = TcpStream::connect(relay.address()).await.expect("connected");
        assert!(answered(&mut client, b"one", LONG).await);
        assert_eq!(received.recv().await, Some(b"one".to_vec()));

        relay.set(Link::Cut);
        assert!(!answered(&mut client, b"two", SOON).await);
        drop(client);
        tokio::time::sleep(SOON).await;
        relay.set(Link::Open);
        tokio::time::sleep(SOON).await;
        assert!(received.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_slow_link_delays_each_request_once() {
        let (relay, mut received) = echo().await;
        let mut client = TcpStream::connect(relay.address()).await.expect("connected");
        for text in [b"one", b"two"] {
            assert!(answered(&mut client, text, LONG).await);
            assert_eq!(received.recv().await, Some(text.to_vec()));
        }

        relay.set(Link::Slow(SLOW));
        let begun = Instant::now();
        for text in [b"3", b"4", b"5"] {
            client.write_all(text).await.expect("written");
            tokio::time::sleep(SOON / 4).await;
        }
        for text in [b"3", b"4", b"5"] {
            assert_eq!(received.recv().await, Some(text.to_vec()));
        }
        let took = begun.elapsed();
        // One delay after the other would be three.
        assert!((SLOW..3 * SLOW).contains(&took), "{took:?}");
    }
}
