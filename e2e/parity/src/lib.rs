//! Parity of Nodes, and of Services ([`services`]): the incumbent and our manager get the same Node and the same AWS.
//!
//! ```text
//! case file ─▶ API server: the Node ─▶ controller manager ─▶ the Node in the end ─▶ record, or compare
//!          └─▶ scripted EC2 ─────────────────▲
//! ```
//!
//! Each file of `e2e/parity/nodes` is a case. `make parity-record` runs the incumbent and writes `recorded:`.
//! `e2e/tests/parity.rs` runs our manager on the same cases and compares.

pub mod aws;
pub mod case;
pub mod compare;
mod harness;
pub mod page;
pub mod services;
mod subject;

use std::path::Path;

use anyhow::{Context, Result, bail};

pub use case::{Case, Outcome};
pub use harness::{run, run_as};
pub use subject::Subject;

/// The objects of the cases of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nodes,
    Services,
}

impl Kind {
    /// Every case file has a key `node` or a key `service`.
    ///
    /// # Errors
    /// A folder without cases, and one with both kinds.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut kinds = Vec::new();
        for path in case::files(folder)? {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let is = |key: &str| case::input_of(&text).lines().any(|line| line.starts_with(key));
            kinds.push(match (is("node:"), is("service:")) {
                (true, false) => Self::Nodes,
                (false, true) => Self::Services,
                _ => bail!("{}: a case has either a key `node` or a key `service`", path.display()),
            });
        }

        kinds.dedup();
        match kinds.as_slice() {
            [kind] => Ok(*kind),
            [] => bail!("{}: no case in this folder; a case is a file *.yaml", folder.display()),
            _ => bail!(
                "{}: Nodes and Services; give each kind a folder of its own",
                folder.display()
            ),
        }
    }
}
