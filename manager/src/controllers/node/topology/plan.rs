//! Which instances to ask EC2's network topology for, and what its answers mean. Pure: the time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outrigger_aws::ec2::MAX_TOPOLOGY_IDS;
use outrigger_aws::{Error, InstanceId, Kind};
use outrigger_shared::backoff::doubled;
use regex::Regex;
use tokio::time::Instant;

use crate::instances::named;
use crate::node_cache::NodeView;

/// How long it is remembered that there is no answer, as by the incumbent.
const NONE_FOR: Duration = Duration::from_secs(24 * 3600);
/// The backoff of an instance that could not be described, or whose Node could not be written.
const LATER: Duration = Duration::from_secs(600);
/// The account may call once a second; the rest is for others.
const BETWEEN: Duration = Duration::from_millis(1100);
/// Longest pause after failures.
const LONGEST: Duration = Duration::from_secs(60);

/// The label of one layer; 1 is the outermost.
pub fn label(layer: usize) -> String {
    format!("topology.k8s.aws/network-node-layer-{layer}")
}

#[derive(Debug, Clone)]
pub struct Candidate {
    pub node: Arc<NodeView>,
    pub id: InstanceId,
    pub kind: String,
}

/// The results for an instance type that the pattern does not name.
#[derive(Debug, Clone, Copy)]
enum Known {
    HasLayers,
    NoneUntil(Instant),
}

#[derive(Debug)]
pub struct State {
    pattern: Pattern,
    region_off_until: Option<Instant>,
    types: HashMap<String, Known>,
    instances: HashMap<InstanceId, Instant>,
    not_before: Instant,
    failures: u32,
    batch: usize,
    said: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Nothing,
    /// The region or the credentials have no topology: no labels for a day.
    RegionOff(String),
    /// Calls fail, for this reason, which is another than before.
    Failing(String),
}

impl State {
    pub fn new(pattern: Pattern, now: Instant) -> Self {
        Self {
            pattern,
            region_off_until: None,
            types: HashMap::new(),
            instances: HashMap::new(),
            not_before: now,
            failures: 0,
            batch: MAX_TOPOLOGY_IDS,
            said: None,
        }
    }

    pub fn next_call(&self) -> Instant {
        self.region_off_until
            .map_or(self.not_before, |until| until.max(self.not_before))
    }

    pub fn sweep(&mut self, now: Instant) {
        self.region_off_until = self.region_off_until.filter(|until| *until > now);
        self.instances.retain(|_, until| *until > now);
        self.types
            .retain(|_, known| !matches!(known, Known::NoneUntil(until) if *until <= now));
    }

    pub fn may_ask(&self, candidate: &Candidate, now: Instant) -> bool {
        let off = self.instances.get(&candidate.id).is_some_and(|until| *until > now)
            || matches!(self.types.get(&candidate.kind), Some(Known::NoneUntil(until)) if *until > now);
        !off
    }

    /// The instances of the next call: all instances of types with layers, and one instance of each unknown type as a
    /// sample. Instances of expected types come first.
    pub fn choose(&self, candidates: &[Candidate], now: Instant) -> Vec<Candidate> {
        let mut sure = Vec::new();
        let mut samples: BTreeMap<&str, &Candidate> = BTreeMap::new();
        for candidate in candidates.iter().filter(|candidate| self.may_ask(candidate, now)) {
            if self.expected(&candidate.kind) {
                sure.push(candidate);
            } else {
                samples.entry(&candidate.kind).or_insert(candidate);
            }
        }

        sure.into_iter()
            .chain(samples.into_values())
            .take(self.batch)
            .cloned()
            .collect()
    }

    fn expected(&self, kind: &str) -> bool {
        self.pattern.matches(kind) || matches!(self.types.get(kind), Some(Known::HasLayers))
    }

