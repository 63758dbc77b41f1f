//! An endpoint that the cloud configuration puts in the place of AWS's own.

use aws_smithy_runtime_api::client::endpoint::{
    EndpointFuture, EndpointResolverParams, ResolveEndpoint, SharedEndpointResolver,
};
use aws_smithy_types::endpoint::{Endpoint, EndpointAuthScheme};

use crate::{EndpointOverride, SettingsError};

/// One endpoint for every call, and what is signed for it.
#[derive(Debug, Clone)]
struct Fixed(Endpoint);

impl ResolveEndpoint for Fixed {
    fn resolve_endpoint<'a>(&'a self, _: &'a EndpointResolverParams) -> EndpointFuture<'a> {
        EndpointFuture::ready(Ok(self.0.clone()))
    }
}

/// The endpoint resolver of a `ServiceOverride` section. Its `SigningRegion` and `SigningName` may differ from the
/// region and the service that are called; if they are empty, those of the client apply.
pub(crate) fn resolver(section: &EndpointOverride) -> Result<SharedEndpointResolver, SettingsError> {
    let url = section.url.trim();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(SettingsError::EndpointUrl {
            service: section.service.clone(),
            url: section.url.clone(),
        });
    }

    let mut scheme = EndpointAuthScheme::with_capacity("sigv4", 2);
    for (property, text) in [
        ("signingRegion", &section.signing_region),
        ("signingName", &section.signing_name),
    ] {
        if !text.trim().is_empty() {
            scheme = scheme.put(property, text.trim().to_owned());
        }
    }

    let endpoint = Endpoint::builder().url(url.to_owned()).auth_scheme(scheme).build();
    Ok(SharedEndpointResolver::new(Fixed(endpoint)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use aws_config::{BehaviorVersion, Region};
    use aws_credential_types::Credentials;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// The header `Authorization` of a call that goes to the endpoint of `section`, whose URL is filled in here.
    async fn authorization(mut section: EndpointOverride) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        section.url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, hear) = mpsc::channel();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 8192];
            let length = stream.read(&mut head).await.unwrap();
            heard
                .send(String::from_utf8_lossy(&head[..length]).into_owned())
                .unwrap();
        });
        let mut config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("AKID", "secret", None, None, "test"))
            .retry_config(aws_sdk_ec2::config::retry::RetryConfig::disabled());
        config.set_endpoint_resolver(Some(resolver(&section).unwrap()));
        let client = aws_sdk_ec2::Client::from_conf(config.build());
        assert!(client.describe_instances().send().await.is_err(), "nobody answers");
        let head = hear.recv().unwrap();
        let line = head
            .lines()
            .find(|line| line.to_lowercase().starts_with("authorization"));
        line.unwrap_or_else(|| panic!("{head}")).to_owned()
    }

    #[tokio::test]
    async fn a_call_is_signed_for_the_region_and_the_name_of_the_section() {
        let plain = authorization(EndpointOverride::default()).await;
        assert!(plain.contains("/us-east-1/ec2/aws4_request"), "{plain}");
        let elsewhere = EndpointOverride {
            signing_region: " eu-west-3 ".into(),
            signing_name: "execute-api".into(),
            ..EndpointOverride::default()
        };
        let signed = authorization(elsewhere).await;
        assert!(signed.contains("/eu-west-3/execute-api/aws4_request"), "{signed}");
    }
}
