//! Reads a kubeconfig. It contains tokens and keys, and the parser's errors quote lines of it: of such an error only
//! the position is reported.

use std::io;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;

use crate::limited_file;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    Operator,
    /// Maybe another party, such as the administrator of a tenant's cluster: a program would run with the rights of
    /// this process, and a file of this process would be sent to an API server of the author's choice.
    Tenant,
}

/// Reads the configuration of a client. Paths in the file are relative to its directory.
///
/// # Errors
/// When the file cannot be read, is larger than [`limited_file::MAX_BYTES`], is no kubeconfig, or uses fields that
/// its author must not use.
pub async fn config(path: &Path, author: Author) -> Result<kube::Config, Unusable> {
    let file = read(path, author)?;
    let names_proxy = names_proxy(&file);
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;

    // kube takes HTTPS_PROXY for the API server's too, which a Pod's own configuration does not.
    if !names_proxy {
        config.proxy_url = None;
    }

    Ok(config)
}

fn read(path: &Path, author: Author) -> Result<Kubeconfig, Unusable> {
    // The parser's own reader has no limit.
    limited_file::read(path).map_err(Unusable::File)?;

    let kubeconfig = Kubeconfig::read_from(path)?;
    if author == Author::Operator {
        return Ok(kubeconfig);
    }

    if let Some((user, field)) = program(&kubeconfig) {
        return Err(Unusable::Program { user, field });
    }

    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(Unusable::File)?;
    files(&kubeconfig).try_for_each(|file| file.is_in(&folder))?;

    Ok(kubeconfig)
}

/// Whether the cluster of the current context has a `proxy-url`.
fn names_proxy(file: &Kubeconfig) -> bool {
    let current = file.current_context.as_ref();
    let context = file.contexts.iter().find(|context| Some(&context.name) == current);
    let name = context.and_then(|context| Some(&context.context.as_ref()?.cluster));
    let cluster = file.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    let proxy = cluster.and_then(|cluster| cluster.cluster.as_ref()?.proxy_url.as_ref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// The first user whose credentials come from a program, and the field that names it. An `auth-provider` may name a
/// program too (`cmd-path`).
fn program(kubeconfig: &Kubeconfig) -> Option<(String, &'static str)> {
    kubeconfig.auth_infos.iter().find_map(|user| {
        let info = user.auth_info.as_ref()?;
        let field = match (&info.exec, &info.auth_provider) {
            (Some(_), _) => "exec",
            (None, Some(_)) => "auth-provider",
            (None, None) => return None,
        };
        Some((user.name.clone(), field))
    })
}

/// A field of a kubeconfig that names a file.
#[derive(Clone, Debug)]
pub struct Place {
    /// Such as `user "a"`.
    entry: String,
    field: &'static str,
    path: String,
}

/// Every file that a kubeconfig names, also beside data that would be used instead.
fn files(kubeconfig: &Kubeconfig) -> impl Iterator<Item = Place> {
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| {
        Some(Place {
            entry: format!("cluster {:?}", cluster.name),
            field: "certificate-authority",
            path: cluster.cluster.as_ref()?.certificate_authority.clone()?,
        })
    });

    let users = kubeconfig.auth_infos.iter().flat_map(|user| {
        let fields = user.auth_info.as_ref().map(files_of_user).into_iter().flatten();
        fields.filter_map(|(field, path)| {
            Some(Place {
                entry: format!("user {:?}", user.name),
                field,
                path: path.clone()?,
            })
        })
    });

    clusters.chain(users)
}

fn files_of_user(info: &AuthInfo) -> [(&'static str, &Option<String>); 3] {
    [
        ("tokenFile", &info.token_file),
        ("client-certificate", &info.client_certificate),
        ("client-key", &info.client_key),
    ]
}

impl Place {
    /// Links are followed first: a mounted Secret's files are links to `..data` beside them. The root folder holds all
    /// files, so being in it says nothing.
    fn is_in(&self, folder: &Path) -> Result<(), Unusable> {
        match Path::new(&self.path).canonicalize() {
            Ok(real) if folder.parent().is_some() && real.starts_with(folder) => Ok(()),
            Ok(_) => Err(Unusable::Outside(self.clone(), folder.to_owned())),
            Err(cause) => Err(Unusable::Missing(self.clone(), cause)),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has {}: {}", self.entry, self.field, self.path)
    }
}

/// An error in a kubeconfig, without any of its contents.
#[derive(Debug, Error)]
pub enum Unusable {
    /// Not YAML, or not of a kubeconfig's shape; with the place, if that is known.
    #[error("this is not a kubeconfig in YAML{0}; the text is not shown, as it may hold secrets")]
    NoKubeconfig(String),
    #[error("cannot read the file")]
    File(#[source] io::Error),
    /// A user's credentials come from a program, in a kubeconfig that may not start any.
    #[error(
        "user {user:?} has the field {field}, which can start a program in this process's container and is not allowed in \
         this kubeconfig; use token, tokenFile, or client-certificate and client-key instead"
    )]
    Program { user: String, field: &'static str },
    /// It names a file of this process's container that does not belong to it.
    #[error(
        "{0}, which is not in the kubeconfig's folder {folder} and is not allowed in this kubeconfig; put the file beside the \
         kubeconfig, in a folder of their own, or use the field that holds the data", folder = .1.display()
    )]
    Outside(Place, PathBuf),
    #[error("{0}, which cannot be found; put the file beside the kubeconfig, or use the field that holds the data")]
    Missing(Place, #[source] io::Error),
    #[error(transparent)]
    Other(KubeconfigError),
}

impl From<KubeconfigError> for Unusable {
    fn from(error: KubeconfigError) -> Self {
        match error {
            KubeconfigError::Parse(fault) => Self::NoKubeconfig(fault.location().map_or_else(String::new, |at| {
                format!(" at line {}, column {}", at.line(), at.column())
            })),
            // The words of the error name the path too, and the cause twice.
            KubeconfigError::ReadConfig(cause, _) => Self::File(cause),
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests;
