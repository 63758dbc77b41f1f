//! Findings about the tags of an object: tags that must not be forged, and tags that AWS would not accept.
//!
//! IAM policies are conditioned on reserved keys, so a forged one grants a privilege; and a second cluster's key on an
//! instance stops that cluster's manager.
//!
//! Limits of AWS: 50 tags per resource, keys of 1 to 128 characters, values of up to 256, of letters, digits, spaces
//! and `_ . : / = + - @`. Leading and trailing spaces count, but the console does not show them.

use std::{borrow::Cow, fmt};

use outrigger_shared::tags;
use serde_json::Value;

use super::{
    super::{Input, Migration, Operation},
    format::{TagFormat, Tags},
    row::{Policy, Reserver, Role, TagPath, TagRow},
};
use crate::patch::Path;

pub(super) struct TagField<'a> {
    pub path: &'static TagPath,
    pub value: &'a Value,
}

impl TagField<'_> {
    pub fn tags(&self) -> Tags {
        self.path.shape.read(Some(self.value))
    }
}

pub(super) fn places<'a>(row: &'static TagRow, object: &'a Value) -> Vec<TagField<'a>> {
    let mut places = Vec::new();
    for path in row.paths {
        let Some(keys) = Path::parse(path.pointer) else {
            continue;
        };
        let keys: Vec<&str> = keys.keys().collect();
        walk(object, &keys, &mut |value| places.push(TagField { path, value }));
    }

    places
}

fn walk<'a>(value: &'a Value, keys: &[&str], found: &mut impl FnMut(&'a Value)) {
    match (keys.split_first(), value) {
        (_, Value::Null) => {}
        (None, value) => found(value),
        (Some((&"*", rest)), Value::Array(list)) => {
            for element in list {
                walk(element, rest, found);
            }
        }
        (Some((key, rest)), Value::Object(fields)) => {
            if let Some(field) = fields.get(*key) {
                walk(field, rest, found);
            }
        }
        _ => {}
    }
}

fn all(row: &'static TagRow, object: &Value, migration: &Migration<'_>) -> Vec<Finding> {
    let of_place = |place: TagField<'_>| {
        let tags = place.tags();
        let mut findings = forged(&tags.pairs, migration, row, place.path);
        findings.extend(of_limits(place.path, &tags));
        findings
    };
    places(row, object).into_iter().flat_map(of_place).collect()
}

/// The findings that a review adds: all of a new object; of an update, those that it adds or changes, so that existing
/// findings do not block other writes.
pub(crate) fn new_findings(input: &Input<'_>, migration: &Migration<'_>, row: &'static TagRow) -> Vec<Finding> {
    let mut findings = all(row, input.object, migration);
    if let (Operation::Update, Some(old)) = (input.operation, input.old_object) {
        for known in all(row, old, migration) {
            if let Some(index) = findings.iter().position(|finding| *finding == known) {
                findings.remove(index);
            }
        }
    }

    findings
}

const SHOWN: usize = 70;

/// A problem of one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field that holds the tag, as the table writes it: `*` stands for any element.
    pub at: String,
    /// The tag's key; empty where the finding is about the field as a whole.
    pub key: String,
    pub value: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    ForeignCluster,
    SharedWithForeignCluster,
    /// The prefix of cluster keys without the name of a cluster.
    NoCluster,
    /// The key is reserved for a controller that trusts it.
    Reserved {
        whose: &'static str,
    },
    /// The key selects subnets, but is on another resource.
    SubnetRole,
    /// The cluster's own key on a kind whose controller rejects it; the consequence.
    Illegal(&'static str),
    /// AWS would reject it, or a reader would parse another value.
    Unfit(String),
}

impl Finding {
    /// Whether the validating path denies it; others only cause a warning.
    pub const fn refuses(&self) -> bool {
        matches!(
            self.problem,
            Problem::ForeignCluster | Problem::NoCluster | Problem::Reserved { .. }
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: String = self.key.chars().take(SHOWN).collect();
        let at = shown(&self.at);
        let what: Cow<'_, str> = match &self.problem {
            Problem::ForeignCluster => {
                "gives the resource to another cluster; remove it or correct spec.targets".into()
            }
            Problem::SharedWithForeignCluster => {
                "shares the resource with another cluster; make sure that it is meant".into()
            }
            Problem::NoCluster => "names no cluster; remove it".into(),
            Problem::Reserved { whose } => {
                format!("is reserved: {whose} identifies its own resources by it; remove it").into()
            }
            Problem::SubnetRole => "makes load balancers use a subnet; set it on the subnets themselves only".into(),
            Problem::Illegal(what) => format!("is not allowed here: {what}").into(),
            Problem::Unfit(what) if self.key.is_empty() => return write!(f, "{at} {what}"),
            Problem::Unfit(what) => what.into(),
        };
        write!(f, "{at}: tag {key:?} {what}")
    }
}

/// The name of a field in messages: of an annotation the last part of its name, otherwise the JSON Pointer.
fn shown(pointer: &str) -> Cow<'_, str> {
    match pointer.strip_prefix("/metadata/annotations/") {
        Some(name) => format!("annotation {}", name.rsplit("~1").next().unwrap_or(name)).into(),
        None => Cow::Borrowed(pointer),
    }
}

