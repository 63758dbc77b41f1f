//! Classification of failed AWS calls: one table for all services.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Classes of failure that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// AWS's rate limit was exceeded.
    Throttled,
    /// The subject of the call does not exist.
    NotFound,
    /// The credentials are missing, wrong, or do not allow the call. Nothing is known about the resource.
    AccessDenied,
    /// AWS does not accept a value of the call; sending it again will not help.
    Malformed,
    /// The resource is in a state that does not allow the call now.
    Conflict,
    /// The resource or rule is there already.
    AlreadyExists,
    /// Something else still refers to the resource.
    DependencyViolation,
    /// AWS allows the account or the resource no more of it: a quota has to be raised, or something has to go first.
    QuotaExceeded,
    /// No answer: connection, time-out, or an answer that cannot be read. The call may have taken effect.
    Transport,
    /// Anything else, with AWS's code in [`Error::code`].
    Other,
}

/// The result of a call of AWS.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call of AWS.
#[derive(Debug, Clone)]
pub struct Error {
    operation: &'static str,
    kind: Kind,
    code: Option<String>,
    message: String,
    request_id: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    fn new(operation: &'static str, kind: Kind, message: impl Into<String>) -> Self {
        Self {
            operation,
            kind,
            code: None,
            message: message.into(),
            request_id: None,
            source: None,
        }
    }

    /// An error that AWS answered with `code`; [`Kind`] follows from the table.
    #[must_use]
    pub fn answered(operation: &'static str, code: &str, message: impl Into<String>) -> Self {
        Self {
            code: Some(code.to_owned()),
            ..Self::new(operation, kind_of(code), message)
        }
    }

    /// A call that got no answer.
    #[must_use]
    pub fn unanswered(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(operation, Kind::Transport, message)
    }

    /// An unusable response or request; `message` names the missing field.
    #[must_use]
    pub fn unusable(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(operation, Kind::Other, message)
    }

    /// With the ID by which AWS's support finds the call.
    #[must_use]
    pub fn with_request_id(mut self, id: Option<&str>) -> Self {
        self.request_id = id.map(str::to_owned);
        self
    }

    /// With what caused it. The error's own text does not repeat the source's.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// With another class than the table's.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The AWS action, for example `DescribeInstances`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// AWS's error code, for example `RequestLimitExceeded`; `None` when AWS did not answer.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether AWS knows the caller and denies this action; with wrong or missing credentials it denies all of them.
    #[must_use]
    pub fn is_denied_action(&self) -> bool {
        let is_denial = |code: &str| matches!(code, "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation");
        self.kind == Kind::AccessDenied && self.code().is_some_and(is_denial)
    }

    /// AWS's message, for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The request's ID at AWS.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AWS {}: ", self.operation)?;
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }

        f.write_str(&self.message)?;
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }

        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Codes by their exact text, without the ending `Exception`. EC2 and the load balancing APIs name the same thing
/// differently; a code that is not here is [`Kind::Other`], except for the families that [`kind_of`] knows by their form.
///
/// If AWS does not know a resource that the request only refers to, such as a subnet, a certificate or an AWS policy,
/// the request is [`Kind::Malformed`]. [`Kind::NotFound`] means that the subject of the request does not exist.
const TABLE: &[(Kind, &[&str])] = &[
    (
        Kind::Throttled,
        &[
            "RequestLimitExceeded",
            "Throttling",
            "Throttled",
            "EC2Throttled",
            "RequestThrottled",
            "TooManyRequests",
            "BandwidthLimitExceeded",
            "PriorRequestNotComplete",
            "DependencyThrottle",
            "SlowDown",
        ],
    ),
    (
        Kind::NotFound,
        &[
            "LoadBalancerNotFound",
            "AccessPointNotFound",
            "PolicyNotFound",
            "ListenerNotFound",
            "TargetGroupNotFound",
            "RuleNotFound",
            "ResourceNotFound",
        ],
    ),
    (
        Kind::AccessDenied,
        &[
            "UnauthorizedOperation",
            "AccessDenied",
            "AuthFailure",
            "UnrecognizedClient",
            "InvalidClientTokenId",
            "InvalidAccessKeyId",
            "MissingAuthenticationToken",
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "RequestExpired",
            "OptInRequired",
            "Blocked",
        ],
    ),
    (
        Kind::Malformed,
        &[
            "InvalidID",
            "InvalidParameter",
            "InvalidParameterValue",
            "InvalidParameterCombination",
            "MissingParameter",
            "ValidationError",
            "MalformedQueryString",
            "InvalidConfigurationRequest",
            "InvalidScheme",
            "InvalidSecurityGroup",
            "InvalidSubnet",
            "InvalidTarget",
            "InvalidInstance",
            "InvalidEndPoint",
            "InvalidLoadBalancerAction",
            "IncompatibleProtocols",
            "UnsupportedProtocol",
            "AvailabilityZoneNotSupported",
            "AllocationIdNotFound",
            "CertificateNotFound",
            "SSLPolicyNotFound",
            "SubnetNotFound",
            "PolicyTypeNotFound",
            "LoadBalancerAttributeNotFound",
            "DuplicateTagKeys",
        ],
    ),
    (
        Kind::Conflict,
        &[
            "IncorrectState",
            "IncorrectInstanceState",
            "OperationNotPermitted",
            "ConcurrentModification",
            "InvalidState",
            "HealthUnavailable",
            "InsufficientCapacity",
        ],
    ),
    (
        Kind::AlreadyExists,
        &[
            "InvalidGroup.Duplicate",
            "InvalidPermission.Duplicate",
            "DuplicateLoadBalancerName",
            "DuplicateAccessPointName",
            "DuplicateListener",
            "DuplicatePolicyName",
            "DuplicateTargetGroupName",
            "RouteAlreadyExists",
        ],
    ),
    (
        Kind::DependencyViolation,
        &["DependencyViolation", "ResourceInUse", "InvalidGroup.InUse"],
    ),
    (Kind::QuotaExceeded, &["TargetGroupAssociationLimit", "LimitExceeded"]),
];

