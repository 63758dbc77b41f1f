//! Objects out of files and stdin: YAML or JSON, several documents, lists taken apart.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use outrigger_decide::json;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::yaml;

/// Most bytes of one file.
pub const MAX_BYTES: u64 = 32 << 20;

/// Most objects of one file.
pub const MAX_OBJECTS: usize = 10_000;

/// A list and its items stand around the object whose nesting the webhook limits.
const MAX_DEPTH: usize = json::MAX_DEPTH + 2;

/// The name of stdin.
pub const STDIN: &str = "-";

/// Where an object was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    /// Which of its documents, from 1; empty ones are not counted.
    pub document: usize,
    /// Which item of a list, from 0.
    pub items: Vec<usize>,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, document {}", self.file, self.document)?;
        self.items
            .iter()
            .try_for_each(|item| write!(formatter, ", items[{item}]"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub origin: Origin,
    /// API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// The whole object, unknown fields included.
    pub object: Value,
}

impl Document {
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `metadata.name`; empty if the API server generates it.
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.text("/metadata/namespace")
            .filter(|namespace| !namespace.is_empty())
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
    #[error("{file} has more than {} MiB; split it", MAX_BYTES >> 20)]
    TooLarge { file: String },
    #[error("{file} has more than {MAX_OBJECTS} objects; split it")]
    TooMany { file: String },
    #[error("{file} is not UTF-8 text (from byte {at} on)")]
    Encoding { file: String, at: usize },
    #[error("{file} is neither YAML nor JSON: {cause}")]
    Syntax { file: String, cause: String },
    #[error("{file} holds no object")]
    Empty { file: String },
    /// Legal YAML, but no Kubernetes object.
    #[error("{origin}: {cause}")]
    NotAnObject { origin: Origin, cause: String },
    #[error("- (stdin) is given twice; it can be read once")]
    StdinTwice,
}

/// Files, and stdin, which can be read once.
pub struct Inputs<'a> {
    stdin: Option<&'a mut dyn Read>,
}

impl<'a> Inputs<'a> {
    /// `stdin` is read for `-`.
    pub fn new(stdin: &'a mut dyn Read) -> Self {
        Self { stdin: Some(stdin) }
    }

    /// Reads the objects of one file, or of stdin.
    ///
    /// # Errors
    /// [`Error`]; nothing is skipped.
    pub fn read(&mut self, file: &str) -> Result<Vec<Document>, Error> {
        let failed = |source| Error::File {
            file: file.to_owned(),
            source,
        };
        let (name, bytes) = if file == STDIN {
            let stdin = self.stdin.take().ok_or(Error::StdinTwice)?;
            ("stdin", limited(stdin).map_err(failed)?)
        } else {
            (file, limited(&mut File::open(file).map_err(failed)?).map_err(failed)?)
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::TooLarge { file: name.to_owned() });
        }

        let text = String::from_utf8(bytes).map_err(|error| Error::Encoding {
            file: name.to_owned(),
            at: error.utf8_error().valid_up_to(),
        })?;
        parse(name, &text)
    }
}

fn limited(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the objects of a text; `file` names it in messages.
///
/// # Errors
/// [`Error`]; nothing is skipped.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values = values(text).map_err(|cause| Error::Syntax {
        file: file.to_owned(),
        cause,
    })?;
    let mut documents = Vec::new();

    for (index, value) in values.into_iter().enumerate() {
        let origin = Origin {
            file: file.to_owned(),
            document: index + 1,
            items: Vec::new(),
        };
        take_apart(value, origin, None, &mut documents)?;
    }

    match documents.len() {
        0 => Err(Error::Empty { file: file.to_owned() }),
        count if count > MAX_OBJECTS => Err(Error::TooMany { file: file.to_owned() }),
        _ => Ok(documents),
    }
}

