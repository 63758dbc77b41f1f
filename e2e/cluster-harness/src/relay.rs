//! A TCP relay in front of one server, which a test cuts or slows down. It needs no rights and works on any system.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Connections are accepted, and the TLS handshake is finished. No request arrives, and none is answered. A connection
    /// that lost a byte in this state never answers again, also after the link is open: a load balancer keeps a
    /// connection whose server is gone.
    Silent,
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
    let state = Arc::<State>::default();
    tokio::select! {
        () = requests(from_client, to_server, link.clone(), Arc::clone(&state)) => {}
        () = responses(from_server, to_client, link, state) => {}
    }
}

/// The state that both directions of a connection share.
#[derive(Debug, Default)]
struct State {
    /// The client has sent all messages of the handshake that the server must answer.
    shaken: AtomicBool,
    /// Bytes were lost in a silent link.
    silenced: AtomicBool,
}

impl State {
    /// Whether bytes after the handshake are lost now.
    fn is_silent(&self, link: Link) -> bool {
        let silenced = || self.silenced.load(Ordering::Relaxed);
        self.shaken.load(Ordering::Relaxed) && (link == Link::Silent || silenced())
    }

    fn silence(&self) {
        self.silenced.store(true, Ordering::Relaxed);
    }
}

/// The records that a client of TLS has sent: <https://www.rfc-editor.org/rfc/rfc8446#section-5.1>.
#[derive(Debug, Default)]
struct Records {
    header: Vec<u8>,
    /// Bytes of the present record that follow.
    left: usize,
    shaken: bool,
}

impl Records {
    /// The length of the part of the next chunk that belongs to the handshake. It ends with the first record of another
    /// type than handshake, alert and change of cipher. In TLS 1.3 the client's Finished is such a record: the client
    /// waits for no answer to it.
    fn handshake(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        while let Some(byte) = chunk.get(at).filter(|_| !self.shaken) {
            if self.left > 0 {
                let part = self.left.min(chunk.len() - at);
                (self.left, at) = (self.left - part, at + part);
                continue;
            }
            if self.header.is_empty() && !(20..=22).contains(byte) {
                self.shaken = true;
                break;
            }

            self.header.push(*byte);
            at += 1;
            if let [_, _, _, high, low] = self.header[..] {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
            }
        }
        at
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
async fn requests(
    mut client: OwnedReadHalf,
    server: OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
    state: Arc<State>,
) {
    let mut records = Records::default();
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

        let handshake = records.handshake(&buffer[..length]);
        state.shaken.store(records.shaken, Ordering::Relaxed);
        let arrives = if state.is_silent(*link.borrow()) {
            handshake
        } else {
            length
        };
        if arrives < length {
            state.silence();
        }

        count += 1;
        let delay = match *link.borrow() {
            Link::Slow(delay) if count > HANDSHAKE => delay,
            _ => Duration::ZERO,
        };
        if chunks
            .send((Instant::now() + delay, buffer[..arrives].to_vec()))
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

async fn responses(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
    state: Arc<State>,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = server.read(&mut buffer).await.unwrap_or(0);
        if state.is_silent(*link.borrow()) {
            state.silence();
            match length {
                // The client does not see that the server closed.
                0 => pending().await,
                _ => continue,
            }
        }
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

    /// A record of a type with this text.
    fn record(kind: u8, text: &[u8]) -> Vec<u8> {
        let length = u8::try_from(text.len()).expect("short");
        [&[kind, 3, 3, 0, length], text].concat()
    }

    #[tokio::test]
    async fn a_silent_link_answers_the_handshake_and_no_connection_that_lost_a_byte() {
        let (relay, mut received) = echo().await;
        relay.set(Link::Silent);
        let mut client = TcpStream::connect(relay.address()).await.expect("connected");
        let hello = record(22, b"hello");
        assert!(answered(&mut client, &hello, LONG).await);
        assert_eq!(received.recv().await, Some(hello));
        assert!(!answered(&mut client, &record(23, b"request"), SOON).await);
        assert!(received.try_recv().is_err(), "no request arrives");

        relay.set(Link::Open);
        assert!(!answered(&mut client, &record(23, b"again"), SOON).await);
        let mut other = TcpStream::connect(relay.address()).await.expect("connected");
        assert!(answered(&mut other, &record(23, b"other"), LONG).await);
    }

    #[tokio::test]
    async fn a_connection_that_lost_nothing_in_a_silent_link_goes_on() {
        let (relay, _received) = echo().await;
        let mut client = TcpStream::connect(relay.address()).await.expect("connected");
        assert!(answered(&mut client, &record(23, b"one"), LONG).await);
        relay.set(Link::Silent);
        tokio::time::sleep(SOON).await;
        relay.set(Link::Open);
        assert!(answered(&mut client, &record(23, b"two"), LONG).await);
    }

    #[test]
    fn the_handshake_ends_with_the_first_record_of_another_type_wherever_the_chunks_end() {
        let handshake = [record(22, b"hello"), record(20, b"1")].concat();
        let sent = [handshake.clone(), record(23, b"rest"), record(22, b"later")].concat();
        for size in 1..=sent.len() {
            let mut records = Records::default();
            let parts = sent.chunks(size).map(|chunk| records.handshake(chunk));
            assert_eq!(parts.sum::<usize>(), handshake.len(), "{size}");
        }
        assert_eq!(Records::default().handshake(b"GET / HTTP/1.1"), 0);
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
