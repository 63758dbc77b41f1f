//! Real objects of other systems, on a real API server with those systems' own definitions: every one goes through
//! every phase and back. The stored object is the decided one, so that no schema drops or refuses the webhook's
//! changes. A second write changes nothing, and the way back restores the object.
//!
//! The objects and definitions are not part of the repository. Without them the step is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_decide::{Decision, Input, Kind, Migration, Outcome, decide, kinds};
use outrigger_environment::review;
use outrigger_shared::annotations::CONTROL_PLANE_LABEL;
use outrigger_shared::migration::CloudProviderMigration;
use serde_json::{Value, json};

use crate::bench::{Bench, MIGRATIONS};
use crate::objects::{APPLY, CLUSTER_LABEL, UNDO};
use crate::published;

const NAME: &str = "corpus";
/// Objects that must have gone through, of all that the folder holds; fewer means that the step has lost its way.
const AT_LEAST: usize = 120;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WAY: [&str; 6] = ["Prepare", "Migrate", "Complete", "Migrate", "Prepare", "InTree"];

/// One real object.
struct Real {
    file: String,
    kind: &'static Kind,
    object: Value,
}

impl Real {
    fn path(&self) -> String {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        let root = if self.kind.group.is_empty() { "/api" } else { "/apis" };
        let namespace = if self.kind.namespaced {
            format!("namespaces/{NAME}/")
        } else {
            String::new()
        };
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{root}/{version}/{namespace}{}/{name}", self.kind.plural)
    }
}

/// The answer of the API server to an object that it refuses before any phase.
struct NotTaken {
    file: String,
    why: String,
}

