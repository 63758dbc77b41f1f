//! A recorded case: a Service, the AWS resources that it names, its steps, and the results of the incumbent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use outrigger_aws_quotas::Quotas;
use serde::Deserialize;
use serde_json::{Value, json};

use super::outcome::Outcome;
use crate::case::read;

/// One file of the folder.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// The file's name without its ending. It is the Service's name too if the manifest has none.
    #[serde(skip)]
    pub name: String,
    /// A sentence.
    pub about: String,
    /// Further keys of the cloud config's section `Global`.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    #[serde(default)]
    pub aws: Aws,
    #[serde(default)]
    pub quotas: QuotasOfCase,
    /// Another Service, which has its load balancer before the Service of the case is created.
    pub neighbour: Option<Value>,
    /// Changes of Nodes before the Service is created.
    #[serde(default)]
    pub nodes: Nodes,
    /// `metadata` and `spec`. `<NAME>` is replaced by an ID, see [`super::names`].
    pub service: Value,
    #[serde(default = "Step::usual")]
    pub steps: Vec<Step>,
    /// The differences from the record, each with its row in `docs/parity.md`.
    #[serde(default)]
    pub differs: Vec<Difference>,
    /// The result of the incumbent after each step.
    pub recorded: Option<Vec<Outcome>>,
}

impl Case {
    /// The labels of all steps in order.
    pub fn labels(&self) -> Vec<String> {
        let numbered = self.steps.iter().zip(1..);
        numbered
            .map(|(step, number)| format!("{number} {}", step.action))
            .collect()
    }

    pub fn manifest(&self) -> Value {
        manifest(&self.service, &self.name)
    }

    /// The manifest of the other Service.
    pub fn neighbour(&self) -> Option<Value> {
        let neighbour = self.neighbour.as_ref()?;
        Some(manifest(neighbour, "neighbour"))
    }
}

fn manifest(of_case: &Value, name: &str) -> Value {
    let mut manifest = of_case.clone();
    let metadata = &mut manifest["metadata"];
    if metadata["name"].is_null() {
        metadata["name"] = json!(name);
    }

    if manifest["spec"]["type"].is_null() {
        manifest["spec"]["type"] = json!("LoadBalancer");
    }

    manifest
}

/// AWS's quotas during a case; AWS's defaults where none is named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct QuotasOfCase {
    pub rules: Option<usize>,
    pub targets_per_group: Option<usize>,
    pub targets_per_zone: Option<usize>,
    pub instances: Option<usize>,
}

impl QuotasOfCase {
    pub(super) fn quotas(self) -> Quotas {
        let default = Quotas::default();
        Quotas {
            rules: self.rules.unwrap_or(default.rules),
            targets_per_group: self.targets_per_group.unwrap_or(default.targets_per_group),
            targets_per_zone: self.targets_per_zone.unwrap_or(default.targets_per_zone),
            instances: self.instances.unwrap_or(default.instances),
        }
    }
}

/// Further AWS resources, beside those of all cases.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Aws {
    /// The first in each zone has the smallest ID.
    #[serde(default)]
    pub subnets: Vec<Subnet>,
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Instances for Nodes that can be added.
    #[serde(default)]
    pub instances: Vec<CaseInstance>,
    /// Names of elastic IP addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Tags that are set or, with `null`, deleted during the case, by name of the resource.
    #[serde(default)]
    pub tags: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Calls that prepare the case.
    #[serde(default)]
    pub calls: Vec<AwsCall>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Subnet {
    pub name: String,
    pub zone: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// With its own route table, without a route to the internet. The VPC's main table has one.
    #[serde(default)]
    pub private: bool,
    /// With its own route table, with a route to the internet.
    #[serde(default)]
    pub public: bool,
    /// In a VPC of its own.
    #[serde(default)]
    pub foreign: bool,
}

/// A security group: `<sg:NAME>` in the case.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Group {
    pub name: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// An instance in a security group of the case. It exists only during the case.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CaseInstance {
    /// Of the Node too.
    pub name: String,
    pub group: String,
}

/// A manual call of a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AwsCall {
    /// `ec2`, `elb` or `elbv2`.
    pub service: String,
    pub action: String,
    /// As in the request.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// Changes of Nodes. `node-1` to `node-6` exist. `node-7` can be added, and Nodes without an instance: `bare-…` has no
/// provider ID, `fargate-…` is on Fargate, `foreign-…` is in another cloud.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Nodes {
    #[serde(default)]
    pub add: Vec<String>,
    #[serde(default)]
    pub remove: Vec<String>,
    /// JSON merge patches.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Create,
    /// Changes an annotation without effect.
    NoOp,
    /// Changes the Service.
    Update,
    /// Changes Nodes.
    Nodes,
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
    #[serde(rename = "do")]
    pub action: Action,
    /// For an update: a JSON merge patch of the Service.
    #[serde(default)]
    pub patch: Value,
    /// For `nodes`.
    #[serde(default)]
    pub nodes: Nodes,
    /// Manual calls before the step.
    #[serde(default)]
    pub calls: Vec<AwsCall>,
    /// A JSON merge patch of the other Service, immediately before the step.
    #[serde(default)]
    pub neighbour: Value,
}

impl Step {
    fn usual() -> Vec<Self> {
        let step = |action| Self {
            action,
            patch: Value::Null,
            nodes: Nodes::default(),
            calls: Vec::new(),
            neighbour: Value::Null,
        };
        [Action::Create, Action::NoOp, Action::Delete].map(step).to_vec()
    }
}

/// An intended difference from the record.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The step's label (`2 no-op`).
    pub step: String,
    /// `events`, `service`, `writes`, or `aws/OBJECT/FIELD`.
    pub field: String,
    /// The value of our manager; `null` without one.
    #[serde(default)]
    pub ours: Value,
    pub why: String,
    /// The topic of the row in `docs/parity.md`.
    pub parity: String,
}

/// Reads every case of a folder, in the order of their names.
///
/// # Errors
/// A file that is no case, a step without sense, and an empty folder.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    read(folder, |name, case: &mut Case| {
        name.clone_into(&mut case.name);
        check(case)
    })
}

fn check(case: &Case) -> Result<()> {
    let labels = case.labels();
    if case.steps.first().map(|step| step.action) != Some(Action::Create) {
        bail!("steps: the first has to be `do: create`");
    }

    for (label, step) in labels.iter().zip(&case.steps) {
        match step.action {
            Action::Update if !step.patch.is_object() => bail!("step {label}: an update needs `patch`, an object"),
            Action::Nodes if step.nodes == Nodes::default() => bail!("step {label}: `nodes` is missing"),
            _ if !step.neighbour.is_null() && case.neighbour.is_none() => bail!("step {label}: there is no neighbour"),
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

/// Cases for one run of a controller manager: those with the same cloud config.
pub fn groups(cases: &[Case]) -> Vec<Vec<Case>> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<Case>> = BTreeMap::new();
    for case in cases {
        groups.entry(case.config.clone()).or_default().push(case.clone());
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::{Case, groups, load};
    use crate::case::record;

    const INPUT: &str = "about: A Service. # stays\nservice: {spec: {ports: [{port: 80}]}}\n";

    #[test]
    fn a_record_is_read_again_and_the_input_stays_letter_by_letter() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a.yaml");
        std::fs::write(&path, INPUT).expect("written");
        let outcomes = [Outcome {
            step: "1 create".into(),
            writes: vec!["CreateTags Tags={a=b: c} 'd\": #".into()],
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
            let message = error(&format!("{INPUT}{steps}\n"));
            assert!(message.contains("b.yaml") && message.contains(fault), "{message}");
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
