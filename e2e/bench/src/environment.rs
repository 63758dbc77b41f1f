//! What the servers stand on: a management cluster with the migrations, and a certificate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::objects;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;

/// A real etcd and API server. Dropping it ends both.
pub struct Environment {
    /// The folder of the run: keys, logs.
    pub run: PathBuf,
    /// The PEM of who issued the servers' certificate.
    pub authority: String,
    /// How a server reads the management cluster.
    pub kubeconfig: PathBuf,
    /// The folder with the serving certificate.
    pub certificates: PathBuf,
    /// The migrations as a file, for a server that does not watch them.
    pub migrations: PathBuf,
    _server: ApiServer,
    _etcd: Etcd,
}

impl Environment {
    /// The components that it needs.
    pub const TOOLS: [Tool; 2] = [Tool::Etcd, Tool::ApiServer136];

    /// Starts both and makes the migrations and their namespace. `range` is in 127/8.
    ///
    /// # Errors
    /// When a component does not start, or refuses an object.
    pub async fn build(tools: &Tools, run: &Path, range: &str) -> Result<Self> {
        let etcd = Etcd::start(tools, run).await?;
        let options = ApiServerOptions::new("management", Version::V1_36, range);
        let server = ApiServer::start(tools, run, &etcd, &options).await?;
        let admin = server.client(&User::admin(), "outrigger-bench").await?;
        let file = manifests::folder().join("base/crd.yaml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let definition: Value = serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects::CONTROL_PLANE}});
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let migrations = objects::migrations();
        manifests::apply(&admin, &[definition, namespace, shop]).await?;
        manifests::apply(&admin, &migrations).await?;

        let certificates = run.join("certificates");
        let authority = manifests::issue_webhook_certificate(&certificates, "127.0.0.1")?;
        let list = run.join("migrations.json");
        std::fs::write(&list, Value::from(migrations).to_string()).with_context(|| list.display().to_string())?;

        Ok(Self {
            run: run.to_owned(),
            authority,
            // Which user reads is not what is measured, and the rights are proved elsewhere.
            kubeconfig: server.kubeconfig(&User::admin())?,
            certificates,
            migrations: list,
            _server: server,
            _etcd: etcd,
        })
    }
}
