//! The alerts and the dashboard agree with the programs: each metric and label of a query is served. Each alert has a
//! section in `docs/alerts.md` and a case in `e2e/alerts`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod all_metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Labels that Prometheus adds to every scraped series.
const OF_THE_TARGET: [&str; 3] = ["job", "namespace", "pod"];
const FUNCTIONS: [&str; 10] = [
    "absent",
    "by",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "or",
    "rate",
    "sum",
    "time",
];
/// Metrics of kube-apiserver:
/// <https://github.com/kubernetes/apiserver/blob/v0.26.13/pkg/admission/metrics/metrics.go>
const OF_API_SERVERS: [(&str, &[&str]); 2] = [
    ("apiserver_admission_webhook_fail_open_count", &["name", "type"]),
    (
        "apiserver_admission_webhook_rejection_count",
        &["name", "type", "operation", "error_type", "rejection_code"],
    ),
];

type Labels = BTreeMap<String, BTreeSet<String>>;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new("..").join(path)).unwrap()
}

fn alerts() -> Vec<Value> {
    let mut found = Vec::new();
    for program in ["manager", "webhook"] {
        let text = read(&format!(
            "manifests/components/monitoring/{program}/prometheus-rule.yaml"
        ));
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        for group in object["spec"]["groups"].as_array().unwrap() {
            found.extend(group["rules"].as_array().unwrap().iter().cloned());
        }
    }
    found
}

/// A part of an expression, or of a line of the exposition format: a name or number, or a symbol. Texts are left out.
#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Symbol(char),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '"' {
            while let Some(inner) = letters.next().filter(|inner| *inner != '"') {
                if inner == '\\' {
                    letters.next();
                }
            }
        } else if is_of_word(letter) {
            let mut word = letter.to_string();
            while let Some(next) = letters.next_if(|next| is_of_word(*next)) {
                word.push(next);
            }
            found.push(Token::Word(word));
        } else if !letter.is_whitespace() {
            found.push(Token::Symbol(letter));
        }
    }
    found
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '.'
}

/// The words up to a symbol.
fn words_until(tokens: &mut impl Iterator<Item = Token>, end: char) -> BTreeSet<String> {
    let inside = tokens.take_while(|token| *token != Token::Symbol(end));
    let words = inside.filter_map(|token| match token {
        Token::Word(word) => Some(word),
        Token::Symbol(_) => None,
    });
    words.collect()
}

/// The metrics of an expression with the labels that it selects, and the labels of its result.
fn parse(expression: &str) -> (Vec<(String, BTreeSet<String>)>, BTreeSet<String>) {
    let (mut metrics, mut groups) = (Vec::new(), BTreeSet::new());
    let mut rest = tokens(expression).into_iter().peekable();
    while let Some(token) = rest.next() {
        match token {
            Token::Symbol('[') => drop(words_until(&mut rest, ']')),
            Token::Word(word) if word == "by" => groups.extend(words_until(&mut rest, ')')),
            Token::Word(word) if FUNCTIONS.contains(&word.as_str()) => {}
            Token::Word(word) if word.starts_with(|first: char| first.is_ascii_digit()) => {}
            Token::Word(metric) => {
                let is_selected = rest.next_if(|next| *next == Token::Symbol('{')).is_some();
                let labels = if is_selected {
                    words_until(&mut rest, '}')
                } else {
                    BTreeSet::new()
                };
                metrics.push((metric, labels));
            }
            Token::Symbol(_) => {}
        }
    }
    (metrics, groups)
}

/// The manager's metrics, from the page that is written from its registry.
fn of_the_manager(labels: &mut Labels) {
    for line in read("docs/metrics.md").lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let mut its: BTreeSet<String> = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if cells[2] == "histogram" {
            labels.insert(format!("{name}_sum"), its.clone());
            labels.insert(format!("{name}_count"), its.clone());
            its.insert("le".to_owned());
            labels.insert(format!("{name}_bucket"), its);
        } else {
            labels.insert(name, its);
        }
    }
}

/// The webhook's metrics, each with a value.
fn of_the_webhook(labels: &mut Labels) {
    for line in all_metrics::text().lines().filter(|line| !line.starts_with('#')) {
        for (name, its) in parse(line).0 {
            labels.entry(name).or_default().extend(its);
        }
    }
}

/// Every metric that is served, with its labels.
fn served() -> Labels {
    let mut known = Labels::new();
    of_the_manager(&mut known);
    of_the_webhook(&mut known);
    for (name, its) in OF_API_SERVERS {
        known.insert(name.to_owned(), its.iter().map(|label| (*label).to_owned()).collect());
    }
    assert!(known.len() > 60, "{} metrics", known.len());
    known
}

