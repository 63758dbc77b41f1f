//! The environment of the webhooks: a management cluster with the migrations, and a certificate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::manager::cluster::Cluster;
use super::objects;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;

pub struct Environment {
    pub(crate) cluster: Cluster,
    /// The PEM of the issuer of the servers' certificate.
    pub authority: String,
    /// The folder with the serving certificate.
    pub(crate) certificates: PathBuf,
    /// The migrations as a file, for a server that does not watch them.
    pub(crate) migrations: PathBuf,
}

impl Environment {
    pub const TOOLS: [Tool; 2] = Cluster::TOOLS;

    /// Starts the cluster and creates the migrations and their namespaces. `range` is in 127/8.
    ///
    /// # Errors
    /// When a component does not start, or refuses an object.
    pub async fn build(tools: &Tools, run: &Path, range: &str) -> Result<Self> {
        let cluster = Cluster::build(tools, run, range).await?;
        let file = manifests::folder().join("base/crd.yaml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let definition: Value = serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects::CONTROL_PLANE}});
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let migrations = objects::migrations();
        manifests::apply(&cluster.admin, &[definition, namespace, shop]).await?;
        manifests::apply(&cluster.admin, &migrations).await?;

        let certificates = run.join("certificates");
        let authority = manifests::issue_webhook_certificate(&certificates, "127.0.0.1")?;
        let list = run.join("migrations.json");
        std::fs::write(&list, Value::from(migrations).to_string()).with_context(|| list.display().to_string())?;

        Ok(Self {
            cluster,
            authority,
            certificates,
            migrations: list,
        })
    }
}
