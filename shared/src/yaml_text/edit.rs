//! The edits.

use granit_parser::ScalarStyle;
use serde_json::{Map, Value};

use super::{
    Refusal, YamlText, child_mut, put, render, take,
    tree::{Entry, Kind, Node},
};

const OTHERWISE: &str = "is written in a way that no single edit can change safely";

impl YamlText {
    /// Gives a scalar another text in its place and its quoting; an entry of a map that is missing is added at its end,
    /// together with the maps on the way. Does nothing if it has that text.
    ///
    /// # Errors
    /// When the text cannot be edited there; it is unchanged then.
    pub fn set(&mut self, document: usize, path: &[&str], new: &str) -> Result<(), Refusal> {
        if self.get(document, path).and_then(Value::as_str) == Some(new) {
            return Ok(());
        }

        let by_hand = format!("set it to {}", render::text(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("is not there"))?;
        let (node, depth) = walk(root, path);
        if depth < path.len() {
            return self.insert(document, path, &Value::from(new));
        }
        let Kind::Scalar(style) = node.kind else {
            return Err(refused("is no text"));
        };

        let written = render::text(new, style);
        let text = if node.is_void() {
            self.fill(node, &written)
        } else {
            let own = self.text.get(node.start..node.end).unwrap_or_default();
            let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
            if node.is_marked || is_block || own.contains('\n') {
                return Err(refused("is an anchor, a tag or a text over several lines"));
            }
            self.spliced(node.start, node.end, &written)
        };

        let text = text.ok_or_else(|| refused(OTHERWISE))?;
        let mut intended = self.documents.clone();
        let is_put = intended
            .get_mut(document)
            .is_some_and(|value| put(value, path, Value::from(new)));
        let refusal = refused(OTHERWISE);
        if !is_put {
            return Err(refusal);
        }

        self.commit(text, &intended, || refusal)
    }

    /// Adds an entry at the end of a map, together with the maps on the way.
    ///
    /// # Errors
    /// When something is there, or the text cannot be edited there; it is unchanged then.
    pub fn insert(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        let by_hand = format!("add {}", render::flow(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("is not there"))?;
        let (holder, depth) = walk(root, path);
        let Some((key, deeper)) = path.get(depth..).and_then(<[&str]>::split_first) else {
            return Err(refused("is there"));
        };

        let value = deeper.iter().rev().fold(new.clone(), |value, key| {
            Value::Object(Map::from_iter([((*key).to_owned(), value)]))
        });
        let text = match &holder.kind {
            Kind::Map { entries, flow } => self.with_entry(holder, entries, *flow, key, &value),
            Kind::Scalar(ScalarStyle::Plain) => {
                let map = Value::Object(Map::from_iter([((*key).to_owned(), value)]));
                let written = render::flow(&map, ScalarStyle::Plain);
                if holder.is_void() {
                    self.fill(holder, &written)
                } else {
                    self.spliced(holder.start, holder.end, &written)
                }
            }
            Kind::Alias => return Err(refused("is below an alias of an anchor")),
            _ => return Err(refused("has no map above it")),
        };

        let text = text.ok_or_else(|| refused(OTHERWISE))?;
        let mut intended = self.documents.clone();
        let is_put = intended
            .get_mut(document)
            .is_some_and(|value| put(value, path, new.clone()));
        let refusal = refused(OTHERWISE);
        if !is_put {
            return Err(refusal);
        }

        self.commit(text, &intended, || refusal)
    }

    /// Adds an item at the end of a list that is there.
    ///
    /// # Errors
    /// When there is no list, or the text cannot be edited there; it is unchanged then.
    pub fn push(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        let length = self.get(document, path).and_then(Value::as_array).map_or(0, Vec::len);
        self.insert_item(document, path, length, new)
    }

    /// Adds an item to a list that is there, before the item at the index, or at the end.
    ///
    /// # Errors
    /// When there is no list, or the text cannot be edited there; it is unchanged then.
    pub fn insert_item(&mut self, document: usize, path: &[&str], index: usize, new: &Value) -> Result<(), Refusal> {
        let by_hand = format!("add {} to it", render::flow(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("is not there"))?;
        let (holder, depth) = walk(root, path);
        let Kind::List { items, flow } = &holder.kind else {
            let is_alias = matches!(holder.kind, Kind::Alias);
            return Err(refused(if is_alias {
                "is an alias of an anchor"
            } else {
                "is no list"
            }));
        };
        if depth < path.len() {
            return Err(refused("is not there"));
        }

        let text = self.with_item(holder, items, *flow, index, new);
        let text = text.ok_or_else(|| refused(OTHERWISE))?;
        let mut intended = self.documents.clone();
        let list = intended
            .get_mut(document)
            .and_then(|value| path.iter().try_fold(value, |here, key| child_mut(here, key)));
        let refusal = refused(OTHERWISE);
        let Some(Value::Array(list)) = list else {
            return Err(refusal);
        };

        list.insert(index.min(list.len()), new.clone());

        self.commit(text, &intended, || refusal)
    }

    /// Takes out an entry of a map or an item of a list, with its lines. Does nothing if it is not there.
    ///
    /// # Errors
    /// When the text cannot be edited there; it is unchanged then.
    pub fn remove(&mut self, document: usize, path: &[&str]) -> Result<(), Refusal> {
        let mut intended = self.documents.clone();
        if intended.get_mut(document).and_then(|value| take(value, path)).is_none() {
            return Ok(());
        }
        let refusal = self.refusal(document, path, OTHERWISE, "take it out");
        let text = self.without(document, path).ok_or_else(|| refusal.clone())?;
        self.commit(text, &intended, || refusal)
    }

    fn without(&self, document: usize, path: &[&str]) -> Option<String> {
        let (last, above) = path.split_last()?;
        let root = self.roots.get(document)?;
        let (holder, depth) = walk(root, above);
        if depth < above.len() {
            return None;
        }

        let (index, parts, flow, empty): (usize, Vec<(usize, usize)>, bool, &str) = match &holder.kind {
            Kind::Map { entries, flow } => {
                let index = entries.iter().position(|entry| entry.name.as_deref() == Some(*last))?;
                let parts = entries.iter().map(|entry| (entry.key.start, entry.value.end));
                (index, parts.collect(), *flow, "{}")
            }
            Kind::List { items, flow: true } => {
                let parts = items.iter().map(|item| (item.start, item.end));
                (last.parse().ok()?, parts.collect(), true, "[]")
            }
            Kind::List { items, flow } => {
                let parts = items.iter().map(|item| Some((self.dash(item)?.at, item.end)));
                (last.parse().ok()?, parts.collect::<Option<_>>()?, *flow, "[]")
            }
            Kind::Scalar(_) | Kind::Alias => return None,
        };

        let (start, end) = *parts.get(index)?;
        if flow {
            let (from, to) = match (
                parts.get(index + 1),
                index.checked_sub(1).and_then(|index| parts.get(index)),
            ) {
                (Some((next, _)), _) => (start, *next),
                (None, Some((_, previous))) => (*previous, end),
                (None, None) => (start, end),
            };

            let is_one_line = !self.text.get(from..to)?.contains('\n');
            return is_one_line.then(|| self.spliced(from, to, ""))?;
        }

        let (first, end) = (self.line_of(start), self.line_of(end));
        let is_own = self.text.get(first.0..start)?.trim_matches(' ').is_empty();
        if !is_own {
            return None;
        }
        if parts.len() > 1 {
            return Some(self.without_lines(first.0, end.1));
        }

        // The last one: the map or list stays, empty, behind its own key.
        let (above_key, _) = self.line_of(first.0.checked_sub(1)?);
        let head = self.text.get(above_key..first.0)?.trim_end();
        let head_end = above_key + head.len();
        let emptied = head.ends_with(':').then(|| self.without_lines(first.0, end.1))?;

        Some(format!(
            "{} {empty}{}",
            emptied.get(..head_end)?,
            emptied.get(head_end..)?
        ))
    }

    fn with_entry(&self, holder: &Node, entries: &[Entry], flow: bool, key: &str, value: &Value) -> Option<String> {
        let like = entries.last().map_or(ScalarStyle::Plain, |last| style_of(&last.value));
        let on_one_line = || {
            format!(
                "{}: {}",
                render::text(key, ScalarStyle::Plain),
                render::flow(value, like)
            )
        };

        match entries {
            [] => self.within(holder, &format!("{{{}}}", on_one_line())),
            [.., last] if flow => {
                let end = last.value.end.max(last.key.end);
                self.spliced(end, end, &format!(", {}", on_one_line()))
            }
            [first, .., last] | [first @ last] => {
                let column = first.key.start - self.line_of(first.key.start).0;
                let lines = render::entry(column, key, value, like);
                Some(self.with_lines_behind(last.value.end, &lines))
            }
        }
    }

    fn with_item(&self, holder: &Node, items: &[Node], flow: bool, index: usize, new: &Value) -> Option<String> {
        let like = items.last().map_or(ScalarStyle::Plain, style_of);
        let written = || render::flow(new, like);
        let before = index.min(items.len()).checked_sub(1).and_then(|last| items.get(last));
        match (before, items.first()) {
            (None, None) => self.within(holder, &format!("[{}]", written())),
            (None, Some(first)) if flow => self.spliced(first.start, first.start, &format!("{}, ", written())),
            (Some(last), _) if flow => self.spliced(last.end, last.end, &format!(", {}", written())),
            // The line of the first item may begin with something else, as a list in a list does.
            (None, Some(_)) => None,
            (Some(last), _) => {
                let dash = self.dash(last)?;
                Some(self.with_lines_behind(last.end, &render::item(dash.column, new, like)))
            }
        }
    }

    /// Replaces an empty flow collection.
    fn within(&self, holder: &Node, written: &str) -> Option<String> {
        let own = self.text.get(holder.start..holder.end)?;
        let is_one_line = !own.contains('\n') && !holder.is_marked;
        is_one_line.then(|| self.spliced(holder.start, holder.end, written))?
    }

    /// Writes a value behind a key that has none.
    fn fill(&self, void: &Node, written: &str) -> Option<String> {
        let behind = self.text.get(void.start..)?;
        let colon = behind.find(':').filter(|place| {
            let between = behind.get(..*place).unwrap_or_default();
            between.trim_matches(' ').is_empty()
        });
        let at = match colon {
            Some(place) => void.start + place + 1,
            None => self.text.get(..void.start)?.ends_with(':').then_some(void.start)?,
        };

        self.spliced(at, at, &format!(" {written}"))
    }

    fn spliced(&self, from: usize, to: usize, new: &str) -> Option<String> {
        Some([self.text.get(..from)?, new, self.text.get(to..)?].concat())
    }

    /// Where the line of a byte begins, and where it ends (before its line feed).
    pub(super) fn line_of(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |feed| feed + 1);
        let rest = self.text.get(start..).unwrap_or_default();
        (start, rest.find('\n').map_or(self.text.len(), |feed| start + feed))
    }

    /// Puts lines below the line of a byte, ended as that one is.
    fn with_lines_behind(&self, at: usize, lines: &[String]) -> String {
        let (start, end) = self.line_of(at);
        let (before, after) = self.text.split_at_checked(end).unwrap_or((&self.text, ""));
        let ends_with_return = self.text.get(start..end).is_some_and(|line| line.ends_with('\r'));
        let ending = if ends_with_return { "\r" } else { "" };
        let new: Vec<String> = lines.iter().map(|line| format!("\n{line}{ending}")).collect();
        [before, &new.concat(), after].concat()
    }

    /// Takes out whole lines, from the start of one to the end of another, with one line feed.
    fn without_lines(&self, from: usize, to: usize) -> String {
        let (before, rest) = self.text.split_at_checked(from).unwrap_or((&self.text, ""));
        let behind = self.text.get(to..).unwrap_or_default();
        match behind.strip_prefix('\n') {
            Some(behind) => [before, behind].concat(),
            None if rest.is_empty() => before.to_owned(),
            None => [before.strip_suffix('\n').unwrap_or(before), behind].concat(),
        }
    }

    /// The dash of an item of a block list.
    fn dash(&self, item: &Node) -> Option<Dash> {
        let (start, _) = self.line_of(item.start);
        let before = self.text.get(start..item.start)?.trim_end_matches(' ');
        let column = before.strip_suffix('-')?.len();
        Some(Dash {
            at: start + column,
            column,
        })
    }

    pub(super) fn refusal(&self, document: usize, path: &[&str], why: &'static str, by_hand: &str) -> Refusal {
        let place = self.roots.get(document).map_or(0, |root| walk(root, path).0.start);
        let before = self.text.get(..place).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;

        Refusal::Place {
            at: format!("{} (line {line})", path.join(".")),
            why,
            by_hand: by_hand.to_owned(),
        }
    }
}

#[derive(Clone, Copy)]
struct Dash {
    at: usize,
    column: usize,
}

/// The deepest node on a path, and how many keys lead to it.
pub(super) fn walk<'a>(root: &'a Node, path: &[&str]) -> (&'a Node, usize) {
    let mut here = root;
    for (depth, key) in path.iter().enumerate() {
        match here.child(key) {
            Some(next) => here = next,
            None => return (here, depth),
        }
    }

    (here, path.len())
}

/// How a scalar is quoted; new neighbours follow.
fn style_of(node: &Node) -> ScalarStyle {
    match node.kind {
        Kind::Scalar(style @ (ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted)) => style,
        _ => ScalarStyle::Plain,
    }
}
