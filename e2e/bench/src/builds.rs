//! Several builds of our programs, such as one for glibc and one for musl: all in one run, alternating.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::answer::Depth;
use super::client::Connections;
use super::environment::Environment;
use super::load::{Tally, Workload, saturate};
use super::manager::candidate::Candidate as Manager;
use super::manager::cloud::Cloud;
use super::manager::result::Subject;
use super::manager::scenarios::Bench;
use super::percentile::median;
use super::placement::Placement;
use super::review::{Reviews, Stream};
use super::server::{Candidate, Server};
use super::table::{count, mebibytes, number, table};

/// Requests in flight. The webhook refuses some above 256.
const IN_FLIGHT: [usize; 2] = [1, 100];
/// Load before each measurement, not counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// A folder with `outrigger-manager` and `outrigger-webhook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Its name in the table.
    pub name: String,
    pub folder: PathBuf,
}

impl Build {
    fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if !path.is_file() {
            bail!("{} is not built; run `make bench-libc`", path.display());
        }
        Ok(path)
    }
}

/// The amount of work.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// In each round each program of each build is started and measured.
    pub rounds: usize,
    /// Time of each load of the webhook.
    pub load: Duration,
    /// Nodes of the manager's cold start.
    pub nodes: usize,
}

/// The values of one measure: a list for each build, with one value a round.
#[derive(Debug, Clone)]
struct Row {
    measure: String,
    values: Vec<Vec<f64>>,
}

/// All values of a run.
#[derive(Debug, Clone)]
pub struct Values {
    names: Vec<String>,
    rows: Vec<Row>,
}

impl Values {
    pub fn of(builds: &[Build]) -> Self {
        let names = builds.iter().map(|build| build.name.clone()).collect();
        Self {
            names,
            rows: Vec::new(),
        }
    }

    fn add(&mut self, build: usize, measure: &str, value: f64) {
        let known = self.rows.iter().position(|row| row.measure == measure);
        let at = known.unwrap_or_else(|| {
            self.rows.push(Row {
                measure: measure.to_owned(),
                values: vec![Vec::new(); self.names.len()],
            });
            self.rows.len() - 1
        });
        self.rows[at].values[build].push(value);
    }

    /// A line for each measure and build: the median of all rounds, and how it relates to that of the first build.
    pub fn table(&self) -> String {
        let columns = [
            "measure",
            "build",
            "median:",
            "÷ first build:",
            "smallest ratio of a round:",
            "largest:",
        ];
        let rows = self.rows.iter().flat_map(|row| {
            let lines = self.names.iter().zip(&row.values).enumerate();
            lines.map(|(at, (name, values))| {
                let first = &row.values[0];
                let of_rounds: Vec<f64> = values.iter().zip(first).map(|(value, first)| value / first).collect();
                let ratio = median(values.iter().copied()).zip(median(first.iter().copied()));
                let shown = |value: Option<f64>| if at == 0 { String::new() } else { number(value) };
                [
                    row.measure.clone(),
                    name.clone(),
                    number(median(values.iter().copied())),
                    shown(ratio.map(|(own, first)| own / first)),
                    shown(of_rounds.iter().copied().reduce(f64::min)),
                    shown(of_rounds.iter().copied().reduce(f64::max)),
                ]
            })
        });
        table(columns, rows.collect::<Vec<_>>())
    }
}

/// Measures the webhooks of all builds. In every second round the last build is the first.
///
/// # Errors
/// When a server fails, or refuses a request.
pub async fn webhooks(
    builds: &[Build],
    extent: Extent,
    environment: &Environment,
    placement: Placement,
    values: &mut Values,
    progress: impl Fn(&str),
) -> Result<()> {
    for round in 1..=extent.rounds {
        for at in order(builds.len(), round) {
            let build = &builds[at];
            progress(&format!("webhook, round {round} of {}: {}", extent.rounds, build.name));
            let program = build.program("outrigger-webhook")?;
            let size = std::fs::metadata(&program)?.len();
            values.add(at, "webhook: size of the program, MiB", mebibytes(size / 1024));

            let alone = (placement, "webhook alone on one processor");
            let shared = (placement.shared(), "webhook on all processors");
            for (placement, place) in [alone, shared] {
                let mut add = |measure: &str, value| values.add(at, &format!("{place}: {measure}"), value);
                webhook(&program, extent.load, environment, placement, &mut add)
                    .await
                    .with_context(|| format!("{}, {place}", build.name))?;
            }
        }
    }

    Ok(())
}

