//! AWS's errors in messages of Events and logs.

use outrigger_aws::Error;

/// A message without what EC2 appends to a denial, which differs from call to call:
/// <https://docs.aws.amazon.com/STS/latest/APIReference/API_DecodeAuthorizationMessage.html>.
fn without_encoded(message: &str) -> &str {
    let end = message
        .find("Encoded authorization failure message")
        .unwrap_or(message.len());
    message.get(..end).unwrap_or(message).trim_end()
}

/// A failed call with AWS's code and message. Without the request ID, so that equal failures have equal messages.
pub fn answer(error: &Error) -> String {
    let code = error.code().map_or_else(String::new, |code| format!("{code}: "));
    format!("AWS {}: {code}{}", error.operation(), without_encoded(error.message()))
}

/// A call to EC2 that the role does not allow, and how to fix it.
pub fn denied_ec2(error: &Error) -> String {
    format!(
        "{}: allow ec2:{} to the cloud controller manager's role",
        answer(error),
        error.operation()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_call_names_the_action_and_nothing_of_the_single_request() {
        let message = "no. Encoded authorization failure message: aB3-x";
        let error = Error::answered("CreateTags", "UnauthorizedOperation", message).with_request_id(Some("r-1"));
        assert_eq!(
            denied_ec2(&error),
            "AWS CreateTags: UnauthorizedOperation: no.: allow ec2:CreateTags to the cloud controller manager's role"
        );
    }
}
