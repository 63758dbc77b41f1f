//! Rotation under a running TLS server, swapped as the kubelet swaps a mounted Secret.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, Check, Issued, Reloader, Source, Validity, bundle, tls};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

const NAME: &str = "localhost";

/// A Secret volume as the kubelet lays it out: a dated folder, `..data` pointing at it, files pointing through
/// `..data`.
struct SecretVolume {
    root: tempfile::TempDir,
    generation: usize,
}

impl SecretVolume {
    fn mount(issued: &Issued) -> Self {
        let mut volume = Self {
            root: tempfile::tempdir().unwrap(),
            generation: 0,
        };
        volume.swap(issued);
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), volume.path().join(file)).unwrap();
        }
        volume
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn swap(&mut self, issued: &Issued) {
        self.generation += 1;
        let folder = format!("..2026_05_01_12_00_00.{}", self.generation);
        fs::create_dir(self.path().join(&folder)).unwrap();
        fs::write(self.path().join(&folder).join("tls.crt"), &issued.certificate_pem).unwrap();
        fs::write(self.path().join(&folder).join("tls.key"), &issued.key_pem).unwrap();
        let old = fs::read_link(self.path().join("..data")).ok();
        symlink(&folder, self.path().join("..data_tmp")).unwrap();
        fs::rename(self.path().join("..data_tmp"), self.path().join("..data")).unwrap();
        if let Some(old) = old {
            fs::remove_dir_all(self.path().join(old)).unwrap();
        }
    }
}

fn authority(name: &str) -> Authority {
    Authority::new(name, Validity::starting(Timestamp::now(), Duration::from_secs(86_400))).unwrap()
}

fn issue(authority: &Authority) -> Issued {
    authority
        .issue(&[NAME], Validity::starting(Timestamp::now(), Duration::from_secs(3600)))
        .unwrap()
}

fn reloader(volume: &SecretVolume) -> Arc<Reloader> {
    let source = Source {
        directory: volume.path().to_owned(),
        names: vec![NAME.to_owned()],
    };
    Arc::new(Reloader::load(source, outrigger_certs::provider(), Timestamp::now()).unwrap())
}

/// Echoes single bytes over TLS until the test ends.
async fn echo(reloader: Arc<Reloader>) -> std::net::SocketAddr {
    let config = tls::server_config(outrigger_certs::provider(), reloader, &tls::Callers::Any).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(tcp).await else {
                    return;
                };
                while let Ok(byte) = stream.read_u8().await {
                    stream.write_u8(byte).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    });
    address
}

async fn connect(address: std::net::SocketAddr, trusted: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let config = rustls::ClientConfig::builder_with_provider(outrigger_certs::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(bundle::roots(trusted).unwrap())
        .with_no_client_auth();
    let tcp = TcpStream::connect(address).await?;
    // As Go's clients do. Else the byte after the handshake waits for an acknowledgement that the server delays.
    tcp.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from(NAME).unwrap(), tcp)
        .await
}

async fn ping(stream: &mut TlsStream<TcpStream>) {
    stream.write_u8(7).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 7);
}

#[tokio::test]
async fn a_new_authority_takes_over_and_no_open_connection_notices() {
    let (old, new) = (authority("old"), authority("new"));
    let mut volume = SecretVolume::mount(&issue(&old));
    let reloader = reloader(&volume);
    let address = echo(Arc::clone(&reloader)).await;
    let both = bundle::merge(old.certificate_pem(), new.certificate_pem(), Timestamp::now()).unwrap();

    let mut open = connect(address, &both).await.unwrap();
    ping(&mut open).await;
    volume.swap(&issue(&new));
    assert!(matches!(reloader.check(Timestamp::now()), Check::Replaced(_)));
    ping(&mut open).await;

    let mut fresh = connect(address, &both).await.unwrap();
    ping(&mut fresh).await;
    assert!(
        connect(address, old.certificate_pem()).await.is_err(),
        "the new certificate must be the one served"
    );
    assert!(connect(address, new.certificate_pem()).await.is_ok());
    assert_eq!((reloader.reloads(), reloader.failures()), (1, 0));
}

#[tokio::test]
async fn a_bad_swap_keeps_the_old_pair_and_is_counted_until_it_is_repaired() {
    let authority = authority("one");
    let first = issue(&authority);
    let mut volume = SecretVolume::mount(&first);
    let reloader = reloader(&volume);
    let address = echo(Arc::clone(&reloader)).await;

    let second = issue(&authority);
    let mixed = Issued {
        certificate_pem: second.certificate_pem.clone(),
        key_pem: first.key_pem.clone(),
    };
    volume.swap(&mixed);
    for looks in 1..=2 {
        assert!(matches!(reloader.check(Timestamp::now()), Check::Failed(_)));
        assert_eq!(reloader.failures(), looks);
    }
    ping(&mut connect(address, authority.certificate_pem()).await.unwrap()).await;

    volume.swap(&second);
    assert!(matches!(reloader.check(Timestamp::now()), Check::Replaced(_)));
    assert!(matches!(reloader.check(Timestamp::now()), Check::Unchanged));
    assert_eq!((reloader.reloads(), reloader.failures()), (1, 2));
}

#[tokio::test]
async fn the_polling_task_follows_a_swap_and_ends_when_told() {
    let authority = authority("one");
    let mut volume = SecretVolume::mount(&issue(&authority));
    let reloader = reloader(&volume);
    let stop = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&reloader).run(Duration::from_millis(20), stop.clone()));
    for expected in 1..=3 {
        volume.swap(&issue(&authority));
        tokio::time::timeout(Duration::from_secs(10), async {
            while reloader.reloads() < expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn connections_made_without_pause_while_pairs_are_swapped_all_succeed() {
    let authority = authority("one");
    let mut volume = SecretVolume::mount(&issue(&authority));
    let reloader = reloader(&volume);
    let address = echo(Arc::clone(&reloader)).await;
    let stop = CancellationToken::new();
    let poll = tokio::spawn(Arc::clone(&reloader).run(Duration::from_millis(10), stop.clone()));
    let trusted = authority.certificate_pem().to_owned();
    let halt = stop.clone();
    let made = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&made);
    let client = tokio::spawn(async move {
        while !halt.is_cancelled() {
            ping(&mut connect(address, &trusted).await.unwrap()).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    for _ in 0..10 {
        let (reloads, before) = (reloader.reloads(), made.load(Ordering::Relaxed));
        volume.swap(&issue(&authority));
        let has_met = || reloader.reloads() > reloads && made.load(Ordering::Relaxed) > before + 1;
        tokio::time::timeout(Duration::from_secs(60), async {
            while !has_met() && !client.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }
    stop.cancel();
    poll.await.unwrap();
    client.await.unwrap();
}
