//! Reading a kubeconfig, and why it cannot be used. It holds tokens and keys, and the parser quotes the lines around a
//! fault: of its words only the place is told.

use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};
use thiserror::Error;

use crate::limited_file;

/// Whether a kubeconfig may get credentials from a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// The operator of this process writes the kubeconfig.
    Allowed,
    /// Another party may write it, such as the administrator of a tenant's cluster: a program would run with the rights of
    /// this process.
    Refused,
}

/// Reads a kubeconfig. Paths in it count from its folder.
///
/// # Errors
/// When it cannot be read, is larger than [`limited_file::MAX_BYTES`], is no kubeconfig, or has a user with `exec` or
/// `auth-provider` and those are refused.
pub fn read(path: &Path, programs: Programs) -> Result<Kubeconfig, Unusable> {
    // The parser's own reader has no limit.
    limited_file::read(path).map_err(Unusable::File)?;
    let kubeconfig = Kubeconfig::read_from(path)?;
    match (programs, program(&kubeconfig)) {
        (Programs::Refused, Some((user, field))) => Err(Unusable::Program { user, field }),
        _ => Ok(kubeconfig),
    }
}

/// The first user whose credentials come from a program, and the field that says so. An `auth-provider` may name a program
/// too (`cmd-path`).
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

/// A fault of a kubeconfig, in words that show nothing of what it holds.
#[derive(Debug, Error)]
pub enum Unusable {
    /// Not YAML, or not of a kubeconfig's shape; with the place, if that is known.
    #[error("this is no kubeconfig YAML{0}; the text is not shown, as it may hold secrets")]
    NoKubeconfig(String),
    /// The file is not there, or may not be read.
    #[error("cannot read the file")]
    File(#[source] std::io::Error),
    /// A user's credentials come from a program, in a kubeconfig that may not start any.
    #[error(
        "user {user:?} has the field {field}, which can start a program in this process's container and is not allowed in \
         this kubeconfig; use token, tokenFile, or client-certificate and client-key instead"
    )]
    Program {
        /// The name of the entry in `users`.
        user: String,
        /// The field of the entry.
        field: &'static str,
    },
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-token-that-no-message-may-hold";

    fn refusal(user: &str) -> Option<String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\nusers:\n- name: fine\n  user: {{token: {SECRET}, tokenFile: /t, client-key: /k}}\n\
             - name: tenant-a\n  user: {user}\n"
        );
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let (user, field) = program(&kubeconfig)?;
        Some(Unusable::Program { user, field }.to_string())
    }

    #[test]
    fn credentials_from_programs_are_refused_without_what_they_hold() {
        for (user, field) in [
            (
                format!("{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{SECRET}]}}}}"),
                "field exec",
            ),
            (
                format!("{{auth-provider: {{name: gcp, config: {{cmd-path: /bin/sh, access-token: {SECRET}}}}}}}"),
                "field auth-provider",
            ),
            (
                format!("{{auth-provider: {{name: oidc, config: {{refresh-token: {SECRET}}}}}}}"),
                "field auth-provider",
            ),
        ] {
            let told = refusal(&user).unwrap();
            assert!(told.contains(r#"user "tenant-a""#) && told.contains(field), "{told}");
            assert!(told.contains("use token") && !told.contains(SECRET), "{told}");
        }
        assert_eq!(refusal("{token: t}"), None);
        assert_eq!(refusal("{}"), None);
    }
}
