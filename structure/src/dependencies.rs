//! The packages that a package needs, directly and through others.

use std::collections::{BTreeMap, BTreeSet};

use crate::packages::Package;

/// For the package itself, and for each one that it needs, the shortest chain that leads there. Dependencies of tests do not
/// count. `lock` is the text of `Cargo.lock`: it has the packages of other projects, for all platforms and for the features
/// that any package of the workspace turns on.
pub fn chains<'a>(packages: &'a [Package], lock: &'a str, package: &'a str) -> Vec<Vec<&'a str>> {
    let mut needs = locked(lock);
    for own in packages {
        needs.insert(&own.name, own.needs.iter().map(String::as_str).collect());
    }

    let mut chains = vec![vec![package]];
    let mut reached = BTreeSet::from([package]);
    let mut next = 0;
    while next < chains.len() {
        let chain = chains[next].clone();
        let needed = needs.get(chain[chain.len() - 1]).into_iter().flatten().copied();
        for name in needed.filter(|name| reached.insert(name)) {
            chains.push([chain.as_slice(), &[name]].concat());
        }
        next += 1;
    }

    chains
}

/// The packages of a lock file and their dependencies. All versions of a package are one.
fn locked(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let Some(name) = package.lines().find_map(|line| quoted(line.strip_prefix("name = ")?)) else {
            continue;
        };
        let listed = package.split_once("dependencies = [").map_or("", |(_, rest)| rest);
        let lines = listed.lines().take_while(|line| *line != "]");
        all.entry(name).or_default().extend(lines.filter_map(quoted));
    }

    all
}

/// The first word of a quoted text: a version may follow the name.
fn quoted(text: &str) -> Option<&str> {
    text.trim().strip_prefix('"')?.split([' ', '"']).next()
}
