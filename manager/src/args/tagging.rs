//! The rules for the tagging controller's flags. The incumbent checks them only when that controller starts.

use std::time::Duration;

use outrigger_shared::controller::Controller;

use super::options::Options;
use super::value;

/// EC2's limits.
const MOST_TAGS: usize = 50;
const LONGEST_KEY: usize = 128;
const LONGEST_VALUE: usize = 256;
/// A search describes all instances of Nodes.
const SHORTEST_RESYNC: Duration = Duration::from_secs(1);

/// Flags that are read by the tagging controller only.
const FLAGS: [&str; 7] = [
    "resources",
    "tag-resync-period",
    "tagging-controller-burst-limit",
    "tagging-controller-concurrent-node-syncs",
    "tagging-controller-enable-batching",
    "tagging-controller-rate-limit",
    "tags",
];

fn runs(options: &Options) -> bool {
    options.general.controllers.enabled(Controller::Tagging)
}

pub(super) fn problems(options: &Options) -> Vec<String> {
    if !runs(options) {
        return Vec::new();
    }

    let (tags, resources) = (&options.tagging.tags, &options.tagging.resources);
    let mut problems = Vec::new();
    if let Some(period) = options.tagging.resync_period.filter(|period| *period < SHORTEST_RESYNC) {
        problems.push(format!(
            "--tag-resync-period={} must be 0 (disabled) or at least {}",
            value::go_duration(period),
            value::go_duration(SHORTEST_RESYNC)
        ));
    }

    if tags.is_empty() {
        problems.push("--tags is empty: the tagging controller needs some, such as --tags=team=web".into());
    }

    if resources.is_empty() {
        problems.push("--resources is empty: the tagging controller needs --resources=instance".into());
    }

    for resource in resources.iter().filter(|resource| *resource != "instance") {
        problems.push(format!("--resources={resource}: only instance can be tagged"));
    }

    if tags.len() > MOST_TAGS {
        problems.push(format!(
            "--tags: EC2 takes at most {MOST_TAGS} tags, got {}",
            tags.len()
        ));
    }

    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > LONGEST_KEY {
            problems.push(format!(
                "--tags: the key {key:?} must have 1 to {LONGEST_KEY} characters"
            ));
        }

        if value.chars().count() > LONGEST_VALUE {
            problems.push(format!(
                "--tags: the value of {key} must have at most {LONGEST_VALUE} characters"
            ));
        }

        if key.to_ascii_lowercase().starts_with("aws:") {
            problems.push(format!("--tags: the key {key:?} begins with aws:, which AWS reserves"));
        }
    }

    problems
}

/// Flags that were set for a controller that does not run.
pub(super) fn warnings(options: &Options) -> Vec<String> {
    if runs(options) {
        return Vec::new();
    }

    let set = FLAGS.into_iter().filter(|flag| options.explicitly_set(flag));
    set.map(|flag| {
        format!("--{flag} has no effect: the tagging controller does not run; add tagging-controller to --controllers")
    })
    .collect()
}
