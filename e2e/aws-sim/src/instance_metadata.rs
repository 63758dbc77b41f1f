//! The instance metadata service (IMDS): each instance reads its own metadata, and is known by its address.
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html>

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use outrigger_cluster_harness::kubelets::Instance;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::error::AwsError;
use super::seeded_account::SeededAccount;
use super::service::REGION;

/// The interface of every instance.
const MAC: &str = "02:00:00:00:00:01";

/// A running service, without IAM roles. Dropping it stops it.
#[derive(Debug)]
pub struct InstanceMetadata {
    port: u16,
    task: JoinHandle<()>,
}

impl InstanceMetadata {
    /// Listens on a free port of loopback, for the instances that the account has now.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(account: &SeededAccount) -> Result<Self, AwsError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(serve(listener, Arc::new(account.clone())));
        Ok(Self { port, task })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for InstanceMetadata {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, account: Arc<SeededAccount>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let account = Arc::clone(&account);
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(&account, peer.ip(), request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the instance metadata service ended");
            }
        });
    }
}

fn answer(account: &SeededAccount, peer: IpAddr, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if method == Method::PUT && path == "/latest/api/token" {
        let mut response = Response::new(Full::from("token"));
        let lifetime = http::HeaderValue::from_static("21600");
        response
            .headers_mut()
            .insert("x-aws-ec2-metadata-token-ttl-seconds", lifetime);
        return response;
    }

    let peer = peer.to_string();
    let instance = account.instances.iter().find(|instance| instance.private_ip == peer);
    let text = path.strip_prefix("/latest/meta-data/");
    let text = instance.and_then(|instance| metadata(account, instance, text?.trim_end_matches('/')));
    let status = text.as_ref().map_or(StatusCode::NOT_FOUND, |_| StatusCode::OK);
    let mut response = Response::new(Full::from(text.unwrap_or_default()));
    *response.status_mut() = status;
    response
}

fn metadata(account: &SeededAccount, instance: &Instance, path: &str) -> Option<String> {
    let public = instance.public.as_ref();
    let text = match path {
        "instance-id" => &instance.id,
        "instance-type" => &instance.instance_type,
        "placement/availability-zone" => &instance.zone,
        "placement/region" => REGION,
        "local-ipv4" => &instance.private_ip,
        "local-hostname" | "hostname" => &instance.private_dns_name,
        "public-ipv4" => &public?.0,
        "public-hostname" => &public?.1,
        "mac" | "network/interfaces/macs" => MAC,
        path => match path.strip_prefix("network/interfaces/macs/")?.strip_prefix(MAC)? {
            "/device-number" => "0",
            "/local-ipv4s" => &instance.private_ip,
            "/vpc-id" => &account.vpc_id,
            "/subnet-id" => account.subnets.first().map_or("", |subnet| subnet.id.as_str()),
            _ => return None,
        },
    };
    Some(text.to_owned())
}
