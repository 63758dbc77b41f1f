//! Reading a kubeconfig, whose faults are told without what it holds.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use outrigger_shared::kubeconfig::{self, Programs};

/// The configuration of a client, from the file that `flag` names.
///
/// # Errors
/// When the file cannot be read or used, or starts a program and must not; the message names flag and path.
pub(super) async fn from_file(path: &Path, flag: &str, programs: Programs) -> Result<Config> {
    let context = || format!("{flag}={}", path.display());
    let file = kubeconfig::read(path, programs).with_context(context)?;
    let names_proxy = names_proxy(&file);
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(context)?;

    // kube takes HTTPS_PROXY for the API server's too, which a Pod's own configuration does not.
    if !names_proxy {
        config.proxy_url = None;
    }
    Ok(config)
}

/// Whether the cluster of the current context has a `proxy-url`.
fn names_proxy(file: &Kubeconfig) -> bool {
    let current = file.current_context.as_ref();
    let context = file.contexts.iter().find(|context| Some(&context.name) == current);
    let name = context.and_then(|context| Some(&context.context.as_ref()?.cluster));
    let cluster = file.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    cluster.is_some_and(|cluster| {
        cluster
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.proxy_url.is_some())
    })
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
