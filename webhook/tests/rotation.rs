//! The serving certificate is replaced while API servers keep calling.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod edge_support;

use std::sync::Arc;
use std::time::Duration;

use edge_support::{H2, Options, Server, connect, h2, issue, read, request, review, within};
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, Validity, bundle, write};
use tokio_util::sync::CancellationToken;

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

    // One client keeps its connection, as API servers do; one makes a new connection for each request.
    let mut kept = h2(connect(server.address, &both, H2).await.unwrap()).await;
    let halt = stop.clone();
    let keeping = tokio::spawn(async move {
        let mut answered = 0;
        while !halt.is_cancelled() {
            assert_eq!(
                read(kept.send_request(request("/mutate", review("kept"))).await.unwrap())
                    .await
                    .0,
                200
            );
            answered += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        answered
    });
    let (halt, address) = (stop.clone(), server.address);
    let trusted = both.clone();
    let anew = tokio::spawn(async move {
        let mut answered = 0;
        while !halt.is_cancelled() {
            let mut client = h2(connect(address, &trusted, H2).await.unwrap()).await;
            assert_eq!(
                read(client.send_request(request("/mutate", review("new"))).await.unwrap())
                    .await
                    .0,
                200
            );
            answered += 1;
        }
        answered
    });

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
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    poll.await.unwrap();
    assert!(within(keeping).await.unwrap() > 10);
    assert!(within(anew).await.unwrap() > 10);
    assert!(
        connect(server.address, next.certificate_pem(), H2).await.is_ok(),
        "the next authority must be in use"
    );
    assert!(
        server.connect(H2).await.is_err(),
        "the old authority must be out of use"
    );
}
