//! The timeline as a picture: who owned each controller and held each lease, over time. Plain SVG, which reads without
//! scripts, in the colours of the reader's light or dark theme.

use std::fmt::Write as _;

use jiff::Timestamp;
use outrigger_cluster_harness::leases::Lease;

use super::ownerless::Owned;
use super::report::Report;
use super::rules::{Controller, Side};

/// All sizes are in pixels of the picture.
const WIDTH: f64 = 960.0;
/// Where time begins; left of it are the names of the lanes.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 940.0;
/// Of the first lane.
const TOP: f64 = 46.0;
const LANE: f64 = 26.0;
const BAR: f64 = 18.0;
/// Between the lanes of controllers and those of leases.
const BREAK: f64 = 14.0;
/// The width of a character, at most, as a part of the size of the font.
const CHARACTER: f64 = 0.62;
/// The number of marks of the time axis, at most.
const MARKS: f64 = 8.0;

/// The colours: light, then dark.
const STYLE: &str = "\
.paper{fill:#fff}.text{fill:#1a202c}.quiet{fill:#5a6675}.line{stroke:#718096}.band0{fill:#edf2f7}.band1{fill:#f7fafc}\
.old{fill:#b7791f}.new{fill:#2b6cb0}.unknown{fill:#718096}.none{fill:#c53030}.lease{fill-opacity:.55}\
@media(prefers-color-scheme:dark){.paper{fill:#0d1117}.text{fill:#e6edf3}.quiet{fill:#9aa5b1}.line{stroke:#9aa5b1}\
.band0{fill:#161b22}.band1{fill:#1c2129}.old{fill:#d69e2e}.new{fill:#4299e1}.unknown{fill:#9aa5b1}.none{fill:#fc8181}}";

/// The drawing. Times are seconds since its beginning.
#[derive(Debug, Clone, PartialEq, Default)]
struct Picture {
    length: f64,
    /// Names of the phases, from when on.
    phases: Vec<(f64, String)>,
    lanes: Vec<Lane>,
    /// Times without an owner of the Service controller.
    ownerless: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Lane {
    name: &'static str,
    is_lease: bool,
    bars: Vec<Bar>,
}

#[derive(Debug, Clone, PartialEq)]
struct Bar {
    from: f64,
    until: f64,
    side: Side,
    title: String,
}

impl Report {
    /// The timeline as an SVG document.
    pub fn svg(&self) -> String {
        self.picture().svg()
    }

    /// The timeline as one HTML page, with the figures.
    pub fn page(&self, title: &str) -> String {
        let verdict = self.verdict();
        let (word, reasons) = if verdict.passed() {
            ("proven", String::new())
        } else {
            let reasons = verdict
                .reasons
                .iter()
                .map(|reason| format!("<li>{}</li>\n", escaped(reason)));
            ("refuted", format!("<ul>\n{}</ul>\n", reasons.collect::<String>()))
        };
        let figures = self.figures();
        let gap = figures.gap_ms.map_or_else(|| "not taken over".to_owned(), seconds_of);
        let roll = self.longest_roll();
        let roll = roll.map_or_else(
            || "none".to_owned(),
            |roll| seconds_of(super::overlap::milliseconds(roll)),
        );
        let rows = [
            ("two owners at the same time", seconds_of(figures.overlap_ms)),
            ("no owner, in the roll in Prepare", roll),
            ("no owner, at the switch", gap),
            (
                "AWS writes caused by the switch",
                figures.aws_writes_by_switch.to_string(),
            ),
            ("load balancers recreated", figures.load_balancers_recreated.to_string()),
            ("targets lost", figures.targets_lost.to_string()),
        ];
        let rows: String = rows
            .iter()
            .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>\n", escaped(value)))
            .collect();
        let title = escaped(title);

        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}: {word}</title>\n\
             <style>{PAGE_STYLE}</style>\n</head>\n<body>\n<h1>{title}: {word}</h1>\n{reasons}<figure>\n{}</figure>\n\
             <table>\n{rows}</table>\n<details>\n<summary>All holders</summary>\n<pre>{}</pre>\n</details>\n</body>\n</html>\n",
            self.svg(),
            escaped(&self.table()),
        )
    }

    /// Whether a process made a call or a write of the controller.
    fn acts(&self, controller: Controller) -> bool {
        let intervals = self.controller(controller).map(|timeline| &timeline.intervals);
        let mut intervals = intervals.into_iter().flatten();
        intervals.any(|interval| interval.aws_calls + interval.api_writes > 0)
    }

    fn picture(&self) -> Picture {
        let end = self.until;
        let second = |at: Timestamp| at.min(end).duration_since(self.start).as_secs_f64().max(0.0);
        let mut markers: Vec<_> = self.markers.iter().collect();
        markers.sort_by_key(|marker| marker.at);
        let phases = markers.iter().filter_map(|marker| {
            let phase = marker.name.strip_prefix("phase ")?;
            Some((second(marker.at), phase.to_owned()))
        });

        let bar = |owned: &Owned| Bar {
            from: second(owned.from),
            until: second(owned.until),
            side: owned.side,
            title: owned.label.clone(),
        };
        let controllers = Controller::ALL.iter().zip(&self.owners).map(|(controller, owners)| {
            // Flags can turn routes off, and no lease shows it: they count only where a process acted on them.
            let is_shown = *controller != Controller::Route || self.acts(Controller::Route);
            Lane {
                name: match controller {
                    Controller::Service => "load balancers",
                    Controller::NodeLifecycle => "Node lifecycle",
                    Controller::Route if is_shown => "routes",
                    Controller::Route => "routes (none here)",
                },
                is_lease: false,
                bars: owners.iter().filter(|_| is_shown).map(bar).collect(),
            }
        });
        let leases = [
            (Lease::K, "old manager's lease"),
            (Lease::M, "migration lease"),
            (Lease::C, "new manager's lease"),
        ];
        let leases = leases.into_iter().map(|(lease, name)| {
            let held = self.tenures.iter().filter(|tenure| tenure.lease == lease);
            Lane {
                name,
                is_lease: true,
                bars: held
                    .map(|tenure| Bar {
                        from: second(tenure.from),
                        until: second(tenure.until),
                        side: tenure.actor.side,
                        title: tenure.actor.label(),
                    })
                    .collect(),
            }
        });

        Picture {
            length: second(end),
            phases: phases.collect(),
            lanes: controllers.chain(leases).collect(),
            ownerless: self
                .ownerless
                .iter()
                .map(|time| (second(time.from), second(time.until)))
                .collect(),
        }
    }
}

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;max-width:62rem;margin:1rem auto;padding:0 1rem}\
figure{margin:1rem 0}svg{width:100%;height:auto}th{text-align:left;font-weight:normal;padding-right:2rem}\
td{text-align:right}pre{overflow-x:auto}@media print{details{display:none}}";

