//! The table of docs/threat-model.md and the table of attacks are about the same fields.

use outrigger_cluster_harness::repository;

use super::attacks::ATTACKS;

const HEADING: &str = "### Fields that decide who owns the controllers";

/// The cells of each row.
fn rows(page: &str) -> Vec<Vec<String>> {
    let section = page.split_once(HEADING).expect("the section").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    lines.map(cells).collect()
}

/// The attacks that a row names.
fn named(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The differences between the page and the attacks.
fn differences(page: &str) -> Vec<String> {
    let rows = rows(page);
    let mut all = Vec::new();
    for row in &rows {
        let [field, _, _, tests] = row.as_slice() else {
            all.push(format!("a row without four cells: {row:?}"));
            continue;
        };
        let of_field = ATTACKS.iter().filter(|attack| attack.field == field);
        let expected: Vec<&str> = of_field.map(|attack| attack.name).collect();
        if expected.is_empty() {
            all.push(format!("no attack on {field}"));
        }
        if named(tests) != expected {
            all.push(format!("{field}: the attacks are `{}`", expected.join("`, `")));
        }
    }

    let is_there = |field: &str| rows.iter().any(|row| row.first().is_some_and(|cell| cell == field));
    let unknown = ATTACKS.iter().filter(|attack| !is_there(attack.field));
    all.extend(unknown.map(|attack| format!("{}: no row {}", attack.name, attack.field)));
    all
}

fn page() -> String {
    std::fs::read_to_string(repository::root().join("docs/threat-model.md")).expect("the page")
}

#[test]
fn each_field_of_the_threat_model_is_attacked() {
    assert_eq!(differences(&page()), [""; 0]);
}

#[test]
fn a_row_without_an_attack_and_an_attack_without_a_row_are_found() {
    let page = page();
    let (before, section) = page.split_once(HEADING).expect("the section");
    let planted = section.replacen(
        "|---|---|---|---|\n",
        "|---|---|---|---|\n| new | x | y | `m-deleted` |\n",
        1,
    );
    let planted = differences(&format!("{before}{HEADING}{planted}"));
    assert_eq!(planted, ["no attack on new", "new: the attacks are ``"]);

    let row = section
        .lines()
        .find(|line| line.starts_with("| `managedFields`"))
        .expect("a row");
    let without = differences(&page.replace(row, ""));
    assert!(
        without.iter().all(|text| text.contains("no row `managedFields`")) && !without.is_empty(),
        "{without:?}"
    );
}
