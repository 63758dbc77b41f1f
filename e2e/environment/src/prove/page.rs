//! The figures as a table for the terminal and as a page of the documentation. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use outrigger_timeline::{Gaps, Limits, Measurement};

use super::options::Options;
use super::results::Run;
use super::scenario::Scenario;

/// The measurement of one scenario, over all its runs.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) scenario: Scenario,
    pub(super) runs: u32,
    /// The commit that ran.
    pub(super) commit: String,
    pub(super) measurement: Measurement,
    /// Figures of this scenario alone.
    pub(super) notes: Vec<String>,
}

impl Row {
    pub(super) fn of(scenario: Scenario, run: Run) -> Self {
        Self {
            scenario,
            runs: 1,
            commit: run.commit,
            measurement: run.measurement,
            notes: run.notes,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.measurement.add(other.measurement);
        self.notes.extend(other.notes);
    }

    pub(super) fn violations(&self) -> impl Iterator<Item = String> {
        let number = self.scenario.number();
        let all = self.measurement.violations.iter();
        all.map(move |violation| format!("scenario {number}: {violation}"))
    }

    fn cells(&self) -> Vec<String> {
        let figures = &self.measurement;
        let mut cells = vec![
            self.scenario.number().to_string(),
            self.runs.to_string(),
            figures.hand_overs.to_string(),
            milliseconds(figures.overlap),
            milliseconds(figures.overrun),
        ];
        cells.extend(Gaps::ALL.map(|kind| times(figures.median_and_worst(kind))));
        cells.push(times(figures.observed_median_and_worst()));
        let ownerless = figures.ownerless.as_ref().map(|time| seconds(time.length()));
        cells.push(ownerless.unwrap_or("none".to_owned()));
        cells.push(figures.rolled.map_or_else(|| "-".to_owned(), seconds));
        let counts = [
            figures.needless_writes,
            figures.writes_without_lease,
            figures.recreated,
            figures.lost_targets,
            figures.contradictions,
        ];
        cells.extend(counts.map(|count| count.to_string()));
        let passed = figures.violations.is_empty();
        cells.push(if passed { "passed" } else { "FAILED" }.to_owned());
        cells
    }
}

const HEADINGS: [&str; 18] = [
    "#",
    "runs",
    "handovers",
    "overlap",
    "overrun of an old manager",
    "old → ours",
    "ours → ours, SIGTERM",
    "ours → ours, expired",
    "ours → old",
    "until every load balancer is read",
    "longest without owner",
    "longest in a roll of old managers",
    "needless AWS writes",
    "AWS writes without lease",
    "load balancers recreated",
    "targets lost",
    "false statements",
    "result",
];

/// One line for each figure, one column for each scenario.
pub(super) fn table(rows: &[Row]) -> String {
    let columns: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let width = |cells: &[String]| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default();
    let first = width(&HEADINGS.map(str::to_owned));

    let mut text = String::new();
    for (index, heading) in HEADINGS.iter().enumerate() {
        let cells = columns
            .iter()
            .map(|cells| format!("  {:>1$}", cells[index], width(cells)));
        let _ = writeln!(text, "{heading:first$}{}", cells.collect::<String>());
    }
    text
}

/// Why other programs do not run beside ours in each scenario.
const INCUMBENT: &str = "\
    aws-cloud-controller-manager v1.37 takes part in scenarios 15 and 19 only. It reads no CloudProviderMigration \
    and has no gate: the other scenarios change or hide what the gate decides by, and v1.37 would only compete for \
    its leases in each of them. `make demo-incumbent` measures that: with its default list of controllers it runs \
    the Service controller beside the old manager, and with a list that has its names it does not.\n\n";

pub(super) fn page(rows: &[Row], options: &Options) -> String {
    let mut text = String::from(
        "# Proof of one owner\n\n\
         `make prove UPDATE=1` writes this page. Each scenario runs on a real kube-controller-manager 1.26, real API \
         servers, Outrigger's manager and webhook, and a simulated AWS. The whole record of a run is measured: AWS \
         calls, audit log, leases, processes, load balancers and the status of the CloudProviderMigration.\n\n\
         \"Old\" is the kube-controller-manager, \"ours\" is Outrigger's manager. After SIGTERM a leader releases its \
         lease; \"expired\" is a lease that was not released, or one whose next holder started in the last 15 s before \
         the former one took over from an old manager: it cannot know when that manager's record expired. A needless AWS \
         write has no cause but the change of the owner. Numbers are not consecutive, because not every planned \
         scenario exists. `proof.jsonl` has the figures of each run.\n\n",
    );
    text.push_str(INCUMBENT);
    let seed = options.seed;
    let _ = writeln!(text, "Seed {seed}. Gaps are `median / longest`, in seconds.\n");

    text.push_str("| # | scenario |\n|---|---|\n");
    for row in rows {
        let _ = writeln!(text, "| {} | {} |", row.scenario.number(), row.scenario.title());
    }

    figures(&mut text, rows);

    text.push_str(
        "\nAn overrun is the time in which a kube-controller-manager that was stopped and continued still acts on a lease \
         that it lost, or in which one without leader migration acts while another process owns. In scenarios 26, 28, 29 \
         and 33 the overrun of the Service controller is 0 ms. The longest time without an owner leaves out the rollout of one old manager to another. A false \
         statement is an owner, a condition or an observer in the status that the records contradict when it is \
         written, or that is not corrected within 20 s although a manager holds the main lease.\n\n",
    );
    for row in rows {
        if let Some(other) = row.scenario.other_bound() {
            let _ = writeln!(text, "- {}: {other}", row.scenario.number());
        }
    }
    text.push_str(
        "\nThe time until every load balancer was read begins when our manager acquires the migration lease. No AWS write \
         of a process is carried out after another one acquired the lease, except in scenarios 3 and 7, which hold one \
         in AWS for longer than a lease on purpose.\n\n\
         In a copy of each record one defect after another is planted: an overlap, a longer gap, a needless write, a \
         write without the lease, another load balancer, a lost target, a false status. In scenario 19 it is also a \
         load balancer that is not read or does not get the Node that joined, in scenario 23 an acquisition 3 s after \
         the end of the old process, and in scenario 25 a lost route. Each of them breaks a bound; otherwise the scenario fails.\n\n\
         ## During the longest time without an owner\n\n\
         The status is the last one written. Where no manager runs that could correct it, it still names the last \
         owner.\n\n| # | ControlPlaneMigrated |\n|---|---|\n",
    );
    for row in rows {
        let ownerless = row.measurement.ownerless.as_ref();
        let shown = ownerless.and_then(|time| time.shown.as_deref()).unwrap_or_default();
        let _ = writeln!(text, "| {} | {} |", row.scenario.number(), shown.replace('|', "\\|"));
    }

    text.push_str("\n## Figures of single scenarios\n\n");
    for row in rows {
        row.notes.iter().for_each(|note| {
            let _ = writeln!(text, "- {}: {note}", row.scenario.number());
        });
    }

    text
}

/// The table of figures, one column for each scenario.
fn figures(text: &mut String, rows: &[Row]) {
    let limits = Limits::default();
    text.push_str("\n| figure | bound |");
    rows.iter().for_each(|row| {
        let _ = write!(text, " {} |", row.scenario.number());
    });
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(rows.len()));
    let columns: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    for (index, heading) in HEADINGS.iter().enumerate().skip(1) {
        let cells: String = columns.iter().map(|cells| format!(" {} |", cells[index])).collect();
        let _ = writeln!(text, "| {heading} | {} |{cells}", bound(heading, &limits));
    }

