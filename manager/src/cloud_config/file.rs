//! Reads the cloud configuration from its file.

use std::path::Path;

use outrigger_shared::limited_file;

use super::{CloudConfig, CloudConfigError};

/// Reads the file; see [`CloudConfig::parse`].
///
/// # Errors
/// [`CloudConfigError`], also when the file cannot be read.
pub fn read(path: &Path, strict: bool) -> Result<CloudConfig, CloudConfigError> {
    let name = path.display().to_string();
    let content = limited_file::read(path).map_err(|source| CloudConfigError::Unreadable {
        path: name.clone(),
        source,
    })?;
    CloudConfig::parse(&content, &name, strict)
}