/// JSON where it can be, as YAML does not take all of it; else YAML.
fn values(text: &str) -> Result<Vec<Value>, String> {
    let read_yaml = || yaml::read(text, MAX_DEPTH, MAX_OBJECTS + 1);
    if !text.trim_start().starts_with(['{', '[']) {
        return read_yaml();
    }
    let stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let values: Result<Vec<Value>, serde_json::Error> = stream.map(|raw| json::parse(raw?.get(), MAX_DEPTH)).collect();
    values.or_else(|error| read_yaml().map_err(|_| error.to_string()))
}

/// The items of a list become objects. Items of a typed list may lack `apiVersion` and `kind`.
fn take_apart(
    mut value: Value,
    origin: Origin,
    inherited: Option<(&str, &str)>,
    into: &mut Vec<Document>,
) -> Result<(), Error> {
    let (api_version, kind) = match types(&value, inherited) {
        Ok((api_version, kind)) => (api_version.to_owned(), kind.to_owned()),
        Err(cause) => return Err(Error::NotAnObject { origin, cause }),
    };
    if let Some(item_kind) = kind.strip_suffix("List") {
        let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) else {
            let cause = format!("{kind} without items; give it a list of objects");
            return Err(Error::NotAnObject { origin, cause });
        };

        let inherited = (!item_kind.is_empty()).then_some((api_version.as_str(), item_kind));
        for (index, item) in items.into_iter().enumerate() {
            let mut origin = origin.clone();
            origin.items.push(index);
            take_apart(item, origin, inherited, into)?;
        }

        return Ok(());
    }

    if let (Some((api_version, kind)), Some(object)) = (inherited, value.as_object_mut()) {
        object.entry("apiVersion").or_insert_with(|| api_version.into());
        object.entry("kind").or_insert_with(|| kind.into());
    }

    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    into.push(Document {
        origin,
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        object: value,
    });

    Ok(())
}

/// `apiVersion` and `kind`, or why there are none.
fn types<'a>(value: &'a Value, inherited: Option<(&'a str, &'a str)>) -> Result<(&'a str, &'a str), String> {
    let Some(object) = value.as_object() else {
        return Err(format!("{} is not a Kubernetes object", article(value)));
    };

    let text = |key: &str, inherited: Option<&'a str>| match object.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        None if inherited.is_some() => Ok(inherited.unwrap_or_default()),
        None => Err(match distribution(object) {
            Some(what) => format!("{key} is missing: this is {what}"),
            None => format!("{key} is missing; every object has one"),
        }),
        Some(other) => Err(format!("{key} is {other}, not a string; correct it")),
    };
    let api_version = text("apiVersion", inherited.map(|types| types.0))?;
    let kind = text("kind", inherited.map(|types| types.1))?;
    if object.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
        return Err("metadata is not a mapping; correct it".to_owned());
    }

    Ok((api_version, kind))
}

/// A configuration file of a distribution is no object. Its guide has the text for each phase.
fn distribution(object: &Map<String, Value>) -> Option<&'static str> {
    const OF_RKE2: [&str; 5] = [
        "kubelet-arg",
        "kube-controller-manager-arg",
        "kube-apiserver-arg",
        "cloud-provider-name",
        "disable-cloud-controller",
    ];
    let is_rke2 = OF_RKE2.iter().any(|key| object.contains_key(*key));
    let of_rke1 = |services: &Value| {
        ["kube-controller", "kubelet"]
            .iter()
            .any(|key| !services[*key].is_null())
    };
    let is_rke1 = object.contains_key("cloud_provider") || object.get("services").is_some_and(of_rke1);
    if is_rke2 {
        return Some(
            "the configuration of RKE2 or K3s, no object; docs/guides/rke2.md (Without Rancher) has its text for each phase",
        );
    }

    is_rke1.then_some("the configuration of RKE1, no object; docs/guides/rke1.md has its text for each phase")
}