pub async fn every_real_object_goes_through_every_phase(bench: &Bench) -> Result<()> {
    let (Some(corpus), Some(crds)) = (published::find("corpus"), published::find("crds")) else {
        return Ok(());
    };
    // With this label every Pod is looked at, whatever its own labels are.
    bench.namespace(NAME, &json!({CONTROL_PLANE_LABEL: "true"})).await?;
    let served = install_definitions(bench, &crds).await?;
    wait_served(bench, &served).await?;
    bench.migration(NAME, targets()).await?;
    bench.set_prepared(NAME, "True").await?;
    let (mut taken, mut not_taken) = (Vec::new(), Vec::new());
    for real in read(&corpus)? {
        let built_in = matches!(real.kind.group, "" | "apps" | "storage.k8s.io");
        let api_version = real.object["apiVersion"].as_str().unwrap_or_default();
        if !built_in && !served.contains(&(api_version.to_owned(), real.kind.plural.to_owned())) {
            not_taken.push(NotTaken {
                file: real.file,
                why: "there is no definition of its kind in its version".to_owned(),
            });
            continue;
        }
        match create(bench, &real).await? {
            Ok(path) => taken.push((real, path)),
            Err(why) => not_taken.push(NotTaken { file: real.file, why }),
        }
    }
    println!(
        "{} definitions, {} objects taken, {} not",
        served.len(),
        taken.len(),
        not_taken.len()
    );
    for NotTaken { file, why } in &not_taken {
        println!(
            "  not taken before any phase: {file}: {}",
            why.chars().take(160).collect::<String>()
        );
    }
    ensure!(taken.len() >= AT_LEAST, "only {} objects were taken", taken.len());
    let originals = stored(bench, &taken).await?;
    let mut outcomes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    // Each as it was stored last: nothing else writes them.
    let mut last = originals.clone();
    for phase in WAY {
        bench.change(NAME, json!({"phase": phase})).await?;
        let migration = serde_json::from_value(bench.read(&format!("{MIGRATIONS}/{NAME}")).await?)?;
        for ((real, path), last) in taken.iter().zip(&mut last) {
            let outcome = step(bench, &migration, (real, path, last), phase)
                .await
                .with_context(|| format!("{} in {phase}", real.file))?;
            *outcomes.entry((phase, outcome.as_str())).or_default() += 1;
        }
    }
    for ((phase, outcome), count) in outcomes {
        println!("  {phase}: {count} {outcome}");
    }
    for ((real, _), (before, after)) in taken.iter().zip(originals.iter().zip(stored(bench, &taken).await?)) {
        back_to_the_original(real, before, &after).with_context(|| format!("{} at the end", real.file))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The stored versions of the definitions: `apiVersion` and plural. Nobody serves conversion webhooks here. Of a system
/// whose definitions are there in two releases, the later folder wins.
async fn install_definitions(bench: &Bench, folder: &Path) -> Result<BTreeSet<(String, String)>> {
    let mut installed = BTreeSet::new();
    for file in files(folder)? {
        let text = std::fs::read_to_string(&file)?;
        for mut definition in serde_saphyr::from_multiple::<Value>(&text).unwrap_or_default() {
            let plural = definition["spec"]["names"]["plural"].clone();
            let group = definition["spec"]["group"].clone();
            if !kinds().any(|kind| group == kind.group && plural == kind.plural) {
                continue;
            }
            definition["spec"]["conversion"] = json!({"strategy": "None"});
            // Nothing converts here, and what another version writes in another shape would be dropped.
            let versions = definition["spec"]["versions"].as_array_mut().context("no versions")?;
            versions.retain(|version| version["storage"] == true);
            let version = versions.first().context("no stored version")?["name"].clone();
            definition["status"].take();
            let metadata = definition["metadata"].as_object_mut().context("no metadata")?;
            metadata.retain(|key, _| key == "name");
            // Kept apart from the others by the API group's protection.
            metadata.insert(
                "annotations".to_owned(),
                json!({"api-approved.kubernetes.io": "unapproved, test"}),
            );
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let path = format!("{DEFINITIONS}/{name}?fieldManager=test&force=true");
            let answer = review::send(&bench.admin, Method::PATCH, &path, Some((review::APPLY, &definition))).await?;
            if answer.is_granted() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                installed.insert((format!("{}/{}", text(&group), text(&version)), text(&plural)));
            } else {
                let why: String = answer.message().chars().take(160).collect();
                println!("  definition {name} not taken: {why}");
            }
        }
    }
    Ok(installed)
}

/// Waits until the API server serves all definitions.
async fn wait_served(bench: &Bench, served: &BTreeSet<(String, String)>) -> Result<()> {
    for (api_version, plural) in served {
        let path = format!("/apis/{api_version}/{plural}");
        bench
            .until(&path, async || {
                let answer = review::send(&bench.admin, Method::GET, &path, None).await?;
                Ok(answer.is_granted())
            })
            .await?;
    }
    Ok(())
}

/// Every profile, by the label alone, in one migration: the way that asks most of the rules.
fn targets() -> Value {
    let selector = json!({"matchLabels": {CLUSTER_LABEL: NAME}});
    let profiles = [
        "HostedControlPlane",
        "ClusterAPI",
        "Kubermatic",
        "RancherRKE2",
        "RancherRKE1",
        "KubeadmConfig",
        "AwsResources",
    ];
    let targets: Vec<Value> = profiles
        .iter()
        .map(|profile| json!({"profile": profile, "objectSelector": selector}))
        .collect();
    json!({"targets": targets, "kubernetesVersion": "1.26"})
}

fn read(folder: &Path) -> Result<Vec<Real>> {
    let mut found = Vec::new();
    for file in files(folder)? {
        let text = std::fs::read_to_string(&file)?;
        let name = file.strip_prefix(folder)?.display().to_string();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap_or_default() {
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let known = kinds().find(|kind| {
                kind.group == group
                    && object["kind"] == kind.kind
                    && kind.versions.contains(&version)
                    && kind.kind != "Node"
            });
            if let Some(kind) = known {
                let number = found.len();
                found.push(Real {
                    file: name.clone(),
                    kind,
                    object: prepared(object, kind, number),
                });
            }
        }
    }
    Ok(found)
}

/// The object in the namespace and with the label of the migration, under a name of its own.
fn prepared(mut object: Value, kind: &Kind, number: usize) -> Value {
    let old = object["metadata"].take();
    let mut labels = old["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(CLUSTER_LABEL.to_owned(), json!(NAME));
    let mut metadata = json!({"name": format!("real-{number}"), "labels": labels});
    if let Some(annotations) = old["annotations"].as_object() {
        metadata["annotations"] = json!(annotations);
    }
    if kind.namespaced {
        metadata["namespace"] = json!(NAME);
    }
    object["metadata"] = metadata;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if kind.kind == "Pod" {
        // The API server allows these only where its own parts exist.
        let spec = &mut object["spec"];
        for field in [
            "nodeName",
            "priority",
            "priorityClassName",
            "serviceAccount",
            "serviceAccountName",
            "runtimeClassName",
        ] {
            spec.as_object_mut().map(|fields| fields.remove(field));
        }
    }
    object
}

async fn create(bench: &Bench, real: &Real) -> Result<Result<String, String>> {
    // Pods are changed at their creation only, so each phase makes them anew, for trial.
    let query = if real.kind.on_update { "" } else { "?dryRun=All" };
    let path = real.path();
    let (collection, _) = path.rsplit_once('/').context("a path without a name")?;
    let answer = bench.create(&format!("{collection}{query}"), &real.object).await?;
    if !answer.is_granted() {
        return Ok(Err(answer.message().to_owned()));
    }
    Ok(Ok(path))
}

async fn stored(bench: &Bench, all: &[(Real, String)]) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for (real, path) in all {
        found.push(if real.kind.on_update {
            bench.read(path).await?
        } else {
            Value::Null
        });
    }
    Ok(found)
}

/// Asks for the phase, and compares what is stored with what the decision makes of what was sent.
async fn step(
    bench: &Bench,
    migration: &CloudProviderMigration,
    (real, path, last): (&Real, &str, &mut Value),
    phase: &str,
) -> Result<Outcome> {
    if !real.kind.on_update {
        let (collection, _) = path.rsplit_once('/').context("a path without a name")?;
        let answer = bench
            .create(&format!("{collection}?dryRun=All"), &real.object)
            .await?
            .granted()?;
        let decision = decided(real, migration, &real.object, None);
        let wanted = patched(&real.object, &decision)?;
        // The API server fills in defaults; what stands in the containers stays.
        same_command_lines(&answer.body, &wanted)?;
        return Ok(decision.outcome);
    }
    let mut sent = last.clone();
    sent["metadata"]["annotations"][APPLY] = json!(format!("{NAME}/{phase}"));
    let decision = decided(real, migration, &sent, Some(last));
    let wanted = patched(&sent, &decision)?;
    let patch = json!({"metadata": {"annotations": {APPLY: format!("{NAME}/{phase}")}}});
    let after = bench.merge(path, &patch).await?;
    ensure!(
        essence(&after.body) == essence(&wanted),
        "stored is not what was decided ({:?}):\n{}\nwanted\n{}",
        decision.reasons,
        essence(&after.body),
        essence(&wanted)
    );
    let again = bench
        .merge(
            path,
            &json!({"metadata": {"annotations": {APPLY: format!("{NAME}/{phase}/again")}}}),
        )
        .await?;
    let (one, two) = (essence(&after.body), essence(&again.body));
    ensure!(
        one["spec"] == two["spec"] && one["data"] == two["data"],
        "a second look changes {one} to {two}"
    );
    *last = again.body;
    Ok(decision.outcome)
}

fn decided(real: &Real, migration: &CloudProviderMigration, object: &Value, old: Option<&Value>) -> Decision {
    let labels = BTreeMap::from([
        (CLUSTER_LABEL.to_owned(), NAME.to_owned()),
        ("kubernetes.io/metadata.name".to_owned(), NAME.to_owned()),
    ]);
    let namespace = real.kind.namespaced.then_some(NAME);
    let migrations = [Migration::from(migration)];
    decide(&Input {
        namespace,
        namespace_labels: namespace.map(|_| &labels),
        own_namespace: Some("outrigger-system"),
        ..Input::creation(object, &migrations).over(old)
    })
}

fn patched(object: &Value, decision: &Decision) -> Result<Value> {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &decision.patch)?;
    Ok(patched)
}

