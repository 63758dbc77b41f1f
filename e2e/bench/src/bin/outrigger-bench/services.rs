//! `outrigger-bench services`.

use anyhow::{Result, bail};
use outrigger_bench::report::host;
use outrigger_bench::services::environment::Kind;
use outrigger_bench::services::report;
use outrigger_bench::services::scenarios::Extent;

use super::common::{self, Outcome, Output};

pub(super) const USAGE: &str = "outrigger-bench services [--services=N] [--new=N] [--no-unchanged] [--classic-only] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";

pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let (extent, output) = options(arguments)?;
    let machine = host();
    common::run("services", &output, async |folder| {
        let tools = common::tools().await?;
        let results = common::bench(&tools, folder)?.services(&extent).await;
        Ok(Outcome {
            table: report::services(&results, &machine),
            passed: results.failures.is_empty(),
        })
    })
}

fn options(arguments: &[String]) -> Result<(Extent, Output)> {
    let mut extent = Extent::usual();
    if arguments.iter().any(|option| option == "--classic-only") {
        extent.kinds = vec![Kind::Classic];
        extent = extent.with_services(500);
    }

    let mut output = Output::default();
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--classic-only", "") => {}
            ("--no-unchanged", "") => extent.unchanged = false,
            ("--keep", "") => output.logs = true,
            ("--services", count) => extent = extent.with_services(number(count, option)?),
            ("--new", count) => extent.new = number(count, option)?,
            ("--by", list) => extent.candidates = common::candidates(list)?,
            ("--write", file) if !file.is_empty() => output.page = Some(file.into()),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    Ok((extent, output))
}

fn number(text: &str, option: &str) -> Result<usize> {
    match text.parse() {
        Ok(number @ 0..=2000) => Ok(number),
        _ => bail!("{option}: expected a number of Services from 0, which leaves it out, to 2000"),
    }
}
