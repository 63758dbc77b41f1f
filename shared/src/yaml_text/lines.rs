//! Edits as changed lines, which are small and can be undone.

use serde::{Deserialize, Serialize};

use super::YamlText;

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

    let old: Vec<&str> = before.split('\n').collect();
    let new: Vec<&str> = after.split('\n').collect();
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let front = old.iter().zip(&new).take_while(same).count();
    let shorter = old.len().min(new.len());
    let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let back = back.min(shorter - front);
    let own = |lines: &[&str]| -> Vec<String> {
        let changed = lines.get(front..lines.len() - back).unwrap_or_default();
        changed.iter().map(|line| (*line).to_owned()).collect()
    };
    let (was, now) = (own(&old), own(&new));
    let line_before = front.checked_sub(1).and_then(|line| old.get(line));

    Some(LineEdit {
        at: front,
        after: line_before.filter(|_| now.is_empty()).map(|line| (*line).to_owned()),
        was,
        now,
    })
}

/// Undoes edits, the last one first. If nothing else changed the text, this gives the original text byte for byte. None
/// if the owner has changed the lines of the edits, or the result is no valid YAML: the text is then the owner's.
#[must_use]
pub fn undo(text: &str, edits: &[LineEdit]) -> Option<String> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    for edit in edits.iter().rev() {
        let at = place(&lines, edit)?;
        let was = edit.was.iter().map(String::as_str);
        lines.splice(at..at + edit.now.len(), was);
    }

    let restored = lines.join("\n");
    YamlText::parse(&restored).ok()?;

    Some(restored)
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
