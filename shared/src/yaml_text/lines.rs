//! Edits as changed lines, which are small and can be undone.

use serde::{Deserialize, Serialize};

use super::sections::sections;
use super::{MAX_BYTES, YamlText};
use crate::work;

/// Changed lines. A text is split at line feeds only, so that joining the lines restores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineEdit {
    /// Index of the first changed line, counted from 0 when the edit was made.
    #[serde(rename = "line")]
    pub at: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// If no line replaced them: the line before, by which the place is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The difference of two texts; none if they are equal.
pub(super) fn between(before: &str, after: &str) -> Option<LineEdit> {
    if before == after {
        return None;
    }

    // Bytes are compared first: splitting a long text for each small edit would cost more than the edit.
    let front = Front::of(before, after);
    let shorter = count_lines(before).min(count_lines(after));
    let back = equal_lines_at_the_end(before, after).min(shorter - front.lines);
    let own = |text: &str| -> Vec<String> {
        let changed = count_lines(text) - front.lines - back;
        let rest = text.get(front.last_line..).unwrap_or_default().split('\n');
        let rest = rest.skip(usize::from(front.has_last_line)).take(changed);
        rest.map(str::to_owned).collect()
    };
    let (was, now) = (own(before), own(after));

    Some(LineEdit {
        at: front.lines,
        after: front.line_before(before).filter(|_| now.is_empty()),
        was,
        now,
    })
}

/// Equal lines at the start of two texts.
struct Front {
    lines: usize,
    /// Where the line begins in which the texts differ first, in bytes.
    last_line: usize,
    /// That line is equal, since one of the texts ends with it.
    has_last_line: bool,
}

impl Front {
    fn of(before: &str, after: &str) -> Self {
        let equal = prefix(before.as_bytes(), after.as_bytes());
        let start = before.as_bytes().get(..equal).unwrap_or_default();
        let next = |text: &str| text.as_bytes().get(equal).copied();
        let has_last_line = ends_line(next(before)) && ends_line(next(after));

        Self {
            lines: feeds(start) + usize::from(has_last_line),
            last_line: start.iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1),
            has_last_line,
        }
    }

    /// The last equal line.
    fn line_before(&self, text: &str) -> Option<String> {
        let line = if self.has_last_line {
            text.get(self.last_line..)?.split('\n').next()
        } else {
            text.get(..self.last_line.checked_sub(1)?)?.rsplit('\n').next()
        };
        line.map(str::to_owned)
    }
}

fn equal_lines_at_the_end(before: &str, after: &str) -> usize {
    let equal = suffix(before.as_bytes(), after.as_bytes());
    let split = |text: &str| text.len() - equal;
    let end = before.as_bytes().get(split(before)..).unwrap_or_default();
    let previous = |text: &str| text.as_bytes().get(..split(text)).and_then(<[u8]>::last).copied();
    let has_first_line = ends_line(previous(before)) && ends_line(previous(after));

    feeds(end) + usize::from(has_first_line)
}

/// Whether a line is complete at this byte; none is the end of a text.
fn ends_line(byte: Option<u8>) -> bool {
    byte.is_none_or(|byte| byte == b'\n')
}

fn count_lines(text: &str) -> usize {
    feeds(text.as_bytes()) + 1
}

