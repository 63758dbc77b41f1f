//! The edits.

use std::borrow::Cow;

use granit_parser::ScalarStyle;
use serde_json::{Map, Value};

use super::{
    Refusal, YamlText,
    batch::{Change, Edit, Splice},
    render,
    tree::{Entry, Kind, Node},
};
use crate::work;

const OTHERWISE: &str = "is written in a way that no single edit can change safely";

impl YamlText {
    /// Gives a scalar another text in its place and its quoting; an entry of a map that is missing is added at its end,
    /// together with the maps on the way. Does nothing if it has that text.
    pub fn set(&mut self, document: usize, path: &[&str], new: &str) -> Result<(), Refusal> {
        if self.get(document, path).and_then(Value::as_str) == Some(new) {
            return Ok(());
        }
        self.edit(|text| text.setting(document, path, new))
    }

    fn setting(&self, document: usize, path: &[&str], new: &str) -> Result<Edit, Refusal> {
        let by_hand = format!("set it to {}", render::text(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (node, depth) = walk(root, path);
        if depth < path.len() {
            return self.inserting(document, path, &Value::from(new));
        }
        let Kind::Scalar(style) = node.kind else {
            return Err(refused("is not a string"));
        };

        let written = render::text(new, style);
        let splice = if node.is_void() {
            self.filled(node, &written).ok_or_else(|| refused(OTHERWISE))?
        } else {
            let own = self.text.get(node.start..node.end).unwrap_or_default();
            let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
            if node.is_marked || is_block || own.contains('\n') {
                return Err(refused("is an anchor, a tag or a string over several lines"));
            }
            Splice::new(node.start, node.end, written)
        };

        let change = Change::Put(Value::from(new));
        Ok(Edit::new(document, path, change, splice, refused(OTHERWISE)))
    }

    /// Adds an entry at the end of a map, together with the maps on the way. Refused if something is there.
    pub fn insert(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        self.edit(|text| text.inserting(document, path, new))
    }

    fn inserting(&self, document: usize, path: &[&str], new: &Value) -> Result<Edit, Refusal> {
        let by_hand = format!("add {}", render::flow(new, ScalarStyle::Plain));
        let refused = |why| self.refusal(document, path, why, &by_hand);
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (holder, depth) = walk(root, path);
        let Some((key, deeper)) = path.get(depth..).and_then(<[&str]>::split_first) else {
            return Err(refused("exists already"));
        };
        // An earlier edit of the same batch has added it. Values below an alias are no part of this place.
        let is_alias = matches!(holder.kind, Kind::Alias);
        if !is_alias && self.get(document, path.get(..=depth).unwrap_or_default()).is_some() {
            return Err(refused("exists already"));
        }

        let value = deeper.iter().rev().fold(new.clone(), |value, key| {
            Value::Object(Map::from_iter([((*key).to_owned(), value)]))
        });
        let splice = match &holder.kind {
            Kind::Map { entries, flow } => self.with_entry(holder, entries, *flow, key, &value),
            Kind::Scalar(ScalarStyle::Plain) => {
                let map = Value::Object(Map::from_iter([((*key).to_owned(), value)]));
                let written = render::flow(&map, ScalarStyle::Plain);
                if holder.is_void() {
                    self.filled(holder, &written)
                } else {
                    Some(Splice::new(holder.start, holder.end, written))
                }
            }
            Kind::Alias => return Err(refused("is below an alias of an anchor")),
            _ => return Err(refused("has no map above it")),
        };

        let splice = splice.ok_or_else(|| refused(OTHERWISE))?;
        let change = Change::Put(new.clone());
        let appends_to = path.get(..depth).unwrap_or_default();
        Ok(Edit::new(document, path, change, splice, refused(OTHERWISE)).at_end_of(appends_to))
    }

    /// Adds an item at the end of a list that is there.
    pub fn push(&mut self, document: usize, path: &[&str], new: &Value) -> Result<(), Refusal> {
        let length = self.get(document, path).and_then(Value::as_array).map_or(0, Vec::len);
        self.insert_item(document, path, length, new)
    }

    /// Adds an item to a list that is there, before the item at the index, or at the end.
    pub fn insert_item(&mut self, document: usize, path: &[&str], index: usize, new: &Value) -> Result<(), Refusal> {
        self.edit(|text| text.inserting_item(document, path, index, new))
    }

    fn inserting_item(&self, document: usize, path: &[&str], index: usize, new: &Value) -> Result<Edit, Refusal> {
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

        let splice = self.with_item(holder, items, *flow, index, new);
        let splice = splice.ok_or_else(|| refused(OTHERWISE))?;
        let edit = Edit::new(
            document,
            path,
            Change::Insert(index, new.clone()),
            splice,
            refused(OTHERWISE),
        );

        Ok(if index >= items.len() {
            edit.at_end_of(path)
        } else {
            edit.moving_items_of(path)
        })
    }

    /// Takes out an entry of a map or an item of a list, with its lines. Does nothing if it is not there.
    pub fn remove(&mut self, document: usize, path: &[&str]) -> Result<(), Refusal> {
        if path.is_empty() || self.get(document, path).is_none() {
            return Ok(());
        }
        self.edit(|text| text.removing(document, path))
    }

    fn removing(&self, document: usize, path: &[&str]) -> Result<Edit, Refusal> {
        let refusal = self.refusal(document, path, OTHERWISE, "remove it");
        let Some(splice) = self.without(document, path) else {
            return Err(refusal);
        };

        let above = path.split_last().map_or(path, |(_, above)| above);
        let edit = Edit::new(document, path, Change::Take, splice, refusal);
        Ok(match self.get(document, above) {
            Some(Value::Array(_)) => edit.moving_items_of(above),
            _ => edit,
        })
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
        let text = self.get(document, path).and_then(Value::as_str);
        let text = text.ok_or_else(|| self.refusal(document, path, "is not a string", by_hand))?;
        let mut inner = Self::parse(text)?;
        let result = inner.batch(change)?;
        if inner.edits.is_empty() {
            return Ok(result);
        }

        self.edit(|text| text.replacing_inner(document, path, &inner))?;

        Ok(result)
    }

    fn replacing_inner(&self, document: usize, path: &[&str], inner: &Self) -> Result<Edit, Refusal> {
        let refused = |why| self.refusal(document, path, why, "change the text inside it");
        let root = self.roots.get(document).ok_or_else(|| refused("does not exist"))?;
        let (node, _) = walk(root, path);
        match node.kind {
            Kind::Scalar(ScalarStyle::Literal) if !node.is_marked => {
                let splice = self.with_inner(node.start, node.end, inner);
                let splice = splice.ok_or_else(|| refused("has an indentation that cannot be parsed"))?;
                let refusal = refused("is written in a way that no edit can change safely");
                let change = Change::Put(Value::from(inner.text.as_str()));
                Ok(Edit::new(document, path, change, splice, refusal))
            }
            Kind::Scalar(ScalarStyle::Folded) => Err(refused("is a folded block (>)")),
            _ => self.setting(document, path, &inner.text),
        }
    }

    fn without(&self, document: usize, path: &[&str]) -> Option<Splice> {
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
            return is_one_line.then(|| Splice::new(from, to, String::new()));
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
        let lines = head.ends_with(':').then(|| self.without_lines(first.0, end.1))?;
        // A removal at the end of the text also takes the line feed before it.
        let between = self.text.get(head_end..lines.from.max(head_end)).unwrap_or_default();

        Some(Splice::new(
            head_end,
            lines.to,
            format!(" {empty}{between}{}", lines.new),
        ))
    }

    fn with_entry(&self, holder: &Node, entries: &[Entry], flow: bool, key: &str, value: &Value) -> Option<Splice> {
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
                Some(Splice::new(end, end, format!(", {}", on_one_line())))
            }
            [first, .., last] | [first @ last] => {
                let column = first.key.start - self.line_of(first.key.start).0;
                let lines = render::entry(column, key, value, like);
                Some(self.with_lines_behind(last.value.end, &lines))
            }
        }
    }

