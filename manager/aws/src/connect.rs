//! Making the clients.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_types::timeout::TimeoutConfig;

use crate::call_observer::Observing;
use crate::ec2::adapter::SdkEc2;
use crate::elb::adapter::SdkElb;
use crate::elbv2::adapter::SdkElbv2;
use crate::retry::NotWhenThrottled;
use crate::{CallObserver, Ec2, Elb, Elbv2, Settings, SettingsError, endpoint, http_client};

/// Longest time for one call, its repetitions included.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Application name in the user agent when the settings name none.
const APP_NAME: &str = "outrigger-manager";

/// Session name of the assumed role, as it shows in AWS's audit trail, or its beginning.
const SESSION_NAME: &str = "outrigger-manager";

/// Characters of a session name:
/// <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>.
const LONGEST_SESSION_NAME: usize = 64;

/// One client per AWS service.
#[derive(Clone)]
pub struct Clients {
    pub ec2: Arc<dyn Ec2>,
    /// Classic load balancers.
    pub elb: Arc<dyn Elb>,
    /// Network load balancers.
    pub elbv2: Arc<dyn Elbv2>,
}

/// Makes the clients. Without [`Settings::keys_file`], credentials and the endpoints that no setting names come from the
/// SDK's default chain (environment, profile, web identity, container, instance metadata; `AWS_ENDPOINT_URL` and its kin).
///
/// No call is sent. A call takes at most 30 s and is tried at most three times, as AWS's SDKs do by default;
/// `AWS_MAX_ATTEMPTS` changes that number. The SDK does not retry a throttled call: [`crate::limit`] does. `observer`
/// is called at the end of each call, including calls of STS.
///
/// # Errors
/// When a setting cannot be used.
pub async fn connect(settings: &Settings, observer: Arc<dyn CallObserver>) -> Result<Clients, SettingsError> {
    if settings.region.is_empty() {
        return Err(SettingsError::NoRegion);
    }

    let resolver = |spellings| settings.endpoint(spellings).map(endpoint::resolver).transpose();
    let ec2_endpoint = resolver(["EC2", "ec2"])?;
    // Both APIs of load balancers have one old spelling.
    let elb_endpoint = resolver(["Elastic Load Balancing", "elasticloadbalancing"])?;
    let elbv2_endpoint = resolver(["Elastic Load Balancing v2", "elasticloadbalancing"])?;
    let observing = Observing(observer);
    let config = with_role(base(settings).await?, settings, &observing)?;

    let mut ec2 = aws_sdk_ec2::config::Builder::from(&config)
        .interceptor(observing.clone())
        .retry_classifier(NotWhenThrottled);

    if ec2_endpoint.is_some() {
        ec2.set_endpoint_resolver(ec2_endpoint);
    }

    let mut elb = aws_sdk_elasticloadbalancing::config::Builder::from(&config)
        .interceptor(observing.clone())
        .retry_classifier(NotWhenThrottled);
    if elb_endpoint.is_some() {
        elb.set_endpoint_resolver(elb_endpoint);
    }

    let mut elbv2 = aws_sdk_elasticloadbalancingv2::config::Builder::from(&config)
        .interceptor(observing)
        .retry_classifier(NotWhenThrottled);
    if elbv2_endpoint.is_some() {
        elbv2.set_endpoint_resolver(elbv2_endpoint);
    }

    Ok(Clients {
        ec2: Arc::new(SdkEc2 {
            client: aws_sdk_ec2::Client::from_conf(ec2.build()),
        }),
        elb: Arc::new(SdkElb {
            client: aws_sdk_elasticloadbalancing::Client::from_conf(elb.build()),
        }),
        elbv2: Arc::new(SdkElbv2 {
            client: aws_sdk_elasticloadbalancingv2::Client::from_conf(elbv2.build()),
        }),
    })
}

/// Region, HTTP client, time-outs, user agent and the default credentials.
async fn base(settings: &Settings) -> Result<SdkConfig, SettingsError> {
    let name = if settings.app_name.is_empty() {
        APP_NAME
    } else {
        &settings.app_name
    };
    let app_name = AppName::new(name.to_owned()).map_err(|_| SettingsError::AppName(name.to_owned()))?;
    let timeouts = TimeoutConfig::builder().operation_timeout(OPERATION_TIMEOUT).build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(settings.region.clone()))
        .app_name(app_name)
        .http_client(http_client::client(settings)?)
        .timeout_config(timeouts);
    if let Some(file) = &settings.keys_file {
        file.check()?;
        loader = loader
            .credentials_provider(file.clone())
            .profile_files(without_credentials_file());
    }

    Ok(loader.load().await)
}

