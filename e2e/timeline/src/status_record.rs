//! Statements of the migration object's status that the other records contradict.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;

use super::claim::Claim;
use super::input::{Inputs, MANAGEMENT_ANSWERS, MANAGEMENT_SILENT, ObservedBy, Statement};
use super::overlap::since;
use super::rules::{Rules, Side};
use super::spans::Spans;
use super::tenure::Tenure;
use super::truth::{CORRECTION, Records, WRITING};

/// The holder of C renews `status.observedBy` at least this often.
const OBSERVED: SignedDuration = SignedDuration::from_mins(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    pub at: Timestamp,
    /// The statement, and the contradicting record.
    pub text: String,
}

pub(super) fn contradictions(tenures: &[Tenure], inputs: &Inputs, rules: &Rules) -> Vec<Contradiction> {
    let records = Records { tenures, inputs, rules };
    let writers = writers(&records);
    let judge = Judge { records, writers };

    let mut found = judge.owners();
    found.extend(judge.conditions());
    found.extend(judge.observers());
    found.sort_by_key(|contradiction| contradiction.at);
    found
}

/// When each of our managers can write the status: while it leads, or while none has led for as long as another one waits
/// for a renewal of `status.observedBy`. One that is stopped by a signal writes nothing, and none does while the API server
/// of the object answers no request.
fn writers(records: &Records<'_>) -> Vec<Spans> {
    let inputs = records.inputs;
    let answers = silences(inputs).not();
    let active = |names: &BTreeSet<String>, spans: Spans| {
        let pauses = inputs.pauses_of(names);
        let stopped = pauses.map(|pause| (pause.from, pause.until.unwrap_or(inputs.until)));
        spans.and(&Spans::of(stopped).not()).and(&answers)
    };
    let leads = |tenure: &&Tenure| tenure.lease == Lease::C && tenure.actor.side == Side::New;
    let leaders = records.tenures.iter().filter(leads);
    let leaders = leaders.map(|tenure| active(&tenure.actor.names, Spans::of([(tenure.from, tenure.until)])));

    let not_led = records.truth(Claim::NotLed);
    let ours = |process: &&ProcessSpan| records.rules.side_of(&process.component) == Side::New;
    let standbys = inputs.processes.iter().filter(ours).map(|process| {
        let runs = Spans::of([(process.started, process.ended.unwrap_or(inputs.until))]);
        let waits = active(&[process.process.clone()].into(), runs.and(&not_led));
        Spans::of(waits.iter().map(|(from, until)| (from + OBSERVED, until)))
    });
    leaders.chain(standbys).collect()
}

/// From each mark of silence to the next mark of an answer.
fn silences(inputs: &Inputs) -> Spans {
    let marks = |name| inputs.markers.iter().filter(move |marker| marker.name == name);
    let spans = marks(MANAGEMENT_SILENT).map(|silent| {
        let answers = marks(MANAGEMENT_ANSWERS).find(|answers| answers.at > silent.at);
        (silent.at, answers.map_or(inputs.until, |answers| answers.at))
    });
    Spans::of(spans)
}

/// A part of the status, from when it was written until it was replaced.
struct Said<T> {
    part: T,
    from: Timestamp,
    until: Timestamp,
}

/// Why a part of the status was false.
enum Fault {
    WhenWritten,
    /// From when on, and for how long, while one writer could have corrected it.
    Stale(Timestamp, Duration),
}

struct Judge<'a> {
    records: Records<'a>,
    writers: Vec<Spans>,
}

