//! The command line in the JSON of Kubermatic's http-prober.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::command_line::{CommandLine, Flag, List, Unreadable};
use serde_json::{Value, json};

mod corpus_support;
mod published;

const PROVIDER: Flag = Flag::text("cloud-provider");
const CONFIG: Flag = Flag::text("cloud-config");
const MIGRATION: Flag = Flag::boolean("enable-leader-migration");

fn prober(args: &[&str]) -> CommandLine {
    CommandLine::of_container(&json!({ "command": ["/http-prober-bin/http-prober"], "args": args })).unwrap()
}

fn wrapped(json: &str) -> CommandLine {
    prober(&["-insecure", "-command", json, "--crd-to-wait-for", "x"])
}

/// The JSON after the change; the rest must be as it was.
fn json_of(line: &CommandLine) -> &str {
    let [insecure, command, json, crd, x] = line.list(List::Args).unwrap() else {
        panic!("other arguments: {line:?}");
    };
    assert_eq!(
        [insecure, command, crd, x],
        ["-insecure", "-command", "--crd-to-wait-for", "x"]
    );
    json
}

fn change(line: &mut CommandLine) -> Result<(), Unreadable> {
    line.set(PROVIDER, "external")?;
    line.remove(CONFIG)?;
    line.set(MIGRATION, "true")
}

#[test]
fn flags_in_the_json_are_changed_and_nothing_else_is() {
    for (before, after) in [
        (
            r#"{"command":"/bin/kcm","args":["--v","2","--cloud-provider","aws","--cloud-config","/c"]}"#,
            r#"{"command":"/bin/kcm","args":["--v","2","--cloud-provider","external","--enable-leader-migration"]}"#,
        ),
        (
            r#"{"command":"/bin/kcm","args":["--x=\u003ca\u0026b\u003e é\n"]}"#,
            r#"{"command":"/bin/kcm","args":["--x=\u003ca\u0026b\u003e é\n","--cloud-provider=external","--enable-leader-migration"]}"#,
        ),
        (
            r#"{"args": ["--cloud-provider=aws", "--cloud-config=/c"], "command": ["/go-runner", "/bin/kcm"]}"#,
            r#"{"args": ["--cloud-provider=external", "--enable-leader-migration"], "command": ["/go-runner", "/bin/kcm"]}"#,
        ),
        (
            r#"{"command":["/bin/kcm","--cloud-config=/c"]}"#,
            r#"{"command":["/bin/kcm","--cloud-provider=external","--enable-leader-migration"]}"#,
        ),
        (
            r#"{"command":"/bin/kcm","args":[]}"#,
            r#"{"command":"/bin/kcm","args":["--cloud-provider=external","--enable-leader-migration"]}"#,
        ),
        (
            r#"{"command":"/bin/kcm"}"#,
            r#"{"command":"/bin/kcm","args":["--cloud-provider=external","--enable-leader-migration"]}"#,
        ),
    ] {
        let mut line = wrapped(before);
        assert_eq!(line.locate().unwrap().program.as_deref(), Some("kcm"));
        change(&mut line).unwrap();
        assert_eq!(json_of(&line), after);
        assert_eq!(line.value(PROVIDER), Ok(Some("external".to_owned())));
        let edits = line.edits().to_vec();
        assert!(line.undo(&edits));
        assert_eq!(json_of(&line), before);
    }
}

#[test]
fn the_json_is_found_in_every_spelling_of_the_option() {
    let json = r#"{"command":"kcm","args":["--cloud-provider=aws"]}"#;
    for args in [
        &["-command", json][..],
        &["--command", json, "-retries", "1"],
        &[&format!("-command={json}")],
        &["-insecure", &format!("--command={json}")],
    ] {
        let mut line = prober(args);
        assert_eq!(line.value(PROVIDER), Ok(Some("aws".to_owned())), "{args:?}");
        line.set(PROVIDER, "external").unwrap();
        let expected: Vec<String> = args.iter().map(|arg| arg.replace("aws", "external")).collect();
        assert_eq!(line.list(List::Args).unwrap(), expected);
    }
    let only_waits = prober(&["-endpoint", "https://x"]);
    assert_eq!(only_waits.locate().unwrap().program.as_deref(), Some("http-prober"));
}

