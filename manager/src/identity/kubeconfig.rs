//! Reading a kubeconfig, whose faults are told without what it holds.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::Config;
use kube::config::KubeConfigOptions;
use outrigger_shared::kubeconfig::{self, Programs};

/// The configuration of a client, from the file that `flag` names.
///
/// # Errors
/// When the file cannot be read or used, or starts a program and must not; the message names flag and path.
pub(super) async fn from_file(path: &Path, flag: &str, programs: Programs) -> Result<Config> {
    let context = || format!("{flag}={}", path.display());
    let file = kubeconfig::read(path, programs).with_context(context)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-token-that-no-message-may-hold";

    #[tokio::test]
    async fn no_fault_of_the_file_shows_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let users = format!("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    token: {SECRET}\n");
        for (case, text) in [
            ("the token alone", SECRET.to_owned()),
            ("a list for a token", users.replace(SECRET, &format!("[{SECRET}]"))),
            ("the token twice", format!("{users}    token: {SECRET}\n")),
            ("an indent after it", format!("{users}   x: y\n")),
            (
                "no map of users",
                format!("apiVersion: v1\nkind: Config\nusers: {SECRET}\n"),
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = from_file(&path, "--kubeconfig", Programs::Allowed).await;
            let told = error.map_or_else(|error| format!("{error:#} {error:?}"), |_| String::new());
            assert!(told.starts_with("--kubeconfig="), "{case}: {told}");
            assert!(!told.contains(SECRET), "{case}: {told}");
        }
    }
}
