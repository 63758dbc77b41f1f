//! `outrigger-bench builds`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use outrigger_bench::builds::{self, Build, Extent, Values};
use outrigger_bench::environment::Environment;
use outrigger_bench::placement::Placement;
use outrigger_bench::report;

use super::common::{self, Outcome, Output, RANGE};

pub(super) const USAGE: &str =
    "outrigger-bench builds [--rounds=N] [--seconds=N] [--nodes=N] [--write=FILE] NAME=FOLDER NAME=FOLDER...";

pub(super) fn run(arguments: &[String]) -> Result<bool> {
    let (builds, extent, output) = options(arguments)?;
    // Before the runtime starts, so that its threads have the right affinity.
    let placement = Placement::split()?;
    let machine = report::host();
    common::run("builds", &output, async |folder| {
        let values = measure(&builds, extent, placement, folder).await?;
        let head = format!(
            "{machine}\nRounds: {}; {} s for each load. Medians of all rounds.",
            extent.rounds,
            extent.load.as_secs_f64()
        );
        Ok(Outcome {
            table: format!("{head}\n\n{}", values.table()),
            passed: true,
        })
    })
}

fn options(arguments: &[String]) -> Result<(Vec<Build>, Extent, Output)> {
    let (mut builds, mut output) = (Vec::new(), Output::default());
    let mut extent = Extent {
        rounds: 5,
        load: Duration::from_secs(3),
        nodes: 1000,
    };
    for option in arguments {
        let number = |text: &str| match text.parse::<u16>() {
            Ok(number @ 1..=1000) => Ok(number),
            _ => bail!("{option}: expected a number from 1 to 1000"),
        };
        match option.split_once('=') {
            Some(("--rounds", text)) => extent.rounds = number(text)?.into(),
            Some(("--seconds", text)) => extent.load = Duration::from_secs(number(text)?.into()),
            Some(("--nodes", text)) => extent.nodes = number(text)?.into(),
            Some(("--write", file)) if !file.is_empty() => output.page = Some(file.into()),
            Some((name, folder)) if !name.starts_with('-') => builds.push(Build {
                name: name.to_owned(),
                folder: folder.into(),
            }),
            _ => bail!("{option:?}; usage: {USAGE}"),
        }
    }

    if builds.len() < 2 {
        bail!("a comparison needs two builds or more; usage: {USAGE}");
    }
    Ok((builds, extent, output))
}

async fn measure(builds: &[Build], extent: Extent, placement: Placement, folder: &Path) -> Result<Values> {
    let tools = common::tools().await?;
    let mut values = Values::of(builds);
    {
        common::say("starting etcd and kube-apiserver");
        let environment = Environment::build(&tools, folder, RANGE).await?;
        builds::webhooks(builds, extent, &environment, placement, &mut values, common::say)
            .await
            .context("the webhooks")?;
    }

    let mut bench = common::bench_of(&tools, folder, builds[0].folder.join("outrigger-manager"))?;
    builds::managers(builds, extent, &mut bench, &mut values)
        .await
        .context("the managers")?;
    Ok(values)
}
