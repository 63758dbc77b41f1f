//! Reading a kubeconfig, and why it cannot be used. It holds tokens and keys, and the parser quotes the lines around a
//! fault: of its words only the place is told.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};
use thiserror::Error;

use crate::limited_file;

/// Reads a kubeconfig. Paths in it count from its folder.
///
/// # Errors
/// When it cannot be read, is larger than [`limited_file::MAX_BYTES`], or is no kubeconfig.
pub fn read(path: &Path) -> Result<Kubeconfig, Unusable> {
    // The parser's own reader has no limit.
    limited_file::read(path).map_err(Unusable::File)?;
    Ok(Kubeconfig::read_from(path)?)
}

/// A fault of a kubeconfig, in words that show nothing of what it holds.
#[derive(Debug, Error)]
pub enum Unusable {
    /// Not YAML, or not of a kubeconfig's shape; with the place, if that is known.
    #[error("this is no kubeconfig YAML{0}; the text is not shown, as it may hold secrets")]
    NoKubeconfig(String),
    /// The file is not there, or may not be read.
    #[error("cannot read the file")]
    File(#[source] std::io::Error),
    /// What it asks for cannot be had.
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
