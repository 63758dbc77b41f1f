//! Command lines. Those of `outrigger` and of the programs that the tests build are parsed, as the programs do it. Those
//! of other programs are not run, for the reason in [`NOT_RUN`].

use clap::{CommandFactory, Parser};
use outrigger_migrate::args::Args;
use serde_json::Value;

use crate::names;
use crate::page::{self, Page};
use crate::programs::{self, Parsed};
use crate::shell;

const MACHINE: &str = "changes a machine";
const CLUSTER: &str = "needs the output of a cluster";
const OTHER: &str = "belongs to another project, and needs a cluster of its distribution";
const INSTALLS: &str = "installs on the machine of the user";

/// Programs whose commands are not run, and why.
pub const NOT_RUN: [(&str, &str); 21] = [
    ("argocd", OTHER),
    ("clusterctl", OTHER),
    ("flux", OTHER),
    ("kops", OTHER),
    ("apt-get", INSTALLS),
    ("rustup", INSTALLS),
    ("aws", "needs an AWS account"),
    ("cosign", "writes keys, and needs a registry"),
    ("ctr", MACHINE),
    ("docker", "needs Docker"),
    ("export", "sets variables of the shell of the user"),
    ("hostname", MACHINE),
    ("install", MACHINE),
    ("kubeadm", OTHER),
    ("pgrep", MACHINE),
    ("scp", MACHINE),
    ("systemctl", MACHINE),
    ("openssl", "writes keys"),
    ("base64", CLUSTER),
    ("jq", CLUSTER),
    ("skopeo", "needs a registry"),
];

/// Resources that kubectl commands may name. Only an API server knows whether they exist.
const RESOURCES: &str = "certificates cloudprovidermigration cloudprovidermigrations cluster clusterrole \
    clusterrolebinding clusters.cluster.x-k8s.io clusters.kubermatic.k8c.io clusters.management.cattle.io \
    clusters.provisioning.cattle.io configmap configmaps cpm crd csidriver csinode daemonset daemonsets \
    deployment deployments endpoints endpointslices events kubeadmconfigtemplate kubeadmcontrolplane lease leases \
    machinedeployment machinedeployments machines mutatingwebhookconfiguration mutatingwebhookconfigurations \
    namespace namespaces node nodes ns pod pods role rolebinding secret secrets service serviceaccount services \
    statefulset statefulsets svc tenantcontrolplane validatingwebhookconfiguration \
    validatingwebhookconfigurations";

/// kubectl commands whose first argument is a resource.
const WITH_RESOURCE: [&str; 9] = [
    "annotate", "delete", "describe", "edit", "get", "label", "patch", "scale", "wait",
];

pub fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for block in page.blocks() {
        let is_hidden = ["", "sh", "bash", "shell"].contains(&block.language.as_str());
        if is_hidden {
            faults.push(page.fault(format!("this block has to be a console block: {}", block.text)));
        }
    }

    for line in page.console() {
        for words in shell::commands(&line) {
            faults.extend(of_command(&words).map(|fault| page.fault(format!("{fault}: {line}"))));
        }
    }

    let inline = page.code().into_iter().filter_map(|code| of_inline(&code));
    faults.extend(inline.map(|fault| page.fault(fault)));
    faults
}

/// A command in a sentence.
fn of_inline(code: &str) -> Option<String> {
    let (program, _) = code.split_once(' ')?;
    if program == "outrigger" {
        return of_mention(code);
    }
    // An ellipsis stands for the rest of a command.
    if !programs::is_built(program) || code.contains('…') {
        return None;
    }
    let fault = shell::commands(code).iter().find_map(|words| of_command(words));
    fault.map(|fault| format!("{fault}: {code}"))
}

