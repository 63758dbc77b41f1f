//! YAML texts inside of objects, and their editor.
//!
//! An input is a line of JSON, `[{"do": "set" | "insert" | "push" | "remove", "document": 0, "path": [...], "value"}]`,
//! then the text. Checks: no panic; an edit changes what it names and nothing else, or fails and changes nothing;
//! undoing edits that went through JSON gives the text back byte for byte; foreign edits never panic.

use fastrand::Rng;
use outrigger_shared::yaml_text::{LineEdit, YamlText, undo};
use serde_json::{Value, json};

use crate::mutate::{odd, paths};

pub fn run(data: &[u8]) {
    let Some((steps, original)) = split(data) else {
        return;
    };

    let steps: Value = serde_json::from_str(steps).unwrap_or_default();
    let mut yaml = match YamlText::parse(original) {
        Ok(yaml) => yaml,
        Err(refusal) => return drop(refusal.to_string()),
    };
    if let Ok(edits) = serde_json::from_value::<Vec<LineEdit>>(steps.clone())
        && let Some(undone) = undo(original, &edits)
    {
        assert!(
            YamlText::parse(&undone).is_ok(),
            "undone to an invalid YAML text: {undone:?}"
        );
    }

    for step in steps.as_array().into_iter().flatten().take(6) {
        apply(&mut yaml, step);
    }

    let edits = serde_json::to_string(yaml.edits()).expect("edits are JSON");
    let edits: Vec<LineEdit> = serde_json::from_str(&edits).expect("edits can be read again");
    let undone = undo(yaml.text(), &edits);

    let (text, edits) = (yaml.text(), json!(edits));
    assert_eq!(undone.as_deref(), Some(original), "{text:?} undone by {edits}");
}

fn split(data: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(data).ok()?.split_once('\n')
}

fn apply(yaml: &mut YamlText, step: &Value) {
    // Paths come from the rules, and are short.
    let path = step["path"].as_array().into_iter().flatten();
    let path: Vec<&str> = path.filter_map(Value::as_str).take(16).collect();
    let document = step["document"].as_u64().unwrap_or_default();
    let document = usize::try_from(document).unwrap_or_default();
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
        drop(refusal.to_string());
        assert_eq!(
            (yaml.text(), yaml.edits().len()),
            (text.as_str(), edits),
            "a refused edit changed the text"
        );
        return;
    }

    let (now, text) = (yaml.get(document, &path), yaml.text());
    match kind {
        "set" => assert_eq!(now, Some(&json!(value.as_str().unwrap_or("external"))), "{text}"),
        "insert" => assert_eq!(now, Some(value), "{text}"),
        "push" => {
            let mut wanted = was.and_then(|was| was.as_array().cloned()).unwrap_or_default();
            wanted.push(value.clone());
            assert_eq!(now, Some(&Value::Array(wanted)), "{text}");
        }
        _ => {
            let read = serde_saphyr::from_multiple::<Value>(text).expect("an edited text is YAML");
            assert_eq!(read, yaml.documents(), "the text says something else: {text}");
        }
    }

    for (number, other) in before.iter().enumerate().filter(|(number, _)| *number != document) {
        let now = yaml.documents().get(number);
        assert_eq!(now, Some(other), "another document changed: {text}");
    }
}

/// Adds a step along keys that the text has, or replaces all steps by it.
pub fn mutate(input: &mut Vec<u8>, rng: &mut Rng) {
    let Some((steps, yaml)) = split(input) else {
        return;
    };

    let mut steps: Value = serde_json::from_str(steps).unwrap_or_default();
    let step = step(rng, yaml);
    match steps.as_array_mut() {
        Some(steps) if rng.bool() && steps.len() < 6 => steps.push(step),
        _ => steps = json!([step]),
    }

    *input = format!("{steps}\n{yaml}").into_bytes();
}

fn step(rng: &mut Rng, yaml: &str) -> Value {
    let documents = YamlText::parse(yaml).map_or_else(|_| Vec::new(), |yaml| yaml.documents().to_vec());
    let document = rng.usize(..documents.len().max(1));
    let places = documents.get(document).map_or_else(|| vec![Vec::new()], paths);
    let mut path = rng.choice(places).unwrap();
    if rng.bool() {
        path.push((*rng.choice(WORDS).unwrap()).to_owned());
    }

    let value = if rng.bool() {
        json!(rng.choice(["external", "", "true", "1", "a: b", "x #y"]))
    } else {
        odd(rng, WORDS)
    };
    let verb = rng.choice(["set", "set", "insert", "push", "remove"]);
    json!({"do": verb, "document": document, "path": path, "value": value})
}

pub const WORDS: &[&str] = &[
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
    "controllerManager",
    "extraArgs",
    "cloud-provider",
    "args",
    "0",
    "1",
    "9",
    "new",
    "a b",
    "a: b",
    "*",
];

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
