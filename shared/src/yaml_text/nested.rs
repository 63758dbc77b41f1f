//! A YAML text inside a YAML text.

use granit_parser::ScalarStyle;
use serde_json::Value;

use super::{LineEdit, Refusal, YamlText, edit::walk, put, tree::Kind};

impl YamlText {
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
        let mut inner = Self::parse(text.ok_or_else(|| refused("is no text"))?)?;
        let result = change(&mut inner)?;
        if inner.edits.is_empty() {
            return Ok(result);
        }

        let root = self.roots.get(document).ok_or_else(|| refused("is not there"))?;
        let (node, _) = walk(root, path);
        match node.kind {
            Kind::Scalar(ScalarStyle::Literal) if !node.is_marked => {
                let text = self.with_inner(node.start, node.end, &inner.edits);
                let text = text.ok_or_else(|| refused("has an indentation that is not understood"))?;
                let refusal = refused("is written in a way that no edit can change safely");
                let mut intended = self.documents.clone();

                if let Some(value) = intended.get_mut(document) {
                    put(value, path, Value::from(inner.text));
                }

                self.commit(text, &intended, || refusal)?;
            }
            Kind::Scalar(ScalarStyle::Folded) => return Err(refused("is a folded text (>)").into()),
            _ => self.set(document, path, &inner.text)?,
        }

        Ok(result)
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
}
