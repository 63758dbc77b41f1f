//! The authorities that the AWS clients trust (`AWS_CA_BUNDLE`).

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use outrigger_shared::limited_file;

const VARIABLE: &str = "AWS_CA_BUNDLE";

/// The content of the file that the variable names. `environment` gives variables by name; an empty one counts as absent.
///
/// # Errors
/// When the file cannot be read, or holds anything but certificates.
pub(super) fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Result<Option<Vec<u8>>> {
    let Some(path) = environment(VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };

    let pem = limited_file::read_text(Path::new(&path))
        .with_context(|| format!("{VARIABLE}={path} cannot be read: mount the file there, or unset the variable"))?;
    let fix = || format!("{VARIABLE}={path} is no CA bundle: give PEM certificates only, or unset the variable");
    let roots = outrigger_certs::bundle::roots(&pem).with_context(fix)?;
    ensure!(!roots.is_empty(), fix());

    Ok(Some(pem.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Result<Option<Vec<u8>>> {
        from_environment(|name| (name == VARIABLE).then(|| path.to_owned()))
    }

    #[test]
    fn a_broken_bundle_is_an_error_that_names_variable_path_and_fix() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (path, text) in [
            (file("empty.pem", ""), "give PEM certificates only"),
            (file("text.pem", "no certificate"), "give PEM certificates only"),
            (file("broken.pem", broken), "give PEM certificates only"),
            (folder.path().join("absent.pem").display().to_string(), "mount the file"),
            (folder.path().display().to_string(), "mount the file"),
        ] {
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.starts_with(&format!("AWS_CA_BUNDLE={path} ")), "{error}");
            assert!(error.contains(text) && error.contains("unset the variable"), "{error}");
        }
    }

    #[test]
    fn certificates_are_taken_as_they_are_and_no_variable_is_no_bundle() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &certificate).unwrap();
        let taken = read(&file.path().display().to_string()).unwrap();
        assert_eq!(taken, Some(certificate.into_bytes()));
        assert_eq!(read("").unwrap(), None);
        assert_eq!(from_environment(|_| None).unwrap(), None);
    }
}
