//! A recorded case: a Node, the AWS resources that concern it, and the result of the incumbent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::aws::{Account, Fault};

/// The first line of the record. The lines before it are written by hand.
const RECORDED: &str = "recorded:";

/// One file of the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// A sentence.
    pub about: String,
    #[serde(default)]
    pub config: Config,
    #[serde(default)]
    pub aws: Account,
    pub node: NodeInput,
    /// The differences from the record, each with its row in `docs/parity.md`.
    #[serde(default)]
    pub differs: Vec<Difference>,
    /// The result of the incumbent.
    pub recorded: Option<Outcome>,
}

/// Keys of the cloud config's section `Global` that a case may set.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Config {
    /// Address families in order; without any the key is left out.
    #[serde(default, rename = "NodeIPFamilies")]
    pub node_ip_families: Vec<String>,
    /// A regular expression for instance types with a topology.
    pub supported_topology_instance_type_pattern: Option<String>,
}

/// The Node as its kubelet registered it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeInput {
    /// Name, unique among all cases of a folder.
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<String>,
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Status of the condition Ready; `null`: no condition at all.
    #[serde(default = "NodeInput::ready")]
    pub ready: Option<String>,
    /// `status.addresses`; left out: the host name only, as a kubelet of an external cloud without `--node-ip`.
    pub addresses: Option<Vec<Address>>,
}

impl NodeInput {
    fn ready() -> Option<String> {
        Some("True".to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// For example `InternalIP`.
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// An Event about the Node, without its count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub component: String,
    /// Without a message a [`Difference`] accepts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The Node and its Events in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Outcome {
    /// Of a deleted Node all but the Events is empty.
    pub deleted: bool,
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// In alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// In their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// In alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// An intended difference from the record.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The field of [`Outcome`], as it is spelled in the file.
    pub field: String,
    /// The value of our manager.
    pub ours: Value,
    pub why: String,
    /// The topic of the row in `docs/parity.md`.
    pub parity: String,
}

/// Cases for one run of a controller manager: those with the same cloud config and the same faults.
#[derive(Debug, Clone)]
pub struct Group {
    pub config: Config,
    pub faults: Vec<Fault>,
    pub cases: Vec<Case>,
}

impl Group {
    /// Whether the node lifecycle controller checks a Node, which takes a minute.
    pub fn is_slow(&self) -> bool {
        self.cases.iter().any(|case| case.node.ready.as_deref() != Some("True"))
    }

    /// The AWS resources of all cases.
    pub fn account(&self) -> Account {
        let mut account = Account {
            faults: self.faults.clone(),
            ..Account::default()
        };
        for case in &self.cases {
            account.merge(&case.aws);
        }

        account
    }
}

/// Reads every case of a folder, in the order of their names.
///
/// # Errors
/// A file that is no case, an empty folder, and two cases with the same Node or instance: all share one cluster.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    let mut names = BTreeSet::new();
    read(folder, |name, case: &mut Case| {
        name.clone_into(&mut case.name);
        let ids = case.aws.instances.iter().map(|instance| &instance.instance_id);
        let ids = ids.map(|id| format!("instance {id}"));
        for name in ids.chain([format!("node {}", case.node.name)]) {
            if !names.insert(name.clone()) {
                bail!("{name} is in another case too; all cases share one cluster, so rename it");
            }
        }
        Ok(())
    })
}

/// Reads every file `*.yaml` of a folder. `complete` gets the file's name without its ending.
pub(super) fn read<C: DeserializeOwned>(
    folder: &Path,
    mut complete: impl FnMut(&str, &mut C) -> Result<()>,
) -> Result<Vec<C>> {
    let mut cases = Vec::new();
    for path in files(folder)? {
        let context = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(context)?;
        let mut case = serde_saphyr::from_str(&text).with_context(context)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        complete(&name, &mut case).with_context(context)?;
        cases.push(case);
    }

    if cases.is_empty() {
        bail!("{}: no case in this folder; a case is a file *.yaml", folder.display());
    }

    Ok(cases)
}

/// The case files of a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let context = || folder.display().to_string();
    let entries = std::fs::read_dir(folder).with_context(context)?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut files = paths.collect::<std::io::Result<Vec<PathBuf>>>().with_context(context)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();

    Ok(files)
}

pub fn groups(cases: &[Case]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for case in cases {
        let same = |group: &&mut Group| group.config == case.config && group.faults == case.aws.faults;
        match groups.iter_mut().find(same) {
            Some(group) => group.cases.push(case.clone()),
            None => groups.push(Group {
                config: case.config.clone(),
                faults: case.aws.faults.clone(),
                cases: vec![case.clone()],
            }),
        }
    }

    groups
}

/// Replaces the record in a case's file.
///
/// # Errors
/// When the file cannot be read or written.
pub fn record(folder: &Path, case: &str, outcome: &impl Serialize) -> Result<()> {
    let path = folder.join(format!("{case}.yaml"));
    let context = || path.display().to_string();
    let mut file = input_of(&std::fs::read_to_string(&path).with_context(context)?);
    file.push_str(&serde_saphyr::to_string(&BTreeMap::from([("recorded", outcome)]))?);
    std::fs::write(&path, file).with_context(context)
}

/// The part of a case file before the record.
pub(super) fn input_of(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with(RECORDED));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::{Case, groups, load};

    const INPUT: &str = "about: A Node. # its comment stays\nnode: {name: n, ready: \"False\"}\n";

    #[test]
    fn cases_of_one_cloud_config_and_one_kind_of_fault_go_together() {
        let case = |text: &str| -> Case { serde_saphyr::from_str(text).expect("a case") };
        let fault = "aws: {faults: [{action: DescribeInstances, status: 403, code: UnauthorizedOperation}]}\n";
        let cases = [
            case(INPUT),
            case("about: b\nnode: {name: b}\nconfig: {NodeIPFamilies: [ipv6]}\n"),
            case("about: c\nnode: {name: c}\n"),
            case(&format!("about: d\nnode: {{name: d}}\n{fault}")),
        ];
        let groups = groups(&cases);
        assert_eq!(
            groups.iter().map(|group| group.cases.len()).collect::<Vec<_>>(),
            [2, 1, 1]
        );
        assert!(groups[0].is_slow() && !groups[1].is_slow());
    }

    #[test]
    fn two_cases_must_not_share_a_node_or_an_instance_and_a_misspelt_key_is_an_error() {
        let folder = tempfile::tempdir().expect("folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        let error = || format!("{:#}", load(folder.path()).expect_err("refused"));
        assert!(error().contains("no case"), "{}", error());
        write("a.yaml", INPUT);
        write("b.yaml", "about: b\nnode: {name: n}\n");
        assert!(error().contains("b.yaml: node n is in another case too"), "{}", error());
        write("b.yaml", "about: b\nnode: {name: b, providerid: x}\n");
        assert!(error().contains("b.yaml"), "{}", error());
        write("b.yaml", "about: b\nnode: {name: b}\n");
        assert_eq!(load(folder.path()).expect("good").len(), 2);
    }
}
