//! YAML texts inside of objects and their editor.
//!
//! An input is a line of JSON, `[{"do": "set" | "insert" | "push" | "remove", "document": 0, "path": [...], "value"}]`, then the
//! text. Promised: no panic; an edit does what was meant and nothing else, or nothing at all; undoing, with edits that went through
//! JSON, gives the text back byte for byte; edits of a stranger never panic.

use outrigger_shared::yaml_text::{LineEdit, YamlText, undo};
use serde_json::{Value, json};

use super::text;
use crate::features::note;
use crate::mutate::{self, json as tree};
use crate::random::Random;

/// One input.
///
/// # Panics
/// When a promise is broken.
pub fn target(data: &[u8]) {
    let Some((steps, original)) = text(data).and_then(|text| text.split_once('\n')) else {
        return;
    };
    let steps: Value = serde_json::from_str(steps).unwrap_or_default();
    let mut yaml = match YamlText::parse(original) {
        Ok(yaml) => yaml,
        Err(refusal) => return note(&last_words(&refusal.to_string())),
    };
    if let Ok(edits) = serde_json::from_value::<Vec<LineEdit>>(steps.clone())
        && let Some(undone) = undo(original, &edits)
    {
        assert!(
            YamlText::parse(&undone).is_ok(),
            "undone to what is no YAML: {undone:?}"
        );
    }
    for step in steps.as_array().into_iter().flatten().take(6) {
        apply(&mut yaml, step);
    }
    let edits = serde_json::to_string(yaml.edits()).expect("edits are JSON");
    let edits: Vec<LineEdit> = serde_json::from_str(&edits).expect("edits can be read again");
    let undone = undo(yaml.text(), &edits);
    assert_eq!(
        undone.as_deref(),
        Some(original),
        "{:?} undone by {}",
        yaml.text(),
        json!(edits)
    );
}

fn apply(yaml: &mut YamlText, step: &Value) {
    // Paths are the rules' own, and short.
    let path: Vec<&str> = step["path"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .take(16)
        .collect();
    let document = step["document"]
        .as_u64()
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or_default();
    let (before, text, edits) = (yaml.documents().to_vec(), yaml.text().to_owned(), yaml.edits().len());
    let was = yaml.get(document, &path).cloned();
    let value = &step["value"];
    let kind = step["do"].as_str().unwrap_or_default();
    let done = match kind {
        "set" => yaml.set(document, &path, value.as_str().unwrap_or("external")),
        "insert" => yaml.insert(document, &path, value),
        "push" => yaml.push(document, &path, value),
        "remove" => yaml.remove(document, &path),
        _ => return,
    };
    if let Err(refusal) = done {
        note(&last_words(&refusal.to_string()));
        assert_eq!(
            (yaml.text(), yaml.edits().len()),
            (text.as_str(), edits),
            "a refused edit changed the text"
        );
        return;
    }
    note(&format!("{kind} {}", path.len().min(4)));
    let now = yaml.get(document, &path);
    match kind {
        "set" => assert_eq!(
            now.and_then(Value::as_str),
            Some(value.as_str().unwrap_or("external")),
            "{}",
            yaml.text()
        ),
        "insert" => assert_eq!(now, Some(value), "{}", yaml.text()),
        "push" => {
            let mut wanted = was.and_then(|was| was.as_array().cloned()).unwrap_or_default();
            wanted.push(value.clone());
            assert_eq!(now, Some(&Value::Array(wanted)), "{}", yaml.text());
        }
        _ => {
            let read = serde_saphyr::from_multiple::<Value>(yaml.text()).expect("an edited text is YAML");
            assert_eq!(read, yaml.documents(), "the text says something else: {}", yaml.text());
        }
    }
    for (number, other) in before.iter().enumerate().filter(|(number, _)| *number != document) {
        assert_eq!(
            yaml.documents().get(number),
            Some(other),
            "another document changed: {}",
            yaml.text()
        );
    }
}

/// The rest is the text's own words.
fn last_words(message: &str) -> String {
    let why = message.split(", so the text").next().unwrap_or_default();
    let words: Vec<&str> = why.split_whitespace().rev().take(5).collect();
    words.concat()
}

const WORDS: &[&str] = &[
    "extraArgs:",
    "cloud-provider: aws",
    "cloud-provider: \"aws\"",
    "- name: cloud-provider\n  value: aws",
    "  ",
    "    ",
    "- ",
    ": ",
    "# comment",
    "---",
    "...",
    "|",
    "|-",
    ">",
    "'",
    "\"",
    "{a: b}",
    "[a, b]",
    "[]",
    "{}",
    "&a ",
    "*a",
    "!!str ",
    "<<: *a",
    "? ",
    "~",
    "null",
    "\t",
    "\r\n",
    "\\",
    "%YAML 1.2",
    "kind: ClusterConfiguration",
    "apiServer:",
    "controllerManager:",
    "\u{85}",
    "{{ .Values.x }}",
    "'it''s'",
];

const KEYS: &[&str] = &[
    "apiServer",
    "controllerManager",
    "extraArgs",
    "cloud-provider",
    "args",
    "0",
    "1",
    "9",
    "",
    "new",
    "a b",
    "a: b",
    "*",
];

/// One change: of the steps, mostly along keys that the text has, or of the text.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    let Some((steps, yaml)) = text(data).and_then(|text| text.split_once('\n')) else {
        return mutate::bytes::mutate(random, data, other);
    };
    if random.one_in(2) {
        let changed = mutate::text::mutate(random, yaml.as_bytes(), other, WORDS);
        return [steps.as_bytes(), b"\n", &changed].concat();
    }
    let mut steps: Value = serde_json::from_str(steps).unwrap_or_default();
    if random.one_in(4) {
        tree::mutate(random, &mut steps, &Value::Null, KEYS);
    } else {
        let step = step(random, yaml);
        match steps.as_array_mut() {
            Some(list) if random.one_in(2) && list.len() < 6 => list.push(step),
            _ => steps = json!([step]),
        }
    }
    format!("{steps}\n{yaml}").into_bytes()
}

