//! Finding, reading, changing and restoring argument lists.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::command_line::{CommandLine, Flag, List, Unreadable};
use proptest::prelude::*;
use serde_json::{Value, json};

const PROVIDER: Flag = Flag::text("cloud-provider");
const CONFIG: Flag = Flag::text("cloud-config");
const MIGRATION: Flag = Flag::boolean("enable-leader-migration");

fn line(container: &Value) -> CommandLine {
    CommandLine::of_container(container).unwrap()
}

fn command(tokens: &[&str]) -> CommandLine {
    line(&json!({ "command": tokens }))
}

fn shown(line: &CommandLine) -> (Option<Vec<String>>, Option<Vec<String>>) {
    (
        line.list(List::Command).map(<[_]>::to_vec),
        line.list(List::Args).map(<[_]>::to_vec),
    )
}

fn command_of(line: &CommandLine) -> Vec<&str> {
    line.list(List::Command).unwrap().iter().map(String::as_str).collect()
}

#[test]
fn a_value_is_read_in_every_style() {
    for tokens in [
        &["kcm", "--cloud-provider=aws"][..],
        &["kcm", "--cloud-provider", "aws"],
        &["kcm", "-cloud-provider=aws"],
        &["kcm", "-cloud-provider", "aws"],
        &["kcm", "--cloud_provider=aws"],
        &["kcm", "--cloud-provider=gce", "--v=2", "--cloud-provider", "aws"],
        &["kcm", "--profiling", "--cloud-provider=aws"],
    ] {
        assert_eq!(
            command(tokens).value(PROVIDER),
            Ok(Some("aws".to_owned())),
            "{tokens:?}"
        );
    }
}

#[test]
fn what_is_not_the_flag_is_not_read_as_it() {
    for tokens in [
        &["kcm"][..],
        &["kcm", "--cloud-provider-x=aws"],
        &["kcm", "--", "--cloud-provider=aws"],
        &["kcm", "cloud-provider=aws"],
        &["kcm", "---cloud-provider=aws"],
        &["kcm", "-"],
    ] {
        assert_eq!(command(tokens).value(PROVIDER), Ok(None), "{tokens:?}");
    }
}

#[test]
fn a_boolean_flag_never_takes_the_next_token() {
    let line = command(&["kcm", "--enable-leader-migration", "false", "--cloud-provider=aws"]);
    assert_eq!(line.boolean(MIGRATION), Ok(Some(true)));
    assert_eq!(
        command(&["kcm", "--enable-leader-migration=F"]).boolean(MIGRATION),
        Ok(Some(false))
    );
    let error = command(&["kcm", "--enable-leader-migration=yes"])
        .boolean(MIGRATION)
        .unwrap_err();
    assert_eq!(
        error,
        Unreadable::NotABoolean {
            flag: "enable-leader-migration".to_owned(),
            value: "yes".to_owned()
        }
    );
}