/// The object without what the API server keeps for itself.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = object.as_object_mut();
    fields.map(|fields| fields.remove("status"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // The API server counts a Deployment's templates here.
            annotations
                .retain(|key, _| !key.starts_with("deprecated.") && !key.starts_with("deployment.kubernetes.io/"));
        }
    }
    object
}

fn same_command_lines(stored: &Value, wanted: &Value) -> Result<()> {
    let lines = |object: &Value| -> Vec<Value> {
        let containers = object["spec"]["containers"].as_array().cloned().unwrap_or_default();
        containers
            .iter()
            .map(|one| json!([one["name"], one["command"], one["args"]]))
            .collect()
    };
    ensure!(
        lines(stored) == lines(wanted),
        "stored {:?} wanted {:?}",
        lines(stored),
        lines(wanted)
    );
    let undo = |object: &Value| object["metadata"]["annotations"][UNDO].clone();
    ensure!(
        undo(stored) == undo(wanted),
        "undo annotation {} wanted {}",
        undo(stored),
        undo(wanted)
    );
    Ok(())
}

/// The way back restores the object of the time before the first phase, except for ownership tags, which name the
/// cluster and do no harm, and for the one-way switch of Kubermatic.
fn back_to_the_original(real: &Real, before: &Value, after: &Value) -> Result<()> {
    if !real.kind.on_update || (real.kind.group.starts_with("kubermatic.") && real.kind.kind == "Cluster") {
        return Ok(());
    }
    let plain = |object: &Value| {
        let mut object = essence(object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            let left = annotations.is_some_and(|all| {
                all.remove(APPLY);
                !all.is_empty()
            });
            if !left {
                metadata.remove("annotations");
            }
        }
        object
    };
    let (before, after) = (plain(before), plain(after));
    let only_tags = json_patch::diff(&before, &after).0.iter().all(|operation| {
        let path = operation.path().to_string();
        path.to_lowercase().contains("tag") && matches!(operation, json_patch::PatchOperation::Add(_))
    });
    ensure!(
        only_tags,
        "{} is not what it was:\n{before}\nnow\n{after}",
        real.kind.kind
    );
    Ok(())
}
