//! Policy documents: the part of IAM's language that the policies of controllers use. Pure.
//!
//! An element, operator or condition key that is not known here is an error when the document is read. A statement that
//! is read only in part would allow too much, or deny too much, and no test would tell.
//!
//! Language: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements.html>.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use super::condition::{Condition, Keys};

/// A document that this module cannot evaluate.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PolicyError {
    /// Not JSON, or an element that is not known here.
    #[error("policy document: {0}")]
    Document(String),
    /// The version decides how variables are read.
    #[error("policy document: Version {0:?}; only 2012-10-17 is supported")]
    Version(String),
    /// No statement matches without an action.
    #[error("statement {0}: give exactly one of Action and NotAction, and Resource")]
    Statement(usize),
    #[error("condition operator {0:?} is not supported")]
    Operator(String),
    /// A key whose value no call here can provide.
    #[error("condition key {0:?} is not supported")]
    Key(String),
    #[error("policy variable in {0:?}: variables are not supported")]
    Variable(String),
}

/// One action on one resource, as IAM evaluates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// For example `ec2:CreateTags`.
    pub action: String,
    /// An ARN, or `*` for actions without resource-level permissions.
    pub resource: String,
    pub keys: Keys,
}

/// The policy's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A statement allows it, and none denies it.
    Allowed,
    NotAllowed,
    Denied,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy(Vec<Statement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    allows: bool,
    /// `true` for NotAction.
    all_but: bool,
    actions: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    version: String,
    #[serde(default, rename = "Id")]
    _id: Option<String>,
    statement: OneOrMany<RawStatement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct RawStatement {
    #[serde(default, rename = "Sid")]
    _sid: Option<String>,
    effect: Effect,
    action: Option<OneOrMany<String>>,
    not_action: Option<OneOrMany<String>>,
    resource: Option<OneOrMany<String>>,
    #[serde(default)]
    condition: BTreeMap<String, BTreeMap<String, OneOrMany<String>>>,
}

#[derive(Deserialize)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

impl Policy {
    /// Reads a document.
    ///
    /// # Errors
    /// [`PolicyError`] for everything that cannot be evaluated in full.
    pub fn parse(document: &str) -> Result<Self, PolicyError> {
        let document: Document =
            serde_json::from_str(document).map_err(|error| PolicyError::Document(error.to_string()))?;
        if document.version != "2012-10-17" {
            return Err(PolicyError::Version(document.version));
        }

        let statements = document.statement.into_vec().into_iter().enumerate();
        let statements = statements.map(|(index, raw)| statement(index, raw));
        Ok(Self(statements.collect::<Result<_, _>>()?))
    }

    /// A policy that allows these actions on all resources.
    pub fn allowing<'a>(actions: impl IntoIterator<Item = &'a str>) -> Self {
        Self(vec![Statement {
            allows: true,
            all_but: false,
            actions: actions.into_iter().map(str::to_owned).collect(),
            resources: vec!["*".to_owned()],
            conditions: Vec::new(),
        }])
    }

    /// Evaluates a request: a statement that denies prevails over all that allow.
    /// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html>
    pub fn verdict(&self, request: &Request) -> Verdict {
        let applies = |allows: bool| {
            let mut statements = self.0.iter().filter(|statement| statement.allows == allows);
            statements.any(|statement| statement.applies(request))
        };
        match (applies(false), applies(true)) {
            (true, _) => Verdict::Denied,
            (false, true) => Verdict::Allowed,
            (false, false) => Verdict::NotAllowed,
        }
    }
}

fn statement(index: usize, raw: RawStatement) -> Result<Statement, PolicyError> {
    let (all_but, actions) = match (raw.action, raw.not_action) {
        (Some(actions), None) => (false, actions.into_vec()),
        (None, Some(actions)) => (true, actions.into_vec()),
        _ => return Err(PolicyError::Statement(index)),
    };
    let resources = raw.resource.ok_or(PolicyError::Statement(index))?.into_vec();
    if let Some(variable) = resources.iter().find(|resource| resource.contains("${")) {
        return Err(PolicyError::Variable(variable.clone()));
    }

    let mut conditions = Vec::new();
    for (operator, keys) in raw.condition {
        for (key, values) in keys {
            conditions.push(Condition::parse(&operator, &key, values.into_vec())?);
        }
    }

    Ok(Statement {
        allows: matches!(raw.effect, Effect::Allow),
        all_but,
        actions,
        resources,
        conditions,
    })
}

impl Statement {
    fn applies(&self, request: &Request) -> bool {
        // Actions are compared without regard to case, ARNs with.
        // https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_action.html
        let action = request.action.to_ascii_lowercase();
        let named = self
            .actions
            .iter()
            .any(|pattern| matches(&pattern.to_ascii_lowercase(), &action));
        named != self.all_but
            && self.resources.iter().any(|pattern| matches(pattern, &request.resource))
            && self.conditions.iter().all(|condition| condition.holds(&request.keys))
    }
}