#[test]
fn values_that_cannot_be_known_are_reported_and_never_changed() {
    for (tokens, expected) in [
        (
            &["kcm", "--cloud-provider=$(PROVIDER)"][..],
            Unreadable::Variable {
                flag: "cloud-provider".to_owned(),
                value: "$(PROVIDER)".to_owned(),
            },
        ),
        (
            &["kcm", "--cloud-provider"],
            Unreadable::NoValue {
                flag: "cloud-provider".to_owned(),
            },
        ),
        (
            &["kcm", "--cloud-provider", "--v=2"],
            Unreadable::NoValue {
                flag: "cloud-provider".to_owned(),
            },
        ),
        (&["sh", "-c", "exec kcm --cloud-provider=aws"], Unreadable::ShellScript),
        (&["tini", "--", "/bin/bash", "-c", "kcm"], Unreadable::ShellScript),
        (&["env", "-S", "kcm --cloud-provider=aws"], Unreadable::ShellScript),
        (
            &["kcm", "--profiling", "$(EXTRA)"],
            Unreadable::Hidden {
                token: "$(EXTRA)".to_owned(),
            },
        ),
        (
            &["kcm", "--cloud-$(WHAT)=aws"],
            Unreadable::Hidden {
                token: "--cloud-$(WHAT)=aws".to_owned(),
            },
        ),
        (
            &["/http-prober-bin/http-prober", "-command", "{}"],
            Unreadable::WrappedJson {
                problem: "is not an object with \"command\" and \"args\" (missing field `command` at line 1 column 2); correct it"
                    .to_owned(),
            },
        ),
    ] {
        let mut line = command(tokens);
        assert_eq!(line.value(PROVIDER), Err(expected.clone()), "{tokens:?}");
        assert_eq!(line.set(PROVIDER, "external"), Err(expected.clone()), "{tokens:?}");
        assert_eq!(line.remove(PROVIDER), Err(expected), "{tokens:?}");
        assert_eq!(command_of(&line), tokens);
    }
    let error = CommandLine::of_container(&json!({ "args": "--v=2" })).unwrap_err();
    assert_eq!(error, Unreadable::NotStrings { list: "args" });
}

