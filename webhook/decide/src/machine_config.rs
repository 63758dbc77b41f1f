//! **How Rancher computes the configuration of one machine**, and so where a flag must be written to take effect.
//!
//! `spec.rkeConfig` of a cluster of RKE2 or K3s has one `machineGlobalConfig` and a list `machineSelectorConfig`, whose
//! entries have a `machineLabelSelector` and a `config`. For each machine, Rancher
//!
//! 1. begins with `machineGlobalConfig`,
//! 2. goes through the entries in their order, and takes those whose selector matches the labels of the machine (no
//!    selector, or an empty one, matches every machine),
//! 3. puts each *key* of such an entry in the place of whatever was there. **Nothing is merged below the key.**
//!
//! The third step is the pitfall. With `kubelet-arg: [max-pods=250]` for all machines and `kubelet-arg:
//! [cloud-provider=external]` in an entry, the machines of that entry lose `max-pods`; the other way round they lose
//! their cloud provider. A key with `null` removes the value. So a flag is never added by a new entry, which would
//! replace the existing list. It is written into every list that is *effective* for some machine of a class: the last
//! one that surely matches, and each one after it that may match, because its selector requires labels that are not
//! known here. Where no list is effective, the flag is written into `machineGlobalConfig`, which has the lowest
//! precedence and replaces nothing.
//!
//! Keys without a meaning on a machine do no harm: Rancher omits server keys on machines that are only workers.

use std::{collections::BTreeSet, fmt};

use outrigger_shared::work;
use serde_json::{Map, Value};

use crate::patch::Path;

/// The label of a machine with a role; its value is `true`. Without the role there is no label.
const ROLE_LABELS: [&str; 3] = [
    "rke.cattle.io/control-plane-role",
    "rke.cattle.io/etcd-role",
    "rke.cattle.io/worker-role",
];

/// Steps to compare a section with every combination of roles.
const STEPS_PER_SECTION: usize = 50;

/// The roles of a machine, which determine its known labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Roles {
    pub control_plane: bool,
    pub etcd: bool,
    pub worker: bool,
}

impl Roles {
    /// Every combination that has a role.
    pub fn all() -> impl Iterator<Item = Self> {
        (1_u8..8).map(|bits| Self {
            control_plane: bits & 1 != 0,
            etcd: bits & 2 != 0,
            worker: bits & 4 != 0,
        })
    }

    /// Whether it is a server of the distribution, not just an agent.
    pub const fn is_server(self) -> bool {
        self.control_plane || self.etcd
    }

    pub const fn any(self) -> bool {
        self.control_plane || self.etcd || self.worker
    }

    /// Whether it has the label; none for a label that is not about roles.
    fn has(self, label: &str) -> Option<bool> {
        let [control_plane, etcd, worker] = ROLE_LABELS;
        match label {
            _ if label == control_plane => Some(self.control_plane),
            _ if label == etcd => Some(self.etcd),
            _ if label == worker => Some(self.worker),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Global,
    /// The entry of `machineSelectorConfig` with this index.
    Selector(usize),
}

impl Section {
    pub fn path(self) -> Path {
        let config = Path::new(&["spec", "rkeConfig"]);
        match self {
            Self::Global => config.child("machineGlobalConfig"),
            Self::Selector(index) => config.child("machineSelectorConfig").index(index).child("config"),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => formatter.write_str("machineGlobalConfig"),
            Self::Selector(index) => write!(formatter, "machineSelectorConfig[{index}]"),
        }
    }
}

/// Whether a selector matches a machine, by its roles alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Perhaps,
    Yes,
}

impl From<bool> for Match {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

#[derive(Clone, Debug)]
pub(super) struct MachineConfig<'a> {
    global: Option<&'a Map<String, Value>>,
    /// All entries as written, so that indices stay valid.
    pub entries: &'a [Value],
}

impl<'a> MachineConfig<'a> {
    pub fn of(object: &'a Value) -> Self {
        let found = |pointer| object.pointer(pointer);
        let entries = found("/spec/rkeConfig/machineSelectorConfig").and_then(Value::as_array);
        Self {
            global: found("/spec/rkeConfig/machineGlobalConfig").and_then(Value::as_object),
            entries: entries.map_or(&[], Vec::as_slice),
        }
    }

