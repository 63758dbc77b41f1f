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
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::{CheckArgs, CheckOutput, ClusterArgs, FactsArgs, Severity};
use crate::explain::printable;
use crate::facts::collect::{self, Access, Kubelets, Reader, Sections};
use crate::facts::{API_VERSION, ClusterFacts, KIND};
use crate::{End, Failure};

use error::Error;
use report::Report;

/// Between two reads of `--wait`.
const PERIOD: Duration = Duration::from_secs(5);

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
    if let (Some(pattern), Some(_)) = (pattern, args.wait) {
        return Err(Error::WaitOfSeveral(pattern.to_owned()).into());
    }
    if let (Some(pattern), None) = (pattern, &args.facts) {
        return several(args, &rules, pattern, out, err);
    }

    let access = access(&args.cluster, args.cluster.context.clone(), args.kubelets);
    let (report, end) = match (&args.facts, args.wait) {
        (Some(file), _) => of_facts(args, &rules, &read(file)?),
        (None, None) => of_facts(args, &rules, &of_cluster(&access)?),
        (None, Some(seconds)) => wait(args, &rules, &access, Duration::from_secs(seconds), err)?,
    };
    match args.output {
        CheckOutput::Text => report.write_text(out)?,
        CheckOutput::Json => write_json(out, &report)?,
    }

    Ok(end)
}

fn of_facts(args: &CheckArgs, rules: &[&'static rules::Rule], facts: &ClusterFacts) -> (Report, End) {
    let report = Report::of(facts, rules);
    let end = end(args, [&report]);
    (report, end)
}

/// Reads again until no error is left, with a line for each change. A failed read is a line, as API servers restart during a
/// migration; the last one fails the command.
fn wait(
    args: &CheckArgs,
    rules: &[&'static rules::Rule],
    access: &Access,
    most: Duration,
    err: &mut dyn Write,
) -> Result<(Report, End), Failure> {
    let last_read = Instant::now() + most;
    let runtime = runtime()?;
    let reader = connect(&runtime, access)?;
    let mut last = String::new();
    loop {
        let is_last = Instant::now() + PERIOD > last_read;
        let line = match runtime.block_on(reader.read(Sections::All)) {
            Ok(facts) => {
                let (report, end) = of_facts(args, rules, &facts);
                match end {
                    End::Refused if is_last => return Ok((report, End::NotYet)),
                    End::Refused => report.line(),
                    _ => return Ok((report, end)),
                }
            }
            Err(error) if is_last => return Err(Error::from(error).into()),
            Err(error) => error.to_string(),
        };
        if line != last {
            writeln!(err, "{}", printable(&line))?;
            last = line;
        }
        std::thread::sleep(PERIOD);
    }
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
    let contexts = collect::contexts(&access(&args.cluster, None, args.kubelets), pattern).map_err(Error::from)?;
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
        match of_cluster(&access(&args.cluster, Some(context.clone()), args.kubelets)) {
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
    let facts = of_cluster(&access(&args.cluster, args.cluster.context.clone(), args.kubelets))?;
    write_json(out, &facts)?;

    Ok(End::Success)
}

pub(crate) fn write_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;

    Ok(())
}

pub(crate) fn access(args: &ClusterArgs, context: Option<String>, kubelets: Kubelets) -> Access {
    Access {
        kubeconfig: args.kubeconfig.clone(),
        context,
        timeout: Duration::from_secs(args.request_timeout),
        kubelets,
    }
}

pub(crate) fn of_cluster(access: &Access) -> Result<ClusterFacts, Error> {
    let runtime = runtime()?;
    let reader = connect(&runtime, access)?;
    Ok(runtime.block_on(reader.read(Sections::All))?)
}

/// The facts of a file, or else of the cluster with all kubelets.
pub(crate) fn given(file: Option<&str>, cluster: &ClusterArgs) -> Result<ClusterFacts, Error> {
    match file {
        Some(file) => read(file),
        None => of_cluster(&access(cluster, cluster.context.clone(), Kubelets::All)),
    }
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