    fn with_item(&self, holder: &Node, items: &[Node], flow: bool, index: usize, new: &Value) -> Option<Splice> {
        let like = items.last().map_or(ScalarStyle::Plain, style_of);
        let written = || render::flow(new, like);
        let before = index.min(items.len()).checked_sub(1).and_then(|last| items.get(last));
        match (before, items.first()) {
            (None, None) => self.within(holder, &format!("[{}]", written())),
            (None, Some(first)) if flow => Some(Splice::new(first.start, first.start, format!("{}, ", written()))),
            (Some(last), _) if flow => Some(Splice::new(last.end, last.end, format!(", {}", written()))),
            // The line of the first item may begin with something else, as a list in a list does.
            (None, Some(_)) => None,
            (Some(last), _) => {
                let (_, column) = self.dash(last)?;
                Some(self.with_lines_behind(last.end, &render::item(column, new, like)))
            }
        }
    }

    fn within(&self, holder: &Node, written: &str) -> Option<Splice> {
        let own = self.text.get(holder.start..holder.end)?;
        let is_one_line = !own.contains('\n') && !holder.is_marked;
        is_one_line.then(|| Splice::new(holder.start, holder.end, written.to_owned()))
    }

    /// The edits of a text in a block whose content begins at `start`, as one replacement of the block's lines.
    fn with_inner(&self, start: usize, end: usize, inner: &Self) -> Option<Splice> {
        let header = self.text.get(..start)?.rfind('|')?;
        let (_, header_end) = self.line_of(header);
        let (line, line_end) = self.line_of(start);
        let first = self.text.get(line..line_end.min(end.max(line)))?;
        let indent = first.len() - first.trim_start_matches(' ').len();
        let ending = if first.ends_with('\r') { "\r" } else { "" };

        // Each line of the inner text is a line of the block; an edit may add lines behind the last one.
        let block = self.text.get(header_end + 1..)?;
        let before = inner
            .edits
            .iter()
            .rev()
            .try_fold(inner.text.split('\n').count(), |lines, edit| {
                (lines + edit.was.len()).checked_sub(edit.now.len())
            })?;
        let mut lines: Vec<Cow<'_, str>> = block.split('\n').take(before).map(Cow::from).collect();
        let length = lines.iter().map(|line| line.len() + 1).sum::<usize>() - 1;
        work::take(inner.edits.len().saturating_mul(lines.len() / 16 + 1)).ok()?;

        for edit in &inner.edits {
            let to = edit.at + edit.was.len();
            lines.get(edit.at..to)?;

            let now = edit.now.iter().map(|line| match line.as_str() {
                "" => Cow::from(ending),
                line => Cow::from(format!("{:indent$}{line}{ending}", "")),
            });
            lines.splice(edit.at..to, now);
        }

        let start = header_end + 1;
        let splice = Splice::new(start, start + length, lines.join("\n"));
        Some(splice.trimmed(&self.text))
    }