    /// Every section, in ascending precedence.
    pub fn places(&self) -> impl Iterator<Item = (Section, &'a Map<String, Value>)> {
        let entries = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let config = entry.get("config")?.as_object()?;
            Some((Section::Selector(index), config))
        });
        self.global
            .map(|config| (Section::Global, config))
            .into_iter()
            .chain(entries)
    }

    /// The sections whose value of the key is effective for some machine of the class. None stands for machines without
    /// the key.
    pub fn counting(&self, key: &str, class: fn(Roles) -> bool) -> BTreeSet<Option<Section>> {
        let mut all = BTreeSet::new();
        // Callers ask for each list, and each list may be in each section.
        if work::take(STEPS_PER_SECTION * (self.entries.len() + 1)).is_err() {
            return all;
        }

        for roles in Roles::all().filter(|roles| class(*roles)) {
            let mut here = BTreeSet::from([None]);
            for (place, _) in self.places().filter(|(_, config)| config.contains_key(key)) {
                match self.reaches(place, roles) {
                    Match::Yes => here = BTreeSet::from([Some(place)]),
                    Match::Perhaps => drop(here.insert(Some(place))),
                    Match::No => {}
                }
            }

            all.append(&mut here);
        }

        all
    }

    /// The effective values for the machines of the class; none for machines without a value, or with null.
    pub fn values(&self, key: &str, class: fn(Roles) -> bool) -> Vec<Option<&'a Value>> {
        let value = |place: Option<Section>| self.value(place?, key).filter(|value| !value.is_null());
        self.counting(key, class).into_iter().map(value).collect()
    }

    pub fn value(&self, place: Section, key: &str) -> Option<&'a Value> {
        let config = match place {
            Section::Global => self.global?,
            Section::Selector(index) => self.entries.get(index)?.get("config")?.as_object()?,
        };
        config.get(key)
    }

    /// Whether a machine with these roles may match both.
    pub fn overlap(&self, one: Section, other: Section, roles: Roles) -> bool {
        self.reaches(one, roles) > Match::No && self.reaches(other, roles) > Match::No
    }

    fn reaches(&self, place: Section, roles: Roles) -> Match {
        match place {
            Section::Global => Match::Yes,
            Section::Selector(index) => {
                let selector = self
                    .entries
                    .get(index)
                    .and_then(|entry| entry.get("machineLabelSelector"));
                selector.map_or(Match::Yes, |selector| matches(selector, roles))
            }
        }
    }
}

fn matches(selector: &Value, roles: Roles) -> Match {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().map(|(label, value)| {
        let asked = value.as_str().unwrap_or_default();
        roles
            .has(label)
            .map_or(Match::Perhaps, |has| (has && asked == "true").into())
    });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let expressions = expressions
        .into_iter()
        .flatten()
        .map(|expression| holds(expression, roles));

    labels.chain(expressions).min().unwrap_or(Match::Yes)
}

