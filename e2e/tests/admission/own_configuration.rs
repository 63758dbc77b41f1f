//! `spec.leaderMigration`: the stored template brings the file, and the real kube-controller-manager 1.26 obeys it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::components::{LEASES, MIGRATION_LEASE, all_start, delete, flags, holder, start};
use crate::objects::{self, Workload, flag, has_undo, is_on, line};
use crate::phases;

const NAME: &str = "own-list";
const LEASE: &str = "own-list-migration";

pub async fn the_old_manager_takes_the_lease_that_it_names(bench: &Bench) -> Result<()> {
    bench.namespace(NAME, &json!({})).await?;
    bench.migration(NAME, json!({})).await?;
    let command = [vec!["kube-controller-manager".to_owned()], phases::original(bench)?].concat();
    let workload = Workload::new(NAME, "kube-controller-manager").running(command, Vec::new());
    let before = bench
        .create(&objects::deployments(NAME), &workload.deployment())
        .await?
        .granted()?;
    // No name of the list is one that 1.26 has, and one controller is left out.
    let entry = |name: &str| json!({"name": name, "component": "*"});
    let list = [entry("service-lb-controller"), entry("node-route-controller")];
    let own = json!({"leaderName": LEASE, "controllerLeaders": list});
    bench
        .change(NAME, json!({"phase": "Prepare", "leaderMigration": own}))
        .await?;
    let stored = ask(bench, &workload, "Prepare").await?;
    let now = line(&stored);
    ensure!(is_on(&now, "enable-leader-migration") && has_undo(&stored), "{stored}");
    let again = ask(bench, &workload, "Prepare-again").await?;
    ensure!(again["spec"] == stored["spec"], "not settled: {again}");

    let mounted = mount(&stored, &bench.run.join("own-list"))?;
    let manager = start(bench, NAME, mounted)?;
    all_start(bench, std::slice::from_ref(&manager)).await?;
    bench
        .until(
            "one manager holds its own lease and the lease of the file",
            async || {
                let (main, own) = (
                    holder(bench, "kube-controller-manager").await?,
                    holder(bench, LEASE).await?,
                );
                Ok(main.is_some() && main == own)
            },
        )
        .await?;
    ensure!(
        holder(bench, MIGRATION_LEASE).await?.is_none(),
        "the built-in list counts all the same"
    );
    drop(manager);
    for lease in ["kube-controller-manager", LEASE] {
        delete(bench, &format!("{LEASES}/{lease}")).await?;
    }

    bench.change(NAME, json!({"phase": "InTree"})).await?;
    let back = ask(bench, &workload, "InTree").await?;
    ensure!(back["spec"] == before.body["spec"], "{back}\n{}", before.body);
    Ok(())
}

async fn ask(bench: &Bench, workload: &Workload, phase: &str) -> Result<Value> {
    let annotations = json!({objects::APPLY: format!("{NAME}/{phase}")});
    let patch = json!({"metadata": {"annotations": annotations}});
    let answer = bench.merge(&workload.path(), &patch).await?;
    ensure!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    Ok(answer.body)
}

/// Does what a kubelet does for the one file, below another folder: from the flag to the mount, to the volume, to the
/// annotation that it projects. Answers with the flags for that folder.
fn mount(deployment: &Value, folder: &Path) -> Result<Vec<String>> {
    let template = &deployment["spec"]["template"];
    let all = flags(&line(deployment));
    let file = Path::new(flag(&all, "leader-migration-config").context("no file is named")?);
    let named = |list: &Value, key: &str, value: &str| -> Result<Value> {
        let items = list.as_array().context("no list")?;
        let found = items.iter().find(|item| item[key] == value);
        found.cloned().with_context(|| format!("no {key} {value:?} in {list}"))
    };
    let (parent, name) = (
        file.parent().context("no folder")?,
        file.file_name().context("no name")?,
    );
    let container = named(&template["spec"]["containers"], "name", "kube-controller-manager")?;
    let mount = named(&container["volumeMounts"], "mountPath", &parent.display().to_string())?;
    ensure!(mount["readOnly"] == true, "{mount}");
    let volume = named(
        &template["spec"]["volumes"],
        "name",
        mount["name"].as_str().unwrap_or_default(),
    )?;
    let item = named(&volume["downwardAPI"]["items"], "path", &name.to_string_lossy())?;
    let field = item["fieldRef"]["fieldPath"].as_str().context("no field")?;
    let key = field
        .strip_prefix("metadata.annotations['")
        .and_then(|rest| rest.strip_suffix("']"))
        .with_context(|| format!("{field} is no annotation"))?;
    let text = template["metadata"]["annotations"][key].as_str().context("no text")?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(name), text)?;
    let (from, to) = (parent.display().to_string(), folder.display().to_string());
    Ok(all.iter().map(|text| text.replace(&from, &to)).collect())
}
