//! The edits.

use granit_parser::ScalarStyle;
use serde_json::{Map, Value};

use super::{
    LineEdit, Refusal, YamlText, child_mut, put, render, take,
    tree::{Entry, Kind, Node},
};

const OTHERWISE: &str = "is written in a way that no single edit can change safely";

impl YamlText {
    /// Gives a scalar another text in its place and its quoting; an entry of a map that is missing is added at its end,
    /// together with the maps on the way. Does nothing if it has that text.
    pub fn set(&mut self, document: usize, path: &[&str], new: &str) -> Result<(), Refusal> {
        if self.get(document, path).and_then(Value::as_str) == Some(new) {
            return Ok(());
        }

        let by_hand = format!("set it to {}", render::text(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (node, depth) = walk(root, path);
        if depth < path.len() {
            return self.insert(document, path, &Value::from(new));
        }
        let Kind::Scalar(style) = node.kind else {
            return Err(refused("is not a string"));
        };

        let written = render::text(new, style);
        let text = if node.is_void() {
            self.fill(node, &written)
        } else {
            let own = self.text.get(node.start..node.end).unwrap_or_default();
            let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
            if node.is_marked || is_block || own.contains('\n') {
                return Err(refused("is an anchor, a tag or a string over several lines"));
            }
            self.spliced(node.start, node.end, &written)
        };

        let refusal = refused(OTHERWISE);
        self.accept(text, document, refusal, |value| put(value, path, Value::from(new)))
    }

    /// Adds an entry at the end of a map, together with the maps on the way. Refused if something is there.
    pub fn insert(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        let by_hand = format!("add {}", render::flow(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (holder, depth) = walk(root, path);
        let Some((key, deeper)) = path.get(depth..).and_then(<[&str]>::split_first) else {
            return Err(refused("exists already"));
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

        let refusal = refused(OTHERWISE);
        self.accept(text, document, refusal, |value| put(value, path, new.clone()))
    }

    /// Adds an item at the end of a list that is there.
    pub fn push(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        let length = self.get(document, path).and_then(Value::as_array).map_or(0, Vec::len);
        self.insert_item(document, path, length, new)
    }

    /// Adds an item to a list that is there, before the item at the index, or at the end.
    pub fn insert_item(&mut self, document: usize, path: &[&str], index: usize, new: &Value) -> Result<(), Refusal> {
        let by_hand = format!("add {} to it", render::flow(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (holder, depth) = walk(root, path);
        let Kind::List { items, flow } = &holder.kind else {
            let is_alias = matches!(holder.kind, Kind::Alias);
            let why = if is_alias {
                "is an alias of an anchor"
            } else {
                "is not a list"
            };
            return Err(refused(why));
        };
        if depth < path.len() {
            return Err(refused("does not exist"));
        }

        let text = self.with_item(holder, items, *flow, index, new);
        let refusal = refused(OTHERWISE);
        self.accept(text, document, refusal, |value| {
            let list = path.iter().try_fold(value, |here, key| child_mut(here, key));
            let Some(Value::Array(list)) = list else { return false };
            list.insert(index.min(list.len()), new.clone());
            true
        })
    }

    /// Takes out an entry of a map or an item of a list, with its lines. Does nothing if it is not there.
    pub fn remove(&mut self, document: usize, path: &[&str]) -> Result<(), Refusal> {
        let mut intended = self.documents.clone();
        if intended.get_mut(document).and_then(|value| take(value, path)).is_none() {
            return Ok(());
        }
        let refusal = self.refusal(document, path, OTHERWISE, "remove it");
        match self.without(document, path) {
            Some(text) => self.commit(text, &intended, refusal),
            None => Err(refusal),
        }
    }

    /// Edits the YAML text that a path leads to. One in a block (`|`) keeps its lines and their indentation; one on a
    /// single line is written anew on that line.
    ///
    /// # Errors
    /// When `change` fails, or when that text, or the text around it, cannot be edited; nothing is changed then.
    pub fn nested<T, E: From<Refusal>>(
        &mut self,
        document: usize,
        path: &[&str],
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let by_hand = "change the text inside it";
        let refused = |why| self.refusal(document, path, why, by_hand);
        let text = self.get(document, path).and_then(Value::as_str);
        let mut inner = Self::parse(text.ok_or_else(|| refused("is not a string"))?)?;
        let result = change(&mut inner)?;
        if inner.edits.is_empty() {
            return Ok(result);
        }

        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (node, _) = walk(root, path);
        match node.kind {
            Kind::Scalar(ScalarStyle::Literal) if !node.is_marked => {
                let text = self.with_inner(node.start, node.end, &inner.edits);
                let text = text.ok_or_else(|| refused("has an indentation that cannot be parsed"))?;
                let refusal = refused("is written in a way that no edit can change safely");
                self.accept(Some(text), document, refusal, |value| {
                    put(value, path, Value::from(inner.text))
                })?;
            }
            Kind::Scalar(ScalarStyle::Folded) => return Err(refused("is a folded block (>)").into()),
            _ => self.set(document, path, &inner.text)?,
        }

        Ok(result)
    }

    /// Accepts a text, if there is one, as [`Self::commit`] does. `change` makes the intended value from the present one.
    fn accept(
        &mut self,
        text: Option<String>,
        document: usize,
        refusal: Refusal,
        change: impl FnOnce(&mut Value) -> bool,
    ) -> Result<(), Refusal> {
        let mut intended = self.documents.clone();
        let is_made = intended.get_mut(document).is_some_and(change);
        match text {
            Some(text) if is_made => self.commit(text, &intended, refusal),
            _ => Err(refusal),
        }
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
                let parts = items.iter().map(|item| {
                    let (line, column) = self.dash(item)?;
                    Some((line + column, item.end))
                });
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
                let (_, column) = self.dash(last)?;
                Some(self.with_lines_behind(last.end, &render::item(column, new, like)))
            }
        }
    }

    fn within(&self, holder: &Node, written: &str) -> Option<String> {
        let own = self.text.get(holder.start..holder.end)?;
        let is_one_line = !own.contains('\n') && !holder.is_marked;
        is_one_line.then(|| self.spliced(holder.start, holder.end, written))?
    }

    /// The text with edits of the lines of a block, whose content begins at `start`.
    fn with_inner(&self, start: usize, end: usize, edits: &[LineEdit]) -> Option<String> {
        let header = self.text.get(..start)?.rfind('|')?;
        let (header, _) = self.line_of(header);
        let before = self.text.get(..header)?.bytes().filter(|byte| *byte == b'\n').count();
        let (line, line_end) = self.line_of(start);
        let first = self.text.get(line..line_end.min(end.max(line)))?;
        let indent = first.len() - first.trim_start_matches(' ').len();
        let ending = if first.ends_with('\r') { "\r" } else { "" };
        let mut lines: Vec<String> = self.text.split('\n').map(str::to_owned).collect();

        for edit in edits {
            let from = before + 1 + edit.at;
            let to = from + edit.was.len();
            lines.get(from..to)?;

            let now = edit.now.iter().map(|line| match line.as_str() {
                "" => ending.to_owned(),
                line => format!("{:indent$}{line}{ending}", ""),
            });
            lines.splice(from..to, now);
        }

        Some(lines.join("\n"))
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
    fn line_of(&self, at: usize) -> (usize, usize) {
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

    /// Where the line of an item of a block list begins, and the column of its dash.
    fn dash(&self, item: &Node) -> Option<(usize, usize)> {
        let (start, _) = self.line_of(item.start);
        let before = self.text.get(start..item.start)?.trim_end_matches(' ');
        Some((start, before.strip_suffix('-')?.len()))
    }

    fn refusal(&self, document: usize, path: &[&str], why: &'static str, by_hand: &str) -> Refusal {
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

/// The deepest node on a path, and how many keys lead to it.
fn walk<'a>(root: &'a Node, path: &[&str]) -> (&'a Node, usize) {
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
