//! The serving certificate is replaced while API servers keep calling.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Validity, bundle, write};
use server_support::{H2, Options, Server, connect, h2, issue, read, request, review, within};
use tokio_util::sync::CancellationToken;

/// Calls over one connection, as API servers do, and counts the answers.
async fn call_over_one(address: SocketAddr, trusted: String, answered: Arc<AtomicUsize>, stop: CancellationToken) {
    let mut client = h2(connect(address, &trusted, H2).await.unwrap()).await;
    while !stop.is_cancelled() {
        let response = client.send_request(request("/mutate", review("kept"))).await.unwrap();
        assert_eq!(read(response).await.0, 200);
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Calls over a new connection each time.
async fn call_anew(address: SocketAddr, trusted: String, answered: Arc<AtomicUsize>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let mut client = h2(connect(address, &trusted, H2).await.unwrap()).await;
        let response = client.send_request(request("/mutate", review("new"))).await.unwrap();
        assert_eq!(read(response).await.0, 200);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_dropped_while_certificate_and_authority_are_replaced() {
    let server = Server::start(Options::default()).await;
    let next = Authority::new(
        "next",
        Validity::starting(Timestamp::now(), Duration::from_secs(86_400)),
    )
    .unwrap();
    let both = bundle::merge(
        server.authority.certificate_pem(),
        next.certificate_pem(),
        Timestamp::now(),
    )
    .unwrap();
    let stop = CancellationToken::new();
    let poll = tokio::spawn(Arc::clone(&server.certificates).run(Duration::from_millis(10), stop.clone()));
    let (kept, made) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let keeping = tokio::spawn(call_over_one(
        server.address,
        both.clone(),
        Arc::clone(&kept),
        stop.clone(),
    ));
    let anew = tokio::spawn(call_anew(server.address, both, Arc::clone(&made), stop.clone()));

    for generation in 0..6 {
        let authority = if generation < 3 { &server.authority } else { &next };
        let reloads = server.certificates.reloads();
        write(server.directory.path(), &issue(authority), None).unwrap();
        within(async {
            while server.certificates.reloads() == reloads {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        // Some requests meet each generation, however busy the machine is.
        let least = [&kept, &made].map(|count| (count, count.load(Ordering::Relaxed) + 5));
        let enough = || {
            least
                .iter()
                .all(|(count, least)| count.load(Ordering::Relaxed) >= *least)
        };
        within(async {
            while !enough() {
                assert!(!keeping.is_finished() && !anew.is_finished(), "a request failed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    stop.cancel();
    poll.await.unwrap();
    within(keeping).await.unwrap();
    within(anew).await.unwrap();
    assert!(
        connect(server.address, next.certificate_pem(), H2).await.is_ok(),
        "the next authority must be in use"
    );
    assert!(
        server.connect(H2).await.is_err(),
        "the old authority must be out of use"
    );
}
