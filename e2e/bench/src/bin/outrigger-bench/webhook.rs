//! `outrigger-bench webhook`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use outrigger_bench::environment::Environment;
use outrigger_bench::placement::Placement;
use outrigger_bench::report;
use outrigger_bench::review::Reviews;
use outrigger_bench::server::Candidate;
use outrigger_bench::webhook::{Extent, Match};
use outrigger_cluster_harness::tools::{Tool, Tools};

use super::common;

/// How it is called.
pub(super) const USAGE: &str = "outrigger-bench webhook [--rounds=N] [--seconds=N] [--write=FILE]";
/// Not in use by any test, so that both can run at once.
const RANGE: &str = "127.98.0.0/16";

struct Wish {
    extent: Extent,
    write: Option<PathBuf>,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let (mut rounds, mut seconds, mut write) = (3, 2, None);
    for option in arguments {
        match option.split_once('=') {
            Some(("--rounds", number)) => rounds = number.parse().with_context(|| option.clone())?,
            Some(("--seconds", number)) => seconds = number.parse().with_context(|| option.clone())?,
            Some(("--write", file)) => write = Some(PathBuf::from(file)),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    if rounds == 0 || seconds == 0 {
        bail!("--rounds and --seconds are 1 or more");
    }

    let extent = Extent {
        rounds,
        saturated: Duration::from_secs(seconds),
        paced: Duration::from_secs(5 * seconds),
    };

    Ok(Wish { extent, write })
}

/// Measures and prints; whether it is a result. The processors are split before the runtime starts, so that its threads
/// begin where they belong.
pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let wish = &wish(arguments)?;
    let placement = Placement::split()?;
    let machine = report::machine(placement.others);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::Builder::new().prefix("outrigger-bench-").tempdir()?;
    let measured = runtime.block_on(measure(wish, placement, folder.path()));
    let samples = match measured {
        Ok(samples) => samples,
        Err(error) => return Err(error.context(format!("logs: {}", folder.keep().display()))),
    };
    let table = report::webhook(&samples, wish.extent, &machine);
    write!(std::io::stdout(), "{table}")?;

    // A run with failed requests is no result.
    let passed = samples.failures.is_empty();
    if let Some(file) = wish.write.as_ref().filter(|_| passed) {
        common::write(file, "webhook", &table)?;
    }

    Ok(passed)
}

async fn measure(wish: &Wish, placement: Placement, folder: &Path) -> Result<outrigger_bench::results::Samples> {
    let [etcd, api_server] = Environment::TOOLS;
    let tools = Tools::load(&[etcd, api_server, Tool::WebhookGo]).await?;
    common::say("starting etcd and kube-apiserver");

    let ours = common::own_program("outrigger-webhook")?;
    let both = Match {
        programs: [
            (Candidate::Outrigger, ours),
            (Candidate::Go, tools.path(Tool::WebhookGo)?.to_owned()),
        ],
        environment: Environment::build(&tools, folder, RANGE).await?,
        placement,
        reviews: Reviews::default(),
    };

    both.run(wish.extent, common::say).await
}