/// The files from which the SDK takes settings: that of `AWS_CONFIG_FILE`, and not that of `AWS_SHARED_CREDENTIALS_FILE`.
#[expect(deprecated, reason = "the new name is in a crate that nothing else here needs")]
fn without_credentials_file() -> aws_config::profile::profile_file::ProfileFiles {
    aws_config::profile::profile_file::ProfileFiles::builder()
        .include_default_config_file(true)
        .build()
}

/// The same with the credentials of the role, if one is set.
fn with_role(config: SdkConfig, settings: &Settings, observing: &Observing) -> Result<SdkConfig, SettingsError> {
    let source_arn = settings.checked_source_arn()?;
    let Some(role_arn) = settings.role_arn.as_deref().filter(|arn| !arn.is_empty()) else {
        return Ok(config);
    };

    let account = Settings::role_account(role_arn)?;
    let sts = aws_sdk_sts::config::Builder::from(&config).interceptor(observing.clone());
    let sts = aws_sdk_sts::Client::from_conf(sts.build());
    let role = AssumedRole {
        sts,
        role_arn: role_arn.into(),
        session_name: session_name(&settings.session_of),
        account: account.into(),
        source_arn: source_arn.map(str::to_owned),
    };

    let builder = config.into_builder();
    let provider = SharedCredentialsProvider::new(role);
    Ok(builder.credentials_provider(provider).build())
}

/// Credentials of an assumed role.
///
/// The SDK's own provider cannot send the two headers that a role's trust policy checks against the confused deputy
/// problem, so this one exists. The SDK caches what it returns.
#[derive(Debug)]
struct AssumedRole {
    sts: aws_sdk_sts::Client,
    role_arn: String,
    session_name: String,
    /// For the header `x-amz-source-account`.
    account: String,
    /// For the header `x-amz-source-arn`.
    source_arn: Option<String>,
}

/// The managers of many clusters may assume roles of one account: its audit trail tells them apart by this name.
fn session_name(cluster: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    let cluster = cluster.chars().map(|c| if allowed(c) { c } else { '-' });
    let separator = if cluster.clone().next().is_some() { "@" } else { "" };
    let name = SESSION_NAME.chars().chain(separator.chars()).chain(cluster);
    name.take(LONGEST_SESSION_NAME).collect()
}

impl AssumedRole {
    async fn assume(&self) -> provider::Result {
        let (account, source_arn) = (self.account.clone(), self.source_arn.clone());
        let output = self
            .sts
            .assume_role()
            .role_arn(&self.role_arn)
            .role_session_name(&self.session_name)
            .customize()
            .mutate_request(move |request| {
                request.headers_mut().insert("x-amz-source-account", account.clone());
                if let Some(arn) = &source_arn {
                    request.headers_mut().insert("x-amz-source-arn", arn.clone());
                }
            })
            .send()
            .await
            .map_err(CredentialsError::provider_error)?;
        let Some(given) = output.credentials else {
            return Err(CredentialsError::unhandled("AssumeRole answered without credentials"));
        };

        let expires = SystemTime::try_from(given.expiration).map_err(CredentialsError::unhandled)?;
        Ok(Credentials::new(
            given.access_key_id,
            given.secret_access_key,
            Some(given.session_token),
            Some(expires),
            "AssumedRole",
        ))
    }
}

impl ProvideCredentials for AssumedRole {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.assume())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;

    #[test]
    fn the_session_name_has_the_cluster_as_far_as_aws_allows_it() {
        assert_eq!(session_name(""), "outrigger-manager");
        assert_eq!(session_name("prod"), "outrigger-manager@prod");
        assert_eq!(session_name("p/ü:1"), "outrigger-manager@p---1");
        let longest = session_name(&"a".repeat(200));
        assert_eq!(longest.len(), LONGEST_SESSION_NAME);
    }

    #[tokio::test]
    async fn without_a_region_the_error_names_the_key_to_set() {
        let error = connect(&Settings::default(), Arc::new(Unobserved))
            .await
            .err()
            .map(|e| e.to_string());
        assert!(error.is_some_and(|text| text.contains("set --region, or Region (or Zone) in section [Global]")));
    }

    #[tokio::test]
    async fn a_broken_role_is_found_before_any_call() {
        let settings = Settings {
            region: "eu-central-1".into(),
            role_arn: Some("nonsense".into()),
            ..Settings::default()
        };
        assert_eq!(
            connect(&settings, Arc::new(Unobserved)).await.err(),
            Some(SettingsError::RoleArn("nonsense".into()))
        );
    }

    #[tokio::test]
    async fn a_region_alone_is_enough() {
        let settings = Settings {
            region: "eu-central-1".into(),
            ..Settings::default()
        };
        assert!(connect(&settings, Arc::new(Unobserved)).await.is_ok());
    }
}
