//! The manager's port, over real TLS on a free port of this machine.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod serving_support;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outrigger_manager::serving;
use serde_json::{Value, json};
use serving_support::{Served, options, reviewer};
use tokio::net::TcpStream;

#[tokio::test]
async fn probes_need_no_credentials_and_follow_the_checks() {
    let served = Served::start(&[], None).await;
    let fine = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&fine);
    served.health.register("leaderElection", move || {
        if state.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err("the lease is old".into())
        }
    });
    served.health.register_readiness("nodes", || Err("no list yet".into()));
    assert_eq!(served.get("/healthz", None).await, (200, "ok".into()));
    assert_eq!(served.get("/livez", None).await, (200, "ok".into()));
    assert_eq!(served.get("/readyz", None).await.0, 500);
    assert_eq!(served.get("/readyz?exclude=nodes", None).await.0, 200);
    assert!(
        served
            .get("/healthz?verbose", None)
            .await
            .1
            .contains("[+]leaderElection ok")
    );
    fine.store(false, Ordering::SeqCst);
    let (status, body) = served.get("/healthz", None).await;
    assert_eq!(status, 500);
    assert!(
        body.contains("[-]leaderElection failed: reason withheld") && !body.contains("old"),
        "{body}"
    );
    served.end().await;
}

#[tokio::test]
async fn metrics_are_for_callers_that_the_api_server_lets_read_them() {
    let reviews = Arc::new(AtomicUsize::new(0));
    let served = Served::start(&[], Some(reviewer(Arc::clone(&reviews)))).await;
    assert_eq!(served.get("/metrics", None).await.0, 403, "anonymous");
    assert_eq!(served.get("/metrics", Some("bad")).await.0, 401);
    let before = reviews.load(Ordering::SeqCst);
    let (status, body) = served.get("/metrics", Some("good")).await;
    assert_eq!(status, 200);
    assert!(body.contains("leader_election_master_status"), "{body}");
    assert_eq!(served.get("/metrics", Some("good")).await.0, 200);
    assert_eq!(
        reviews.load(Ordering::SeqCst),
        before + 2,
        "the second answer came from the cache"
    );
    assert_eq!(
        served.get("/secrets", Some("good")).await.0,
        403,
        "a path that does not exist is not told apart"
    );
    assert_eq!(served.get("/secrets", Some("master")).await.0, 404);
    assert_eq!(served.get("/healthz/none", Some("master")).await.0, 404);
    served.end().await;
}

#[tokio::test]
async fn without_an_api_server_only_open_paths_are_served() {
    let served = Served::start(&[], None).await;
    assert_eq!(served.get("/metrics", Some("good")).await.0, 403);
    served.end().await;
    let served = Served::start(&["--authorization-always-allow-paths=/metrics,/healthz*"], None).await;
    assert_eq!(served.get("/metrics", None).await.0, 200);
    assert_eq!(served.get("/healthz/x", None).await.0, 404);
    assert_eq!(served.get("/livez", None).await.0, 403);
    served.end().await;
}

#[tokio::test]
async fn a_port_of_zero_serves_nothing_and_a_missing_certificate_ends_the_start() {
    assert!(
        serving::bind(&options(&["--secure-port=0"]).serving)
            .await
            .unwrap()
            .is_none()
    );
    let wrong = options(&[
        "--tls-cert-file=/nonexistent/a",
        "--tls-private-key-file=/nonexistent/b",
    ]);
    let error = serving::bind_to(&wrong.serving, (Ipv4Addr::LOCALHOST, 0).into())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nonexistent/a"), "{error}");
}

#[tokio::test]
async fn an_open_connection_does_not_hold_up_the_end() {
    let served = Served::start(&[], None).await;
    let _idle = TcpStream::connect(served.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    served.end().await;
}

const OPEN: &str = "--authorization-always-allow-paths=/*";

#[tokio::test]
async fn a_scraper_gets_prometheus_text_unless_it_prefers_open_metrics() {
    let served = Served::start(&[OPEN], None).await;
    let (_, head, body) = served.ask("GET", "/metrics", None, "", "").await;
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!body.contains("# EOF") && body.contains("# TYPE service_controller_loadbalancer_sync_total counter"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let (_, head, body) = served.ask("GET", "/metrics", None, accept, "").await;
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE service_controller_loadbalancer_sync counter"));
    served.end().await;
}

#[tokio::test]
async fn what_the_checks_said_is_counted_until_it_is_reset() {
    let served = Served::start(&[OPEN], None).await;
    served.health.register("leaderElection", || Ok(()));
    served
        .health
        .register("service-lb-controller", || Err("it broke".into()));
    assert_eq!(served.get("/healthz", None).await.0, 500);
    assert_eq!(served.get("/healthz?exclude=service-lb-controller", None).await.0, 200);
    let (_, body) = served.get("/metrics/slis", None).await;
    for line in [
        "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 1",
        "kubernetes_healthcheck{name=\"service-lb-controller\",type=\"healthz\"} 0",
        "kubernetes_healthchecks_total{name=\"leaderElection\",type=\"healthz\",status=\"success\"} 2",
        "kubernetes_healthchecks_total{name=\"service-lb-controller\",type=\"healthz\",status=\"error\"} 1",
    ] {
        assert!(body.contains(line), "{line} is missing in\n{body}");
    }
    assert_eq!(served.ask("DELETE", "/metrics/slis", None, "", "").await.0, 200);
    assert!(
        !served
            .get("/metrics/slis", None)
            .await
            .1
            .contains("kubernetes_healthcheck")
    );
    served.health.remove("service-lb-controller");
    assert_eq!(served.get("/healthz", None).await.0, 200);
    served.end().await;
}

#[tokio::test]
async fn the_settings_have_the_form_of_the_incumbents_configuration() {
    let served = Served::start(
        &[OPEN, "--leader-elect-lease-duration=30s", "--controllers=*,-route"],
        None,
    )
    .await;
    let (status, body) = served.get("/configz", None).await;
    assert_eq!(status, 200);
    let body: Value = serde_json::from_str(&body).unwrap();
    let config = &body["cloudcontrollermanager.config.k8s.io"];
    assert_eq!(config["kind"], "CloudControllerManagerConfiguration");
    assert_eq!(config["apiVersion"], "cloudcontrollermanager.config.k8s.io/v1alpha1");
    assert_eq!(config["Generic"]["LeaderElection"]["leaseDuration"], "30s");
    assert_eq!(config["Generic"]["Controllers"], json!(["*", "-route"]));
    assert_eq!(config["KubeCloudShared"]["CloudProvider"]["Name"], "aws");
    assert_eq!(config["NodeStatusUpdateFrequency"], "5m0s");
    served.end().await;
}

#[tokio::test]
async fn the_verbosity_is_changed_by_a_put_and_profiles_are_refused_with_a_reason() {
    let served = Served::start(&[OPEN], None).await;
    let put = |body: &'static str| served.ask("PUT", "/debug/flags/v", None, "", body);
    assert_eq!(put("4").await.2, "successfully set klog.logging.verbosity to 4\n");
    for wrong in ["", "-1", "much"] {
        assert_eq!(put(wrong).await.0, 400, "{wrong}");
    }
    assert_eq!(served.get("/debug/flags/v", None).await.0, 406);
    let (status, body) = served.get("/debug/pprof/heap", None).await;
    assert_eq!(status, 404);
    assert!(body.contains("no profiles"), "{body}");
    served.end().await;
    let served = Served::start(&[OPEN, "--profiling=false"], None).await;
    assert_eq!(served.ask("PUT", "/debug/flags/v", None, "", "4").await.0, 404);
    served.end().await;
}