/// The class of an error code.
fn kind_of(code: &str) -> Kind {
    let code = code.strip_suffix("Exception").unwrap_or(code);
    for (kind, codes) in TABLE {
        if codes.contains(&code) {
            return *kind;
        }
    }

    match code.rsplit_once('.') {
        Some((_, "NotFound")) => Kind::NotFound,
        Some((_, "Malformed")) => Kind::Malformed,
        // EC2 ends the names of quotas so, Elastic Load Balancing begins them so; requests too many are in the table.
        _ if code.ends_with("LimitExceeded") || code.starts_with("TooMany") => Kind::QuotaExceeded,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_in_one_class_only() {
        let mut seen = std::collections::BTreeSet::new();
        for (_, codes) in TABLE {
            for code in *codes {
                assert!(seen.insert(*code), "{code} stands twice in the table");
            }
        }
    }

    #[test]
    fn only_codes_that_name_a_missing_thing_mean_not_found() {
        for code in [
            "InvalidInstanceID.NotFound",
            "InvalidGroup.NotFound",
            "LoadBalancerNotFound",
        ] {
            assert_eq!(kind_of(code), Kind::NotFound, "{code}");
        }
        for code in [
            "UnauthorizedOperation",
            "InvalidInstanceID.Malformed",
            "InternalError",
            "NotFound",
            "",
        ] {
            assert_ne!(kind_of(code), Kind::NotFound, "{code}");
        }
    }

    #[test]
    fn the_codes_of_both_load_balancing_apis_have_their_class() {
        for (kind, codes) in [
            (
                Kind::Throttled,
                &["Throttling", "ThrottlingException", "TooManyRequestsException"][..],
            ),
            (
                Kind::NotFound,
                &[
                    "LoadBalancerNotFoundException",
                    "TargetGroupNotFound",
                    "ListenerNotFoundException",
                    "PolicyNotFound",
                ],
            ),
            (
                Kind::AlreadyExists,
                &[
                    "DuplicateListener",
                    "DuplicateListenerException",
                    "DuplicateTargetGroupName",
                    "DuplicateLoadBalancerName",
                ],
            ),
            (Kind::DependencyViolation, &["ResourceInUse", "ResourceInUseException"]),
            (
                Kind::Malformed,
                &[
                    "InvalidConfigurationRequest",
                    "SubnetNotFound",
                    "CertificateNotFound",
                    "SSLPolicyNotFound",
                    "InvalidTarget",
                ],
            ),
            (
                Kind::QuotaExceeded,
                &[
                    "TooManyTargets",
                    "TooManyListeners",
                    "TooManyUniqueTargetGroupsPerLoadBalancer",
                    "TooManyLoadBalancersException",
                    "TargetGroupAssociationLimit",
                    "RulesPerSecurityGroupLimitExceeded",
                    "RouteLimitExceeded",
                ],
            ),
            (
                Kind::Conflict,
                &["OperationNotPermitted", "OperationNotPermittedException"],
            ),
            (
                Kind::AccessDenied,
                &["AccessDenied", "AccessDeniedException", "ExpiredTokenException"],
            ),
            (Kind::Throttled, &["RequestLimitExceeded", "BandwidthLimitExceeded"]),
        ] {
            for code in codes {
                assert_eq!(kind_of(code), kind, "{code}");
            }
        }
    }

    #[test]
    fn the_text_names_action_code_message_and_request() {
        let error = Error::answered("DeleteSecurityGroup", "DependencyViolation", "sg-1 is in use")
            .with_request_id(Some("abc"));
        assert_eq!(
            error.to_string(),
            "AWS DeleteSecurityGroup: DependencyViolation: sg-1 is in use (request abc)"
        );
        assert_eq!(error.kind(), Kind::DependencyViolation);
    }
}
