//! Pages of the project, and the commands of their console blocks.

use anyhow::{Context, Result};
use outrigger_cluster_harness::repository;

#[derive(Debug, Clone, Default)]
pub struct Fenced {
    pub heading: String,
    language: String,
    /// The text between the block before and this one, in one line.
    pub before: String,
    pub text: String,
}

pub struct Page {
    blocks: Vec<Fenced>,
}

impl Page {
    /// Reads a page by its path in the repository.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &str) -> Result<Self> {
        let text = std::fs::read_to_string(repository::root().join(path)).context(path.to_owned())?;
        let mut blocks = Vec::new();
        let mut next = Fenced::default();
        let mut is_open = false;
        for line in text.lines() {
            match (is_open, line.strip_prefix("```")) {
                (false, Some(language)) => {
                    language.clone_into(&mut next.language);
                    is_open = true;
                }
                (false, None) if line.starts_with('#') => {
                    line.trim_start_matches(['#', ' ']).clone_into(&mut next.heading);
                }
                (false, None) => next.before += &format!("{line} "),
                (true, Some(_)) => {
                    let heading = next.heading.clone();
                    let same = Fenced {
                        heading,
                        ..Fenced::default()
                    };
                    blocks.push(std::mem::replace(&mut next, same));
                    is_open = false;
                }
                (true, None) => next.text += &format!("{line}\n"),
            }
        }
        Ok(Self { blocks })
    }

    pub fn fenced(&self, language: &'static str) -> impl Iterator<Item = Fenced> {
        let blocks = self.blocks.iter().filter(move |block| block.language == language);
        blocks.cloned()
    }
}

/// The commands of a console block. A backslash at the end of a line continues a command.
///
/// # Errors
/// When a line is no command.
pub fn commands(text: &str) -> Result<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| {
        let command = line.strip_prefix("$ ");
        Ok(command.with_context(|| format!("no command: {line}"))?.to_owned())
    });
    lines.collect()
}
