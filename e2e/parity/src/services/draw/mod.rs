//! Random cases: Services, their environment and their steps.
//!
//! The same seed draws the same cases. Most values are usual, some are unusual or refused by a manager. Values that the
//! API server refuses are not drawn, because no controller observes them.

mod annotations;
mod environment;
pub mod judge;
mod rng;
mod service;
mod steps;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use environment::History;
use rng::Rng;
use service::Draft;

/// Writes `count` cases into the folder, which it creates if necessary.
///
/// # Errors
/// When a file cannot be written.
pub fn draw(seed: u64, count: usize, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for number in 1..=count {
        let path = folder.join(format!("drawn-{seed}-{number:03}.yaml"));
        let text = serde_saphyr::to_string(&case(seed, number))?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The content of a case's file.
fn case(seed: u64, number: usize) -> Value {
    let mut rng = Rng::new(seed, number);
    let config = environment::config(&mut rng);
    let mut draft = Draft::drawn(&mut rng);
    let service = draft.manifest();
    let plain = config == json!({});
    let mut so_far = History::default();
    // Some Nodes have the labels that a later step may require.
    let labels = if rng.chance(30) { "role" } else { "" };
    let nodes = environment::nodes_before(&mut rng, &format!("{service}{labels}"), &mut so_far);
    let steps = steps::drawn(&mut rng, &mut draft, plain, &mut so_far);
    let text = format!("{service}{}", json!(steps));
    let aws = environment::aws(&mut rng, &text);

    json!({
        "about": format!("Drawn at random: seed {seed}, number {number}."),
        "config": config,
        "aws": aws,
        "nodes": nodes,
        "service": service,
        "steps": steps,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::case::load;
    use super::annotations::{KNOWN, PREFIX};
    use super::{case, draw};

    #[test]
    fn the_same_seed_draws_the_same_cases_and_each_is_read_as_it_was_drawn() {
        let folder = tempfile::tempdir().expect("folder");
        draw(7, 300, folder.path()).expect("drawn");
        let cases = load(folder.path()).expect("all are cases");
        assert_eq!(cases.len(), 300);
        for (number, read) in (1..).zip(&cases) {
            let drawn = case(7, number);
            assert_eq!(drawn, case(7, number));
            assert_eq!(read.name, format!("drawn-7-{number:03}"));
            assert_eq!(read.service, drawn["service"], "{}", read.name);
            let steps = drawn["steps"].as_array().expect("steps");
            assert_eq!(read.steps.len(), steps.len());
            for (read, drawn) in read.steps.iter().zip(steps) {
                assert_eq!(read.patch, drawn["patch"]);
            }
        }
        assert_ne!(case(7, 1)["service"], case(8, 1)["service"]);
    }

    #[test]
    fn every_annotation_action_and_setting_is_drawn() {
        let drawn: Vec<Value> = (1..600).map(|number| case(1, number)).collect();
        let text: String = drawn.iter().map(ToString::to_string).collect();
        for known in &KNOWN {
            assert!(
                text.contains(&format!("{PREFIX}{}\"", known.suffix)),
                "{}",
                known.suffix
            );
        }
        for words in [
            "\"nlb\"",
            "\"external\"",
            "UDP",
            "ClientIP",
            "Local",
            "ClusterIP",
            "Managed",
            "<sg:extra>",
            "<eip-1>",
            "node-7",
            "DeleteLoadBalancer",
            "load-balancer-source-ranges",
            "us-east-1d",
            "\"no-op\"",
            "\"delete\"",
            "SCTP",
            "2001:db8::",
            "99999999999",
            "example.com/",
            "loadBalancerClass",
            "StopInstances",
            "bare-1",
            "Unknown",
            "KubernetesClusterTag",
        ] {
            assert!(text.contains(words), "{words}");
        }
        let sizes: BTreeSet<usize> = drawn
            .iter()
            .filter_map(|case| case["service"]["spec"]["ports"].as_array())
            .map(Vec::len)
            .collect();
        assert_eq!(sizes, BTreeSet::from([1, 2, 3, 4, 5]));
    }
}
