//! The rules of language that a program can check, for comments of the sources and for the pages of the documentation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::sources::Sources;

/// Words at which no sentence begins: the sentence names the thing instead.
pub const RELATIVE: [&str; 6] = ["Who", "Whoever", "Whom", "What", "Those that", "That which"];

/// Phrases that have a standard term, and the term.
pub const PHRASES: [(&str, &str); 22] = [
    ("is told", "is logged, emits an Event, is reported"),
    ("are told", "are logged, emit Events, are reported"),
    ("tells of", "reports"),
    ("is taken away", "is removed"),
    ("are taken away", "are removed"),
    ("let go", "released; the finalizer is removed"),
    ("lets go", "releases; removes the finalizer"),
    ("is given up", "is released"),
    ("are given up", "are released"),
    ("comes again", "is retried"),
    ("tries anew", "is retried"),
    ("tried anew", "retried"),
    ("left alone", "unmanaged, unchanged"),
    ("none of ours", "not managed"),
    ("leftover", "orphaned resource"),
    ("leftovers", "orphaned resources"),
    ("sighting", "observation"),
    ("sightings", "observations"),
    ("heir", "other user of a shared rule"),
    ("heirs", "other users of a shared rule"),
    ("doomed", "to be deleted"),
    ("a look at", "an observation, a description, a list"),
];

/// The shortest documentation comment that can add something to a name, in characters.
const SHORTEST: usize = 10;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, below the root of the project.
    pub file: PathBuf,
    /// The line at which the paragraph begins, from 1.
    pub line: usize,
    /// The rule and the place's text.
    pub text: String,
}

/// Some lines that belong together.
struct Paragraph {
    line: usize,
    text: String,
    is_documentation: bool,
}

/// The findings in the comments of all sources and in all pages. Each is there once: several tests may share a file.
///
/// # Errors
/// When a page cannot be read.
pub fn all(root: &Path, sources: &Sources) -> Result<BTreeSet<Finding>> {
    let sources = sources.files.iter();
    let of_sources = sources.flat_map(|source| of_source(&source.path, &source.text));
    let pages = pages(root, &["docs"])?;
    let of_pages = pages.iter().flat_map(|(path, text)| of_page(path, text));
    Ok(of_sources.chain(of_pages).collect())
}

/// The findings in the comments of a source.
pub fn of_source(file: &Path, text: &str) -> Vec<Finding> {
    let paragraphs = comments(text);
    let empty = paragraphs
        .iter()
        .filter(|paragraph| paragraph.is_documentation && paragraph.text.chars().count() < SHORTEST)
        .map(|paragraph| finding(file, paragraph, "adds nothing to the name", &paragraph.text));
    let prose = paragraphs.iter().flat_map(|paragraph| of_paragraph(file, paragraph));
    empty.chain(prose).collect()
}

/// The findings in a page of the documentation.
pub fn of_page(file: &Path, text: &str) -> Vec<Finding> {
    let paragraphs = prose(text).into_iter();
    paragraphs
        .flat_map(|paragraph| of_paragraph(file, &paragraph))
        .collect()
}

/// The pages of the documentation: all Markdown files of the root and of some folders.
///
/// # Errors
/// When a folder or a page cannot be read.
pub fn pages(root: &Path, folders: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    open.push(root.to_owned());

    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && folder != root {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                pages.push((path.strip_prefix(root)?.to_owned(), text));
            }
        }
    }

    pages.sort();
    Ok(pages)
}

fn of_paragraph(file: &Path, paragraph: &Paragraph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sentence in sentences(&paragraph.text) {
        let is_question = sentence.ends_with('?');
        let begins = |word: &&&str| sentence.strip_prefix(**word).is_some_and(|rest| rest.starts_with(' '));
        if let Some(word) = RELATIVE.iter().find(begins).filter(|_| !is_question) {
            findings.push(finding(file, paragraph, &format!("begins with {word}"), sentence));
        }

        let words = format!(" {} ", bare(sentence));
        for (phrase, instead) in PHRASES {
            if words.contains(&format!(" {phrase} ")) {
                let rule = format!("\"{phrase}\": write \"{instead}\"");
                findings.push(finding(file, paragraph, &rule, sentence));
            }
        }
    }
    findings
}

fn finding(file: &Path, paragraph: &Paragraph, rule: &str, text: &str) -> Finding {
    Finding {
        file: file.to_owned(),
        line: paragraph.line,
        text: format!("{rule}: {text}"),
    }
}

/// The words of a text in lower case, with one space between them.
fn bare(text: &str) -> String {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_' || c == '/'));
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join(" ")
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['.', '?', '!', ':', '|'])
        .map(|part| part.trim_start_matches([' ', '-', '*', '|', '>']).trim_end())
        .filter(|sentence| !sentence.is_empty())
}

/// The comments that stand on lines of their own. Comments of one kind on successive lines are one paragraph.
fn comments(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut last: Option<(usize, &str)> = None;
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(marker) = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker)) else {
            in_code = false;
            continue;
        };

        let content = line.trim_start_matches(marker).trim();
        if content.starts_with("```") {
            in_code = !in_code;
            last = None;
            continue;
        }
        let is_new = content.is_empty() || content.starts_with(['-', '*', '|', '#']);
        match found.last_mut() {
            Some(paragraph) if !is_new && last == Some((index.wrapping_sub(1), marker)) => {
                paragraph.text.push(' ');
                paragraph.text.push_str(content);
            }
            _ if in_code || content.is_empty() => {}
            _ => found.push(Paragraph {
                line: index + 1,
                text: content.to_owned(),
                // A heading such as `# Errors`, and the items of a list, are part of a longer comment.
                is_documentation: marker == "///" && !is_new && last.is_none_or(|(line, _)| line + 1 != index),
            }),
        }
        last = (!content.is_empty() && !in_code).then_some((index, marker));
    }
    found
}

/// The paragraphs of a page: no code, no headings.
fn prose(text: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut in_code, mut goes_on) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            in_code = !in_code;
        }
        if in_code || line.is_empty() || line.starts_with(['#', '`']) && !goes_on {
            goes_on = false;
            continue;
        }

        let is_new = !goes_on || line.starts_with(['-', '*', '|', '>']);
        match found.last_mut() {
            Some(paragraph) if !is_new => {
                paragraph.text.push(' ');
                paragraph.text.push_str(line);
            }
            _ => found.push(Paragraph {
                line: index + 1,
                text: line.to_owned(),
                is_documentation: false,
            }),
        }
        goes_on = true;
    }
    found
}