impl Judge<'_> {
    /// Each time in which this part of the status stayed the same. An absent one says nothing.
    fn said<'s, T: PartialEq>(&'s self, part: impl Fn(&'s Statement) -> Option<T>) -> Vec<Said<T>> {
        let (statements, end) = (&self.records.inputs.statements, self.records.inputs.until);
        let mut parts: Vec<_> = statements
            .iter()
            .filter(|statement| statement.at <= end)
            .map(|statement| (part(statement), statement.at))
            .collect();
        parts.dedup_by(|next, last| next.0 == last.0);

        let ends: Vec<_> = parts.iter().skip(1).map(|next| next.1).chain([end]).collect();
        let all = parts.into_iter().zip(ends);
        all.filter_map(|((part, from), until)| part.map(|part| Said { part, from, until }))
            .collect()
    }

    /// `truth`: when it may be written. `truth_since`: when it may stay.
    fn fault<T>(&self, said: &Said<T>, truth: &Spans, truth_since: &Spans) -> Option<Fault> {
        if !truth.are_near(said.from, WRITING) {
            return Some(Fault::WhenWritten);
        }

        let wrong = Spans::of([(said.from, said.until)]).and(&truth_since.not());
        let is_lasting = |from, until| {
            let writers = self.writers.iter();
            let mut parts = writers.flat_map(|writer| writer.and(&Spans::of([(from, until)])).to_vec());
            parts.any(|(from, until)| since(from, until) > CORRECTION)
        };
        let mut lasting = wrong.iter().filter(|(from, until)| is_lasting(*from, *until));
        lasting
            .next()
            .map(|(from, until)| Fault::Stale(from, since(from, until)))
    }

    fn owners(&self) -> Vec<Contradiction> {
        let named = self.said(|statement| Some((statement.owner?, statement.holder.clone())));
        let all = named.iter().filter_map(|said| {
            let (side, holder) = &said.part;
            let owns = |tenure: &Tenure| {
                let is_holder = holder.as_ref().is_none_or(|holder| tenure.holder == *holder);
                is_holder && tenure.actor.side == *side && self.records.guards(tenure)
            };
            let name = holder.as_deref().unwrap_or("unknown holder");
            let (written, kept) = (
                self.records.held(owns, Tenure::lease_ended),
                self.records.held(owns, |tenure| tenure.until),
            );
            let text = match self.fault(said, &written, &kept)? {
                Fault::WhenWritten => {
                    format!("the status named {name} ({side:?}) as the owner, which held no lease of it then")
                }
                Fault::Stale(_, time) => format!(
                    "the status still named {name} ({side:?}) as the owner {} s after its lease ended",
                    time.as_secs()
                ),
            };
            Some(Contradiction { at: said.from, text })
        });
        all.collect()
    }

    fn conditions(&self) -> Vec<Contradiction> {
        let statements = self.records.inputs.statements.iter();
        let kinds: BTreeSet<&str> = statements
            .flat_map(|statement| statement.conditions.iter().map(|condition| condition.kind.as_str()))
            .collect();
        let of_kind = |kind| {
            let said = self.said(move |statement| statement.status_and_reason(kind));
            said.into_iter().filter_map(move |said| self.condition(kind, &said))
        };
        kinds.into_iter().flat_map(of_kind).collect()
    }

    fn condition(&self, kind: &str, said: &Said<(&str, &str)>) -> Option<Contradiction> {
        let (status, reason) = said.part;
        let name = format!("the condition {kind}={status} ({reason})");
        let contradicted = |text| Some(Contradiction { at: said.from, text });
        let Some(claim) = Claim::of(kind, status, reason) else {
            return contradicted(format!("{name} has no claim: add it to the list of the timeline"));
        };

        let (truth, truth_since) = (self.records.truth(claim), self.records.truth_since(claim, said.from));
        match self.fault(said, &truth, &truth_since)? {
            Fault::WhenWritten => contradicted(format!("{name} claimed: {claim}; {}", self.records.record(said.from))),
            Fault::Stale(from, time) => {
                let (after, time) = (since(said.from, from).as_secs_f64(), time.as_secs_f64());
                let record = self.records.record(from);
                contradicted(format!(
                    "{name} claimed: {claim}; {after:.1} s later, and for {time:.1} s, {record}"
                ))
            }
        }
    }

    /// `status.observedBy` names the leader of our managers, and is renewed.
    fn observers(&self) -> Vec<Contradiction> {
        let named = self.said(|statement| statement.observed_by.as_ref());
        let all = named.iter().filter_map(|said| {
            let ObservedBy { identity, time } = said.part;
            let leads = |tenure: &Tenure| tenure.lease == Lease::C && tenure.holder == *identity;
            let led = self.records.held(leads, |tenure| tenure.until);
            let renewed = led.and(&Spans::of([(*time, *time + OBSERVED)]));
            let text = match self.fault(said, &led, &renewed)? {
                Fault::WhenWritten => self.records.record(said.from),
                Fault::Stale(_, time) => format!("that was not renewed for {} s more", time.as_secs()),
            };
            let text = format!("status.observedBy named {identity} at {time}; {text}");
            Some(Contradiction { at: said.from, text })
        });
        all.collect()
    }
}

