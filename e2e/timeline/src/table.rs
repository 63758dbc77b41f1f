//! The timeline as a table for people.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::interval::Interval;
use super::overlap::{milliseconds, since};
use super::report::{ControllerTimeline, Report};
use super::rules::{Controller, Side};

impl Report {
    /// The holders over time, in seconds since the start, then the figures.
    pub fn table(&self) -> String {
        let parts = [self.steps(), self.owners(), self.hand_over_rows(), self.figure_rows()];
        parts.map(|rows| aligned(&rows)).join("\n")
    }

    fn seconds(&self, at: Timestamp) -> String {
        let since = at.duration_since(self.start);
        format!("{:.3} s", since.as_secs_f64())
    }

    fn steps(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["STEP", "AT"])];
        let mut markers: Vec<_> = self.markers.iter().collect();
        markers.sort_by_key(|marker| marker.at);
        rows.extend(
            markers
                .iter()
                .map(|marker| vec![marker.name.clone(), self.seconds(marker.at)]),
        );

        rows
    }

    fn owners(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "CONTROLLER",
            "HELD BY",
            "PROGRAM",
            "FROM",
            "UNTIL",
            "AWS CALLS",
            "API WRITES",
            "LEASE",
        ])];

        for timeline in &self.controllers {
            for interval in &timeline.intervals {
                rows.push(self.owner(timeline, interval));
            }
            if timeline.intervals.is_empty() {
                rows.push(vec![timeline.controller.to_string(), "nobody seen".into()]);
            }
        }

        rows
    }

    fn owner(&self, timeline: &ControllerTimeline, interval: &Interval) -> Vec<String> {
        vec![
            timeline.controller.to_string(),
            interval.actor.label(),
            interval.actor.component.clone(),
            self.seconds(interval.from),
            self.seconds(interval.until),
            interval.aws_calls.to_string(),
            interval.api_writes.to_string(),
            interval.lease.map_or_else(|| "-".into(), |lease| lease.to_string()),
        ]
    }

    fn hand_over_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "M FROM",
            "TO",
            "OLD END",
            "ACQUIRED",
            "GAP",
            "FIRST SYNC",
            "LIMIT",
        ])];

        for hand_over in &self.hand_overs {
            let ms = |duration| format!("{} ms", milliseconds(duration));
            let or = |text: Option<String>, none: &str| text.unwrap_or_else(|| none.into());
            rows.push(vec![
                hand_over.from.label(),
                hand_over.to.label(),
                or(hand_over.ended.map(|at| self.seconds(at)), "did not end"),
                self.seconds(hand_over.acquired),
                or(hand_over.gap.map(ms), "-"),
                or(hand_over.first_sync.map(|sync| format!("+{}", ms(sync))), "not seen"),
                or(hand_over.limit(&self.rules.limits).map(ms), "-"),
            ]);
        }

        rows
    }

    fn figure_rows(&self) -> Vec<Vec<String>> {
        let figures = self.figures();
        let mut rows = Vec::new();
        for timeline in &self.controllers {
            let basis = match timeline.controller {
                Controller::Service => "by AWS calls and API writes",
                Controller::NodeLifecycle => "by API writes and leases",
                Controller::Route => &self.rules.route_note,
            };
            let name = format!("overlap, {}", timeline.controller);
            rows.push(vec![
                name,
                format!("{} ms", milliseconds(timeline.overlap())),
                self.culprits(timeline, basis),
            ]);
        }

        let gap = figures
            .gap_ms
            .map_or_else(|| "never taken over".into(), |gap| format!("{gap} ms"));
        rows.push(row(["gap", &gap, "the old process's end → acquireTime of M"]));
        if let Some(roll) = self.longest_roll() {
            let roll = format!("{} ms", milliseconds(roll));
            rows.push(row([
                "gap in a roll before",
                &roll,
                "one old manager's end → the next one's acquisition; a roll in Prepare costs this with any tool",
            ]));
        }
        for (name, value) in [
            ("AWS writes caused by the switch", figures.aws_writes_by_switch),
            ("load balancers recreated", figures.load_balancers_recreated),
            ("targets lost", figures.targets_lost),
        ] {
            rows.push(row([name, &value.to_string(), ""]));
        }

        rows
    }

    fn culprits(&self, timeline: &ControllerTimeline, basis: &str) -> String {
        let mut text = basis.to_owned();
        for overlap in &timeline.overlaps {
            let whose = if overlap.caused_by.side == Side::Old {
                "not ours, "
            } else {
                ""
            };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "; {whose}{} against {}, {} ms from {}",
                overlap.caused_by.label(),
                overlap.against.label(),
                milliseconds(since(overlap.from, overlap.until)).max(1),
                self.seconds(overlap.from),
            );
        }

        text
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).into()
}

/// Columns as wide as their widest cell, two blanks apart, no blanks at the end of a line.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();

    for row in rows {
        let line: String = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}  "))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }

    text
}
