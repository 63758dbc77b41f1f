//! The instance metadata service (IMDS): metadata of the instance that this process runs on.
//!
//! It is asked only for what nothing else gives, and it may be absent: a Pod without the host's network reaches it only where
//! the instance's hop limit is 2 or more, and off EC2 nothing answers at all. So all questions together get [`PATIENCE`].

use std::error::Error as StdError;
use std::time::Duration;

use aws_config::imds::client::error::ImdsError;
use aws_config::provider_config::ProviderConfig;

use crate::{InstanceId, http_client};

/// Longest time for all questions together.
pub const PATIENCE: Duration = Duration::from_secs(2);

const DISABLED: &str = "AWS_EC2_METADATA_DISABLED";
const ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
const MODE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE";

/// The own instance's metadata. A field is absent if the service does not have its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnInstance {
    /// The region, for example `us-east-1`.
    pub region: Option<String>,
    /// The availability zone, for example `us-east-1a`.
    pub zone: Option<String>,
    pub id: Option<InstanceId>,
    /// VPC of the first interface.
    pub vpc_id: Option<String>,
    /// Subnet of the first interface.
    pub subnet_id: Option<String>,
}

/// The service said nothing of use. The text names its address, so that a wrong override shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error("the instance metadata service is switched off by {DISABLED}")]
    Disabled,
    #[error("the address {0:?} of the instance metadata service is not an http:// URL")]
    Address(String),
    #[error(
        "the instance metadata service at {0} did not answer within {seconds} s (a Pod without hostNetwork needs a hop limit of 2)",
        seconds = PATIENCE.as_secs()
    )]
    Silent(String),
    #[error("the instance metadata service at {address} cannot be reached: {reason}")]
    Unreachable {
        address: String,
        /// The innermost cause.
        reason: String,
    },
    #[error("the instance metadata service at {address} rejects the request: {reason}")]
    Refused { address: String, reason: String },
}

/// Where the service is.
#[derive(Debug, Clone)]
pub struct Metadata {
    endpoint: Option<String>,
    /// For messages only.
    address: String,
    disabled: bool,
}

impl Metadata {
    /// The service at `endpoint`, if the cloud configuration names one, else where the environment and the SDK's profile say,
    /// else at its usual address. `environment` gives variables by name.
    #[must_use]
    pub fn new(endpoint: Option<&str>, environment: impl Fn(&str) -> Option<String>) -> Self {
        // The old SDK's endpoints ended in the version, which this one adds by itself.
        let bare = |url: &str| url.trim_end_matches('/').trim_end_matches("/latest").to_owned();
        let endpoint = endpoint.map(bare).or_else(|| environment(ENDPOINT));
        let usual = match environment(MODE) {
            Some(mode) if mode.eq_ignore_ascii_case("ipv6") => "http://[fd00:ec2::254]",
            _ => "http://169.254.169.254",
        };

        Self {
            address: endpoint.clone().unwrap_or_else(|| usual.to_owned()),
            endpoint,
            disabled: environment(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")),
        }
    }

    /// Where the service is looked for.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// All metadata of the own instance, from concurrent requests, within [`PATIENCE`].
    ///
    /// # Errors
    /// [`MetadataError`]. A path that the service does not know is no error.
    pub async fn own_instance(&self) -> Result<OwnInstance, MetadataError> {
        if self.disabled {
            return Err(MetadataError::Disabled);
        }
        if !self.address.starts_with("http://") && !self.address.starts_with("https://") {
            return Err(MetadataError::Address(self.address.clone()));
        }

        let answered = tokio::time::timeout(PATIENCE, self.ask()).await;
        answered.unwrap_or_else(|_| Err(MetadataError::Silent(self.address.clone())))
    }

    async fn ask(&self) -> Result<OwnInstance, MetadataError> {
        let service = self.client()?;
        // Alone, so that one session token serves all.
        let id = self.get(&service, "instance-id".into()).await?;
        let (region, zone, mac) = tokio::try_join!(
            self.get(&service, "placement/region".into()),
            self.get(&service, "placement/availability-zone".into()),
            self.get(&service, "mac".into()),
        )?;
        let (vpc_id, subnet_id) = match mac {
            Some(mac) => tokio::try_join!(
                self.get(&service, format!("network/interfaces/macs/{mac}/vpc-id")),
                self.get(&service, format!("network/interfaces/macs/{mac}/subnet-id")),
            )?,
            None => (None, None),
        };

        Ok(OwnInstance {
            region,
            zone,
            id: id.map(InstanceId::new),
            vpc_id,
            subnet_id,
        })
    }

    fn client(&self) -> Result<aws_config::imds::Client, MetadataError> {
        let direct = http_client::direct().map_err(|error| MetadataError::Unreachable {
            address: self.address.clone(),
            reason: error.to_string(),
        })?;
        let mut builder = aws_config::imds::Client::builder()
            // The SDK's own HTTP client would go through HTTP_PROXY, whose machine has another metadata service, or none.
            .configure(&ProviderConfig::without_region().with_http_client(direct))
            // Longer than the whole may take: the one limit is outside.
            .operation_timeout(2 * PATIENCE)
            .operation_attempt_timeout(2 * PATIENCE)
            .connect_timeout(2 * PATIENCE)
            .read_timeout(2 * PATIENCE)
            .max_attempts(2);

        if let Some(endpoint) = &self.endpoint {
            builder = builder
                .endpoint(endpoint)
                .map_err(|_| MetadataError::Address(endpoint.clone()))?;
        }

        Ok(builder.build())
    }

    /// The text at a path below `/latest/meta-data/`; `None` where there is none.
    async fn get(&self, service: &aws_config::imds::Client, path: String) -> Result<Option<String>, MetadataError> {
        match service.get(format!("/latest/meta-data/{path}")).await {
            Ok(text) => Ok(Some(text.as_ref().trim().to_owned()).filter(|text| !text.is_empty())),
            Err(ImdsError::ErrorResponse(answer)) if answer.response().status().as_u16() == 404 => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &ImdsError) -> MetadataError {
        let address = self.address.clone();
        match error {
            ImdsError::ErrorResponse(answer) => MetadataError::Refused {
                address,
                reason: format!("HTTP status {}", answer.response().status().as_u16()),
            },
            ImdsError::FailedToLoadToken(token) if !token.is_dispatch_failure() => MetadataError::Refused {
                address,
                reason: format!("no session token: {}", innermost(error)),
            },
            _ => MetadataError::Unreachable {
                address,
                reason: innermost(error),
            },
        }
    }
}

/// The innermost cause is the shortest message; the outer causes are the SDK's layers.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests;
