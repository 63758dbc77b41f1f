//! Argument lists of every form: containers with all wrappers, lists with and without dashes, pairs, the prober's JSON.
//!
//! An input is JSON: `{"shape", "line", "steps": [{"set": FLAG, "value"}, {"remove": FLAG}], "edits": [...]}`. Checks:
//!
//! - reading, changing and undoing never panic, and an unreadable list is not changed;
//! - a flag that was set has the value, a flag that was removed is absent, and other flags keep their values;
//! - undoing edits that went through JSON gives the list back byte for byte;
//! - foreign edits never panic;
//! - for simple lists, the values are those of a second, simple parser ([`model`]).

mod model;

use fastrand::Rng;
use outrigger_shared::command_line::{CommandLine, Edit, Flag, List, Unreadable};
use serde_json::{Value, json};

/// The flags that rules change, and more.
const FLAGS: [Flag; 8] = [
    Flag::text("cloud-provider"),
    Flag::text("cloud-config"),
    Flag::boolean("enable-leader-migration"),
    Flag::text("leader-migration-config"),
    Flag::text("external-cloud-volume-plugin"),
    Flag::text("feature-gates"),
    Flag::text("controllers"),
    Flag::boolean("leader-elect"),
];

pub fn run(data: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(data) else {
        return;
    };

    let shape = input["shape"].as_str().unwrap_or_default();
    let line = match read(shape, &input["line"]) {
        None => return,
        Some(Err(unreadable)) => return drop(unreadable.to_string()),
        Some(Ok(line)) => line,
    };

    for flag in FLAGS {
        check_against_model(shape, &line, flag);
    }

    check_foreign_edits(&line, &input["edits"]);
    if model::begins_late(&line) {
        return;
    }

    let mut changed = line.clone();
    for step in input["steps"].as_array().into_iter().flatten().take(8) {
        apply(&mut changed, step);
    }

    check_undo(&line, changed);
}

fn read(shape: &str, line: &Value) -> Option<Result<CommandLine, Unreadable>> {
    let texts = || serde_json::from_value::<Option<Vec<String>>>(line.clone()).ok();
    Some(match shape {
        "container" => CommandLine::of_container(line),
        "dashed" => CommandLine::dashed(texts()?),
        "bare" => CommandLine::bare(texts()?),
        "pairs" => CommandLine::of_pairs(serde_json::from_value::<Option<Vec<(String, String)>>>(line.clone()).ok()?),
        _ => return None,
    })
}

fn lists(line: &CommandLine) -> [Option<Vec<String>>; 2] {
    [List::Command, List::Args].map(|list| line.list(list).map(<[String]>::to_vec))
}

/// Each flag's values; an error as its text.
fn all_values(line: &CommandLine) -> Vec<Result<Vec<String>, String>> {
    let values = |flag| line.values(flag).map_err(|error| error.to_string());
    FLAGS.into_iter().map(values).collect()
}

fn check_against_model(shape: &str, line: &CommandLine, flag: Flag) {
    let found = line.values(flag);
    let [command, args] = lists(line);
    let tokens: Vec<&str> = command.iter().chain(&args).flatten().map(String::as_str).collect();
    if let Some(expected) = model::values(shape, &tokens, flag) {
        assert_eq!(found.ok(), expected, "values of --{} in {tokens:?}", flag.name);
    }
}

fn apply(line: &mut CommandLine, step: &Value) {
    let named = |key: &str| {
        let name = step[key].as_str()?;
        FLAGS.iter().position(|flag| flag.name == name)
    };
    let before = (lists(line), all_values(line), line.edits().len());
    let (index, done, wanted) = if let Some(index) = named("set") {
        let flag = FLAGS[index];
        let value = step["value"].as_str().unwrap_or("true");
        // Rules write only plain values.
        if value.contains("$(") || value.starts_with('-') {
            return;
        }
        (index, line.set(flag, value), Some(value.to_owned()))
    } else if let Some(index) = named("remove") {
        (index, line.remove(FLAGS[index]), None)
    } else {
        return;
    };
    if let Err(unreadable) = done {
        assert_eq!(lists(line), before.0, "an unreadable list was changed: {unreadable}");
        return;
    }

    let flag = FLAGS[index];
    assert_eq!(
        line.value(flag).ok(),
        Some(wanted.clone()),
        "--{} after {step}: {:?}",
        flag.name,
        lists(line)
    );

    let after = all_values(line);
    // A flag without its value has none to keep.
    for other in (0..FLAGS.len()).filter(|other| *other != index && before.1[*other].is_ok()) {
        assert_eq!(
            after[other],
            before.1[other],
            "--{} after {step}: {:?}",
            FLAGS[other].name,
            lists(line)
        );
    }

    let written = line.edits().len();
    let again = match wanted {
        Some(value) => line.set(flag, &value),
        None => line.remove(flag),
    };
    assert!(
        again.is_ok() && line.edits().len() == written,
        "{step} twice is not {step} once"
    );
}

fn check_undo(original: &CommandLine, mut changed: CommandLine) {
    let text = serde_json::to_string(changed.edits()).expect("edits are JSON");
    let edits: Vec<Edit> = serde_json::from_str(&text).expect("edits can be read again");
    if edits.is_empty() {
        assert_eq!(lists(&changed), lists(original), "a change without an edit");
        return;
    }

    assert!(
        changed.undo(&edits),
        "nothing else changed the list, but it cannot be undone: {text} in {:?}",
        lists(&changed)
    );
    assert_eq!(lists(&changed), lists(original), "undone by {text}");
}

