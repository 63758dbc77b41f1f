//! A recorded case: a Service, the part of AWS that it names, what happens to it, and what the incumbent made of that.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::outcome::Outcome;
use crate::case::{files, input_of};

/// One file of the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// The file's name without its ending, which is the Service's name too where the manifest has none.
    #[serde(skip)]
    pub name: String,
    /// What it is about, in a sentence.
    pub about: String,
    /// Keys of the cloud config's section `Global` that are not the harness's own.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// What AWS has besides what all cases have.
    #[serde(default)]
    pub aws: Aws,
    /// How the Nodes are before the Service is made.
    #[serde(default)]
    pub nodes: Nodes,
    /// The Service: `metadata` and `spec`. `<NAME>` stands for the ID of what is called so.
    pub service: Value,
    /// What happens.
    #[serde(default = "Step::usual")]
    pub steps: Vec<Step>,
    /// Where we differ from the record, each with its row in `docs/parity.md`.
    #[serde(default)]
    pub differs: Vec<Difference>,
    /// What the incumbent made of each step.
    pub recorded: Option<Vec<Outcome>>,
}

impl Case {
    /// The labels of all steps in order.
    pub fn labels(&self) -> Vec<String> {
        let numbered = self.steps.iter().enumerate();
        numbered
            .map(|(index, step)| format!("{} {}", index + 1, step.action))
            .collect()
    }

    /// The Service to create.
    pub fn manifest(&self) -> Value {
        let mut manifest = self.service.clone();
        let metadata = &mut manifest["metadata"];
        if metadata["name"].is_null() {
            metadata["name"] = json!(self.name);
        }

        if manifest["spec"]["type"].is_null() {
            manifest["spec"]["type"] = json!("LoadBalancer");
        }

        manifest
    }
}

/// What AWS has besides what all cases have.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Aws {
    /// Subnets of the VPC. Of those in one zone, the first has the smallest ID.
    #[serde(default)]
    pub subnets: Vec<Subnet>,
    /// Security groups of the VPC.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Elastic IP addresses, by name.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Tags that are set (or, with `null`, taken away) for the time of the case, by name of the resource.
    #[serde(default)]
    pub tags: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Calls that prepare the case.
    #[serde(default)]
    pub calls: Vec<AwsCall>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Subnet {
    /// Names it in the case.
    pub name: String,
    /// Its availability zone.
    pub zone: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// With a route table of its own, without a route to the internet. The VPC's main table has one.
    #[serde(default)]
    pub private: bool,
    /// With a route table of its own that has a route to the internet.
    #[serde(default)]
    pub public: bool,
}

/// A security group: `<sg:NAME>` in the case.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Group {
    pub name: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// A call that somebody else makes by hand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AwsCall {
    /// `ec2`, `elb` or `elbv2`.
    pub service: String,
    pub action: String,
    /// Its parameters as on the wire.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// What happens to Nodes, by name: `node-1` to `node-6` are there, `node-7` can be added, and so can Nodes that are no
/// instance: `bare-…` has no provider ID, `fargate-…` runs on Fargate, `foreign-…` in another cloud.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Nodes {
    /// Nodes that come.
    #[serde(default)]
    pub add: Vec<String>,
    /// Nodes that go.
    #[serde(default)]
    pub remove: Vec<String>,
    /// JSON merge patches.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
}

/// What is done in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The Service is created.
    Create,
    /// An annotation without effect changes.
    NoOp,
    /// The Service changes.
    Update,
    /// Nodes change.
    Nodes,
    /// The Service is deleted.
    Delete,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::NoOp => "no-op",
            Self::Update => "update",
            Self::Nodes => "nodes",
            Self::Delete => "delete",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Step {
    /// What is done.
    #[serde(rename = "do")]
    pub action: Action,
    /// For an update: a JSON merge patch of the Service.
    #[serde(default)]
    pub patch: Value,
    /// For `nodes`: what happens to them.
    #[serde(default)]
    pub nodes: Nodes,
    /// Calls by hand, before.
    #[serde(default)]
    pub calls: Vec<AwsCall>,
}

impl Step {
    fn usual() -> Vec<Self> {
        let step = |action| Self {
            action,
            patch: Value::Null,
            nodes: Nodes::default(),
            calls: Vec::new(),
        };
        [Action::Create, Action::NoOp, Action::Delete].map(step).to_vec()
    }
}

/// A field in which we differ from the record, and mean it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The step's label (`2 no-op`).
    pub step: String,
    /// `events`, `service`, `writes`, or `aws/OBJECT/FIELD`.
    pub field: String,
    /// What our manager gives in this field; `null` where it has none.
    #[serde(default)]
    pub ours: Value,
    pub why: String,
    /// The topic of the row in `docs/parity.md` that says so.
    pub parity: String,
}