#[test]
fn variables_that_the_container_gives_as_text_are_read() {
    let env = json!([
        { "name": "PROVIDER", "value": "gce" }, { "name": "PROVIDER", "value": "aws" },
        { "name": "BIN", "value": "A=1" }, { "name": "EXTRA", "value": "--cloud-config=/c" },
        { "name": "SECRET", "valueFrom": {} }, { "name": "NESTED", "value": "$(PROVIDER)" },
        { "name": "LATER", "value": "aws" }, { "name": "LATER", "valueFrom": {} },
    ]);
    let with = |args: &[&str]| line(&json!({ "command": ["env", "$(BIN)", "kcm"], "args": args, "env": env }));
    for args in [
        &["--cloud-provider=$(PROVIDER)", "$(EXTRA)", "--x=$(SECRET)"][..],
        &[
            "--kubeconfig",
            "$(SECRET)",
            "$(EXTRA)",
            "--cloud_provider",
            "$(PROVIDER)",
        ],
    ] {
        let original = with(args);
        let mut changed = original.clone();
        assert_eq!(changed.value(PROVIDER), Ok(Some("aws".to_owned())), "{args:?}");
        assert_eq!(changed.value(CONFIG), Ok(Some("/c".to_owned())), "{args:?}");
        changed.set(PROVIDER, "external").unwrap();
        changed.remove(CONFIG).unwrap();
        assert_eq!(changed.value(PROVIDER), Ok(Some("external".to_owned())), "{args:?}");
        assert_eq!(changed.value(CONFIG), Ok(None), "{args:?}");
        let mut restored = with(
            &changed
                .list(List::Args)
                .unwrap()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
        assert!(restored.undo(changed.edits()));
        assert_eq!(restored, original);
    }
    for unknown in ["SECRET", "NESTED", "LATER", "NOWHERE"] {
        let token = format!("$({unknown})");
        let hidden = Unreadable::Hidden { token: token.clone() };
        assert_eq!(with(&["--profiling", &token]).value(PROVIDER), Err(hidden));
        let variable = Unreadable::Variable {
            flag: "cloud-provider".to_owned(),
            value: token.clone(),
        };
        assert_eq!(with(&["--cloud-provider", &token]).value(PROVIDER), Err(variable));
    }
    assert_eq!(
        with(&["$$(EXTRA)"]).value(CONFIG),
        Err(Unreadable::Hidden {
            token: "$$(EXTRA)".to_owned()
        })
    );
}

#[test]
fn a_script_is_looked_at_word_by_word() {
    let script = "exec /bin/kcm \\\n  --cloud-provider=aws --v 2; echo '--enable-leader-migration'";
    for tokens in [&["sh", "-c", script][..], &["tini", "--", "/bin/bash", "-ec", script]] {
        let line = command(tokens);
        let words = line.script().unwrap();
        assert_eq!(words.value(PROVIDER), Ok(Some("aws".to_owned())));
        assert_eq!(words.boolean(MIGRATION), Ok(Some(true)));
        assert!(line.script_runs("kcm") && !line.script_runs("cm"));
    }
    assert_eq!(command(&["kcm"]).script(), None);
    assert!(!command(&["kcm"]).script_runs("kcm"));
}

#[test]
fn the_program_is_found_behind_its_wrappers() {
    for (tokens, program) in [
        (
            &["/usr/local/bin/kube-controller-manager", "--v=2"][..],
            Some("kube-controller-manager"),
        ),
        (
            &[
                "/go-runner",
                "--log-file=/x",
                "--also-stdout",
                "/bin/kube-apiserver",
                "--v=2",
            ],
            Some("kube-apiserver"),
        ),
        (&["./hyperkube", "apiserver", "--v=2"], Some("apiserver")),
        (&["tini", "--", "kube-apiserver"], Some("kube-apiserver")),
        (&["tini", "-e", "143", "--", "kube-apiserver"], Some("kube-apiserver")),
        (&["env", "A=1", "B=2", "kube-apiserver"], Some("kube-apiserver")),
        (
            &["/usr/bin/env", "-i", "-u", "HOME", "--", "tini", "kube-apiserver"],
            Some("kube-apiserver"),
        ),
        (
            &["catatonit", "--", "hyperkube", "kube-apiserver"],
            Some("kube-apiserver"),
        ),
        (&["kube-apiserver", "--v=2"], Some("kube-apiserver")),
        (&["--v=2"], None),
        (&[], None),
    ] {
        assert_eq!(
            command(tokens).locate().unwrap().program.as_deref(),
            program,
            "{tokens:?}"
        );
    }
}

#[test]
fn flags_of_a_wrapper_are_not_the_components() {
    let line = command(&["/go-runner", "--cloud-provider=x", "/bin/kcm", "--cloud-provider=aws"]);
    assert_eq!(line.values(PROVIDER), Ok(vec!["aws".to_owned()]));
}

#[test]
fn setting_keeps_style_and_place_and_changes_the_last_occurrence() {
    for (before, after) in [
        (
            &["kcm", "--cloud-provider=aws", "--v=2"][..],
            &["kcm", "--cloud-provider=external", "--v=2"][..],
        ),
        (
            &["kcm", "--cloud-provider", "aws", "--v=2"],
            &["kcm", "--cloud-provider", "external", "--v=2"],
        ),
        (&["kcm", "--cloud_provider=aws"], &["kcm", "--cloud_provider=external"]),
        (
            &["kcm", "--cloud-provider=a", "--cloud-provider=b"],
            &["kcm", "--cloud-provider=a", "--cloud-provider=external"],
        ),
        (&["kcm", "--v=2"], &["kcm", "--v=2", "--cloud-provider=external"]),
        (
            &["kcm", "--v", "2"],
            &["kcm", "--v", "2", "--cloud-provider", "external"],
        ),
        (
            &["kcm", "--v=2", "--", "x"],
            &["kcm", "--v=2", "--cloud-provider=external", "--", "x"],
        ),
        (
            &["kcm", "--cloud-provider=external"],
            &["kcm", "--cloud-provider=external"],
        ),
    ] {
        let mut line = command(before);
        line.set(PROVIDER, "external").unwrap();
        assert_eq!(command_of(&line), after, "{before:?}");
    }
}

#[test]
fn a_boolean_is_added_bare_and_changed_in_place() {
    let mut line = command(&["kcm", "--v", "2"]);
    line.set(MIGRATION, "true").unwrap();
    assert_eq!(command_of(&line), ["kcm", "--v", "2", "--enable-leader-migration"]);
    let mut line = command(&["kcm", "--enable-leader-migration=false"]);
    line.set(MIGRATION, "true").unwrap();
    assert_eq!(command_of(&line), ["kcm", "--enable-leader-migration=true"]);
}

#[test]
fn a_flag_is_added_to_the_list_that_holds_the_others() {
    let add = |container: Value| {
        let mut line = line(&container);
        line.set(PROVIDER, "aws").unwrap();
        shown(&line)
    };
    let tokens = |tokens: &[&str]| Some(tokens.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>());
    let flag = "--cloud-provider=aws";
    assert_eq!(add(json!({ "command": ["kcm"] })), (tokens(&["kcm", flag]), None));
    assert_eq!(
        add(json!({ "command": ["kcm"], "args": [] })),
        (tokens(&["kcm", flag]), tokens(&[]))
    );
    assert_eq!(
        add(json!({ "command": ["kcm"], "args": ["--v=2"] })),
        (tokens(&["kcm"]), tokens(&["--v=2", flag]))
    );
    assert_eq!(add(json!({ "args": ["kcm"] })), (None, tokens(&["kcm", flag])));
    assert_eq!(add(json!({})), (None, tokens(&[flag])));
}

#[test]
fn removing_takes_every_occurrence_and_both_of_its_tokens() {
    let mut line = command(&[
        "kcm",
        "--cloud-config=/a",
        "--v=2",
        "--cloud-config",
        "/b",
        "--profiling",
    ]);
    line.remove(CONFIG).unwrap();
    assert_eq!(command_of(&line), ["kcm", "--v=2", "--profiling"]);
}

#[test]
fn a_flag_and_its_value_may_stand_in_different_lists() {
    let container = json!({ "command": ["kcm", "--cloud-provider"], "args": ["aws", "--v=2"] });
    let mut changed = line(&container);
    changed.set(PROVIDER, "external").unwrap();
    assert_eq!(changed.list(List::Args).unwrap(), ["external", "--v=2"]);
    changed.remove(PROVIDER).unwrap();
    assert_eq!(command_of(&changed), ["kcm"]);
    let edits = changed.edits().to_vec();
    assert!(changed.undo(&edits));
    assert_eq!(shown(&changed), shown(&line(&container)));
}

#[test]
fn undoing_follows_tokens_that_the_owner_has_moved() {
    let mut changed = command(&["kcm", "--cloud-provider=aws", "--v=2"]);
    changed.set(PROVIDER, "external").unwrap();
    let mut later = command(&["kcm", "--new=1", "--v=4", "--cloud-provider=external"]);
    assert!(later.undo(changed.edits()));
    assert_eq!(command_of(&later), ["kcm", "--new=1", "--v=4", "--cloud-provider=aws"]);
}

#[test]
fn undoing_leaves_a_line_alone_that_the_owner_has_rewritten() {
    let mut changed = command(&["kcm", "--cloud-provider=aws", "--cloud-config=/a"]);
    changed.set(PROVIDER, "external").unwrap();
    changed.remove(CONFIG).unwrap();
    for rewritten in [
        &["kcm", "--cloud-provider=aws", "--cloud-config=/a"][..],
        &["kcm", "--cloud-provider=external", "--cloud_config", "/b"],
        &["kcm"],
    ] {
        let mut line = command(rewritten);
        assert!(!line.undo(changed.edits()), "{rewritten:?}");
        assert_eq!(command_of(&line), rewritten);
    }
}

#[test]
fn a_list_that_was_made_for_a_flag_goes_with_it() {
    let mut line = line(&json!({}));
    line.set(PROVIDER, "aws").unwrap();
    let edits = line.edits().to_vec();
    assert!(line.undo(&edits));
    assert_eq!(shown(&line), (None, None));
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("--cloud-provider=aws".to_owned()),
        Just("--cloud_provider".to_owned()),
        Just("--cloud-config=/a".to_owned()),
        Just("-cloud-config".to_owned()),
        Just("--enable-leader-migration".to_owned()),
        Just("--enable-leader-migration=false".to_owned()),
        Just("--".to_owned()),
        Just("--profiling".to_owned()),
        Just("aws".to_owned()),
        "--[a-z]{1,4}=[a-z]{0,3}",
        "[a-z/]{0,5}",
    ]
}