    /// Writes a value behind a key that has none.
    fn filled(&self, void: &Node, written: &str) -> Option<Splice> {
        let behind = self.text.get(void.start..)?;
        let colon = behind.find(':').filter(|place| {
            let between = behind.get(..*place).unwrap_or_default();
            between.trim_matches(' ').is_empty()
        });
        let at = match colon {
            Some(place) => void.start + place + 1,
            None => self.text.get(..void.start)?.ends_with(':').then_some(void.start)?,
        };

        Some(Splice::new(at, at, format!(" {written}")))
    }

    /// Where the line of a byte begins, and where it ends (before its line feed).
    fn line_of(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |feed| feed + 1);
        let rest = self.text.get(start..).unwrap_or_default();
        (start, rest.find('\n').map_or(self.text.len(), |feed| start + feed))
    }

    /// Puts lines below the line of a byte, ended as that one is.
    fn with_lines_behind(&self, at: usize, lines: &[String]) -> Splice {
        let (start, end) = self.line_of(at);
        let ends_with_return = self.text.get(start..end).is_some_and(|line| line.ends_with('\r'));
        let ending = if ends_with_return { "\r" } else { "" };
        let new: Vec<String> = lines.iter().map(|line| format!("\n{line}{ending}")).collect();
        Splice::new(end, end, new.concat())
    }

    /// Takes out whole lines, from the start of one to the end of another, with one line feed.
    fn without_lines(&self, from: usize, to: usize) -> Splice {
        let behind = self.text.get(to..).unwrap_or_default();
        let has_line_before = self.text.get(..from).is_some_and(|before| before.ends_with('\n'));
        match behind.starts_with('\n') {
            true => Splice::new(from, to + 1, String::new()),
            false => Splice::new(from - usize::from(has_line_before), to, String::new()),
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
