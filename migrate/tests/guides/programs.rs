//! Command lines of programs that the tests build: subcommands, flags and output formats are those of their `--help`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// The programs, and their keys in the answer of `e2e/tools/build`.
const PROGRAMS: [(&str, &str); 3] = [("kubectl", "KUBECTL"), ("helm", "HELM"), ("crane", "CRANE")];

/// The answer of `e2e/tools/build`, which `make test` leaves in a file. Without it the script is asked.
static PATHS: LazyLock<BTreeMap<String, PathBuf>> = LazyLock::new(|| {
    let written = std::env::var_os("OUTRIGGER_TOOLS").and_then(|path| std::fs::read_to_string(path).ok());
    let text = written.unwrap_or_else(|| {
        let script = Command::new("../e2e/tools/build")
            .args(["--paths", "kubectl", "helm", "crane"])
            .output()
            .unwrap();
        assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
        String::from_utf8(script.stdout).unwrap()
    });
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(key, path)| (key.to_owned(), PathBuf::from(path))).collect()
});

/// Texts of programs, by their arguments.
static ANSWERS: Mutex<BTreeMap<Vec<String>, Result<String, String>>> = Mutex::new(BTreeMap::new());

pub fn is_built(program: &str) -> bool {
    PROGRAMS.iter().any(|(name, _)| *name == program)
}

/// The output of a program, without a cluster. The words begin with its name.
fn answer(words: &[&str]) -> Result<String, String> {
    let key: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if let Some(answer) = ANSWERS.lock().unwrap().get(&key) {
        return answer.clone();
    }

    let (_, name) = PROGRAMS.iter().find(|(program, _)| *program == words[0]).unwrap();
    let path = PATHS
        .get(*name)
        .unwrap_or_else(|| panic!("OUTRIGGER_TOOLS has no {name}"));
    let output = Command::new(path)
        .args(&words[1..])
        .env("KUBECONFIG", "/dev/null")
        .output()
        .unwrap();
    let answer = match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    };
    ANSWERS.lock().unwrap().insert(key, answer.clone());
    answer
}

/// The help of a command.
fn help(path: &[&str]) -> String {
    let words: Vec<&str> = path.iter().copied().chain(["--help"]).collect();
    answer(&words).unwrap()
}

fn subcommands(help: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut in_list = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            in_list = line.contains("Commands") && line.trim_end().ends_with(':');
        } else if in_list {
            names.extend(line.split_whitespace().next());
        }
    }
    names
}

/// The flags of a command, with their dashes, and whether each needs a value.
fn flags(program: &str, help: &str) -> BTreeMap<String, bool> {
    let global = match program {
        "kubectl" => answer(&["kubectl", "options"]).unwrap(),
        _ => String::new(),
    };
    let mut flags = BTreeMap::new();
    for line in help.lines().chain(global.lines()) {
        let Some((names, rest)) = declaration(line) else {
            continue;
        };
        let needs_value = match rest.strip_prefix('=') {
            // kubectl writes the default, and only booleans are true or false.
            Some(default) => !matches!(default, "true:" | "false:"),
            // The others write the type after one space, and nothing for a boolean.
            None => !rest.starts_with("  ") && !rest.trim().is_empty(),
        };
        flags.extend(names.map(|name| (name.to_owned(), needs_value)));
    }
    flags
}

/// The names in a line that declares a flag, and the text after them.
fn declaration(line: &str) -> Option<(impl Iterator<Item = &str>, &str)> {
    let text = line.trim_start();
    let long = text.find("--")?;
    let before = text[..long].trim_end_matches([',', ' ']);
    let is_short = before.len() == 2 && before.starts_with('-');
    if line.len() == text.len() || !(before.is_empty() || is_short) {
        return None;
    }

    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let end = text[long..].find(|c| !is_part(c)).map_or(text.len(), |end| long + end);
    let names = [before, &text[long..end]].into_iter().filter(|name| !name.is_empty());
    Some((names, &text[end..]))
}

/// A command line in parts.
#[derive(Default)]
pub struct Parsed {
    /// The subcommands.
    pub path: Vec<String>,
    pub arguments: Vec<String>,
    pub flags: Vec<(String, Option<String>)>,
}

/// Reads a command line as the program does.
pub fn parse(words: &[String]) -> Result<Parsed, String> {
    let program = words[0].as_str();
    let path = path(words)?;
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    let known = flags(program, &help(&names));

    let mut parsed = Parsed::default();
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            parsed.arguments.extend(rest.cloned());
            break;
        }
        // A dash alone is a file; a word such as `key-` removes a label.
        if !word.starts_with('-') || word == "-" {
            parsed.arguments.push(word.clone());
            continue;
        }

        let (name, value) = word.split_once('=').unzip();
        let name = name.unwrap_or(word).to_owned();
        let needs_value = known
            .get(&name)
            .ok_or_else(|| format!("{} has no flag {name}", names.join(" ")))?;
        let value = match value {
            Some(value) => Some(value.to_owned()),
            None if *needs_value => Some(rest.next().cloned().ok_or_else(|| format!("{name} needs a value"))?),
            None => None,
        };
        parsed.flags.push((name, value));
    }
    parsed.arguments.drain(..path.len() - 1);
    parsed.path = path;
    Ok(parsed)
}

/// The program and its subcommands. Flags before a subcommand are global ones.
fn path(words: &[String]) -> Result<Vec<String>, String> {
    let program = words[0].as_str();
    let known = flags(program, &help(&[program]));
    let mut path = vec![program.to_owned()];
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        if word.starts_with('-') {
            if known.get(word).copied().unwrap_or_default() {
                rest.next();
            }
            continue;
        }

        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        let text = help(&names);
        if subcommands(&text).contains(word.as_str()) {
            path.push(word.clone());
        } else if path.len() == 1 || text.contains("SUBCOMMAND") || text.contains("[command]") {
            return Err(format!("{} has no command {word}", names.join(" ")));
        } else {
            break;
        }
    }
    Ok(path)
}

/// The reason why kubectl cannot use an output format.
pub fn fault_of_output(parsed: &Parsed, format: &str) -> Option<String> {
    let names: Vec<&str> = parsed.path.iter().map(String::as_str).collect();
    let text = help(&names);
    let (_, formats) = text.split_once("Output format. One of: (")?;
    let (kind, value) = format.split_once('=').unwrap_or((format, ""));
    let is_known = formats.split(')').next()?.split(", ").any(|name| name == kind);
    if !is_known {
        return Some(format!("{} has no output format {kind}", names.join(" ")));
    }

    let paths = match kind {
        "jsonpath" => vec![value.to_owned()],
        "custom-columns" => columns(value),
        _ => Vec::new(),
    };
    paths.iter().find_map(|path| fault_of_path(path))
}

fn columns(value: &str) -> Vec<String> {
    let columns = value
        .split(',')
        .map(|column| column.split_once(':').map_or("", |(_, path)| path));
    columns.map(|path| format!("{{{path}}}")).collect()
}

/// kubectl's own parser, with an object without fields.
fn fault_of_path(path: &str) -> Option<String> {
    let object = "tests/files/empty-object.yaml";
    let output = format!("jsonpath={path}");
    let words = [
        "kubectl",
        "patch",
        "--local",
        "-f",
        object,
        "--type=merge",
        "-p",
        "{}",
        "-o",
        &output,
    ];
    if path == "{}" {
        return Some("a column has no path".to_owned());
    }
    answer(&words).err()
}
