//! Reads the keys of AWS's shared credentials file where another principal writes it.
//!
//! The SDK takes much more from such a file: a role with a web identity token file and the endpoint to which the token is sent,
//! a program that prints credentials. So the author of the file would get the token of this process, or run a program here.
//! Here a profile has keys and nothing else.
//! <https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, future};

/// The file may change: it is read again after this time.
const AGE: Duration = Duration::from_secs(300);
/// Much more than keys need, in bytes.
const LARGEST: u64 = 64 << 10;
const KEYS: [&str; 3] = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
/// They have no effect here: the region is a setting.
const WITHOUT_EFFECT: [&str; 2] = ["region", "output"];

/// A shared credentials file, and a profile in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysFile {
    pub path: PathBuf,
    pub profile: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--aws-keys-file={path} cannot be used: {why}")]
pub struct KeysFileError {
    path: String,
    why: String,
}

impl KeysFile {
    /// Reads the keys. They are valid for [`AGE`] from `now` on.
    ///
    /// # Errors
    /// When the file cannot be read, the profile lacks a key, or it has anything besides keys. No error has a value in it.
    pub(crate) fn read(&self, now: SystemTime) -> Result<Credentials, KeysFileError> {
        let error = |why: String| KeysFileError {
            path: self.path.display().to_string(),
            why,
        };
        let text = content(&self.path).map_err(error)?;
        let [id, secret, token] = keys(&text, &self.profile).map_err(error)?;
        let lacks = |key: &str| error(format!("profile {:?} has no {key}", self.profile));
        Ok(Credentials::new(
            id.ok_or_else(|| lacks(KEYS[0]))?,
            secret.ok_or_else(|| lacks(KEYS[1]))?,
            token,
            Some(now + AGE),
            "KeysFile",
        ))
    }

    /// Whether the keys can be read.
    pub(crate) fn check(&self) -> Result<(), KeysFileError> {
        self.read(SystemTime::UNIX_EPOCH).map(drop)
    }
}

fn content(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text);
    let read = read.map_err(|error| error.to_string())?;
    match u64::try_from(read).is_ok_and(|read| read <= LARGEST) {
        true => Ok(text),
        false => Err(format!("it has more than {LARGEST} bytes")),
    }
}

/// As in the SDK, a comment after a value begins with a space.
fn without_comment(value: &str) -> &str {
    let begins = |pattern: &str| value.find(pattern);
    let comments = [" #", " ;", "\t#", "\t;"].into_iter().filter_map(begins);
    comments.min().map_or(value, |at| &value[..at])
}

/// The values of [`KEYS`] in a profile.
fn keys(text: &str, profile: &str) -> Result<[Option<String>; 3], String> {
    let mut found = [None, None, None];
    let (mut is_profile, mut exists) = (false, false);
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            let name = section.split(']').next().unwrap_or_default();
            is_profile = name.trim() == profile;
            exists |= is_profile;
            continue;
        }
        if !is_profile {
            continue;
        }

        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let value = without_comment(value);
        let key = key.trim().to_ascii_lowercase();
        match KEYS.iter().position(|known| *known == key) {
            Some(place) => found[place] = Some(value.trim().to_owned()).filter(|value| !value.is_empty()),
            None if WITHOUT_EFFECT.contains(&key.as_str()) => {}
            None => {
                return Err(format!(
                    "line {number} of profile {profile:?} has something other than {}: the file may have these keys only",
                    KEYS.join(", ")
                ));
            }
        }
    }

    match exists {
        true => Ok(found),
        false => Err(format!("it has no profile [{profile}]")),
    }
}

impl ProvideCredentials for KeysFile {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        #[expect(clippy::disallowed_methods, reason = "the SDK asks without a time")]
        let now = SystemTime::now();
        let read: provider::Result = self.read(now).map_err(CredentialsError::provider_error);
        future::ProvideCredentials::ready(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# of the tenant\n[other]\nrole_arn = x\n\n[default]\naws_access_key_id = AKID\naws_secret_access_key=a=b/c\nregion = eu-central-1\n";

    fn read(text: &str, profile: &str) -> Result<Credentials, KeysFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        std::fs::write(&path, text).unwrap();
        let profile = profile.to_owned();
        KeysFile { path, profile }.read(SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn the_keys_of_the_profile_are_read_and_last_for_some_minutes() {
        let read = read(GOOD, "default").unwrap();
        assert_eq!((read.access_key_id(), read.secret_access_key()), ("AKID", "a=b/c"));
        assert_eq!(read.session_token(), None);
        assert_eq!(read.expiry(), Some(SystemTime::UNIX_EPOCH + AGE));
        let token = format!("{GOOD}AWS_SESSION_TOKEN = t\n");
        assert_eq!(self::read(&token, "default").unwrap().session_token(), Some("t"));
    }

    #[test]
    fn a_comment_after_a_value_is_no_part_of_it() {
        let text = "[default]\naws_access_key_id = AKID # old\naws_secret_access_key = a#b;c\t; old\n";
        let read = read(text, "default").unwrap();
        assert_eq!((read.access_key_id(), read.secret_access_key()), ("AKID", "a#b;c"));
    }

    #[test]
    fn everything_else_is_refused_without_its_value() {
        for key in [
            "role_arn",
            "source_profile",
            "credential_source",
            "web_identity_token_file",
            "credential_process",
            "sso_session",
            "endpoint_url",
            "services",
            "s3 =\n  endpoint_url",
        ] {
            let text = format!("{GOOD}{key} = the-value\n");
            let error = read(&text, "default").unwrap_err().to_string();
            assert!(error.contains("line 9 of profile"), "{error}");
            assert!(!error.contains("the-value"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, profile, said) in [
            (GOOD, "prod", "no profile [prod]"),
            ("", "default", "no profile [default]"),
            (
                "[default]\naws_access_key_id = a",
                "default",
                "no aws_secret_access_key",
            ),
            ("[default]\naws_access_key_id =\n", "default", "no aws_access_key_id"),
        ] {
            let error = read(text, profile).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let large = "#".repeat(70_000);
        assert!(read(&large, "default").unwrap_err().to_string().contains("65536 bytes"));
    }
}