fn container() -> impl Strategy<Value = Value> {
    let list = || proptest::option::of(proptest::collection::vec(token(), 0..8));
    (list(), list()).prop_map(|(command, args)| {
        let mut container = json!({});
        if let Some(command) = command {
            container["command"] = json!(command);
        }
        if let Some(args) = args {
            container["args"] = json!(args);
        }
        container
    })
}

/// Changes a command line as a migration does; false if it is rejected.
fn change(line: &mut CommandLine) -> bool {
    line.set(PROVIDER, "external").is_ok() && line.remove(CONFIG).is_ok() && line.set(MIGRATION, "true").is_ok()
}

proptest! {
    #[test]
    fn undoing_gives_the_original_lists(container in container()) {
        let original = line(&container);
        let mut changed = original.clone();
        let _ = change(&mut changed);
        let edits = changed.edits().to_vec();
        prop_assert!(changed.undo(&edits));
        prop_assert_eq!(shown(&changed), shown(&original));
    }

    #[test]
    fn changing_twice_is_changing_once(container in container()) {
        let mut once = line(&container);
        prop_assume!(change(&mut once));
        let mut twice = CommandLine::of_container(&json!({
            "command": once.list(List::Command), "args": once.list(List::Args),
        })).unwrap();
        prop_assert!(change(&mut twice));
        prop_assert_eq!(shown(&twice), shown(&once));
        prop_assert_eq!(twice.edits(), &[]);
    }

    #[test]
    fn the_values_are_there_after_the_change(container in container()) {
        let mut line = line(&container);
        prop_assume!(change(&mut line));
        prop_assert_eq!(line.value(PROVIDER), Ok(Some("external".to_owned())));
        prop_assert_eq!(line.value(CONFIG), Ok(None));
        prop_assert_eq!(line.boolean(MIGRATION), Ok(Some(true)));
    }

    #[test]
    fn tokens_of_other_flags_stay_in_their_order(container in container()) {
        let original = line(&container);
        let mut changed = original.clone();
        prop_assume!(change(&mut changed));
        let others = |line: &CommandLine| -> Vec<String> {
            let (command, args) = shown(line);
            let all = command.into_iter().chain(args).flatten();
            all.filter(|token| token.contains('=') && !token.contains("cloud") && !token.contains("leader")).collect()
        };
        prop_assert_eq!(others(&changed), others(&original));
    }
}

