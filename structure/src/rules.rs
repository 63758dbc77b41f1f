//! The rules of ARCHITECTURE.md. Each function returns one line for each violation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::packages::Package;
use crate::sources::Sources;
use crate::{Imports, sizes};

/// The most files of an import cycle that needs no exception.
pub const MOST_FILES_OF_A_CYCLE: usize = 5;

/// Modules of these names decide, and do nothing else.
pub const DECIDING: [&str; 5] = ["decide", "desired", "gate", "plan", "timeline"];

/// Imports that a deciding module must not have: the network, files, processes, clocks and logs.
const IO: [&[&str]; 15] = [
    &["axum"],
    &["hyper"],
    &["hyper_util"],
    &["jiff", "Timestamp", "now"],
    &["kube", "Api"],
    &["kube", "Client"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "process"],
    &["std", "time", "Instant", "now"],
    &["std", "time", "SystemTime"],
    &["tokio"],
    &["tokio_rustls"],
    &["tracing"],
];

/// Values of modules of [`IO`]: an instant that somebody else has taken.
const VALUES: [&[&str]; 3] = [
    &["std", "net", "IpAddr"],
    &["std", "net", "Ipv4Addr"],
    &["tokio", "time", "Instant"],
];

/// An exception of a rule.
pub struct Exception {
    /// The file, below the root of the project.
    pub file: &'static str,
    /// The exception: the number of files of a cycle, or a path that is imported.
    pub what: &'static str,
    pub reason: &'static str,
}

/// No import cycle outside of tests has more than [`MOST_FILES_OF_A_CYCLE`] files. An exception names a file of a cycle and its size; one that is
/// larger than it has to be is a violation too.
pub fn cycles(sources: &Sources, imports: &Imports, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    let mut unused: BTreeSet<&str> = exceptions.iter().map(|exception| exception.file).collect();
    for cycle in imports.cycles() {
        let is_of_tests = cycle.iter().all(|file| sources.files[*file].is_test);
        if cycle.len() <= MOST_FILES_OF_A_CYCLE || is_of_tests {
            continue;
        }

        let files: Vec<String> = cycle.iter().map(|file| name(&sources.files[*file].path)).collect();
        let excepted = exceptions
            .iter()
            .find(|exception| files.iter().any(|file| file == exception.file));
        let size = cycle.len().to_string();

        match excepted {
            Some(Exception { file, what, .. }) => {
                unused.remove(file);
                if *what != size {
                    found.push(format!(
                        "{file}: its import cycle has {size} files, the exception says {what}"
                    ));
                }
            }
            None => found.push(format!("an import cycle of {size} files: {}", files.join(", "))),
        }
    }

    let unused = unused.into_iter();
    found.extend(unused.map(|file| format!("{file}: is in no such import cycle any more: delete the exception")));
    found
}

/// No program contains the path of the clone that compiled it: clones share compiled programs, and one of them may be
/// gone. Programs find their clone when they run.
pub fn compiled_paths(sources: &Sources) -> Vec<String> {
    let macros = ["env", "option_env"].map(|name| format!("{name}!(\"CARGO_MANIFEST_DIR\")"));
    let contains = |text: &str| macros.iter().any(|part| text.contains(part));
    let found = sources.files.iter().filter(|source| contains(&source.text));
    found
        .map(|source| format!("{}: a program contains the path of its clone", name(&source.path)))
        .collect()
}

/// Blank lines separate the steps of functions: at least this share of the lines of their bodies, in percent.
pub fn blank_lines(sources: &Sources, least: f64) -> Vec<String> {
    let functions: Vec<sizes::Function> = sources.files.iter().flat_map(sizes::functions).collect();
    let blank = sizes::sum(&functions, |function| function.blank);
    let percent = sizes::percent(blank, sizes::sum(&functions, |function| function.body));
    let found = (percent < least).then(|| format!("{percent:.1} % of the lines in functions are blank, not {least} %"));
    found.into_iter().collect()
}

/// A page gets to its details within some lines: before this heading there are at most `most`.
pub fn beginning(page: &str, details: &str, most: usize) -> Vec<String> {
    let found = match page.lines().position(|line| line == details) {
        Some(before) if before <= most => None,
        Some(before) => Some(format!("{before} lines are before {details:?}, and {most} may be")),
        None => Some(format!("there is no heading {details:?}")),
    };
    found.into_iter().collect()
}

