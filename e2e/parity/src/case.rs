//! A recorded case: a Node, the part of AWS that concerns it, and what the incumbent made of the Node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::aws::{Account, Fault};

/// The line from which on a case file is written by the recorder.
const RECORDED: &str = "recorded:";

/// One file of the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What it is about, in a sentence.
    pub about: String,
    /// Keys of the cloud config that are not the harness's own.
    #[serde(default)]
    pub config: Config,
    /// What AWS has and how it answers.
    #[serde(default)]
    pub aws: Account,
    /// The Node as its kubelet registered it.
    pub node: NodeInput,
    /// Where we differ from the record, each with its row in `docs/parity.md`.
    #[serde(default)]
    pub differs: Vec<Difference>,
    /// What the incumbent made of it.
    pub recorded: Option<Outcome>,
}

/// Keys of the cloud config's section `Global` that a case may set.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Config {
    /// Address families in order; none: the key is left out.
    #[serde(default, rename = "NodeIPFamilies")]
    pub node_ip_families: Vec<String>,
    /// A regular expression for instance types with a topology.
    pub supported_topology_instance_type_pattern: Option<String>,
}

/// The Node before any cloud controller has seen it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeInput {
    /// Name, unique among all cases of a folder.
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`.
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<String>,
    /// `spec.taints`.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Status of the condition Ready; `null`: no condition at all.
    #[serde(default = "NodeInput::ready")]
    pub ready: Option<String>,
    /// `status.addresses`; left out: the host name only, as a kubelet of an external cloud without `--node-ip`.
    pub addresses: Option<Vec<Address>>,
}

impl NodeInput {
    #[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
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

/// An address of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// For example `InternalIP`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// An Event about the Node. The same Event said twice counts once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    /// The component that reports it.
    pub component: String,
    /// Message. Left out in a [`Difference`]: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is stored about the Node in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Outcome {
    /// Whether the Node is gone; all but the Events is empty then.
    pub deleted: bool,
    /// `spec.providerID`.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Taints, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Addresses in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Events, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// A field in which we differ from the record, and mean it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The field of [`Outcome`], as it is spelled in the file.
    pub field: String,
    /// What our manager gives in this field.
    pub ours: Value,
    pub why: String,
    /// The topic of the row in `docs/parity.md` that says so.
    pub parity: String,
}

/// Cases that one controller manager can be given together: those with the same cloud config and the same faults.
#[derive(Debug, Clone)]
pub struct Group {
    /// What distinguishes its cloud config.
    pub config: Config,
    /// How AWS fails.
    pub faults: Vec<Fault>,
    pub cases: Vec<Case>,
}

impl Group {
    /// Whether the node lifecycle controller has something to look at, which takes its time.
    pub fn is_slow(&self) -> bool {
        self.cases.iter().any(|case| case.node.ready.as_deref() != Some("True"))
    }

    /// Everything that AWS has for these cases.
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

/// Reads every `*.yaml` of the folder, in the order of their names.
///
/// # Errors
/// A file that is no case, an empty folder, and two cases with the same Node or instance: all share one cluster.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut names = BTreeSet::new();
    for path in files(folder)? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut case: Case = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        case.name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();

        let ids = case.aws.instances.iter().map(|instance| &instance.instance_id);
        let ids = ids.map(|id| format!("instance {id}"));
        for name in ids.chain([format!("node {}", case.node.name)]) {
            if !names.insert(name.clone()) {
                bail!(
                    "{}: {name} is in another case too; all cases share one cluster, so give it a name of its own",
                    path.display()
                );
            }
        }

        cases.push(case);
    }

    if cases.is_empty() {
        bail!("{}: no case in here; a case is a file *.yaml", folder.display());
    }

    Ok(cases)
}

/// The case files of a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(path);
        }
    }

    files.sort();

    Ok(files)
}

/// Puts cases together that one controller manager can be given at once.
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

/// Writes what was recorded into a case's file; what stands before it stays as it is.
///
/// # Errors
/// When the file cannot be read or written.
pub fn record(folder: &Path, case: &str, outcome: &Outcome) -> Result<()> {
    let path = folder.join(format!("{case}.yaml"));
    let context = || path.display().to_string();
    let text = std::fs::read_to_string(&path).with_context(context)?;
    std::fs::write(&path, recorded(&text, outcome)?).with_context(context)
}

/// What of a case file was written by hand.
pub(super) fn input_of(text: &str) -> String {
    let by_hand = text.lines().take_while(|line| !line.starts_with(RECORDED));
    by_hand.flat_map(|line| [line, "\n"]).collect()
}

fn recorded(text: &str, outcome: &Outcome) -> Result<String> {
    let mut file = input_of(text);
    file.push_str(&serde_saphyr::to_string(&BTreeMap::from([("recorded", outcome)]))?);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::{Case, Event, Outcome, groups, load, recorded};

    const INPUT: &str = "about: A Node. # its comment stays\nnode: {name: n, ready: \"False\"}\n";

    #[test]
    fn what_is_recorded_is_read_again_and_the_input_stays_letter_by_letter() {
        let outcome = Outcome {
            deleted: true,
            events: vec![Event {
                kind: "Normal".into(),
                reason: "DeletingNode".into(),
                component: "c".into(),
                message: Some("it's: \"gone\"".into()),
            }],
            ..Outcome::default()
        };
        let once = recorded(INPUT, &outcome).expect("written");
        assert!(once.starts_with(INPUT), "{once}");
        assert_eq!(
            recorded(&once, &outcome).expect("written"),
            once,
            "recording again changes nothing"
        );
        let case: Case = serde_saphyr::from_str(&once).expect("a case");
        assert_eq!(case.recorded, Some(outcome));
    }

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
        let error = || load(folder.path()).expect_err("refused").to_string();
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