    /// Takes in an answer, and gives the labels that each Node lacks.
    pub fn answered(
        &mut self,
        asked: Vec<Candidate>,
        found: Vec<(InstanceId, Vec<String>)>,
        now: Instant,
    ) -> Vec<(Candidate, Vec<(String, String)>)> {
        self.not_before = now + BETWEEN;
        self.failures = 0;
        self.batch = MAX_TOPOLOGY_IDS;
        self.said = None;

        let found: HashMap<InstanceId, Vec<String>> = found.into_iter().collect();
        let mut wanted = Vec::new();
        for candidate in asked {
            let layers = found.get(&candidate.id).filter(|layers| !layers.is_empty());
            match layers {
                Some(layers) => {
                    self.types.insert(candidate.kind.clone(), Known::HasLayers);
                    let labels = missing(&candidate.node, layers);
                    wanted.push((candidate, labels));
                }
                None if self.expected(&candidate.kind) => {
                    self.instances.insert(candidate.id, now + NONE_FOR);
                }
                None => {
                    self.types.insert(candidate.kind, Known::NoneUntil(now + NONE_FOR));
                }
            }
        }

        wanted
    }

    pub fn failed(&mut self, asked: &[Candidate], error: &Error, now: Instant) -> Report {
        self.not_before = now + BETWEEN;
        if let Some("UnsupportedOperation" | "UnauthorizedOperation") = error.code() {
            self.region_off_until = Some(now + NONE_FOR);
            return Report::RegionOff(error.to_string());
        }
        if matches!(error.kind(), Kind::NotFound | Kind::Malformed) {
            self.set_aside(asked, error.message(), now);
            return Report::Nothing;
        }

        let pause = doubled(Duration::from_secs(1), LONGEST, self.failures);
        self.failures += 1;
        self.not_before = now + pause.max(BETWEEN);

        let why = error.code().map_or_else(|| error.message().to_owned(), str::to_owned);
        if self.said.as_ref() == Some(&why) {
            return Report::Nothing;
        }

        self.said = Some(why);

        Report::Failing(error.to_string())
    }

    /// One invalid ID fails the whole call. The instances that the error names are deferred; if it names none, the next
    /// call has fewer instances.
    fn set_aside(&mut self, asked: &[Candidate], message: &str, now: Instant) {
        let ids: Vec<InstanceId> = asked.iter().map(|one| one.id.clone()).collect();
        let named = named(&ids, message);
        if named.is_empty() && ids.len() > 1 {
            self.batch = ids.len() / 2;
            return;
        }

        let blamed = if named.is_empty() { ids } else { named };
        for id in blamed {
            self.instances.insert(id, now + LATER);
        }
    }

    pub fn not_written(&mut self, candidate: Candidate, now: Instant) {
        self.instances.insert(candidate.id, now + LATER);
    }
}

/// The labels of layers whose keys the Node does not have. Existing labels are never changed.
fn missing(node: &NodeView, layers: &[String]) -> Vec<(String, String)> {
    layers
        .iter()
        .enumerate()
        .map(|(place, value)| (label(place + 1), value.clone()))
        .filter(|(key, _)| node.label(key).is_none())
        .collect()
}

/// The types of instances of which an answer is expected.
#[derive(Debug, Clone, Default)]
pub enum Pattern {
    /// The incumbent's default: `hpc`, `trn` and `p` with a generation, such as `p5en.48xlarge` or
    /// `p6-b200.48xlarge`.
    #[default]
    BuiltIn,
    /// The cloud configuration's `SupportedTopologyInstanceTypePattern`, anchored only where it says so.
    Given(Regex),
}

impl From<Option<Regex>> for Pattern {
    fn from(given: Option<Regex>) -> Self {
        given.map_or(Self::BuiltIn, Self::Given)
    }
}

