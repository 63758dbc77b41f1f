//! The commands of a page, by section. A block that is not listed here is an error, so a page and its test stay together.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::page::{Page, commands};

/// Where the text of the guide says that a block is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Where kubectl works.
    Operator,
    /// On one control-plane machine after the other.
    Machines,
    /// Where kubectl works, after each machine of the block before.
    AfterEachMachine,
    /// On one worker after the other.
    Workers,
}

use Place::{AfterEachMachine, Machines, Operator, Workers};

/// The blocks of `docs/guides/kubeadm.md`, in order.
const BLOCKS: [(&str, &[Place]); 5] = [
    ("1. InTree", &[Operator]),
    ("2. Prepare", &[Operator, Machines, AfterEachMachine, Operator]),
    ("3. Migrate", &[Operator, Machines, Operator]),
    ("4. Complete", &[Operator, Machines, Workers, Operator]),
    ("Go back", &[Operator, Operator, Machines, Operator, Machines]),
];

/// A block of commands.
#[derive(Debug, Clone)]
pub struct Block {
    pub place: Place,
    pub lines: Vec<String>,
}

/// The guide's migration, and the blocks of each section.
pub struct Guide {
    pub migration: String,
    sections: BTreeMap<&'static str, Vec<Block>>,
}

impl Guide {
    pub fn read() -> Result<Self> {
        let page = Page::read("docs/guides/kubeadm.md")?;
        let migration = page
            .fenced("yaml")
            .find(|(_, text)| text.contains("kind: CloudProviderMigration"));
        let (_, migration) = migration.context("the guide has no CloudProviderMigration")?;

        let mut found = page.fenced("console");
        let mut sections = BTreeMap::new();
        for (section, places) in BLOCKS {
            let mut blocks = Vec::new();
            for place in places {
                let (heading, text) = found.next().with_context(|| format!("{section}: a block is gone"))?;
                ensure!(heading == section, "a block of {section} is in {heading}: {text}");
                let lines = commands(&text)?;
                let on_machine = |line: &String| line.starts_with("outrigger node") || line.starts_with("systemctl");
                let is_of_machines = matches!(place, Machines | Workers);
                let is_known = match is_of_machines {
                    // The guide leads from section to section with the first and the last command of such a block.
                    true => lines.iter().any(on_machine),
                    false => lines.iter().all(|line| line.starts_with("kubectl ")),
                };
                ensure!(is_known, "{section}: {place:?} does not fit {lines:?}");
                blocks.push(Block { place: *place, lines });
            }
            sections.insert(section, blocks);
        }
        if let Some((heading, text)) = found.next() {
            anyhow::bail!("{heading}: this test does not know the block {text}");
        }
        Ok(Self { migration, sections })
    }

    pub fn section(&self, name: &str) -> Result<&[Block]> {
        let blocks = self.sections.get(name);
        Ok(blocks.with_context(|| format!("no section {name}"))?)
    }
}

#[test]
fn every_block_of_the_guide_is_known() {
    let guide = Guide::read().unwrap();
    assert!(guide.migration.contains("KubeadmConfig"));
}
