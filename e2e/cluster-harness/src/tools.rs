//! Where the real components are: the answers of `e2e/tools/build`.
//!
//! `make` builds them first and writes `KEY=PATH` lines into a file that `OUTRIGGER_TOOLS` names. A test that is run by
//! hand, without that file or with one that lacks a family, asks the script itself, which builds what is missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use thiserror::Error;
use tokio::process::Command;

use crate::repository;

/// The environment variable that names the file with the `KEY=PATH` lines.
pub const TOOLS_FILE: &str = "OUTRIGGER_TOOLS";

/// The release of aws-cloud-controller-manager that [`Tool::AwsCloudControllerManager`] is built from.
pub const INCUMBENT_VERSION: &str = "v1.37.1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// kube-apiserver 1.26, the last minor whose controllers contain the in-tree AWS provider.
    ApiServer126,
    ControllerManager126,
    /// kube-apiserver of the newest minor.
    ApiServer136,
    /// kube-controller-manager of the newest minor.
    ControllerManager136,
    Kubectl,
    Etcd,
    Kustomize,
    Helm,
    /// The registry client of go-containerregistry, which also serves a registry.
    Crane,
    AwsCloudControllerManager,
    /// The Python interpreter of moto's virtual environment.
    MotoPython,
    /// Flux' status library as a program.
    Kstatus,
    /// The JSON patch library, encoder and decoder of an API server, by its minor.
    JsonPatch122,
    JsonPatch126,
    JsonPatch136,
    /// The webhook's counterpart in `make bench`.
    WebhookGo,
    /// The controllers of cert-manager, beside `crds`, the folder of its definitions.
    CertManagerController,
    CertManagerCainjector,
    Kubelet,
    /// The program of a Pod's sandbox.
    Pause,
    /// A program for Pods that reads the version of the API server.
    Probe,
    /// containerd, beside the other programs and libraries of its Debian packages.
    Containerd,
    /// buildah, beside the libraries of its Debian packages, if it is not installed.
    Buildah,
}

impl Tool {
    /// The key in the script's answer, and the family: what the script builds it from.
    fn key_and_family(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiServer126 => ("K8S_1_26_KUBE_APISERVER", "k8s-1.26"),
            Self::ControllerManager126 => ("K8S_1_26_KUBE_CONTROLLER_MANAGER", "k8s-1.26"),
            Self::ApiServer136 => ("K8S_1_36_KUBE_APISERVER", "k8s-1.36"),
            Self::ControllerManager136 => ("K8S_1_36_KUBE_CONTROLLER_MANAGER", "k8s-1.36"),
            Self::Kubectl => ("KUBECTL", "kubectl"),
            Self::Etcd => ("ETCD", "etcd"),
            Self::Kustomize => ("KUSTOMIZE", "kustomize"),
            Self::Helm => ("HELM", "helm"),
            Self::Crane => ("CRANE", "crane"),
            Self::AwsCloudControllerManager => ("AWS_CLOUD_CONTROLLER_MANAGER", "aws-ccm"),
            Self::MotoPython => ("MOTO_PYTHON", "moto"),
            Self::Kstatus => ("KSTATUS", "kstatus"),
            Self::JsonPatch122 => ("JSON_PATCH_1_22", "json-patch"),
            Self::JsonPatch126 => ("JSON_PATCH_1_26", "json-patch"),
            Self::JsonPatch136 => ("JSON_PATCH_1_36", "json-patch"),
            Self::WebhookGo => ("WEBHOOK_GO", "webhook-go"),
            Self::CertManagerController => ("CERT_MANAGER_CONTROLLER", "cert-manager"),
            Self::CertManagerCainjector => ("CERT_MANAGER_CAINJECTOR", "cert-manager"),
            Self::Kubelet => ("KUBELET", "kubelets"),
            Self::Pause => ("PAUSE", "kubelets"),
            Self::Probe => ("PROBE", "kubelets"),
            Self::Containerd => ("CONTAINERD", "containerd"),
            Self::Buildah => ("BUILDAH", "buildah"),
        }
    }
}

