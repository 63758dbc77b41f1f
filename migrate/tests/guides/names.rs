//! Names of flags, conditions, reasons, fields, objects, annotations and metrics.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Command, CommandFactory};
use outrigger_decide::kinds;
use outrigger_migrate::args::Args;
use outrigger_shared::annotations;
use outrigger_shared::migration::{CloudProviderMigrationSpec, Mode, NodeTaint, Phase, Profile};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::page::{self, Page};

/// Flags of Kubernetes and of the tools in the pages.
pub const FOREIGN_FLAGS: &str = "all certificate-authority client-certificate client-key \
    cloud-provider cluster cluster-name config context create-namespace dry-run embed-certs \
    enable-leader-migration external-cloud-volume-plugin feature-gates filters for force-conflicts \
    format from-file hostname-override ignore-not-found \
    image-credential-provider-bin-dir image-credential-provider-config \
    instance-group-roles kubeconfig kubeconfig-context leader-elect namespace \
    node-name output overwrite query reuse-values self-heal server \
    server-side set sync-policy tail timeout token type user values yes";

/// Kinds, fields and proper names that are written like conditions.
pub const OTHER_NAMES: &str = "Active Cluster ClusterClass CloudProviderMigration ConfigMap \
    DaemonSet Deployment False Kustomization Lease MachineDeployment Master Node Pod Region Role \
    RespectIgnoreDifferences Running Secret Service StatefulSet TOKEN True VPC Zone CSIMigration CSIMigrationAWS \
    CSIKubeletMigrationCompleted ControllerManagerLeaderMigration MutatingWebhookConfiguration";

/// Fields `spec.NAME` of objects of other projects.
pub const FOREIGN_FIELDS: &str =
    "cloudConfig cloudControllerManager features iam kubeControllerManager rkeConfig version";

/// Names that the pages themselves give.
pub const OWN_NAMES: &str = "outrigger outrigger-migration outrigger-manager-prod outrigger.dev outrigger.tar";

pub fn faults(page: &Page) -> Vec<String> {
    if page.is_overview() {
        return Vec::new();
    }

    let faults = [
        flags(page),
        capitalized(page),
        fields(page),
        objects(page),
        metrics(page),
    ];
    faults.concat().into_iter().map(|fault| page.fault(fault)).collect()
}

fn listed(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|word| word == name)
}

/// The flags of the manager, from the page that a test compares with its command line.
pub fn manager_flags() -> BTreeSet<String> {
    let text = page::read("docs/flags.md");
    let rows = text.lines().filter(|line| line.starts_with("| `-"));
    let cells = rows.filter_map(|row| row.split('|').nth(1).map(str::to_owned));
    let names = cells.flat_map(|cell| cell.split('`').map(str::to_owned).collect::<Vec<_>>());
    names
        .filter_map(|name| name.strip_prefix("--").map(str::to_owned))
        .collect()
}

/// The flags of a program and of its subcommands.
fn flags_of(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|argument| argument.get_long().map(str::to_owned));
    let others = command.get_subcommands().flat_map(flags_of);
    own.chain(others).collect()
}

/// The flags of the webhook, from the source of its command line: this package does not depend on a server.
fn webhook_flags() -> BTreeSet<String> {
    let text = page::read("webhook/src/args.rs");
    let arguments = text.split("#[arg(").skip(1);
    let names = arguments.filter_map(|argument| {
        let (attributes, field) = argument.split_once("pub ")?;
        let given = attributes.split_once("long = \"").map(|(_, rest)| rest);
        match given {
            Some(name) => name.split('"').next().map(str::to_owned),
            None => field.split(':').next().map(|name| name.replace('_', "-")),
        }
    });
    names.collect()
}

fn flags(page: &Page) -> Vec<String> {
    let mut known = manager_flags();
    known.extend(flags_of(&Args::command()));
    known.extend(webhook_flags());
    let mut faults = Vec::new();
    for name in tokens(&page.text, "--", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
    }) {
        if !known.contains(&name) && !listed(FOREIGN_FLAGS, &name) {
            faults.push(format!("there is no flag --{name}"));
        }
    }
    faults
}

/// The texts after a mark that stands at the beginning of a word.
fn tokens(text: &str, mark: &str, is_part: fn(char) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(mark) {
        let before = text[..at].chars().next_back();
        let rest: String = text[at + mark.len()..].chars().take_while(|c| is_part(*c)).collect();
        let is_word = before.is_none_or(|c| !c.is_alphanumeric() && !"-_.!/".contains(c));
        if is_word && rest.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push(rest.trim_end_matches(['-', '.', ':']).to_owned());
        }
    }
    found
}

