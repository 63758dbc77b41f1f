//! Command lines: those of `outrigger` parse. Those of other programs are not run, for the reason in [`NOT_RUN`].

use clap::{CommandFactory, Parser};
use outrigger_migrate::args::Args;

use crate::names;
use crate::page::Page;
use crate::shell;

const CLUSTER: &str = "needs a cluster; fields, conditions, names and paths of Outrigger in it are checked";
const MACHINE: &str = "changes a machine";
const OTHER: &str = "belongs to another project, and needs a cluster of its distribution";
const BUILD: &str = "the tests build and install the same programs without it";

/// Programs whose commands are not run, and why.
pub const NOT_RUN: [(&str, &str); 16] = [
    ("kubectl", CLUSTER),
    ("argocd", OTHER),
    ("clusterctl", OTHER),
    ("flux", OTHER),
    ("kops", OTHER),
    ("aws", "needs an AWS account"),
    ("docker", "needs Docker"),
    ("hostname", MACHINE),
    ("pgrep", MACHINE),
    ("systemctl", MACHINE),
    ("openssl", "writes keys"),
    ("base64", CLUSTER),
    ("rustup", MACHINE),
    (
        "crane",
        "needs your registry; e2e/tests/image pushes with it to a registry of its own",
    ),
    ("cargo", BUILD),
    ("make", "each target is a command of its own, and some take an hour"),
];

pub fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for line in page.console() {
        for words in shell::commands(&line) {
            faults.extend(of_command(&words).map(|fault| page.fault(format!("{fault}: {line}"))));
        }
    }

    let inline = page.code().into_iter().filter(|code| code.starts_with("outrigger "));
    faults.extend(
        inline
            .filter_map(|code| of_mention(&code))
            .map(|fault| page.fault(fault)),
    );
    faults
}

fn of_command(words: &[String]) -> Option<String> {
    let program = words.first()?.as_str();
    match program {
        "outrigger" => Args::try_parse_from(words).err().map(|error| error.to_string()),
        "kubectl" if words.iter().any(|word| word == "cpm") => words.iter().find_map(|word| of_condition(word)),
        _ if NOT_RUN.iter().any(|(name, _)| *name == program) => None,
        _ => Some(format!("{program} is neither run nor listed")),
    }
}

/// A condition that a command waits for or prints.
fn of_condition(word: &str) -> Option<String> {
    let waited = word.strip_prefix("--for=condition=").map(str::to_owned);
    let printed = word
        .split("@.type==\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .map(str::to_owned);
    let condition = waited.or(printed)?;
    (!names::conditions().contains(&condition)).then(|| format!("there is no condition {condition}"))
}

/// A command in a sentence may lack required flags.
fn of_mention(code: &str) -> Option<String> {
    let mut command = Args::command();
    let mut words = code.split(' ').skip(1).peekable();
    while let Some(word) =
        words.next_if(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-'))
    {
        let Some(found) = command.find_subcommand(word) else {
            return Some(format!("there is no command {word}: {code}"));
        };
        command = found.clone();
    }

    let flags = words.filter_map(|word| word.strip_prefix("--"));
    let mut names = flags.map(|flag| flag.split('=').next().unwrap_or_default());
    let is_known = |name: &&str| {
        command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(*name))
    };
    let unknown = names.find(|name| !is_known(name));
    unknown.map(|name| format!("there is no flag --{name}: {code}"))
}
