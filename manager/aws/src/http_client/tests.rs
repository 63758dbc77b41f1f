use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::Proxies;

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
