//! The EBS driver's controller, which tags volumes and snapshots by its argument `--k8s-tag-cluster-id`.
//!
//! This is a flag, not a tag: the undo annotation records it, and InTree restores the original. `--extra-tags` of the
//! driver and `--tags` of cloud-controller-managers are validated too.

use outrigger_shared::{
    command_line::{CommandLine, Flag},
    migration::{Phase, Profile},
};
use serde_json::Value;

use super::{
    super::{
        arguments::ListFormat,
        document::Document,
        fields::{list_at, text_at},
        provisioner_object::{self, Obstacle, Rules, Situation},
    },
    Draft, Input, Kind, Migration,
    findings::{forged, of_limits},
    format::TagFormat,
    row::{BASE, Policy, TagRow, target},
};
use crate::patch::Path;

pub(crate) const KINDS: &[Kind] = &[row("Deployment", "deployments"), row("DaemonSet", "daemonsets")];

const fn row(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "apps",
        versions: &["v1"],
        kind,
        plural,
        namespaced: true,
        on_update: true,
        profiles: &[Profile::AwsResources],
        is_concerned: |input| {
            containers(input.object)
                .iter()
                .any(|container| program(container).is_some())
        },
        draft,
    }
}

/// The argument needs no evidence: volumes of the in-tree plugin have the same tag.
fn draft(input: &Input<'_>, migration: &Migration<'_>) -> Draft {
    let prepared = Migration {
        prepared: true,
        ..*migration
    };
    provisioner_object::draft(input, &prepared, &RULES)
}

const RULES: Rules = Rules {
    triggers: &["/spec/template"],
    besides: &[],
    version: &[],
    both_in_one_object: false,
    is_external: |_| false,
    form,
    warnings,
};

/// The name of the driver's image.
pub(crate) const DRIVER: &str = "aws-ebs-csi-driver";

const CLUSTER_ID: Flag = Flag::text("k8s-tag-cluster-id");
const EXTRA_TAGS: Flag = Flag::text("extra-tags");
const TAGS: Flag = Flag::text("tags");
const TEMPLATE: [&str; 4] = ["spec", "template", "spec", "containers"];

/// A program with such an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    EbsController,
    CloudControllerManager,
}

fn containers(object: &Value) -> &[Value] {
    list_at(object, "/spec/template/spec/containers")
}

/// By the name of the image. The node part of the driver has the same image, and creates no volumes.
fn program(container: &Value) -> Option<Program> {
    let image = container.get("image")?.as_str()?;
    let image = image.split(['@']).next()?.rsplit('/').next()?;
    let image = image.split(':').next()?;
    let words = ["command", "args"]
        .into_iter()
        .filter_map(|list| container.get(list)?.as_array());
    let is_node = words.flatten().any(|word| word.as_str() == Some("node"));

    match image {
        DRIVER if !is_node => Some(Program::EbsController),
        "cloud-controller-manager" | "aws-cloud-controller-manager" | "outrigger-manager" => {
            Some(Program::CloudControllerManager)
        }
        _ => None,
    }
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }

    let list = Path::new(&TEMPLATE);
    let count = document.get(&list).and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..count {
        let path = list.index(index);
        let Some(container) = document.get(&path) else { continue };
        if program(container) != Some(Program::EbsController) || values(container, CLUSTER_ID)?.is_some() {
            continue;
        }

        // The arguments are in one of the two lists; the new one is appended there.
        let own = match (container.get("args"), container.get("command")) {
            (None | Some(Value::Null), Some(Value::Array(command))) if command.len() > 1 => "command",
            _ => "args",
        };
        let path = path.child(own);
        let mut line = document.arguments(&path, ListFormat::Dashed)?;
        let id = &situation.migration.spec.cluster_id;
        line.set(CLUSTER_ID, id)
            .map_err(|reason| Obstacle::Other(format!("the EBS driver's arguments: {reason}")))?;

        let reason = format!(
            "--{}={id} added, so that the EBS driver tags the cluster's volumes",
            CLUSTER_ID.name
        );
        document.set_arguments(&path, ListFormat::Dashed, &line, [reason])?;
    }

    Ok(())
}

/// The last value of a flag. A value that is only known at the start of the container counts as set.
fn values(container: &Value, flag: Flag) -> Result<Option<String>, Obstacle> {
    let read = || CommandLine::of_container(container)?.value(flag);
    match read() {
        Err(outrigger_shared::command_line::Unreadable::Variable { value, .. }) => Ok(Some(value)),
        other => other.map_err(|reason| Obstacle::Other(format!("the EBS driver's arguments: {reason}"))),
    }
}

fn warnings(object: &Value, situation: &Situation<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, container) in containers(object).iter().enumerate() {
        let name = text_at(container, "/name").map_or_else(|| index.to_string(), str::to_owned);
        let value = |flag| {
            let value = values(container, flag).ok().flatten();
            value.filter(|value| !value.contains("$("))
        };
        let tags_flag = match program(container) {
            Some(Program::EbsController) => EXTRA_TAGS,
            Some(Program::CloudControllerManager) => TAGS,
            None => continue,
        };
        let id = &situation.migration.spec.cluster_id;

        if let (EXTRA_TAGS, Some(other)) = (tags_flag, value(CLUSTER_ID).filter(|other| other != id)) {
            warnings.push(format!(
                "container {name:?} has --{}={other}, which names another cluster than {id}; correct it or spec.targets",
                CLUSTER_ID.name
            ));
        }

        if let Some(text) = value(tags_flag) {
            warnings.extend(of_tags(&text, tags_flag, situation));
        }
    }

    warnings
}

/// The driver does not start with any cluster's key among its extra tags.
fn of_tags(text: &str, flag: Flag, situation: &Situation<'_>) -> Vec<String> {
    let policy = if flag == EXTRA_TAGS {
        Policy::Illegal("the EBS driver reserves it; use --k8s-tag-cluster-id")
    } else {
        Policy::Validate("")
    };
    let row = TagRow {
        policy,
        ..BASE.of("Deployment", "deployments")
    };
    let path = target(flag.name, TagFormat::EqualsText);
    let tags = path.shape.read(Some(&Value::String(text.to_owned())));
    let mut findings = forged(&tags.pairs, situation.migration, &row, &path);
    findings.extend(of_limits(&path, &tags));

    findings.iter().map(|finding| format!("--{finding}")).collect()
}
