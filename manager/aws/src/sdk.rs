//! From the SDKs' errors to [`Error`].

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::{Error, Kind};

/// Treats an empty text as absent: AWS sends empty names and IDs.
pub(crate) fn told(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Converts an SDK error of `operation`. An error response keeps its code, message and request ID; any other error
/// keeps the SDK's error as its source.
pub(crate) fn failed<E>(operation: &'static str) -> impl FnOnce(SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    move |error| converted(operation, error)
}

fn converted<E>(operation: &'static str, error: SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    if let Some(code) = error.code() {
        let message = error.message().unwrap_or("AWS gave no message");
        return Error::answered(operation, code, message).with_request_id(error.request_id());
    }

    let no_credentials = is_about_credentials(&error);
    let request_id = error.request_id().map(str::to_owned);
    let (message, source): (&str, Box<dyn StdError + Send + Sync>) = match error {
        SdkError::ConstructionFailure(_) => ("the request could not be built", boxed(error)),
        SdkError::TimeoutError(_) => ("no answer in time", boxed(error)),
        SdkError::DispatchFailure(_) => ("the request could not be sent", boxed(error)),
        SdkError::ResponseError(_) => ("the answer could not be read", boxed(error)),
        _ => ("AWS rejected the request without an error code", boxed(error)),
    };
    let failed = Error::unanswered(operation, message)
        .with_request_id(request_id.as_deref())
        .with_source(source);

    if no_credentials {
        failed.with_kind(Kind::AccessDenied)
    } else {
        failed
    }
}

/// The cause below the SDK's own wrapper, so that a printed chain does not say the same thing twice.
fn boxed<E>(error: SdkError<E, HttpResponse>) -> Box<dyn StdError + Send + Sync>
where
    E: StdError + Send + Sync + 'static,
{
    match error.into_source() {
        Ok(source) => source,
        Err(error) => Box::new(error),
    }
}

/// Whether a request failed before it was sent because no credentials were available. The SDK reports that as one
/// of several failures; only the chain of sources shows it.
fn is_about_credentials(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|cause| cause.is::<CredentialsError>())
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::operation::describe_instances::DescribeInstancesError;

    use super::*;

    #[test]
    fn a_time_out_is_no_answer_and_keeps_its_cause() {
        let error: SdkError<DescribeInstancesError, HttpResponse> = SdkError::timeout_error("30 s passed");
        let error = failed("DescribeInstances")(error);
        assert_eq!(error.kind(), Kind::Transport);
        assert_eq!(error.to_string(), "AWS DescribeInstances: no answer in time");
        assert!(
            error
                .source()
                .is_some_and(|source| source.to_string().contains("30 s passed"))
        );
    }

    #[test]
    fn missing_credentials_are_access_denied_and_not_a_transport_failure() {
        let cause = CredentialsError::not_loaded("none found");
        let error: SdkError<DescribeInstancesError, HttpResponse> = SdkError::construction_failure(cause);
        assert_eq!(failed("DescribeInstances")(error).kind(), Kind::AccessDenied);
    }
}
