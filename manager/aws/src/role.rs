//! Assuming a role.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, future};

/// Session name of the assumed role, as it shows in AWS's audit trail.
const SESSION_NAME: &str = "outrigger-manager";

/// Credentials of an assumed role.
///
/// The SDK's own provider cannot send the two headers that a role's trust policy checks against the confused deputy
/// problem, so this one exists. The SDK caches what it returns.
#[derive(Debug)]
pub(crate) struct AssumedRole {
    sts: aws_sdk_sts::Client,
    role_arn: String,
    account: String,
    source_arn: Option<String>,
}

impl AssumedRole {
    /// A provider for the role; `account` goes into the header `x-amz-source-account`.
    pub(crate) fn new(sts: aws_sdk_sts::Client, role_arn: &str, account: &str, source_arn: Option<&str>) -> Self {
        Self {
            sts,
            role_arn: role_arn.into(),
            account: account.into(),
            source_arn: source_arn.map(str::to_owned),
        }
    }

    async fn assume(&self) -> provider::Result {
        let (account, source_arn) = (self.account.clone(), self.source_arn.clone());
        let output = self
            .sts
            .assume_role()
            .role_arn(&self.role_arn)
            .role_session_name(SESSION_NAME)
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