fn check_foreign_edits(line: &CommandLine, edits: &Value) {
    let Ok(edits) = serde_json::from_value::<Vec<Edit>>(edits.clone()) else {
        return;
    };

    let mut undone = line.clone();
    if undone.undo(&edits) {
        all_values(&undone).clear();
    } else {
        assert_eq!(lists(&undone), lists(line), "edits that were refused changed something");
    }
}

/// Inserts a step that sets or removes a known flag, or a word into the list.
pub fn mutate(input: &mut Vec<u8>, rng: &mut Rng) {
    let Ok(mut value @ Value::Object(_)) = serde_json::from_slice::<Value>(input) else {
        return;
    };

    let (name, word) = (rng.choice(FLAGS).unwrap().name, rng.choice(WORDS));
    let (list, new) = match rng.u8(..4) {
        0 => (&mut value["steps"], json!({"remove": name})),
        1 => (&mut value["steps"], json!({"set": name, "value": word})),
        _ => {
            let is_pairs = value["shape"] == "pairs";
            let line = &mut value["line"];
            let list = if line.is_object() {
                &mut line[*rng.choice(&["command", "args"]).unwrap()]
            } else {
                line
            };
            let new = if is_pairs {
                json!([word, rng.choice(WORDS)])
            } else {
                json!(word)
            };
            (list, new)
        }
    };
    match list.as_array_mut() {
        Some(list) => list.insert(rng.usize(..=list.len()), new),
        None => *list = json!([new]),
    }

    *input = value.to_string().into_bytes();
}

pub const WORDS: &[&str] = &[
    "--cloud-provider=aws",
    "--cloud-provider",
    "--cloud_provider=aws",
    "-cloud-provider=aws",
    "cloud-provider=aws",
    "cloud-provider",
    "cloud-provider-=aws",
    "cloud-provider+=aws",
    "aws",
    "external",
    "",
    "=",
    "-",
    "--",
    "---x",
    "--=",
    "=x",
    "--cloud-config=/etc/aws.conf",
    "--cloud-config",
    "--enable-leader-migration",
    "--enable-leader-migration=true",
    "enable-leader-migration",
    "--leader-elect=false",
    "--feature-gates=A=true",
    "--feature-gates",
    "CSIMigrationAWS=false",
    "--controllers=*",
    "--v=2",
    "-v",
    "2",
    "$(X)",
    "$(Y)=1",
    "$$(X)",
    "--cloud-provider=$(X)",
    "kube-controller-manager",
    "/usr/bin/kube-controller-manager",
    "/hyperkube",
    "hyperkube",
    "tini",
    "dumb-init",
    "/go-runner",
    "env",
    "-u",
    "A=b",
    "-S",
    "sh",
    "-c",
    "exec kube-controller-manager --cloud-provider=aws",
    "http-prober",
    "-command",
    "--command={\"command\":\"/x\",\"args\":[\"--cloud-provider=aws\"]}",
    "{\"command\":\"/x\",\"args\":[\"--cloud-provider\",\"aws\"]}",
    "{\"args\": [\"-v\", \"<\"], \"command\": [\"/y\", \"--cloud-config=a\"]}",
    "container",
    "bare",
    "dashed",
    "pairs",
    "set",
    "remove",
    "value",
    "command",
    "args",
    "created",
    "json",
    "list",
    "index",
];

pub fn seeds() -> Vec<Vec<u8>> {
    let steps = json!([{"set": "cloud-provider", "value": "external"}, {"remove": "cloud-config"}, {"set": "enable-leader-migration", "value": "true"}]);
    let flags = [
        "--allocate-node-cidrs=true",
        "--cloud-provider=aws",
        "--cloud-config=/etc/aws.conf",
        "--leader-elect=true",
    ];
    let bare = flags.map(|flag| flag.trim_start_matches('-'));
    let pairs: Vec<_> = bare.iter().filter_map(|flag| flag.split_once('=')).collect();
    let prober = json!({"command": "/usr/local/bin/kube-controller-manager", "args": ["--cloud-provider", "aws", "--cloud-config", "/c"]});
    let edits = json!([{"list": "args", "index": 1, "flag": "cloud-provider", "was": ["--cloud-provider=aws"], "now": ["--leader-elect=true"]}]);
    let lines = [
        (
            "container",
            json!({"command": ["kube-controller-manager"], "args": flags}),
        ),
        (
            "container",
            json!({"command": ["/go-runner", "--log-file=/x", "kube-controller-manager", "--cloud-provider", "aws", "--v", "2"]}),
        ),
        (
            "container",
            json!({"command": ["tini", "--", "/hyperkube", "controller-manager", "--cloud-provider"], "args": ["aws"]}),
        ),
        (
            "container",
            json!({"args": flags, "env": [{"name": "X", "value": "aws"}]}),
        ),
        (
            "container",
            json!({"command": ["/http-prober"], "args": ["-endpoint", "e", "-command", prober.to_string()]}),
        ),
        (
            "container",
            json!({"command": ["sh", "-c", "exec kube-controller-manager --cloud-provider=aws"]}),
        ),
        ("dashed", json!(flags)),
        ("bare", json!(bare)),
        ("bare", json!(null)),
        ("pairs", json!(pairs)),
    ];

    let inputs = lines.map(|(shape, line)| json!({"shape": shape, "line": line, "steps": steps, "edits": edits}));

    inputs.iter().map(|input| input.to_string().into_bytes()).collect()
}
