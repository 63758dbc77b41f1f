//! AWS's query protocol as the proxy reads it: a form with `Action`, `Version` and numbered nested keys, and an
//! `Authorization` header whose credential names the caller, the region and the service. Pure.

use http::HeaderMap;
use http::header::{AUTHORIZATION, USER_AGENT};
use serde::{Serialize, Serializer};

use super::service::Service;

/// A call's parameters in the order sent, `Action` and `Version` left out. Keys are the wire's:
/// `Listeners.member.1.Protocol`, `Filter.2.Value.1`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The values of a list, whose keys are `prefix`.1, `prefix`.2 and so on: `InstanceId`,
    /// `LoadBalancerNames.member`.
    pub fn list(&self, prefix: &str) -> Vec<&str> {
        let numbered = |key: &str| {
            key.strip_prefix(prefix)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|n| n.parse::<u32>().is_ok())
        };
        self.iter()
            .filter(|(key, _)| numbered(key))
            .map(|(_, value)| value)
            .collect()
    }

    /// A list with these values.
    pub fn numbered<'a>(prefix: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let numbered = (1..).zip(values);
        numbered
            .map(|(number, value)| (format!("{prefix}.{number}"), value))
            .collect()
    }

    /// EC2's filters: name and values, in order.
    pub fn filters(&self) -> Vec<(&str, Vec<&str>)> {
        (1..)
            .map_while(|number| {
                let name = self.get(&format!("Filter.{number}.Name"))?;
                Some((name, self.list(&format!("Filter.{number}.Value"))))
            })
            .collect()
    }

    /// Whether any key begins with `prefix`.
    pub fn any(&self, prefix: &str) -> bool {
        self.iter().any(|(key, _)| key.starts_with(prefix))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Parameters {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// `Action`; empty when the form has none.
    pub action: String,
    /// `Version`; empty when the form has none.
    pub version: String,
    pub parameters: Parameters,
}

impl Query {
    /// A call of the harness.
    pub fn new(service: &Service, action: &str, parameters: Parameters) -> Self {
        Self {
            action: action.to_owned(),
            version: service.api_version().to_owned(),
            parameters,
        }
    }

    pub fn parse(form: &[u8]) -> Self {
        let mut query = Self {
            action: String::new(),
            version: String::new(),
            parameters: Parameters::default(),
        };

        for (key, value) in url::form_urlencoded::parse(form) {
            match key.as_ref() {
                "Action" => query.action = value.into_owned(),
                "Version" => query.version = value.into_owned(),
                _ => query.parameters.0.push((key.into_owned(), value.into_owned())),
            }
        }

        query
    }

    pub fn encode(&self) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", &self.action)
            .append_pair("Version", &self.version);
        form.extend_pairs(self.parameters.iter()).finish()
    }
}

/// The caller, by the headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub access_key: String,
    pub scope: String,
    /// The user agent. SDKs put theirs into `x-amz-user-agent` where `user-agent` is not theirs to set.
    pub user_agent: String,
}

impl Identity {
    /// Reads the headers; what is missing stays empty.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let authorization = text(AUTHORIZATION.as_str());
        let credential = authorization.split_once("Credential=").map_or("", |(_, rest)| rest);
        let scope: Vec<&str> = credential
            .split([',', ' '])
            .next()
            .unwrap_or_default()
            .split('/')
            .collect();
        let part = |index: usize| scope.get(index).copied().unwrap_or_default().to_owned();
        let mut user_agent = text(USER_AGENT.as_str());
        let amazon = text("x-amz-user-agent");

        if !amazon.is_empty() {
            user_agent = format!("{user_agent} {amazon}").trim().to_owned();
        }

        Self {
            access_key: part(0),
            scope: part(3),
            user_agent,
        }
    }

    /// Whether it says that a call with this action is a probe. A write is none, whatever it says, but for a preflight.
    pub fn is_probe(&self, action: &str) -> bool {
        self.user_agent.contains("preflight") || self.user_agent.contains("dry-run") && !is_write(action)
    }
}

/// Whether an action changes anything in AWS. Unknown verbs count as changes.
pub fn is_write(action: &str) -> bool {
    const READS: [&str; 5] = ["Describe", "Get", "List", "Search", "AssumeRole"];
    !READS.iter().any(|verb| action.starts_with(verb))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{Identity, Query, is_write};

    #[test]
    fn a_form_keeps_its_keys_and_their_order() {
        let query = Query::parse(b"Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aa&Filter.1.Value.1=x+y&Filter.1.Value.2=z&InstanceId.1=i-1");
        assert_eq!(
            (query.action.as_str(), query.version.as_str()),
            ("DescribeInstances", "2016-11-15")
        );
        assert_eq!(query.parameters.filters(), [("tag:a", vec!["x y", "z"])]);
        assert_eq!(query.parameters.list("InstanceId"), ["i-1"]);
        assert_eq!(Query::parse(query.encode().as_bytes()), query);
    }

    #[test]
    fn a_list_does_not_take_the_keys_of_another() {
        let query = Query::parse(b"Listeners.member.1.Protocol=TCP&Subnets.member.1=subnet-1&SubnetsX.member.1=no");
        assert_eq!(query.parameters.list("Subnets.member"), ["subnet-1"]);
        assert!(query.parameters.list("Listeners.member").is_empty());
    }

    #[test]
    fn the_credential_names_caller_and_service() {
        let mut headers = HeaderMap::new();
        let value = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=00";
        headers.insert("authorization", HeaderValue::from_static(value));
        headers.insert(
            "user-agent",
            HeaderValue::from_static("outrigger-manager/0.1.0 preflight"),
        );
        let identity = Identity::of(&headers);
        assert_eq!(
            (identity.access_key.as_str(), identity.scope.as_str()),
            ("AKIAEXAMPLE", "ec2")
        );
        assert!(identity.is_probe("DescribeLoadBalancers"));
        assert_eq!(Identity::of(&HeaderMap::new()), Identity::default());
    }

    #[test]
    fn a_write_is_no_part_of_a_dry_run() {
        let identity = Identity {
            user_agent: "aws-sdk-rust/1.3 dry-run".into(),
            ..Identity::default()
        };
        assert!(identity.is_probe("DescribeLoadBalancers") && !identity.is_probe("DeleteLoadBalancer"));
    }

    #[test]
    fn only_verbs_known_to_read_are_reads() {
        assert!(!is_write("DescribeLoadBalancers") && !is_write("GetCallerIdentity"));
        for action in [
            "CreateTags",
            "RegisterInstancesWithLoadBalancer",
            "AuthorizeSecurityGroupIngress",
            "Frobnicate",
        ] {
            assert!(is_write(action), "{action}");
        }
    }
}
