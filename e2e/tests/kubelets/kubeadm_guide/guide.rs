//! The commands of a page, by section. A block that is not listed here is an error, so a page and its test stay together.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use outrigger_e2e::page::{Fenced, Page, commands};

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

/// A sentence of this form stands before the block that reads the file.
const COPIES: [&str; 2] = [
    "`current.yaml` to each control-plane machine",
    "`current.yaml` to each machine",
];

use Place::{AfterEachMachine, Machines, Operator, Workers};

/// The blocks of `docs/guides/kubeadm.md`, in order.
const BLOCKS: [(&str, &[Place]); 6] = [
    ("Prerequisites", &[Operator]),
    ("1. InTree", &[Operator]),
    ("2. Prepare", &[Operator, Machines, AfterEachMachine, Operator]),
    ("3. Migrate", &[Operator, Machines, Operator]),
    (
        "4. Complete",
        &[Operator, Machines, Workers, AfterEachMachine, Operator],
    ),
    (
        "Go back",
        &[
            Operator,
            Operator,
            Machines,
            Operator,
            Machines,
            Operator,
            Operator,
            Machines,
            AfterEachMachine,
        ],
    ),
];

/// A block of commands.
#[derive(Debug, Clone)]
pub struct Block {
    pub place: Place,
    pub lines: Vec<String>,
    /// Whether the text before the block says to copy `current.yaml` to the machines.
    pub copies: bool,
}

impl Block {
    fn new(place: Place, fenced: &Fenced) -> Result<Self> {
        let lines = commands(&fenced.text)?;
        let programs: &[&str] = match place {
            Machines | Workers => &["outrigger node ", "systemctl "],
            Operator | AfterEachMachine => &["kubectl ", "helm "],
        };
        let is_known = |line: &String| programs.iter().any(|program| line.starts_with(program));
        ensure!(lines.iter().all(is_known), "{place:?} does not fit {lines:?}");

        let copies = COPIES.iter().any(|text| fenced.before.contains(text));
        ensure!(
            !copies || place == Machines,
            "a file is copied before a block that does not read it: {lines:?}"
        );
        Ok(Self { place, lines, copies })
    }
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
            .find(|fenced| fenced.text.contains("kind: CloudProviderMigration"));
        let migration = migration.context("the guide has no CloudProviderMigration")?.text;

        let mut found = page.fenced("console");
        let mut sections = BTreeMap::new();
        for (section, places) in BLOCKS {
            let mut blocks = Vec::new();
            for place in places {
                let fenced = found.next().with_context(|| format!("{section}: a block is gone"))?;
                ensure!(
                    fenced.heading == section,
                    "a block of {section} is elsewhere: {fenced:?}"
                );
                blocks.push(Block::new(*place, &fenced)?);
            }
            sections.insert(section, blocks);
        }
        if let Some(fenced) = found.next() {
            anyhow::bail!("this test does not know the block {fenced:?}");
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
    let copies = |section: &str| {
        let blocks = guide.section(section).unwrap();
        blocks.iter().filter(|block| block.copies).count()
    };
    let sections = ["1. InTree", "2. Prepare", "3. Migrate", "4. Complete", "Go back"];
    assert_eq!(sections.map(copies), [0, 1, 1, 1, 1]);
}
