//! Each page of the documentation has a number of words that it may have, so that a reader finds each rule in one place.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::path::Path;

use outrigger_structure::words;

const BUDGET: &str = include_str!("budget.txt");

/// The pages whose words are more than their number, without one, or with one that is far too large.
fn over(words: &BTreeMap<String, usize>, budget: &str) -> Vec<String> {
    let rows = budget.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| {
        let (number, page) = line.split_once(' ')?;
        Some((page, number.parse::<usize>().ok()?))
    });
    let allowed: BTreeMap<&str, usize> = rows.collect();

    let of_pages = words.iter().filter_map(|(page, has)| match allowed.get(page.as_str()) {
        None => Some(format!("{page}: {has} words, and no row in structure/tests/budget.txt")),
        Some(may) if has > may => Some(format!(
            "{page}: {has} words, {may} are allowed: say it once, or generate it"
        )),
        Some(may) if has * 100 < may * 85 => Some(format!("{page}: {has} words; {may} is too much now")),
        Some(_) => None,
    });
    let gone = allowed.keys().filter(|page| !words.contains_key(**page));

    of_pages
        .chain(gone.map(|page| format!("{page}: there is no such page")))
        .collect()
}

#[test]
fn no_page_has_more_words_than_it_may() {
    let root = Path::new("..").canonicalize().expect("the root");
    let pages = words::pages(&root, &["docs"]).expect("pages");
    assert!(pages.len() > 30, "{} pages", pages.len());
    // Those of the root have rules of their own.
    let counted = pages.iter().filter_map(|(path, text)| {
        let name = path.strip_prefix("docs").ok()?.display().to_string();
        Some((name, text.split_whitespace().count()))
    });
    let problems = over(&counted.collect(), BUDGET);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_page_that_grows_is_new_or_gone_is_found() {
    let words = [("a.md", 100), ("b.md", 101), ("c.md", 50), ("d.md", 1)];
    let words: BTreeMap<String, usize> = words.map(|(page, words)| (page.to_owned(), words)).into();
    let found = over(&words, "# words\n100 a.md\n100 b.md\n100 c.md\n100 e.md\n");
    let pages: Vec<&str> = found.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(pages, ["b.md", "c.md", "d.md", "e.md"]);
}