#[test]
fn json_that_could_not_be_restored_is_refused() {
    let long = format!(r#"{{"command":"kcm","args":["{}"]}}"#, "x".repeat(1 << 18));
    for (json, problem) in [
        ("{", "is not an object"),
        ("[]", "is not an object"),
        (r#"{"command":"kcm","args":"--cloud-provider=aws"}"#, "is not an object"),
        (r#"{"command":"kcm","env":[]}"#, "unknown field `env`"),
        (r#"{"command":"kcm","args":null}"#, "could not be restored"),
        (r#"{"command":"kcm","args":["a","b"]} "#, "could not be restored"),
        (r#"{"command":"kcm","args":["a", "b"]}"#, "could not be restored"),
        (r#"{"command":"kcm","args":["a&b"]}"#, "could not be restored"),
        (r#"{"command":"kcm","args":["\u0061"]}"#, "could not be restored"),
        (
            r#"{"command":"http-prober","args":["-command","{}"]}"#,
            "another http-prober",
        ),
        (&long, "shorten it"),
    ] {
        let mut line = wrapped(json);
        let error = line.set(PROVIDER, "external").unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(line.value(PROVIDER), Err(error));
        assert_eq!(json_of(&line), json);
    }
    let script = wrapped(r#"{"command":"sh","args":["-c","kcm"]}"#);
    assert_eq!(script.value(PROVIDER), Err(Unreadable::ShellScript));
    let twice = prober(&["-command", r#"{"command":"a"}"#, "-command", r#"{"command":"b"}"#]);
    assert!(twice.value(PROVIDER).unwrap_err().to_string().contains("twice"));
}

#[test]
fn undoing_follows_the_owner_inside_the_json_and_never_leaves_it() {
    let mut changed = wrapped(r#"{"command":"kcm","args":["--cloud-provider","aws","--cloud-config=/c"]}"#);
    changed.remove(CONFIG).unwrap();
    let removed = changed.edits().to_vec();
    let mut moved = wrapped(r#"{"command":"kcm","args":["--v=4","--cloud-provider","aws"]}"#);
    assert!(moved.undo(&removed));
    assert_eq!(
        json_of(&moved),
        r#"{"command":"kcm","args":["--v=4","--cloud-provider","--cloud-config=/c","aws"]}"#
    );
    let mut set_again = wrapped(r#"{"command":"kcm","args":["--cloud-config=/d"]}"#);
    assert!(!set_again.undo(&removed));
    let mut unwrapped = CommandLine::of_container(&json!({ "command": ["kcm"], "args": ["--v=2"] })).unwrap();
    assert!(!unwrapped.undo(&removed));
    assert_eq!(unwrapped.list(List::Args).unwrap(), ["--v=2"]);
    let mut plain = CommandLine::of_container(&json!({ "command": ["kcm"], "args": ["--cloud-config=/c"] })).unwrap();
    plain.remove(CONFIG).unwrap();
    let removed = plain.edits().to_vec();
    let mut later = wrapped(r#"{"command":"kcm"}"#);
    assert!(!later.undo(&removed));
    assert_eq!(json_of(&later), r#"{"command":"kcm"}"#);
}

#[test]
fn every_wrapped_command_of_real_objects_is_changed_and_restored() {
    let Some(folder) = published::find("corpus") else {
        return;
    };
    let mut seen = 0;
    for (file, pod) in corpus_support::pods(&folder) {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).unwrap();
        for container in containers {
            let original = CommandLine::of_container(container).unwrap();
            let args = original.list(List::Args).unwrap_or_default().to_vec();
            let Some(at) = args.iter().position(|arg| arg == "-command") else {
                continue;
            };
            // A VPN client is wrapped too; it writes two tokens everywhere.
            if args[at + 1].contains("openvpn") && !args[at + 1].contains("controller-manager") {
                continue;
            }
            seen += 1;
            let mut line = original.clone();
            change(&mut line).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(line.value(PROVIDER), Ok(Some("external".to_owned())), "{file}");
            assert_eq!(line.value(CONFIG), Ok(None), "{file}");
            let mut expected = args.clone();
            let mut json: Value = serde_json::from_str(&args[at + 1]).unwrap();
            expected_args(&mut json);
            let found: Value = serde_json::from_str(&line.list(List::Args).unwrap()[at + 1]).unwrap();
            assert_eq!(found, json, "{file}");
            expected[at + 1] = line.list(List::Args).unwrap()[at + 1].clone();
            assert_eq!(line.list(List::Args).unwrap(), expected, "{file}");
            let edits = line.edits().to_vec();
            assert!(line.undo(&edits), "{file}");
            assert_eq!(line, original, "{file}");
        }
    }
    assert_eq!(seen, 16, "wrapped commands in the corpus");
}

/// The expected result, by direct edits of the words.
fn expected_args(json: &mut Value) {
    let words: Vec<&str> = json["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let two_tokens = words.contains(&"--cloud-provider");
    let mut after: Vec<String> = Vec::new();
    let mut skip = false;
    for (index, word) in words.iter().enumerate() {
        let name = word.split('=').next().unwrap();
        if std::mem::take(&mut skip) || name == "--cloud-config" {
            skip = *word == "--cloud-config" && !skip;
            continue;
        }
        let is_value = index > 0 && words[index - 1] == "--cloud-provider";
        after.push(match name {
            _ if is_value => "external".to_owned(),
            "--cloud-provider" if !two_tokens => "--cloud-provider=external".to_owned(),
            _ => (*word).to_owned(),
        });
    }
    if !words.iter().any(|word| word.starts_with("--cloud-provider")) {
        after.push("--cloud-provider=external".to_owned());
    }
    after.push("--enable-leader-migration".to_owned());
    json["args"] = json!(after);
}