async fn webhook(
    program: &Path,
    time: Duration,
    environment: &Environment,
    placement: Placement,
    add: &mut impl FnMut(&str, f64),
) -> Result<()> {
    let server = Server::start(Candidate::Outrigger, program.to_owned(), environment, Some(&placement)).await?;
    add("start to ready, ms", server.ready_after.as_secs_f64() * 1e3);
    add("memory when ready, MiB", mebibytes(server.usage()?.resident));

    let reviews = Reviews::default();
    let references = server.references(environment, &reviews).await?;
    for in_flight in IN_FLIGHT {
        let connections = Connections::open(server.address, &environment.authority, in_flight).await?;
        let workload = || Workload::new(reviews.clone(), Stream::Mixed, references.clone(), Depth::Quick);
        saturate(&connections, workload(), in_flight, WARM_UP).await?;

        let before = server.usage()?;
        let tally = saturate(&connections, workload(), in_flight, time).await?;
        let used = server.usage()?.processor.saturating_sub(before.processor);
        ensure_answered(&tally)?;
        let answered = count(tally.answered);
        let mut of_load = |measure: &str, time: Duration| {
            let measure = format!("{in_flight} in flight: {measure}");
            add(&measure, answered / time.as_secs_f64());
        };
        of_load("answers/s", tally.time);
        of_load("answers per second of processor time", used);
    }

    let usage = server.usage()?;
    add("memory after the load, MiB", mebibytes(usage.resident));
    add("peak memory, MiB", mebibytes(usage.peak));
    server.stop().await
}

fn ensure_answered(tally: &Tally) -> Result<()> {
    if let Some(reason) = &tally.failure {
        bail!("{} of {} requests failed: {reason}", tally.failed, tally.sent());
    }
    if tally.shed > 0 || tally.answered == 0 {
        let (shed, answered) = (tally.shed, tally.answered);
        bail!("{shed} requests were refused, and {answered} were answered");
    }
    Ok(())
}

/// Measures a cold start of the managers of all builds, in the order of [`webhooks`].
///
/// # Errors
/// When a manager or a server fails.
pub async fn managers(builds: &[Build], extent: Extent, bench: &mut Bench<'_>, values: &mut Values) -> Result<()> {
    let mut cloud = Cloud::start(bench.tools, bench.folder, "").await?;
    let machines = cloud.machines(extent.nodes).await?;
    for round in 1..=extent.rounds {
        for at in order(builds.len(), round) {
            let build = &builds[at];
            (bench.progress)(&format!("manager, round {round} of {}: {}", extent.rounds, build.name));
            bench.programs.ours = build.program("outrigger-manager")?;
            let size = std::fs::metadata(&bench.programs.ours)?.len();
            let ours = Subject::Manager(Manager::Outrigger);
            let work = bench.one_cold(&cloud, &machines, ours, false).await?;
            if work.done < extent.nodes {
                let (name, done, nodes) = (&build.name, work.done, extent.nodes);
                bail!("{name}: {done} of {nodes} Nodes were initialized in time");
            }

            let usage = work.usage.context("no usage of a manager")?;
            let mut add =
                |measure: &str, value| values.add(at, &format!("manager, {} Nodes: {measure}", extent.nodes), value);
            add("size of the program, MiB", mebibytes(size / 1024));
            add("cold start, s", work.last.as_secs_f64());
            add("processor time, s", usage.processor.as_secs_f64());
            add("memory after it, MiB", mebibytes(usage.resident));
            add("peak memory, MiB", mebibytes(usage.peak));
        }
    }

    Ok(())
}

fn order(builds: usize, round: usize) -> Vec<usize> {
    match round % 2 {
        1 => (0..builds).collect(),
        _ => (0..builds).rev().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Build, Tally, Values, ensure_answered, order};

    fn builds() -> Vec<Build> {
        let build = |name: &str| Build {
            name: name.to_owned(),
            folder: name.into(),
        };
        ["glibc", "musl"].map(build).into()
    }

    #[test]
    fn a_ratio_is_of_medians_and_the_first_build_has_none() {
        let mut values = Values::of(&builds());
        for (glibc, musl) in [(10.0, 5.0), (20.0, 30.0), (90.0, 40.0)] {
            values.add(1, "answers/s", musl);
            values.add(0, "answers/s", glibc);
        }

        let table = values.table();

        assert!(table.contains("| answers/s | glibc | 20.0 |  |  |  |\n"), "{table}");
        assert!(
            table.contains("| answers/s | musl | 30.0 | 1.50 | 0.444 | 1.50 |\n"),
            "{table}"
        );
    }

    #[test]
    fn the_first_build_is_the_last_in_every_second_round() {
        assert_eq!([1, 2, 3].map(|round| order(2, round)), [[0, 1], [1, 0], [0, 1]]);
    }

    #[test]
    fn refused_failed_and_absent_answers_are_errors() {
        let good = Tally {
            time: Duration::from_secs(1),
            answered: 1,
            ..Tally::default()
        };
        let with = |change: fn(&mut Tally)| {
            let mut tally = good.clone();
            change(&mut tally);
            ensure_answered(&tally).is_err()
        };
        assert!(ensure_answered(&good).is_ok());
        assert!(with(|tally| tally.shed = 1));
        assert!(with(|tally| tally.answered = 0));
        assert!(with(|tally| tally.failure = Some("broken".to_owned())));
    }

    #[test]
    fn a_folder_without_the_program_is_named() {
        let error = builds()[1]
            .program("outrigger-webhook")
            .expect_err("nothing is built there");
        assert_eq!(
            error.to_string(),
            "musl/outrigger-webhook is not built; run `make bench-libc`"
        );
    }
}
