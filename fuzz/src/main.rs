//! `outrigger-fuzz replay TARGET FILE` runs one input; `outrigger-fuzz seeds TARGET FOLDER` writes the target's seeds
//! for libFuzzer.

use std::path::Path;

use anyhow::{Context, Result, bail};
use outrigger_fuzz::{all_seeds, find, quick};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [verb, name, path] = arguments.as_slice() else {
        bail!("usage: outrigger-fuzz replay TARGET FILE | outrigger-fuzz seeds TARGET FOLDER");
    };

    let target = find(name).with_context(|| format!("no fuzz target is called {name:?}"))?;
    match verb.as_str() {
        "replay" => quick::replay(
            target,
            std::fs::read(path).with_context(|| format!("cannot read {path}"))?,
        ),
        "seeds" => {
            std::fs::create_dir_all(path)?;
            for (number, seed) in all_seeds(target).iter().enumerate() {
                std::fs::write(Path::new(path).join(format!("seed-{number}")), seed)?;
            }
        }
        _ => bail!("unknown command {verb:?}: replay and seeds are known"),
    }

    Ok(())
}
