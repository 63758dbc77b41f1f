//! Pages and their fenced blocks.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Page {
    /// Below the root of the project.
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    pub language: String,
    pub text: String,
    /// The line above the fence.
    pub above: String,
}

pub fn root() -> PathBuf {
    Path::new("..").canonicalize().unwrap()
}

pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The guides, the operations pages, and the pages that lead to them.
pub fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = ["README.md", "docs/README.md", "docs/try.md"]
        .map(PathBuf::from)
        .to_vec();
    for folder in ["docs/guides", "docs/operations"] {
        let files = fs::read_dir(root().join(folder)).unwrap();
        paths.extend(files.map(|file| Path::new(folder).join(file.unwrap().file_name())));
    }

    paths.sort();
    let read = |path: PathBuf| Page {
        text: fs::read_to_string(root().join(&path)).unwrap(),
        path,
    };
    paths.into_iter().map(read).collect()
}

/// Further pages with commands for operators.
pub fn with_commands() -> Vec<Page> {
    let others = [
        "charts/aws-cloud-controller-manager/README.md",
        "charts/outrigger/README.md",
        "docs/certificates.md",
        "docs/image.md",
        "docs/mutate.md",
        "docs/node.md",
        "docs/policies.md",
        "docs/alerts.md",
        "manifests/README.md",
    ];
    let others = others.map(|path| Page {
        path: path.into(),
        text: read(path),
    });
    pages().into_iter().chain(others).collect()
}

impl Page {
    /// A page among the guides with a planted fault.
    pub fn planted(text: &str) -> Self {
        Self {
            path: "docs/guides/planted.md".into(),
            text: text.to_owned(),
        }
    }

    pub fn is_overview(&self) -> bool {
        self.path.ends_with("README.md")
    }

    pub fn fault(&self, text: impl std::fmt::Display) -> String {
        format!("{}: {text}", self.path.display())
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        let mut above = "";
        for line in self.text.lines() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(language)) => {
                    open = Some(Block {
                        language: language.to_owned(),
                        text: String::new(),
                        above: above.to_owned(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text += &format!("{line}\n"),
                (None, None) => above = line,
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.path.display());

        blocks
    }

    /// The page without its blocks.
    pub fn prose(&self) -> String {
        let mut in_block = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if !in_block {
                prose += &format!("{line}\n");
            }
        }
        prose
    }

    /// The texts between backticks, outside of blocks. One may go on in the next line.
    pub fn code(&self) -> Vec<String> {
        let prose = self.prose();
        let parts = prose.split('`');
        parts.skip(1).step_by(2).map(|part| part.replace('\n', " ")).collect()
    }

    /// The commands of all console blocks. A line that ends with a backslash goes on in the next one.
    pub fn console(&self) -> Vec<String> {
        let blocks = self.blocks().into_iter().filter(|block| block.language == "console");
        let lines = blocks.flat_map(|block| {
            let joined = block.text.replace("\\\n", " ");
            let lines = joined.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        });
        lines.collect()
    }
}
