//! The command line.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::mutation::Mutation;
use super::results::Key;
use super::scenario::Scenario;
use super::size::{self, Size};

pub const USAGE: &str = "usage: outrigger-prove [--scenario=1,4] [--runs=N] [--seed=N] [--jobs=N] [--write=FILE --source=HASH --commit=ID] \
     [--mutation=NAME] [--services=N] [--nodes=N]";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) runs: u32,
    pub(super) seed: u64,
    /// How many scenarios run at the same time.
    pub(super) jobs: usize,
    /// The page; the runs are recorded beside it.
    pub(super) write: Option<PathBuf>,
    /// A hash of all sources, which stands for the programs.
    pub(super) source: String,
    pub(super) commit: String,
    pub(super) mutation: Option<Mutation>,
    pub(super) size: Size,
}

impl Options {
    /// Reads the words of a command line. An empty value is the default.
    ///
    /// # Errors
    /// For a word or a value that it does not know.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            scenarios: Scenario::ALL.to_vec(),
            runs: 1,
            seed: 1,
            jobs: 1,
            write: None,
            source: String::new(),
            commit: String::new(),
            mutation: None,
            size: Size::default(),
        };

        for word in words {
            let (name, value) = word
                .split_once('=')
                .with_context(|| format!("{word:?} is no option; {USAGE}"))?;
            match name {
                "--scenario" | "--runs" | "--seed" | "--jobs" | "--write" | "--source" | "--commit" | "--mutation"
                | "--services" | "--nodes"
                    if value.is_empty() => {}
                "--scenario" => options.scenarios = value.split(',').map(scenario).collect::<Result<_>>()?,
                "--runs" => options.runs = runs(value)?,
                "--seed" => {
                    options.seed = value
                        .parse()
                        .with_context(|| format!("--seed={value:?} is no number"))?
                }
                "--jobs" => options.jobs = jobs(value)?,
                "--write" => options.write = Some(value.into()),
                "--source" => value.clone_into(&mut options.source),
                "--commit" => value.clone_into(&mut options.commit),
                "--mutation" => options.mutation = Some(mutation(value)?),
                "--services" => options.size.services = size::count(name, value)?,
                "--nodes" => options.size.nodes = size::count(name, value)?,
                _ => bail!("{name:?} is no option; {USAGE}"),
            }
        }

        let is_named = !options.source.is_empty() && !options.commit.is_empty();
        ensure!(
            options.write.is_none() || is_named,
            "--write needs --source and --commit: the page says which programs ran"
        );
        ensure!(
            options.write.is_none() || options.mutation.is_none(),
            "--write and --mutation exclude each other: a record with a planted defect is no proof"
        );

        Ok(options)
    }

    pub(super) fn key(&self, scenario: Scenario, run: u32) -> Key {
        Key {
            source: self.source.clone(),
            scenario: scenario.number(),
            seed: self.seed,
            run,
            size: self.size,
        }
    }
}

fn scenario(text: &str) -> Result<Scenario> {
    let mut known: Vec<u8> = Scenario::ALL
        .into_iter()
        .chain(Scenario::BY_NUMBER)
        .map(Scenario::number)
        .collect();
    known.sort_unstable();
    let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = text.trim().parse().ok().and_then(Scenario::of_number);
    found.with_context(|| format!("there is no scenario {text:?}; there are {known}"))
}

fn runs(text: &str) -> Result<u32> {
    let runs = text.parse().ok().filter(|runs| (1..=1000).contains(runs));
    runs.with_context(|| format!("--runs={text:?} is no whole number from 1 to 1000"))
}

fn jobs(text: &str) -> Result<usize> {
    let jobs = text.parse().ok().filter(|jobs| (1..=16).contains(jobs));
    jobs.with_context(|| format!("--jobs={text:?} is no whole number from 1 to 16"))
}

fn mutation(text: &str) -> Result<Mutation> {
    let known = Mutation::ALL.map(Mutation::name).join(", ");
    let found = Mutation::ALL.into_iter().find(|mutation| mutation.name() == text);
    found.with_context(|| format!("there is no mutation {text:?}; there are {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn scenarios_runs_and_seed_are_read_and_empty_values_are_the_defaults() {
        let options = parsed(&[
            "--scenario=4,1",
            "--runs=3",
            "--seed=7",
            "--write=p.md",
            "--source=5f2c",
            "--commit=1a2b",
        ])
        .unwrap();
        assert_eq!(options.scenarios, [Scenario::StaticPods, Scenario::ThereAndBack]);
        assert_eq!((options.runs, options.seed), (3, 7));
        assert_eq!((&options.write, options.mutation), (&Some("p.md".into()), None));
        assert_eq!(options.key(Scenario::StaticPods, 2).source, "5f2c");
        assert_eq!(
            parsed(&["--scenario=", "--runs=", "--seed=", "--write="]).unwrap(),
            parsed(&[]).unwrap()
        );
    }

    #[test]
    fn what_is_unknown_is_refused_with_what_is_known() {
        for (word, text) in [
            ("--scenario=99", "there is no scenario \"99\"; there are 1, "),
            ("--scenario=1,x", "there is no scenario \"x\""),
            ("--runs=0", "no whole number from 1"),
            ("--seed=-1", "is no number"),
            ("--jobs=0", "no whole number from 1 to 16"),
            ("--nodes=1001", "no whole number from 10 to 1000"),
            ("--mutation=none", "there are overlap, "),
            ("--write=p.md", "needs --source and --commit"),
            ("--verbose=1", "is no option; usage"),
            ("1", "is no option; usage"),
        ] {
            let error = format!("{:#}", parsed(&[word]).unwrap_err());
            assert!(error.contains(text), "{word}: {error}");
        }
    }
}
