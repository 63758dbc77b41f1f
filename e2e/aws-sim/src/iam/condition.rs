//! Conditions of statements. Pure.
//!
//! Operators: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html>;
//! sets: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html>.

use std::collections::BTreeMap;

use super::policy::{PolicyError, matches};

/// Condition keys that calls have here; those that end in `/` are followed by the key of a tag.
const KNOWN: [&str; 8] = [
    "aws:ResourceTag/",
    "aws:RequestTag/",
    "ec2:ResourceTag/",
    "elasticloadbalancing:ResourceTag/",
    "elasticloadbalancing:CreateAction",
    "ec2:CreateAction",
    "aws:RequestedRegion",
    "aws:TagKeys",
];

/// The condition keys of a request, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<String, Vec<String>>);

impl Keys {
    /// Adds a value.
    pub fn add(&mut self, key: &str, value: &str) {
        self.0.entry(normal(key)).or_default().push(value.to_owned());
    }
}

/// Names of keys are compared without regard to case. The key of a tag is compared so as well:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/access_tags.html>.
fn normal(key: &str) -> String {
    key.to_ascii_lowercase()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    /// The key has one value.
    Single,
    Any,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Equals,
    Like,
    Null,
}

/// One key of one operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    set: Set,
    test: Test,
    negated: bool,
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

impl Condition {
    pub(super) fn parse(operator: &str, key: &str, values: Vec<String>) -> Result<Self, PolicyError> {
        let (set, plain) = match operator.split_once(':') {
            None => (Set::Single, operator),
            Some(("ForAnyValue", plain)) => (Set::Any, plain),
            Some(("ForAllValues", plain)) => (Set::All, plain),
            Some(_) => return Err(PolicyError::Operator(operator.to_owned())),
        };
        let (plain, if_exists) = plain
            .strip_suffix("IfExists")
            .map_or((plain, false), |plain| (plain, true));
        let (test, negated) = match plain {
            "StringEquals" => (Test::Equals, false),
            "StringNotEquals" => (Test::Equals, true),
            "StringLike" => (Test::Like, false),
            "StringNotLike" => (Test::Like, true),
            "Null" if set == Set::Single && !if_exists => (Test::Null, false),
            _ => return Err(PolicyError::Operator(operator.to_owned())),
        };

        let is_known = |known: &&str| match known.strip_suffix('/') {
            Some(family) => key
                .split_once('/')
                .is_some_and(|(of, _)| of.eq_ignore_ascii_case(family)),
            None => key.eq_ignore_ascii_case(known),
        };
        if !KNOWN.iter().any(is_known) {
            return Err(PolicyError::Key(key.to_owned()));
        }
        if let Some(variable) = values.iter().find(|value| value.contains("${")) {
            return Err(PolicyError::Variable(variable.clone()));
        }

        Ok(Self {
            set,
            test,
            negated,
            if_exists,
            key: normal(key),
            values,
        })
    }

    pub(super) fn holds(&self, keys: &Keys) -> bool {
        let there = keys.0.get(&self.key);
        if self.test == Test::Null {
            return self.values.iter().any(|value| (value == "true") == there.is_none());
        }
        let Some(there) = there else {
            // A negated operator holds for a key that is not there, and so does ForAllValues.
            return self.if_exists || self.negated || self.set == Set::All;
        };

        let fits = |value: &String| self.values.iter().any(|wanted| self.fits(wanted, value)) != self.negated;
        match self.set {
            Set::Single | Set::Any => there.iter().any(fits),
            Set::All => there.iter().all(fits),
        }
    }

    fn fits(&self, wanted: &str, value: &str) -> bool {
        match self.test {
            Test::Like => matches(wanted, value),
            Test::Equals | Test::Null => wanted == value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Keys};

    fn holds(operator: &str, key: &str, wanted: &[&str], there: &[(&str, &str)]) -> bool {
        let wanted = wanted.iter().map(|value| (*value).to_owned()).collect();
        let condition = Condition::parse(operator, key, wanted).expect("a condition");
        let mut keys = Keys::default();
        for (key, value) in there {
            keys.add(key, value);
        }
        condition.holds(&keys)
    }

    const TAG: &str = "aws:ResourceTag/cluster";

    #[test]
    fn a_key_that_is_not_there_fails_unless_the_operator_says_otherwise() {
        assert!(holds("StringEquals", TAG, &["a", "b"], &[(TAG, "b")]));
        assert!(!holds("StringEquals", TAG, &["a"], &[]));
        assert!(holds("StringEqualsIfExists", TAG, &["a"], &[]));
        assert!(!holds("StringEqualsIfExists", TAG, &["a"], &[(TAG, "b")]));
        assert!(holds("StringNotEquals", TAG, &["a"], &[]));
        assert!(!holds("StringNotEquals", TAG, &["a"], &[(TAG, "a")]));
        assert!(holds("StringLike", TAG, &["pro*"], &[(TAG, "prod")]));
        assert!(!holds("StringEquals", TAG, &["pro*"], &[(TAG, "prod")]));
        assert!(holds("StringNotLike", TAG, &["pro*"], &[(TAG, "test")]));
    }

    #[test]
    fn null_is_about_the_presence_of_a_key() {
        assert!(holds("Null", TAG, &["true"], &[]) && !holds("Null", TAG, &["true"], &[(TAG, "")]));
        assert!(holds("Null", TAG, &["false"], &[(TAG, "")]) && !holds("Null", TAG, &["false"], &[]));
    }

    #[test]
    fn sets_of_values_are_compared_value_by_value() {
        let keys = [("aws:TagKeys", "a"), ("aws:TagKeys", "b")];
        assert!(holds("ForAnyValue:StringEquals", "aws:TagKeys", &["b", "c"], &keys));
        assert!(!holds("ForAnyValue:StringEquals", "aws:TagKeys", &["c"], &keys));
        assert!(!holds("ForAllValues:StringEquals", "aws:TagKeys", &["a"], &keys));
        assert!(holds("ForAllValues:StringLike", "aws:TagKeys", &["?"], &keys));
        assert!(holds("ForAllValues:StringEquals", "aws:TagKeys", &["a"], &[]));
        assert!(!holds("ForAnyValue:StringEquals", "aws:TagKeys", &["a"], &[]));
    }

    #[test]
    fn names_of_keys_are_compared_without_regard_to_case() {
        assert!(holds("StringEquals", "AWS:resourcetag/Cluster", &["a"], &[(TAG, "a")]));
    }
}