fn feeds(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Bytes that are compared at a time.
const CHUNK: usize = 64;

fn prefix(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.chunks_exact(CHUNK).zip(other.chunks_exact(CHUNK));
    let equal = CHUNK * chunks.take_while(|(one, other)| one == other).count();
    let rest = one.iter().skip(equal).zip(other.iter().skip(equal));
    equal + rest.take_while(|(one, other)| one == other).count()
}

fn suffix(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.rchunks_exact(CHUNK).zip(other.rchunks_exact(CHUNK));
    let equal = CHUNK * chunks.take_while(|(one, other)| one == other).count();
    let rest = one.iter().rev().skip(equal).zip(other.iter().rev().skip(equal));
    equal + rest.take_while(|(one, other)| one == other).count()
}

/// Equal bytes at both ends, in whole characters; the two ends do not overlap.
pub(super) fn common(old: &str, new: &str) -> (usize, usize) {
    let mut front = prefix(old.as_bytes(), new.as_bytes());
    while !old.is_char_boundary(front) {
        front -= 1;
    }

    let rest = |text: &'_ str| text.len() - front;
    let mut back = suffix(old.as_bytes(), new.as_bytes()).min(rest(old)).min(rest(new));
    while !old.is_char_boundary(old.len() - back) {
        back -= 1;
    }

    (front, back)
}

/// Undoes edits, the last one first. If nothing else changed the text, this gives the original text byte for byte. None
/// if the owner has changed the lines of the edits, or the result is no valid YAML: the text is then the owner's.
#[must_use]
pub fn undo(text: &str, edits: &[LineEdit]) -> Option<String> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    for edit in edits.iter().rev() {
        work::take(2 * lines.len() + edit.now.len().saturating_mul(4) + 20).ok()?;
        let at = place(&lines, edit)?;
        let was = edit.was.iter().map(String::as_str);
        lines.splice(at..at + edit.now.len(), was);
    }

    let restored = lines.join("\n");
    is_valid_where_changed(text, &restored).then_some(restored)
}

/// Whether the documents that differ from those of the other text can be read. The others are not ours to judge.
fn is_valid_where_changed(text: &str, restored: &str) -> bool {
    let parts = sections(restored);
    if parts.len() == 1 || restored.len() > MAX_BYTES {
        return YamlText::parse(restored).is_ok();
    }

    let (front, back) = common(text, restored);
    let end = restored.len() - back;
    let mut changed = parts.into_iter().filter(|part| part.start <= end && front <= part.end);
    changed.all(|part| restored.get(part).is_some_and(|own| YamlText::parse(own).is_ok()))
}

/// Where the lines of an edit stand now: at their place, else nearest to it.
fn place(lines: &[&str], edit: &LineEdit) -> Option<usize> {
    let nearest = |places: &mut dyn Iterator<Item = usize>| places.min_by_key(|place| place.abs_diff(edit.at));
    if !edit.now.is_empty() {
        let found = lines.windows(edit.now.len()).enumerate();
        return nearest(&mut found.filter(|(_, window)| *window == edit.now).map(|(place, _)| place));
    }

    let place = match &edit.after {
        None => (edit.at == 0).then_some(0),
        Some(before) => {
            let found = lines.iter().enumerate().filter(|(_, line)| *line == before);
            nearest(&mut found.map(|(place, _)| place + 1))
        }
    }?;
    let is_back = lines
        .get(place..place + edit.was.len())
        .is_some_and(|there| there == edit.was);
    (!is_back).then_some(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by lines alone.
    fn by_lines(before: &str, after: &str) -> Option<LineEdit> {
        let (old, new): (Vec<&str>, Vec<&str>) = (before.split('\n').collect(), after.split('\n').collect());
        let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
        let front = old.iter().zip(&new).take_while(same).count();
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let back = back.min(old.len().min(new.len()) - front);
        let own = |lines: &[&str]| -> Vec<String> {
            lines[front..lines.len() - back]
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        let (was, now) = (own(&old), own(&new));
        let after = (now.is_empty() && front > 0).then(|| old[front - 1].to_owned());
        (before != new.join("\n")).then_some(LineEdit {
            at: front,
            after,
            was,
            now,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn changed_lines_are_those_that_a_comparison_of_lines_finds(before in "[aé\n]{0,9}", after in "[aé\n]{0,9}") {
            prop_assert_eq!(between(&before, &after), by_lines(&before, &after));
        }

        #[test]
        fn common_ends_are_whole_characters(old in "[aéê]{0,90}", new in "[aéê]{0,90}") {
            let (front, back) = common(&old, &new);
            prop_assert_eq!(&old[..front], &new[..front]);
            prop_assert_eq!(&old[old.len() - back..], &new[new.len() - back..]);
            prop_assert!(front + back <= old.len().min(new.len()));
        }
    }
}