/// The names in the first cells of a table, below a heading of the status page.
fn rows(heading: &str) -> BTreeSet<String> {
    let text = page::read("docs/status.md");
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let end = rest.find("\n#").unwrap_or(rest.len());
    let cells = rest[..end]
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

pub fn conditions() -> BTreeSet<String> {
    rows("## Conditions")
}

fn is<T: DeserializeOwned>(name: &str) -> bool {
    serde_json::from_value::<T>(Value::from(name)).is_ok()
}

fn capitalized(page: &Page) -> Vec<String> {
    let mut known = conditions();
    known.extend(rows("### Reasons of Ready"));
    known.extend(rows("## Events"));
    let is_known = |name: &str| {
        let is_value = is::<Phase>(name) || is::<Profile>(name) || is::<Mode>(name) || is::<NodeTaint>(name);
        known.contains(name) || is_value || kinds().any(|kind| kind.kind == name) || listed(OTHER_NAMES, name)
    };

    let is_name = |code: &String| code.starts_with(char::is_uppercase) && code.chars().all(char::is_alphanumeric);
    let names = page.code().into_iter().filter(is_name);
    names
        .filter(|name| !is_known(name))
        .map(|name| format!("there is no condition, reason, phase or kind {name}"))
        .collect()
}

fn fields(page: &Page) -> Vec<String> {
    let migration = CloudProviderMigrationSpec::new("a");
    let written = serde_json::to_value(&migration).unwrap();
    let optional = ["attestation", "kubernetesVersion", "leaderMigration"];
    let is_known = |name: &str| written.get(name).is_some() || optional.contains(&name) || listed(FOREIGN_FIELDS, name);
    let codes = page.code().into_iter();
    let names = codes.filter_map(|code| {
        let name: String = code
            .strip_prefix("spec.")?
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        Some(name)
    });
    names
        .filter(|name| !is_known(name))
        .map(|name| format!("there is no field spec.{name}"))
        .collect()
}

fn add_texts(folder: &Path, texts: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_texts(&path, texts);
        } else {
            *texts += &std::fs::read_to_string(path).unwrap();
        }
    }
}

/// Names of objects are in the manifests, or in an object of a page. Annotations and labels are those of the code.
fn objects(page: &Page) -> Vec<String> {
    let mut known = String::new();
    add_texts(&page::root().join("manifests"), &mut known);
    for block in page::pages().iter().flat_map(Page::blocks) {
        if block.language == "yaml" {
            known += &block.text;
        }
    }

    let keys = [
        annotations::APPLY,
        annotations::CONTROL_PLANE_LABEL,
        annotations::KUBELET,
        annotations::PREPARED,
        annotations::UNDO,
        "outrigger.dev/cluster-uid",
    ];
    let texts = page.code().into_iter().chain(page.console());
    let mut faults = Vec::new();
    for text in texts {
        for name in own_names(&text) {
            let is_key = name.starts_with("outrigger.dev/");
            let is_known = match is_key {
                true => keys.contains(&name.as_str()),
                false => known.contains(&name) || listed(OWN_NAMES, &name),
            };
            if !is_known {
                faults.push(format!("there is no {name}"));
            }
        }
    }
    faults
}

/// Names that begin with ours, such as `outrigger-manager` and `outrigger.dev/apply`.
fn own_names(text: &str) -> Vec<String> {
    let is_part = |c: &char| c.is_ascii_alphanumeric() || ":.-/".contains(*c);
    let mut found = Vec::new();
    for (at, mark) in text.match_indices("outrigger") {
        let before = text[..at].chars().next_back();
        let rest: String = text[at + mark.len()..].chars().take_while(is_part).collect();
        let is_word = before.is_none_or(|c| !c.is_alphanumeric() && !"-_./".contains(c));
        if is_word && rest.starts_with(['-', '.', ':']) {
            found.push(format!("{mark}{}", rest.trim_end_matches(['-', '.', ':', '/'])));
        }
    }
    found
}

fn metrics(page: &Page) -> Vec<String> {
    let known = [
        "docs/metrics.md",
        "docs/status.md",
        "docs/webhook.md",
        "certs/README.md",
    ]
    .map(page::read)
    .concat();
    let names = page.code().into_iter().filter(|code| code.starts_with("outrigger_"));
    let names = names.map(|code| code.split('{').next().unwrap_or_default().to_owned());
    names
        .filter(|name| !known.contains(&format!("`{name}")))
        .map(|name| format!("there is no metric {name}"))
        .collect()
}
