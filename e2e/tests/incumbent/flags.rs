//! The flags as both programs list them in `--help`. A flag that the incumbent hides is checked only if this manager
//! has it too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::{Programs, explained, page};

/// Differences of a flag, each with its row in `docs/parity.md`.
const DIFFERS: &[(&str, &str)] = &[];
/// The headings in `docs/flags.md` of flags that the incumbent lacks.
const NOT_THE_INCUMBENTS: [&str; 3] = ["Outrigger", "Node-ipam-controller", "Removed"];
/// Fewer are not the whole list.
const LEAST: usize = 80;

#[derive(Debug, PartialEq, Eq)]
struct Flag {
    short: Option<String>,
    /// One word for each way to read a value.
    kind: &'static str,
    default: String,
}

#[tokio::test]
async fn every_flag_of_the_incumbent_has_its_type_and_default_here() {
    let programs = Programs::find().await;
    let (theirs, ours) = (incumbents(&programs.incumbent), our_flags(&programs.ours));
    assert!(theirs.len() >= LEAST, "{} flags in the incumbent's help", theirs.len());

    let mut differences = Vec::new();
    for (name, theirs) in &theirs {
        let ours = ours.get(name);
        if ours != Some(theirs) {
            println!("--{name}: {theirs:?} in v1.37, {ours:?} here");
            differences.push(name.as_str());
        }
    }
    explained(differences, DIFFERS);
}