impl Pattern {
    pub fn matches(&self, kind: &str) -> bool {
        match self {
            Self::Given(regex) => regex.is_match(kind),
            Self::BuiltIn => kind.split_once('.').is_some_and(|(family, size)| {
                let rest = ["hpc", "trn", "p"].iter().find_map(|start| family.strip_prefix(start));
                size.bytes().all(lower_or_digit) && rest.is_some_and(generation)
            }),
        }
    }
}

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// A number, then letters, then at most one further word behind a dash.
fn generation(text: &str) -> bool {
    let after = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let (letters, word) = match after.split_once('-') {
        Some((letters, word)) => (letters, Some(word)),
        None => (after, None),
    };
    after.len() < text.len()
        && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        && word.is_none_or(|word| !word.is_empty() && word.bytes().all(lower_or_digit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn candidate(id: &str, kind: &str) -> Candidate {
        let node = json!({"metadata": {"name": id, "labels": {label(2): "mine"}}});
        Candidate {
            node: Arc::new(serde_json::from_value(node).unwrap()),
            id: InstanceId::new(id),
            kind: kind.into(),
        }
    }

    fn many(count: usize, kind: &str) -> Vec<Candidate> {
        (0..count).map(|n| candidate(&format!("i-{kind}-{n}"), kind)).collect()
    }

    fn layers(id: &str) -> (InstanceId, Vec<String>) {
        (
            InstanceId::new(id),
            ["nn-1", "nn-2", "nn-3"].map(str::to_owned).to_vec(),
        )
    }

    fn error(code: &str, message: &str) -> Error {
        Error::answered("DescribeInstanceTopology", code, message)
    }

    #[test]
    fn expected_types_fill_the_call_first_and_other_types_send_one_each() {
        let state = State::new(Pattern::BuiltIn, Instant::now());
        let mut candidates = many(500, "m5.large");
        candidates.extend(many(60, "p5.48xlarge"));
        candidates.extend(many(3, "c5.large"));
        let chosen = state.choose(&candidates, Instant::now());
        let kinds: Vec<&str> = chosen.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "p5.48xlarge").count(), 60);
        assert_eq!(kinds[60..], ["c5.large", "m5.large"]);
        let too_many = many(250, "p5.48xlarge");
        assert_eq!(state.choose(&too_many, Instant::now()).len(), MAX_TOPOLOGY_IDS);
    }

    #[test]
    fn no_answer_silences_an_instance_of_an_expected_type_and_the_whole_of_another_type_for_a_day() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let (first, other) = (candidate("i-1", "p5.48xlarge"), candidate("i-2", "p5.48xlarge"));
        let (plain, alike) = (candidate("i-3", "m5.large"), candidate("i-4", "m5.large"));
        assert!(
            state
                .answered(vec![first.clone(), plain.clone()], vec![], now)
                .is_empty()
        );
        assert!(!state.may_ask(&first, now) && state.may_ask(&other, now));
        assert!(!state.may_ask(&plain, now) && !state.may_ask(&alike, now));
        let next_day = now + DAY;
        let before = next_day - Duration::from_secs(1);
        state.sweep(before);
        assert!(!state.may_ask(&first, before) && !state.may_ask(&alike, before));
        assert!(state.may_ask(&first, next_day) && state.may_ask(&alike, next_day));
        state.sweep(next_day);
        assert!(state.instances.is_empty() && state.types.is_empty(), "{state:?}");
        assert!(
            [&first, &plain, &alike]
                .into_iter()
                .all(|one| state.may_ask(one, next_day))
        );
    }

    #[test]
    fn a_type_that_turns_out_to_have_layers_is_asked_for_as_a_whole() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let candidates = many(5, "g6e.48xlarge");
        let chosen = state.choose(&candidates, now);
        assert_eq!(chosen.len(), 1);
        let wanted = state.answered(chosen.clone(), vec![layers(chosen[0].id.as_str())], now);
        assert_eq!(wanted.len(), 1);
        assert_eq!(state.choose(&candidates[1..], now).len(), 4);
    }

    #[test]
    fn a_label_that_is_there_is_never_changed() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let wanted = state.answered(vec![candidate("i-1", "p5.48xlarge")], vec![layers("i-1")], now);
        assert_eq!(
            wanted[0].1,
            [(label(1), "nn-1".to_owned()), (label(3), "nn-3".to_owned())]
        );
    }

    #[test]
    fn an_instance_whose_node_was_not_written_is_asked_for_ten_minutes_later() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let one = candidate("i-1", "p5.48xlarge");
        state.not_written(one.clone(), now);
        assert!(!state.may_ask(&one, now + LATER - Duration::from_secs(1)));
        assert!(state.may_ask(&one, now + LATER));
    }

    #[test]
    fn a_region_without_topology_is_left_alone_for_a_day() {
        for code in ["UnsupportedOperation", "UnauthorizedOperation"] {
            let now = Instant::now();
            let mut state = State::new(Pattern::BuiltIn, now);
            let asked = [candidate("i-1", "p5.48xlarge")];
            assert!(matches!(
                state.failed(&asked, &error(code, "x"), now),
                Report::RegionOff(_)
            ));
            assert_eq!(state.next_call(), now + DAY);
            state.sweep(now + DAY - Duration::from_secs(1));
            assert_eq!(state.next_call(), now + DAY);
            state.sweep(now + DAY);
            assert_eq!(state.next_call(), now + BETWEEN);
        }
    }

    #[test]
    fn throttling_makes_pauses_that_double_and_is_said_once() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let asked = [candidate("i-1", "p5.48xlarge")];
        let throttled = error("RequestLimitExceeded", "slow down");
        assert!(matches!(state.failed(&asked, &throttled, now), Report::Failing(_)));
        assert_eq!(state.next_call(), now + BETWEEN);
        for _ in 0..10 {
            assert_eq!(state.failed(&asked, &throttled, now), Report::Nothing);
        }
        assert_eq!(state.next_call(), now + LONGEST);
        assert!(state.may_ask(&asked[0], now), "it is asked again");
        state.answered(vec![], vec![], now);
        assert_eq!(state.next_call(), now + BETWEEN);
    }

    #[test]
    fn an_id_that_fails_the_call_is_set_aside_and_the_others_are_asked_again() {
        let now = Instant::now();
        let mut state = State::new(Pattern::BuiltIn, now);
        let asked = [candidate("i-0a", "p5.48xlarge"), candidate("i-0b", "p5.48xlarge")];
        let gone = error("InvalidInstanceID.NotFound", "The instance ID 'i-0a' does not exist");
        assert_eq!(state.failed(&asked, &gone, now), Report::Nothing);
        assert!(!state.may_ask(&asked[0], now) && state.may_ask(&asked[1], now));
        let vague = error("InvalidInstanceID.NotFound", "no");
        let asked = many(8, "p5.48xlarge");
        state.failed(&asked, &vague, now);
        let fewer = state.choose(&asked, now);
        assert_eq!(fewer.len(), 4);
        state.failed(&fewer[..1], &vague, now);
        assert!(!state.may_ask(&fewer[0], now), "the last one is to blame");
    }
}