fn seconds_of(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

impl Picture {
    fn x(&self, second: f64) -> f64 {
        let part = if self.length > 0.0 { second / self.length } else { 0.0 };
        LEFT + (RIGHT - LEFT) * part.clamp(0.0, 1.0)
    }

    /// The upper edge of a lane.
    fn y(&self, lane: usize) -> f64 {
        let lanes = self.lanes.iter().take(lane).fold(0.0, |sum, _| sum + LANE);
        let is_lease = self.lanes.get(lane).is_some_and(|lane| lane.is_lease);
        TOP + lanes + if is_lease { BREAK } else { 0.0 }
    }

    fn bottom(&self) -> f64 {
        self.y(self.lanes.len().saturating_sub(1)) + LANE
    }

    fn svg(&self) -> String {
        let height = self.bottom() + 60.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-label=\"Owners of the controllers over time\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
        );
        self.draw_phases(&mut svg);
        self.draw_lanes(&mut svg);
        self.draw_ownerless(&mut svg);
        self.draw_axis(&mut svg);
        draw_legend(&mut svg, self.bottom() + 50.0);
        svg.push_str("</svg>\n");

        svg
    }

    fn draw_phases(&self, svg: &mut String) {
        let ends = self.phases.iter().skip(1).map(|(from, _)| *from);
        let ends = ends.chain([self.length]);
        for (at, ((from, name), until)) in self.phases.iter().zip(ends).enumerate() {
            let (x, width) = (self.x(*from), self.x(until) - self.x(*from));
            let height = self.bottom() - TOP + 22.0;
            rect(svg, &format!("band{}", at % 2), (x, TOP - 22.0, width, height), name);
            if fits(name, 12.0, width) {
                text(svg, "quiet", (x + 4.0, TOP - 8.0), "start", name);
            }
        }
    }

    fn draw_lanes(&self, svg: &mut String) {
        for (at, lane) in self.lanes.iter().enumerate() {
            let y = self.y(at);
            text(
                svg,
                if lane.is_lease { "quiet" } else { "text" },
                (LEFT - 8.0, y + 13.0),
                "end",
                lane.name,
            );
            for bar in &lane.bars {
                let side = match bar.side {
                    Side::Old => "old",
                    Side::New => "new",
                    Side::Unknown => "unknown",
                };
                let class = if lane.is_lease {
                    format!("{side} lease")
                } else {
                    side.to_owned()
                };
                let width = (self.x(bar.until) - self.x(bar.from)).max(1.0);
                rect(svg, &class, (self.x(bar.from), y, width, BAR), &bar.title);
            }
        }
    }

    /// A line in each lane of a controller, and its length above the first one.
    fn draw_ownerless(&self, svg: &mut String) {
        let controllers = self
            .lanes
            .iter()
            .filter(|lane| !lane.is_lease && !lane.bars.is_empty())
            .count();
        for (from, until) in &self.ownerless {
            let (x, width) = (self.x(*from), (self.x(*until) - self.x(*from)).max(1.0));
            let length = format!("{:.1} s", until - from);
            let title = format!("no owner for {length}");
            for lane in 0..controllers {
                rect(svg, "none", (x, self.y(lane) + 7.0, width, 4.0), &title);
            }
            if fits(&length, 12.0, width) {
                text(svg, "none", (x + width / 2.0, self.y(0) + 5.0), "middle", &length);
            }
        }
    }

    fn draw_axis(&self, svg: &mut String) {
        let y = self.bottom() + 4.0;
        let _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>"
        );
        let step = step(self.length);
        let mut second = 0.0;
        while second <= self.length {
            let x = self.x(second);
            let _ = writeln!(
                svg,
                "<line class=\"line\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
                y + 4.0
            );
            text(svg, "quiet", (x, y + 17.0), "middle", &format!("{second:.0} s"));
            second += step;
        }
    }
}

