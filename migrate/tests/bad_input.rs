//! Wrong input: one line that says what, where and what to do; exit code 1; nothing on stdout.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use support::{outrigger, outrigger_with};

const GOOD: &str = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: m}\n\
    spec: {clusterID: m, targets: [{profile: Nodes, objectSelector: {matchLabels: {a: b}}}]}\n";

fn error(arguments: &[&str], stdin: &str) -> String {
    let run = outrigger_with(&[&["mutate"], arguments].concat(), stdin.as_bytes());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(1), ""),
        "{arguments:?} {}",
        run.seen()
    );
    run.stderr
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn every_error_names_place_and_fix() {
    let migration = |from: &str, to: &str| error(&["-f", "node.json", "--migration=-"], &GOOD.replacen(from, to, 1));
    let objects = |text: &str| error(&["-f", "-", "--migration=migrations.yaml"], text);
    let all = [
        (
            "no such file",
            error(&["-f", "none.yaml", "--migration=migrations.yaml"], ""),
        ),
        ("a folder", error(&["-f", ".", "--migration=migrations.yaml"], "")),
        ("bad YAML", objects("kind: Pod\n  apiVersion: v1\n")),
        ("bad JSON", objects("{\"kind\": \"Pod\", \"apiVersion\": }")),
        ("a key twice", objects("kind: Pod\nkind: Node\napiVersion: v1\n")),
        ("no mapping", objects("apiVersion: v1\nkind: Node\n---\n- a\n")),
        ("no kind", objects("apiVersion: v1\n")),
        (
            "another version of a known kind",
            objects("apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a}\n"),
        ),
        ("nothing", objects("")),
        ("no migration at all", error(&["-f", "node.json"], "")),
        (
            "neither file nor name",
            error(&["-f", "node.json", "--migration=prof"], ""),
        ),
        (
            "a name that no file holds",
            error(
                &["-f", "node.json", "--migration=migrations.yaml", "--migration=prof"],
                "",
            ),
        ),
        (
            "an object in the place of a migration",
            error(&["-f", "node.json", "--migration=node.json"], ""),
        ),
        ("another version", migration("v1alpha1", "v2")),
        (
            "an unknown field",
            migration("clusterID: m", "clusterID: m, phse: Prepare"),
        ),
        ("a misspelt selector", migration("matchLabels", "matchLabel")),
        (
            "a wrong value",
            migration("clusterID: m", "clusterID: m, phase: prepare"),
        ),
        (
            "one migration twice",
            error(
                &["-f", "node.json", "--migration=-", "--migration=migrations.yaml"],
                &GOOD.replace("name: m", "name: prod"),
            ),
        ),
        ("stdin twice", error(&["-f", "-", "--migration=-"], GOOD)),
        (
            "an update of nothing",
            error(
                &["-f", "node.json", "--migration=migrations.yaml", "--operation=update"],
                "",
            ),
        ),
        (
            "an old object on creation",
            error(
                &[
                    "-f",
                    "node.json",
                    "--migration=migrations.yaml",
                    "--operation=create",
                    "--old=node.json",
                ],
                "",
            ),
        ),
    ];
    let text: Vec<String> = all.iter().map(|(what, error)| format!("{what}:\n  {error}")).collect();
    insta::assert_snapshot!(text.concat());
    for (what, error) in &all {
        assert_eq!(error.lines().count(), 1, "{what}: {error}");
    }
}

#[test]
fn what_is_no_text_or_too_large_is_refused() {
    let run = outrigger_with(&["mutate", "-f", "-", "--migration=migrations.yaml"], b"kind: \xff");
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(1), "error: stdin is not UTF-8 text (from byte 6 on)\n")
    );
    let large = vec![b' '; (32 << 20) + 1];
    let run = outrigger_with(&["mutate", "-f", "-", "--migration=migrations.yaml"], &large);
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (Some(1), "error: stdin has more than 32 MiB; split it\n")
    );
}

#[test]
fn a_wrong_command_line_ends_with_one_and_help_with_zero() {
    for arguments in [
        &["mutate"][..],
        &["mutate", "-f", "node.json", "--phase=Later"],
        &["mutate", "-f", "node.json", "--namespace-labels=a"],
        &["mutate", "-f", "node.json", "-o", "xml"],
        &["plan"],
        &[],
    ] {
        let run = outrigger(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (Some(1), ""),
            "{arguments:?} {}",
            run.stderr
        );
    }
    for arguments in [&["--help"][..], &["mutate", "--help"], &["--version"]] {
        let run = outrigger(arguments);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
    insta::assert_snapshot!(outrigger(&["--help"]).stdout);
}

#[test]
fn problems_of_a_migration_are_warned_about_and_the_rest_goes_on() {
    let text = GOOD.replace(
        "profile: Nodes, objectSelector: {matchLabels: {a: b}}",
        "profile: Nodes}, {profile: HostedControlPlane",
    );
    let run = outrigger_with(&["mutate", "-f", "node.json", "--migration=-"], text.as_bytes());
    assert_eq!(run.code, Some(0));
    assert!(
        run.stderr
            .contains("warning: migration m (stdin, document 1): spec.targets[1] has no selector"),
        "{}",
        run.stderr
    );
}

#[test]
fn no_terminal_obeys_a_name() {
    let run = outrigger_with(
        &["mutate", "-f", "-", "--migration=migrations.yaml"],
        br#"{"apiVersion":"v1","kind":"Node\u001b[2J","metadata":{"name":"a\u001b]0;x\u0007"},"spec":{"cloudProvider":"aws"}}"#,
    );
    assert_eq!(run.code, Some(0));
    assert!(
        !run.stdout.contains('\u{1b}') && run.stdout.contains(r"\u{1b}]0;x"),
        "{}",
        run.stdout
    );
}

#[test]
fn each_shell_has_a_completion_of_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = outrigger(&["completion", shell]);
        assert_eq!(run.code, Some(0), "{shell}: {}", run.stderr);
        for word in [
            "check",
            "status",
            "facts",
            "render-policies",
            "request-timeout",
            "completion",
        ] {
            assert!(run.stdout.contains(word), "{shell} has no {word}");
        }
    }

    // Bash reads it without an error, and completes by it.
    let script = "source <(\"$0\" completion bash); COMP_WORDS=(outrigger sta); COMP_CWORD=1; _outrigger outrigger sta outrigger; echo \"${COMPREPLY[*]}\"";
    let bash = std::process::Command::new("bash")
        .args(["-uec", script, env!("CARGO_BIN_EXE_outrigger")])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&bash.stdout),
        "status\n",
        "{}",
        String::from_utf8_lossy(&bash.stderr)
    );
}
