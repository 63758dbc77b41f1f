//! Sets of times.

use jiff::{SignedDuration, Timestamp};

/// Times with their ends, sorted and apart from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spans(Vec<(Timestamp, Timestamp)>);

impl Spans {
    pub(super) fn of(spans: impl IntoIterator<Item = (Timestamp, Timestamp)>) -> Self {
        let mut sorted: Vec<_> = spans.into_iter().filter(|(from, until)| from <= until).collect();
        sorted.sort();

        let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
        for (from, until) in sorted {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => merged.push((from, until)),
            }
        }
        Self(merged)
    }

    pub(super) fn all() -> Self {
        Self(vec![(Timestamp::MIN, Timestamp::MAX)])
    }

    pub(super) fn until(end: Timestamp) -> Self {
        Self(vec![(Timestamp::MIN, end)])
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        Self::of(self.iter().chain(other.iter()))
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let both = self.iter().flat_map(|(from, until)| {
            let cut = other.iter().map(move |(start, end)| (from.max(start), until.min(end)));
            // Two that touch have no time in common.
            cut.filter(|(from, until)| from < until)
        });
        Self::of(both)
    }

    pub(super) fn not(&self) -> Self {
        let starts = [Timestamp::MIN].into_iter().chain(self.iter().map(|span| span.1));
        let ends = self.iter().map(|span| span.0).chain([Timestamp::MAX]);
        Self::of(starts.zip(ends).filter(|(from, until)| from < until))
    }

    /// Whether a moment lies inside, or at most `by` beside.
    pub(super) fn are_near(&self, at: Timestamp, by: SignedDuration) -> bool {
        self.iter().any(|(from, until)| from <= at + by && at - by <= until)
    }

    pub(super) fn to_vec(&self) -> Vec<(Timestamp, Timestamp)> {
        self.0.clone()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    fn spans(all: &[(i64, i64)]) -> Spans {
        Spans::of(all.iter().map(|(from, until)| (at(*from), at(*until))))
    }

    #[test]
    fn spans_that_overlap_or_touch_are_one_and_those_that_end_before_they_begin_are_none() {
        let merged = spans(&[(20, 30), (1, 5), (5, 8), (2, 3), (9, 7), (40, 40)]);
        assert_eq!(merged, spans(&[(1, 8), (20, 30), (40, 40)]));
        assert_eq!(merged.iter().count(), 3);
    }

    #[test]
    fn the_times_of_both_of_either_and_of_neither() {
        let (one, other) = (spans(&[(0, 10), (20, 30)]), spans(&[(5, 20), (25, 26), (28, 40)]));
        assert_eq!(one.and(&other), spans(&[(5, 10), (25, 26), (28, 30)]));
        assert_eq!(one.or(&other), spans(&[(0, 40)]));
        let neither = one.or(&spans(&[(50, 60)])).not();
        assert_eq!(
            neither.and(&spans(&[(-5, 70)])),
            spans(&[(-5, 0), (10, 20), (30, 50), (60, 70)])
        );
        assert_eq!(Spans::all().not(), spans(&[]));
        assert_eq!(spans(&[]).not(), Spans::all());
        assert_eq!(one.and(&Spans::until(at(25))), spans(&[(0, 10), (20, 25)]));
    }

    #[test]
    fn a_moment_is_near_a_span_from_before_its_start_until_after_its_end() {
        let span = spans(&[(10, 20)]);
        let near = [7, 8, 15, 22, 23].map(|second| span.are_near(at(second), SignedDuration::from_secs(2)));
        assert_eq!(near, [false, true, true, true, false]);
    }
}
