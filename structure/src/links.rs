//! The links between the pages of the documentation, and the table of contents of its site.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The table of contents. mdBook builds the site from it (`e2e/tools/site`).
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Files that are no pages, and that `e2e/tools/site` copies into the site.
const COPIED: [&str; 2] = ["LICENSE", "docs/migration.svg"];

/// The texts of all pages, by their path below the root of the project.
pub type Pages = BTreeMap<PathBuf, String>;

/// Links of all pages to files or headings that do not exist. `exists` answers for files that are no pages.
pub fn broken(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in pages {
        for link in relative(text) {
            let (file, anchor) = resolved(path, link);
            let found = match pages.get(&file) {
                Some(page) => anchor.is_empty() || anchors(page).contains(anchor),
                None => anchor.is_empty() && exists(&file),
            };
            if !found {
                faults.push(format!("{}: {link} leads nowhere", path.display()));
            }
        }
    }
    faults
}

/// Differences between the table of contents and the pages of `docs`, and links from a page of the site to a file that
/// is not in the site.
pub fn incomplete(pages: &Pages) -> Vec<String> {
    let summary = Path::new(SUMMARY);
    let text = pages.get(summary).map_or("", String::as_str);
    let named: Vec<PathBuf> = relative(text).iter().map(|link| resolved(summary, link).0).collect();
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for page in &named {
        if !pages.contains_key(page) {
            faults.push(format!("{SUMMARY}: there is no page {}", page.display()));
        }
        if !listed.insert(page.as_path()) {
            faults.push(format!("{SUMMARY}: {} is there twice", page.display()));
        }
    }

    let documents = pages.keys().filter(|path| path.starts_with("docs") && *path != summary);
    let missing = documents.filter(|path| !listed.contains(path.as_path()));
    faults.extend(missing.map(|path| format!("{SUMMARY}: {} is missing", path.display())));

    listed.extend(COPIED.map(Path::new));
    for page in &named {
        for link in pages.get(page).map(|text| relative(text)).unwrap_or_default() {
            let (file, _) = resolved(page, link);
            if !listed.contains(file.as_path()) {
                let page = page.display();
                faults.push(format!("{page}: {link} is not in the site: add it to {SUMMARY}"));
            }
        }
    }
    faults
}

/// Tests that a page names as `FILE.rs::TEST` and that its file does not have. `read` returns the text of a file below the
/// root.
pub fn missing_tests(pages: &Pages, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in pages {
        for (file, test) in named_tests(text) {
            let source = read(Path::new(file)).unwrap_or_default();
            if !source.contains(&format!("fn {test}(")) {
                faults.push(format!("{}: {file} has no test {test}", path.display()));
            }
        }
    }
    faults
}

/// The tests that a page names between backticks.
pub fn named_tests(text: &str) -> Vec<(&str, &str)> {
    let spans = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    spans
        .filter_map(|span| span.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect()
}

/// The targets of the links within the project.
fn relative(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for line in prose(text) {
        // Between backticks nothing is a link. A span that ends in the next line makes none in practice.
        let parts = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.extend(parts.filter(|target| !target.contains("://") && !target.contains('`')));
    }
    targets
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// The file of a link, below the root, and its anchor.
fn resolved<'a>(page: &Path, link: &'a str) -> (PathBuf, &'a str) {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return (page.to_owned(), anchor);
    }

    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            // A path out of the project names no file in it.
            Component::ParentDir if !path.pop() => return (PathBuf::from(file), anchor),
            Component::ParentDir | Component::CurDir => {}
            part => path.push(part),
        }
    }
    (path, anchor)
}

/// The anchors of a page's headings, which mdBook and GitHub derive by the same rule.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter(|line| is_heading(line)) {
        let slug = slug(heading);
        let free = (0..).map(|number| match number {
            0 => slug.clone(),
            number => format!("{slug}-{number}"),
        });
        anchors.extend(free.into_iter().find(|anchor| !anchors.contains(anchor)));
    }
    anchors
}

fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches('#');
    text.len() < line.len() && text.starts_with(' ')
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let kept = text.chars().filter(is_kept);
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
