//! Positions and styles of the values in a text.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use super::{MAX_ALIASED, MAX_DEPTH, Refusal};
use crate::work;

/// Steps per value, and per start and end of a map or list, of both parsers.
const STEPS_PER_EVENT: usize = 20;

/// A node of a document, with its place in bytes.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub kind: Kind,
    pub start: usize,
    /// Behind its last byte; of a block map or list, behind its last leaf.
    pub end: usize,
    /// It has an anchor or a tag, so its text says more than its value.
    pub is_marked: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(ScalarStyle),
    Map { flow: bool, entries: Vec<Entry> },
    List { flow: bool, items: Vec<Node> },
    Alias,
}

/// One entry of a map. `name` is none for a key that is no plain text.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: Option<String>,
    pub key: Node,
    pub value: Node,
}

impl Node {
    pub fn child(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map { entries, .. } => entries
                .iter()
                .find(|entry| entry.name.as_deref() == Some(key))
                .map(|entry| &entry.value),
            Kind::List { items, .. } => items.get(key.parse::<usize>().ok()?),
            Kind::Scalar(_) | Kind::Alias => None,
        }
    }

    /// The node of a part that begins at this byte of the text.
    pub fn moved_by(self, bytes: usize) -> Self {
        if bytes == 0 {
            return self;
        }

        let entry = |entry: Entry| Entry {
            key: entry.key.moved_by(bytes),
            value: entry.value.moved_by(bytes),
            name: entry.name,
        };
        let kind = match self.kind {
            Kind::Map { flow, entries } => Kind::Map {
                flow,
                entries: entries.into_iter().map(entry).collect(),
            },
            Kind::List { flow, items } => Kind::List {
                flow,
                items: items.into_iter().map(|item| item.moved_by(bytes)).collect(),
            },
            leaf @ (Kind::Scalar(_) | Kind::Alias) => leaf,
        };
        Self {
            kind,
            start: self.start + bytes,
            end: self.end + bytes,
            is_marked: self.is_marked,
        }
    }

    /// Nothing at all is written there.
    pub fn is_void(&self) -> bool {
        self.start == self.end && matches!(self.kind, Kind::Scalar(ScalarStyle::Plain)) && !self.is_marked
    }
}

/// The roots of the documents that have content.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, Refusal> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let message = error.to_string();
            Refusal::Syntax(message.lines().next().unwrap_or_default().to_owned())
        })?;
        work::take(STEPS_PER_EVENT)?;
        builder.take(event, span, text)?;
    }

    Ok(builder.roots)
}

#[derive(Default)]
struct Builder {
    roots: Vec<Node>,
    open: Vec<Open>,
    /// Values below each anchor, its aliases expanded.
    anchors: HashMap<usize, usize>,
    /// Values that all aliases stand for.
    aliased: usize,
}

/// A collection whose end has not come yet; in a map keys and values take turns.
struct Open {
    is_map: bool,
    flow: bool,
    start: usize,
    is_marked: bool,
    anchor: usize,
    /// Values in it, its aliases expanded.
    values: usize,
    nodes: Vec<(Node, Option<String>)>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span, text: &str) -> Result<(), Refusal> {
        let unplaced = || Refusal::Syntax("its parts cannot be placed".to_owned());
        let start = span.start.byte_offset().ok_or_else(unplaced)?;
        let end = span.end.byte_offset().ok_or_else(unplaced)?;

        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let node = Node {
                    kind: Kind::Scalar(style),
                    start,
                    end: content_end(text, start, end),
                    is_marked: anchor != 0 || tag.is_some(),
                };
                let is_empty_document =
                    self.open.is_empty() && style == ScalarStyle::Plain && is_null(&value) && !node.is_marked;
                if !is_empty_document {
                    self.place(node, Some(value.into_owned()), anchor, 1);
                }
            }
            Event::Alias(anchor) => {
                let values = self.anchors.get(&anchor).copied().unwrap_or(1);
                self.aliased += values;
                if self.aliased > MAX_ALIASED {
                    return Err(Refusal::Aliases);
                }

                let node = Node {
                    kind: Kind::Alias,
                    start,
                    end,
                    is_marked: true,
                };
                self.place(node, None, 0, values);
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.begin(false, style, start, anchor, tag.is_some())?;
            }
            Event::MappingStart(style, anchor, tag) => self.begin(true, style, start, anchor, tag.is_some())?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let (anchor, values) = (open.anchor, open.values);
                    self.place(open.close(end), None, anchor, values);
                }
            }
            _ => {}
        }

        Ok(())
    }

    fn begin(
        &mut self,
        is_map: bool,
        style: StructureStyle,
        start: usize,
        anchor: usize,
        has_tag: bool,
    ) -> Result<(), Refusal> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Refusal::TooDeep);
        }

        self.open.push(Open {
            is_map,
            flow: style == StructureStyle::Flow,
            start,
            is_marked: anchor != 0 || has_tag,
            anchor,
            values: 1,
            nodes: Vec::new(),
        });

        Ok(())
    }

    fn place(&mut self, node: Node, text: Option<String>, anchor: usize, values: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, values);
        }

        match self.open.last_mut() {
            Some(open) => {
                open.values += values;
                open.nodes.push((node, text));
            }
            None => self.roots.push(node),
        }
    }
}

impl Open {
    fn close(self, end: usize) -> Node {
        let last = self.nodes.last().map_or(self.start, |(node, _)| node.end);
        let end = if self.flow { end } else { last };
        let flow = self.flow;
        let kind = if self.is_map {
            let mut entries = Vec::new();
            let mut nodes = self.nodes.into_iter();
            while let (Some((key, name)), Some((value, _))) = (nodes.next(), nodes.next()) {
                entries.push(Entry { name, key, value });
            }
            Kind::Map { flow, entries }
        } else {
            let items = self.nodes.into_iter().map(|(node, _)| node).collect();
            Kind::List { flow, items }
        };

        Node {
            kind,
            start: self.start,
            end,
            is_marked: self.is_marked,
        }
    }
}

/// The parser gives the start of the next value as the end of a block text; its last line ends before.
fn content_end(text: &str, start: usize, end: usize) -> usize {
    text.get(start..end).map_or(end, |own| start + own.trim_end().len())
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}
