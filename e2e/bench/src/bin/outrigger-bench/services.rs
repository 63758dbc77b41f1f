//! `outrigger-bench services`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use outrigger_bench::report::host;
use outrigger_bench::services::environment::Kind;
use outrigger_bench::services::report;
use outrigger_bench::services::result::Results;
use outrigger_bench::services::scenarios::{Bench, Extent};

use super::common::{self, Keeping, Outcome};

/// How it is called.
pub(super) const USAGE: &str = "outrigger-bench services [--services=N] [--new=N] [--no-unchanged] [--classic-only] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";
/// Not in use by any test, so that both can run at once.
const RANGE: &str = "127.98.0.0/16";

struct Wish {
    extent: Extent,
    keeping: Keeping,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let mut extent = Extent::usual();
    if arguments.iter().any(|option| option == "--classic-only") {
        extent.kinds = vec![Kind::Classic];
        extent = extent.with_services(500);
    }

    let mut wish = Wish {
        extent,
        keeping: Keeping::default(),
    };
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--classic-only", "") => {}
            ("--no-unchanged", "") => wish.extent.unchanged = false,
            ("--keep", "") => wish.keeping.logs = true,
            ("--services", count) => wish.extent = wish.extent.with_services(number(count, option)?),
            ("--new", count) => wish.extent.new = number(count, option)?,
            ("--by", list) => {
                wish.extent.candidates = super::manager::candidates(list).with_context(|| option.clone())?
            }
            ("--write", file) if !file.is_empty() => wish.keeping.document = Some(PathBuf::from(file)),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    Ok(wish)
}

fn number(text: &str, option: &str) -> Result<usize> {
    match text.parse() {
        Ok(number @ 0..=1000) => Ok(number),
        _ => bail!("{option}: expected a number of Services from 0, which leaves it out, to 1000"),
    }
}

/// Measures and prints; whether it is a result.
pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let wish = wish(arguments)?;
    let machine = host();
    common::run("services", &wish.keeping, async |folder| {
        let results = measure(&wish.extent, folder).await?;
        Ok(Outcome {
            table: report::services(&results, &machine),
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

    Ok(bench.run(extent).await)
}
