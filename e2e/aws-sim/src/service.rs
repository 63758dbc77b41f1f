//! Which AWS service a call is for, how that service words its errors, and where the simulated AWS is.

use serde::Serialize;

/// The region of every simulated account. moto names load balancers after this one whatever it is asked.
pub const REGION: &str = "us-east-1";

/// The local zone of every simulated account, beside moto's availability zones.
pub const LOCAL_ZONE: &str = "us-east-1-bos-1a";

/// A service with a query protocol (form in, XML out).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Ec2,
    /// Elastic Load Balancing, API version 2012-06-01: classic load balancers.
    Elb,
    /// Elastic Load Balancing, API version 2015-12-01: network and application load balancers.
    ElbV2,
    Sts,
    /// Any other, by the name in the credential's scope.
    Other(String),
}

impl Service {
    /// Both generations of load balancers sign as the same service; the API version tells them apart.
    pub fn of(scope: &str, api_version: &str) -> Self {
        match (scope, api_version) {
            ("ec2", _) => Self::Ec2,
            ("elasticloadbalancing", "2015-12-01") => Self::ElbV2,
            ("elasticloadbalancing", _) => Self::Elb,
            ("sts", _) => Self::Sts,
            (other, _) => Self::Other(other.to_owned()),
        }
    }

    pub fn scope(&self) -> &str {
        match self {
            Self::Ec2 => "ec2",
            Self::Elb | Self::ElbV2 => "elasticloadbalancing",
            Self::Sts => "sts",
            Self::Other(name) => name,
        }
    }

    /// The API version that the harness itself speaks.
    pub fn api_version(&self) -> &'static str {
        match self {
            Self::Ec2 => "2016-11-15",
            Self::Elb => "2012-06-01",
            Self::ElbV2 => "2015-12-01",
            Self::Sts | Self::Other(_) => "2011-06-15",
        }
    }

    pub fn namespace(&self) -> String {
        match self {
            Self::Ec2 => format!("http://ec2.amazonaws.com/doc/{}/", self.api_version()),
            Self::Elb | Self::ElbV2 => format!("http://elasticloadbalancing.amazonaws.com/doc/{}/", self.api_version()),
            Self::Sts | Self::Other(_) => "https://sts.amazonaws.com/doc/2011-06-15/".to_owned(),
        }
    }

    /// The body of an error answer. EC2 words errors in its own way, the others as all query services do.
    pub fn error_body(&self, status: u16, code: &str, message: &str, request_id: &str) -> String {
        let (code, message) = (quick_xml::escape::escape(code), quick_xml::escape::escape(message));
        let declaration = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
        if *self == Self::Ec2 {
            return format!(
                "{declaration}\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>\
                 </Errors><RequestID>{request_id}</RequestID></Response>"
            );
        }

        let side = if status >= 500 { "Receiver" } else { "Sender" };
        let namespace = self.namespace();
        format!(
            "{declaration}\n<ErrorResponse xmlns=\"{namespace}\"><Error><Type>{side}</Type><Code>{code}</Code>\
             <Message>{message}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    }

    /// How it refuses a call for its rate: status, code, message.
    pub fn throttled(&self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Ec2 => (503, "RequestLimitExceeded", "Request limit exceeded."),
            _ => (400, "Throttling", "Rate exceeded"),
        }
    }
}
