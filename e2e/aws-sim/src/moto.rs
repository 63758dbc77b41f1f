//! moto's server: the simulated account's state.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};

use outrigger_cluster_harness::loopback::{LoopbackClient, expect_ok};
use outrigger_cluster_harness::process::{Launch, Process, free_port};
use outrigger_cluster_harness::tools::{Tool, Tools};

use super::error::AwsError;
use super::query::{Parameters, Query};
use super::service::{LOCAL_ZONE, REGION, Service};
use super::xml::Element;

/// A running moto with one account. The harness itself calls it directly, past the proxy, so that its own calls are
/// neither recorded nor limited.
#[derive(Debug)]
pub struct Moto {
    _process: Process,
    url: String,
    client: LoopbackClient,
}

impl Moto {
    /// Starts moto with its log in `run`. Ready in 2 to 4 s.
    ///
    /// # Errors
    /// When it is not installed or does not answer within 90 s.
    pub async fn start(tools: &Tools, run: &Path) -> Result<Self, AwsError> {
        let program = tools.path(Tool::MotoPython)?;
        for _ in 0..2 {
            match Self::start_once(program, run).await {
                Err(AwsError::Process(error)) if error.lost_its_port() => {}
                other => return other,
            }
        }

        Self::start_once(program, run).await
    }

    async fn start_once(program: &Path, run: &Path) -> Result<Self, AwsError> {
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let launch = Launch::new("moto", program)
            .arguments(["-c", &server(), "--host", "127.0.0.1", "--port", &port.to_string()])
            .environment("PYTHONUNBUFFERED", "1")
            .environment("AWS_DEFAULT_REGION", REGION);
        let process = Process::start(&launch, run)?;
        let health = format!("{url}/moto-api/data.json");

        process
            .ready("answer over HTTP", Duration::from_secs(90), || expect_ok(&health))
            .await?;

        Ok(Self {
            _process: process,
            url,
            client: LoopbackClient::default(),
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls an action as the account's owner and returns the answer.
    ///
    /// # Errors
    /// [`AwsError::Refused`] with AWS's error code, or no answer at all.
    pub async fn call(&self, service: &Service, action: &str, parameters: Parameters) -> Result<Element, AwsError> {
        let query = Query::new(service, action, parameters);
        let response = self
            .client
            .post(&self.url, headers(service), query.encode().into())
            .await?;
        good(action, &response)
    }
}

/// Starts moto's server. moto has no local zones: this adds one. moto counts the rules of both address families together:
/// this leaves the quotas to the proxy. For each request moto lists its 180 folders and inspects
/// the class that answers, a third of the CPU time of a small answer: this caches both. Garbage collections take a third of
/// the start, which loads tens of megabytes of JSON: there are none until then, and what is loaded is not searched later.
fn server() -> String {
    format!(
        "import gc\n\
         gc.disable()\n\
         import functools\n\
         from moto import backends\n\
         from moto.core import responses\n\
         from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend, Zone\n\
         from moto.ec2.models.security_groups import SecurityGroupBackend\n\
         from moto.server import main\n\
         modules = frozenset(backends.list_of_moto_modules())\n\
         backends.list_of_moto_modules = lambda: modules\n\
         responses.method_names_from_class = functools.cache(responses.method_names_from_class)\n\
         SecurityGroupBackend._verify_group_will_respect_rule_count_limit = lambda *counts, **more: None\n\
         zone = Zone('{LOCAL_ZONE}', '{REGION}', 'use1-bos1-az1', 'local-zone')\n\
         RegionsAndZonesBackend.zones['{REGION}'].append(zone)\n\
         gc.freeze()\n\
         gc.enable()\n\
         main()\n"
    )
}

/// A good answer's body.
pub(super) fn good(action: &str, response: &Response<Bytes>) -> Result<Element, AwsError> {
    let status = response.status();
    let text = String::from_utf8_lossy(response.body());
    if status.is_success() {
        return Ok(Element::parse(&text)?);
    }

    let answer = Element::parse(&text).unwrap_or_else(|_| Element::text("Message", text.clone()));
    let of = |name: &str| {
        let found = answer.find(name);
        found.map(|element| element.text.clone()).unwrap_or_default()
    };
    Err(AwsError::Refused {
        action: action.to_owned(),
        status: status.as_u16(),
        code: of("Code"),
        message: of("Message"),
    })
}

/// Headers of a call by the account's owner.
pub(super) fn headers(service: &Service) -> HeaderMap {
    let credential = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAOUTRIGGERHARNESS/20260101/{REGION}/{}/aws4_request, \
         SignedHeaders=host, Signature=00",
        service.scope()
    );
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&credential) {
        headers.insert(AUTHORIZATION, value);
    }

    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );

    headers
}
