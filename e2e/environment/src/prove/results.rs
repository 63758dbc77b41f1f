//! The runs of a campaign, one line of JSON each, beside the page. A campaign takes hours: it can be stopped and
//! continued.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use outrigger_timeline::Measurement;
use serde::{Deserialize, Serialize};

use super::options::Size;
use super::page::Row;
use super::scenario::Scenario;

/// Identifies a run. Runs of other sources measure another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    /// A hash of all sources.
    pub(super) source: String,
    pub(super) scenario: u8,
    pub(super) seed: u64,
    pub(super) run: u32,
    #[serde(flatten)]
    pub(super) size: Size,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) commit: String,
    pub(super) measurement: Measurement,
    pub(super) notes: Vec<String>,
}

/// The recorded runs, in the order of their ends.
#[derive(Debug)]
pub(super) struct Results {
    /// `None`: they are not kept.
    path: Option<PathBuf>,
    runs: Vec<Run>,
}

impl Results {
    /// Reads the recorded runs; none if there is no file.
    pub(super) fn read(path: Option<PathBuf>) -> Result<Self> {
        let Some(path) = path else {
            let runs = Vec::new();
            return Ok(Self { path: None, runs });
        };
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| name.clone())?,
        };
        let run = |(index, line): (usize, &str)| -> Result<Run> {
            let number = index + 1;
            serde_json::from_str(line)
                .with_context(|| format!("{name}, line {number}: no run of this version; delete the line"))
        };
        let runs = text.lines().enumerate().map(run).collect::<Result<_>>()?;

        Ok(Self { path: Some(path), runs })
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.runs.iter().any(|run| run.key == *key)
    }

    /// Records a run.
    pub(super) fn add(&mut self, run: Run) -> Result<()> {
        if let Some(path) = &self.path {
            let line = serde_json::to_string(&run)? + "\n";
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes()))
                .with_context(|| path.display().to_string())?;
        }
        self.runs.push(run);

        Ok(())
    }

    /// The sum of the runs of each scenario, of the sources and the size that ran last.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: BTreeMap<u8, Row> = BTreeMap::new();
        for run in &self.runs {
            let is_current = |other: &&Run| other.key.scenario == run.key.scenario;
            let last = self.runs.iter().rev().find(is_current);
            let same = last.is_some_and(|last| (&last.key.source, last.key.size) == (&run.key.source, run.key.size));
            let Some(scenario) = Scenario::of_number(run.key.scenario).filter(|_| same) else {
                continue;
            };

            let row = Row::of(scenario, run.clone());
            rows.entry(run.key.scenario)
                .and_modify(|sum| sum.add(row.clone()))
                .or_insert(row);
        }

        rows.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(source: &str, scenario: u8, run: u32) -> Run {
        let key = Key {
            source: source.to_owned(),
            scenario,
            seed: 1,
            run,
            size: Size::default(),
        };
        Run {
            key,
            commit: format!("commit of {source}"),
            measurement: Measurement {
                hand_overs: 3,
                ..Measurement::default()
            },
            notes: vec![format!("run {run}")],
        }
    }

    #[test]
    fn a_campaign_is_continued_and_runs_of_older_sources_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proof.jsonl");
        let mut results = Results::read(Some(path.clone())).unwrap();
        for one in [run("old", 1, 0), run("old", 4, 0), run("new", 1, 0), run("new", 1, 1)] {
            assert!(!results.has(&one.key));
            results.add(one).unwrap();
        }

        let results = Results::read(Some(path)).unwrap();
        assert!(results.has(&run("new", 1, 1).key) && !results.has(&run("new", 1, 2).key));
        let rows = results.rows();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.scenario.number(), row.runs, row.commit.as_str(), row.notes.len()))
            .collect();
        assert_eq!(shown, [(1, 2, "commit of new", 2), (4, 1, "commit of old", 1)]);
    }

    #[test]
    fn a_line_that_is_no_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proof.jsonl");
        let line = serde_json::to_string(&run("new", 1, 0)).unwrap();
        std::fs::write(&path, format!("{line}\n{}", &line[..20])).unwrap();
        let error = format!("{:#}", Results::read(Some(path)).unwrap_err());
        assert!(
            error.contains("proof.jsonl, line 2: no run of this version; delete the line"),
            "{error}"
        );
    }
}
