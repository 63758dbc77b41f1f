//! The command line that Kubermatic's http-prober starts: `-command '{"command":"/bin/x","args":["--flag","value"]}'`.
//!
//! The text is read, changed as any command line, and written again. Only a text that our writing gives back byte for
//! byte is changed, so a change never touches anything else, and its undoing gives the original text.

use std::fmt::Write;
use std::sync::Arc;

use serde::Deserialize;

use crate::work;

use super::STEPS_PER_VARIABLE;
use super::error::{MAX_TOKENS, Unreadable};
use super::line::{CommandLine, Edit, Environment, Style};

/// The program that waits for the API server, then starts the command.
pub(super) const PROBER: &str = "http-prober";

/// Longest JSON text that is read, in bytes. Real ones have fewer than 5,000.
const MAX_BYTES: usize = 1 << 18;

#[derive(Clone, Debug)]
pub(super) struct Wrapped {
    pub inner: CommandLine,
    /// Position of the JSON in `command` followed by `args`.
    position: usize,
    /// The text before the JSON in its token: `-command=`, or nothing.
    prefix: String,
    layout: Layout,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layout {
    spaced: bool,
    args_first: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    command: Command,
    args: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Program(String),
    Words(Vec<String>),
}

impl CommandLine {
    /// The command line in the prober's JSON; none where the program is another.
    pub(super) fn wrapped(&self) -> Result<Option<Wrapped>, Unreadable> {
        let located = self.locate_outside()?;
        if located.program.as_deref() != Some(PROBER) {
            return Ok(None);
        }

        let tokens = self.written_tokens();
        let mut found = None;
        if matches!(tokens.last(), Some(&("-command" | "--command"))) {
            return Err(unreadable("is missing; write it after -command"));
        }

        for position in located.flags_from..tokens.len() {
            let Some(place) = json_of(&tokens, position) else {
                continue;
            };
            if found.replace(place).is_some() {
                return Err(unreadable("is written twice; remove one"));
            }
        }

        // It is parsed anew for each flag.
        work::take(found.map_or(0, |(_, _, text)| 2 * text.len()))?;
        found
            .map(|(position, prefix, text)| Wrapped::parse(position, prefix, text, &self.environment))
            .transpose()
    }

    /// Changes the wrapped command line, and so the token that holds it.
    pub(super) fn change_wrapped(
        &mut self,
        mut wrapped: Wrapped,
        change: impl FnOnce(&mut Self) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        change(&mut wrapped.inner)?;
        let edits = std::mem::take(&mut wrapped.inner.edits);
        self.put(&wrapped);
        self.edits
            .extend(edits.into_iter().map(|edit| Edit { json: true, ..edit }));
        Ok(())
    }

    /// Writes the wrapped command line back into its token.
    pub(super) fn put(&mut self, wrapped: &Wrapped) {
        let (list, index) = self.place(wrapped.position);
        let tokens = self.list_mut(list).as_mut();
        if let Some(token) = tokens.and_then(|tokens| tokens.get_mut(index)) {
            *token = format!("{}{}", wrapped.prefix, wrapped.write(wrapped.layout));
        }
    }
}

/// The JSON that begins with the token at a position: its position, the text before it, and its text.
fn json_of<'a>(tokens: &[&'a str], position: usize) -> Option<(usize, &'a str, &'a str)> {
    let token = tokens.get(position)?;
    match token.split_once('=') {
        Some(("-command" | "--command", text)) => Some((position, token.strip_suffix(text)?, text)),
        None if matches!(*token, "-command" | "--command") => Some((position + 1, "", tokens.get(position + 1)?)),
        _ => None,
    }
}

impl Wrapped {
    fn parse(position: usize, prefix: &str, text: &str, environment: &Environment) -> Result<Self, Unreadable> {
        if text.len() > MAX_BYTES {
            return Err(unreadable(format!(
                "has {} bytes, more than the {MAX_BYTES} that are read; shorten it",
                text.len()
            )));
        }

        let document: Document = serde_json::from_str(text).map_err(|error| {
            unreadable(format!(
                "is not an object with \"command\" and \"args\" ({error}); correct it"
            ))
        })?;
        let (style, command) = match document.command {
            Command::Program(program) => (Style::Json, vec![program]),
            Command::Words(words) => (Style::Container, words),
        };
        let tokens = command.len() + document.args.as_ref().map_or(0, Vec::len);
        if tokens > MAX_TOKENS {
            return Err(Unreadable::TooLong { tokens });
        }

        // The kubelet expands the whole text, so a value that JSON would escape is not known here.
        let plain = |value: &str| serde_json::Value::from(value).to_string().len() == value.len() + 2;
        let mut inner = CommandLine::new(style, Some(command), document.args);
        work::take(STEPS_PER_VARIABLE * environment.len())?;
        let mut plain_values = environment.clone();
        plain_values.retain(|_, value| plain(value));
        inner.environment = Arc::new(plain_values);
        inner.expand();
        if inner.locate_outside()?.program.as_deref() == Some(PROBER) {
            return Err(unreadable("starts another http-prober; start the component itself"));
        }

        let mut wrapped = Self {
            inner,
            position,
            prefix: prefix.to_owned(),
            layout: Layout::default(),
        };

        wrapped.layout = wrapped.layout_of(text).ok_or_else(|| {
            unreadable("is written in a way that could not be restored; write it compactly, as json.Marshal of Go does")
        })?;

        Ok(wrapped)
    }

    /// The layout that gives the text back; none where no layout does.
    fn layout_of(&self, text: &str) -> Option<Layout> {
        let layouts = [(false, false), (true, false), (false, true), (true, true)];
        layouts
            .into_iter()
            .map(|(spaced, args_first)| Layout { spaced, args_first })
            .find(|layout| self.write(*layout) == text)
    }

    fn write(&self, layout: Layout) -> String {
        let (comma, colon) = if layout.spaced { (", ", ": ") } else { (",", ":") };
        let words = self.inner.command.as_deref().unwrap_or_default();
        let command = if self.inner.style == Style::Json {
            words.first().map(|word| string(word)).unwrap_or_default()
        } else {
            array(words, comma)
        };
        let mut fields = vec![format!("\"command\"{colon}{command}")];

        if let Some(args) = &self.inner.args {
            fields.push(format!("\"args\"{colon}{}", array(args, comma)));
        }

        if layout.args_first {
            fields.reverse();
        }

        format!("{{{}}}", fields.join(comma))
    }
}

fn array(words: &[String], comma: &str) -> String {
    let words: Vec<String> = words.iter().map(|word| string(word)).collect();
    format!("[{}]", words.join(comma))
}

/// A JSON string as Go writes it: with `<`, `>`, `&` and the two line separators as escapes.
fn string(text: &str) -> String {
    let plain = serde_json::Value::from(text).to_string();
    let mut escaped = String::with_capacity(plain.len());
    for character in plain.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            }
            other => escaped.push(other),
        }
    }

    escaped
}

fn unreadable(problem: impl Into<String>) -> Unreadable {
    Unreadable::WrappedJson {
        problem: problem.into(),
    }
}
