//! `outrigger-bench manager`.

use anyhow::{Context, Result, bail};
use outrigger_bench::manager::report;
use outrigger_bench::manager::scenarios::Extent;
use outrigger_bench::report::host;

use super::common::{self, Outcome, Output};

pub(super) const USAGE: &str = "outrigger-bench manager [--quick] [--full] [--nodes=N,N] [--limited=N,N] [--no-steady] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";

pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let (extent, output) = options(arguments)?;
    let machine = host();
    common::run("manager", &output, async |folder| {
        let tools = common::tools().await?;
        let results = common::bench(&tools, folder)?.manager(&extent).await?;
        Ok(Outcome {
            table: report::manager(&results, &machine),
            passed: results.failures.is_empty(),
        })
    })
}

fn options(arguments: &[String]) -> Result<(Extent, Output)> {
    let quick = arguments.iter().any(|option| option == "--quick");
    let mut extent = if quick { Extent::quick() } else { Extent::usual() };
    let mut output = Output::default();
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--quick", "") => {}
            ("--full", "") => extent.full = true,
            ("--no-steady", "") => extent.steady = None,
            ("--by", list) => extent.candidates = common::candidates(list)?,
            ("--keep", "") => output.logs = true,
            ("--nodes", list) => extent.sizes = sizes(list).with_context(|| option.clone())?,
            ("--limited", list) => extent.limited = sizes(list).with_context(|| option.clone())?,
            ("--write", file) if !file.is_empty() => output.page = Some(file.into()),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    Ok((extent, output))
}

/// Numbers of Nodes; an empty text is none.
fn sizes(list: &str) -> Result<Vec<usize>> {
    let numbers = list.split(',').filter(|text| !text.is_empty());
    let number = |text: &str| match text.parse() {
        Ok(number @ 1..=15_000) => Ok(number),
        _ => bail!("{text:?} is no number of Nodes from 1 to 15000"),
    };
    let mut sizes = numbers.map(number).collect::<Result<Vec<usize>>>()?;
    sizes.sort_unstable();
    Ok(sizes)
}
