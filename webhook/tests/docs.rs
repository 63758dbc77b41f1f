//! The tables of kinds, of metrics and of data in `docs/webhook.md` are those that the webhook works by. `UPDATE_DOCS=1 cargo test -p
//! outrigger-webhook --test docs` writes it anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod all_metrics;

use std::{collections::BTreeMap, fs, path::PathBuf};

use outrigger_decide::{CHARTS, NODE_NAMES, kinds};

fn table() -> String {
    let mut rows: BTreeMap<(String, &str), (String, String)> = BTreeMap::new();
    for kind in kinds() {
        let profiles = rows.entry((kind.group.to_owned(), kind.kind)).or_insert_with(|| {
            let reviewed = kind.operations().join(", ");
            (format!("{} | {reviewed}", kind.versions.join(", ")), String::new())
        });
        for profile in kind.profiles.iter().map(|profile| format!("{profile:?}")) {
            if !profiles.1.contains(&profile) {
                let comma = if profiles.1.is_empty() { "" } else { ", " };
                profiles.1 = format!("{}{comma}{profile}", profiles.1);
            }
        }
    }
    let mut text =
        "| API group | kind | versions | reviewed on | profiles of targets |\n|---|---|---|---|---|\n".to_owned();
    for ((group, kind), (middle, profiles)) in rows {
        let group = if group.is_empty() { "core".to_owned() } else { group };
        text += &format!("| {group} | {kind} | {middle} | {profiles} |\n");
    }
    text
}

/// `# HELP` and `# TYPE` of each metric; counters end in `_total`.
fn metrics() -> String {
    let text = all_metrics::text();
    let comment = |prefix: &str| -> BTreeMap<String, String> {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(prefix)?.split_once(' '));
        lines.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
    };
    let types = comment("# TYPE ");
    let mut rows = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, help) in comment("# HELP ") {
        let end = if types[&name] == "counter" { "_total" } else { "" };
        let series = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}{end}{{")));
        let labels = series
            .and_then(|line| line.split_once('}'))
            .map_or("", |(labels, _)| labels);
        let labels: Vec<String> = labels
            .split(',')
            .filter_map(|label| Some(format!("`{}`", label.split_once('=')?.0)))
            .collect();
        let (type_, help) = (&types[&name], help.trim_end_matches('.'));
        rows += &format!("| `{name}{end}` | {type_} | {} | {help} |\n", labels.join(", "));
    }
    rows
}

fn charts() -> String {
    let rows = CHARTS.iter().map(|(version, tag)| format!("| {version} | {tag} |\n"));
    "| chart | image.tag |\n|---|---|\n".to_owned() + &rows.collect::<String>()
}

fn names() -> String {
    let rows = NODE_NAMES.iter().map(|row| {
        let warning = row.warning.map_or("none", |(when, _)| when);
        let cells = [row.kubelets, row.in_tree, row.external, row.change, warning];
        format!("| {} |\n", cells.join(" | "))
    });
    let head = "| kubelet | name with the in-tree provider | name when external | change | warned if |\n|---|---|---|---|---|\n";
    head.to_owned() + &rows.collect::<String>()
}

fn assert_is(name: &str, table: &str) {
    let path = PathBuf::from("../docs/webhook.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let from = text.find(&begin).unwrap() + begin.len();
    let to = text.find(&end).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
        return;
    }
    assert_eq!(
        &text[from..to],
        table,
        "docs/webhook.md is out of date; see this file's head"
    );
}

/// One test, as all write the page.
#[test]
fn the_documented_tables_are_the_real_ones() {
    assert_is("kinds", &table());
    assert_is("metrics", &metrics());
    assert_is("charts", &charts());
    assert_is("names", &names());
}
