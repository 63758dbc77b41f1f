//! The settings of the AWS clients.

use std::time::Duration;

use crate::{KeysFile, KeysFileError, Proxies};

/// Where and as whom to call AWS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Region of all clients, for example `eu-central-1`. The environment's region is not consulted.
    pub region: String,
    /// Endpoints that replace AWS's own, as the cloud config's `ServiceOverride` sections list them.
    pub endpoints: Vec<EndpointOverride>,
    /// The only source of credentials, a file that another principal may write. Only keys are read from it, and nothing from the
    /// file of `AWS_SHARED_CREDENTIALS_FILE`. No such principal may write the file of `AWS_CONFIG_FILE`.
    pub keys_file: Option<KeysFile>,
    /// Role to assume with the credentials (`RoleARN`).
    pub role_arn: Option<String>,
    /// The resource on whose behalf the role is assumed (`SourceARN`), sent as `x-amz-source-arn`.
    pub source_arn: Option<String>,
    /// The cluster, which the session name of an assumed role has after `outrigger-manager@`, as far as AWS allows its
    /// characters and its length. Empty: the session name is `outrigger-manager`.
    pub session_of: String,
    /// Name in the user agent of every call, `outrigger-manager` when empty. Letters, digits and `!#$%&'*+-.^_|~`.
    pub app_name: String,
    /// Proxies of all clients, of STS and single sign-on too.
    pub proxies: Proxies,
    /// PEM certificates of the authorities that all clients trust instead of the system's.
    pub ca_bundle: Option<Vec<u8>>,
    /// How long a byte that was sent may be unacknowledged, see [`crate::tcp::connector`].
    pub tcp_user_timeout: Option<Duration>,
}

/// One `ServiceOverride` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOverride {
    /// `EC2`, `Elastic Load Balancing` or `Elastic Load Balancing v2` as current SDKs spell it, or `ec2` or
    /// `elasticloadbalancing` (both generations) as the in-tree provider does. Other services are ignored.
    pub service: String,
    /// The region to which the override applies. Overrides for other regions are ignored.
    pub region: String,
    /// The endpoint, with scheme.
    pub url: String,
    /// Region to sign for; empty means the clients' own.
    pub signing_region: String,
    /// Name of the service to sign for; empty means the service's own.
    pub signing_name: String,
}

/// A setting with which no client can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("no AWS region: set --region, or Region (or Zone) in section [Global] of the cloud config")]
    NoRegion,
    #[error(
        "RoleARN {0:?} in section [Global] of the cloud config is not the ARN of a role: expected arn:PARTITION:iam::ACCOUNT:role/NAME"
    )]
    RoleArn(String),
    /// The ARN cannot be sent as a header.
    #[error(
        "SourceARN {0:?} in section [Global] of the cloud config is not an ARN: expected arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE"
    )]
    SourceArn(String),
    #[error(transparent)]
    KeysFile(#[from] KeysFileError),
    #[error("URL {url:?} in the ServiceOverride for service {service:?} is not an http:// or https:// URL")]
    EndpointUrl { service: String, url: String },
    /// The name cannot stand in a user agent.
    #[error("application name {0:?} may contain only letters, digits and !#$%&'*+-.^_|~")]
    AppName(String),
    #[error(
        "{variable} {value:?} is not a proxy URL: expected http://HOST:PORT or https://HOST:PORT, or unset the variable"
    )]
    Proxy {
        /// The variable as it was found.
        variable: &'static str,
        /// Its value without user and password.
        value: String,
    },
    /// The HTTP client does not take the TLS settings.
    #[error("the TLS settings of the AWS clients cannot be used: {0}")]
    Tls(String),
}

impl Settings {
    /// The section whose endpoint replaces AWS's own for the service of these spellings, the first spelling first.
    pub(crate) fn endpoint(&self, spellings: [&str; 2]) -> Option<&EndpointOverride> {
        spellings.iter().find_map(|name| {
            self.endpoints
                .iter()
                .find(|e| e.service.trim() == *name && e.region.trim() == self.region)
        })
    }