/// The paths in the last column of a Markdown table that do not exist. A name without a folder is one in the first
/// folder of its cell. `exists` answers for the paths.
pub fn places(table: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for row in table.lines().filter(|line| line.starts_with('|')) {
        let Some(cell) = row.trim_end_matches('|').rsplit('|').next() else {
            continue;
        };

        let mut folder = Path::new("");
        let words = cell.split('`').skip(1).step_by(2);
        for word in words.filter(|word| !word.contains(' ')) {
            let path = match word.contains('/') {
                true => Path::new(word).to_owned(),
                false => folder.join(word),
            };
            if folder == Path::new("") {
                folder = Path::new(word);
            }
            let missing = alternatives(&path.to_string_lossy()).into_iter();
            found.extend(missing.filter(|path| !exists(Path::new(path))));
        }
    }

    found
}

/// The paths of `a/{b,c}/d`.
fn alternatives(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some(names.split(',').map(|name| format!("{before}{name}{after}")).collect())
    });
    braces.unwrap_or_else(|| vec![path.to_owned()])
}

/// Deciding modules import no IO, and no file of the project that does.
pub fn purity(sources: &Sources, imports: &Imports, exceptions: &[Exception]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (file, source) in sources.files.iter().enumerate() {
        if source.is_test || !is_deciding(&source.path) {
            continue;
        }

        let direct = io_of(imports, file).map(|io| (name(&source.path), io));
        found.extend(direct);
        for target in imports.files.get(&file).into_iter().flatten() {
            if io_of(imports, *target).next().is_some() {
                found.insert((name(&source.path), name(&sources.files[*target].path)));
            }
        }
    }

    let pair = |exception: &Exception| (exception.file.to_owned(), exception.what.to_owned());
    let excepted: BTreeSet<(String, String)> = exceptions.iter().map(pair).collect();
    let new = found
        .difference(&excepted)
        .map(|(file, io)| format!("{file}: a deciding module imports {io}"));
    let old = excepted.difference(&found);
    let old = old.map(|(file, io)| format!("{file}: does not import {io} any more: delete the exception"));

    new.chain(old).collect()
}

/// The paths of [`IO`] that a file imports.
fn io_of(imports: &Imports, file: usize) -> impl Iterator<Item = String> {
    let paths = imports.external.get(&file).into_iter().flatten();
    let is_value =
        |path: &[String]| VALUES.iter().any(|value| is_below(path, value)) && !path.ends_with(&["now".to_owned()]);
    let paths = paths.filter(move |path| !is_value(path));
    paths.filter_map(|path| IO.iter().find(|io| is_below(path, io)).map(|io| io.join("::")))
}

/// The folders below `parent` do not import each other, nor the files in them.
pub fn separate_folders(sources: &Sources, imports: &Imports, parent: &str) -> Vec<String> {
    let of = |file: usize| {
        let inside = sources.files[file].path.strip_prefix(parent).ok()?;
        // A module's file beside its folder belongs to the folder.
        let stem = Path::new(inside.components().next()?.as_os_str()).file_stem()?;
        Some(stem.to_string_lossy())
    };
    let mut found = Vec::new();
    for (from, targets) in &imports.files {
        for to in targets {
            let (Some(a), Some(b)) = (of(*from), of(*to)) else {
                continue;
            };
            // The parent's own `mod.rs` lists them all.
            if a != b && a != "mod" && b != "mod" {
                let (from, to) = (&sources.files[*from].path, &sources.files[*to].path);
                found.push(format!("{}: imports {}", name(from), name(to)));
            }
        }
    }

    found
}

/// Packages depend on those that the table allows, and on no others: `| package | depends on |`, each in backquotes.
pub fn packages(packages: &[Package], table: &str) -> Vec<String> {
    let allowed = rows(table);
    let mut found = Vec::new();
    for package in packages {
        let Some(allowed) = allowed.get(&package.name) else {
            found.push(format!("{}: has no row in the table of packages", package.name));
            continue;
        };

        let name = &package.name;
        let extra = package.dependencies.difference(allowed);
        found.extend(
            extra.map(|extra| format!("{name}: depends on {extra}, which the table of packages does not allow")),
        );
        let missing = allowed.difference(&package.dependencies);
        found.extend(missing.map(|one| format!("{name}: does not depend on {one}, as the table of packages says")));
    }

    found
}

/// The words in backquotes of each row of a Markdown table: the first one, and all others.
fn rows(table: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let mut words = line.split('`').skip(1).step_by(2).map(str::to_owned);
        if let Some(first) = words.next() {
            rows.insert(first, words.collect());
        }
    }

    rows
}

fn is_deciding(path: &Path) -> bool {
    let mut parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Path::new(part).file_stem(),
        _ => None,
    });
    parts.any(|part| DECIDING.iter().any(|name| part == *name))
}

fn is_below(path: &[String], io: &[&str]) -> bool {
    path.iter().map(String::as_str).zip(io).filter(|(a, b)| a == *b).count() == io.len()
}

fn name(path: &Path) -> String {
    path.display().to_string()
}
