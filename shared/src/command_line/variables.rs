//! `$(NAME)`: the kubelet puts in the value of the container's environment variable, as a part of its token.
//!
//! A value that the container itself gives as text is known. Everything else (Secrets, ConfigMaps, fields, Services) is
//! only known when the container starts. A whole token `$(EXTRA)` may then be any flag.

use serde_json::Value;

use super::error::Unreadable;
use super::line::{CommandLine, Environment};

/// The values that the container gives as text. A later entry replaces an earlier one of its name, also with an unknown
/// value.
pub(super) fn environment(container: &Value) -> Environment {
    let entries = container.get("env").and_then(Value::as_array);
    let mut known = Environment::new();
    for entry in entries.into_iter().flatten() {
        let Some(name) = entry.get("name").and_then(Value::as_str) else {
            continue;
        };
        match entry.get("value").and_then(Value::as_str) {
            // It may refer to other variables.
            Some(value) if !value.contains("$(") => known.insert(name.to_owned(), value.to_owned()),
            _ => known.remove(name),
        };
    }

    known
}

impl CommandLine {
    /// Expands the tokens whose variables are all known.
    pub(super) fn expand(&mut self) {
        let tokens = self.command.iter().chain(&self.args).flatten();
        let with_variables = tokens.filter(|token| token.contains("$("));
        let expanded = with_variables.filter_map(|token| Some((token.clone(), expanded(token, &self.environment)?)));
        self.expanded = expanded.collect();
    }
}

/// The token with its variables' values; none where one of them is not known. `$$(NAME)` is no variable, and not read.
fn expanded(token: &str, environment: &Environment) -> Option<String> {
    let mut text = String::with_capacity(token.len());
    let mut rest = token;
    while let Some((before, after)) = rest.split_once("$(") {
        let (name, behind) = after.split_once(')')?;
        if before.ends_with('$') {
            return None;
        }
        text.push_str(before);
        text.push_str(environment.get(name)?);
        rest = behind;
    }

    text.push_str(rest);

    Some(text)
}

/// Flags of the components that are known to have a value, so that a token after them is no flag.
const WITH_VALUE: [&str; 21] = [
    "advertise-address",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "client-ca-file",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "config",
    "controllers",
    "etcd-servers",
    "feature-gates",
    "hostname-override",
    "kubeconfig",
    "leader-migration-config",
    "node-ip",
    "root-ca-file",
    "service-account-private-key-file",
    "service-cluster-ip-range",
    "v",
];

/// An error for a token whose name is only known when the container starts, so that it may be any flag.
pub(super) fn check(before: Option<&str>, token: &str) -> Result<(), Unreadable> {
    let name = token.split_once('=').map_or(token, |(name, _)| name);
    let is_value = before
        .and_then(|before| before.strip_prefix("--").or_else(|| before.strip_prefix('-')))
        .is_some_and(|before| WITH_VALUE.contains(&before.replace('_', "-").as_str()));
    if name.contains("$(") && !is_value {
        return Err(Unreadable::Hidden {
            token: token.to_owned(),
        });
    }

    Ok(())
}
