//! The rules of an entry, from the table of kinds.

use outrigger_shared::migration::Profile;
use serde_json::{Value, json};

use super::entries::{MIGRATIONS, Resources};
use crate::{Kind, kinds};

/// One resource, as far as a registration distinguishes it.
struct Facts {
    versions: Vec<&'static str>,
    operations: Vec<&'static str>,
    is_namespaced: bool,
    /// None: every profile needs it.
    profiles: Option<Vec<Profile>>,
}

/// One resource that API servers must send: in one of the versions, at each of the operations.
pub(super) struct Need {
    pub group: &'static str,
    pub plural: &'static str,
    pub versions: Vec<&'static str>,
    pub operations: Vec<&'static str>,
    pub scope: &'static str,
}

impl Resources {
    /// The rule of a registration for these profiles; none if they need no resource of it. Versions and operations are
    /// those of all its resources.
    pub fn rule(&self, profiles: &[Profile]) -> Option<Value> {
        let pairs: Vec<(&str, &str)> = self.pairs(profiles).collect();
        let (group, plural) = pairs.first()?;
        let is_namespaced = facts(group, plural).is_namespaced;
        let all: Vec<Facts> = self.all().map(|(group, plural)| facts(group, plural)).collect();

        let mut versions: Vec<&str> = all.iter().flat_map(|facts| facts.versions.iter().copied()).collect();
        versions.sort_by_key(|version| age(version));
        versions.dedup();
        let is_used = |one: &&str| all.iter().any(|facts| facts.operations.contains(one));
        let operations: Vec<&str> = ["CREATE", "UPDATE"].into_iter().filter(is_used).collect();

        Some(json!({
            "apiGroups": unique(pairs.iter().map(|(group, _)| *group)),
            "apiVersions": versions,
            "resources": unique(pairs.iter().map(|(_, plural)| *plural)),
            "operations": operations,
            "scope": scope(is_namespaced),
        }))
    }

    /// The requests that API servers must send for these profiles.
    pub(super) fn needs<'a>(&self, profiles: &'a [Profile]) -> impl Iterator<Item = Need> + 'a {
        self.pairs(profiles).map(|(group, plural)| {
            let facts = facts(group, plural);
            Need {
                group,
                plural,
                versions: facts.versions,
                operations: unique(facts.operations.into_iter()),
                scope: scope(facts.is_namespaced),
            }
        })
    }

    /// Group and resource of what these profiles need.
    pub fn pairs<'a>(&self, profiles: &'a [Profile]) -> impl Iterator<Item = (&'static str, &'static str)> + 'a {
        self.all().filter(|(group, plural)| is_needed(group, plural, profiles))
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let Self { groups, resources } = *self;
        groups.iter().flat_map(move |group| {
            let every = kinds().filter(|kind| resources.is_empty() && kind.group == *group);
            let plurals = unique(resources.iter().copied().chain(every.map(|kind| kind.plural)));
            plurals.into_iter().map(|plural| (*group, plural))
        })
    }
}

/// Whether a target of one of the profiles can select such an object.
pub(super) fn is_needed(group: &str, plural: &str, profiles: &[Profile]) -> bool {
    let own = facts(group, plural).profiles;
    own.is_none_or(|own| own.iter().any(|profile| profiles.contains(profile)))
}

/// The rows of a resource together: several kinds of rules may be about one.
fn facts(group: &str, plural: &str) -> Facts {
    if group == MIGRATIONS {
        return Facts {
            versions: vec!["v1alpha1"],
            operations: vec!["UPDATE"],
            is_namespaced: false,
            profiles: None,
        };
    }

    let rows: Vec<&Kind> = kinds()
        .filter(|kind| kind.group == group && kind.plural == plural)
        .collect();
    Facts {
        versions: rows.iter().flat_map(|kind| kind.versions.iter().copied()).collect(),
        operations: rows.iter().flat_map(|kind| kind.operations().iter().copied()).collect(),
        is_namespaced: rows.iter().any(|kind| kind.namespaced),
        profiles: Some(rows.iter().flat_map(|kind| kind.profiles.iter().copied()).collect()),
    }
}

const fn scope(is_namespaced: bool) -> &'static str {
    if is_namespaced { "Namespaced" } else { "Cluster" }
}

/// Sorts versions of an API group: alpha before beta before stable.
fn age(version: &str) -> (u8, String) {
    let stability = match version {
        version if version.contains("alpha") => 0,
        version if version.contains("beta") => 1,
        _ => 2,
    };
    (stability, version.to_owned())
}

pub(super) fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
