//! `outrigger verify`: whether a migration went well, by the records of the cluster.
//!
//! ```text
//! facts ─▶ figures (pure) ─▶ text, JSON
//!                        └─▶ page (pure) ─▶ one HTML file
//! ```

pub mod figures;
mod page;

use std::io::Write;

use crate::apply::error::Error as PlanError;
use crate::args::{CheckOutput, VerifyArgs};
use crate::check;
use crate::status::position::named;
use crate::{End, Failure};

use figures::{Evidence, Verdict};

/// # Errors
/// When the cluster cannot be read, has no such migration, or a file or stdout cannot be written.
pub fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<End, Failure> {
    let facts = check::given(args.facts.as_deref(), &args.cluster)?;
    let migration = named(&facts, args.name.as_deref())?;
    if !migration.needs_manager() {
        return Err(PlanError::NotPlanned {
            what: "Kubermatic has a manager of its own, and a status of its own",
            page: "docs/guides/kkp.md",
        }
        .into());
    }
    let evidence = Evidence::of(&facts, migration);
    if let Some(path) = &args.html {
        std::fs::write(path, page::html(&evidence)).map_err(|source| Failure::Page {
            path: path.clone(),
            source,
        })?;
    }

    match args.output {
        CheckOutput::Text => evidence.write_text(out)?,
        CheckOutput::Json => check::write_json(out, &evidence)?,
    }
    Ok(match evidence.verdict {
        Verdict::Proven => End::Success,
        Verdict::Refuted => End::Refused,
        Verdict::NotRecorded | Verdict::NotOver => End::NotYet,
    })
}
