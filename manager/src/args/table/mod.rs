//! Every flag in one table: it drives parsing, `--help`, the start-up warnings and `docs/flags.md`.
//!
//! Names, types and defaults are those of aws-cloud-controller-manager v1.37; those of node IPAM are
//! kube-controller-manager's, and the first group is Outrigger's.

// The rows stay one line each.
#[rustfmt::skip]
mod rows;

#[derive(Debug, Clone, Copy)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub group: &'static str,
    pub kind: Kind,
    /// Default, written as on a command line.
    pub default: &'static str,
    pub effect: Effect,
    pub help: &'static str,
}

/// How a flag's value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--flag`, `--flag=false`; never takes the next argument.
    Bool,
    Text,
    /// A whole number of at least `min` and at most `max`.
    Int {
        min: i64,
        max: i64,
    },
    /// A decimal number of at least 0.
    Float,
    /// Go's notation.
    Duration,
    /// Comma separated, repeats append.
    List,
    /// One value for each occurrence, commas are not split.
    Repeated,
    /// `key=value`, comma separated, repeats add.
    Map,
    /// `Name=true|false`, comma separated, repeats add.
    BoolMap,
    /// `--version`, `--version=raw`.
    Version,
}

/// The effect of a flag in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Works,
    /// Accepted, without effect yet. A value other than `silent` logs a warning.
    NotYet {
        reason: &'static str,
        /// The value that requests the actual behaviour.
        silent: &'static str,
    },
    /// Accepted, without effect by design. A value other than `silent` logs a warning.
    ByDesign {
        reason: &'static str,
        /// The value that requests the actual behaviour.
        silent: &'static str,
    },
    /// Accepted, without effect in the incumbent, too.
    NoEffectUpstream(&'static str),
    /// Existed in an older release of the incumbent; accepted with a warning.
    Removed(&'static str),
}

const GROUPS: &[(&str, &[Flag])] = &[
    ("outrigger", rows::OURS),
    ("generic", rows::GENERIC),
    ("cloud-node-controller", rows::NODE),
    ("cloud-node-lifecycle-controller", rows::LIFECYCLE),
    ("service-lb-controller", rows::SERVICE),
    ("node-ipam-controller", rows::NODE_IPAM),
    ("tagging controller", rows::TAGGING),
    ("leader-migration", rows::LEADER_MIGRATION),
    ("secure serving", rows::SERVING),
    ("authentication", rows::AUTHENTICATION),
    ("authorization", rows::AUTHORIZATION),
    ("webhook", rows::WEBHOOK),
    ("debugging", rows::DEBUGGING),
    ("misc", rows::MISC),
    ("logs", rows::LOGS),
    ("global", rows::GLOBAL),
    ("removed", rows::REMOVED),
];

/// Every flag, in the order of the help.
pub fn all() -> impl Iterator<Item = Flag> {
    GROUPS
        .iter()
        .flat_map(|(group, flags)| flags.iter().map(|flag| Flag { group, ..*flag }))
}

pub fn find(name: &str) -> Option<Flag> {
    all().find(|flag| flag.name == name)
}

pub fn find_short(letter: char) -> Option<Flag> {
    all().find(|flag| flag.short == Some(letter))
}
