//! Callers with certificates: their own, and those of front proxies.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod serving_support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use outrigger_manager::serving::Authorities;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use serving_support::{Identity, Served, options, reviewer};

/// An authority and its certificate in PEM.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for a user of at most one group.
    fn issue(&self, name: &str, group: Option<&str>) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }
}

fn api() -> Option<kube::Client> {
    Some(reviewer(Arc::default()))
}

async fn status(served: &Served, identity: Option<&Identity>, path: &str, headers: &str) -> u16 {
    served.ask_as(identity, "GET", path, headers, "").await.0
}

#[tokio::test]
async fn a_certificate_names_the_user_and_its_groups() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, &ours.pem).unwrap();
    let served = Served::start(&[&format!("--client-ca-file={}", file.display())], api()).await;
    let scraper = ours.issue("scraper", None);
    assert_eq!(status(&served, Some(&scraper), "/metrics", "").await, 200);
    assert_eq!(status(&served, Some(&scraper), "/configz", "").await, 403);
    let other = ours.issue("other", Some("system:monitoring"));
    assert_eq!(status(&served, Some(&other), "/metrics", "").await, 403);
    let master = ours.issue("admin", Some("system:masters"));
    assert_eq!(status(&served, Some(&master), "/configz", "").await, 200);
    let stranger = foreign.issue("scraper", Some("system:masters"));
    assert_eq!(status(&served, Some(&stranger), "/metrics", "").await, 401);
    assert_eq!(
        status(&served, Some(&stranger), "/healthz", "").await,
        200,
        "probes stay open"
    );
    let token = "Authorization: Bearer good\r\n";
    assert_eq!(
        status(&served, Some(&stranger), "/metrics", token).await,
        200,
        "the token counts"
    );
    served.end().await;
}

#[tokio::test]
async fn only_a_front_proxy_may_say_who_calls() {
    let (users, proxies) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        std::fs::write(folder.path().join(name), pem).unwrap();
        folder.path().join(name).display().to_string()
    };
    let flags = [
        format!("--client-ca-file={}", file("users", &users.pem)),
        format!("--requestheader-client-ca-file={}", file("proxies", &proxies.pem)),
        "--requestheader-allowed-names=front-proxy".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let served = Served::start(&flags, api()).await;
    let (scraper, master) = (
        "X-Remote-User: scraper\r\n",
        "X-Remote-User: a\r\nX-Remote-Group: system:masters\r\n",
    );
    let proxy = proxies.issue("front-proxy", None);
    assert_eq!(status(&served, Some(&proxy), "/metrics", scraper).await, 200);
    assert_eq!(status(&served, Some(&proxy), "/configz", scraper).await, 403);
    assert_eq!(status(&served, Some(&proxy), "/configz", master).await, 200);
    assert_eq!(
        status(&served, None, "/configz", master).await,
        403,
        "anyone can write headers"
    );
    let user = users.issue("front-proxy", None);
    assert_eq!(
        status(&served, Some(&user), "/configz", master).await,
        403,
        "a user is no proxy"
    );
    let unnamed = proxies.issue("someone", None);
    assert_eq!(
        status(&served, Some(&unnamed), "/configz", master).await,
        401,
        "not an allowed name"
    );
    served.end().await;
}

/// An API server with the ConfigMap of authorities: at first with `before`, then it changes to `after`.
fn config_map(before: String, after: String, watches: Arc<AtomicUsize>) -> kube::Client {
    let object = |version: &str, pem: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": version},
            "data": {
                "requestheader-client-ca-file": pem,
                "requestheader-allowed-names": "[]",
                "requestheader-username-headers": "[\"X-Remote-User\"]",
            },
        })
    };
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"},
        "items": [object("1", &before)],
    });
    let event = json!({"type": "MODIFIED", "object": object("2", &after)});
    let service = tower::service_fn(move |request: Request<Body>| {
        let (list, event, watches) = (list.to_string(), event.to_string(), Arc::clone(&watches));
        async move {
            let path = request.uri().path();
            assert_eq!(path, "/api/v1/namespaces/kube-system/configmaps");
            let watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let body = if watch {
                while watches.load(Ordering::SeqCst) == 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                if watches.fetch_add(1, Ordering::SeqCst) > 1 {
                    std::future::pending::<()>().await;
                }
                format!("{event}\n")
            } else {
                list
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
        }
    });
    kube::Client::new(service, "default")
}

/// Asks until the answer is this one.
async fn becomes(served: &Served, identity: &Identity, wanted: u16) {
    for _ in 0..2000 {
        if status(served, Some(identity), "/metrics", "X-Remote-User: scraper\r\n").await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it never became {wanted}");
}

#[tokio::test]
async fn the_authorities_of_the_cluster_are_followed() {
    let (before, after) = (Authority::new(), Authority::new());
    let change = Arc::new(AtomicUsize::new(0));
    let follower = config_map(before.pem.clone(), after.pem.clone(), Arc::clone(&change));
    let served = Served::following(&[], api(), Some(follower)).await;
    let (old, new) = (before.issue("any", None), after.issue("any", None));
    becomes(&served, &old, 200).await;
    assert_eq!(
        status(&served, Some(&new), "/metrics", "X-Remote-User: scraper\r\n").await,
        403
    );
    change.store(1, Ordering::SeqCst);
    becomes(&served, &new, 200).await;
    assert_eq!(
        status(&served, Some(&old), "/metrics", "X-Remote-User: scraper\r\n").await,
        403
    );
    served.end().await;
}

#[test]
fn a_file_without_authorities_ends_the_start_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.crt");
    for content in ["", "no PEM"] {
        std::fs::write(&file, content).unwrap();
        let settings = options(&[&format!("--client-ca-file={}", file.display())]).authentication;
        let error = Authorities::load(&settings).err().unwrap().to_string();
        assert!(
            error.contains("--client-ca-file=") && error.contains("empty.crt"),
            "{error}"
        );
    }
}
