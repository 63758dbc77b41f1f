//! A second parser of simple lists, written from the components' documentation and independent of the first.

use outrigger_shared::command_line::{CommandLine, Flag, Kind, List};

/// The values of a flag; the inner `None` is a list that must be an error. The outer `None` is a list that is not
/// simple: it has programs that start programs, or variables.
pub(super) fn values(shape: &str, words: &[&str], flag: Flag) -> Option<Option<Vec<String>>> {
    if words.iter().any(|word| word.contains("$(")) {
        return None;
    }
    match shape {
        "bare" | "pairs" => Some(without_program(shape, words, flag)),
        "dashed" => Some(with_dashes(words, flag)),
        "container" => {
            let own = match words.split_first() {
                Some((first, rest)) if !first.starts_with('-') => {
                    if starts_others(first) {
                        return None;
                    }
                    rest
                }
                _ => words,
            };
            Some(with_dashes(own, flag))
        }
        _ => None,
    }
}

/// `--name=value`, `-name=value`, `--name value`; a switch has no second word. The first bare `--` ends the flags.
fn with_dashes(words: &[&str], flag: Flag) -> Option<Vec<String>> {
    let words: Vec<&str> = words.to_vec();
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let mut found = Vec::new();
    let mut skip = false;

    for (index, word) in words[..end].iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }

        let dashes = word.len() - word.trim_start_matches('-').len();
        let (name, value) = match word.find('=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (*word, None),
        };
        if !(1..=2).contains(&dashes) || name.trim_start_matches('-').replace('_', "-") != flag.name {
            continue;
        }

        match (value, flag.kind) {
            (Some(value), _) => found.push(value.to_owned()),
            (None, Kind::Boolean) => found.push("true".to_owned()),
            (None, Kind::Text) => {
                let next = words.get(index + 1).filter(|next| !next.starts_with('-'))?;
                found.push((*next).to_owned());
                skip = true;
            }
        }
    }

    Some(found)
}

/// `name=value`, with or without dashes. A name that ends in `-` or `+` has a meaning of its own in lists of RKE2 and
/// K3s.
fn without_program(shape: &str, words: &[&str], flag: Flag) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for word in words {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*word, None),
        };
        let dashes = name.len() - name.trim_start_matches('-').len();
        let name = name.trim_start_matches('-');
        if dashes > 2 || name.is_empty() {
            continue;
        }

        let plain = if shape == "bare" {
            name.trim_end_matches(['-', '+'])
        } else {
            name
        };
        if plain.replace('_', "-") != flag.name {
            continue;
        }
        if shape == "bare" && name.ends_with('-') {
            return None;
        }

        match (value, flag.kind) {
            (Some(value), _) => found.push(value.to_owned()),
            (None, Kind::Boolean) => found.push("true".to_owned()),
            (None, Kind::Text) => return None,
        }
    }

    Some(found)
}

fn starts_others(word: &str) -> bool {
    const STARTERS: [&str; 13] = [
        "sh",
        "bash",
        "ash",
        "dash",
        "zsh",
        "env",
        "tini",
        "tini-static",
        "dumb-init",
        "catatonit",
        "go-runner",
        "hyperkube",
        "http-prober",
    ];
    STARTERS.contains(&word.split('/').next_back().unwrap_or_default())
}

/// Whether a flag is first, and a later word names a program that starts others. When the flag is removed, that word
/// becomes the program.
pub(super) fn begins_late(line: &CommandLine) -> bool {
    let words = [List::Command, List::Args]
        .into_iter()
        .filter_map(|list| line.list(list))
        .flatten();
    let mut words = words.map(String::as_str);
    words.next().is_some_and(|first| first.starts_with('-')) && words.any(starts_others)
}
