//! The binary itself: its start, its work and its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server_support;

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_shared::log_limits;
use outrigger_webhook::self_signed::Settings;
use outrigger_webhook::self_signed::decide::{self, Step};
use serde_json::{Value, json};
use server_support::process::{Api, Webhook, free_address, play, play_at};
use server_support::{H2, connect};

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

/// A Secret as a replica writes it, and the PEM of its CA.
fn self_signed_secret() -> (Value, String) {
    let settings = Settings {
        names: vec!["localhost".to_owned()],
        certificate_lifetime: Duration::from_secs(3600),
        ca_lifetime: Duration::from_secs(86_400),
    };
    let state = decide::perform(Step::Create, None, &settings, Timestamp::now()).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "outrigger.dev/self-signed", "data": state.data(),
        "metadata": {"name": "certificates", "namespace": "outrigger-system", "uid": "s", "resourceVersion": "1"},
    });
    (secret, state.current.certificate_pem().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_cannot_read_its_secret_waits_and_says_why() {
    // Nothing listens there yet.
    let address = free_address();
    let (secret, ca) = self_signed_secret();
    let webhook = Webhook::start(address, &["--self-signed-secret=certificates"]);

    webhook
        .shows(
            "/readyz",
            "no serving certificate yet: cannot read the Secret (outrigger-system/certificates)",
        )
        .await;
    webhook.shows("/readyz", "Connection refused").await;
    webhook.shows("/livez", "200 OK").await;
    webhook
        .shows("/metrics", "outrigger_webhook_certificate_days_left 0.0\n")
        .await;
    assert!(
        connect(webhook.admission, &ca, H2).await.is_err(),
        "there is no certificate"
    );

    let api = Api {
        secret,
        ..Api::default()
    };
    play_at(address, Arc::new(api)).await;
    webhook.shows("/readyz", "200 OK").await;
    connect(webhook.admission, &ca, H2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_another_type_is_named_as_the_reason() {
    let (mut secret, _) = self_signed_secret();
    secret["type"] = json!("Opaque");
    let api = Api {
        secret,
        ..Api::default()
    };
    let webhook = Webhook::start(play(Arc::new(api)).await, &["--self-signed-secret=certificates"]);

    webhook.shows("/readyz", r#"the Secret has the type "Opaque""#).await;
    webhook.shows("/livez", "200 OK").await;
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
async fn a_proxy_of_the_environment_is_not_for_the_api_server() {
    // Nothing listens there.
    let proxy = [
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("https_proxy", "http://127.0.0.1:1"),
    ];
    let webhook = Webhook::with_environment(play(Arc::default()).await, &proxy);
    webhook.shows("/readyz", "200 OK").await;
    assert_eq!(webhook.review().await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_kubeconfig_with_a_file_of_elsewhere_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"tokenFile": "/etc/hostname"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let log = folder.path().join("log");
    let flag = format!("--cluster-kubeconfig=tenant={}", file.display());
    let mut webhook = Webhook::logging(play(Arc::default()).await, &[&flag], File::create(&log).unwrap().into());
    let mut ended = None;
    for _ in 0..400 {
        ended = webhook.child.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
    for part in [
        r#"the cluster "tenant""#,
        "tokenFile: /etc/hostname",
        "beside the kubeconfig",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
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
