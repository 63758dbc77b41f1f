//! Reads the configuration from a file.

use std::path::Path;

use super::{ConfigError, LeaderMigrationConfiguration, Loaded};
use crate::limited_file;

/// Reads a file; see [`LeaderMigrationConfiguration::from_text`].
///
/// # Errors
/// Also when the file cannot be read, or is larger than [`limited_file::MAX_BYTES`].
pub fn read(path: &Path) -> Result<Loaded, ConfigError> {
    let name = path.display().to_string();
    match limited_file::read_text(path) {
        Ok(text) => LeaderMigrationConfiguration::from_text(&name, &text),
        Err(source) => Err(ConfigError::Unreadable { path: name, source }),
    }
}
