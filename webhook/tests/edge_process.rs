//! The binary itself: its start, its work and its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod edge_support;

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use edge_support::process::{Api, Webhook, play};
use outrigger_shared::log_limits;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_follows_its_cluster_and_ends_politely() {
    let api = Arc::new(Api::default());
    api.down.store(true, Ordering::SeqCst);
    let mut webhook = Webhook::start(play(Arc::clone(&api)).await, &[]);

    webhook.shows("/healthz", "200 OK").await;
    webhook.shows("/readyz", "migrations have not been listed").await;
    assert_eq!(
        webhook.review().await,
        503,
        "nothing is known yet, so the failure policy decides"
    );

    // The API server is back, without the CRD: there are no migrations, and that is knowledge.
    api.down.store(false, Ordering::SeqCst);
    webhook.shows("/readyz", "200 OK").await;
    assert_eq!(webhook.review().await, 200);
    webhook
        .shows("/metrics", "outrigger_webhook_watch_up{watch=\"migrations\"} 0")
        .await;

    api.crd.store(true, Ordering::SeqCst);
    webhook.shows("/metrics", "outrigger_webhook_migrations_known 1").await;
    webhook
        .shows("/metrics", "outrigger_webhook_watch_up{watch=\"migrations\"} 1")
        .await;
    webhook
        .shows("/metrics", "outrigger_webhook_certificate_days_left 0.04")
        .await;
    assert_eq!(webhook.review().await, 200);

    let pid = webhook.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = tokio::task::spawn_blocking(move || webhook.child.wait().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(20), status)
        .await
        .unwrap()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_start_without_a_certificate_fails_and_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_outrigger-webhook"))
        .arg(format!("--cert-dir={}", directory.path().display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("tls.crt") && text.contains("mount"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_filter_shows_what_is_sent_on_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let file = File::create(&log).unwrap();
    let webhook = Webhook::logging(play(Arc::default()).await, &["--log=trace"], file.into());
    webhook.shows("/readyz", "200 OK").await;
    assert_eq!(webhook.review().await, 200);

    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"), "{text}");
    for line in &lines {
        let target = line["target"].as_str().unwrap();
        assert!(line["level"] != "TRACE" || target.starts_with("outrigger"), "{line}");
        let limited = log_limits::CONNECTIONS
            .iter()
            .any(|limited| target.starts_with(limited));
        assert!(
            !limited || ["INFO", "WARN", "ERROR"].contains(&line["level"].as_str().unwrap()),
            "{line}"
        );
    }
}