#[test]
fn a_flag_that_was_taken_out_and_put_in_again_is_undone() {
    let original = command(&["kcm", "--cloud-config", "/a", "--v=2"]);
    let mut changed = original.clone();
    changed.remove(CONFIG).unwrap();
    changed.set(CONFIG, "/b").unwrap();
    let edits = changed.edits().to_vec();
    assert!(changed.undo(&edits));
    assert_eq!(shown(&changed), shown(&original));
}

#[test]
fn a_starter_without_a_program_gets_no_flags_of_its_own() {
    for tokens in [
        &["env"][..],
        &["tini", "--"],
        &["/go-runner", "--log-file=/x"],
        &["env", "A=b", "hyperkube"],
    ] {
        let mut line = command(tokens);
        let error = line.set(PROVIDER, "external").unwrap_err();
        assert!(matches!(error, Unreadable::NoProgram { .. }), "{tokens:?}: {error}");
        assert_eq!(command_of(&line), tokens);
    }
}

#[test]
fn a_prober_whose_text_is_missing_is_not_given_another() {
    let mut line = line(&json!({"command": ["http-prober"], "args": ["-insecure", "-command"]}));
    let error = line.set(PROVIDER, "external").unwrap_err();
    assert!(matches!(error, Unreadable::WrappedJson { .. }), "{error}");
}