fn of_command(words: &[String]) -> Option<String> {
    let program = words.first()?.as_str();
    if let Some((_, value)) = program.split_once('=').filter(|(name, _)| is_variable(name)) {
        // The words of a command in a value are not parsed.
        return of_command(&words[1..]).filter(|_| !value.contains("$("));
    }

    match program {
        "outrigger" => Args::try_parse_from(words).err().map(|error| error.to_string()),
        "make" => words[1..].iter().find_map(|word| of_make(word)),
        "cargo" => of_cargo(words),
        _ if programs::is_built(program) => match programs::parse(words) {
            Ok(parsed) => of_parsed(&parsed),
            Err(fault) => Some(fault),
        },
        _ if NOT_RUN.iter().any(|(name, _)| *name == program) => None,
        _ => Some(format!("{program} is neither checked nor listed")),
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// A target, or a variable with its value.
fn of_make(word: &str) -> Option<String> {
    let makefile = page::read("Makefile");
    let is_known = match word.split_once('=') {
        Some((name, _)) => {
            let mut names = makefile.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.any(|word| word == name)
        }
        None => makefile.lines().any(|line| line.starts_with(&format!("{word}: "))),
    };
    (!is_known).then(|| format!("the Makefile has no {word}"))
}

fn of_cargo(words: &[String]) -> Option<String> {
    let [_, install, path, package, ..] = words else {
        return Some("not cargo install --path PACKAGE".to_owned());
    };
    let is_package = page::root().join(package).join("Cargo.toml").exists();
    (install != "install" || path != "--path" || !is_package).then(|| format!("cargo cannot install {package}"))
}

fn of_parsed(parsed: &Parsed) -> Option<String> {
    let values = parsed.flags.iter().filter_map(|(_, value)| value.as_ref());
    let missing = parsed.arguments.iter().chain(values).find_map(|word| of_path(word));
    let more = || match parsed.path[0].as_str() {
        "kubectl" => of_kubectl(parsed),
        "helm" => of_helm(parsed),
        _ => None,
    };
    missing.or_else(more)
}

/// A path that begins with a folder of the project.
fn of_path(word: &str) -> Option<String> {
    let (folder, _) = word.split_once('/')?;
    let is_ours = ["charts", "docs", "manifests", "migrate"].contains(&folder);
    (is_ours && !page::root().join(word).exists()).then(|| format!("there is no {word}"))
}

fn of_kubectl(parsed: &Parsed) -> Option<String> {
    let is_cpm = parsed.arguments.iter().any(|word| word == "cpm");
    for (name, value) in &parsed.flags {
        let Some(value) = value else { continue };
        let fault = match name.as_str() {
            "-o" | "--output" => programs::fault_of_output(parsed, value),
            _ => None,
        };
        let condition = Some(format!("{name}={value}")).filter(|_| is_cpm);
        let fault = fault.or_else(|| of_condition(&condition?));
        if fault.is_some() {
            return fault;
        }
    }

    let named = |name: &&str| WITH_RESOURCE.contains(name);
    parsed.path.get(1).map(String::as_str).filter(named)?;
    let first = parsed.arguments.first()?;
    let types = first.split('/').next().unwrap_or_default().split(',');
    let mut unknown = types.filter(|name| !RESOURCES.split_whitespace().any(|known| known == *name));
    unknown.next().map(|name| format!("there is no resource {name}"))
}

fn of_helm(parsed: &Parsed) -> Option<String> {
    let chart = parsed.arguments.iter().find(|word| word.starts_with("charts/"))?;
    let values: Value = serde_saphyr::from_str(&page::read(&format!("{chart}/values.yaml"))).unwrap();
    let mut flags = parsed.flags.iter();
    flags.find_map(|(name, value)| of_value(&values, name, value.as_deref()))
}

/// A value of a chart, as in `--set manager.securePort=10268`.
fn of_value(values: &Value, name: &str, value: Option<&str>) -> Option<String> {
    let value = value.filter(|_| name.starts_with("--set"))?;
    let (key, _) = value.split_once('=')?;
    let pointer = format!("/{}", key.replace('.', "/"));
    let is_map = |pointer: &str| {
        values
            .pointer(pointer)
            .is_some_and(|map| map.as_object().is_some_and(|map| map.is_empty()))
    };
    let is_free = pointer.rsplit_once('/').is_some_and(|(parent, _)| is_map(parent));
    (values.pointer(&pointer).is_none() && !is_free).then(|| format!("the chart has no value {key}"))
}

/// A condition that a command waits for or prints, in a flag.
fn of_condition(word: &str) -> Option<String> {
    let waited = word.strip_prefix("--for=condition=").map(str::to_owned);
    let printed = word
        .split("@.type==\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .map(str::to_owned);
    let condition = waited.or(printed)?;
    (!names::conditions().contains(&condition)).then(|| format!("there is no condition {condition}"))
}

/// A command in a sentence may lack required flags.
fn of_mention(code: &str) -> Option<String> {
    let mut command = Args::command();
    let mut words = code.split(' ').skip(1).peekable();
    while let Some(word) =
        words.next_if(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-'))
    {
        let Some(found) = command.find_subcommand(word) else {
            return Some(format!("there is no command {word}: {code}"));
        };
        command = found.clone();
    }

    let flags = words.filter_map(|word| word.strip_prefix("--"));
    let mut names = flags.map(|flag| flag.split('=').next().unwrap_or_default());
    let is_known = |name: &&str| {
        command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(*name))
    };
    let unknown = names.find(|name| !is_known(name));
    unknown.map(|name| format!("there is no flag --{name}: {code}"))
}
