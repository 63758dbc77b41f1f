//! Reading a kubeconfig. It holds tokens and keys, and the parser quotes the lines around a fault: of its words only the
//! place is told.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// The configuration of a client.
///
/// # Errors
/// When the file cannot be read or used; the message names it.
pub async fn from_file(file: &Path) -> Result<Config> {
    let read = read(file).with_context(|| format!("kubeconfig {}", file.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("kubeconfig {}", file.display()))
}

fn read(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).map_err(|error| match error {
        KubeconfigError::Parse(fault) => {
            let place = fault.location().map_or_else(String::new, |at| {
                format!(" at line {}, column {}", at.line(), at.column())
            });
            anyhow!("this is no kubeconfig YAML{place}; the text is not shown, as it may hold secrets")
        }
        // The words of the error name the path too, and the cause twice.
        KubeconfigError::ReadConfig(cause, _) => anyhow!(cause).context("cannot read the file"),
        other => other.into(),
    })
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
