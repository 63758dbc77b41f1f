//! The golden cases of the webhook.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use outrigger_decide::{Decision, Input, Migration, Operation, decide};
use outrigger_shared::migration::CloudProviderMigrationSpec;
use serde::Deserialize;
use serde_json::Value;

use crate::peer;

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InputFile {
    operation: String,
    path: Option<String>,
    manager_ready: Option<bool>,
    namespace_labels: Option<BTreeMap<String, String>>,
    migrations: BTreeMap<String, CaseMigration>,
    object: Value,
    old_object: Option<Value>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseMigration {
    prepared: bool,
    spec: CloudProviderMigrationSpec,
}

/// A case whose object changes.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    input: InputFile,
    /// The stored object and the patch, as the file has them.
    wanted: Value,
    patch: Value,
}

impl Case {
    pub fn object(&self) -> &Value {
        &self.input.object
    }

    pub fn decide(&self, object: &Value) -> Result<Decision> {
        let input = &self.input;
        let migrations: Vec<Migration<'_>> = input
            .migrations
            .iter()
            .map(|(name, CaseMigration { prepared, spec })| Migration {
                name,
                spec,
                prepared: *prepared,
            })
            .collect();
        let operation = match input.operation.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            other => bail!("unknown operation {other}"),
        };
        Ok(decide(&Input {
            operation,
            namespace_labels: input.namespace_labels.as_ref(),
            old_object: input.old_object.as_ref(),
            path_migration: input.path.as_deref(),
            own_namespace: Some("outrigger-system"),
            manager_fresh: input.manager_ready,
            ..Input::creation(object, &migrations)
        }))
    }
}

pub fn read() -> Result<Vec<Case>> {
    let root = PathBuf::from("../webhook/decide/tests/golden");
    let mut cases = Vec::new();
    for kind in folders(&root)? {
        for folder in folders(&kind)? {
            let yaml = |name: &str| -> Result<String> { Ok(std::fs::read_to_string(folder.join(name))?) };
            let expected: Value = serde_saphyr::from_str(&yaml("expected.yaml")?)?;
            if expected["patch"].is_null() {
                continue;
            }
            cases.push(Case {
                name: folder.strip_prefix(&root)?.display().to_string(),
                input: serde_saphyr::from_str(&yaml("input.yaml")?)?,
                wanted: expected["object"].clone(),
                patch: expected["patch"].clone(),
            });
        }
    }
    Ok(cases)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let all = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut found: Vec<PathBuf> = all.collect::<Result<_>>()?;
    found.retain(|path| path.is_dir());
    found.sort();
    Ok(found)
}

/// The files decide here, not the code: the patch of each file gives the object of the file.
#[tokio::test]
async fn every_golden_patch_gives_the_golden_object() -> Result<()> {
    let mut peers = peer::all().await?;
    let cases = read()?;
    ensure!(cases.len() > 150, "only {} golden patches", cases.len());

    let mut wrong = Vec::new();
    for case in &cases {
        let patch: Vec<json_patch::PatchOperation> = serde_json::from_value(case.patch.clone())?;
        for peer in &mut peers {
            let sent = peer.sent(case.object()).await?.with_context(|| case.name.clone())?;
            let wanted = peer.sent(&case.wanted).await?.with_context(|| case.name.clone())?;
            let stored = peer.stored(&sent, &patch).await?;
            if stored.as_ref() != Ok(&wanted) {
                wrong.push(format!("{} {}: {stored:?}\nwanted {wanted}", peer.name, case.name));
            }
        }
    }
    println!("{} golden patches", cases.len());
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Go's types add fields, such as `creationTimestamp: null` and `status: {}`, so the patch may be another one.
#[tokio::test]
async fn the_decision_about_the_object_that_go_sends_gives_the_golden_object() -> Result<()> {
    let mut peers = peer::all().await?;
    for case in read()? {
        for peer in &mut peers {
            let sent = peer.sent(case.object()).await?.with_context(|| case.name.clone())?;
            let wanted = peer.sent(&case.wanted).await?.with_context(|| case.name.clone())?;
            let patch = case.decide(&serde_json::from_str(&sent)?)?.patch;
            let stored = peer.stored(&sent, &patch).await?;
            ensure!(
                stored.as_ref() == Ok(&wanted),
                "{} {}: {stored:?}\nwanted {wanted}",
                peer.name,
                case.name
            );
        }
    }
    Ok(())
}