/// Between two marks of the axis, in seconds.
fn step(length: f64) -> f64 {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
    let most = steps.iter().copied().find(|step| length / step <= MARKS);
    most.unwrap_or((length / MARKS).max(1.0))
}

fn draw_legend(svg: &mut String, y: f64) {
    let entries = [
        ("old", "kube-controller-manager"),
        ("new", "Outrigger"),
        ("none", "no owner"),
    ];
    let mut x = LEFT;
    for (class, name) in entries {
        rect(svg, class, (x, y - 9.0, 12.0, 10.0), name);
        text(svg, "quiet", (x + 17.0, y), "start", name);
        x += 17.0 + width_of(name, 12.0) + 24.0;
    }
}

/// The most that a text can be wide.
fn width_of(text: &str, size: f64) -> f64 {
    text.chars().fold(0.0, |width, _| width + size * CHARACTER)
}

fn fits(text: &str, size: f64, width: f64) -> bool {
    width_of(text, size) + 6.0 <= width
}

// Writing to a String cannot fail.

fn rect(svg: &mut String, class: &str, (x, y, width, height): (f64, f64, f64, f64), title: &str) {
    let title = escaped(title);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"><title>{title}</title></rect>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let bar = |from, until, side| Bar {
            from,
            until,
            side,
            title: "a & b".to_owned(),
        };
        Picture {
            length: 100.0,
            phases: vec![
                (10.0, "InTree".to_owned()),
                (40.0, "Prepare".to_owned()),
                (99.0, "Complete".to_owned()),
            ],
            lanes: vec![
                Lane {
                    name: "load balancers",
                    is_lease: false,
                    bars: vec![bar(0.0, 50.0, Side::Old), bar(60.0, 100.0, Side::New)],
                },
                Lane {
                    name: "routes",
                    is_lease: false,
                    bars: Vec::new(),
                },
                Lane {
                    name: "migration lease",
                    is_lease: true,
                    bars: vec![bar(60.0, 100.0, Side::New)],
                },
            ],
            ownerless: vec![(50.0, 60.0), (97.0, 97.5)],
        }
    }

    /// The texts, with what their middle, beginning or end is at, and that place.
    fn texts(svg: &str) -> Vec<(String, String, f64, f64)> {
        let attribute = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let lines = svg.lines().filter(|line| line.starts_with("<text"));
        lines
            .map(|line| {
                let text = line.split_once('>').unwrap().1.trim_end_matches("</text>").to_owned();
                let number = |name: &str| attribute(line, name).parse::<f64>().unwrap();
                (text, attribute(line, "text-anchor"), number("x"), number("y"))
            })
            .collect()
    }

    #[test]
    fn bars_and_times_are_where_their_seconds_are() {
        let svg = picture().svg();
        assert!(
            svg.contains("class=\"old\" x=\"190.0\" y=\"46.0\" width=\"375.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("class=\"none\" x=\"565.0\" y=\"53.0\" width=\"75.0\""),
            "{svg}"
        );
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("<title>no owner for 0.5 s</title>"));
        // The lane of a controller that nobody runs has no red line.
        assert_eq!(svg.matches("class=\"none\" x=\"565.0\"").count(), 1, "{svg}");
    }

    #[test]
    fn no_text_is_cut_or_lies_on_another_one() {
        let svg = picture().svg();
        let mut places: Vec<(f64, f64, f64, String)> = Vec::new();
        for (text, anchor, x, y) in texts(&svg) {
            let width = width_of(&text, 12.0);
            let from = match anchor.as_str() {
                "start" => x,
                "middle" => x - width / 2.0,
                _ => x - width,
            };
            assert!(from >= 0.0 && from + width <= WIDTH, "{text} is cut");
            let other = places
                .iter()
                .find(|(left, right, line, _)| (line - y).abs() < 12.0 && from < *right && from + width > *left);
            assert!(other.is_none(), "{text} lies on {other:?}");
            places.push((from, from + width, y, text));
        }
        let names: Vec<&str> = places.iter().map(|(.., text)| text.as_str()).collect();
        assert!(names.contains(&"Prepare") && names.contains(&"10.0 s"), "{names:?}");
        assert!(
            !names.contains(&"Complete") && !names.contains(&"0.5 s"),
            "too narrow: {names:?}"
        );
    }

    #[test]
    fn an_axis_has_few_marks_whatever_its_length() {
        for length in [0.5, 7.0, 90.0, 3_000.0, 100_000.0] {
            assert!(length / step(length) <= MARKS, "{length}");
        }
        assert!(Picture::default().svg().ends_with("</svg>\n"));
    }
}