#[tokio::test]
async fn every_flag_of_ours_that_the_incumbent_lacks_is_under_a_heading_that_says_so() {
    let programs = Programs::find().await;
    let theirs = incumbents(&programs.incumbent);
    let mut wrong = Vec::new();
    for (name, heading) in headings() {
        let known = theirs.contains_key(&name) || accepts(&programs.incumbent, &name);
        if known == NOT_THE_INCUMBENTS.contains(&heading.as_str()) {
            wrong.push(format!("--{name} under {heading:?}, known to v1.37: {known}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[tokio::test]
async fn every_feature_gate_and_every_controller_of_the_incumbents_help_is_known_here() {
    let programs = Programs::find().await;
    let help = run(&programs.incumbent, &["--help"]);

    let gates: Vec<String> = help.lines().filter_map(gate).collect();
    assert!(gates.len() > 20, "{gates:?}");
    let controllers = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("All controllers: "));
    let controllers = controllers.collect::<Vec<_>>().concat().replace(' ', "");
    assert!(controllers.split(',').count() > 3, "{controllers:?}");

    // Without --cloud-provider it names every problem and ends.
    let gates = format!("--feature-gates={}", gates.join(","));
    let controllers = format!("--controllers={controllers}");
    let tagging = ["--tags=a=b", "--resources=instance"];
    let said = run(&programs.ours, &[&gates, &controllers, tagging[0], tagging[1]]);
    let problems: Vec<&str> = said.lines().filter(|line| line.contains("--")).collect();
    assert_eq!(
        problems,
        [
            "outrigger-manager: --cloud-provider cannot be empty; set --cloud-provider=aws",
            "run with --help for the list of flags"
        ]
    );
}

/// `Name=true|false (BETA - default=true)`, as a setting that changes nothing.
fn gate(line: &str) -> Option<String> {
    let (name, rest) = line.trim().rsplit_once("=true|false ")?;
    let name = name.rsplit(' ').next()?;
    let default = rest.split_once("default=")?.1.trim_end_matches(')');
    Some(format!("{name}={default}"))
}

fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("UTF-8")
}

/// Whether the incumbent knows a flag that its help hides.
fn accepts(program: &Path, name: &str) -> bool {
    // A flag that needs a value takes --help for it; any complaint but this one shows that the flag is known.
    let said = run(program, &[&format!("--{name}"), "--help"]);
    !said.contains(&format!("unknown flag: --{name}"))
}

/// `  -v, --v Level      number for … (default 0)`, with more lines of text below it.
fn incumbents(program: &Path) -> BTreeMap<String, Flag> {
    let help = run(program, &["--help"]);
    let mut blocks: Vec<String> = Vec::new();
    for line in help.lines() {
        if line.trim_start().starts_with('-') && line.starts_with("  ") {
            blocks.push(line.to_owned());
        } else if let Some(block) = blocks.last_mut() {
            // The headings between the groups do no harm: no default stands in them.
            block.push('\n');
            block.push_str(line);
        }
    }

    blocks.iter().map(|block| incumbents_flag(block)).collect()
}

fn incumbents_flag(block: &str) -> (String, Flag) {
    let block = block.split("\n\n").next().unwrap_or_default().trim();
    let (names, text) = block.split_once("   ").unwrap_or((block, ""));
    let (short, long) = short_and_long(names);
    let (name, kind) = long.split_once(' ').unwrap_or((long, ""));
    let default = text
        .trim_end()
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once("(default "));
    let default = default.map_or("", |(_, default)| default);
    let default = default.trim_matches('"').trim_start_matches('[').trim_end_matches(']');
    let kind = match kind {
        "" => "bool",
        "string" | "ip" | "quantity" | "pattern=N,..." => "text",
        "int" | "int32" | "Level" => "int",
        "float" | "float32" => "float",
        "duration" => "duration",
        "strings" | "int32Slice" => "list",
        "stringArray" | "namedCertKey" => "repeated",
        "stringToString" => "map",
        "mapStringBool" => "gates",
        "version[=true]" => "version",
        other => panic!("--{name} has a type that is new: {other}"),
    };
    (name.to_owned(), flag(short, kind, default))
}

/// `  -v, --v int ≥ 0` and, in the next line, `number for … (default 0) [none: …]`.
fn our_flags(program: &Path) -> BTreeMap<String, Flag> {
    let help = run(program, &["--help"]);
    let lines: Vec<&str> = help.lines().collect();
    let is_flag = |line: &str| line.starts_with("  ") && line.trim_start().starts_with('-');
    let pairs = lines.windows(2).filter(|pair| is_flag(pair[0]));
    pairs.map(|pair| our_flag(pair[0].trim(), pair[1])).collect()
}

fn our_flag(names: &str, text: &str) -> (String, Flag) {
    let (short, long) = short_and_long(names);
    let (name, kind) = long.split_once(' ').expect("a type");
    let default = text.rsplit_once("(default ").and_then(|(_, rest)| rest.split_once(')'));
    let kind = match kind {
        "bool" => "bool",
        "string" => "text",
        "duration" => "duration",
        "strings" => "list",
        "string, repeated" => "repeated",
        "key=value,…" => "map",
        "Name=bool,…" => "gates",
        "true, false or raw" => "version",
        number if number.starts_with("int ") => "int",
        number if number.starts_with("float ") => "float",
        other => panic!("--{name} has a type that is new: {other}"),
    };
    (
        name.to_owned(),
        flag(short, kind, default.map_or("", |(default, _)| default)),
    )
}

fn short_and_long(names: &str) -> (Option<String>, &str) {
    if let Some(long) = names.strip_prefix("--") {
        return (None, long);
    }
    let (short, long) = names.split_once(", --").expect("a short and a long name");
    (Some(short.trim_start_matches('-').to_owned()), long)
}

/// The incumbent's help leaves a default out where it is what the type begins with.
fn flag(short: Option<String>, kind: &'static str, default: &str) -> Flag {
    let default = match (kind, default) {
        ("bool" | "version", "") => "false",
        ("int" | "float" | "text", "0") => "",
        ("duration", "0s") => "",
        (_, default) => default,
    };
    Flag {
        short,
        kind,
        default: default.to_owned(),
    }
}

/// Every flag of `docs/flags.md` and the heading above it.
fn headings() -> BTreeMap<String, String> {
    let page = page("flags.md");
    let mut heading = "";
    let mut flags = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
            seen.insert(text);
        } else if let Some((_, rest)) = line.strip_prefix("| ").and_then(|cell| cell.split_once("`--"))
            && let Some((name, _)) = rest.split_once('`')
        {
            flags.entry(name.to_owned()).or_insert_with(|| heading.to_owned());
        }
    }

    let missing: Vec<&&str> = NOT_THE_INCUMBENTS
        .iter()
        .filter(|heading| !seen.contains(**heading))
        .collect();
    assert!(missing.is_empty(), "docs/flags.md has no heading {missing:?}");
    assert!(flags.len() >= LEAST, "{} flags in docs/flags.md", flags.len());
    flags
}