#[cfg(test)]
mod tests_of_patterns {
    use super::*;

    #[test]
    fn the_types_that_the_incumbent_expects_match_and_no_others() {
        for kind in [
            "hpc6a.48xlarge",
            "hpc6id.32xlarge",
            "hpc7a.12xlarge",
            "hpc7g.16xlarge",
            "p3dn.24xlarge",
            "p4d.24xlarge",
            "p4de.24xlarge",
            "p5.48xlarge",
            "p5e.48xlarge",
            "p5en.48xlarge",
            "p6-b200.48xlarge",
            "p6e-gb200.36xlarge",
            "trn1.2xlarge",
            "trn1n.32xlarge",
            "trn2.48xlarge",
            "trn2u.48xlarge",
        ] {
            assert!(Pattern::BuiltIn.matches(kind), "{kind}");
        }
        for kind in [
            "m6g.large",
            "t3.large",
            "c3.large",
            "m5.large",
            "inf2.48xlarge",
            "p.large",
            "p5",
            "p5-.large",
            "p6-b200-x.large",
            "xp5.large",
            "P5.large",
            "",
        ] {
            assert!(!Pattern::BuiltIn.matches(kind), "{kind}");
        }
    }

    #[test]
    fn a_given_pattern_replaces_the_built_in_one_and_is_not_anchored() {
        let given = Pattern::from(Some(Regex::new("g6").unwrap()));
        assert!(given.matches("xg6.large") && !given.matches("p5.48xlarge"));
    }
}
