//! Pages of the project, and the commands of their console blocks.

use anyhow::{Context, Result};
use outrigger_cluster_harness::repository;

/// A page of the project.
pub struct Page {
    /// Heading, language and text of each fenced block.
    blocks: Vec<(String, String, String)>,
}

impl Page {
    pub fn read(path: &str) -> Result<Self> {
        let text = std::fs::read_to_string(repository::root().join(path)).context(path.to_owned())?;
        let mut blocks = Vec::new();
        let mut heading = String::new();
        let mut open: Option<(String, String)> = None;
        for line in text.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => open = Some((language.to_owned(), String::new())),
                (None, None) if line.starts_with('#') => heading = line.trim_start_matches(['#', ' ']).to_owned(),
                (None, None) => {}
                (Some(_), Some(_)) => {
                    let (language, text) = open.take().context("an open block")?;
                    blocks.push((heading.clone(), language, text));
                }
                (Some((_, text)), None) => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        Ok(Self { blocks })
    }

    /// Heading and text of the blocks in a language.
    pub fn fenced(&self, language: &'static str) -> impl Iterator<Item = (String, String)> {
        let blocks = self.blocks.iter().filter(move |(_, of, _)| of == language);
        blocks.map(|(heading, _, text)| (heading.clone(), text.clone()))
    }
}

/// The commands of a console block. A backslash at the end of a line continues a command.
pub fn commands(text: &str) -> Result<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| {
        let command = line.strip_prefix("$ ");
        Ok(command.with_context(|| format!("no command: {line}"))?.to_owned())
    });
    lines.collect()
}
