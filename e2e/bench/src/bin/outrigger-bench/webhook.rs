//! `outrigger-bench webhook`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use outrigger_bench::environment::Environment;
use outrigger_bench::placement::Placement;
use outrigger_bench::report;
use outrigger_bench::results::Samples;
use outrigger_bench::review::Reviews;
use outrigger_bench::server::Candidate;
use outrigger_bench::webhook::{Comparison, Extent};
use outrigger_cluster_harness::tools::{Tool, Tools};

use super::common::{self, Outcome, Output, RANGE};

pub(super) const USAGE: &str = "outrigger-bench webhook [--rounds=N] [--seconds=N] [--write=FILE]";

/// Splits the processors before the runtime starts, so that its threads have the right affinity.
pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let (extent, output) = options(arguments)?;
    let placement = Placement::split()?;
    let machine = report::machine(placement.others);
    common::run("webhook", &output, async |folder| {
        let samples = measure(extent, placement, folder).await?;
        Ok(Outcome {
            table: report::webhook(&samples, extent, &machine),
            passed: samples.failures.is_empty(),
        })
    })
}

fn options(arguments: &[String]) -> Result<(Extent, Output)> {
    let (mut rounds, mut seconds, mut output) = (3, 2, Output::default());
    for option in arguments {
        match option.split_once('=') {
            Some(("--rounds", number)) => rounds = number.parse().with_context(|| option.clone())?,
            Some(("--seconds", number)) => seconds = number.parse().with_context(|| option.clone())?,
            Some(("--write", file)) => output.page = Some(file.into()),
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
    Ok((extent, output))
}

async fn measure(extent: Extent, placement: Placement, folder: &Path) -> Result<Samples> {
    let [etcd, api_server] = Environment::TOOLS;
    let tools = Tools::load(&[etcd, api_server, Tool::WebhookGo]).await?;
    common::say("starting etcd and kube-apiserver");

    let comparison = Comparison {
        programs: [
            (Candidate::Outrigger, common::own_program("outrigger-webhook")?),
            (Candidate::Go, tools.path(Tool::WebhookGo)?.to_owned()),
        ],
        environment: Environment::build(&tools, folder, RANGE).await?,
        placement,
        reviews: Reviews::default(),
    };
    comparison.run(extent, common::say).await
}