    /// The account in the role's ARN.
    pub(crate) fn role_account(arn: &str) -> Result<&str, SettingsError> {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        match parts.as_slice() {
            ["arn", _, "iam", _, account, resource] if resource.starts_with("role/") && is_header_text(arn) => {
                Ok(account)
            }
            _ => Err(SettingsError::RoleArn(arn.to_owned())),
        }
    }

    /// The source ARN, checked for what a header can carry.
    pub(crate) fn checked_source_arn(&self) -> Result<Option<&str>, SettingsError> {
        match self.source_arn.as_deref().filter(|arn| !arn.is_empty()) {
            None => Ok(None),
            Some(arn) if arn.starts_with("arn:") && arn.splitn(6, ':').count() == 6 && is_header_text(arn) => {
                Ok(Some(arn))
            }
            Some(arn) => Err(SettingsError::SourceArn(arn.to_owned())),
        }
    }
}

/// Whether the text is visible ASCII, which a header's value can hold.
fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(service: &str, region: &str, url: &str) -> EndpointOverride {
        EndpointOverride {
            service: service.into(),
            region: region.into(),
            url: url.into(),
            ..EndpointOverride::default()
        }
    }

    fn settings(endpoints: Vec<EndpointOverride>) -> Settings {
        Settings {
            region: "eu-central-1".into(),
            endpoints,
            ..Settings::default()
        }
    }

    const ELB: [&str; 2] = ["Elastic Load Balancing", "elasticloadbalancing"];

    fn url(endpoints: Vec<EndpointOverride>) -> Option<String> {
        settings(endpoints).endpoint(ELB).map(|section| section.url.clone())
    }

    #[test]
    fn both_spellings_of_a_service_match_and_the_current_one_wins() {
        let old = section("elasticloadbalancing", "eu-central-1", "http://old");
        let new = section("Elastic Load Balancing", "eu-central-1", "http://new");
        assert_eq!(url(vec![old.clone()]).as_deref(), Some("http://old"));
        assert_eq!(url(vec![old, new]).as_deref(), Some("http://new"));
    }

    #[test]
    fn sections_of_another_region_or_service_do_not_count() {
        let other = vec![
            section("Elastic Load Balancing v2", "eu-central-1", "http://v2"),
            section("elasticloadbalancing", "us-east-1", "http://us"),
        ];
        assert_eq!(url(other), None);
    }

    #[test]
    fn the_old_spelling_stands_for_both_generations_of_load_balancers() {
        let old = settings(vec![section("elasticloadbalancing", "eu-central-1", "http://old")]);
        let elbv2 = old.endpoint(["Elastic Load Balancing v2", "elasticloadbalancing"]);
        assert_eq!(elbv2, old.endpoint(ELB));
        let new = settings(vec![section("Elastic Load Balancing", "eu-central-1", "http://new")]);
        assert_eq!(
            new.endpoint(["Elastic Load Balancing v2", "elasticloadbalancing"]),
            None
        );
    }

    #[test]
    fn what_is_no_url_is_refused_by_name() {
        let bad = section("elasticloadbalancing", "eu-central-1", "moto:5000");
        let error = crate::endpoint::resolver(&bad).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("moto:5000"), "{error}");
    }

    #[test]
    fn a_role_arn_gives_its_account_and_other_text_is_refused() {
        assert_eq!(
            Settings::role_account("arn:aws:iam::123456789012:role/path/ccm"),
            Ok("123456789012")
        );
        for text in [
            "",
            "role/ccm",
            "arn:aws:sts::1:assumed-role/x",
            "arn:aws:iam::1:role/a b",
        ] {
            assert!(Settings::role_account(text).is_err(), "{text}");
        }
    }
}
