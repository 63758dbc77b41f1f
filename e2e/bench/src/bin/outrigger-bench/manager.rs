//! `outrigger-bench manager`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use outrigger_bench::manager::candidate::Candidate;
use outrigger_bench::manager::report;
use outrigger_bench::manager::result::Results;
use outrigger_bench::manager::scenarios::{Bench, Extent};
use outrigger_bench::report::host;

use super::common::{self, Keeping, Outcome};

/// How it is called.
pub(super) const USAGE: &str = "outrigger-bench manager [--quick] [--full] [--nodes=N,N] [--limited=N,N] [--no-steady] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";
/// Not in use by any test, so that both can run at once.
const RANGE: &str = "127.99.0.0/16";

struct Wish {
    extent: Extent,
    keeping: Keeping,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let quick = arguments.iter().any(|option| option == "--quick");
    let mut wish = Wish {
        extent: if quick { Extent::quick() } else { Extent::usual() },
        keeping: Keeping::default(),
    };
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--quick", "") => {}
            ("--full", "") => wish.extent.full = true,
            ("--no-steady", "") => wish.extent.steady = None,
            ("--by", list) => wish.extent.candidates = candidates(list).with_context(|| option.clone())?,
            ("--keep", "") => wish.keeping.logs = true,
            ("--nodes", list) => wish.extent.sizes = sizes(list).with_context(|| option.clone())?,
            ("--limited", list) => wish.extent.limited = sizes(list).with_context(|| option.clone())?,
            ("--write", file) if !file.is_empty() => wish.keeping.document = Some(PathBuf::from(file)),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    Ok(wish)
}

/// Who takes part.
pub(super) fn candidates(list: &str) -> Result<Vec<Candidate>> {
    list.split(',')
        .map(|name| match name {
            "outrigger" => Ok(Candidate::Outrigger),
            "incumbent" => Ok(Candidate::Incumbent),
            "tuned" => Ok(Candidate::Tuned),
            _ => bail!("{name:?} is none of outrigger, incumbent, tuned"),
        })
        .collect()
}

/// Numbers of Nodes; an empty text is none.
fn sizes(list: &str) -> Result<Vec<usize>> {
    let numbers = list.split(',').filter(|text| !text.is_empty());
    let mut sizes = numbers
        .map(|text| match text.parse() {
            Ok(number @ 1..=15_000) => Ok(number),
            _ => bail!("{text:?} is no number of Nodes from 1 to 15000"),
        })
        .collect::<Result<Vec<usize>>>()?;

    sizes.sort_unstable();
    Ok(sizes)
}

/// Measures and prints; whether it is a result.
pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let wish = wish(arguments)?;
    let machine = host();
    common::run("manager", &wish.keeping, async |folder| {
        let results = measure(&wish.extent, folder).await?;
        Ok(Outcome {
            table: report::manager(&results, &machine),
            passed: results.failures.is_empty(),
        })
    })
}

async fn measure(extent: &Extent, folder: &Path) -> Result<Results> {
    let tools = common::tools().await?;
    let bench = Bench {
        tools: &tools,
        folder,
        range: RANGE,
        programs: common::programs(&tools)?,
        progress: common::say,
    };

    bench.run(extent).await
}