fn holds(expression: &Value, roles: Roles) -> Match {
    let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(has) = roles.has(text("key")) else {
        return Match::Perhaps;
    };

    let values = expression.get("values").and_then(Value::as_array);
    let listed = values.is_some_and(|values| values.iter().any(|value| value == "true"));
    match text("operator") {
        "In" => (has && listed).into(),
        "NotIn" => (!has || !listed).into(),
        "Exists" => has.into(),
        "DoesNotExist" => (!has).into(),
        _ => Match::Perhaps,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counting(global: Value, entries: Value, class: fn(Roles) -> bool) -> Vec<Option<Section>> {
        let object = json!({"spec": {"rkeConfig": {"machineGlobalConfig": global, "machineSelectorConfig": entries}}});
        MachineConfig::of(&object).counting("k", class).into_iter().collect()
    }

    fn entry(label: &str) -> Value {
        json!({"machineLabelSelector": {"matchLabels": {label: "true"}}, "config": {"k": 1}})
    }

    const GLOBAL: Option<Section> = Some(Section::Global);
    const FIRST: Option<Section> = Some(Section::Selector(0));
    const SECOND: Option<Section> = Some(Section::Selector(1));

    fn control_plane(roles: Roles) -> bool {
        roles.control_plane
    }

    #[test]
    fn the_last_entry_that_matches_counts_and_what_may_match_counts_too() {
        let every = json!({"config": {"k": 2}});
        for (global, entries, expected) in [
            (json!({}), json!([]), vec![None]),
            (json!(null), json!(null), vec![None]),
            (json!({"k": 1}), json!([]), vec![GLOBAL]),
            (json!({"k": 1}), json!([entry(ROLE_LABELS[0])]), vec![FIRST]),
            (json!({"k": 1}), json!([entry(ROLE_LABELS[0]), every]), vec![SECOND]),
            (json!({"k": 1}), json!([every, entry(ROLE_LABELS[0])]), vec![SECOND]),
            (json!({"k": 1}), json!([entry(ROLE_LABELS[2])]), vec![GLOBAL, FIRST]),
            (json!({}), json!([entry(ROLE_LABELS[2])]), vec![None, FIRST]),
            (json!({"k": 1}), json!([entry("team")]), vec![GLOBAL, FIRST]),
            (
                json!({"k": 1}),
                json!([entry(ROLE_LABELS[0]), entry("team")]),
                vec![FIRST, SECOND],
            ),
            (
                json!({"k": 1}),
                json!([{"config": null}, {"config": {"k": null}}]),
                vec![SECOND],
            ),
            (
                json!({"k": 1}),
                json!([{"machineLabelSelector": null, "config": {"k": 2}}]),
                vec![FIRST],
            ),
        ] {
            assert_eq!(
                counting(global.clone(), entries.clone(), control_plane),
                expected,
                "{global} {entries}"
            );
        }
    }

    #[test]
    fn expressions_match_as_kubernetes_matches_them() {
        let [label, etcd, _] = ROLE_LABELS;
        for (expression, on_control_plane, on_worker) in [
            (
                json!({"key": label, "operator": "In", "values": ["true"]}),
                Match::Yes,
                Match::No,
            ),
            (
                json!({"key": label, "operator": "In", "values": ["false"]}),
                Match::No,
                Match::No,
            ),
            (
                json!({"key": label, "operator": "NotIn", "values": ["true"]}),
                Match::No,
                Match::Yes,
            ),
            (json!({"key": label, "operator": "Exists"}), Match::Yes, Match::No),
            (json!({"key": etcd, "operator": "DoesNotExist"}), Match::Yes, Match::Yes),
            (
                json!({"key": label, "operator": "Near"}),
                Match::Perhaps,
                Match::Perhaps,
            ),
            (
                json!({"key": "zone", "operator": "NotIn", "values": ["a"]}),
                Match::Perhaps,
                Match::Perhaps,
            ),
        ] {
            let selector = json!({"matchExpressions": [expression]});
            let none = Roles {
                control_plane: false,
                etcd: false,
                worker: false,
            };
            assert_eq!(
                matches(
                    &selector,
                    Roles {
                        control_plane: true,
                        ..none
                    }
                ),
                on_control_plane,
                "{selector}"
            );
            assert_eq!(
                matches(&selector, Roles { worker: true, ..none }),
                on_worker,
                "{selector}"
            );
        }
    }

    #[test]
    fn all_parts_of_a_selector_must_match() {
        let none = Roles {
            control_plane: false,
            etcd: false,
            worker: true,
        };
        let selector =
            json!({"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": ROLE_LABELS[0], "operator": "Exists"}]});
        assert_eq!(matches(&selector, none), Match::No);
        assert_eq!(matches(&json!({}), none), Match::Yes);
    }
}
