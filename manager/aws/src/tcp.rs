//! TCP connections that deliver no byte after the lease under which it was written.
//!
//! The kernel sends unacknowledged bytes again for up to 15 minutes while the socket is open, and for up to two minutes
//! after it is closed or its process has ended (`tcp_retries2` and `tcp_orphan_retries`,
//! <https://docs.kernel.org/networking/ip-sysctl.html>). AWS accepts a signed request for five minutes.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::util::MapResponse;

/// Connects to the host and the port of a URL of any scheme.
pub type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> TokioIo<TcpStream>>;

/// A connector whose connections end when a byte is unacknowledged for `user_timeout`, and discard their unsent bytes
/// when they are closed. `None` leaves the first to the kernel.
///
/// The time-out holds for a closed socket too: `tcp_write_timeout` and `tcp_probe_timer` in
/// <https://github.com/torvalds/linux/blob/v6.12/net/ipv4/tcp_timer.c>. It is `TCP_USER_TIMEOUT` of
/// <https://man7.org/linux/man-pages/man7/tcp.7.html>, defined by <https://www.rfc-editor.org/rfc/rfc5482>.
#[must_use]
pub fn connector(user_timeout: Option<Duration>) -> Connector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    // The kernel counts milliseconds, and zero is its default.
    let user_timeout = user_timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
    connector.set_tcp_user_timeout(user_timeout);

    MapResponse::new(connector, reset_when_closed)
}

/// A request whose answer is no longer awaited closes its connection, and so does the end of the process. With a linger
/// time of zero the kernel then discards the bytes and resets the connection (`SO_LINGER`,
/// <https://man7.org/linux/man-pages/man7/socket.7.html>). An answered request has no such bytes left.
fn reset_when_closed(stream: TokioIo<TcpStream>) -> TokioIo<TcpStream> {
    if let Err(error) = stream.inner().set_zero_linger() {
        tracing::warn!(%error, "could not set SO_LINGER");
    }

    stream
}