/// Whether a text fits a pattern in which `*` stands for any characters and `?` for one.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and the first character that it does not stand for yet.
    let mut star: Option<(usize, usize)> = None;

    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(expected) if *expected == '?' || Some(expected) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }

    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::super::condition::Keys;
    use super::{Policy, PolicyError, Request, Verdict, matches};

    fn verdict(statements: &str, action: &str, resource: &str, keys: &[(&str, &str)]) -> Verdict {
        let document = format!(r#"{{"Version": "2012-10-17", "Statement": {statements}}}"#);
        let policy = Policy::parse(&document).expect("a policy");
        let mut request = Request {
            action: action.into(),
            resource: resource.into(),
            keys: Keys::default(),
        };
        for (key, value) in keys {
            request.keys.add(key, value);
        }
        policy.verdict(&request)
    }

    fn error(statement: &str) -> PolicyError {
        let document = format!(r#"{{"Version": "2012-10-17", "Statement": {statement}}}"#);
        Policy::parse(&document).expect_err("refused")
    }

    #[test]
    fn patterns_match_as_in_iam() {
        for (pattern, text) in [
            ("*", ""),
            ("ec2:*", "ec2:createtags"),
            ("ec2:describe*s", "ec2:describeinstances"),
            ("arn:*:ec2:*:*:vpc/*", "arn:aws:ec2:us-east-1:1:vpc/vpc-1"),
            ("a?c", "abc"),
            ("*a*b", "xaxbxb"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("ec2:*", "elb:x"), ("a?c", "ac"), ("a*b", "abc"), ("", "a")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_no_statement_allows_is_not_allowed_and_case_counts_in_resources_only() {
        let one = r#"{"Effect": "Allow", "Action": "EC2:describe*", "Resource": "*"}"#;
        assert_eq!(verdict(one, "ec2:DescribeInstances", "*", &[]), Verdict::Allowed);
        assert_eq!(verdict(one, "ec2:CreateTags", "*", &[]), Verdict::NotAllowed);
        let arn = r#"{"Effect": "Allow", "Action": "a:b", "Resource": "arn:aws:a:::X"}"#;
        assert_eq!(verdict(arn, "a:b", "arn:aws:a:::X", &[]), Verdict::Allowed);
        assert_eq!(verdict(arn, "a:b", "arn:aws:a:::x", &[]), Verdict::NotAllowed);
    }

    #[test]
    fn a_statement_that_denies_prevails() {
        let both = r#"[{"Effect": "Allow", "Action": "*", "Resource": "*"},
                       {"Effect": "Deny", "NotAction": ["ec2:*"], "Resource": ["*"]}]"#;
        assert_eq!(verdict(both, "elasticloadbalancing:AddTags", "*", &[]), Verdict::Denied);
        assert_eq!(verdict(both, "ec2:CreateTags", "*", &[]), Verdict::Allowed);
    }

    #[test]
    fn all_conditions_of_a_statement_have_to_hold() {
        let tagged = r#"{"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*", "Condition": {
            "StringEquals": {"aws:ResourceTag/KubernetesCluster": "c"}, "Null": {"aws:RequestTag/KubernetesCluster": "true"}}}"#;
        let own = ("aws:ResourceTag/KubernetesCluster", "c");
        let steals = ("aws:RequestTag/KubernetesCluster", "c");
        let ask = |keys: &[(&str, &str)]| verdict(tagged, "ec2:CreateTags", "r", keys);
        assert_eq!(ask(&[own]), Verdict::Allowed);
        assert_eq!(ask(&[own, steals]), Verdict::NotAllowed);
        assert_eq!(ask(&[]), Verdict::NotAllowed);
    }

    #[test]
    fn what_is_not_implemented_is_refused_and_not_passed_over() {
        let with = |condition: &str| {
            error(&format!(
                r#"{{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": {condition}}}"#
            ))
        };
        assert_eq!(
            with(r#"{"IpAddress": {"aws:TagKeys": "x"}}"#),
            PolicyError::Operator("IpAddress".into())
        );
        assert_eq!(
            with(r#"{"StringEquals": {"aws:SourceIp": "x"}}"#),
            PolicyError::Key("aws:SourceIp".into())
        );
        assert_eq!(
            with(r#"{"StringEquals": {"aws:TagKeys": "${aws:username}"}}"#),
            PolicyError::Variable("${aws:username}".into())
        );
        assert_eq!(
            error(r#"{"Effect": "Allow", "Resource": "*"}"#),
            PolicyError::Statement(0)
        );
        let principal = error(r#"{"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": "*"}"#);
        assert!(matches!(principal, PolicyError::Document(_)), "{principal}");
        let old = Policy::parse(r#"{"Version": "2008-10-17", "Statement": []}"#);
        assert_eq!(old, Err(PolicyError::Version("2008-10-17".into())));
    }
}
