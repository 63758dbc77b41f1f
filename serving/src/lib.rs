//! Parts that the processes of webhook and manager share: the HTTP server of their ports, and tasks that must not end.
//!
//! ```text
//! listener ─accept─▶ slots ──▶ task: handshake (bounded) ─▶ connection ─▶ router
//!                      │ none free: end an idle connection, or refuse this one
//! ```
//!
//! | subject | module |
//! |---|---|
//! | limits | [`ConnectionLimits`] |
//! | accepting connections, shutdown | [`Server`] |
//! | admission of connections when there are too many | `slots` |
//! | end of a connection | `connection` |
//! | too many control frames of HTTP/2 | `frames` |
//! | tasks that run as long as the process | [`Tasks`] |

mod connection;
mod frames;
mod server;
mod slots;
mod tasks;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket};

pub use connection::Aborted;
pub use server::{Drained, Server};
pub use tasks::{TaskEnded, Tasks};

/// Connections that the kernel keeps until they are accepted. Beyond it, clients wait a second before they retry, while
/// an accepted connection is served or refused immediately.
const BACKLOG: u32 = 4096;

/// The limits of one server. Requests have limits of their own.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// How many of `connections` only callers on this machine can use: the kubelet's probe of a Pod in the host's
    /// network must not depend on other callers.
    pub reserved: usize,
    /// Maximum number of open connections from one address, except addresses of this machine.
    pub per_source: usize,
    /// The policy for a connection without a slot.
    pub when_full: WhenFull,
    /// Maximum number of concurrent requests per HTTP/2 connection.
    pub streams: u32,
    pub handshake: Duration,
    /// Timeout for the headers of a connection's first request.
    pub header: Duration,
    /// Time after the last request until a connection without a further one is closed.
    pub idle: Duration,
    /// Age at which a connection is closed after its requests are answered, or up to a fifth earlier. API servers keep
    /// connections as long as possible, so without this limit a new replica gets no requests.
    pub age: Duration,
    /// Time that open requests get when the server, or a connection, shuts down.
    pub drain: Duration,
}

/// The policy for a connection without a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It gets the slot of a connection without any request so far, if the source of that one holds more connections
    /// than its own source. Otherwise it is refused: the caller is an API server, which applies the failure policy at
    /// once.
    FairShare,
    /// It gets the slot of the oldest connection without an open request, of the source with the most connections. For
    /// probes and scrapers, which use a connection at once: no number of idle connections keeps them out.
    EndIdle,
}

/// Why a served connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer, in good order.
    Peer,
    /// The peer broke off or broke the protocol; most floods end like this.
    Error,
    /// Far more requests were aborted than answered, or there were too many control frames.
    Flood,
    /// There was no request for too long.
    Quiet,
    /// The connection was too old.
    Age,
    Shutdown,
}

impl Ended {
    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Error => "error",
            Self::Flood => "flood",
            Self::Quiet => "quiet",
            Self::Age => "age",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Why a connection was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There was no slot, or a newer connection got its slot.
    TooManyConnections,
    /// The handshake failed: wrong protocol, or the caller does not trust our certificate.
    HandshakeFailed,
    HandshakeTimeout,
    /// The caller has no certificate, or one of another authority or name.
    ClientCertificate,
}

impl Refused {
    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooManyConnections => "too_many_connections",
            Self::HandshakeFailed => "handshake_failed",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::ClientCertificate => "client_certificate",
        }
    }
}

/// Counts connections. Each connection is either refused or ended, and opened and closed if it was accepted.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    fn opened(&self);
    fn closed(&self);
    fn ended(&self, reason: Ended);
    fn refused(&self, reason: Refused);
}

/// The caller's certificate and its intermediates, leaf first: an extension of each request whose connection has one.
#[derive(Debug, Clone)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// The address of the caller: an extension of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(pub IpAddr);

/// Binds a port. `SO_REUSEADDR` is set in any case, as Go does; processes that share a port need `SO_REUSEPORT` on each
/// side.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr, share_port: bool) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    if share_port {
        socket.set_reuseport(true)?;
    }

    socket.bind(address)?;

    socket.listen(BACKLOG)
}