impl Statement {
    /// A condition as `Reason: message`; none where the status does not have it.
    pub fn condition(&self, kind: &str) -> Option<String> {
        let found = self.conditions.iter().find(|condition| condition.kind == kind)?;
        Some(format!("{}: {}", found.reason, found.message))
    }

    fn status_and_reason(&self, kind: &str) -> Option<(&str, &str)> {
        let found = self.conditions.iter().find(|condition| condition.kind == kind)?;
        Some((&found.status, &found.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Condition, Marker, Pause};
    use crate::rules::Component;
    use crate::samples::{at, process, tenure};

    /// Whether a status that names the holder of M is contradicted. It is written at one second and replaced at the other.
    fn is_contradicted(written: i64, replaced: i64, tenures: &[Tenure]) -> bool {
        let said = Statement {
            at: at(written),
            owner: Some(Side::New),
            holder: Some("ours_a".into()),
            ..Statement::default()
        };
        is_contradicted_until(said, replaced, tenures)
    }

    /// Whether the status is contradicted. It is replaced at this second.
    fn is_contradicted_until(said: Statement, replaced: i64, tenures: &[Tenure]) -> bool {
        let next = Statement {
            at: at(replaced),
            ..Statement::default()
        };
        let inputs = Inputs {
            statements: vec![said, next],
            until: at(1000),
            ..Inputs::default()
        };
        let rules = Rules::new(Component::outrigger_manager());
        !contradictions(tenures, &inputs, &rules).is_empty()
    }

    #[test]
    fn a_status_may_name_a_holder_two_seconds_before_its_acquisition_and_after_its_end() {
        let held = [tenure(Lease::M, "ours", Side::New, (10, 30))];
        for (second, expected) in [(7, true), (8, false), (10, false), (30, false), (32, false), (33, true)] {
            assert_eq!(is_contradicted(second, second + 1, &held), expected, "{second}");
        }
    }

    #[test]
    fn a_status_may_be_wrong_for_twenty_seconds_after_the_end_of_the_lease() {
        let held = tenure(Lease::M, "ours", Side::New, (10, 30));
        let writer = tenure(Lease::C, "next", Side::New, (0, 100));
        let tenures = [held, writer];
        for (replaced, expected) in [(40, false), (50, false), (51, true)] {
            assert_eq!(is_contradicted(20, replaced, &tenures), expected, "{replaced}");
        }
    }

    #[test]
    fn a_wrong_status_is_contradicted_only_when_its_writer_led_for_more_than_twenty_seconds() {
        for (acquired, until, expected) in [(39, 60, true), (40, 60, false), (39, 59, false), (61, 90, false)] {
            let held = tenure(Lease::M, "ours", Side::New, (10, 30));
            let writer = tenure(Lease::C, "next", Side::New, (acquired, until));
            assert_eq!(
                is_contradicted(20, 60, &[held, writer]),
                expected,
                "{acquired} to {until}"
            );
        }
    }

    /// Whether a condition that is true from 10 s to 30 s is contradicted, where it is replaced at this second.
    fn is_stale(replaced: i64, tenures: &[Tenure], change: impl Fn(&mut Inputs)) -> bool {
        let condition = |status: &str| Condition {
            kind: "ControlPlaneMigrated".into(),
            status: status.into(),
            reason: if status == "True" { "Migrated" } else { "NotReadYet" }.into(),
            message: String::new(),
        };
        let said = [(20, "True"), (replaced, "Unknown")].map(|(second, status)| Statement {
            at: at(second),
            conditions: vec![condition(status)],
            ..Statement::default()
        });
        let mut inputs = Inputs {
            processes: vec![process("next", "outrigger-manager", &["--migration=prod"], 0, None)],
            statements: said.into(),
            until: at(1000),
            ..Inputs::default()
        };
        change(&mut inputs);
        let rules = Rules::new(Component::outrigger_manager());
        !contradictions(tenures, &inputs, &rules).is_empty()
    }

    #[test]
    fn a_writer_that_is_stopped_by_a_signal_corrects_nothing() {
        let held = tenure(Lease::M, "ours", Side::New, (10, 30));
        let tenures = [held, tenure(Lease::C, "next", Side::New, (0, 1000))];
        let stopped = |until: Option<i64>| {
            move |inputs: &mut Inputs| {
                inputs.pauses = vec![Pause {
                    process: "next".into(),
                    from: at(40),
                    until: until.map(at),
                }];
            }
        };
        assert!(is_stale(90, &tenures, |_| {}));
        for (replaced, expected) in [(90, false), (91, true)] {
            assert_eq!(is_stale(replaced, &tenures, stopped(Some(70))), expected, "{replaced}");
        }
        assert!(!is_stale(900, &tenures, stopped(None)));
    }

    #[test]
    fn while_the_api_server_answers_no_request_nobody_corrects_a_status() {
        let held = tenure(Lease::M, "ours", Side::New, (10, 30));
        let tenures = [held, tenure(Lease::C, "next", Side::New, (0, 1000))];
        let marked = |answers: Option<i64>| {
            move |inputs: &mut Inputs| {
                let mark = |name: &str, second| Marker {
                    at: at(second),
                    name: name.to_owned(),
                };
                inputs.markers = vec![mark(MANAGEMENT_ANSWERS, 30), mark(MANAGEMENT_SILENT, 40)];
                inputs.markers.extend(answers.map(|at| mark(MANAGEMENT_ANSWERS, at)));
            }
        };
        for (replaced, expected) in [(90, false), (91, true)] {
            assert_eq!(is_stale(replaced, &tenures, marked(Some(70))), expected, "{replaced}");
        }
        assert!(!is_stale(900, &tenures, marked(None)));
    }

    #[test]
    fn a_manager_that_does_not_lead_corrects_a_status_that_was_not_renewed_for_a_minute() {
        let held = tenure(Lease::M, "ours", Side::New, (10, 30));
        let led = tenure(Lease::C, "ours", Side::New, (0, 40));
        let other = tenure(Lease::C, "incumbent", Side::Old, (50, 1000));
        let tenures = [held, led, other];
        for (replaced, expected) in [(120, false), (121, true)] {
            assert_eq!(is_stale(replaced, &tenures, |_| {}), expected, "{replaced}");
        }
        for (replaced, expected) in [(180, false), (181, true)] {
            let later = |inputs: &mut Inputs| inputs.processes[0].started = at(100);
            assert_eq!(is_stale(replaced, &tenures, later), expected, "{replaced}");
        }
        assert!(!is_stale(900, &tenures, |inputs| inputs.processes.clear()), "none runs");
        assert!(!is_stale(900, &tenures, |inputs| inputs.processes[0].ended = Some(at(120))));
        assert!(!is_stale(900, &tenures, |inputs| inputs.processes[0].component = "other".into()));
    }

    #[test]
    fn an_observer_leads_when_it_writes_and_renews_the_time_each_minute() {
        let led = tenure(Lease::C, "next", Side::New, (100, 300));
        let next = tenure(Lease::C, "other", Side::New, (300, 1000));
        let tenures = [led, next];
        let is_false = |identity: &str, written: i64, replaced: i64| {
            let said = Statement {
                at: at(written),
                observed_by: Some(ObservedBy {
                    identity: identity.into(),
                    time: at(written),
                }),
                ..Statement::default()
            };
            is_contradicted_until(said, replaced, &tenures)
        };
        for (second, expected) in [(97, true), (98, false), (302, false), (303, true)] {
            assert_eq!(is_false("next_a", second, second + 1), expected, "{second}");
        }
        assert!(is_false("nobody_0", 200, 201));
        for (replaced, expected) in [(230, false), (231, true)] {
            assert_eq!(
                is_false("next_a", 150, replaced),
                expected,
                "not renewed until {replaced}"
            );
        }
        for (replaced, expected) in [(320, false), (321, true)] {
            assert_eq!(
                is_false("next_a", 290, replaced),
                expected,
                "another one leads at {replaced}"
            );
        }
    }
}
