//! The rules of ARCHITECTURE.md. Each function returns one line for each violation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::packages::Package;
use crate::sources::Sources;
use crate::{Imports, sizes};

/// The most files of an import cycle.
pub const MOST_FILES_OF_A_CYCLE: usize = 5;

/// Modules of these names decide, and do nothing else.
pub const DECIDING: [&str; 5] = ["decide", "desired", "gate", "plan", "timeline"];

/// Imports that a deciding module must not have: AWS, the network, files, processes, clocks, logs and random numbers.
const IO: &[&[&str]] = &[
    &["aws_config"],
    &["aws_sdk_ec2"],
    &["aws_sdk_elasticloadbalancing"],
    &["aws_sdk_elasticloadbalancingv2"],
    &["aws_sdk_sts"],
    &["aws_smithy_runtime_api"],
    &["axum"],
    &["fastrand"],
    &["hyper"],
    &["hyper_util"],
    &["jiff", "Timestamp", "now"],
    &["k8s_openapi", "jiff", "Timestamp", "now"],
    &["kube", "Api"],
    &["kube", "Client"],
    &["nix"],
    &["rustix"],
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

/// Imports of what only Linux has, or mostly.
const LINUX: [&[&str]; 4] = [&["libc"], &["nix"], &["rustix"], &["std", "os", "linux"]];

/// No import cycle outside of tests has more than [`MOST_FILES_OF_A_CYCLE`] files.
pub fn cycles(sources: &Sources, imports: &Imports) -> Vec<String> {
    let cycles = imports.cycles().into_iter();
    let is_of_tests = |cycle: &[usize]| cycle.iter().all(|file| sources.files[*file].is_test);
    let too_large = cycles.filter(|cycle| cycle.len() > MOST_FILES_OF_A_CYCLE && !is_of_tests(cycle));
    too_large
        .map(|cycle| {
            let files: Vec<String> = cycle.iter().map(|file| name(&sources.files[*file].path)).collect();
            format!("an import cycle of {} files: {}", files.len(), files.join(", "))
        })
        .collect()
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

/// Deciding modules import no IO, neither directly nor through other files of the project. A violation names the shortest chain of imports.
pub fn purity(sources: &Sources, imports: &Imports) -> Vec<String> {
    let mut found = Vec::new();
    for (file, source) in sources.files.iter().enumerate() {
        if source.is_test || !is_deciding(&source.path) {
            continue;
        }

        let chains = imports.chains(file, |_| true).into_iter();
        let with_io = chains.filter_map(|chain| Some((io_of(imports, *chain.last()?).next()?, chain)));
        found.extend(with_io.take(1).map(|(io, chain)| {
            let names = chain.iter().skip(1).map(|file| name(&sources.files[*file].path));
            let path: Vec<String> = names.chain([io]).collect();
            let file = name(&source.path);
            format!("{file}: a deciding module imports {}", path.join(", which imports "))
        }));
    }

    found
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

/// A folder of `order` below `parent` imports none of a later one.
pub fn order_of_folders(sources: &Sources, imports: &Imports, parent: &str, order: &[&str]) -> Vec<String> {
    let place = |file: usize| {
        let source = &sources.files[file];
        let inside = source.path.strip_prefix(parent).ok().filter(|_| !source.is_test)?;
        let folder = inside.components().next()?.as_os_str();
        order.iter().position(|name| folder == *name)
    };
    let mut found = Vec::new();
    for (from, targets) in &imports.files {
        for to in targets {
            let (Some(here), Some(there)) = (place(*from), place(*to)) else {
                continue;
            };
            if there > here {
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

/// The packages on which one depends and may not, directly or through others: `chains` are those of
/// [`crate::dependencies`].
pub fn excluded(chains: &[Vec<&str>], is_excluded: impl Fn(&str) -> bool) -> Vec<String> {
    let of_excluded = chains
        .iter()
        .filter(|chain| chain.last().is_some_and(|name| is_excluded(name)));
    of_excluded
        .map(|chain| format!("a dependency that is not permitted: {}", chain.join(", which needs ")))
        .collect()
}

/// The sources of these packages use no API that only Linux has.
pub fn portable(sources: &Sources, imports: &Imports, packages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, source) in sources.files.iter().enumerate() {
        if source.is_test || !packages.contains(&source.package.as_str()) {
            continue;
        }

        let paths = imports.external.get(&file).into_iter().flatten();
        let of_linux = paths.filter_map(|path| LINUX.iter().find(|linux| is_below(path, linux)));
        let imported: BTreeSet<String> = of_linux.map(|path| path.join("::")).collect();
        let file = name(&source.path);
        found.extend(imported.into_iter().map(|path| format!("{file}: imports {path}")));
        if source.text.contains("\"/proc") {
            found.push(format!("{file}: names a path of /proc"));
        }
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
