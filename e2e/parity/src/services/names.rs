//! IDs of AWS, and the names that replace them in case files: `<subnet-a>`, `<node-1>`, `<sg:NAME>`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The beginning of every ARN of a load balancer.
const ARN: &str = "arn:aws:elasticloadbalancing:us-east-1:123456789012:";

/// IDs and their names.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Longest ID first, because IDs contain IDs.
    pairs: Vec<(String, String)>,
    /// The ID of a name. A resource that is created again has the new one.
    ids: BTreeMap<String, String>,
}

impl Names {
    pub fn learn(&mut self, id: &str, name: impl Into<String>) {
        if id.is_empty() || self.pairs.iter().any(|(known, _)| known == id) {
            return;
        }

        let name = format!("<{}>", name.into());
        self.ids.insert(name.clone(), id.to_owned());
        self.pairs.push((id.to_owned(), name));
        self.pairs
            .sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    }

    /// The names of AWS resources that contain the UID of the Service.
    pub fn learn_service(&mut self, cluster_name: &str, namespace: &str, name: &str, uid: &str) {
        self.learn_service_as("", cluster_name, namespace, name, uid);
    }

    /// As [`Names::learn_service`], with a text after the names, for more than one Service.
    pub fn learn_service_as(&mut self, which: &str, cluster_name: &str, namespace: &str, name: &str, uid: &str) {
        let load_balancer: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
        self.learn(&load_balancer, format!("lb{which}"));

        let short = |text: &str| -> String { text.chars().filter(char::is_ascii_alphanumeric).take(8).collect() };
        let hash = Sha256::digest(format!("{cluster_name}{name}{namespace}{uid}"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let group = format!("k8s-{}-{}-{}", short(namespace), short(name), &hash[..10]);
        self.learn(&group, format!("managed{which}"));
        self.learn(uid, format!("uid{which}"));
    }

    /// `name` is without brackets.
    pub(super) fn id(&self, name: &str) -> Option<&str> {
        self.ids.get(&format!("<{name}>")).map(String::as_str)
    }

    /// The text with names for IDs.
    pub(super) fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, name) in &self.pairs {
            if text.contains(id.as_str()) {
                text = text.replace(id.as_str(), name);
            }
        }
        without_request_ids(&without_numbers(&text.replace(ARN, "")))
    }

    /// The text with IDs for names.
    pub(super) fn resolved(&self, text: &str) -> String {
        let ids = self.ids.iter().filter(|(name, _)| text.contains(name.as_str()));
        let mut ids: Vec<(&String, &String)> = ids.collect();
        ids.sort_by_key(|(name, _)| std::cmp::Reverse(name.len())); // names contain names

        let replaced = |text: String, (name, id): (&String, &String)| text.replace(name.as_str(), id);
        ids.into_iter().fold(text.to_owned(), replaced)
    }

    pub(super) fn resolve(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.resolved(text))
    }

    pub fn name(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.named(text))
    }
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (change(key), map_texts(value, change)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// `#` for every word of 16 or more hexadecimal digits and dashes: numbers in ARNs and host names, request IDs.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for character in text.chars().chain([' ']) {
        if character.is_ascii_hexdigit() {
            word.push(character);
            continue;
        }

        let number = word.len() >= 16 && word.chars().any(|digit| digit.is_ascii_digit());
        out.push_str(if number { "#" } else { &word });
        word.clear();
        out.push(character);
    }

    out.pop();

    uuids(&out)
}

/// `#` for the text after `RequestID: `.
fn without_request_ids(text: &str) -> String {
    const MARK: &str = "RequestID: ";
    let mut parts = text.split(MARK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let rest = part.find(',').map_or("", |end| &part[end..]);
        format!("{out}{MARK}#{rest}")
    })
}

/// `#` for every UUID.
fn uuids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

    let is_uuid = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.len() == GROUPS.len()
            && parts
                .iter()
                .zip(GROUPS)
                .all(|(part, length)| part.len() == length && part.chars().all(|digit| digit.is_ascii_hexdigit()))
    };

    let words = text.split_inclusive([' ', ',', ':', '/', '"', '\n']);
    let replaced = words.map(|word| {
        let bare = word.trim_end_matches([' ', ',', ':', '/', '"', '\n']);
        match is_uuid(bare) {
            true => format!("#{}", &word[bare.len()..]),
            false => word.to_owned(),
        }
    });

    replaced.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Names;

    #[test]
    fn ids_and_names_replace_each_other() {
        let mut names = Names::default();
        names.learn("subnet-1", "subnet-a");
        names.learn("subnet-12", "subnet-b");
        assert_eq!(names.named("subnet-12,subnet-1"), "<subnet-b>,<subnet-a>");
        assert_eq!(names.resolved("<subnet-b>,<subnet-a>"), "subnet-12,subnet-1");
        assert_eq!(names.id("subnet-a"), Some("subnet-1"));
        names.learn("lb-1", "lb");
        names.learn("sg-1", "sg:k8s-elb-<lb>");
        assert_eq!(names.resolved("<sg:k8s-elb-<lb>> <lb>"), "sg-1 lb-1");
        names.learn("lb-0", "lb");
        assert_eq!(names.resolved("<lb>"), "lb-0", "it was created again");
        assert_eq!(names.named("lb-0 lb-1"), "<lb> <lb>");
        let value = json!({"a": ["subnet-1", 1]});
        assert_eq!(names.name(&value), json!({"a": ["<subnet-a>", 1]}));
        assert_eq!(names.resolve(&names.name(&value)), value);
    }

    #[test]
    fn names_with_the_uid_are_those_of_the_service() {
        let mut names = Names::default();
        names.learn_service(
            "test-cluster",
            "default",
            "my-service",
            "12345678-1234-1234-1234-123456789abc",
        );
        assert_eq!(names.named("k8s-elb-a12345678123412341234123456789ab"), "k8s-elb-<lb>");
        assert_eq!(names.named("k8s-default-myservic-b7cb8b02f0"), "<managed>");
    }

    #[test]
    fn random_numbers_are_omitted() {
        let names = Names::default();
        assert_eq!(
            names.named("arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/k8s-default-a-7fa2e07508/0123456789abcdef"),
            "targetgroup/k8s-default-a-7fa2e07508/#"
        );
        assert_eq!(names.named("lb-0123456789abcdef.elb"), "lb-#.elb");
        assert_eq!(names.named("RequestID: zQx0, Code: b"), "RequestID: #, Code: b");
        assert_eq!(
            names.named("RequestID: 01234567-0123-0123-0123-0123456789ab, x"),
            "RequestID: #, x"
        );
    }
}
