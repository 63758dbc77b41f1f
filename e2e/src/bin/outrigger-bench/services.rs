//! `outrigger-bench services`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use outrigger_e2e::bench::manager::contender::Programs;
use outrigger_e2e::bench::manager::ground::Ground;
use outrigger_e2e::bench::report::host;
use outrigger_e2e::bench::services::course::{Bench, Extent};
use outrigger_e2e::bench::services::field::Kind;
use outrigger_e2e::bench::services::report;
use outrigger_e2e::bench::services::result::Results;
use outrigger_e2e::tools::{Tool, Tools};

/// How it is called.
pub(super) const USAGE: &str = "outrigger-bench services [--services=N] [--new=N] [--no-unchanged] [--classic-only] [--by=outrigger,incumbent,tuned] [--keep] [--write=FILE]";
/// Not in use by any test, so that both can run at once.
const RANGE: &str = "127.98.0.0/16";

struct Wish {
    extent: Extent,
    keep: bool,
    write: Option<PathBuf>,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let mut extent = Extent::usual();
    if arguments.iter().any(|option| option == "--classic-only") {
        extent.kinds = vec![Kind::Classic];
        extent = extent.with_services(500);
    }
    let mut wish = Wish {
        extent,
        keep: false,
        write: None,
    };
    for option in arguments {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--classic-only", "") => {}
            ("--no-unchanged", "") => wish.extent.unchanged = false,
            ("--keep", "") => wish.keep = true,
            ("--services", count) => wish.extent = wish.extent.with_services(number(count, option)?),
            ("--new", count) => wish.extent.new = number(count, option)?,
            ("--by", list) => {
                wish.extent.contenders = super::manager::contenders(list).with_context(|| option.clone())?
            }
            ("--write", file) if !file.is_empty() => wish.write = Some(PathBuf::from(file)),
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("outrigger-bench-").tempdir()?;
    let results = match runtime.block_on(measure(&wish.extent, folder.path())) {
        Ok(results) => results,
        Err(error) => return Err(error.context(format!("logs: {}", folder.keep().display()))),
    };
    let table = report::services(&results, &machine);
    write!(std::io::stdout(), "{table}")?;
    let passed = results.failures.is_empty();
    if !passed || wish.keep {
        super::say(&format!("logs: {}", folder.keep().display()));
    }
    if let Some(file) = wish.write.as_ref().filter(|_| passed) {
        super::write(file, "services", &table)?;
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
    Ok(bench.run(extent).await)
}
