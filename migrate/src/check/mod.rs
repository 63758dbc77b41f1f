//! `outrigger check`: is something in the way of a migration, or wrong in a cluster that is migrated?
//!
//! ```text
//! facts ─▶ rules (pure) ─▶ report: text, JSON
//! ```
//!
//! One table has all rules ([`rules::ALL`]). A rule answers with what it found, with nothing, or with why it could not look.

pub mod access;
pub mod control_plane;
pub mod error;
pub mod finding;
pub mod installation;
pub mod nodes;
pub mod report;
pub mod rules;
pub mod services;

use std::fs::File;
use std::io::{Read as _, Write};

use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::{CheckArgs, CheckOutput, ClusterArgs, FactsArgs, Severity};
use crate::explain::printable;
use crate::facts::collect::{self, Access, Reader, Sections};
use crate::facts::{API_VERSION, ClusterFacts, KIND};
use crate::{End, Failure};

use error::Error;
use report::Report;

/// Most bytes of a file with facts.
const MAX_FACTS: u64 = 256 << 20;

/// # Errors
/// When a cluster or a file cannot be read, or stdout fails.
pub fn run(args: &CheckArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    if let Some(code) = &args.explain {
        return explain(code, out);
    }

    let rules = rules::named(&args.only)?;
    let pattern = args.cluster.context.as_deref().filter(|name| name.contains('*'));
    if let (Some(pattern), None) = (pattern, &args.facts) {
        return several(args, &rules, pattern, out, err);
    }

    let facts = match &args.facts {
        Some(file) => read(file)?,
        None => of_cluster(&access(&args.cluster, args.cluster.context.clone()))?,
    };
    let report = Report::of(&facts, &rules);
    match args.output {
        CheckOutput::Text => report.write_text(out)?,
        CheckOutput::Json => write_json(out, &report)?,
    }

    Ok(end(args, [&report]))
}

fn end<'a>(args: &CheckArgs, reports: impl IntoIterator<Item = &'a Report>) -> End {
    let is_strict = args.fail_on == Severity::Warning;
    let fails = |report: &Report| report.errors() > 0 || is_strict && report.warnings() + report.not_looked_at() > 0;
    if reports.into_iter().any(fails) {
        End::Refused
    } else {
        End::Success
    }
}

/// One line for each cluster. One that cannot be read does not hide the others, but ends the command with 1.
fn several(
    args: &CheckArgs,
    rules: &[&'static rules::Rule],
    pattern: &str,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<End, Failure> {
    let contexts = collect::contexts(&access(&args.cluster, None), pattern).map_err(Error::from)?;
    if contexts.is_empty() {
        return Err(Error::NoContext(pattern.to_owned()).into());
    }

    let width = contexts
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or_default();
    let (mut reports, mut documents, mut failed) = (Vec::new(), Vec::new(), false);
    for context in contexts {
        match of_cluster(&access(&args.cluster, Some(context.clone()))) {
            Ok(facts) => {
                let report = Report::of(&facts, rules);
                if args.output == CheckOutput::Text {
                    writeln!(out, "{context:<width$}   {}", printable(&report.line()))?;
                }
                documents.push(serde_json::to_value(&report)?);
                reports.push(report);
            }
            Err(error) => {
                let error = error.to_string();
                writeln!(err, "{context:<width$}   {}", printable(&error))?;
                documents.push(json!({
                    "apiVersion": API_VERSION, "kind": "CheckReport", "context": context, "error": error,
                }));
                failed = true;
            }
        }
    }
    if args.output == CheckOutput::Json {
        write_json(out, &documents)?;
    }

    if failed {
        return Ok(End::Failed);
    }
    Ok(end(args, &reports))
}

/// `outrigger facts`.
///
/// # Errors
/// When the cluster cannot be read, or stdout fails.
pub fn facts(args: &FactsArgs, out: &mut dyn Write) -> Result<End, Failure> {
    let facts = of_cluster(&access(&args.cluster, args.cluster.context.clone()))?;
    write_json(out, &facts)?;

    Ok(End::Success)
}

pub(crate) fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;

    Ok(())
}

pub(crate) fn access(args: &ClusterArgs, context: Option<String>) -> Access {
    Access {
        kubeconfig: args.kubeconfig.clone(),
        context,
        timeout: std::time::Duration::from_secs(args.request_timeout),
        kubelets: args.kubelets,
    }
}

pub(crate) fn of_cluster(access: &Access) -> Result<ClusterFacts, Error> {
    let runtime = runtime()?;
    let reader = connect(&runtime, access)?;
    Ok(runtime.block_on(reader.read(Sections::All))?)
}

pub(crate) fn runtime() -> Result<Runtime, Error> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(Error::Runtime)
}

pub(crate) fn connect(runtime: &Runtime, access: &Access) -> Result<Reader, Error> {
    Ok(runtime.block_on(collect::connect(access))?)
}

pub(crate) fn read(file: &str) -> Result<ClusterFacts, Error> {
    let wrong = |reason: String| Error::File {
        file: file.to_owned(),
        reason,
    };
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|file| file.take(MAX_FACTS + 1).read_to_end(&mut bytes));
    opened.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MAX_FACTS {
        return Err(wrong(format!("it is larger than {MAX_FACTS} bytes")));
    }
    let facts: ClusterFacts = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if (facts.api_version.as_str(), facts.kind.as_str()) != (API_VERSION, KIND) {
        let found = format!("{} {}", facts.api_version, facts.kind);
        return Err(wrong(format!(
            "it is {found}, not {API_VERSION} {KIND}; make it with outrigger facts"
        )));
    }

    Ok(facts)
}

/// The page of one check, or the list of all.
fn explain(code: &str, out: &mut dyn Write) -> Result<End, Failure> {
    if code.eq_ignore_ascii_case("all") {
        for rule in rules::ALL {
            writeln!(out, "{}  {:7}  {}", rule.code, rule.severity.as_str(), rule.title)?;
        }
        return Ok(End::Success);
    }

    let rule = rules::ALL.iter().find(|rule| rule.code.eq_ignore_ascii_case(code));
    let rule = rule.ok_or_else(|| Error::NoCheck {
        flag: "explain",
        value: code.to_owned(),
    })?;
    writeln!(
        out,
        "{} ({}, {}): {}\n",
        rule.code,
        rule.group.as_str(),
        rule.severity.as_str(),
        rule.title
    )?;
    writeln!(out, "Why: {}\nFix: {}\nSeen in: {}", rule.why, rule.fix, rule.source)?;

    Ok(End::Success)
}
