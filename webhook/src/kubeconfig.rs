//! Reading a kubeconfig, whose faults are told without what it holds.

use std::path::Path;

use anyhow::{Context, Result};
use kube::Config;
use kube::config::KubeConfigOptions;
use outrigger_shared::kubeconfig;

/// The configuration of a client.
///
/// # Errors
/// When the file cannot be read or used; the message names it.
pub async fn from_file(file: &Path) -> Result<Config> {
    let read = kubeconfig::read(file).with_context(|| format!("kubeconfig {}", file.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("kubeconfig {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_of_the_file_does_not_show_what_it_holds() {
        const SECRET: &str = "a-token-that-no-message-may-hold";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        for text in [
            SECRET.to_owned(),
            format!("users:\n- name: u\n  user:\n    token: [{SECRET}]\n"),
            format!("users:\n- name: u\n  user:\n    token: {SECRET}\n   x: y\n"),
        ] {
            std::fs::write(&file, &text).unwrap();
            let error = from_file(&file).await.err().unwrap();
            let told = format!("{error:#} {error:?}");
            assert!(told.starts_with("kubeconfig ") && told.contains("line "), "{told}");
            assert!(!told.contains(SECRET), "{text}: {told}");
        }
    }
}