/// The first metric or label of a query that nothing serves; else the labels of its result.
fn check(expression: &str, known: &Labels) -> Result<BTreeSet<String>, String> {
    let (metrics, groups) = parse(expression);
    if metrics.is_empty() {
        return Err(format!("no metric in {expression}"));
    }

    for (metric, matched) in metrics {
        let its = known
            .get(&metric)
            .ok_or_else(|| format!("no program serves {metric}"))?;
        let is_unknown = |label: &&String| !its.contains(*label) && !OF_THE_TARGET.contains(&label.as_str());
        if let Some(label) = matched.iter().chain(&groups).find(is_unknown) {
            return Err(format!("{metric} has no label {label}"));
        }
    }

    Ok(groups)
}

/// The queries of the dashboard with the titles of their panels, and the texts of their legends.
fn dashboard() -> Vec<(String, String, String)> {
    let text = read("manifests/components/monitoring/dashboard/outrigger.json");
    let object: Value = serde_json::from_str(&text).unwrap();
    let panels = object["panels"].as_array().unwrap().iter();
    let charts = panels.filter(|panel| panel["type"] != "row");
    let queries = charts.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} has no query");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        targets
            .iter()
            .map(move |target| (title.to_owned(), text(&target["expr"]), text(&target["legendFormat"])))
    });
    queries.collect()
}

#[test]
fn every_metric_and_label_of_the_dashboard_is_served() {
    let known = served();
    let queries = dashboard();
    assert!(queries.len() > 20, "{} queries", queries.len());
    for (title, query, legend) in queries {
        let groups = check(&query, &known).unwrap_or_else(|problem| panic!("{title}: {problem}"));
        let shown = legend
            .split("{{")
            .skip(1)
            .map(|text| text.split("}}").next().unwrap().to_owned());
        for label in shown {
            assert!(groups.contains(&label), "{title}: shows {label}, has {groups:?}");
        }
    }
}

#[test]
fn a_query_with_an_unknown_metric_or_label_is_found() {
    let known = served();
    for (query, problem) in [
        (
            "sum(outrigger_migration_infos)",
            "no program serves outrigger_migration_infos",
        ),
        (
            "max by (phases) (outrigger_migration_info)",
            "outrigger_migration_info has no label phases",
        ),
        (
            r#"outrigger_migration_alarm{kind="x"}"#,
            "outrigger_migration_alarm has no label kind",
        ),
        ("1 + 1", "no metric in 1 + 1"),
    ] {
        assert_eq!(check(query, &known), Err(problem.to_owned()));
    }
}

#[test]
fn every_metric_and_label_of_an_alert_is_served() {
    let known = served();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let expression = alert["expr"].as_str().unwrap();
        let groups = check(expression, &known).unwrap_or_else(|problem| panic!("{name}: {problem}"));

        let texts = alert["annotations"].to_string();
        let shown = texts
            .split("$labels.")
            .skip(1)
            .map(|text| text.split(|letter| !is_of_word(letter)).next().unwrap());
        for label in shown {
            assert!(groups.contains(label), "{name}: shows {label}, has {groups:?}");
        }
    }
}

/// `make alerts` runs the cases.
#[test]
fn every_alert_fires_in_a_case() {
    let cases: Value = serde_saphyr::from_str(&read("e2e/alerts/tests.yaml")).unwrap();
    let tests = cases["tests"].as_array().unwrap().iter();
    let checks = tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let firing: BTreeSet<&str> = checks
        .filter(|check| check["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()))
        .map(|check| check["alertname"].as_str().unwrap())
        .collect();
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(firing, names);
}

/// The sections of the page: title and text.
fn sections() -> Vec<(String, String)> {
    let text = read("docs/alerts.md");
    let parts = text.split("\n## ").skip(1);
    parts
        .map(|part| part.split_once('\n').unwrap())
        .map(|(title, text)| (title.to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn every_alert_has_its_section() {
    let alerts = alerts();
    let sections = sections();
    let names: Vec<&str> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    let titles: Vec<&str> = sections.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(names, titles, "alerts and sections of docs/alerts.md");

    for (alert, (title, text)) in alerts.iter().zip(&sections) {
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{title}: {severity}"
        );
        assert!(
            text.trim_start().starts_with(&format!("Severity {severity}.")),
            "{title}: severity {severity}"
        );
        for part in ["**Cause**:", "**Check**:", "**Fix**:"] {
            assert!(text.contains(part), "{title}: no {part}");
        }
        let anchor = format!("docs/alerts.md#{}", title.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], anchor, "{title}");
        assert!(!alert["annotations"]["summary"].as_str().unwrap().is_empty(), "{title}");
    }
}
