//! The command line, and the size of scenario 19.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::mutation::Mutation;
use super::results::Key;
use super::scenario::Scenario;

pub const USAGE: &str = "usage: outrigger-prove [--scenario=1,4] [--runs=N] [--seed=N] [--jobs=N] [--write=FILE --source=HASH --commit=ID] \
     [--mutation=NAME] [--services=N] [--nodes=N]";

/// A load balancer has at most 1,000 targets:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-limits.html>.
const SIZES: RangeInclusive<usize> = 10..=1000;
/// One in this many load balancers is a network load balancer.
const NETWORK: usize = 10;
/// AWS's reads of one load balancing API each second:
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html>.
const READS: f64 = 10.0;
/// Our manager's part of it, by default.
const SHARE: f64 = 0.25;
/// Load balancers, or their tags, of one call.
const EACH_CALL: usize = 20;
/// One read of its attributes. The lists are read first; for a write they must not be older than a minute. Later it is
/// read again alone: description, tags, attributes.
const CLASSIC: usize = 4;
/// As [`CLASSIC`], with the listeners and the health of the targets, and again these two and the target groups.
const EACH_NETWORK: usize = 9;
/// For the load, for calls that are repeated, and for the simulated AWS, which carries out one call at a time.
const MORE: Duration = Duration::from_secs(60);

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
                "--runs" => options.runs = number(name, value, 1..=1000)?,
                "--seed" => {
                    let seed = value.parse();
                    options.seed = seed.with_context(|| format!("--seed={value:?} is no number"))?;
                }
                "--jobs" => options.jobs = number(name, value, 1..=16)?,
                "--write" => options.write = Some(value.into()),
                "--source" => value.clone_into(&mut options.source),
                "--commit" => value.clone_into(&mut options.commit),
                "--mutation" => options.mutation = Some(mutation(value)?),
                "--services" => options.size.services = number(name, value, SIZES)?,
                "--nodes" => options.size.nodes = number(name, value, SIZES)?,
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

fn number<T: FromStr + PartialOrd + Display>(name: &str, text: &str, range: RangeInclusive<T>) -> Result<T> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    let (least, most) = range.into_inner();
    number.with_context(|| format!("{name}={text:?} is no whole number from {least} to {most}"))
}

fn mutation(text: &str) -> Result<Mutation> {
    let known = Mutation::all().map(Mutation::name).collect::<Vec<_>>().join(", ");
    let found = Mutation::all().find(|mutation| mutation.name() == text);
    found.with_context(|| format!("there is no mutation {text:?}; there are {known}"))
}

/// The size of scenario 19. Two of the Nodes join in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Size {
    pub(super) services: usize,
    pub(super) nodes: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            services: 150,
            nodes: 500,
        }
    }
}

impl Size {
    pub(super) fn is_network(index: usize) -> bool {
        index % NETWORK == NETWORK - 1
    }

    pub(super) fn network(self) -> usize {
        self.services / NETWORK
    }

    pub(super) fn classic(self) -> usize {
        self.services - self.network()
    }

    /// Until our manager has added a Node to each load balancer. Both APIs have their own limit.
    pub(super) fn bound(self) -> Duration {
        let calls = |count: usize, each: usize| each * count + 2 * count.div_ceil(EACH_CALL);
        let calls = calls(self.classic(), CLASSIC).max(calls(self.network(), EACH_NETWORK));
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        Duration::from_secs_f64(f64::from(calls) / (READS * SHARE)) + MORE
    }
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

    #[test]
    fn the_bound_follows_from_the_reads_of_the_slower_api() {
        let size = Size {
            services: 300,
            nodes: 1000,
        };
        assert_eq!((size.classic(), size.network()), (270, 30));
        assert_eq!((0..300).filter(|index| Size::is_network(*index)).count(), 30);
        // 4 reads for each of 270, and 14 lists of each kind, at 2.5 calls each second.
        assert_eq!(size.bound(), Duration::from_millis(443_200) + MORE);
    }
}
