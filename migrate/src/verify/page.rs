//! The evidence as one HTML file, readable without a script. Pure.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use outrigger_shared::controller::Party;
use outrigger_shared::migration::HistoryEntry;

use super::figures::{Evidence, Verdict};
use crate::explain::printable;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.4rem .8rem .4rem 0;border-bottom:1px solid #8886}\
small{opacity:.75}.refuted{color:#c22;font-weight:bold}\
svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}\
@media print{body{margin:0;max-width:none}}";

/// The width of the picture, and of the names left of it.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 190.0;
/// The height of a row.
const ROW: f64 = 28.0;

/// The part of the picture behind the last change.
const AFTERWARDS: SignedDuration = SignedDuration::from_mins(5);

/// The evidence as a whole document.
pub fn html(evidence: &Evidence) -> String {
    let title = escaped(&format!("{}: {}", evidence.title(), evidence.summary()));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    let at = evidence.at.strftime("%Y-%m-%d %H:%M:%S UTC");
    let is_refuted = evidence.verdict == Verdict::Refuted;
    let class = if is_refuted { " class=\"refuted\"" } else { "" };
    push(
        &mut page,
        format_args!(
            "<p{class}>CloudProviderMigration {}, phase {}, read at {at}.</p>\n",
            escaped(&evidence.migration),
            evidence.phase
        ),
    );
    page.push_str(&picture(evidence));
    page.push_str("<table>\n<tr><th>figure<th>answer<th>value\n");
    for figure in &evidence.figures {
        let (answer, value, from) = (figure.answer.as_str(), escaped(&figure.value), escaped(&figure.from));
        push(
            &mut page,
            format_args!(
                "<tr><td>{}<td class=\"{}\">{answer}<td>{value}<br><small>{from}</small>\n",
                figure.name,
                answer.replace(' ', "-")
            ),
        );
    }
    page.push_str("</table>\n");
    page.push_str(&history(evidence));

    page
}

/// A row for the phases and one for each owner, by time. It ends shortly after the last change.
fn picture(evidence: &Evidence) -> String {
    let spans = spans(evidence);
    let begin = spans.iter().map(|span| span.from).min();
    let end = spans.iter().map(|span| span.until).max();
    let (Some(begin), Some(end)) = (begin, end) else {
        return String::new();
    };
    let whole = end.duration_since(begin).as_secs_f64().max(1.0);
    let place = |at: Timestamp| NAMES + at.duration_since(begin).as_secs_f64() / whole * (WIDTH - NAMES);
    let rows = [
        "phase",
        "kube-controller-manager",
        "Outrigger's manager",
        "no proven owner",
    ];

    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Owners of the controllers by time\">\n",
        ROW * rows.len() as f64
    );
    for (row, name) in rows.iter().enumerate() {
        let y = ROW * row as f64 + 18.0;
        push(
            &mut svg,
            format_args!("<text x=\"0\" y=\"{y}\">{}</text>\n", escaped(name)),
        );
    }
    for (number, span) in spans.iter().enumerate() {
        let (x, width) = (place(span.from), (place(span.until) - place(span.from)).max(1.0));
        let shade = if number % 2 == 0 { "#8883" } else { "#8885" };
        let (row, colour) = match span.owner {
            Some(Party::KubeControllerManager) => (1.0, "#4477aa"),
            Some(Party::CloudControllerManager) => (2.0, "#228833"),
            None => (3.0, "#cc2222"),
        };
        for (row, colour, title) in [(0.0, shade, &span.phase), (row, colour, &span.title)] {
            push(
                &mut svg,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{}</title></rect>\n",
                    ROW * row + 4.0,
                    ROW - 8.0,
                    escaped(title)
                ),
            );
        }
    }
    svg.push_str("</svg>\n");

    svg
}

/// The time from one entry of the history to the next one.
struct Span {
    from: Timestamp,
    until: Timestamp,
    owner: Option<Party>,
    phase: String,
    title: String,
}

fn spans(evidence: &Evidence) -> Vec<Span> {
    let entries = &evidence.history;
    let last = entries.last().map_or(evidence.at, |last| last.time.0);
    let end = evidence.at.min(last + AFTERWARDS);
    let ends = entries.iter().skip(1).map(|next| next.time.0).chain([end]);
    let spans = entries.iter().zip(ends);
    spans.map(|(entry, until)| span(entry, until)).collect()
}

fn span(entry: &HistoryEntry, until: Timestamp) -> Span {
    let from = entry.time.0;
    // The clocks of two managers may differ.
    let until = until.max(from);
    let seconds = until.duration_since(from).as_secs_f64();
    let owner = entry
        .owner
        .map_or_else(|| "no proven owner".to_owned(), |owner| owner.to_string());
    Span {
        from,
        until,
        owner: entry.owner,
        phase: entry.phase.to_string(),
        title: format!("{owner}, {seconds:.1} s, in {}", entry.phase),
    }
}

fn history(evidence: &Evidence) -> String {
    let mut table =
        "<h2>History</h2>\n<table>\n<tr><th>time<th>phase<th>owner<th>holder of the migration lease<th>alarm\n"
            .to_owned();
    for entry in &evidence.history {
        let owner = entry.owner.map_or_else(|| "–".to_owned(), |owner| owner.to_string());
        let holder = entry.holder.as_deref().unwrap_or("–");
        let alarm = if entry.alarm { "yes" } else { "" };
        push(
            &mut table,
            format_args!(
                "<tr><td>{}<td>{}<td>{owner}<td>{}<td>{alarm}\n",
                entry.time.0.strftime("%Y-%m-%d %H:%M:%S%.3f UTC"),
                entry.phase,
                escaped(holder)
            ),
        );
    }
    table.push_str("</table>\n");
    table
}

/// Writing into a string cannot fail.
fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(text);
}

/// Names are of the cluster: everybody who may write an object chooses some of them.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}
