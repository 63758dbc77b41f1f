//! The commands and their flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use outrigger_shared::migration::Phase;

/// Moves a Kubernetes cluster on AWS from the in-tree cloud provider to an external cloud controller manager
///
/// Exit codes: 0 all is well, 1 the input or the command line is wrong, 2 something stands in the way of what was asked.
#[derive(Debug, Parser)]
#[command(name = "outrigger", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what the webhook would do to objects in files. Needs no cluster
    ///
    /// Every object is decided by the very rules that the webhook runs. The exit code is 2 when the webhook would have to
    /// leave an object as it is because something stands in the way.
    Mutate(MutateArgs),
    /// What the webhook does, done otherwise
    Webhook(WebhookArgs),
}

/// `outrigger mutate`.
#[derive(Debug, clap::Args)]
pub struct MutateArgs {
    /// YAML or JSON with the objects; `-` is stdin. May be repeated. Namespaces among them tell the labels of namespaces
    #[arg(short, long, value_name = "FILE", required = true)]
    pub filename: Vec<String>,
    /// A file with CloudProviderMigrations, or the name of one that a file holds. May be repeated. Without it, those among
    /// the documents of --filename
    #[arg(long, value_name = "FILE|NAME")]
    pub migration: Vec<String>,
    /// What happens to the objects [default: create, or update with --old]
    #[arg(long, value_enum)]
    pub operation: Option<Operation>,
    /// The objects as they are stored now, for --operation=update
    #[arg(long, value_name = "FILE")]
    pub old: Option<String>,
    /// Decide as if the migrations were in this phase
    #[arg(long, value_parser = phase)]
    pub phase: Option<Phase>,
    /// Decide as if the condition Prepared were true, or false [default: what the migration's status says]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub prepared: Option<bool>,
    /// Labels of the namespaces that are not among the documents, and their names as labels besides
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = labels)]
    pub namespace_labels: Option<Labels>,
    /// The namespace of objects that name none
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Decide as at the webhook's path /mutate/NAME: the objects come from the migrated cluster's own API server
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Decide as if a cloud-controller-manager were, or were not, at work in the cluster of the Nodes [default: not known]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub manager_ready: Option<bool>,
    /// The webhook's own namespace, which it never changes anything in
    #[arg(long, value_name = "NAMESPACE", default_value = "outrigger-system")]
    pub own_namespace: String,
    /// What is printed: text for people, json with everything, yaml with the objects as they would be stored
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Write the objects as they would be stored, as YAML, to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `outrigger webhook`.
#[derive(Debug, clap::Args)]
pub struct WebhookArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: WebhookCommand,
}

/// The commands about the webhook.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Print admission policies that do the simple part of the webhook's work in the API server itself
    ///
    /// The uninitialized taint of new Nodes and ownership tags, as MutatingAdmissionPolicies with their bindings. They read
    /// the CloudProviderMigration in the cluster each time, so they follow its phase and targets; render them anew only for
    /// another migration, or another version of this tool.
    RenderPolicies(RenderArgs),
}

/// `outrigger webhook render-policies`.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// A file with CloudProviderMigrations; `-` is stdin. May be repeated
    #[arg(long, value_name = "FILE", required = true)]
    pub migration: Vec<String>,
    /// Version of the policy API: v1 from Kubernetes 1.36 on, v1beta1 from 1.34 on where it is switched on
    #[arg(long, value_enum, default_value_t = PolicyVersion::V1)]
    pub api_version: PolicyVersion,
    /// The webhook's own namespace, which is never changed
    #[arg(long, value_name = "NAMESPACE", default_value = "outrigger-system")]
    pub own_namespace: String,
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is written again.
    Update,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// Versioned, for programs.
    Json,
    /// The objects alone.
    Yaml,
}

/// Versions of `admissionregistration.k8s.io` that have mutating policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyVersion {
    /// Kubernetes 1.36 and later.
    V1,
    /// Kubernetes 1.34 and later, behind a feature gate and a runtime configuration.
    V1beta1,
}

impl PolicyVersion {
    /// As `apiVersion` names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// Labels as one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

fn phase(text: &str) -> Result<Phase, String> {
    let names = || Phase::ALL.map(Phase::as_str).join(", ");
    Phase::ALL
        .into_iter()
        .find(|phase| phase.as_str().eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("not a phase; one of {}", names()))
}

fn labels(text: &str) -> Result<Labels, String> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| format!("{pair:?} is not KEY=VALUE"))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key:?} is given twice"));
        }
    }
    Ok(Labels(labels))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn labels_are_pairs_each_key_once() {
        assert_eq!(labels("a=b,c=").map(|labels| labels.0.len()), Ok(2));
        assert_eq!(labels(""), Ok(Labels::default()));
        for wrong in ["a", "=b", "a=1,a=2"] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
    }
}