fn step(random: &mut Random, yaml: &str) -> Value {
    let documents = YamlText::parse(yaml).map_or_else(|_| Vec::new(), |yaml| yaml.documents().to_vec());
    let document = random.below(documents.len());
    let pointers = documents
        .get(document)
        .map_or_else(|| vec![String::new()], tree::pointers);
    let pointer = random.pick(&pointers);
    let mut path: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|key| key.replace("~1", "/").replace("~0", "~"))
        .collect();
    if random.one_in(2) {
        path.push((*random.pick(KEYS)).to_owned());
    }
    let value = if random.one_in(2) {
        json!(random.pick(&["external", "", "true", "1", "a: b", "x #y"]))
    } else {
        tree::odd(random, WORDS)
    };
    json!({"do": random.pick(&["set", "set", "insert", "push", "remove"]), "document": document, "path": path, "value": value})
}

/// Texts as kubeadm's and charts' owners write them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    const SET: &str =
        r#"[{"do":"set","document":0,"path":["controllerManager","extraArgs","cloud-provider"],"value":"external"}]"#;
    const PUSH: &str = r#"[{"do":"push","document":0,"path":["args"],"value":"--cloud-provider=external"},{"do":"remove","document":0,"path":["args","0"]}]"#;
    [
        format!("{SET}\napiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\ncontrollerManager:\n  extraArgs:\n    cloud-provider: aws # the old one\n    cloud-config: \"/etc/aws.conf\"\n"),
        format!("{SET}\n# two\na: {{b: [c, 'd']}}\n---\ncontrollerManager: {{}}\n"),
        format!("{PUSH}\nargs:\n- --v=2\n- --cloud-provider=aws\nimage: |\n  several\n  lines\n"),
        format!("{PUSH}\nargs: [--v=2, \"--x\"]\nnodeSelector:\n"),
    ]
    .map(String::into_bytes)
    .to_vec()
}
