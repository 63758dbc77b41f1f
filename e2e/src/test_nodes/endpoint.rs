//! The endpoint of several control planes (`controlPlaneEndpoint` of kubeadm): a balancer of TCP connections.

use std::io;
use std::net::{self, SocketAddr};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// A machine that is off does not answer.
const CONNECT: Duration = Duration::from_secs(2);

/// A running balancer. Dropping it ends its connections.
pub struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Each connection to `listener` goes to the first server that accepts it.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn start(listener: net::TcpListener, servers: Vec<SocketAddr>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, servers));
        Ok(Self { address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, servers: Vec<SocketAddr>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(forward(client, servers.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut client: TcpStream, servers: Vec<SocketAddr>) {
    for server in servers {
        if let Ok(Ok(mut server)) = timeout(CONNECT, TcpStream::connect(server)).await {
            // An end of one side ends the other one.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
