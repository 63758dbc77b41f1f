//! Definitions of the kinds that are not built in: the published ones where the data have them, and open ones, made from
//! the table of rules, elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_cluster_harness::cluster::Version;
use outrigger_decide::registration::{entries, match_conditions};
use outrigger_decide::{Kind, kinds};
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::cases::Case;
use crate::published;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/outrigger";
/// The kinds of cases with a published definition.
const PUBLISHED: usize = 35;
/// The version in which objects are stored where a kind has several.
const STORED: &str = "v1stored";

/// Several rows may be about one kind, each with versions of its own. kubectl reads every schema, so only kinds of cases
/// get their published definition.
pub async fn install(bench: &Bench, cases: &[Case]) -> Result<()> {
    let mut versions: BTreeMap<(&str, &str), (&Kind, BTreeSet<&str>)> = BTreeMap::new();
    for kind in kinds().filter(|kind| kind.group.contains('.') && kind.group != "storage.k8s.io") {
        let row = versions.entry((kind.group, kind.plural));
        row.or_insert((kind, BTreeSet::new())).1.extend(kind.versions);
    }
    let published = published_definitions(cases)?;

    for (kind, versions) in versions.values() {
        let versions: Vec<&str> = versions.iter().copied().collect();
        let open = manifests::open_definition(kind.group, kind.kind, kind.plural, kind.namespaced, &versions);
        let definition = match published.get(&name(kind)) {
            Some(published) => with_schemas(open, published)?,
            None => open,
        };
        install_one(bench, definition).await?;
    }
    for (kind, versions) in versions.values() {
        for version in versions {
            let path = format!("/apis/{}/{version}/{}", kind.group, kind.plural);
            bench
                .until(&format!("{path} is served"), async || {
                    Ok(review::send(&bench.admin, Method::GET, &path, None)
                        .await
                        .is_ok_and(|answer| answer.is_granted()))
                })
                .await?;
        }
    }
    Ok(())
}

/// By the name of the definition, which is the name of its file. Of two releases of one system the later folder counts.
fn published_definitions(cases: &[Case]) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    let Some(root) = published::find("crds") else {
        return Ok(found);
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    folders.sort();

    let names: BTreeSet<String> = cases.iter().map(|case| name(case.kind)).collect();
    for name in names {
        let mut files = folders.iter().rev().map(|folder| folder.join(format!("{name}.yaml")));
        if let Some(file) = files.find(|file| file.is_file()) {
            let definition = serde_saphyr::from_str(&std::fs::read_to_string(&file)?);
            found.insert(name, definition.with_context(|| file.display().to_string())?);
        }
    }
    ensure!(found.len() == PUBLISHED, "{} published definitions", found.len());
    Ok(found)
}

fn name(kind: &Kind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// The open definition with the schemas of the published one. Nothing converts here, so objects of several versions are
/// stored in a version of its own, which has no schema: each is checked by that in which it is written.
fn with_schemas(mut open: Value, published: &Value) -> Result<Value> {
    let schemas: BTreeMap<&str, &Value> = published["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|version| Some((version["name"].as_str()?, &version["schema"])))
        .collect();
    let versions = open["spec"]["versions"].as_array_mut().context("no versions")?;
    let mut stored = versions.first().context("no versions")?.clone();
    for version in versions.iter_mut() {
        if let Some(schema) = schemas.get(version["name"].as_str().unwrap_or_default()) {
            version["schema"] = (*schema).clone();
        }
    }
    if versions.len() > 1 {
        versions[0]["storage"] = json!(false);
        stored["name"] = json!(STORED);
        stored["served"] = json!(false);
        versions.push(stored);
    }
    Ok(open)
}

async fn install_one(bench: &Bench, mut definition: Value) -> Result<()> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = format!("{DEFINITIONS}/{name}?fieldManager=test&force=true");
    let answer = review::send(&bench.admin, Method::PATCH, &path, Some((review::APPLY, &definition))).await?;
    if answer.is_granted() {
        return Ok(());
    }
    // Kubernetes 1.26 does not know all of CEL.
    let why: String = answer.message().chars().take(200).collect();
    println!("  {name} without its rules in CEL: {why}");
    without_rules(&mut definition);
    review::send(&bench.admin, Method::PATCH, &path, Some((review::APPLY, &definition)))
        .await?
        .granted()?;
    Ok(())
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

/// The conditions of `outrigger webhook register` for API servers that have them: no case may be kept away.
fn add_conditions(registration: &mut Value) -> Result<()> {
    let mut added = 0;
    for entry in entries() {
        let webhooks = registration["webhooks"].as_array_mut().context("no webhooks")?;
        let conditions = match_conditions(&entry);
        if let Some(webhook) = webhooks.iter_mut().find(|webhook| webhook["name"] == entry.name) {
            added += conditions.len();
            webhook["matchConditions"] = json!(conditions);
        }
    }
    ensure!(added > 0, "no entry has a condition");
    Ok(())
}

/// The patch for operators whose targets name kube-system: it is taken from the exclusions of every entry.
pub async fn open_kube_system(bench: &Bench) -> Result<()> {
    let mut registration = bench.read(REGISTRATION).await?;
    let mut opened = 0;
    for entry in registration["webhooks"].as_array_mut().context("no webhooks")? {
        let expressions = entry["namespaceSelector"]["matchExpressions"].as_array_mut();
        for expression in expressions.into_iter().flatten() {
            let excludes = expression["operator"] == "NotIn";
            if let Some(excluded) = expression["values"].as_array_mut().filter(|_| excludes) {
                excluded.retain(|name| name != "kube-system");
                opened += 1;
            }
        }
    }
    ensure!(opened > 0, "no entry leaves kube-system out");
    if bench.version == Version::V1_36 {
        add_conditions(&mut registration)?;
    }
    bench
        .merge(REGISTRATION, &json!({"webhooks": registration["webhooks"]}))
        .await?;
    Ok(())
}
