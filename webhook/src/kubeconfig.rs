//! Reading a kubeconfig, whose faults are told without what it holds.

use std::path::Path;

use anyhow::{Context, Result};
use kube::Config;
use kube::config::KubeConfigOptions;
use outrigger_shared::kubeconfig::{self, Programs};

/// The configuration of a client.
///
/// # Errors
/// When the file cannot be read or used, or starts a program and must not; the message names it.
pub async fn from_file(file: &Path, programs: Programs) -> Result<Config> {
    let read = kubeconfig::read(file, programs).with_context(|| format!("kubeconfig {}", file.display()))?;
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
            let error = from_file(&file, Programs::Refused).await.err().unwrap();
            let told = format!("{error:#} {error:?}");
            assert!(told.starts_with("kubeconfig ") && told.contains("line "), "{told}");
            assert!(!told.contains(SECRET), "{text}: {told}");
        }
    }
    #[tokio::test]
    async fn a_program_is_started_only_where_the_operator_writes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
            contexts: [{name: c, context: {cluster: c, user: u}}]\n\
            users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /nonexistent}}}]\n";
        std::fs::write(&file, text).unwrap();
        assert!(from_file(&file, Programs::Allowed).await.is_ok());

        let told = format!("{:#}", from_file(&file, Programs::Refused).await.err().unwrap());
        assert!(
            told.starts_with(&format!("kubeconfig {}: user \"u\" has the field exec", file.display())),
            "{told}"
        );
    }
}