const SUBNET_ROLES: [&str; 2] = ["kubernetes.io/role/elb", "kubernetes.io/role/internal-elb"];

/// The forged tags in a field of a kind, from the view of a migration.
pub fn forged(tags: &[(String, String)], migration: &Migration<'_>, row: &TagRow, path: &TagPath) -> Vec<Finding> {
    let cluster = migration.spec.cluster_id.as_str();
    let finding = |(key, value): &(String, String)| {
        let problem = problem(key, value, cluster, row, path)?;
        Some(Finding {
            at: path.pointer.to_owned(),
            key: key.clone(),
            value: value.clone(),
            problem,
        })
    };

    tags.iter().filter_map(finding).collect()
}

fn problem(key: &str, value: &str, cluster: &str, row: &TagRow, path: &TagPath) -> Option<Problem> {
    if key.starts_with(tags::CLUSTER_PREFIX) {
        return match tags::cluster_of_key(key) {
            None => Some(Problem::NoCluster),
            Some(id) if id == cluster => illegal(row),
            Some(_) if row.shareable && value == tags::SHARED => Some(Problem::SharedWithForeignCluster),
            Some(_) => Some(Problem::ForeignCluster),
        };
    }
    if key == tags::LEGACY_CLUSTER {
        return (value != cluster).then_some(Problem::ForeignCluster);
    }
    if SUBNET_ROLES.contains(&key) {
        return (path.role != Role::Subnets && row.kind != "Subnet").then_some(Problem::SubnetRole);
    }

    let is_legitimate = row.reserver == Reserver::Kubermatic && key == tags::SYSTEM_CLUSTER && value == cluster;
    // Users must set it, so that Karpenter finds their subnets and security groups. On the resources of a Service the manager
    // refuses it.
    if is_legitimate || key == tags::KARPENTER_DISCOVERY {
        return None;
    }

    tags::reserved_for(key).map(|whose| Problem::Reserved { whose })
}

fn illegal(row: &TagRow) -> Option<Problem> {
    match row.policy {
        Policy::Illegal(what) => Some(Problem::Illegal(what)),
        Policy::Add(_) | Policy::Validate(_) => None,
    }
}

pub(super) const MAX_TAGS: usize = 50;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 256;

/// Why AWS would reject a tag.
pub(super) fn unfit(key: &str, value: &str, shape: TagFormat) -> Option<String> {
    let count = |text: &str| text.chars().count();
    // Values of a StorageClass are templates, which the driver renders first.
    let legal = |text: &str| text.chars().all(is_legal);
    let value_is_legal = shape == TagFormat::Parameters || legal(value);
    if key.is_empty() {
        return Some("is empty; AWS refuses it".to_owned());
    }
    if count(key) > MAX_KEY {
        return Some(format!(
            "has {} characters, and AWS allows {MAX_KEY}; shorten it",
            count(key)
        ));
    }
    if count(value) > MAX_VALUE {
        return Some(format!(
            "has a value of {} characters, and AWS allows {MAX_VALUE}; shorten it",
            count(value)
        ));
    }
    if !legal(key) || !value_is_legal {
        return Some("has a character that AWS refuses; use letters, digits, spaces and _.:/=+-@".to_owned());
    }
    if key.trim() != key || value.trim() != value {
        return Some("begins or ends with a space, which counts in AWS but is not shown there; remove it".to_owned());
    }

    None
}

fn is_legal(character: char) -> bool {
    character.is_alphanumeric() || character == ' ' || "_.:/=+-@".contains(character)
}

/// Tags of one field that AWS, or the reader of the field, would not accept.
pub(super) fn of_limits(path: &TagPath, tags: &Tags) -> Vec<Finding> {
    let finding = |key: &str, value: &str, text: String| Finding {
        at: path.pointer.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        problem: Problem::Unfit(text),
    };
    let each = tags
        .pairs
        .iter()
        .filter_map(|(key, value)| unfit(key, value, path.shape).map(|text| finding(key, value, text)));
    let mut findings: Vec<Finding> = each.collect();

    findings.extend(
        tags.problem
            .map(|problem| finding("", "", format!("{problem}; correct it"))),
    );

    if tags.pairs.len() > MAX_TAGS {
        let count = tags.pairs.len();
        findings.push(finding(
            "",
            "",
            format!("has {count} tags, and AWS allows {MAX_TAGS}; remove some"),
        ));
    }

    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_awss_own() {
        let map = |key: &str, value: &str| unfit(key, value, TagFormat::Map);
        assert_eq!(map(&"k".repeat(128), &"v".repeat(256)), None);
        assert_eq!(map("Größe 1_.:/=+-@", ""), None);
        assert!(map("", "v").unwrap().contains("empty"));
        assert!(map(&"k".repeat(129), "").unwrap().contains("129"));
        assert!(map("k", &"v".repeat(257)).unwrap().contains("257"));
        for (key, value) in [("a$", ""), ("a", "{{ .PVCName }}"), ("a*", ""), ("a\n", "")] {
            assert!(map(key, value).is_some(), "{key:?} {value:?}");
        }
        assert!(map("a ", "").unwrap().contains("space") && map("a", " b").unwrap().contains("space"));
        assert_eq!(unfit("a", "{{ .PVCName }}", TagFormat::Parameters), None);
    }
}