fn article(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let all = parse("f", text).unwrap();
        all.into_iter()
            .map(|document| format!("{} {}", document.origin, document.kind))
            .collect()
    }

    fn error(text: &str) -> String {
        parse("f", text).unwrap_err().to_string()
    }

    #[test]
    fn documents_lists_and_json_streams_are_taken_apart() {
        let pod = "apiVersion: v1\nkind: Pod\n";
        assert_eq!(
            kinds(&format!("---\n{pod}---\n# nothing\n---\n{pod}")),
            ["f, document 1 Pod", "f, document 2 Pod"]
        );
        let json = r#"{"apiVersion":"v1","kind":"Pod","x":"\ud83d\ude00"}"#;
        assert_eq!(
            kinds(&format!("{json}\n{json}")),
            ["f, document 1 Pod", "f, document 2 Pod"]
        );
        assert_eq!(
            kinds("{apiVersion: v1, kind: Pod}"),
            ["f, document 1 Pod"],
            "flow style is YAML"
        );
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"},{"apiVersion":"v1","kind":"Node"}]}"#;
        assert_eq!(
            kinds(list),
            ["f, document 1, items[0] Pod", "f, document 1, items[1] Node"]
        );
    }

    #[test]
    fn items_of_a_typed_list_are_told_what_they_are() {
        let text = r#"{"apiVersion":"apps/v1","kind":"DeploymentList","items":[{"metadata":{"name":"a"}}]}"#;
        let all = parse("f", text).unwrap();
        assert_eq!(
            (all[0].group.as_str(), all[0].version.as_str(), all[0].kind.as_str()),
            ("apps", "v1", "Deployment")
        );
        assert_eq!(all[0].object["kind"], "Deployment");
    }

    #[test]
    fn what_is_no_object_is_named_with_its_place() {
        for (text, said) in [
            (
                "apiVersion: v1\nkind: Pod\n---\n- a\n",
                "f, document 2: a list is not a Kubernetes object",
            ),
            ("just words", "f, document 1: a text is not a Kubernetes object"),
            ("kind: Pod", "f, document 1: apiVersion is missing; every"),
            (
                "kubelet-arg: [cloud-provider=aws]",
                "this is the configuration of RKE2 or K3s",
            ),
            ("cloud_provider: {name: aws}", "this is the configuration of RKE1"),
            (
                "services: {kubelet: {extra_args: {}}}",
                "this is the configuration of RKE1",
            ),
            ("services: [a]", "f, document 1: apiVersion is missing; every"),
            ("apiVersion: v1\nkind: 7", "f, document 1: kind is 7, not a string"),
            ("apiVersion: v1\nkind: Pod\nmetadata: []", "metadata is not a mapping"),
            ("apiVersion: v1\nkind: List", "f, document 1: List without items"),
            (
                "apiVersion: v1\nkind: List\nitems: [7]",
                "f, document 1, items[0]: a number is no",
            ),
            ("", "f holds no object"),
            ("# nothing\n---\n", "f holds no object"),
            ("apiVersion: v1\nkind: List\nitems: []", "f holds no object"),
            (r#"{"a":1,"a":2}"#, "f is neither YAML nor JSON: "),
            ("a: b: c", "f is neither YAML nor JSON: "),
        ] {
            assert!(error(text).contains(said), "{text}: {}", error(text));
        }
    }

    #[test]
    fn limits_hold() {
        let many = "---\napiVersion: v1\nkind: Pod\n".repeat(MAX_OBJECTS);
        assert_eq!(parse("f", &many).unwrap().len(), MAX_OBJECTS);
        let items = vec![r#"{"apiVersion":"v1","kind":"Pod"}"#; MAX_OBJECTS + 1].join(",");
        let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#);
        assert!(error(&list).contains("more than 10000 objects"));
        let deep = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","x":{}{}}}"#,
            "[".repeat(80),
            "]".repeat(80)
        );
        assert!(error(&deep).contains("nested too deeply"), "{}", error(&deep));
    }
}