/// Why a component is not at hand.
#[derive(Debug, Error)]
pub enum ToolsError {
    /// The file that the environment names cannot be read.
    #[error("{TOOLS_FILE}={path} cannot be read: {source}; run `make tools`, or unset {TOOLS_FILE}")]
    File { path: String, source: std::io::Error },
    /// The script cannot be run at all.
    #[error("cannot run {script}: {source}")]
    Script { script: String, source: std::io::Error },
    /// The script failed; it has said why on stderr.
    #[error("e2e/tools/build --paths {families} failed ({status}); its messages are above")]
    Build { families: String, status: String },
    /// The script ended well and still did not name the tool.
    #[error("no path for {key}: run e2e/tools/build --paths {family} and see what it prints")]
    Missing { key: &'static str, family: &'static str },
}

/// Paths of the components that a test asked for.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    paths: BTreeMap<String, PathBuf>,
}

impl Tools {
    /// Finds the tools; builds those that neither the file nor the cache has, which takes minutes.
    ///
    /// # Errors
    /// See [`ToolsError`]; each says what to do.
    pub async fn load(wanted: &[Tool]) -> Result<Self, ToolsError> {
        let mut tools = match std::env::var(TOOLS_FILE) {
            Ok(path) => {
                let text = tokio::fs::read_to_string(&path)
                    .await
                    .map_err(|source| ToolsError::File { path, source })?;
                Self { paths: parse(&text) }
            }
            Err(_) => Self::default(),
        };

        let mut families: Vec<&str> = Vec::new();
        for tool in wanted {
            let (_, family) = tool.key_and_family();
            if tools.path(*tool).is_err() && !families.contains(&family) {
                families.push(family);
            }
        }

        if !families.is_empty() {
            tools.paths.extend(parse(&build(&families).await?));
        }

        wanted.iter().try_for_each(|tool| tools.path(*tool).map(|_| ()))?;

        Ok(tools)
    }

    /// The path of a tool that exists.
    ///
    /// # Errors
    /// [`ToolsError::Missing`] for a tool that was not asked for, or whose file is gone.
    pub fn path(&self, tool: Tool) -> Result<&Path, ToolsError> {
        let (key, family) = tool.key_and_family();
        let path = self.paths.get(key).map(PathBuf::as_path);
        path.filter(|path| path.is_file())
            .ok_or(ToolsError::Missing { key, family })
    }
}

async fn build(families: &[&str]) -> Result<String, ToolsError> {
    let script = repository::root().join("e2e/tools/build");
    let output = Command::new(&script)
        .arg("--paths")
        .args(families)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|source| ToolsError::Script {
            script: script.display().to_string(),
            source,
        })?;
    if !output.status.success() {
        return Err(ToolsError::Build {
            families: families.join(" "),
            status: output.status.to_string(),
        });
    }

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(text: &str) -> BTreeMap<String, PathBuf> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, path)| (key.trim().to_owned(), PathBuf::from(path.trim())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{INCUMBENT_VERSION, Tool, Tools, ToolsError, parse};
    use crate::repository;

    /// Other pages name the minor only.
    #[test]
    fn the_build_and_the_page_of_compatibility_name_one_release_of_the_incumbent() {
        for (file, line) in [
            (
                "e2e/tools/aws-ccm/go.mod",
                "k8s.io/cloud-provider-aws VERSION // indirect",
            ),
            ("docs/compatibility.md", "| aws-cloud-controller-manager | VERSION |"),
        ] {
            let text = std::fs::read_to_string(repository::root().join(file)).expect(file);
            let line = line.replace("VERSION", INCUMBENT_VERSION);
            assert!(text.contains(&line), "{file} has no {line:?}");
        }
    }

    #[test]
    fn a_path_may_contain_an_equals_sign() {
        let paths = parse("ETCD=/a=b/etcd\n\nnonsense\nKUSTOMIZE=/k\n");
        assert_eq!(paths.len(), 2);
        assert_eq!(paths["ETCD"].to_str(), Some("/a=b/etcd"));
    }

    #[test]
    fn a_path_that_does_not_exist_counts_as_missing() {
        let tools = Tools {
            paths: parse("ETCD=/does/not/exist"),
        };
        assert!(matches!(
            tools.path(Tool::Etcd),
            Err(ToolsError::Missing { key: "ETCD", .. })
        ));
    }
}
