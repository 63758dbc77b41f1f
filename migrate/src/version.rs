//! `outrigger version`: the versions of this command, the API server, manager, webhook and CustomResourceDefinition.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::args::{CheckOutput, VersionArgs};
use crate::check::installation::missing_fields;
use crate::check::{access, connect, runtime, write_json};
use crate::explain::printable;
use crate::facts::collect::{Kubelets, Sections};
use crate::facts::{API_VERSION, ClusterFacts, Read};
use crate::{End, Failure};

/// The version of this command.
const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// The width of the first column.
const COLUMN: usize = 12;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    parts: Vec<Part>,
}

/// One of the programs, or the definition.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    name: &'static str,
    /// A version, or why it is not known.
    version: String,
    /// Why it does not fit this command.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// # Errors
/// When the cluster cannot be read, or stdout fails.
pub fn run(args: &VersionArgs, out: &mut dyn Write) -> Result<End, Failure> {
    if args.client {
        return print(args, out, &Versions::of(None));
    }

    let runtime = runtime()?;
    let reader = connect(
        &runtime,
        &access(&args.cluster, args.cluster.context.clone(), Kubelets::None),
    );
    let facts = reader.and_then(|reader| Ok(runtime.block_on(reader.read(Sections::Versions))?));
    if facts.is_err() {
        // The own version is known without the cluster.
        print(args, out, &Versions::of(None))?;
    }

    print(args, out, &Versions::of(Some(&facts?)))
}

fn print(args: &VersionArgs, out: &mut dyn Write, versions: &Versions) -> Result<End, Failure> {
    match args.output {
        CheckOutput::Text => versions.write_text(out)?,
        CheckOutput::Json => write_json(out, versions)?,
    }
    let has_problem = versions.parts.iter().any(|part| part.problem.is_some());

    Ok(if has_problem { End::Refused } else { End::Success })
}

impl Versions {
    fn of(facts: Option<&ClusterFacts>) -> Self {
        let mut parts = vec![Part {
            name: "client",
            version: CLIENT.to_owned(),
            problem: None,
        }];
        if let Some(facts) = facts {
            parts.extend([api_server(facts), manager(facts), webhook(facts), definition(facts)]);
        }

        Self {
            api_version: API_VERSION,
            kind: "Versions",
            context: facts.and_then(|facts| facts.context.clone()),
            parts,
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for Part { name, version, problem } in &self.parts {
            let problem = problem.as_ref().map(|problem| format!("   × {problem}"));
            let text = format!("{version}{}", problem.unwrap_or_default());
            writeln!(out, "{name:<COLUMN$}{}", printable(&text))?;
        }
        Ok(())
    }
}

fn not_read<T>(name: &'static str, read: &Read<T>) -> Part {
    let why = read.get().err().map(|why| why.reason);
    Part {
        name,
        version: format!("not read: {}", why.unwrap_or_default()),
        problem: None,
    }
}

fn api_server(facts: &ClusterFacts) -> Part {
    let name = "API server";
    match facts.version.known() {
        Some(version) => Part {
            name,
            version: version.clone(),
            problem: None,
        },
        None => not_read(name, &facts.version),
    }
}

fn manager(facts: &ClusterFacts) -> Part {
    let name = "manager";
    match facts.managers() {
        Ok(managers) => of_pods(name, managers.map(|manager| manager.version.as_deref())),
        Err(_) => not_read(name, &facts.components),
    }
}

fn webhook(facts: &ClusterFacts) -> Part {
    let name = "webhook";
    match facts.webhooks.known() {
        Some(webhooks) => of_pods(name, webhooks.iter().map(|webhook| webhook.version.as_deref())),
        None => not_read(name, &facts.webhooks),
    }
}

/// The releases of Pods. All of them have to be that of this command.
fn of_pods<'a>(name: &'static str, releases: impl Iterator<Item = Option<&'a str>>) -> Part {
    let mut counts = BTreeMap::<Option<&str>, usize>::new();
    for release in releases {
        *counts.entry(release).or_default() += 1;
    }

    let differs = counts.keys().flatten().any(|release| *release != CLIENT);
    let texts = counts.iter().map(|(release, count)| {
        let release = release.unwrap_or("not in the tag of the image");
        let pods = if *count == 1 { "Pod" } else { "Pods" };
        format!("{release} ({count} {pods})")
    });
    let texts: Vec<String> = texts.collect();
    Part {
        name,
        version: if texts.is_empty() {
            "no Pod is seen".to_owned()
        } else {
            texts.join(", ")
        },
        problem: differs.then(|| format!("not the version of this command, {CLIENT}")),
    }
}

fn definition(facts: &ClusterFacts) -> Part {
    let name = "definition";
    let installed = match facts.definition.known() {
        Some(installed) => installed,
        None => return not_read(name, &facts.definition),
    };
    let (version, problem) = match missing_fields(installed) {
        _ if installed.is_empty() => ("not installed".to_owned(), None),
        Ok(missing) if missing.is_empty() => ("has all fields of this version".to_owned(), None),
        Ok(missing) => (
            "of another version".to_owned(),
            Some(format!("it lacks {}", missing.join(", "))),
        ),
        Err(why) => (why.reason, None),
    };
    Part { name, version, problem }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::definition::own_fields;

    const IN_TREE: &str = include_str!("../tests/facts/kubeadm-in-tree.json");

    fn text(change: impl Fn(&mut Value)) -> (String, bool) {
        let mut facts: Value = serde_json::from_str(IN_TREE).unwrap();
        change(&mut facts);
        let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
        let versions = Versions::of(Some(&facts));
        let mut out = Vec::new();
        versions.write_text(&mut out).unwrap();
        let has_problem = versions.parts.iter().any(|part| part.problem.is_some());
        (String::from_utf8(out).unwrap(), has_problem)
    }

    fn webhooks(releases: &[&str]) -> Value {
        let pods = releases
            .iter()
            .map(|release| json!({"object": "Pod a/b", "version": release}));
        json!({"known": pods.collect::<Vec<_>>()})
    }

    #[test]
    fn nothing_installed_is_no_problem() {
        let (text, has_problem) = text(|_| ());
        assert!(!has_problem, "{text}");
        for part in [
            "API server  v1.26.13\n",
            "manager     no Pod is seen\n",
            "definition  not installed\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn another_release_and_an_older_definition_are_problems() {
        let (right, has_problem) = text(|facts| {
            facts["webhooks"] = webhooks(&[CLIENT, CLIENT]);
            facts["definition"] = json!({"known": own_fields().unwrap()});
        });
        assert!(!has_problem && right.contains(&format!("{CLIENT} (2 Pods)")), "{right}");

        let (wrong, has_problem) = text(|facts| facts["webhooks"] = webhooks(&[CLIENT, "9.0.0"]));
        assert!(
            has_problem && wrong.contains("9.0.0 (1 Pod)   × not the version"),
            "{wrong}"
        );
        let (wrong, has_problem) = text(|facts| facts["definition"] = json!({"known": ["spec"]}));
        assert!(has_problem && wrong.contains("it lacks spec.attestation, "), "{wrong}");
    }

    #[test]
    fn what_was_not_read_says_so() {
        let (text, has_problem) = text(|facts| {
            facts["webhooks"] = json!({"notRead": {"reason": "pods: forbidden", "right": "list pods"}});
        });
        assert!(
            !has_problem && text.contains("webhook     not read: pods: forbidden\n"),
            "{text}"
        );
    }
}
