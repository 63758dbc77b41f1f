//! Reading the annotations of AWS load balancers, with the grammar of the in-tree provider.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use k8s_openapi::api::core::v1::Service;

use super::super::error::Invalid;

pub const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// The annotations of a Service. Keys are given without [`PREFIX`].
#[derive(Debug, Clone, Copy)]
pub struct Annotations<'a> {
    all: Option<&'a BTreeMap<String, String>>,
}

/// The API of AWS that a Service's load balancer belongs to, by annotation `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A classic load balancer: any value but the three below, and none.
    Classic,
    /// A network load balancer: `nlb`.
    Network,
    /// Managed by the AWS Load Balancer Controller: `nlb-ip`, `external`.
    External,
}

/// Booleans as Go's `strconv.ParseBool` reads them, which users of Kubernetes know.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// A list `key=value,key=value`: items are trimmed; of `a=b=c` only `b` is the value; an item without `=` has the empty
/// value; an item without a key is ignored; the last of equal keys wins.
pub fn parse_pairs(text: &str) -> BTreeMap<String, String> {
    let items = text.trim().split(',').map(str::trim);
    let pair = |item: &str| {
        let mut parts = item.split('=');
        let key = parts.next().filter(|key| !key.is_empty())?;
        Some((key.to_owned(), parts.next().unwrap_or_default().to_owned()))
    };
    items.filter_map(pair).collect()
}

/// A comma list: items are trimmed and empty ones dropped.
pub fn parse_list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The expected value instead of one that is no integer of 32 bits.
fn expected_integer(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow => "expected an integer of at most 2147483647",
        IntErrorKind::NegOverflow => "expected an integer of at least -2147483648",
        _ => "expected an integer in decimal digits, without spaces",
    }
}

impl<'a> Annotations<'a> {
    pub fn of(service: &'a Service) -> Self {
        Self {
            all: service.metadata.annotations.as_ref(),
        }
    }

    /// An annotation's value, by its key after the prefix.
    pub fn get(&self, suffix: &str) -> Option<&'a str> {
        self.all?.get(&format!("{PREFIX}{suffix}")).map(String::as_str)
    }

    pub fn filled(&self, suffix: &str) -> Option<&'a str> {
        self.get(suffix).filter(|value| !value.is_empty())
    }

    /// Which API the load balancer belongs to. Values are matched exactly.
    pub fn kind(&self) -> Kind {
        match self.get("type") {
            Some("nlb") => Kind::Network,
            Some("nlb-ip" | "external") => Kind::External,
            _ => Kind::Classic,
        }
    }

    /// Whether the load balancer is internal: any value but the empty one and `false`.
    pub fn internal(&self) -> bool {
        !matches!(self.get("internal"), None | Some("" | "false"))
    }

    /// A boolean; the empty value counts as absent.
    /// Fails when it is no boolean of Go's.
    pub fn flag(&self, suffix: &str) -> Result<Option<bool>, Invalid> {
        let Some(value) = self.filled(suffix) else {
            return Ok(None);
        };
        parse_bool(value)
            .map(Some)
            .ok_or_else(|| self.wrong(suffix, "expected true or false"))
    }

    /// An integer; the empty value counts as absent.
    /// Fails when it is no decimal integer of 32 bits.
    pub fn integer(&self, suffix: &str) -> Result<Option<i32>, Invalid> {
        match self.filled(suffix) {
            Some(_) => self.present_integer(suffix),
            None => Ok(None),
        }
    }

    /// An integer; an empty value is an error.
    /// Fails when the annotation is there and is no decimal integer of 32 bits.
    pub fn present_integer(&self, suffix: &str) -> Result<Option<i32>, Invalid> {
        let Some(value) = self.get(suffix) else { return Ok(None) };
        let parsed = value.parse().map(Some);
        parsed.map_err(|error| self.wrong(suffix, expected_integer(&error)))
    }

    /// A comma list; `None` when the annotation is absent.
    pub fn list(&self, suffix: &str) -> Option<Vec<String>> {
        self.get(suffix).map(parse_list)
    }

    /// A list of key and value; empty when the annotation is absent.
    pub fn pairs(&self, suffix: &str) -> BTreeMap<String, String> {
        self.get(suffix).map(parse_pairs).unwrap_or_default()
    }

    pub fn wrong(&self, suffix: &str, expected: impl Into<String>) -> Invalid {
        Invalid::Annotation {
            key: format!("{PREFIX}{suffix}"),
            value: self.get(suffix).unwrap_or_default().to_owned(),
            expected: expected.into(),
        }
    }
}

/// The labels by which a Service chooses Nodes, as targets of its load balancer; none: all Nodes.
pub fn node_labels(service: &Service) -> BTreeMap<String, String> {
    Annotations::of(service).pairs("target-node-labels")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_follow_the_old_grammar() {
        let read = parse_pairs("K=V K1=V2,Key1========, =====, ======Val, =Val, , 234,");
        let expected = [("K", "V K1"), ("Key1", ""), ("234", "")];
        assert_eq!(read, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(parse_pairs("a=b=c").get("a").map(String::as_str), Some("b"));
    }

    #[test]
    fn lists_are_trimmed_and_lose_their_empty_items() {
        assert_eq!(parse_list("\t, ,,"), Vec::<String>::new());
        assert_eq!(
            parse_list("subnet-1, subnet-2, My Subnet "),
            ["subnet-1", "subnet-2", "My Subnet"]
        );
    }

    #[test]
    fn a_number_that_is_too_long_is_not_said_to_have_spaces() {
        let told = |value: &str| {
            let all = BTreeMap::from([(format!("{PREFIX}n"), value.to_owned())]);
            let read = Annotations { all: Some(&all) }.present_integer("n");
            read.map_err(|error| error.to_string())
        };
        assert_eq!(told("-2147483648"), Ok(Some(i32::MIN)));
        for (value, expected) in [
            ("2147483648", "at most 2147483647"),
            ("-99999999999", "at least -2147483648"),
            ("10 ", "without spaces"),
            ("1e1", "decimal digits"),
        ] {
            let told = told(value).expect_err(value);
            assert!(told.contains(expected) && told.contains(value), "{told}");
        }
    }

    #[test]
    fn any_value_but_the_empty_one_and_false_makes_a_load_balancer_internal() {
        let internal = |value: &str| {
            let all = BTreeMap::from([(format!("{PREFIX}internal"), value.to_owned())]);
            Annotations { all: Some(&all) }.internal()
        };
        assert!(!internal("") && !internal("false") && !Annotations { all: None }.internal());
        for value in ["true", "0", "False", "0.0.0.0/0"] {
            assert!(internal(value), "{value}");
        }
    }

    #[test]
    fn only_the_exact_values_choose_another_api() {
        let kind = |value: &str| {
            let all = BTreeMap::from([(format!("{PREFIX}type"), value.to_owned())]);
            Annotations { all: Some(&all) }.kind()
        };
        assert_eq!(kind("nlb"), Kind::Network);
        assert_eq!(kind("external"), Kind::External);
        assert_eq!(kind("nlb-ip"), Kind::External);
        for other in ["", "elb", "NLB", "nlb "] {
            assert_eq!(kind(other), Kind::Classic, "{other:?}");
        }
    }
}