    let commits: String = rows.iter().map(|row| format!(" {} |", row.commit)).collect();
    let _ = writeln!(text, "| commit | |{commits}");
}

/// The bound of a figure, where all scenarios have the same.
fn bound(heading: &str, limits: &Limits) -> String {
    match heading {
        "overlap" => "0 ms".to_owned(),
        "old → ours" => seconds(limits.old_to_new),
        "ours → ours, SIGTERM" => seconds(limits.new_to_new_released),
        "ours → ours, expired" => seconds(limits.new_to_new_killed),
        "ours → old" => seconds(limits.new_to_old_released),
        "needless AWS writes"
        | "AWS writes without lease"
        | "load balancers recreated"
        | "targets lost"
        | "false statements" => "0".to_owned(),
        _ => String::new(),
    }
}

fn times(median_and_worst: Option<(Duration, Duration)>) -> String {
    median_and_worst.map_or("-".to_owned(), |(median, worst)| {
        format!("{:.1} / {:.1}", median.as_secs_f64(), worst.as_secs_f64())
    })
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: Scenario, violations: &[&str]) -> Row {
        let measurement = Measurement {
            overlap: Duration::from_millis(7),
            gaps: [(
                Gaps::OldToNew,
                vec![Duration::from_millis(14_000), Duration::from_millis(14_600)],
            )]
            .into(),
            violations: violations.iter().map(|text| (*text).to_owned()).collect(),
            ..Measurement::default()
        };
        Row {
            scenario,
            runs: 1,
            commit: "1a2b".to_owned(),
            measurement,
            notes: vec!["released after 0.4 s".to_owned()],
        }
    }

    #[test]
    fn a_row_with_a_violation_has_failed_and_the_others_have_passed() {
        let rows = [row(Scenario::ThereAndBack, &[]), row(Scenario::Leases, &["two owners"])];
        let table = table(&rows);
        let line = |heading: &str| table.lines().find(|line| line.starts_with(heading)).unwrap().to_owned();
        assert_eq!(
            line("result").split_whitespace().collect::<Vec<_>>(),
            ["result", "passed", "FAILED"]
        );
        assert!(line("overlap").ends_with("7 ms"));
        let violations: Vec<String> = rows.iter().flat_map(Row::violations).collect();
        assert_eq!(violations, ["scenario 6: two owners"]);
    }

    #[test]
    fn the_page_has_bounds_figures_and_notes_and_adds_up_runs() {
        let mut both = row(Scenario::Leases, &[]);
        both.add(row(Scenario::Leases, &[]));
        let page = page(&[both], &Options::parse(&[]).unwrap());
        assert!(page.contains("| old → ours | 15.5 s | 14.6 / 14.6 |"), "{page}");
        assert!(
            page.contains("| runs |  | 2 |") && page.contains("- 6: released after 0.4 s"),
            "{page}"
        );
        assert!(page.contains("| overlap | 0 ms | 14 ms |"), "{page}");
        assert!(page.contains("| commit | | 1a2b |"), "{page}");
    }
}
