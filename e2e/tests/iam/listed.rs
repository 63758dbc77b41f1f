//! The table of `docs/iam.md`: which cases differ under which role, and why.

use std::path::PathBuf;

/// Marks around the table.
const MARKS: (&str, &str) = ("<!-- differences: begin -->", "<!-- differences: end -->");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub role: String,
    /// `service`, `node` or `route`.
    pub kind: String,
    /// Names of cases; or `*` and the name of a field, in which all cases may differ.
    pub cases: Vec<String>,
    pub why: String,
}

impl Row {
    /// The beginning of the lines about the field in which all cases may differ.
    pub fn field(&self) -> Option<String> {
        match self.cases.as_slice() {
            [all, field] if all == "*" => Some(format!("{field}: ")),
            _ => None,
        }
    }
}

pub struct Listed(Vec<Row>);

impl Listed {
    /// Reads the page.
    pub fn read() -> Self {
        let path = PathBuf::from("../docs/iam.md");
        let page = std::fs::read_to_string(path).expect("docs/iam.md");
        Self::parse(&page)
    }

    fn parse(page: &str) -> Self {
        let (_, rest) = page.split_once(MARKS.0).expect("the mark before the table");
        let (table, _) = rest.split_once(MARKS.1).expect("the mark after the table");
        let lines = table.lines().filter(|line| line.starts_with("| ")).skip(1);
        Self(lines.map(row).collect())
    }

    pub fn rows(&self) -> &[Row] {
        &self.0
    }

    /// Whether a case is said to differ.
    pub fn contains(&self, role: &str, kind: &str, case: &str) -> bool {
        let mut rows = self.of(role, kind);
        rows.any(|row| row.field().is_none() && row.cases.iter().any(|listed| listed == case))
    }

    /// The lines of a difference that are not in a field in which all cases may differ.
    pub fn unlisted<'a>(&self, role: &str, kind: &str, lines: &'a [String]) -> Vec<&'a str> {
        let fields: Vec<String> = self.of(role, kind).filter_map(Row::field).collect();
        let listed = |line: &&str| fields.iter().any(|field| line.starts_with(field));
        lines.iter().map(String::as_str).filter(|line| !listed(line)).collect()
    }

    fn of(&self, role: &str, kind: &str) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.role == role && row.kind == kind)
    }
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [role, kind, cases, why] = cells.as_slice() else {
        panic!("a row of docs/iam.md has four cells: {line}");
    };
    Row {
        role: (*role).to_owned(),
        kind: (*kind).to_owned(),
        cases: cases.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        why: (*why).to_owned(),
    }
}

#[test]
fn a_row_lists_several_cases() {
    let page = format!(
        "text\n{}\n| role | kind | cases | why |\n|---|---|---|---|\n| kOps | node | `a`, `b` | because |\n{}\n",
        MARKS.0, MARKS.1
    );
    let listed = Listed::parse(&page);
    assert_eq!(listed.rows().len(), 1);
    assert!(listed.contains("kOps", "node", "a") && listed.contains("kOps", "node", "b"));
    assert!(listed.rows()[0].field().is_none());
    assert!(!listed.contains("kOps", "service", "a") && !listed.contains("CAPA", "node", "a"));
}

#[test]
fn a_field_in_which_all_cases_differ_hides_no_other() {
    let row = "| CAPA | node | `*` in `labels` | because |";
    let page = format!(
        "{}\n| role | kind | cases | why |\n|---|---|---|---|\n{row}\n{}\n",
        MARKS.0, MARKS.1
    );
    let listed = Listed::parse(&page);
    let lines = ["labels: a".to_owned(), "addresses: b".to_owned()];
    assert_eq!(listed.unlisted("CAPA", "node", &lines), ["addresses: b"]);
    assert_eq!(listed.unlisted("kOps", "node", &lines), ["labels: a", "addresses: b"]);
    assert!(!listed.contains("CAPA", "node", "*") && !listed.contains("CAPA", "node", "labels"));
}
