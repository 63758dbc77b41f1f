//! `spec.providerID` of Nodes on AWS.
//!
//! Read as every AWS cloud provider of Kubernetes reads it: only the last element of the path counts, so the short
//! `i-…`, the canonical `aws:///ZONE/i-…` and longer paths all name an instance.

use std::fmt;

const SCHEME: &str = "aws://";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProviderId {
    /// An EC2 instance, `i-…`.
    Instance(InstanceId),
    /// A Fargate node, `fargate-…`; it has no instance.
    Fargate(String),
}

/// The ID of an EC2 instance. It starts with `i-` and has no slash; more is for EC2 to judge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(String);

/// A provider ID that names nothing on AWS. Such a Node is neither initialized nor deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.providerID {text:?} names no AWS instance; expected aws:///ZONE/i-… or aws:///ZONE/…/fargate-…")]
pub struct InvalidProviderId {
    pub text: String,
}

impl InstanceId {
    /// Accepts `i-` followed by anything but a slash.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.starts_with("i-") && !text.contains('/')).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical provider ID of this instance in a zone: `aws:///us-west-2a/i-0123`.
    #[must_use]
    pub fn provider_id(&self, zone: &str) -> String {
        format!("aws:///{zone}/{}", self.0)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl ProviderId {
    /// Reads a provider ID. A text without the `aws://` prefix is taken as a path, so a bare instance ID works; the
    /// host and every element but the last are ignored.
    ///
    /// # Errors
    /// When the last element is neither an instance nor a Fargate node.
    pub fn parse(text: &str) -> Result<Self, InvalidProviderId> {
        let path = match text.strip_prefix(SCHEME) {
            // The first element is the host of the URL: it never counts as the path.
            Some(rest) => rest.split_once('/').map_or("", |(_, path)| path),
            None => text,
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let last = path.trim_matches('/').rsplit('/').next().unwrap_or_default();
        match InstanceId::parse(last) {
            Some(id) => Ok(Self::Instance(id)),
            None if last.starts_with("fargate-") => Ok(Self::Fargate(last.to_owned())),
            None => Err(InvalidProviderId { text: text.to_owned() }),
        }
    }

    #[must_use]
    pub fn instance(&self) -> Option<&InstanceId> {
        match self {
            Self::Instance(id) => Some(id),
            Self::Fargate(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_of_the_path_is_the_instance() {
        for text in [
            "aws:///us-west-2a/i-0123",
            "aws:////i-0123",
            "aws://us-west-2a/i-0123",
            "i-0123",
            "aws:///us-west-2c/1abc-2def/i-0123",
            "aws:///us-west-2a/i-0123/",
            "other://x/i-0123",
        ] {
            let id = ProviderId::parse(text).unwrap();
            assert_eq!(id.instance().map(InstanceId::as_str), Some("i-0123"), "{text}");
        }
    }

    #[test]
    fn fargate_nodes_have_no_instance() {
        for name in ["fargate-ip-192-168-164-88.internal", "fargate-192.168.164.88"] {
            let id = ProviderId::parse(&format!("aws:///us-west-2c/1abc-2def/{name}")).unwrap();
            assert_eq!(id, ProviderId::Fargate(name.to_owned()));
            assert_eq!(id.instance(), None);
        }
    }

    #[test]
    fn anything_else_is_an_error_that_names_the_text() {
        for text in [
            "",
            "aws://",
            "aws://i-0123",
            "aws:///us-west-2a/vol-1",
            "aws:///us-west-2a/i-1/suffix",
            "foo://com-2351",
            "aws:///eu/mi-1",
        ] {
            assert_eq!(ProviderId::parse(text).unwrap_err().text, text);
        }
    }

    #[test]
    fn what_we_write_is_what_we_read() {
        let id = InstanceId::parse("i-0123").unwrap();
        let text = id.provider_id("us-west-2a");
        assert_eq!(text, "aws:///us-west-2a/i-0123");
        assert_eq!(ProviderId::parse(&text), Ok(ProviderId::Instance(id)));
    }
}
