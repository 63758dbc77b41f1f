use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::Proxies;
use crate::limit::{Priority, WaitFlag};

const SHORT: Duration = Duration::from_millis(100);

fn caller(http_proxy: &str, connect_timeout: Option<Duration>, read_timeout: Option<Duration>) -> Caller {
    let proxies = Proxies::from_environment(|name| (name == "HTTP_PROXY").then(|| http_proxy.to_owned()));
    let paths = Paths::new(&proxies.unwrap(), tcp::connector(None), tls_config(None).unwrap());
    Caller::new(Arc::new(paths), connect_timeout, read_timeout)
}

fn request(url: &str) -> HttpRequest {
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_uri(url).unwrap();
    request
}

/// A server that reads one request and answers it with `answer`, or not at all. Returns its address.
async fn server(answer: Option<&'static str>) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.unwrap();
        match answer {
            Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            None => std::future::pending().await,
        }
        String::from_utf8_lossy(&buffer[..length]).to_lowercase()
    });
    (address, served)
}

#[tokio::test]
async fn a_request_to_the_proxy_of_http_has_the_whole_url_and_the_credentials() {
    let (proxy, served) = server(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let caller = caller(&format!("http://user:pw@{proxy}"), None, None);
    let answer = caller.call(request("http://ec2.outrigger.test/path")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);

    let head = served.await.unwrap();
    assert!(
        head.starts_with("get http://ec2.outrigger.test/path http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("\r\nproxy-authorization: basic dxnlcjpwdw==\r\n"),
        "{head}"
    );
}

async fn failure(caller: &Caller, url: &str) -> ConnectorError {
    let answer = caller.call(request(url)).await;
    answer.expect_err("no answer")
}

#[tokio::test]
async fn failures_have_the_kinds_that_the_sdk_retries() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = failure(&caller("", None, None), &format!("http://{closed}/")).await;
    assert!(refused.is_io(), "{refused:?}");

    let (ending, _) = server(Some("")).await;
    let unanswered = failure(&caller("", None, None), &format!("http://{ending}/")).await;
    assert_eq!(unanswered.as_other(), Some(ErrorKind::TransientError), "{unanswered:?}");

    let (silent, _) = server(None).await;
    let slow = failure(&caller("", None, Some(SHORT)), &format!("http://{silent}/")).await;
    assert!(slow.is_timeout(), "{slow:?}");

    let (silent, _) = server(None).await;
    let no_handshake = failure(&caller("", Some(SHORT), None), &format!("https://{silent}/")).await;
    assert!(no_handshake.is_timeout(), "{no_handshake:?}");
}

#[test]
fn what_is_no_certificate_is_an_error() {
    let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(tls_config(Some(pem)), Err(SettingsError::Tls(_))));
}

/// The write of a manager that has lost its lease.
#[tokio::test]
async fn a_call_that_may_not_be_sent_is_refused_before_its_first_byte() {
    let (address, served) = server(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let (caller, url) = (caller("", None, None), format!("http://{address}/"));
    let refused = WaitFlag::of(|| false);
    let error = refused.run(caller.call(request(&url))).await.unwrap_err();
    assert!(error.is_user() && refused.was_refused(), "{error:?}");
    assert!(!served.is_finished() && !refused.has_unanswered_attempt());

    let allowed = WaitFlag::of(|| true);
    assert!(allowed.run(caller.call(request(&url))).await.is_ok());
    assert!(!allowed.was_refused() && !allowed.has_unanswered_attempt());
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_known_and_one_that_was_not_sent_is_none() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let unsent = WaitFlag::of(|| true);
    let refused = caller("", None, None);
    assert!(
        unsent
            .run(refused.call(request(&format!("http://{closed}/"))))
            .await
            .is_err()
    );
    assert!(!unsent.has_unanswered_attempt());

    let gateway = "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\n\r\n";
    let (address, _served) = server(Some(gateway)).await;
    let gave_up = WaitFlag::of(|| true);
    let url = format!("http://{address}/");
    assert!(gave_up.run(refused.call(request(&url))).await.is_ok());
    assert!(gave_up.has_unanswered_attempt());

    for (answer, read_timeout) in [(Some(""), None), (None, Some(SHORT))] {
        let (address, _served) = server(answer).await;
        let sent = WaitFlag::of(|| true);
        let caller = caller("", None, read_timeout);
        assert!(
            sent.run(caller.call(request(&format!("http://{address}/"))))
                .await
                .is_err()
        );
        assert!(sent.has_unanswered_attempt(), "{answer:?}");
    }
}

/// The fence ends while a connection is set up.
#[tokio::test]
async fn a_call_whose_connection_comes_too_late_is_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // The first step begins to connect.
    let late = WaitFlag::of(move || counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0);
    let error = late
        .run(caller("", None, None).call(request(&format!("http://{address}/"))))
        .await;
    assert!(error.unwrap_err().is_user() && late.was_refused() && !late.has_unanswered_attempt());

    let (mut stream, _) = listener.accept().await.unwrap();
    let mut byte = [0];
    assert_eq!(stream.read(&mut byte).await.unwrap(), 0, "nothing was sent");
}

#[tokio::test]
async fn a_request_of_a_dry_run_says_so_whatever_the_priority_of_its_parts() {
    let (address, served) = server(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let mut request = request(&format!("http://{address}/"));
    request.headers_mut().insert("user-agent", "aws-sdk-rust/1");
    let caller = caller("", None, None);
    let part = Priority::Initialize.run(async { caller.call(request).await });
    Priority::DryRun.run(part).await.unwrap();

    let head = served.await.unwrap();
    assert!(head.contains("\r\nuser-agent: aws-sdk-rust/1 dry-run\r\n"), "{head}");
}
