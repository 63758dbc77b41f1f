//! The webhook's Service: connections go to the replicas in turns.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Time to reach a replica on this machine.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
struct Endpoints {
    /// Connections of an earlier generation are closed.
    generation: u64,
    replicas: Vec<SocketAddr>,
}

pub struct Balancer {
    endpoints: watch::Sender<Endpoints>,
    task: JoinHandle<()>,
}

impl Balancer {
    pub async fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.context("the Service's address")?;
        let (endpoints, seen) = watch::channel(Endpoints::default());
        let task = tokio::spawn(accept(listener, seen));
        Ok(Self { endpoints, task })
    }

    pub fn add(&self, replica: SocketAddr) {
        self.endpoints.send_modify(|endpoints| endpoints.replicas.push(replica));
    }

    /// Replaces the replicas and closes the open connections.
    pub fn set(&self, replicas: &[SocketAddr]) {
        self.endpoints.send_modify(|endpoints| {
            endpoints.generation += 1;
            endpoints.replicas = replicas.to_vec();
        });
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, endpoints: watch::Receiver<Endpoints>) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    loop {
        if let Ok((client, _)) = listener.accept().await {
            connections.spawn(connection(client, turn, endpoints.clone()));
            turn += 1;
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(mut client: TcpStream, turn: usize, mut endpoints: watch::Receiver<Endpoints>) {
    let now = endpoints.borrow_and_update().clone();
    if now.replicas.is_empty() {
        return;
    }

    let replica = now.replicas[turn % now.replicas.len()];
    let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT, TcpStream::connect(replica)).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = endpoints.wait_for(|endpoints| endpoints.generation != now.generation) => {}
    }
}
