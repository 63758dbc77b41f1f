//! The table of kinds in `docs/webhook.md` is the one that the webhook works by. `UPDATE_DOCS=1 cargo test -p
//! outrigger-webhook --test docs` writes it anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use outrigger_webhook::decide::kinds;

const BEGIN: &str = "<!-- kinds: begin -->\n";
const END: &str = "<!-- kinds: end -->";

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

#[test]
fn the_documented_table_is_the_real_one() {
    let path = PathBuf::from("../docs/webhook.md");
    let text = fs::read_to_string(&path).unwrap();
    let from = text.find(BEGIN).unwrap() + BEGIN.len();
    let to = text.find(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{}{}", &text[..from], table(), &text[to..])).unwrap();
        return;
    }
    assert_eq!(
        &text[from..to],
        table(),
        "docs/webhook.md is out of date; see this file's head"
    );
}
