//! `outrigger-bench manager`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use outrigger_e2e::bench::manager::contender::{Contender, Programs};
use outrigger_e2e::bench::manager::course::{Bench, Extent};
use outrigger_e2e::bench::manager::ground::Ground;
use outrigger_e2e::bench::manager::report;
use outrigger_e2e::bench::manager::result::Results;
use outrigger_e2e::bench::report::host;
use outrigger_e2e::tools::{Tool, Tools};

/// How it is called.
pub(super) const USAGE: &str = "outrigger-bench manager [--quick] [--full] [--nodes=N,N] [--limited=N,N] [--no-steady] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";
/// Not in use by any test, so that both can run at once.
const RANGE: &str = "127.99.0.0/16";

struct Wish {
    extent: Extent,
    keep: bool,
    write: Option<PathBuf>,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let quick = arguments.iter().any(|option| option == "--quick");
    let mut wish = Wish {
        extent: if quick { Extent::quick() } else { Extent::usual() },
        keep: false,
        write: None,
    };
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--quick", "") => {}
            ("--full", "") => wish.extent.full = true,
            ("--no-steady", "") => wish.extent.steady = None,
            ("--by", list) => wish.extent.contenders = contenders(list).with_context(|| option.clone())?,
            ("--keep", "") => wish.keep = true,
            ("--nodes", list) => wish.extent.sizes = sizes(list).with_context(|| option.clone())?,
            ("--limited", list) => wish.extent.limited = sizes(list).with_context(|| option.clone())?,
            ("--write", file) if !file.is_empty() => wish.write = Some(PathBuf::from(file)),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }
    Ok(wish)
}

/// Who takes part.
pub(super) fn contenders(list: &str) -> Result<Vec<Contender>> {
    list.split(',')
        .map(|name| match name {
            "outrigger" => Ok(Contender::Outrigger),
            "incumbent" => Ok(Contender::Incumbent),
            "tuned" => Ok(Contender::Tuned),
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("outrigger-bench-").tempdir()?;
    let results = match runtime.block_on(measure(&wish.extent, folder.path())) {
        Ok(results) => results,
        Err(error) => return Err(error.context(format!("logs: {}", folder.keep().display()))),
    };
    let table = report::manager(&results, &machine);
    write!(std::io::stdout(), "{table}")?;
    let passed = results.failures.is_empty();
    if !passed || wish.keep {
        super::say(&format!("logs: {}", folder.keep().display()));
    }
    if let Some(file) = wish.write.as_ref().filter(|_| passed) {
        super::write(file, "manager", &table)?;
    }
    Ok(passed)
}

async fn measure(extent: &Extent, folder: &Path) -> Result<Results> {
    let [etcd, api_server] = Ground::TOOLS;
    let tools = Tools::load(&[etcd, api_server, Tool::MotoPython, Tool::AwsCloudControllerManager]).await?;
    let bench = Bench {
        tools: &tools,
        folder,
        range: RANGE,
        programs: Programs {
            ours: super::own_program("outrigger-manager")?,
            incumbent: tools.path(Tool::AwsCloudControllerManager)?.to_owned(),
        },
        progress: super::say,
    };
    bench.run(extent).await
}
