//! The texts of the Events about a Service, so that none is repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// After this time the same failure is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(600);

/// The last texts by the reason of the Event.
#[derive(Debug, Default)]
pub struct Reported(BTreeMap<&'static str, Texts>);

#[derive(Debug)]
enum Texts {
    /// A failure, with the time of its Event. It is forgotten after a success.
    Failure(Instant, String),
    /// True as long as it is not reported otherwise.
    Conditions(BTreeSet<String>),
}

impl Reported {
    /// Whether to report this failure: it differs from the last one of its reason, or that was long ago.
    pub fn is_news(&mut self, reason: &'static str, message: &str, now: Instant) -> bool {
        let message = without_request_details(message);
        let is_known = match self.0.get(reason) {
            Some(Texts::Failure(at, last)) => *last == message && now.saturating_duration_since(*at) < REPORT_AGAIN,
            Some(Texts::Conditions(_)) | None => false,
        };
        if !is_known {
            self.0.insert(reason, Texts::Failure(now, message));
        }

        !is_known
    }

    /// Records the conditions of this reason that hold now. Returns those that did not hold before.
    pub fn begun(&mut self, reason: &'static str, now: BTreeSet<String>) -> BTreeSet<String> {
        let begun = match self.0.get(reason) {
            Some(Texts::Conditions(before)) => now.difference(before).cloned().collect(),
            Some(Texts::Failure(..)) | None => now.clone(),
        };
        match now.is_empty() {
            true => _ = self.0.remove(reason),
            false => _ = self.0.insert(reason, Texts::Conditions(now)),
        }

        begun
    }

    /// Records whether a condition holds that has one text. Returns whether it did not hold before.
    pub fn begins(&mut self, reason: &'static str, holds: bool) -> bool {
        let now = holds.then(String::new).into_iter().collect();
        !self.begun(reason, now).is_empty()
    }

    /// Records that a condition does not hold any more. Returns whether it held before.
    pub fn ends(&mut self, reason: &'static str) -> bool {
        let holds = self.holds(reason);
        self.0.retain(|of, _| *of != reason);
        holds
    }

    pub fn holds(&self, reason: &'static str) -> bool {
        matches!(self.0.get(reason), Some(Texts::Conditions(_)))
    }

    /// Forgets failures.
    pub fn succeed(&mut self) {
        self.0.retain(|_, texts| matches!(texts, Texts::Conditions(_)));
    }
}

/// The text without the parts that differ for each request: its ID, and the encoded details of a denial.
pub fn without_request_details(message: &str) -> String {
    const DETAILS: &str = "Encoded authorization failure message: ";

    let (mut text, mut rest) = (String::new(), message);
    while let Some((before, after)) = rest.split_once(" (request ") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }

    text.push_str(rest);
    match text.split_once(DETAILS) {
        Some((before, after)) => {
            let after = after.split_once(' ').map_or("", |(_, after)| after);
            format!("{before}{DETAILS}{after}")
        }
        None => text,
    }
}

#[cfg(test)]
impl Reported {
    /// The bytes that it has on the heap, without the nodes of maps.
    pub fn bytes(&self) -> usize {
        let of_texts = |texts: &Texts| match texts {
            Texts::Failure(_, text) => text.capacity(),
            Texts::Conditions(texts) => texts.iter().map(|text| size_of::<String>() + text.capacity()).sum(),
        };
        let entries = self.0.values().map(of_texts);
        entries.map(|bytes| bytes + size_of::<(&str, Texts)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_failure_is_reported_once_in_ten_minutes() {
        let mut reported = Reported::default();
        assert!(reported.is_news("F", "a", Instant::now()));
        assert!(!reported.is_news("F", "a", Instant::now()));
        assert!(reported.is_news("T", "other", Instant::now()), "of another kind");
        assert!(!reported.is_news("F", "a", Instant::now()));
        let denied = |id| {
            let words = format!("denied. Encoded authorization failure message: {id} on i-1");
            outrigger_aws::Error::answered("RegisterTargets", "AccessDenied", words).with_request_id(Some(id))
        };
        assert!(reported.is_news("F", &denied("r-1").to_string(), Instant::now()));
        assert!(
            !reported.is_news("F", &denied("r-2").to_string(), Instant::now()),
            "another request"
        );
        assert!(reported.is_news("F", "b", Instant::now()));
        tokio::time::advance(REPORT_AGAIN).await;
        assert!(reported.is_news("F", "b", Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_is_reported_when_it_begins_and_outlives_a_success() {
        let mut reported = Reported::default();
        assert!(!reported.begins("C", false));
        assert!(reported.begins("C", true));
        assert!(!reported.begins("C", true));
        assert!(reported.is_news("F", "a", Instant::now()));
        reported.succeed();
        assert!(reported.is_news("F", "a", Instant::now()), "it was forgotten");
        assert!(reported.holds("C") && !reported.begins("C", true));
        assert!(!reported.begins("C", false));
        assert!(reported.begins("C", true), "it has begun again");
        assert!(reported.ends("C") && !reported.ends("C"));
    }

    #[test]
    fn of_several_conditions_those_are_reported_that_have_begun() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        let mut reported = Reported::default();
        assert_eq!(reported.begun("C", texts(&["a", "b"])), texts(&["a", "b"]));
        assert_eq!(reported.begun("C", texts(&["b", "c"])), texts(&["c"]));
        assert_eq!(reported.begun("C", texts(&["a"])), texts(&["a"]));
    }
}