/// Reads every `*.yaml` of the folder, in the order of their names.
///
/// # Errors
/// A file that is no case, a step that makes no sense, and an empty folder.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for path in files(folder)? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut case: Case = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        case.name = stem.unwrap_or_default();
        check(&case).with_context(|| path.display().to_string())?;
        cases.push(case);
    }

    if cases.is_empty() {
        bail!("{}: no case in here; a case is a file *.yaml", folder.display());
    }

    Ok(cases)
}

fn check(case: &Case) -> Result<()> {
    let labels = case.labels();
    if case.steps.first().map(|step| step.action) != Some(Action::Create) {
        bail!("steps: the first has to be `do: create`");
    }

    for (label, step) in labels.iter().zip(&case.steps) {
        match step.action {
            Action::Update if !step.patch.is_object() => bail!("step {label}: an update needs `patch`, an object"),
            Action::Nodes if step.nodes == Nodes::default() => bail!("step {label}: what happens to which node?"),
            Action::Create | Action::NoOp | Action::Update | Action::Nodes | Action::Delete => {}
        }
    }

    for difference in &case.differs {
        if !labels.contains(&difference.step) {
            bail!(
                "differs: there is no step {:?}; the steps are {labels:?}",
                difference.step
            );
        }
    }

    Ok(())
}

/// Cases that one run of a controller manager can be given, one after the other: those with the same cloud config.
pub fn groups(cases: &[Case]) -> Vec<Vec<Case>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<Case>> = BTreeMap::new();
    for case in cases {
        groups.entry(case.config.clone()).or_default().push(case.clone());
    }
    groups.into_values().collect()
}

/// Writes what was recorded into a case's file; what stands before it stays as it is.
///
/// # Errors
/// When the file cannot be read or written.
pub fn record(folder: &Path, case: &str, outcomes: &[Outcome]) -> Result<()> {
    let path = folder.join(format!("{case}.yaml"));
    let context = || path.display().to_string();
    let mut file = input_of(&std::fs::read_to_string(&path).with_context(context)?);
    file.push_str(&serde_saphyr::to_string(&BTreeMap::from([("recorded", outcomes)]))?);
    std::fs::write(&path, file).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::{Case, groups, load, record};

    const INPUT: &str = "about: A Service. # stays\nservice: {spec: {ports: [{port: 80}]}}\n";

    #[test]
    fn what_is_recorded_is_read_again_and_the_input_stays_letter_by_letter() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        std::fs::write(&path, INPUT).expect("written");
        let outcomes = [Outcome {
            step: "1 create".into(),
            writes: vec!["CreateTags Tags={a=b: c}".into()],
            ..Outcome::default()
        }];
        record(folder.path(), "a", &outcomes).expect("recorded");
        record(folder.path(), "a", &outcomes).expect("recorded again");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.starts_with(INPUT), "{text}");
        let case = load(folder.path()).expect("a case").remove(0);
        assert_eq!(case.recorded.as_deref(), Some(&outcomes[..]));
        assert_eq!(case.labels(), ["1 create", "2 no-op", "3 delete"]);
        assert_eq!(case.manifest()["metadata"]["name"], "a");
        assert_eq!(case.manifest()["spec"]["type"], "LoadBalancer");
    }

    #[test]
    fn a_case_that_makes_no_sense_is_refused_with_its_file_and_its_fault() {
        let folder = tempfile::tempdir().expect("folder");
        let error = |text: &str| {
            std::fs::write(folder.path().join("b.yaml"), text).expect("written");
            format!("{:#}", load(folder.path()).expect_err("refused"))
        };
        assert!(format!("{:#}", load(folder.path()).expect_err("empty")).contains("no case"));
        for (steps, fault) in [
            ("steps: [{do: delete}]", "do: create"),
            ("steps: [{do: create}, {do: update}]", "2 update"),
            ("steps: [{do: create}, {do: nodes}]", "2 nodes"),
            ("step: []", "b.yaml"),
            ("differs: [{step: 9 update, field: f, why: w, parity: p}]", "9 update"),
        ] {
            let told = error(&format!("{INPUT}{steps}\n"));
            assert!(told.contains("b.yaml") && told.contains(fault), "{told}");
        }
    }

    #[test]
    fn cases_of_one_cloud_config_go_together() {
        let case = |text: &str| -> Case { serde_saphyr::from_str(text).expect("a case") };
        let other = format!("{INPUT}config: {{NLBSecurityGroupMode: Managed}}\n");
        let cases = [case(INPUT), case(&other), case(INPUT)];
        let sizes: Vec<usize> = groups(&cases).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1]);
    }
}
