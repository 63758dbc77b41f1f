//! `outrigger webhook register`: the objects with which API servers call the webhook.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use outrigger_decide::registration::{self, Certificates, Configuration, FailurePolicy, Options, Tenant};
use outrigger_shared::migration::Profile;
use serde_json::Value;

use crate::args::{CertificatesArg, FailurePolicyArg, RegisterArgs};
use crate::ca_bundle::{self, BundleError};
use crate::end::{End, Failure};
use crate::yaml;

/// Why nothing is printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--ca-bundle={}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("--ca-bundle={}: {source}", path.display())]
    Bundle { path: PathBuf, source: BundleError },
    /// The webhook changes Nodes of its own cluster only where the control plane is not hosted.
    #[error(
        "--hosted with profile Nodes only: nothing remains to register; print the objects of a tenant with --tenant and --url"
    )]
    NothingLeft,
}

/// Prints the objects.
///
/// # Errors
/// [`Failure`] on wrong input; then nothing is printed to `out`.
pub fn run(args: &RegisterArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let options = options(args)?;
    let objects = match (&args.tenant, &args.url) {
        (Some(name), Some(url)) => {
            let (name, url) = (name.clone(), url.clone());
            registration::tenant(&Tenant { name, url }, &options)
        }
        _ => registration::objects(&options),
    };

    let text = yaml::write_all(&objects)?;
    for note in notes(args, &objects) {
        writeln!(err, "note: {note}")?;
    }
    out.write_all(text.as_bytes())?;
    out.flush()?;

    Ok(End::Success)
}

fn options(args: &RegisterArgs) -> Result<Options, Error> {
    // In the order of the API, each once.
    let mut profiles = Profile::ALL.to_vec();
    profiles.retain(|profile| args.profiles.contains(profile) && !(args.hosted && *profile == Profile::Nodes));
    if profiles.is_empty() && args.tenant.is_none() {
        return Err(Error::NothingLeft);
    }

    let ca_bundle = args.ca_bundle.as_deref().map(bundle).transpose()?;
    Ok(Options {
        namespace: args.own_namespace.clone(),
        hosted: args.hosted,
        validation: args.validation,
        control_plane_policy: match args.failure_policy {
            FailurePolicyArg::Fail => FailurePolicy::Fail,
            FailurePolicyArg::Ignore => FailurePolicy::Ignore,
        },
        certificates: match args.certificates {
            CertificatesArg::Secret => Certificates::Secret,
            CertificatesArg::CertManager => Certificates::CertManager,
            CertificatesArg::SelfSigned => Certificates::SelfSigned,
        },
        ca_bundle,
        api_servers: args.api_servers.clone(),
        kubernetes_version: args.kubernetes_version,
        ..Options::new(&profiles)
    })
}

fn bundle(path: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    ca_bundle::encode(&text).map_err(|source| Error::Bundle {
        path: path.to_owned(),
        source,
    })
}

/// The effects that the objects alone do not show.
fn notes(args: &RegisterArgs, objects: &[Value]) -> Vec<String> {
    let mut notes = Vec::new();
    let is_nodes_left_out = args.hosted && args.profiles.contains(&Profile::Nodes);
    if is_nodes_left_out {
        notes.push(
            "with --hosted, Nodes are not registered here: print the objects of each tenant with --tenant and --url"
                .to_owned(),
        );
    }
    if args.certificates == CertificatesArg::Secret && args.ca_bundle.is_none() {
        notes.push(
            "no caBundle is printed: until it is set, calls fail and objects pass unchanged; use --ca-bundle or \
             --certificates"
                .to_owned(),
        );
    }
    if args.failure_policy == FailurePolicyArg::Ignore {
        notes.push(
            "a kube-controller-manager may start with the in-tree provider while the webhook is unavailable, and a topology \
             of Cluster API may replace all machines by such ones; give the webhook \
             --control-plane-failure-policy=Ignore, or it reports the difference"
                .to_owned(),
        );
    }
    if args.tenant.is_some() {
        return notes;
    }

    let is_printed = |one: &Configuration| {
        objects
            .iter()
            .any(|object| object["kind"] == one.kind() && object["metadata"]["name"] == one.name())
    };
    let absent = Configuration::ALL.into_iter().filter(|one| !is_printed(one));
    let absent: Vec<String> = absent
        .map(|one| format!("{}/{}", one.kind().to_lowercase(), one.name()))
        .collect();
    if !absent.is_empty() {
        notes.push(format!(
            "these are not needed; if an earlier installation has them: kubectl delete --ignore-not-found {}",
            absent.join(" ")
        ));
    }

    notes
}
